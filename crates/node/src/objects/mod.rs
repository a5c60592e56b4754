//! Objects: operations of the built-in app, and the bodies that stream beside them.
//!
//! The order of a write makes it safe: the body is durable before the operation runs, the operation's entry makes it
//! visible, and only what an entry no longer refers to is freed. What a crash leaves in between is a body that nothing
//! refers to. [`look_after`] finds it.

mod body_read;
mod body_write;
mod care;
mod errors;
mod slices;
mod start;
mod store;
mod syncer;

use std::sync::Arc;

use bytes::Bytes;
use millrace_api::objects::{
    BodyOwner, ChecksumAlgorithm, Content, OBJECTS_APP, ObjectAdministration, ObjectRead, ObjectReply, ObjectRequest,
    Objects, Slices, Target, body_lost, moved_to,
};
use millrace_api::{Begun, Principal, READ_HANDLER};
use millrace_base::{Error, ErrorCode, ShardId, shard_of_key};
use millrace_blobs::{BlobError, BodyName};
use millrace_func::{Answer, Catalog, HandlerId};

use crate::backend::CoreHandle;
use crate::operations::{BuiltIn, Operation, OperationKey};
use crate::watch::WatchedCall;

use body_read::BodyLocation;
pub use body_read::BodyOut;
pub(crate) use body_read::{obtain, read_whole};
pub use body_write::{BodyDone, BodyIn};
pub(crate) use care::look_after;
pub(crate) use errors::{body_failed, object_of};
use slices::Arrived;
pub(crate) use start::{BODIES, BODY_FOLDERS, BODY_START, open_bodies};
pub(crate) use store::BodyStore;

/// How often a read begins again because the object was replaced between its metadata and its body.
const READ_ATTEMPTS: usize = 8;

/// The built-in app of objects. Who may what is asked of buckets' policies, not of roles.
struct ObjectsApp;

/// A reply and the inline content behind it.
type Answered = (ObjectReply, Bytes);

impl WatchedCall for Answered {}

impl BuiltIn for ObjectsApp {
    type Reply = Answered;

    const NAME: &'static str = OBJECTS_APP;

    fn find(catalog: &Catalog, service: &str, handler: &str) -> Result<HandlerId, Error> {
        catalog.find(OBJECTS_APP, service, handler).map_err(|_| not_served())
    }

    fn reply(answer: Answer) -> Result<Answered, Error> {
        ObjectReply::from_bytes(answer.into_value())
    }
}

/// An operation on its way: where it runs, and with what.
struct Aim {
    service: &'static str,
    handler: &'static str,
    key: Vec<u8>,
    input: Bytes,
}

fn aim(request: &ObjectRequest<'_>, slices: &Slices) -> Aim {
    let Target { service, handler, key } = request.target(slices);
    Aim { service, handler, key, input: request.to_bytes() }
}

fn not_served() -> Error {
    Error::new(ErrorCode::UnknownApp, "this node keeps no objects")
}

impl CoreHandle {
    fn body_store(&self) -> Result<Arc<BodyStore>, Error> {
        self.shared().bodies.clone().ok_or_else(not_served)
    }

    fn run_object(&self, aim: &Aim) -> Begun<Answered> {
        let operation = Operation {
            service: aim.service,
            handler: aim.handler,
            key: OperationKey::Of(&aim.key),
            input: aim.input.clone(),
            is_read: aim.handler == READ_HANDLER,
            idempotency_key: None,
        };
        self.operate::<ObjectsApp>(&Principal::unrestricted(), &operation)
    }

    fn shard_of(&self, key: &[u8]) -> ShardId {
        shard_of_key(key, self.shard_count())
    }

    /// Opens the bodies of a content. `None`: one is gone, because the object was replaced meanwhile, or is on another node.
    fn open_content(&self, shard: ShardId, content: &Content, inline: Bytes) -> Result<Option<BodyOut>, Error> {
        if *content == Content::Inline {
            return Ok(Some(BodyOut::inline(inline)));
        }
        let (store, carrier) = (self.body_store()?, self.shared().carrier.clone());
        let mut places = Vec::new();
        for number in numbers(content) {
            let name = BodyName { shard, number };
            match store.bodies.read(name) {
                Ok(reader) => places.push(BodyLocation::Here(reader, carrier.clone().map(|carrier| (carrier, name)))),
                // `open_far` finds it elsewhere.
                Err(BlobError::Rot(..)) if carrier.is_some() => return Ok(None),
                Err(BlobError::Gone(_)) => return Ok(None),
                Err(error) => return Err(body_failed(&error)),
            }
        }
        Ok(Some(BodyOut::stored(&store, places)))
    }

    /// The same on whichever nodes of the cluster the bodies are. Those that belong here are got as well.
    async fn open_far(&self, shard: ShardId, content: &Content) -> Result<Option<BodyOut>, Error> {
        let (store, carrier) = (self.body_store()?, self.shared().carrier.clone());
        let Some(carrier) = carrier else { return Ok(None) };
        let mut places = Vec::new();
        for number in numbers(content) {
            let name = BodyName { shard, number };
            match store.bodies.read(name) {
                Ok(reader) => places.push(BodyLocation::Here(reader, Some((Arc::clone(&carrier), name)))),
                // One that is damaged here may be whole elsewhere.
                Err(BlobError::Gone(_) | BlobError::Rot(..)) => {
                    let Some((node, length)) = carrier.find(name).await? else { return Ok(None) };
                    places.push(BodyLocation::There(Arc::clone(&carrier), node, name, length));
                }
                Err(error) => return Err(body_failed(&error)),
            }
        }
        carrier.look();
        Ok(Some(BodyOut::stored(&store, places)))
    }

    fn opened(&self, shard: ShardId, reply: (ObjectReply, Bytes)) -> Result<Option<ObjectRead<BodyOut>>, Error> {
        let (ObjectReply::Object { info, content }, inline) = reply else {
            return Err(Error::new(ErrorCode::Internal, "a read of an object was answered with something else"));
        };
        let body = self.open_content(shard, &content, inline)?;
        Ok(body.map(|body| ObjectRead { info, content, body }))
    }
}

/// The bodies of a content, in order.
fn numbers(content: &Content) -> Vec<u64> {
    match content {
        Content::Inline => Vec::new(),
        Content::Body(number) => vec![*number],
        Content::Parts { parts, .. } => parts.iter().map(|(_, part)| part.number).collect(),
    }
}

/// Whether an operation that failed so has certainly changed nothing.
fn has_no_effect(error: &Error) -> bool {
    !matches!(
        error.code,
        ErrorCode::Internal
            | ErrorCode::ShardStopped
            | ErrorCode::ShuttingDown
            | ErrorCode::WaitLimit
            | ErrorCode::ResultUnknown
    )
}

impl ObjectAdministration for CoreHandle {
    fn administer(&self, request: ObjectRequest<'_>) -> Begun<ObjectReply> {
        self.object(request, None)
    }
}

impl Objects for CoreHandle {
    type BodyWrite = BodyIn;
    type BodyRead = BodyOut;

    fn object(&self, request: ObjectRequest<'_>, written: Option<BodyDone>) -> Begun<ObjectReply> {
        let aim = self.aim(&request);
        let Some(written) = written else {
            return match self.run_object(&aim) {
                Begun::Ended(Ok((reply, _))) => Begun::Ended(Ok(reply)),
                Begun::Ended(Err(error)) if moved_to(&error).is_none() => Begun::Ended(Err(error)),
                begun => {
                    let node = self.clone();
                    Begun::waits(async move { node.follow(aim, begun).await.map(|(reply, _)| reply) })
                }
            };
        };
        let (node, begun) = (self.clone(), self.begin_at(&aim, Some(&written)));
        // A client that goes away does not leave the body without an answer: it would be taken for one that nothing
        // refers to, while the entry that does is on its way.
        let settling = tokio::task::spawn_local(async move {
            let Arrived { result, written } = node.follow_with(aim, begun, Some(written)).await;
            match &result {
                Err(error) if has_no_effect(error) => drop(written),
                _ => written.into_iter().for_each(BodyDone::keep),
            }
            result.map(|(reply, _)| reply)
        });
        Begun::waits(async move {
            settling.await.unwrap_or_else(|_| Err(Error::new(ErrorCode::ShuttingDown, "the node is stopping")))
        })
    }

    fn read_object(&self, request: ObjectRequest<'_>) -> Begun<ObjectRead<BodyOut>> {
        let aim = self.aim(&request);
        let first = match self.run_object(&aim) {
            Begun::Ended(Err(error)) if moved_to(&error).is_some() => Some(Begun::Ended(Err(error))),
            Begun::Ended(result) => match result.and_then(|reply| self.opened(self.shard_of(&aim.key), reply)) {
                Ok(None) => None,
                Ok(Some(read)) => return Begun::Ended(Ok(read)),
                Err(error) => return Begun::Ended(Err(error)),
            },
            waiting => Some(waiting),
        };
        let node = self.clone();
        Begun::waits(async move { node.read_again(aim, first).await })
    }

    fn begin_body(
        &self,
        owner: &BodyOwner<'_>,
        length: Option<u64>,
        checksums: &[ChecksumAlgorithm],
    ) -> Result<BodyIn, Error> {
        let slices = self.slices_of(owner.bucket);
        let shard = self.shard_of(["{", &*slices.place(owner.bucket, owner.key), "}"].concat().as_bytes());
        self.begin_body_in(shard, owner, length, checksums)
    }
}

impl CoreHandle {
    fn begin_body_in(
        &self,
        shard: ShardId,
        owner: &BodyOwner<'_>,
        length: Option<u64>,
        checksums: &[ChecksumAlgorithm],
    ) -> Result<BodyIn, Error> {
        let store = self.body_store()?;
        let body = BodyIn::new(&store, (self.index(), shard), owner, length, checksums)?;
        Ok(body.with(self.shared().carrier.clone()))
    }

    /// Reads until metadata and bodies belong together.
    async fn read_again(&self, mut aim: Aim, first: Option<Begun<Answered>>) -> Result<ObjectRead<BodyOut>, Error> {
        let mut begun = first;
        let mut before = None;
        for _ in 0..READ_ATTEMPTS {
            let next = begun.take().unwrap_or_else(|| self.run_object(&aim));
            let reply = match next.reply().await {
                Ok(reply) => reply,
                Err(error) => {
                    aim = self.aim_again(&aim, Some(&error))?.ok_or(error)?;
                    continue;
                }
            };
            let shard = self.shard_of(&aim.key);
            let (info, content) = match &reply {
                (ObjectReply::Object { info, content }, _) => (Some(info.clone()), Some(content.clone())),
                _ => (None, None),
            };
            if let Some(read) = self.opened(shard, reply)? {
                return Ok(read);
            }
            if let Some((info, content)) = info.zip(content.clone())
                && let Some(body) = self.open_far(shard, &content).await?
            {
                return Ok(ObjectRead { info, content, body });
            }
            // Its metadata is as it was, so nobody has replaced it: its body is lost.
            if content.is_some() && content == before {
                let object = String::from_utf8_lossy(&aim.key).into_owned();
                tracing::error!(object, "the body of an object is gone: restore its file, or upload the object again");
                return Err(body_lost("the body of the object is gone from the disk"));
            }
            before = content;
        }
        Err(Error::new(ErrorCode::Overloaded, "the object is being replaced again and again; try again"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_stays_where_nobody_knows_whether_an_entry_names_it() {
        let is_freed = |code| has_no_effect(&Error::new(code, "why"));
        assert!(is_freed(ErrorCode::Overloaded) && is_freed(ErrorCode::ObjectRefused));
        assert!(!is_freed(ErrorCode::ResultUnknown) && !is_freed(ErrorCode::ShardStopped));
    }
}
