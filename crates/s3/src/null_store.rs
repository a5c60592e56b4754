//! A store that keeps no content: it forgets each body as it comes, and gives zeros of the same length. It shows what the
//! front itself costs, without hashing, disk and metadata. It asks nobody who they are.
//!
//! It remembers lengths by bucket and key in memory, until the process ends. Every bucket is there.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use millrace_api::objects::{
    BodyDigests, BodyOwner, BodyRead, BodyWrite, BodyWritten, BucketInfo, ChecksumAlgorithm, Content, Deleted,
    DeletedOne, ListPage, ListRequest, ListedObject, ObjectInfo, ObjectOperation, ObjectRead, ObjectReply,
    ObjectRequest, Objects, Refusal, WrittenBody,
};
use millrace_api::{Begun, Error};

/// Not an MD5, so that no client compares it with its own.
const ETAG: &str = "00000000000000000000000000000000-1";

/// Zeros that are given at a time.
const PIECE_BYTES: usize = 256 << 10;
static ZEROS: [u8; PIECE_BYTES] = [0; PIECE_BYTES];

/// Objects that are remembered: some 100 MB.
const OBJECTS: usize = 1_000_000;

#[derive(Default)]
struct Kept {
    /// Lengths by bucket and key.
    objects: BTreeMap<(String, String), u64>,
    /// Of uploads under way: lengths of parts.
    uploads: BTreeMap<String, BTreeMap<u16, u64>>,
    uploads_begun: u64,
}

/// See the module's documentation. All cores share one.
#[derive(Clone, Default)]
pub struct NullStore(Arc<Mutex<Kept>>);

/// A body that is forgotten as it comes.
#[derive(Default)]
pub struct Forgotten(WrittenBody);

impl BodyWrite for Forgotten {
    type Written = Self;

    async fn write(&mut self, bytes: Bytes) -> Result<(), Error> {
        self.0.length += bytes.len() as u64;
        Ok(())
    }

    async fn finish(self) -> Result<Self, Error> {
        Ok(self)
    }
}

impl BodyWritten for Forgotten {
    fn body(&self) -> &WrittenBody {
        &self.0
    }

    fn inline(&self) -> Bytes {
        Bytes::new()
    }
}

/// Zeros.
pub struct Zeros {
    length: u64,
    left: Range<u64>,
}

impl Zeros {
    fn take(&mut self) -> Bytes {
        let count = (self.left.end - self.left.start).min(PIECE_BYTES as u64);
        self.left.start += count;
        Bytes::from_static(&ZEROS[..count as usize])
    }
}

impl BodyRead for Zeros {
    fn length(&self) -> u64 {
        self.length
    }

    fn seek(&mut self, range: Range<u64>) {
        self.left = range.start.min(self.length)..range.end.min(self.length);
    }

    async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        Ok(Some(self.take()).filter(|bytes| !bytes.is_empty()))
    }

    fn at_hand(&mut self) -> Option<Bytes> {
        (self.left.end - self.left.start <= PIECE_BYTES as u64).then(|| self.take())
    }
}

fn written(size_bytes: u64) -> ObjectReply {
    ObjectReply::Written {
        etag: ETAG.to_owned(),
        version: None,
        modified_ms: 0,
        checksum: None,
        expires: None,
        size_bytes,
    }
}

impl Objects for NullStore {
    type BodyWrite = Forgotten;
    type BodyRead = Zeros;

    fn object(&self, request: ObjectRequest<'_>, _: Option<Forgotten>) -> Begun<ObjectReply> {
        Begun::Ended(self.run(request))
    }

    fn read_object(&self, request: ObjectRequest<'_>) -> Begun<ObjectRead<Zeros>> {
        let found = self.kept().objects.get(&(request.bucket.to_owned(), request.key.to_owned())).copied();
        let Some(length) = found else { return Begun::Ended(Err(no_such_key())) };
        let info = ObjectInfo { size_bytes: length, etag: ETAG.to_owned(), ..ObjectInfo::default() };
        let body = Zeros { length, left: 0..length };
        Begun::Ended(Ok(ObjectRead { info: Box::new(info), content: Content::Inline, body }))
    }

    fn begin_body(&self, _: &BodyOwner<'_>, _: Option<u64>, _: &[ChecksumAlgorithm]) -> Result<Forgotten, Error> {
        Ok(Forgotten(WrittenBody { number: None, length: 0, digests: BodyDigests::default() }))
    }
}

fn no_such_key() -> Error {
    Refusal::NoSuchKey.error("The specified key does not exist.")
}

fn no_such_upload() -> Error {
    Refusal::NoSuchUpload.error("The specified upload does not exist.")
}

impl NullStore {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self, request: ObjectRequest<'_>) -> Result<ObjectReply, Error> {
        use ObjectOperation as Operation;
        let mut kept = self.kept();
        let (bucket, key) = (request.bucket.to_owned(), request.key.to_owned());
        Ok(match request.operation {
            Operation::CreateBucket { .. } | Operation::DeleteBucket | Operation::CheckWrite { .. } => {
                ObjectReply::Done
            }
            Operation::HeadBucket => ObjectReply::Bucket(BucketInfo { name: bucket, ..BucketInfo::default() }),
            Operation::GetCors { .. } => ObjectReply::Cors(None),
            Operation::ListBuckets(_) => ObjectReply::Buckets(ListPage::default()),
            Operation::List(list) => ObjectReply::Objects(kept.list(&bucket, &list)),
            Operation::Put(put) => kept.put(bucket, key, put.body.length)?,
            Operation::Delete(_) => {
                kept.objects.remove(&(bucket, key));
                ObjectReply::Deleted(Deleted::default())
            }
            Operation::DeleteMany { objects } => {
                let mut done = Vec::with_capacity(objects.len());
                for (key, _) in objects {
                    kept.objects.remove(&(bucket.clone(), key.clone()));
                    done.push(DeletedOne { key, version: None, result: Ok(Deleted::default()) });
                }
                ObjectReply::DeletedMany(done)
            }
            Operation::CreateUpload(_) => {
                kept.uploads_begun += 1;
                let id = format!("{:032x}", kept.uploads_begun);
                kept.uploads.insert(id.clone(), BTreeMap::new());
                ObjectReply::Upload { id, checksum: None, expires: None }
            }
            Operation::PutPart(part) => {
                let parts = kept.uploads.get_mut(&part.upload).ok_or_else(no_such_upload)?;
                parts.insert(part.number, part.body.length);
                written(part.body.length)
            }
            Operation::CompleteUpload { upload, .. } => {
                let parts = kept.uploads.remove(&upload).ok_or_else(no_such_upload)?;
                kept.put(bucket, key, parts.values().sum())?
            }
            Operation::AbortUpload { upload } => {
                kept.uploads.remove(&upload).ok_or_else(no_such_upload)?;
                ObjectReply::Done
            }
            _ => return Err(Refusal::NotImplemented.error("The null store does not do this.")),
        })
    }
}

impl Kept {
    fn put(&mut self, bucket: String, key: String, length: u64) -> Result<ObjectReply, Error> {
        if self.objects.len() >= OBJECTS && !self.objects.contains_key(&(bucket.clone(), key.clone())) {
            return Err(Refusal::QuotaExceeded.error("The null store remembers no more objects."));
        }
        self.objects.insert((bucket, key), length);
        Ok(written(length))
    }

    fn list(&self, bucket: &str, list: &ListRequest) -> ListPage<ListedObject> {
        let mut page = ListPage::default();
        let from = list.prefix.clone().max(list.after.clone());
        let all = self.objects.range((bucket.to_owned(), from)..).take_while(|((of, _), _)| of == bucket);
        let all = all.map(|((_, key), length)| (key, *length)).filter(|(key, _)| **key > list.after);
        for (key, size_bytes) in all.take_while(|(key, _)| key.starts_with(&list.prefix)) {
            let rest = &key[list.prefix.len()..];
            let cut = if list.delimiter.is_empty() { None } else { rest.find(&list.delimiter) };
            let cut = cut.map(|at| key[..list.prefix.len() + at + list.delimiter.len()].to_owned());
            let is_known = |cut: &String| page.common_prefixes.last() == Some(cut) || *cut == list.after;
            if cut.as_ref().is_some_and(is_known) {
                continue;
            }
            if page.items.len() + page.common_prefixes.len() == usize::from(list.limit) {
                let last = page.items.last().map(|item: &ListedObject| &item.key).max(page.common_prefixes.last());
                page.next = last.map(|last| (last.clone(), String::new()));
                break;
            }
            match cut {
                Some(cut) => page.common_prefixes.push(cut),
                None => page.items.push(ListedObject {
                    key: key.clone(),
                    size_bytes,
                    etag: ETAG.to_owned(),
                    storage_class: "STANDARD".to_owned(),
                    ..ListedObject::default()
                }),
            }
        }
        page
    }
}

#[cfg(test)]
mod tests {
    use millrace_api::objects::{PartInput, PutInput, Requester};

    use super::*;

    fn ask(store: &NullStore, key: &str, operation: ObjectOperation) -> Result<ObjectReply, Error> {
        let requester = Requester::default();
        store.run(ObjectRequest { requester, bucket: "b", key, operation, body: Bytes::new() })
    }

    fn body(length: u64) -> WrittenBody {
        WrittenBody { length, ..WrittenBody::default() }
    }

    fn length(store: &NullStore, key: &str) -> Option<u64> {
        store.kept().objects.get(&("b".to_owned(), key.to_owned())).copied()
    }

    #[test]
    fn lengths_are_remembered_and_nothing_else() {
        let store = NullStore::default();
        for (key, size) in [("a", 1), ("d/x", 2), ("d/y", 3), ("e", 4)] {
            let put = PutInput { body: body(size), ..PutInput::default() };
            ask(&store, key, ObjectOperation::Put(Box::new(put))).expect("kept");
        }
        let pages = |delimiter: &str, limit| {
            let mut request = ListRequest { delimiter: delimiter.to_owned(), limit, ..ListRequest::default() };
            let mut pages = Vec::new();
            loop {
                let page = store.kept().list("b", &request);
                let keys: Vec<String> = page.items.iter().map(|item| item.key.clone()).collect();
                pages.push([keys, page.common_prefixes].concat().join(" "));
                let Some((next, _)) = page.next else { return pages };
                request.after = next;
            }
        };
        assert_eq!(pages("", 10), ["a d/x d/y e"]);
        assert_eq!(pages("/", 2), ["a d/", "e"]);
        assert_eq!(pages("/", 1), ["a", "d/", "e"]);
        ask(&store, "a", ObjectOperation::Delete(Default::default())).expect("done");
        assert_eq!((length(&store, "a"), length(&store, "e")), (None, Some(4)));
    }

    #[test]
    fn an_upload_has_the_length_of_its_parts() {
        let store = NullStore::default();
        let Ok(ObjectReply::Upload { id, .. }) = ask(&store, "k", ObjectOperation::CreateUpload(Box::default())) else {
            panic!("an upload")
        };
        for number in [1, 2, 2] {
            let part = PartInput { upload: id.clone(), number, body: body(5), copy: None };
            ask(&store, "k", ObjectOperation::PutPart(Box::new(part))).expect("kept");
        }
        let complete = || ObjectOperation::CompleteUpload {
            upload: id.clone(),
            parts: Vec::new(),
            checksum: None,
            size_bytes: None,
            conditions: Default::default(),
        };
        ask(&store, "k", complete()).expect("done");
        assert_eq!(length(&store, "k"), Some(10));
        assert_eq!(ask(&store, "k", complete()).map_err(|error| Refusal::of(&error)), Err(Some(Refusal::NoSuchUpload)));
    }
}
