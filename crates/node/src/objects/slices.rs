//! Where the objects of buckets are that have several slices.
//!
//! A node does not ask for a bucket's slices. It sends a request where it thinks the object is: where it knows nothing, to
//! the first slice. A slice that does not have the object answers with the bucket's slices. Then the node sends the request
//! again, and knows. So what it knows may be old, and buckets with one slice cost nothing.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{PoisonError, RwLock};

use bytes::Bytes;
use millrace_api::Begun;
use millrace_api::objects::{
    BodyOwner, BodyRead as _, BodyWrite as _, Content, ObjectOperation, ObjectRequest, Refusal, Slices, moved_to,
};
use millrace_base::{Error, ErrorCode};
use millrace_blobs::BodyName;

use super::body_write::BodyDone;
use super::{Aim, Answered};
use crate::backend::CoreHandle;

/// Buckets whose slices a node knows at most.
const KNOWN: usize = 10_000;

/// How often a request is sent again. A bucket's slices change only while it is empty.
const MOVES: usize = 8;

/// What a node knows of buckets with several slices.
#[derive(Debug, Default)]
pub(crate) struct KnownSlices {
    /// Whether there are any. Most nodes have none.
    has_any: AtomicBool,
    known: RwLock<BTreeMap<String, Slices>>,
}

impl KnownSlices {
    /// The slices that a bucket has, as far as is known.
    pub(crate) fn of(&self, bucket: &str) -> Slices {
        if !self.has_any.load(Ordering::Relaxed) {
            return Slices::default();
        }
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.get(bucket).cloned().unwrap_or_default()
    }

    fn learn(&self, bucket: &str, slices: Slices) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        if slices.count() == 1 {
            known.remove(bucket);
        } else {
            if known.len() >= KNOWN {
                known.clear();
            }
            known.insert(bucket.to_owned(), slices);
        }
        self.has_any.store(!known.is_empty(), Ordering::Relaxed);
    }
}

/// What came of an operation that goes where its object is.
pub(super) struct Arrived {
    pub result: Result<Answered, Error>,
    /// With which content: its body may have been written anew.
    pub written: Option<BodyDone>,
}

impl CoreHandle {
    /// Where the request goes, as far as the node knows.
    pub(super) fn aim(&self, request: &ObjectRequest<'_>) -> Aim {
        super::aim(request, &self.slices_of(request.bucket))
    }

    /// The slices that a bucket has, as far as the node knows. One without a store of bodies serves no objects.
    pub(super) fn slices_of(&self, bucket: &str) -> Slices {
        self.shared().bodies.as_ref().map(|store| store.slices.of(bucket)).unwrap_or_default()
    }

    /// Where a request goes after all, if this answer says that it came to the wrong place.
    pub(super) fn aim_again(&self, aim: &Aim, error: Option<&Error>) -> Result<Option<Aim>, Error> {
        let Some(slices) = error.and_then(moved_to) else { return Ok(None) };
        let request = ObjectRequest::from_bytes(&aim.input)?;
        let next = super::aim(&request, &slices);
        if next.key == aim.key {
            // Only a name that no bucket can have is taken for that of a slice.
            return Err(Refusal::NoSuchBucket.error("The specified bucket does not exist"));
        }
        if let Some(store) = &self.shared().bodies {
            store.slices.learn(request.bucket, slices);
        }
        Ok(Some(next))
    }

    /// Begins an operation where its object is thought to be, if its body is there as well.
    pub(super) fn begin_at(&self, aim: &Aim, written: Option<&BodyDone>) -> Option<Begun<Answered>> {
        // What the node knows may have changed since the body was begun.
        let is_there = |name: BodyName| name.shard == self.shard_of(&aim.key);
        written.and_then(BodyDone::name).is_none_or(is_there).then(|| self.run_object(aim))
    }

    /// Waits for an operation that has begun, and follows its object.
    pub(super) async fn follow(&self, aim: Aim, begun: Begun<Answered>) -> Result<Answered, Error> {
        self.follow_with(aim, Some(begun), None).await.result
    }

    /// The same with a content, whose body has to be in the shard of its object. `None` has not begun for that reason.
    pub(super) async fn follow_with(
        &self,
        mut aim: Aim,
        mut begun: Option<Begun<Answered>>,
        mut written: Option<BodyDone>,
    ) -> Arrived {
        for _ in 0..MOVES {
            let Some(waiting) = begun.take().or_else(|| self.begin_at(&aim, written.as_ref())) else {
                match Box::pin(self.write_again(&aim, written.as_ref())).await {
                    Ok((again, input)) => (written, aim.input) = (Some(again), input),
                    Err(error) => return Arrived { result: Err(error), written },
                }
                begun = Some(self.run_object(&aim));
                continue;
            };
            let result = waiting.reply().await;
            aim = match self.aim_again(&aim, result.as_ref().err()) {
                Ok(Some(next)) => next,
                Ok(None) => return Arrived { result, written },
                Err(error) => return Arrived { result: Err(error), written },
            };
        }
        let error = Error::new(ErrorCode::Overloaded, "the bucket is being changed again and again; try again");
        Arrived { result: Err(error), written }
    }

    /// Writes a body into the shard where its object is, and gives the operation that names it.
    ///
    /// It comes to that for the first body of a bucket that the node knows nothing of. Large ones are asked about before.
    async fn write_again(&self, aim: &Aim, done: Option<&BodyDone>) -> Result<(BodyDone, Bytes), Error> {
        let mut request = ObjectRequest::from_bytes(&aim.input)?;
        let lost = || Error::new(ErrorCode::Internal, "a body that was just written cannot be read");
        let (done, name) = done.and_then(|done| done.name().map(|name| (done, name))).ok_or_else(lost)?;
        let owner = owner_of(&request);
        let mut content = self.open_content(name.shard, &Content::Body(name.number), Bytes::new())?.ok_or_else(lost)?;
        let mut writer = self.begin_body_in(self.shard_of(&aim.key), &owner, Some(content.length()), &[])?;
        while let Some(bytes) = content.next().await? {
            writer.write(bytes).await?;
        }
        let again = writer.finish().await?.with_digests_of(done);
        match &mut request.operation {
            ObjectOperation::Put(put) => put.body = again.body.clone(),
            ObjectOperation::PutPart(part) => part.body = again.body.clone(),
            _ => return Err(lost()),
        }
        request.body = again.inline.clone();
        let input = request.to_bytes();
        Ok((again, input))
    }
}

fn owner_of<'a>(request: &'a ObjectRequest<'_>) -> BodyOwner<'a> {
    let part = match &request.operation {
        ObjectOperation::PutPart(part) => Some((part.upload.as_str(), part.number)),
        _ => None,
    };
    BodyOwner { bucket: request.bucket, key: request.key, part }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_is_bounded_and_can_be_unlearned() {
        let (known, slices) = (KnownSlices::default(), Slices::spread("b", 3, 64));
        assert_eq!(known.of("b"), Slices::default());
        known.learn("b", slices.clone());
        assert_eq!(known.of("b"), slices);
        assert_eq!(known.of("c"), Slices::default());
        known.learn("b", Slices::default());
        assert!(!known.has_any.load(Ordering::Relaxed));
        for number in 0..=KNOWN {
            known.learn(&number.to_string(), slices.clone());
        }
        assert!(known.known.read().expect("no panic before").len() <= KNOWN);
    }
}
