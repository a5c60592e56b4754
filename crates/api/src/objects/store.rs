//! What the S3 front needs of a node: operations, and bodies that stream both ways.

use std::future::Future;

use bytes::Bytes;
use millrace_base::{Error, ErrorCode};

use super::{BodyOwner, ChecksumAlgorithm, Content, ObjectInfo, ObjectReply, ObjectRequest, WrittenBody};
use crate::Begun;

/// A body on its way in. Dropping it leaves nothing behind.
pub trait BodyWrite {
    /// Takes the next bytes. Ready as soon as more can be taken: whoever waits for it slows its client down.
    fn write(&mut self, bytes: Bytes) -> impl Future<Output = Result<(), Error>>;

    /// The body is whole: hashes it to its end and makes it durable. Small bodies are given back, to travel with the operation.
    ///
    /// # Errors
    /// `read-only` on a full disk, `shard-stopped` after a failed write.
    fn finish(self) -> impl Future<Output = Result<Self::Written, Error>>
    where
        Self: Sized;

    /// What is to be handed on with the operation that makes it visible. Dropping it frees the body.
    type Written: BodyWritten;
}

/// A body that is durable and not visible yet.
pub trait BodyWritten {
    /// What the operation says of it.
    fn body(&self) -> &WrittenBody;

    /// The bytes, where it is small: they travel with the operation.
    fn inline(&self) -> Bytes;
}

/// A content on its way out. It stays readable while this is held, whatever happens to the object.
pub trait BodyRead {
    /// The content's bytes.
    fn length(&self) -> u64;

    /// Goes on at this byte, and ends before that one.
    fn seek(&mut self, range: std::ops::Range<u64>);

    /// The next bytes; `None` at the end.
    ///
    /// # Errors
    /// `internal` where the disk gives other bytes than were written. They are never given out.
    fn next(&mut self) -> impl Future<Output = Result<Option<Bytes>, Error>>;

    /// All bytes of the range, if they are in memory: no wait is needed.
    fn at_hand(&mut self) -> Option<Bytes>;
}

/// An object that is read.
pub struct ObjectRead<B> {
    /// What it is.
    pub info: Box<ObjectInfo>,
    /// Where its content lies.
    pub content: Content,
    /// Its content.
    pub body: B,
}

/// A node that keeps objects, seen by whoever administers it.
pub trait ObjectAdministration {
    /// Runs an operation without content: [`super::ObjectOperation::ListBuckets`], or one about a bucket.
    fn administer(&self, _request: ObjectRequest<'_>) -> Begun<ObjectReply> {
        Begun::Ended(Err(Error::new(ErrorCode::NotYetSupported, "this node keeps no objects")))
    }
}

/// A node that keeps objects, seen from a front on the same core.
pub trait Objects: Clone + 'static {
    /// A body on its way in.
    type BodyWrite: BodyWrite;
    /// A content on its way out.
    type BodyRead: BodyRead;

    /// Runs an operation as one transaction. Everything but a read of content. With what it makes visible, if it does:
    /// that is kept once the operation has taken effect, and freed if it certainly has not.
    fn object(
        &self,
        request: ObjectRequest<'_>,
        written: Option<<Self::BodyWrite as BodyWrite>::Written>,
    ) -> Begun<ObjectReply>;

    /// Reads an object and its content: [`super::ObjectOperation::Get`] or [`super::ObjectOperation::GetSource`].
    fn read_object(&self, request: ObjectRequest<'_>) -> Begun<ObjectRead<Self::BodyRead>>;

    /// Begins a body of this owner. `length` is what the client says, if it does.
    ///
    /// # Errors
    /// `overloaded` where too many bodies are on their way.
    fn begin_body(
        &self,
        owner: &BodyOwner<'_>,
        length: Option<u64>,
        checksums: &[ChecksumAlgorithm],
    ) -> Result<Self::BodyWrite, Error>;
}
