//! Where an operation runs.

use super::{ACCOUNT_SERVICE, BUCKET_SERVICE, OBJECT_SERVICE, ObjectOperation, ObjectRequest, Slices, UPLOAD_SERVICE};
use crate::{READ_HANDLER, WRITE_HANDLER};

/// The account of whoever signs nothing. It refuses them: no user has such an id.
const NOBODY: &str = "-";

/// The entity and the handler of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// One of the app's services.
    pub service: &'static str,
    /// A handler of the service.
    pub handler: &'static str,
    /// The entity's key.
    pub key: Vec<u8>,
}

impl ObjectRequest<'_> {
    /// Where it runs: writes in the bucket, which hands them on; reads where they are about. `slices` are the bucket's, as
    /// far as the caller knows: where it is wrong, the answer is [`super::moved`].
    #[must_use]
    pub fn target(&self, slices: &Slices) -> Target {
        let is_in_slice = self.operation.is_about_object();
        let place = if is_in_slice { slices.place(self.bucket, self.key) } else { self.bucket.into() };
        let bucket = || ["{", &*place, "}"].concat().into_bytes();
        let object = || ["{", &*place, "}", self.key].concat().into_bytes();
        let upload = |id: &str| ["{", &*place, "}", self.key, "\0", id].concat().into_bytes();
        let target = |service, handler, key| Target { service, handler, key };
        match &self.operation {
            ObjectOperation::ListBuckets(_) => {
                target(ACCOUNT_SERVICE, READ_HANDLER, self.requester.id.unwrap_or(NOBODY).as_bytes().to_vec())
            }
            ObjectOperation::ListParts { upload: id, .. } | ObjectOperation::RefersTo { part: Some((id, _)), .. } => {
                target(UPLOAD_SERVICE, READ_HANDLER, upload(id))
            }
            operation if operation.is_write() => target(BUCKET_SERVICE, WRITE_HANDLER, bucket()),
            ObjectOperation::CheckWrite { .. } => target(BUCKET_SERVICE, READ_HANDLER, bucket()),
            operation if operation.is_about_object() => target(OBJECT_SERVICE, READ_HANDLER, object()),
            _ => target(BUCKET_SERVICE, READ_HANDLER, bucket()),
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::objects::{ListRequest, Requester};

    #[test]
    fn every_operation_has_an_entity_with_a_key() {
        let request = |id, bucket, key, operation| {
            let requester = Requester { id, ..Requester::default() };
            ObjectRequest { requester, bucket, key, operation, body: Bytes::new() }
        };
        let list = ObjectOperation::ListBuckets(ListRequest::default());
        let keys = [
            request(None, "", "", list.clone()),
            request(Some("ann"), "", "", list),
            request(None, "b", "k", ObjectOperation::GetTags(None)),
            request(None, "b", "", ObjectOperation::HeadBucket),
            request(None, "b", "k", ObjectOperation::AbortUpload { upload: "u".to_owned() }),
        ];
        let keys = keys.map(|request| String::from_utf8(request.target(&Slices::default()).key).expect("text"));
        assert_eq!(keys, ["-", "ann", "{b}k", "{b}", "{b}"]);
    }
}
