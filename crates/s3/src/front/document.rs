//! Operations whose body is a document or nothing, and their replies.

use bytes::Bytes;
use http::{HeaderValue, StatusCode};
use millrace_api::objects::{BodyDigests, ChecksumAlgorithm, Configuration, ObjectOperation, ObjectReply, Objects};
use millrace_checksum::checksum;

use super::arriving::Arriving;
use super::respond::{self, set, set_expires, set_version};
use super::{Front, Reply, RoutedRequest};
use crate::algorithm::{kind_by_name, kind_name, names};
use crate::error::{Code, S3Error};
use crate::limits;
use crate::operation::digests::{Claims, whole};
use crate::operation::{has_document, list, needs_digest, parse};
use crate::route::Action;
use crate::signature::Payload;
use crate::times;
use crate::users::Users;
use crate::xml::{Writer, access, configuration, delete, lists, tagging, uploads};

impl<B: Objects, U: Users> Front<B, U> {
    pub(crate) async fn document(&self, asked: &RoutedRequest<'_>, body: &mut Arriving) -> Result<Reply<B>, S3Error> {
        let document = self.read_document(asked, body).await?;
        let operation = parse(asked.action, &asked.head, &document, &self.users)?;
        let part_count = match &operation {
            ObjectOperation::CompleteUpload { parts, .. } => u16::try_from(parts.len()).unwrap_or(u16::MAX),
            _ => 0,
        };
        if asked.action == Action::CompleteUpload {
            self.check_checksum_kind(asked).await?;
        }
        let target = asked.target;
        let reply = self.ask(asked.requester()?, &target.bucket, &target.key, operation).await?;
        self.written(asked, &document, reply, part_count)
    }

    /// Refuses a completion whose kind of checksum is not the one that the upload was begun with.
    async fn check_checksum_kind(&self, asked: &RoutedRequest<'_>) -> Result<(), S3Error> {
        let Some(said) = asked.head.header("x-amz-checksum-type")?.and_then(kind_by_name) else { return Ok(()) };
        match self.upload_checksum(asked, &asked.head.upload()).await? {
            Some((_, kind)) if kind != said => {
                let message = format!(
                    "The upload was created using the {} checksum mode. The complete request must use the same checksum \
                     mode.",
                    kind_name(kind)
                );
                Err(S3Error::new(Code::InvalidRequest, message))
            }
            _ => Ok(()),
        }
    }

    /// Reads the document and compares it with what the client says of it.
    async fn read_document(&self, asked: &RoutedRequest<'_>, body: &mut Arriving) -> Result<Bytes, S3Error> {
        // What comes with a request that has no document is passed over, and proven all the same.
        let document = body.collect(limits::DOCUMENT_BYTES).await?;
        let is_completion = asked.action == Action::CompleteUpload;
        // The checksum in the head of a completion is the object's, not the document's.
        let mut claims = if is_completion { Claims::default() } else { Claims::read(&asked.head)? };
        if let Payload::Sha256(sha256) = asked.identity.payload {
            claims.sha256 = Some(sha256);
        }
        if has_document(asked.action) && needs_digest(asked.action) && !claims.says_something() {
            let message = "Missing required header for this request: Content-MD5 OR x-amz-checksum-*";
            return Err(S3Error::new(Code::InvalidRequest, message));
        }
        if claims.says_something() || claims.sha256.is_some() {
            claims.check(&digests(&document, &claims), body.trailer())?;
        }
        Ok(document)
    }

    fn written(
        &self,
        asked: &RoutedRequest<'_>,
        document: &[u8],
        reply: ObjectReply,
        part_count: u16,
    ) -> Result<Reply<B>, S3Error> {
        let head = &asked.head;
        let bucket = asked.target.bucket.as_str();
        Ok(match reply {
            ObjectReply::Done => self.done(asked),
            ObjectReply::Bucket(info) => self.bucket(asked, &info.name),
            ObjectReply::Buckets(page) => {
                let own_id = asked.identity.id.as_deref().unwrap_or_default();
                let prefix = head.query.get("prefix").unwrap_or_default();
                respond::document(lists::buckets(&page, prefix, own_id, head.region, &self.users))
            }
            ObjectReply::Objects(page) => {
                let (request, form) = match asked.action {
                    Action::ListObjectsV2 => list::objects_second(head)?,
                    _ => list::objects(head)?,
                };
                respond::document(lists::objects(bucket, &page, &request, &form, &self.users))
            }
            ObjectReply::Versions(page) => {
                let (request, form) = list::versions(head)?;
                respond::document(lists::versions(bucket, &page, &request, &form, &self.users))
            }
            ObjectReply::Uploads(page) => {
                let (request, form) = list::uploads(head)?;
                respond::document(lists::uploads(bucket, &page, &request, &form, &self.users))
            }
            ObjectReply::DeletedMany(results) => {
                let is_quiet = delete::read_delete(document, false)?.1;
                respond::document(delete::write_deleted(&results, is_quiet))
            }
            ObjectReply::Configuration(setting) => {
                let mut reply = respond::document(configuration::write_configuration(&setting, &self.users));
                if matches!(setting, Configuration::Policy(_)) {
                    reply.headers_mut().insert("content-type", HeaderValue::from_static("application/json"));
                }
                reply
            }
            ObjectReply::PolicyStatus(status) => respond::document(uploads::policy_status(status)),
            other => self.written_of_object(asked, other, part_count)?,
        })
    }

    fn written_of_object(
        &self,
        asked: &RoutedRequest<'_>,
        reply: ObjectReply,
        part_count: u16,
    ) -> Result<Reply<B>, S3Error> {
        let head = &asked.head;
        let (bucket, key) = (asked.target.bucket.as_str(), asked.target.key.as_str());
        Ok(match reply {
            ObjectReply::Attributes { info, parts } => {
                let (ObjectOperation::GetAttributes { parts_after, max_parts, .. }, wanted) = list::attributes(head)?
                else {
                    return Err(Code::InternalError.into());
                };
                let text = uploads::attributes(&info, &parts, wanted, parts_after, max_parts);
                let mut reply = respond::document(text);
                set(reply.headers_mut(), "last-modified", &times::http_date(info.modified_ms));
                set_version(reply.headers_mut(), info.version.as_deref());
                reply
            }
            ObjectReply::Access(list) => respond::document(access::write_list(&list, &self.users)),
            ObjectReply::Tags { tags, version } => {
                let mut reply = respond::document(tagging::write_tags(&tags));
                set_version(reply.headers_mut(), version.as_deref());
                reply
            }
            ObjectReply::Retention(retention) => respond::document(configuration::write_retention(&retention)),
            ObjectReply::LegalHold(is_held) => respond::document(configuration::write_legal_hold(is_held)),
            ObjectReply::Deleted(deleted) => {
                let mut reply = respond::empty(StatusCode::NO_CONTENT);
                set_version(reply.headers_mut(), deleted.version.as_deref());
                if deleted.is_delete_marker {
                    set(reply.headers_mut(), "x-amz-delete-marker", "true");
                }
                reply
            }
            ObjectReply::Upload { id, checksum, expires } => {
                let mut reply = respond::document(uploads::begun(bucket, key, &id));
                let headers = reply.headers_mut();
                if let Some((algorithm, kind)) = checksum {
                    set(headers, "x-amz-checksum-algorithm", names(algorithm).name);
                    set(headers, "x-amz-checksum-type", kind_name(kind));
                }
                if let Some((unix_ms, rule)) = &expires {
                    set(headers, "x-amz-abort-date", &times::http_date(*unix_ms));
                    set(headers, "x-amz-abort-rule-id", rule);
                }
                reply
            }
            ObjectReply::Parts(page) => {
                let (after, limit) = list::parts_page(head)?;
                let id = head.upload();
                respond::document(uploads::parts(bucket, key, &id, after, limit, &page, &self.users))
            }
            ObjectReply::Written { etag, version, checksum, expires, .. } => {
                let (at, checksum) = (self.location(asked), checksum.as_ref());
                let mut reply = respond::document(uploads::completed(&at, bucket, key, &etag, checksum, part_count));
                set_version(reply.headers_mut(), version.as_deref());
                set_expires(reply.headers_mut(), expires.as_ref());
                reply
            }
            ObjectReply::Version(version) => {
                let is_deletion = asked.action == Action::DeleteObjectTagging;
                let mut reply = respond::empty(if is_deletion { StatusCode::NO_CONTENT } else { StatusCode::OK });
                set_version(reply.headers_mut(), version.as_deref());
                reply
            }
            _ => return Err(Code::InternalError.into()),
        })
    }

    /// The URL of an object, as the client addressed the server.
    pub(crate) fn location(&self, asked: &RoutedRequest<'_>) -> String {
        let scheme = if asked.peer.is_encrypted { "https" } else { "http" };
        let key = percent_encoding::utf8_percent_encode(&asked.target.key, crate::xml::ENCODED);
        if asked.target.is_virtual_host {
            return format!("{scheme}://{}/{key}", asked.host);
        }
        format!("{scheme}://{}/{}/{key}", asked.host, asked.target.bucket)
    }

    fn done(&self, asked: &RoutedRequest<'_>) -> Reply<B> {
        let status = match asked.action {
            Action::DeleteBucket
            | Action::DeleteConfiguration(_)
            | Action::PutConfiguration(millrace_api::objects::ConfigurationKind::Policy)
            | Action::DeleteObject
            | Action::DeleteObjectTagging
            | Action::AbortUpload => StatusCode::NO_CONTENT,
            _ => StatusCode::OK,
        };
        let mut reply = respond::empty(status);
        if asked.action == Action::CreateBucket {
            set(reply.headers_mut(), "location", &format!("/{}", asked.target.bucket));
        }
        reply
    }

    /// What only needs the bucket to be there.
    fn bucket(&self, asked: &RoutedRequest<'_>, name: &str) -> Reply<B> {
        match asked.action {
            Action::GetLocation => respond::document(uploads::location(asked.head.region)),
            Action::Absent(document) => respond::document(Writer::new(document).finish()),
            Action::CreateBucket => {
                let mut reply = respond::empty(StatusCode::OK);
                set(reply.headers_mut(), "location", &format!("/{name}"));
                reply
            }
            _ => {
                let mut reply = respond::empty(StatusCode::OK);
                set(reply.headers_mut(), "x-amz-bucket-region", asked.head.region);
                reply
            }
        }
    }
}

/// What a document's digests are, as far as the claims need them.
fn digests(document: &[u8], claims: &Claims) -> BodyDigests {
    let algorithms = claims.needed(claims.kept().or(Some(ChecksumAlgorithm::Crc32)));
    let value = |algorithm: ChecksumAlgorithm| checksum(algorithm, document);
    let md5 = checksum(ChecksumAlgorithm::Md5, document);
    BodyDigests {
        md5: md5.try_into().unwrap_or_default(),
        checksums: algorithms.into_iter().map(|algorithm| whole(algorithm, value(algorithm))).collect(),
    }
}
