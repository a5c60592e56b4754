//! The fields of an append-only map: an entity of very many fields with names in no order. Each field is written about
//! once, looked up by name, and deleted about in the order of writes. A shard's owner says which of its entities is one.
//!
//! Records lie one behind the other in segments, in the order of their writes. A hash index finds the newest record of
//! each name. Nothing is ordered by name: in a tree of random names every level would be a cache miss, and every name
//! an allocation. All that the checkpoint lacks lies behind one place, so a flush copies from there on. Eviction drops
//! segments from the other end. The collection of expired records looks only at the oldest ones.

use std::collections::VecDeque;
use std::hash::Hasher;

use foldhash::SharedSeed;
use foldhash::quality::FoldHasher;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use crate::RowVisitor;
use crate::fields::Sizes;

/// Bytes of a segment, except for one with a larger record. Evicting a segment takes some 30 µs.
const SEGMENT_BYTES: usize = 64 << 10;

/// Bytes of the first segment. Each next one is twice as large, up to [`SEGMENT_BYTES`]. So a shard with few records
/// stays small, and nothing is ever moved.
const FIRST_SEGMENT_BYTES: usize = 1 << 10;

/// Bytes that a name takes in the index: 12 bytes and one of control, at a load between 7/16 and 7/8.
const SLOT_BYTES: usize = 20;

/// Hash, length of the name with [`FRESH`], length of the value or zero for a tombstone.
const HEAD_BYTES: usize = 12;

/// A bit in a record's length of name. It says that there had never been a row of that name when the record was
/// written.
const FRESH: u32 = 1 << 31;

/// Where a record lies. Later records have greater places.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RecordPosition {
    segment: u32,
    offset: u32,
}

struct Slot {
    hash: u32,
    place: RecordPosition,
}

/// Records one behind the other. A segment without capacity has been freed.
#[derive(Default)]
struct Segment {
    bytes: Vec<u8>,
    /// Records that are the newest of their names.
    current: usize,
    /// How many of those are tombstones.
    tombstones: usize,
    /// Bytes that the checkpoint is not known to hold.
    dirty_bytes: usize,
}

struct Record<'a> {
    hash: u32,
    is_fresh: bool,
    name: &'a [u8],
    /// Encoded; `None` for a tombstone.
    value: Option<&'a [u8]>,
    length: u32,
}

/// What memory knows of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Held<'a> {
    /// It has this encoded value.
    Live(&'a [u8]),
    /// It was deleted.
    Dead,
    /// Memory does not hold it.
    Missing,
}

/// The fields of an append-only map.
pub(crate) struct AppendOnlyMap {
    seed: u64,
    shared_seed: SharedSeed,
    index: HashTable<Slot>,
    segments: VecDeque<Segment>,
    /// The number of the first segment.
    first: u32,
    live_count: usize,
    segment_bytes: usize,
    /// Records before this place are in the checkpoint or in a chunk on its way there.
    taken: RecordPosition,
    /// Records before this place have once been in a chunk. So there may be a row, whatever happened to the chunk.
    handed_out: RecordPosition,
    /// Records before this place are in the checkpoint.
    confirmed: RecordPosition,
    /// Records before this place have been visited.
    visited: RecordPosition,
}

fn table_hash(hash: u32) -> u64 {
    u64::from(hash) << 32 | u64::from(hash)
}

fn length(bytes: usize) -> u32 {
    u32::try_from(bytes).expect("limits keep names and values below 4 GiB")
}

impl Segment {
    fn record(&self, offset: u32) -> Record<'_> {
        let bytes = &self.bytes[offset as usize..];
        let number = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let (hash, name_length, value_length) = (number(0), number(4), number(8));
        let name_end = HEAD_BYTES + (name_length & !FRESH) as usize;
        let end = name_end + value_length as usize;
        Record {
            hash,
            is_fresh: name_length & FRESH != 0,
            name: &bytes[HEAD_BYTES..name_end],
            value: (value_length > 0).then(|| &bytes[name_end..end]),
            length: length(end),
        }
    }
}

impl AppendOnlyMap {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            seed,
            shared_seed: SharedSeed::from_u64(seed),
            index: HashTable::new(),
            segments: VecDeque::new(),
            first: 0,
            live_count: 0,
            segment_bytes: 0,
            taken: RecordPosition::default(),
            handed_out: RecordPosition::default(),
            confirmed: RecordPosition::default(),
            visited: RecordPosition::default(),
        }
    }

    fn hash(&self, name: &[u8]) -> u32 {
        let mut hasher = FoldHasher::with_seed(self.seed, &self.shared_seed);
        hasher.write(name);
        (hasher.finish() >> 32) as u32
    }

    /// The segment of that number, unless it has been dropped.
    fn segment(&self, number: u32) -> Option<&Segment> {
        self.segments.get(number.checked_sub(self.first)? as usize)
    }

    fn segment_mut(&mut self, number: u32) -> &mut Segment {
        let index = number.checked_sub(self.first).expect("what the index finds is in a segment that is held");
        &mut self.segments[index as usize]
    }

    fn record(&self, place: RecordPosition) -> Record<'_> {
        self.segments[(place.segment - self.first) as usize].record(place.offset)
    }

    fn find(&self, hash: u32, name: &[u8]) -> Option<RecordPosition> {
        let is_it = |slot: &Slot| slot.hash == hash && self.record(slot.place).name == name;
        self.index.find(table_hash(hash), is_it).map(|slot| slot.place)
    }

    fn is_current(&self, place: RecordPosition, hash: u32) -> bool {
        self.index.find(table_hash(hash), |slot| slot.place == place).is_some()
    }

    pub(crate) fn lookup(&self, name: &[u8]) -> Held<'_> {
        match self.find(self.hash(name), name) {
            Some(place) => self.record(place).value.map_or(Held::Dead, Held::Live),
            None => Held::Missing,
        }
    }

    pub(crate) fn has_live(&self) -> bool {
        self.live_count > 0
    }

    pub(crate) fn resident_bytes(&self) -> usize {
        self.segment_bytes + self.index.len() * SLOT_BYTES
    }

    /// Live fields from `low` to `high` in order. It looks at all records, so it is for tests and repairs.
    pub(crate) fn live_range<'a>(&'a self, low: &[u8], high: Option<&[u8]>) -> Vec<(&'a [u8], &'a [u8])> {
        let records = self.index.iter().map(|slot| self.record(slot.place));
        let mut found: Vec<(&[u8], &[u8])> = records
            .filter(|record| record.name >= low && high.is_none_or(|high| record.name < high))
            .filter_map(|record| Some((record.name, record.value?)))
            .collect();
        found.sort_unstable();
        found
    }

    /// Applies a write. `complete` says that a name not in memory has no row.
    pub(crate) fn write(&mut self, name: &[u8], value: Option<&[u8]>, complete: bool, sizes: &mut Sizes) {
        let hash = self.hash(name);
        let old = self.find(hash, name);
        let (was_live, is_fresh) = match old {
            None => (false, complete),
            Some(place) => {
                let record = self.record(place);
                (record.value.is_some(), record.is_fresh && place >= self.handed_out)
            }
        };
        match (old, value) {
            // If a name is known to be absent, its deletion leaves nothing to remember. The deletion of a deleted name
            // is remembered.
            (None, None) if complete => return,
            (Some(_), None) if !was_live => return,
            (Some(place), None) if is_fresh => {
                self.forget(place, hash, sizes);
                return self.free_if_dead(place.segment, sizes);
            }
            _ => {}
        }
        let place = self.append(hash, name, value, is_fresh, sizes);
        self.live_count += usize::from(value.is_some());
        let is_old = |slot: &Slot| Some(slot.place) == old;
        match self.index.entry(table_hash(hash), is_old, |slot| table_hash(slot.hash)) {
            Entry::Occupied(mut slot) => slot.get_mut().place = place,
            Entry::Vacant(slot) => {
                slot.insert(Slot { hash, place });
                sizes.resident += SLOT_BYTES;
            }
        }
        if let Some(old) = old {
            self.discount(old, was_live);
            self.free_if_dead(old.segment, sizes);
        }
    }

    fn append(
        &mut self,
        hash: u32,
        name: &[u8],
        value: Option<&[u8]>,
        is_fresh: bool,
        sizes: &mut Sizes,
    ) -> RecordPosition {
        let value_bytes = value.unwrap_or_default();
        let bytes = HEAD_BYTES + name.len() + value_bytes.len();
        let is_full = |segment: &Segment| segment.bytes.capacity() - segment.bytes.len() < bytes;
        if self.segments.back().is_none_or(is_full) {
            let last = self.segments.back().map_or(0, |segment| segment.bytes.capacity());
            let capacity = (last * 2).clamp(FIRST_SEGMENT_BYTES, SEGMENT_BYTES).max(bytes);
            self.segments.push_back(Segment { bytes: Vec::with_capacity(capacity), ..Segment::default() });
            self.segment_bytes += capacity;
            sizes.resident += capacity;
            if self.segments.len() > 1 {
                self.free_if_dead(self.last() - 1, sizes);
            }
        }
        let number = self.last();
        let segment = self.segment_mut(number);
        let offset = length(segment.bytes.len());
        segment.bytes.extend_from_slice(&hash.to_le_bytes());
        let fresh = if is_fresh { FRESH } else { 0 };
        segment.bytes.extend_from_slice(&(length(name.len()) | fresh).to_le_bytes());
        segment.bytes.extend_from_slice(&length(value_bytes.len()).to_le_bytes());
        segment.bytes.extend_from_slice(name);
        segment.bytes.extend_from_slice(value_bytes);
        segment.current += 1;
        segment.tombstones += usize::from(value.is_none());
        segment.dirty_bytes += bytes;
        sizes.dirty += bytes;
        RecordPosition { segment: number, offset }
    }

    /// The number of the last segment; there is always one.
    fn last(&self) -> u32 {
        self.first + length(self.segments.len()) - 1
    }

    /// The record at `place` is no longer the newest of its name.
    fn discount(&mut self, place: RecordPosition, was_live: bool) {
        let segment = self.segment_mut(place.segment);
        segment.current -= 1;
        segment.tombstones -= usize::from(!was_live);
        self.live_count -= usize::from(was_live);
    }

    /// Memory no longer holds the name of the record at `place`.
    fn forget(&mut self, place: RecordPosition, hash: u32, sizes: &mut Sizes) {
        if let Ok(slot) = self.index.find_entry(table_hash(hash), |slot| slot.place == place) {
            slot.remove();
            sizes.resident -= SLOT_BYTES;
            let was_live = self.record(place).value.is_some();
            self.discount(place, was_live);
        }
    }

    /// Frees the memory of a segment that holds no newest record of a name. The last segment stays, because writes go
    /// to it.
    fn free_if_dead(&mut self, number: u32, sizes: &mut Sizes) {
        if number >= self.last() || self.segment(number).is_none_or(|segment| segment.current > 0) {
            return;
        }
        let freed = std::mem::take(self.segment_mut(number));
        self.segment_bytes -= freed.bytes.capacity();
        sizes.resident -= freed.bytes.capacity();
        sizes.dirty -= freed.dirty_bytes;
        while self.segments.len() > 1 && self.segments[0].bytes.capacity() == 0 {
            self.segments.pop_front();
            self.first += 1;
        }
    }

    /// The place of the next record at `place` or later, or the end.
    fn next(&self, mut place: RecordPosition) -> RecordPosition {
        if place.segment < self.first {
            place = RecordPosition { segment: self.first, offset: 0 };
        }
        while let Some(segment) = self.segment(place.segment)
            && place.offset as usize >= segment.bytes.len()
            && place.segment < self.last()
        {
            place = RecordPosition { segment: place.segment + 1, offset: 0 };
        }
        place
    }

    /// The place behind the last record.
    pub(crate) fn end(&self) -> RecordPosition {
        match self.segments.back() {
            Some(last) => RecordPosition { segment: self.last(), offset: length(last.bytes.len()) },
            None => RecordPosition { segment: self.first, offset: 0 },
        }
    }

    /// The place before which all records have been taken.
    pub(crate) fn taken(&self) -> RecordPosition {
        self.taken
    }

    /// Gives the next field before `end` that the checkpoint lacks to `take`. Returns whether there was one.
    pub(crate) fn take_next(&mut self, end: RecordPosition, mut take: impl FnMut(&[u8], Option<&[u8]>)) -> bool {
        loop {
            let place = self.next(self.taken);
            self.taken = place;
            self.handed_out = self.handed_out.max(place);
            if place >= end {
                return false;
            }
            let record = self.record(place);
            let next = RecordPosition { offset: place.offset + record.length, ..place };
            let is_current = self.is_current(place, record.hash);
            if is_current {
                take(record.name, record.value);
            }
            self.taken = next;
            self.handed_out = self.handed_out.max(next);
            if is_current {
                return true;
            }
        }
    }

    /// The checkpoint holds everything before `to`. The call subtracts its work from `left`, and returns whether it has
    /// reached the end.
    pub(crate) fn confirm(&mut self, to: RecordPosition, left: &mut usize, sizes: &mut Sizes) -> bool {
        while self.confirmed < to {
            if *left == 0 {
                return false;
            }
            let RecordPosition { segment: number, offset } = self.confirmed;
            if number < self.first {
                self.confirmed = RecordPosition { segment: self.first, offset: 0 };
                continue;
            }
            let segment = self.segment_mut(number);
            let used = length(segment.bytes.len());
            let until = if number < to.segment { used } else { to.offset.min(used) };
            let bytes = until.saturating_sub(offset) as usize;
            segment.dirty_bytes -= bytes;
            sizes.dirty -= bytes;
            *left -= 1;
            if number == to.segment {
                self.confirmed = to;
            } else {
                self.confirmed = RecordPosition { segment: number + 1, offset: 0 };
                *left = left.saturating_sub(self.drop_tombstones(number, sizes));
            }
        }
        self.taken = self.taken.max(self.confirmed);
        true
    }

    /// The rows that a segment's tombstones deleted are gone, so the tombstones need not be remembered.
    fn drop_tombstones(&mut self, number: u32, sizes: &mut Sizes) -> usize {
        let dropped = self.segment(number).map_or(0, |segment| segment.tombstones);
        if dropped > 0 {
            self.forget_all(number, sizes, |record| record.value.is_none());
            self.free_if_dead(number, sizes);
        }
        dropped
    }

    fn forget_all(&mut self, number: u32, sizes: &mut Sizes, is_meant: impl Fn(&Record<'_>) -> bool) {
        let mut place = RecordPosition { segment: number, offset: 0 };
        while let Some(segment) = self.segment(number).filter(|segment| (place.offset as usize) < segment.bytes.len()) {
            let record = segment.record(place.offset);
            let (hash, length, is_meant) = (record.hash, record.length, is_meant(&record));
            if is_meant {
                self.forget(place, hash, sizes);
            }
            place.offset += length;
        }
    }

    /// Records that were taken and not confirmed were not written, or only perhaps.
    pub(crate) fn revert(&mut self) {
        self.taken = self.confirmed;
    }

    /// Drops the oldest segments that are wholly in the checkpoint, until memory is down to `target_resident_bytes`.
    /// Returns whether any is gone: the entity is no longer complete then.
    pub(crate) fn drop_oldest(&mut self, target_resident_bytes: usize, sizes: &mut Sizes) -> bool {
        let mut has_dropped = false;
        while sizes.resident > target_resident_bytes && self.segments.len() > 1 && self.first < self.confirmed.segment {
            has_dropped = true;
            self.forget_all(self.first, sizes, |_| true);
            self.free_if_dead(self.first, sizes);
        }
        has_dropped
    }

    /// Gives live records to `visit` in the order of writes, from where the last visit ended, at most `limit` of them.
    /// If `visit` breaks at a record, the next visit begins with it.
    pub(crate) fn visit(&mut self, limit: usize, visit: &mut RowVisitor<'_>) {
        let end = self.end();
        for _ in 0..limit {
            self.visited = self.next(self.visited);
            if self.visited >= end {
                return;
            }
            let record = self.record(self.visited);
            let value = record.value.filter(|_| self.is_current(self.visited, record.hash));
            if value.is_some_and(|value| visit(record.name, value).is_break()) {
                return;
            }
            self.visited.offset += record.length;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ops::ControlFlow;

    fn append_only_map(count: u32, sizes: &mut Sizes) -> AppendOnlyMap {
        let mut append_only_map = AppendOnlyMap::new(7);
        for number in 0..count {
            append_only_map.write(&number.to_le_bytes(), Some(b"\x01value"), true, sizes);
        }
        append_only_map
    }

    fn visited(append_only_map: &mut AppendOnlyMap, limit: usize) -> Vec<u32> {
        let mut names = Vec::new();
        append_only_map.visit(limit, &mut |name, _| {
            names.push(u32::from_le_bytes(name.try_into().expect("four bytes")));
            ControlFlow::Continue(())
        });
        names
    }

    #[test]
    fn visits_go_on_in_the_order_of_writing() {
        let mut sizes = Sizes::default();
        let mut append_only_map = append_only_map(10_000, &mut sizes);
        assert_eq!(visited(&mut append_only_map, 3), [0, 1, 2]);
        append_only_map.write(&3u32.to_le_bytes(), None, true, &mut sizes);
        append_only_map.write(&4u32.to_le_bytes(), Some(b"\x01other"), true, &mut sizes);
        assert_eq!(
            visited(&mut append_only_map, 4),
            [5, 6],
            "a deleted one is not shown, one written again comes later"
        );
        assert_eq!(visited(&mut append_only_map, usize::MAX).last(), Some(&4));
        assert_eq!(visited(&mut append_only_map, usize::MAX), []);
    }

    #[test]
    fn who_breaks_a_visit_sees_the_same_again() {
        let mut sizes = Sizes::default();
        let mut append_only_map = append_only_map(10, &mut sizes);
        for _ in 0..3 {
            let mut seen = 0;
            append_only_map.visit(100, &mut |_, _| {
                seen += 1;
                ControlFlow::Break(())
            });
            assert_eq!(seen, 1);
        }
    }

    #[test]
    fn memory_is_given_back_as_the_oldest_go_though_nothing_was_ever_flushed() {
        let mut sizes = Sizes::default();
        let mut append_only_map = append_only_map(0, &mut sizes);
        for number in 0..1_000_000u32 {
            append_only_map.write(&number.to_le_bytes(), Some(b"\x01value"), true, &mut sizes);
            if let Some(old) = number.checked_sub(5_000) {
                append_only_map.write(&old.to_le_bytes(), None, true, &mut sizes);
            }
        }
        assert_eq!(append_only_map.live_count, 5_000);
        assert_eq!(sizes.resident, append_only_map.resident_bytes());
        assert!(sizes.resident < 5_000 * 50 + 2 * SEGMENT_BYTES, "{} bytes", sizes.resident);
        assert!(sizes.dirty <= sizes.resident);
    }

    #[test]
    fn few_records_take_little() {
        let mut sizes = Sizes::default();
        append_only_map(3, &mut sizes);
        assert!(sizes.resident < 2048);
    }
}
