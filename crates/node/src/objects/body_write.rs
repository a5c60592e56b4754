//! A body on its way in: hashed and written by the pool, piece by piece, while the next piece comes.
//!
//! At most two pieces of a body are in memory: the one that is being written and the one that comes. Whoever sends faster
//! than the disk takes waits.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use millrace_api::objects::{BodyOwner, BodyWrite, BodyWritten, ChecksumAlgorithm, WrittenBody};
use millrace_base::{Error, ErrorCode, ShardId};
use millrace_blobs::{BodyName, BodyWriter, Unsettled, Written};
use millrace_checksum::Hasher;

use super::errors::body_failed;
use super::store::{BodyStore, Turnstile};
use crate::cluster::Carrier;

/// Bodies up to this are kept beside the metadata, in the same entry of the log: one sync instead of two.
pub(crate) const INLINE_BYTES: usize = 8 << 10;

/// Bytes that are hashed and written at a time. Enough that handing them over costs little beside; few enough that a
/// thousand bodies at once fit in memory.
const PIECE_BYTES: usize = 256 << 10;

/// What a job of the pool takes along and brings back.
struct Work {
    writer: BodyWriter,
    hasher: Hasher,
}

type Job = Pin<Box<dyn Future<Output = Result<Result<Box<Work>, Error>, Error>> + Send>>;

enum Stage {
    /// Nothing has been written yet.
    Small(Hasher),
    /// The next piece may be handed over.
    Idle(Box<Work>),
    /// A piece is being written.
    Busy(Job),
    /// It failed, and says so each time.
    Failed(Error),
}

/// See the module's documentation.
pub struct BodyIn {
    store: Arc<BodyStore>,
    core: usize,
    shard: ShardId,
    owner: Vec<u8>,
    /// What the client says it will be.
    length: Option<u64>,
    may_be_inline: bool,
    carrier: Option<Arc<Carrier>>,
    gathered: Vec<Bytes>,
    gathered_bytes: usize,
    written_bytes: u64,
    stage: Stage,
    turnstile: Turnstile,
}

impl BodyIn {
    pub(crate) fn new(
        store: &Arc<BodyStore>,
        (core, shard): (usize, ShardId),
        owner: &BodyOwner<'_>,
        length: Option<u64>,
        checksums: &[ChecksumAlgorithm],
    ) -> Result<Self, Error> {
        let turnstile = store.enter()?;
        Ok(Self {
            store: Arc::clone(store),
            core,
            shard,
            owner: owner.to_bytes(),
            length,
            // A part's row says where its body is: what completes an upload moves no bytes.
            may_be_inline: owner.part.is_none(),
            carrier: None,
            gathered: Vec::new(),
            gathered_bytes: 0,
            written_bytes: 0,
            stage: Stage::Small(Hasher::new(checksums)),
            turnstile,
        })
    }

    /// In a cluster: other nodes hold it, too, before it is written.
    pub(crate) fn with(self, carrier: Option<Arc<Carrier>>) -> Self {
        Self { carrier, ..self }
    }

    /// Waits until nothing of it is being written.
    async fn settle(&mut self) -> Result<(), Error> {
        if let Stage::Busy(job) = &mut self.stage {
            // A future that was polled to its end is not polled again: the stage is another by then.
            let ended = job.await.and_then(|result| result);
            self.stage = match ended {
                Ok(work) => Stage::Idle(work),
                Err(error) => Stage::Failed(error),
            };
        }
        match &self.stage {
            Stage::Failed(error) => Err(error.clone()),
            _ => Ok(()),
        }
    }

    /// The writer, begun if it was not.
    fn take_work(&mut self) -> Result<Box<Work>, Error> {
        let taken = Error::new(ErrorCode::Internal, "a body was written to while it was being written");
        match std::mem::replace(&mut self.stage, Stage::Failed(taken)) {
            Stage::Idle(work) => Ok(work),
            Stage::Small(hasher) => {
                let begun = self.store.bodies.begin(self.core, self.shard, &self.owner, self.length);
                match begun {
                    Ok(writer) => Ok(Box::new(Work { writer, hasher })),
                    Err(error) => {
                        let error = body_failed(&error);
                        self.stage = Stage::Failed(error.clone());
                        Err(error)
                    }
                }
            }
            Stage::Busy(job) => {
                self.stage = Stage::Busy(job);
                Err(Error::new(ErrorCode::Internal, "a piece of a body is still being written"))
            }
            Stage::Failed(error) => {
                self.stage = Stage::Failed(error.clone());
                Err(error)
            }
        }
    }

    fn take_pieces(&mut self) -> Vec<Bytes> {
        self.written_bytes += self.gathered_bytes as u64;
        self.gathered_bytes = 0;
        std::mem::take(&mut self.gathered)
    }

    /// Hands over what has been gathered.
    async fn flush(&mut self) -> Result<(), Error> {
        self.settle().await?;
        let mut work = self.take_work()?;
        let pieces = self.take_pieces();
        self.stage = Stage::Busy(Box::pin(self.store.pool.run(move || {
            write_pieces(&mut work, &pieces)?;
            Ok(work)
        })));
        Ok(())
    }
}

fn write_pieces(work: &mut Work, pieces: &[Bytes]) -> Result<(), Error> {
    for piece in pieces {
        work.hasher.update(piece);
        work.writer.append(piece).map_err(|error| body_failed(&error))?;
    }
    Ok(())
}

impl BodyWrite for BodyIn {
    type Written = BodyDone;

    async fn write(&mut self, bytes: Bytes) -> Result<(), Error> {
        self.gathered_bytes += bytes.len();
        self.gathered.push(bytes);
        if self.gathered_bytes >= PIECE_BYTES { self.flush().await } else { Ok(()) }
    }

    async fn finish(mut self) -> Result<BodyDone, Error> {
        if self.may_be_inline
            && self.gathered_bytes <= INLINE_BYTES
            && let Stage::Small(hasher) = &mut self.stage
        {
            let hasher = std::mem::replace(hasher, Hasher::new(&[]));
            return Ok(self.inline(hasher));
        }
        self.settle().await?;
        let mut work = self.take_work()?;
        let pieces = self.take_pieces();
        let job = self.store.pool.run(move || -> Result<(Written, _), Error> {
            write_pieces(&mut work, &pieces)?;
            let Work { writer, hasher } = *work;
            Ok((writer.finish().map_err(|error| body_failed(&error))?, hasher.finish()))
        });
        let (written, digests) = job.await??;
        let unsettled = self.store.syncers[self.core].sync(written).await?;
        let name = unsettled.name();
        let body = WrittenBody { number: Some(name.number), length: self.written_bytes, digests };
        let carrier = self.carrier.clone();
        let (inline, unsettled, _turnstile) = (Bytes::new(), Some(unsettled), self.turnstile);
        let done = BodyDone { body, inline, unsettled, carrier, _turnstile };
        if let Some(carrier) = &self.carrier {
            carrier.spread(name).await?;
        }
        Ok(done)
    }
}

impl BodyIn {
    /// A small body: its bytes travel with the operation.
    fn inline(self, mut hasher: Hasher) -> BodyDone {
        let mut inline = BytesMut::with_capacity(self.gathered_bytes);
        for piece in &self.gathered {
            inline.extend_from_slice(piece);
        }
        let inline = match self.gathered.len() {
            1 => self.gathered.into_iter().next().unwrap_or_default(),
            _ => inline.freeze(),
        };
        hasher.update(&inline);
        let body = WrittenBody::inline(&inline, hasher.finish());
        BodyDone { body, inline, unsettled: None, carrier: None, _turnstile: self.turnstile }
    }
}

/// A body that is durable. Dropping it frees the body, unless [`BodyDone::keep`] was called.
pub struct BodyDone {
    pub(super) body: WrittenBody,
    pub(super) inline: Bytes,
    unsettled: Option<Unsettled>,
    carrier: Option<Arc<Carrier>>,
    _turnstile: Turnstile,
}

impl BodyDone {
    /// The body's name; `None` for a small one, which travels with the operation.
    pub(super) fn name(&self) -> Option<BodyName> {
        self.unsettled.as_ref().map(Unsettled::name)
    }

    /// The same, with what hashing gave when the content came.
    pub(super) fn with_digests_of(mut self, first: &Self) -> Self {
        self.body.digests.clone_from(&first.body.digests);
        self
    }

    /// An entry refers to it now. Or nobody knows whether one does: then a later look finds out.
    pub(crate) fn keep(mut self) {
        if let Some(unsettled) = self.unsettled.take() {
            let name = unsettled.name();
            unsettled.settle();
            if let Some(carrier) = &self.carrier {
                carrier.settled(name);
            }
        }
    }
}

impl BodyWritten for BodyDone {
    fn body(&self) -> &WrittenBody {
        &self.body
    }

    fn inline(&self) -> Bytes {
        self.inline.clone()
    }
}

impl Drop for BodyDone {
    fn drop(&mut self) {
        if let Some(unsettled) = self.unsettled.take() {
            let name = unsettled.name();
            unsettled.discard();
            if let Some(carrier) = &self.carrier {
                carrier.freed(name);
            }
        }
    }
}
