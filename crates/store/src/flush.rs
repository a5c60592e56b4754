//! The fuzzy checkpoint: dirty entities are written to disk while the shard goes on.
//!
//! A flush walks once over the dirty entities in the order of their keys. It gives out chunks of rows, each as the
//! entity is at that moment. Until a chunk is confirmed, its fields stay in memory and count as dirty, so reads never
//! look for them in the checkpoint. The last chunk moves the checkpoint's LSN to the LSN at which the flush began: the
//! walk has passed every entity that was dirty then. `docs/internals/store.md` says why rows newer than that LSN do no
//! harm.

use std::collections::VecDeque;

use millrace_base::{Lsn, UnixMillis};

use crate::append_only_map::RecordPosition;
use crate::fields::Fields;
use crate::many::Names;
use crate::row::{TIME_FIELD, encode_time, successor, time_entity};
use crate::store::DIRTY_INDEX_BYTES;
use crate::{FlushChunk, Store};

/// A flush under way.
pub(crate) struct Flush {
    /// The applied LSN when it began.
    began_at: Lsn,
    /// The last entity looked up.
    cursor: Option<Box<[u8]>>,
    /// Entities looked up and not taken yet. They are dirty, so they stay where they are.
    next: VecDeque<u32>,
    looked_up_all: bool,
    /// The large entity that the walk is in.
    inside: Option<Inside>,
    /// Chunks given out and not confirmed, oldest first.
    in_flight: VecDeque<Taken>,
    /// Whether the last chunk has been given out.
    walked: bool,
}

/// A large entity that several chunks share.
struct Inside {
    index: u32,
    /// Its last write when the walk came to it. Later writes may miss its chunk.
    last_write: Lsn,
    rest: Rest,
}

/// The fields still to be taken.
enum Rest {
    Names(Names),
    /// Those of an append-only map up to here.
    Until(RecordPosition),
}

/// What a chunk took.
pub(crate) struct Taken {
    number: u64,
    advances_to: Option<Lsn>,
    /// Entities finished by this chunk, each with its last write when its first field was taken.
    entities: VecDeque<(u32, Lsn)>,
    /// Fields taken of large entities.
    names: Vec<(u32, Vec<Box<[u8]>>)>,
    /// Up to where fields were taken of an append-only map.
    append_only_maps: VecDeque<(u32, RecordPosition)>,
}

/// Entities looked up at a time.
const LOOK_UP: usize = 256;

/// Fields or entities made clean as soon as their chunk is confirmed: a millisecond's work.
const SETTLE: usize = 2048;

/// Bytes that a chunk counts for a row beside its key and value. So the work of many tiny rows is bounded as well.
const ROW_BYTES: usize = 16;

impl Store {
    /// Begins to flush what is dirty now. Returns the LSN that the checkpoint will have afterwards, or `None` if a
    /// flush is under way or the checkpoint is up to date.
    pub fn begin_flush(&mut self) -> Option<Lsn> {
        if self.flush.is_some() || self.checkpoint_lsn == self.lsn {
            return None;
        }
        // A field taken again must not be mistaken for the one written before.
        self.settle(usize::MAX);
        self.flush = Some(Flush {
            began_at: self.lsn,
            cursor: None,
            next: VecDeque::new(),
            looked_up_all: false,
            inside: None,
            in_flight: VecDeque::new(),
            walked: false,
        });
        Some(self.lsn)
    }

    /// Whether a flush has begun and neither ended nor failed.
    #[must_use]
    pub fn is_flushing(&self) -> bool {
        self.flush.is_some()
    }

    /// The next rows to write, of about `max_bytes`. A single entity of a few large fields may exceed it. `None` if no
    /// flush is under way or its last chunk has been given out. Several chunks may be out at a time, if they are
    /// written and confirmed in order.
    pub fn next_flush_chunk(&mut self, max_bytes: usize) -> Option<FlushChunk> {
        if self.flush.as_ref()?.walked {
            return None;
        }
        let mut chunk = FlushChunk::new(self.next_chunk, self.lsn);
        self.next_chunk += 1;
        let taken = Taken {
            number: chunk.number,
            advances_to: None,
            entities: VecDeque::new(),
            names: Vec::new(),
            append_only_maps: VecDeque::new(),
        };
        self.flush.as_mut()?.in_flight.push_back(taken);
        self.extend_flush_chunk(&mut chunk, max_bytes);
        Some(chunk)
    }

    /// Adds about `more_bytes` of rows to the newest chunk, which has not been written yet. So a large chunk, which is
    /// written efficiently, can be taken in short steps, and requests are served in between. Returns whether there may
    /// be more.
    pub fn extend_flush_chunk(&mut self, chunk: &mut FlushChunk, more_bytes: usize) -> bool {
        let Some(mut flush) = self.flush.take() else { return false };
        let newest = flush.in_flight.pop_back_if(|taken| taken.number == chunk.number && taken.advances_to.is_none());
        if let Some(mut taken) = newest {
            chunk.needs_durable = self.lsn;
            self.fill(&mut flush, chunk, &mut taken, more_bytes);
            if flush.walked {
                self.add_time(chunk);
                chunk.advances_to = Some(flush.began_at);
                taken.advances_to = chunk.advances_to;
            }
            // From here on the checkpoint may hold rows, whatever happens to the chunk.
            self.checkpoint_empty &= chunk.row_count() == 0;
            flush.in_flight.push_back(taken);
        }
        let more = !flush.walked;
        self.flush = Some(flush);
        more
    }

    /// The time goes with the chunk that moves the LSN on, since from then on the log may lack the entry that had it.
    fn add_time(&self, chunk: &mut FlushChunk) {
        if self.time > UnixMillis(0) {
            let (entity, value) = (time_entity(), encode_time(self.time));
            chunk.push_unordered(self.shard, entity.as_bytes(), TIME_FIELD, Some(value.encoded()));
        }
    }

    fn fill(&mut self, flush: &mut Flush, chunk: &mut FlushChunk, taken: &mut Taken, more_bytes: usize) {
        let mut steps = 0;
        // An entity without rows to write still costs a step of the walk.
        let work = |chunk: &FlushChunk, steps: usize| chunk.size_bytes() + (chunk.row_count() + steps) * ROW_BYTES;
        let limit = work(chunk, 0) + more_bytes.max(1);
        while work(chunk, steps) < limit {
            if flush.inside.is_some() {
                self.take_many(flush, chunk, taken, limit);
                continue;
            }
            let Some(index) = flush.next.pop_front() else {
                if !self.look_up(flush) {
                    flush.walked = true;
                    return;
                }
                continue;
            };
            steps += 1;
            self.take_entity(index, flush, chunk, taken);
        }
    }

    /// Looks up the next entities to take, many at a time because a look-up costs more than a step. Returns whether
    /// there are any.
    fn look_up(&self, flush: &mut Flush) -> bool {
        if flush.looked_up_all {
            return false;
        }
        let low = flush.cursor.as_ref().map_or(Vec::new(), |cursor| successor(cursor));
        flush.next.extend(self.dirty.from(&low, |index| &self.entities[index].key).take(LOOK_UP));
        if let Some(last) = flush.next.back() {
            flush.cursor = Some(self.entities[*last].key.clone());
        }
        // What becomes dirty behind the end from now on is for the next flush.
        flush.looked_up_all = flush.next.len() < LOOK_UP;
        !flush.next.is_empty()
    }

    fn take_entity(&mut self, index: u32, flush: &mut Flush, chunk: &mut FlushChunk, taken: &mut Taken) {
        let entity = &mut self.entities[index];
        if let Fields::Many(many) = &mut entity.fields {
            let rest = Rest::Names(many.start_taking());
            flush.inside = Some(Inside { index, last_write: entity.last_write, rest });
            return;
        }
        if let Fields::AppendOnlyMap(append_only_map) = &entity.fields {
            flush.inside =
                Some(Inside { index, last_write: entity.last_write, rest: Rest::Until(append_only_map.end()) });
            return;
        }
        let (shard, key) = (self.shard, &entity.key);
        entity.fields.take_few(|name, value| chunk.push(shard, key, name, value.map(|value| value.encoded())));
        taken.entities.push_back((index, entity.last_write));
    }

    fn take_many(&mut self, flush: &mut Flush, chunk: &mut FlushChunk, taken: &mut Taken, limit: usize) {
        let Some(Inside { index, last_write, mut rest }) = flush.inside.take() else { return };
        let shard = self.shard;
        let entity = &mut self.entities[index];
        let has_room = |chunk: &FlushChunk| chunk.size_bytes() + chunk.row_count() * ROW_BYTES < limit;
        let mut is_done = false;
        match (&mut entity.fields, &mut rest) {
            (Fields::Many(many), Rest::Names(names)) => {
                let mut taken_names = Vec::new();
                while has_room(chunk) {
                    let Some(name) = names.pop_first() else { break };
                    many.take(&name, |value| chunk.push(shard, &entity.key, &name, value.map(|value| value.encoded())));
                    taken_names.push(name);
                }
                taken.names.push((index, taken_names));
                is_done = names.is_empty();
            }
            (Fields::AppendOnlyMap(append_only_map), Rest::Until(end)) => {
                while has_room(chunk) && !is_done {
                    is_done = !append_only_map
                        .take_next(*end, |name, value| chunk.push_unordered(shard, &entity.key, name, value));
                }
                taken.append_only_maps.push_back((index, append_only_map.taken()));
            }
            _ => return,
        }
        if is_done {
            taken.entities.push_back((index, last_write));
        } else {
            flush.inside = Some(Inside { index, last_write, rest });
        }
    }

    /// The oldest chunk that is out has been written and is durable.
    ///
    /// Returns the new checkpoint LSN with the last chunk. Ignores a chunk of a flush that has failed in the meantime:
    /// its rows are still dirty. The chunk's entities become clean here and in later calls of [`Store::settle`].
    pub fn confirm_flush_chunk(&mut self, chunk: &FlushChunk) -> Option<Lsn> {
        let flush = self.flush.as_mut()?;
        let taken = flush.in_flight.pop_front_if(|taken| taken.number == chunk.number)?;
        let lsn = taken.advances_to;
        self.confirmed_chunks += 1;
        self.written.push_back(taken);
        if let Some(lsn) = lsn {
            self.checkpoint_lsn = lsn;
            self.flush = None;
        }
        self.settle(SETTLE);
        lsn
    }

    /// Makes up to about `count` fields or entities of confirmed chunks clean. Returns whether there are more. A chunk
    /// has too many for one turn of the shard. Until then they count as dirty, which is never wrong, and only makes
    /// memory seem fuller.
    pub fn settle(&mut self, count: usize) -> bool {
        let mut left = count;
        while let Some(mut taken) = self.written.pop_front() {
            // All fields of large entities come before the entities, which are clean only then.
            while let Some((index, names)) = taken.names.last_mut().filter(|_| left > 0) {
                if let (Some(name), Fields::Many(many)) = (names.pop(), &mut self.entities[*index].fields) {
                    many.confirm(&name, &mut self.sizes);
                    left -= 1;
                } else {
                    taken.names.pop();
                }
            }
            while let Some((index, place)) = taken.append_only_maps.front().copied().filter(|_| left > 0) {
                if let Fields::AppendOnlyMap(append_only_map) = &mut self.entities[index].fields
                    && !append_only_map.confirm(place, &mut left, &mut self.sizes)
                {
                    break;
                }
                taken.append_only_maps.pop_front();
            }
            // In the order in which they were taken: neighbours in the index and in memory.
            while let Some((index, last_write)) = taken.entities.front().copied().filter(|_| left > 0) {
                taken.entities.pop_front();
                self.settle_entity(index, last_write);
                left -= 1;
            }
            if !taken.entities.is_empty() || !taken.names.is_empty() || !taken.append_only_maps.is_empty() {
                self.written.push_front(taken);
                return true;
            }
        }
        false
    }

    fn settle_entity(&mut self, index: u32, last_write: Lsn) {
        let entity = &mut self.entities[index];
        entity.fields.confirm_few(&mut self.sizes);
        // If it was written again since it was taken, it stays dirty.
        if entity.last_write == last_write {
            entity.last_write = Lsn::ZERO;
            self.dirty.remove(&entity.key);
            self.sizes.resident -= DIRTY_INDEX_BYTES;
            self.sizes.dirty -= DIRTY_INDEX_BYTES;
        }
    }

    /// A chunk could not be written. The flush is over, everything not confirmed stays dirty, and another flush may
    /// begin at once.
    pub fn abandon_flush(&mut self) {
        let Some(flush) = self.flush.take() else { return };
        for taken in flush.in_flight {
            for (index, _) in taken.entities {
                self.entities[index].fields.revert_few();
            }
            for (index, names) in taken.names {
                self.revert_names(index, names);
            }
            for (index, _) in taken.append_only_maps {
                self.revert_append_only_map(index);
            }
        }
        match flush.inside {
            Some(Inside { index, rest: Rest::Names(names), .. }) => self.revert_names(index, names),
            Some(Inside { index, rest: Rest::Until(_), .. }) => self.revert_append_only_map(index),
            None => {}
        }
    }

    fn revert_append_only_map(&mut self, index: u32) {
        if let Fields::AppendOnlyMap(append_only_map) = &mut self.entities[index].fields {
            append_only_map.revert();
        }
    }

    fn revert_names(&mut self, index: u32, names: impl IntoIterator<Item = Box<[u8]>>) {
        if let Fields::Many(many) = &mut self.entities[index].fields {
            for name in names {
                many.revert(name);
            }
        }
    }
}
