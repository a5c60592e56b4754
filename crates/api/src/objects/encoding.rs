//! How operations and replies travel as the input and output of a call: one byte of version, postcard, and behind it
//! the inline content as it is, so that it is never copied on its way.

use bytes::{Buf, Bytes};
use millrace_base::{Error, ErrorCode};
use serde::{Deserialize, Serialize};

use super::{ObjectOperation, ObjectReply, ObjectRequest, Requester};

/// The encoding of operations and replies.
const VERSION: u8 = 1;

/// What stands before the body.
#[derive(Serialize, Deserialize)]
struct Head<'a> {
    #[serde(borrow)]
    requester: Requester<'a>,
    bucket: &'a str,
    key: &'a str,
    operation: ObjectOperation,
}

impl ObjectRequest<'_> {
    /// As the input of a call.
    #[must_use]
    pub fn to_bytes(&self) -> Bytes {
        #[derive(Serialize)]
        struct HeadRef<'a> {
            requester: &'a Requester<'a>,
            bucket: &'a str,
            key: &'a str,
            operation: &'a ObjectOperation,
        }
        let head =
            HeadRef { requester: &self.requester, bucket: self.bucket, key: self.key, operation: &self.operation };
        encode(&head, &self.body)
    }
}

impl<'a> ObjectRequest<'a> {
    /// Reads the input of a call.
    ///
    /// # Errors
    /// `internal`: only this crate writes such inputs.
    pub fn from_bytes(bytes: &'a [u8]) -> Result<Self, Error> {
        let (head, body) =
            postcard::take_from_bytes::<Head<'_>>(versioned(bytes)?).map_err(|error| wrong(&error.to_string()))?;
        let Head { requester, bucket, key, operation } = head;
        Ok(Self { requester, bucket, key, operation, body: Bytes::copy_from_slice(body) })
    }
}

impl ObjectReply {
    /// As the output of a call, with inline content.
    #[must_use]
    pub fn to_bytes(&self, body: &[u8]) -> Bytes {
        encode(self, body)
    }

    /// Reads the output of a call and the inline content behind it.
    ///
    /// # Errors
    /// `internal`: only this crate writes such outputs.
    pub fn from_bytes(mut bytes: Bytes) -> Result<(Self, Bytes), Error> {
        let read = postcard::take_from_bytes::<Self>(versioned(&bytes)?);
        let (reply, body) = read.map_err(|error| wrong(&error.to_string()))?;
        let body_bytes = body.len();
        bytes.advance(bytes.len() - body_bytes);
        Ok((reply, bytes))
    }
}

fn encode(value: &impl Serialize, body: &[u8]) -> Bytes {
    // Room for what most heads take.
    const HEAD_BYTES: usize = 256;
    let mut bytes = Vec::with_capacity(HEAD_BYTES + body.len());
    bytes.push(VERSION);
    let mut bytes = postcard::to_extend(value, bytes).expect("a vector takes whatever it is given");
    bytes.extend_from_slice(body);
    Bytes::from(bytes)
}

#[cold]
fn wrong(what: &str) -> Error {
    Error::new(ErrorCode::Internal, format!("not an operation on an object: {what}"))
}

/// What stands behind the version.
fn versioned(bytes: &[u8]) -> Result<&[u8], Error> {
    match bytes.split_first() {
        Some((&VERSION, rest)) => Ok(rest),
        Some((version, _)) => Err(wrong(&format!("encoding {version}"))),
        None => Err(wrong("empty")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Content, ListRequest, ObjectInfo};
    use super::*;

    fn request(operation: ObjectOperation) -> ObjectRequest<'static> {
        let requester = Requester { id: Some("id"), name: "n", ..Requester::default() };
        ObjectRequest { requester, bucket: "b", key: "k", operation, body: Bytes::from_static(b"body") }
    }

    #[test]
    fn requests_come_back() {
        let list = ListRequest { prefix: "p".to_owned(), limit: 1000, ..ListRequest::default() };
        for operation in [
            ObjectOperation::HeadBucket,
            ObjectOperation::List(list),
            ObjectOperation::Put(Box::default()),
            ObjectOperation::Get(super::super::ReadConditions::default()),
        ] {
            let sent = request(operation);
            let bytes = sent.to_bytes();
            let come = ObjectRequest::from_bytes(&bytes).expect("it was written here");
            assert_eq!((come.requester, come.bucket, come.key), (sent.requester, sent.bucket, sent.key));
            assert_eq!((come.operation, come.body), (sent.operation, sent.body));
        }
    }

    #[test]
    fn replies_come_back() {
        let info = ObjectInfo { size_bytes: 3, etag: "e".to_owned(), ..ObjectInfo::default() };
        let reply = ObjectReply::Object { info: Box::new(info), content: Content::Inline };
        let bytes = reply.to_bytes(b"abc");
        assert_eq!(ObjectReply::from_bytes(bytes), Ok((reply, Bytes::from_static(b"abc"))));
    }

    #[test]
    fn other_bytes_are_refused() {
        for bytes in [&b""[..], b"\x01", b"\x02\0", b"{}", b"\x01\xff\xff"] {
            assert!(ObjectRequest::from_bytes(bytes).is_err(), "{bytes:?}");
            assert!(ObjectReply::from_bytes(Bytes::from_static(bytes)).is_err(), "{bytes:?}");
        }
    }
}
