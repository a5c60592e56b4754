//! Which segments of replicated shards are kept, for a restart and for replicas that are catching up.
//!
//! A segment goes in two steps. First its entries are not needed any more: checkpoints hold them, and no replica asks for
//! them. [`Segments::trims`] says so, and the replicas forget them. Then each of its shards has written a base that begins
//! behind them: it repeats what the segment's other records said. [`Segments::delete_behind_bases`] deletes it then.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use millrace_base::{Lsn, ShardId};

use crate::positions::ShardRange;
use crate::reader::Readable;
use crate::segments::{ClosedSegment, Deleted, Segments, StreamSegments};

/// Up to which entry of a shard nobody needs the log. `None` if the node does not hold the shard any more.
type Limit<'a> = dyn Fn(ShardId) -> Option<Lsn> + 'a;

/// The place of the newest base of each shard, and its position.
type Newest = BTreeMap<ShardId, ((u64, u64), Lsn)>;

impl Segments {
    /// For each shard, the position up to which its log can be forgotten, as far as whole segments can go. At least
    /// `kept_bytes` of segments stay. `limit` gives the lower of two: what the checkpoint holds, and what replicas need no
    /// more.
    #[must_use]
    pub fn trims(&self, limit: &Limit<'_>, kept_bytes: u64) -> Vec<(ShardId, Lsn)> {
        let state = self.state();
        let mut trims: BTreeMap<ShardId, Lsn> = BTreeMap::new();
        for (stream, through) in removable(&state, kept_bytes, &mut |_, segment| is_unneeded(segment, limit)) {
            let known = state.get(&stream).into_iter().flat_map(|known| &known.closed);
            for range in known.take_while(|segment| segment.number <= through).flat_map(|segment| &segment.ranges) {
                if range.last > Lsn::ZERO && limit(range.shard).is_some() {
                    let trim = trims.entry(range.shard).or_default();
                    *trim = (*trim).max(range.last);
                }
            }
        }
        trims.into_iter().collect()
    }

    /// Deletes segments from the beginning of each stream. `limit` and `kept_bytes` have to let a segment go, and a
    /// later, durable base of each of its shards has to replace it. As [`Segments::delete_covered`] otherwise.
    ///
    /// # Errors
    /// What the disk answers; what could not be deleted is tried again by the next call.
    pub fn delete_behind_bases(&self, limit: &Limit<'_>, kept_bytes: u64, checkpoint_mark: u64) -> io::Result<Deleted> {
        let choose = |segments: &Segments| {
            let state = segments.state();
            let newest = newest_bases(&state);
            removable(&state, kept_bytes, &mut |stream, segment| {
                let is_replaced = |range: &ShardRange| {
                    let behind =
                        |(place, base): &((u64, u64), Lsn)| *place > (stream, segment.number) && *base >= range.last;
                    limit(range.shard).is_none() || newest.get(&range.shard).is_some_and(behind)
                };
                is_unneeded(segment, limit) && segment.ranges.iter().all(is_replaced)
            })
        };
        self.delete(&choose, checkpoint_mark)
    }

    /// The parts of the log that may hold the shard's entries from `first` on, in the order in which they were written.
    pub(crate) fn readable(&self, shard: ShardId, first: Lsn) -> Vec<Readable> {
        let state = self.state();
        let holds = |segment: &&ClosedSegment| {
            segment.ranges.iter().any(|range| range.shard == shard && range.first <= range.last && range.last >= first)
        };
        let of_stream = |(stream, known): (&u64, &StreamSegments)| {
            let readable = |segment: &ClosedSegment| Readable {
                stream: *stream,
                number: segment.number,
                path: segment.path.clone(),
                end: segment.bytes,
            };
            known.closed.iter().chain(&known.open).filter(holds).map(readable).collect::<Vec<_>>()
        };
        state.iter().flat_map(of_stream).collect()
    }
}

fn is_unneeded(segment: &ClosedSegment, limit: &Limit<'_>) -> bool {
    segment.ranges.iter().all(|range| limit(range.shard).is_none_or(|limit| range.last <= limit))
}

fn newest_bases(state: &BTreeMap<u64, StreamSegments>) -> Newest {
    let mut newest = Newest::new();
    for (stream, known) in state {
        for segment in known.closed.iter().chain(&known.open) {
            newest.extend(segment.bases.iter().map(|(shard, base)| (*shard, ((*stream, segment.number), *base))));
        }
    }
    newest
}

/// Of each stream the number of the last segment at its beginning that may go, the oldest streams first. Each shard loses
/// the beginning of its log only: what lies behind a segment that stays, stays.
fn removable(
    state: &BTreeMap<u64, StreamSegments>,
    kept_bytes: u64,
    may_go: &mut dyn FnMut(u64, &ClosedSegment) -> bool,
) -> Vec<(u64, u64)> {
    let mut bytes: u64 = state.values().flat_map(|known| &known.closed).map(|segment| segment.bytes).sum();
    let mut through = Vec::new();
    let mut staying: BTreeSet<ShardId> = BTreeSet::new();
    for (stream, known) in state {
        let mut goes_on = true;
        for segment in &known.closed {
            let is_first = segment.ranges.iter().all(|range| !staying.contains(&range.shard));
            goes_on &= is_first && bytes.saturating_sub(segment.bytes) >= kept_bytes && may_go(*stream, segment);
            if goes_on {
                bytes -= segment.bytes;
                through.push((*stream, segment.number));
            } else {
                staying.extend(segment.ranges.iter().map(|range| range.shard));
            }
        }
    }
    // Of each stream the last one counts.
    through.reverse();
    through.dedup_by_key(|(stream, _)| *stream);
    through.reverse();
    through
}
