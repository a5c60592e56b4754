//! A store in memory: simple, and right as far as the front can tell.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

use bytes::Bytes;
use millrace_api::objects::*;
use millrace_api::{Begun, Error};
use millrace_checksum::checksum as digest;
use millrace_s3::users::{KnownUser, Users};

/// Alice and Bob. The secret of a key is its name with `-secret` behind it.
#[derive(Clone)]
pub struct People;

impl Users for People {
    fn find(&self, access_key: &str) -> Option<KnownUser> {
        let name = self.display_name(access_key)?;
        Some(KnownUser { id: access_key.to_owned(), name, secret: format!("{access_key}-secret") })
    }

    fn display_name(&self, id: &str) -> Option<String> {
        ["alice", "bob"].contains(&id).then(|| id.to_uppercase())
    }

    fn id_of_name(&self, name: &str) -> Option<String> {
        ["alice", "bob"].contains(&name).then(|| name.to_owned())
    }

    fn id_of_email(&self, email: &str) -> Option<String> {
        email.strip_suffix("@test").map(str::to_owned)
    }
}

struct Stored {
    info: ObjectInfo,
    content: Bytes,
    is_public: bool,
}

/// Content and ETag by number.
type Parts = BTreeMap<u16, (Bytes, String)>;

#[derive(Default)]
struct Bucket {
    owner: String,
    objects: BTreeMap<String, Stored>,
    /// The key and the parts of each.
    uploads: BTreeMap<String, (String, Parts)>,
    /// The checksums that uploads were begun with.
    upload_checksums: BTreeMap<String, (ChecksumAlgorithm, ChecksumKind)>,
    settings: BTreeMap<ConfigurationKind, Configuration>,
}

/// The store.
#[derive(Clone, Default)]
pub struct Memory(Rc<RefCell<BTreeMap<String, Bucket>>>);

pub struct Writing {
    bytes: Vec<u8>,
    algorithms: Vec<ChecksumAlgorithm>,
}

pub struct Written(WrittenBody, Bytes);

pub struct Reading {
    content: Bytes,
    range: Range<u64>,
    lost_from: Option<u64>,
}

impl BodyWrite for Writing {
    type Written = Written;

    async fn write(&mut self, bytes: Bytes) -> Result<(), Error> {
        self.bytes.extend_from_slice(&bytes);
        Ok(())
    }

    async fn finish(self) -> Result<Written, Error> {
        let checksums = self.algorithms.iter().map(|algorithm| Checksum {
            algorithm: *algorithm,
            kind: ChecksumKind::FullObject,
            value: digest(*algorithm, &self.bytes),
        });
        let md5 = digest(ChecksumAlgorithm::Md5, &self.bytes).try_into().expect("16 bytes");
        let digests = BodyDigests { md5, checksums: checksums.collect() };
        let bytes = Bytes::from(self.bytes);
        Ok(Written(WrittenBody::inline(&bytes, digests), bytes))
    }
}

impl BodyWritten for Written {
    fn body(&self) -> &WrittenBody {
        &self.0
    }

    fn inline(&self) -> Bytes {
        self.1.clone()
    }
}

impl BodyRead for Reading {
    fn length(&self) -> u64 {
        self.content.len() as u64
    }

    fn seek(&mut self, range: Range<u64>) {
        self.range = range;
    }

    async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        const PIECE: u64 = 100_000;
        if self.range.is_empty() {
            return Ok(None);
        }
        // An object may say from which byte on the disk has lost it.
        if self.lost_from.is_some_and(|lost_from| self.range.start >= lost_from) {
            return Err(body_lost("the body is damaged"));
        }
        let end = self.range.end.min(self.range.start + PIECE);
        let piece = self.content.slice(self.range.start as usize..end as usize);
        self.range.start = end;
        Ok(Some(piece))
    }

    fn at_hand(&mut self) -> Option<Bytes> {
        const AT_HAND: u64 = 1_000;
        let is_small = self.range.end - self.range.start <= AT_HAND;
        is_small.then(|| self.content.slice(self.range.start as usize..self.range.end as usize))
    }
}

fn refused<T>(refusal: Refusal) -> Result<T, Error> {
    Err(refusal.error(refusal.as_str()))
}

impl Objects for Memory {
    type BodyWrite = Writing;
    type BodyRead = Reading;

    fn object(&self, request: ObjectRequest<'_>, _: Option<Written>) -> Begun<ObjectReply> {
        Begun::Ended(self.run(request))
    }

    fn read_object(&self, request: ObjectRequest<'_>) -> Begun<ObjectRead<Reading>> {
        Begun::Ended((|| {
            let (ObjectOperation::Get(conditions) | ObjectOperation::GetSource(conditions)) = &request.operation else {
                panic!("not a read")
            };
            let buckets = self.0.borrow();
            let bucket = bucket(&buckets, &request)?;
            let stored = object(bucket, &request, conditions)?;
            let range = 0..stored.info.size_bytes;
            let lost_from = stored.info.metadata.iter().find(|(name, _)| name == "lost-from");
            let lost_from = lost_from.map(|(_, byte)| byte.parse().expect("a number"));
            let body = Reading { content: stored.content.clone(), range, lost_from };
            Ok(ObjectRead { info: Box::new(stored.info.clone()), content: Content::Inline, body })
        })())
    }

    fn begin_body(&self, _: &BodyOwner<'_>, _: Option<u64>, checksums: &[ChecksumAlgorithm]) -> Result<Writing, Error> {
        Ok(Writing { bytes: Vec::new(), algorithms: checksums.to_vec() })
    }
}

fn bucket<'a>(buckets: &'a BTreeMap<String, Bucket>, request: &ObjectRequest<'_>) -> Result<&'a Bucket, Error> {
    let Some(bucket) = buckets.get(request.bucket) else { return refused(Refusal::NoSuchBucket) };
    let is_owner = request.requester.is_system || request.requester.id == Some(&bucket.owner);
    let is_public = bucket.objects.get(request.key).is_some_and(|stored| stored.is_public)
        && matches!(request.operation, ObjectOperation::Get(_));
    if is_owner || is_public { Ok(bucket) } else { refused(Refusal::AccessDenied) }
}

fn object<'a>(
    bucket: &'a Bucket,
    request: &ObjectRequest<'_>,
    conditions: &ReadConditions,
) -> Result<&'a Stored, Error> {
    let Some(stored) = bucket.objects.get(request.key) else { return refused(Refusal::NoSuchKey) };
    let names = |etags: &[String]| etags.iter().any(|etag| etag == "*" || *etag == stored.info.etag);
    if !conditions.if_match.is_empty() && !names(&conditions.if_match) {
        return refused(Refusal::PreconditionFailed);
    }
    if names(&conditions.if_none_match) {
        return refused(Refusal::NotModified);
    }
    Ok(stored)
}

fn etag(digests: &BodyDigests) -> String {
    digests.md5.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn written(info: &ObjectInfo) -> ObjectReply {
    ObjectReply::Written {
        etag: info.etag.clone(),
        version: None,
        modified_ms: info.modified_ms,
        checksum: info.checksum.clone(),
        expires: None,
        size_bytes: info.size_bytes,
    }
}

impl Memory {
    fn run(&self, request: ObjectRequest<'_>) -> Result<ObjectReply, Error> {
        use ObjectOperation as Operation;
        let id = request.requester.id.unwrap_or_default().to_owned();
        let mut buckets = self.0.borrow_mut();
        match &request.operation {
            Operation::ListBuckets(_) if id.is_empty() => return refused(Refusal::AccessDenied),
            Operation::ListBuckets(_) => {
                let own = buckets.iter().filter(|(_, bucket)| bucket.owner == id);
                let items =
                    own.map(|(name, _)| BucketInfo { name: name.clone(), owner: id.clone(), ..BucketInfo::default() });
                return Ok(ObjectReply::Buckets(ListPage { items: items.collect(), ..ListPage::default() }));
            }
            Operation::CreateBucket { .. } => {
                if let Some(bucket) = buckets.get(request.bucket) {
                    let is_own = bucket.owner == id;
                    return refused(if is_own {
                        Refusal::BucketAlreadyOwnedByYou
                    } else {
                        Refusal::BucketAlreadyExists
                    });
                }
                buckets.insert(request.bucket.to_owned(), Bucket { owner: id, ..Bucket::default() });
                return Ok(ObjectReply::Done);
            }
            _ => {}
        }
        let known = bucket(&buckets, &request)?;
        match &request.operation {
            Operation::DeleteBucket if known.objects.is_empty() => {
                buckets.remove(request.bucket);
                Ok(ObjectReply::Done)
            }
            Operation::DeleteBucket => refused(Refusal::BucketNotEmpty),
            Operation::HeadBucket => {
                Ok(ObjectReply::Bucket(BucketInfo { name: request.bucket.to_owned(), ..BucketInfo::default() }))
            }
            Operation::Get(conditions) => {
                let info = Box::new(object(known, &request, conditions)?.info.clone());
                Ok(ObjectReply::Object { info, content: Content::Inline })
            }
            Operation::List(list) => Ok(ObjectReply::Objects(listed(known, list))),
            Operation::GetConfiguration(kind) => match known.settings.get(kind) {
                Some(setting) => Ok(ObjectReply::Configuration(setting.clone())),
                None => refused(Refusal::NoSuchConfiguration),
            },
            Operation::GetCors { origin, method, .. } => {
                let Some(Configuration::Cors(_)) = known.settings.get(&ConfigurationKind::Cors) else {
                    return Ok(ObjectReply::Cors(None));
                };
                let allowed = [("access-control-allow-origin", origin), ("access-control-allow-methods", method)];
                let allowed = allowed.map(|(name, value)| (name.to_owned(), value.clone()));
                Ok(ObjectReply::Cors(Some(allowed.to_vec())))
            }
            Operation::CheckWrite { .. } => Ok(ObjectReply::Done),
            _ => {
                let bucket = buckets.get_mut(request.bucket).expect("looked at above");
                change(bucket, request)
            }
        }
    }
}

fn listed(bucket: &Bucket, list: &ListRequest) -> ListPage<ListedObject> {
    let fit = bucket.objects.iter().filter(|(key, _)| key.starts_with(&list.prefix) && **key > list.after);
    let mut items: Vec<ListedObject> = fit
        .map(|(key, stored)| ListedObject {
            key: key.clone(),
            size_bytes: stored.info.size_bytes,
            etag: stored.info.etag.clone(),
            owner: bucket.owner.clone(),
            storage_class: "STANDARD".to_owned(),
            ..ListedObject::default()
        })
        .collect();
    let is_cut = items.len() > usize::from(list.limit);
    items.truncate(list.limit.into());
    let next = items.last().filter(|_| is_cut).map(|item| (item.key.clone(), String::new()));
    ListPage { items, common_prefixes: Vec::new(), next }
}

fn change(bucket: &mut Bucket, request: ObjectRequest<'_>) -> Result<ObjectReply, Error> {
    use ObjectOperation as Operation;
    let key = request.key.to_owned();
    Ok(match request.operation {
        Operation::Put(put) => {
            if put.conditions.if_none_match == ["*"] && bucket.objects.contains_key(&key) {
                return refused(Refusal::PreconditionFailed);
            }
            let checksum = put.body.digests.of(put.checksum.unwrap_or(ChecksumAlgorithm::Crc64Nvme)).cloned();
            let info = ObjectInfo {
                size_bytes: put.body.length,
                etag: etag(&put.body.digests),
                owner: bucket.owner.clone(),
                headers: put.input.headers,
                metadata: put.input.metadata,
                tags: put.input.tags,
                checksum,
                ..ObjectInfo::default()
            };
            let reply = written(&info);
            let is_public = put.input.access == AccessInput::Canned(CannedAccess::PublicRead);
            bucket.objects.insert(key, Stored { info, content: request.body, is_public });
            reply
        }
        Operation::Delete(_) => {
            bucket.objects.remove(&key);
            ObjectReply::Deleted(Deleted::default())
        }
        Operation::DeleteMany { objects } => {
            let results = objects.into_iter().map(|(key, _)| {
                bucket.objects.remove(&key);
                DeletedOne { key, version: None, result: Ok(Deleted::default()) }
            });
            ObjectReply::DeletedMany(results.collect())
        }
        Operation::GetTags(_) => match bucket.objects.get(&key) {
            Some(stored) => ObjectReply::Tags { tags: stored.info.tags.clone(), version: None },
            None => return refused(Refusal::NoSuchKey),
        },
        Operation::PutTags { tags, .. } => {
            let Some(stored) = bucket.objects.get_mut(&key) else { return refused(Refusal::NoSuchKey) };
            stored.info.tags = tags;
            ObjectReply::Version(None)
        }
        Operation::PutConfiguration { configuration, .. } => {
            bucket.settings.insert(configuration.kind(), configuration);
            ObjectReply::Done
        }
        Operation::CreateUpload(input) => {
            let id = format!("upload-{}", bucket.uploads.len());
            if let Some((algorithm, kind)) = input.checksum {
                let checksum = (algorithm, kind.unwrap_or(ChecksumKind::Composite));
                bucket.upload_checksums.insert(id.clone(), checksum);
            }
            bucket.uploads.insert(id.clone(), (key, BTreeMap::new()));
            ObjectReply::Upload { id, checksum: None, expires: None }
        }
        other => return upload(bucket, other, request.body),
    })
}

fn upload(bucket: &mut Bucket, operation: ObjectOperation, body: Bytes) -> Result<ObjectReply, Error> {
    use ObjectOperation as Operation;
    let (Operation::ListParts { upload: id, .. }
    | Operation::CompleteUpload { upload: id, .. }
    | Operation::AbortUpload { upload: id }) = &operation
    else {
        let Operation::PutPart(part) = operation else { panic!("{operation:?}") };
        let Some((_, parts)) = bucket.uploads.get_mut(&part.upload) else { return refused(Refusal::NoSuchUpload) };
        let etag = etag(&part.body.digests);
        let info = ObjectInfo { etag: etag.clone(), size_bytes: part.body.length, ..ObjectInfo::default() };
        parts.insert(part.number, (body, etag));
        return Ok(written(&info));
    };
    let Some((key, parts)) = bucket.uploads.get(id).cloned() else { return refused(Refusal::NoSuchUpload) };
    Ok(match operation {
        Operation::ListParts { .. } => {
            let listed = parts.iter().map(|(number, (body, etag))| ListedPart {
                number: *number,
                size_bytes: body.len() as u64,
                etag: etag.clone(),
                ..ListedPart::default()
            });
            let checksum = bucket.upload_checksums.get(id).copied();
            let upload = Some(ListedUpload { checksum, ..ListedUpload::default() });
            let total = parts.len() as u16;
            ObjectReply::Parts(PartsPage { parts: listed.collect(), total, upload, ..PartsPage::default() })
        }
        Operation::CompleteUpload { upload, parts: named, .. } => {
            let mut content = Vec::new();
            for part in &named {
                match parts.get(&part.number) {
                    Some((body, etag)) if *etag == part.etag => content.extend_from_slice(body),
                    _ => return refused(Refusal::InvalidPart),
                }
            }
            bucket.uploads.remove(&upload);
            let info = ObjectInfo {
                size_bytes: content.len() as u64,
                etag: format!("e-{}", named.len()),
                ..ObjectInfo::default()
            };
            let reply = written(&info);
            bucket.objects.insert(key, Stored { info, content: content.into(), is_public: false });
            reply
        }
        _ => {
            let Operation::AbortUpload { upload } = operation else { panic!("matched above") };
            bucket.uploads.remove(&upload);
            ObjectReply::Done
        }
    })
}
