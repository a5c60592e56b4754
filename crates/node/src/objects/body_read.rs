//! A content on its way out: read by the pool, one piece ahead of who takes it.

use std::collections::VecDeque;
use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use millrace_api::objects::BodyRead;
use millrace_base::{Error, ErrorCode, ShardId, limits};
use millrace_blobs::{BlobError, BodyName, BodyReader};
use millrace_replica::NodeId;

use super::errors::body_failed;
use super::store::BodyStore;
use crate::cluster::Carrier;

/// Bytes that are read at a time.
const PIECE_BYTES: u64 = 256 << 10;

type Piece = Pin<Box<dyn Future<Output = Result<Result<Bytes, Error>, Error>> + Send>>;

/// Where a body is.
pub(crate) enum BodyLocation {
    /// On this node. In a cluster others may have what is damaged here.
    Here(BodyReader, Option<(Arc<Carrier>, BodyName)>),
    /// On another node, with so many bytes.
    There(Arc<Carrier>, NodeId, BodyName, u64),
}

/// One body of a content, and where in it that begins.
struct Stored {
    place: Arc<BodyLocation>,
    begins_at: u64,
    length: u64,
}

enum Source {
    Inline(Bytes),
    Stored { store: Arc<BodyStore>, bodies: Vec<Stored> },
}

/// See the module's documentation.
pub struct BodyOut {
    source: Source,
    length: u64,
    /// What is still to be begun.
    left: Range<u64>,
    /// Pieces being read, in order.
    ahead: VecDeque<Piece>,
}

impl BodyOut {
    /// A small content that came with the metadata.
    pub(crate) fn inline(bytes: Bytes) -> Self {
        let length = bytes.len() as u64;
        Self { source: Source::Inline(bytes), length, left: 0..length, ahead: VecDeque::new() }
    }

    /// Bodies, one behind the other.
    pub(crate) fn stored(store: &Arc<BodyStore>, places: Vec<BodyLocation>) -> Self {
        let mut length = 0;
        let mut bodies = Vec::with_capacity(places.len());
        for place in places {
            let own = match &place {
                BodyLocation::Here(reader, _) => reader.length(),
                BodyLocation::There(.., own) => *own,
            };
            bodies.push(Stored { place: Arc::new(place), begins_at: length, length: own });
            length += own;
        }
        let source = Source::Stored { store: Arc::clone(store), bodies };
        Self { source, length, left: 0..length, ahead: VecDeque::new() }
    }

    /// Begins to read the next piece, if there is one.
    fn begin_piece(&mut self) {
        let Source::Stored { store, bodies } = &self.source else { return };
        if self.left.is_empty() {
            return;
        }
        let at = bodies.partition_point(|body| body.begins_at + body.length <= self.left.start);
        let Some(body) = bodies.get(at) else { return };
        let offset = self.left.start - body.begins_at;
        let bytes = PIECE_BYTES.min(body.length - offset).min(self.left.end - self.left.start);
        self.left.start += bytes;
        let place = Arc::clone(&body.place);
        if let BodyLocation::There(carrier, node, name, _) = &*place {
            let (carrier, node, name) = (Arc::clone(carrier), *node, *name);
            let piece = async move { Ok(carrier.read_far(node, name, offset, bytes as u32).await) };
            return self.ahead.push_back(Box::pin(piece));
        }
        let others = if let BodyLocation::Here(_, others) = &*place { others.clone() } else { None };
        let reading = store.pool.run(move || {
            let mut piece = vec![0; bytes as usize];
            if let BodyLocation::Here(reader, _) = &*place {
                reader.read_at(offset, &mut piece)?;
            }
            Ok(Bytes::from(piece))
        });
        self.ahead.push_back(Box::pin(async move {
            match (reading.await?, others) {
                (Err(BlobError::Rot(..)), Some((carrier, name))) => {
                    let piece = carrier.read_any(name, offset, bytes as u32).await;
                    if piece.is_ok() {
                        tokio::spawn(async move { carrier.mend(name).await });
                    }
                    Ok(piece)
                }
                (piece, _) => Ok(piece.map_err(|error| body_failed(&error))),
            }
        }));
    }
}

/// In a cluster: gets bodies of one shard that are not here.
pub(crate) async fn obtain(carrier: Option<Arc<Carrier>>, shard: Option<ShardId>, numbers: &[u64]) {
    let Some((carrier, shard)) = carrier.zip(shard) else { return };
    for number in numbers {
        carrier.obtain(BodyName { shard, number: *number }).await;
    }
}

/// Reads bodies of one shard whole, by the pool, one behind the other.
pub(crate) fn read_whole(
    store: Option<&Arc<BodyStore>>,
    shard: Option<ShardId>,
    numbers: Vec<u64>,
) -> impl Future<Output = Result<Bytes, Error>> + use<> {
    let reading = store.zip(shard).map(|(store, shard)| {
        let bodies = Arc::clone(&store.bodies);
        store.pool.run(move || {
            let mut whole = Vec::new();
            for number in numbers {
                let reader = bodies.read(BodyName { shard, number }).map_err(|error| body_failed(&error))?;
                let begins_at = whole.len();
                let length = usize::try_from(reader.length()).ok().and_then(|length| length.checked_add(begins_at));
                let length = length.filter(|length| *length <= limits::OBJECT_READ_BYTES);
                let too_long = || Error::new(ErrorCode::SizeLimit, "an object is too long to be read whole");
                whole.resize(length.ok_or_else(too_long)?, 0);
                reader.read_at(0, &mut whole[begins_at..]).map_err(|error| body_failed(&error))?;
            }
            Ok(Bytes::from(whole))
        })
    });
    async move {
        match reading {
            Some(reading) => reading.await?,
            None => Err(Error::new(ErrorCode::Internal, "this node keeps no bodies")),
        }
    }
}

impl BodyRead for BodyOut {
    fn length(&self) -> u64 {
        self.length
    }

    fn seek(&mut self, range: Range<u64>) {
        self.ahead.clear();
        self.left = range.start.min(self.length)..range.end.min(self.length);
    }

    async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        if let Some(bytes) = self.at_hand() {
            return Ok(Some(bytes).filter(|bytes| !bytes.is_empty()));
        }
        while self.ahead.len() < 2 && !self.left.is_empty() {
            self.begin_piece();
        }
        match self.ahead.pop_front() {
            Some(piece) => piece.await?.map(Some),
            None => Ok(None),
        }
    }

    fn at_hand(&mut self) -> Option<Bytes> {
        let Source::Inline(bytes) = &self.source else { return None };
        let taken = bytes.slice(self.left.start as usize..self.left.end as usize);
        self.left.start = self.left.end;
        Some(taken)
    }
}
