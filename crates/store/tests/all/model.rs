//! The store against a model, through every interleaving of writes, reads, flushes, evictions and crashes. Flushes
//! succeed, fail or are cut short. Crashes lose what the log had not made durable.

use std::collections::{BTreeMap, VecDeque};
use std::ops::ControlFlow;
use std::sync::Arc;

use millrace_base::{EntityKey, Lsn, Name, ShardId, UnixMillis, Value, ValueKind};
use millrace_format::{Entry, EntryRef, Write};
use millrace_store::{
    Checkpoint, ColdRead, ColdRows, EntityRange, FjallCheckpoint, FlushChunk, MemoryCheckpoint, Store, Visit,
};
use proptest::prelude::*;

const SHARD: ShardId = ShardId(3);

/// What happens to a chunk that is reported as failed.
#[derive(Clone, Copy, Debug)]
enum Failure {
    NotWritten,
    WrittenAllTheSame,
}

#[derive(Clone, Debug)]
enum Action {
    Commit(Vec<(u8, u8, Option<u8>)>),
    /// Many fields at once, from `start` on: entities large enough for maps and for partial loading.
    Bulk {
        entity: u8,
        start: u8,
        count: u8,
        value: Option<u8>,
    },
    /// Deletes the first fields, and reads each time which one is first: a queue.
    Drain {
        entity: u8,
        count: u8,
    },
    Get {
        entity: u8,
        field: u8,
    },
    /// Asks for rows to be read beside the shard.
    Ask(u8),
    /// The oldest of these reads is made.
    ReadBeside,
    /// The oldest rows that were read so come in.
    TakeRows,
    ScanFields {
        entity: u8,
        prefix: bool,
        after: Option<u8>,
        limit: u8,
        max_bytes: Option<u16>,
    },
    ScanEntities {
        after: Option<u8>,
        limit: u8,
    },
    Visit(Visiting),
    Begin,
    Take(u16),
    Extend(u16),
    Write,
    FlushAll,
    Settle(u8),
    Fail(Failure),
    Evict(u16),
    Durable(u8),
    /// A chunk is extended after a commit and written, and a crash follows. Only on this path could rows outlive
    /// entries that the log lost.
    CrashAfterExtending {
        take: u16,
        writes: Vec<(u8, u8, Option<u8>)>,
        keep: u8,
    },
    Crash {
        keep: u8,
        seed: u64,
    },
}

/// How entities are visited.
#[derive(Clone, Copy, Debug)]
struct Visiting {
    /// Begins with this entity, in it behind this field.
    from: Option<(u8, Option<u8>)>,
    field: u8,
    is_prefix: bool,
    fields_limit: u8,
    /// Seeks to this entity from the one visited as the n-th.
    seek: Option<(u8, u8)>,
    /// Stops at the n-th.
    stop: u8,
}

fn visiting() -> impl Strategy<Value = Visiting> {
    let from = proptest::option::of((0..9u8, proptest::option::of(0..100u8)));
    let seek = proptest::option::of((1..5u8, 0..9u8));
    (from, 0..40u8, any::<bool>(), prop_oneof![0..4u8, Just(200u8)], seek, 1..12u8).prop_map(
        |(from, field, is_prefix, fields_limit, seek, stop)| Visiting {
            from,
            field,
            is_prefix,
            fields_limit,
            seek,
            stop,
        },
    )
}

fn step() -> impl Strategy<Value = Action> {
    let write = || (0..9u8, 0..12u8, proptest::option::weighted(0.6, any::<u8>()));
    prop_oneof![
        6 => proptest::collection::vec(write(), 1..5).prop_map(Action::Commit),
        2 => (0..3u8, 0..100u8, 0..150u8, proptest::option::weighted(0.7, any::<u8>()))
            .prop_map(|(entity, start, count, value)| Action::Bulk { entity, start, count, value }),
        2 => (0..3u8, 1..60u8).prop_map(|(entity, count)| Action::Drain { entity, count }),
        4 => (0..9u8, 0..200u8).prop_map(|(entity, field)| Action::Get { entity, field }),
        4 => (0..9u8).prop_map(Action::Ask),
        3 => Just(Action::ReadBeside),
        3 => Just(Action::TakeRows),
        4 => (0..9u8, any::<bool>(), proptest::option::of(0..200u8), 0..200u8, proptest::option::of(0..2000u16))
            .prop_map(|(entity, prefix, after, limit, max_bytes)| {
                Action::ScanFields { entity, prefix, after, limit, max_bytes }
            }),
        3 => (proptest::option::of(0..9u8), 0..10u8).prop_map(|(after, limit)| Action::ScanEntities { after, limit }),
        4 => visiting().prop_map(Action::Visit),
        3 => Just(Action::Begin),
        4 => (1..3000u16).prop_map(Action::Take),
        2 => (1..3000u16).prop_map(Action::Extend),
        4 => Just(Action::Write),
        2 => Just(Action::FlushAll),
        1 => any::<u8>().prop_map(Action::Settle),
        1 => prop_oneof![Just(Failure::NotWritten), Just(Failure::WrittenAllTheSame)].prop_map(Action::Fail),
        3 => prop_oneof![Just(0u16), any::<u16>()].prop_map(Action::Evict),
        2 => any::<u8>().prop_map(Action::Durable),
        1 => (1..400u16, proptest::collection::vec(write(), 1..5), any::<u8>())
            .prop_map(|(take, writes, keep)| Action::CrashAfterExtending { take, writes, keep }),
        1 => (any::<u8>(), any::<u64>()).prop_map(|(keep, seed)| Action::Crash { keep, seed }),
    ]
}

fn entity(number: u8) -> EntityKey {
    // Keys that extend each other and hold the bytes that the encoding escapes. The third is kept as
    // an append-only map.
    let keys = [&b"a"[..], b"a\0", b"", b"ab", b"b", b"", b"\xFF", b"\xFF\xFF", b"a\0\xFF"];
    let key: &[u8] = keys[usize::from(number)];
    if number == 2 {
        return EntityKey::internal("outcome", key);
    }
    EntityKey::new(&Name::new("app").expect("valid"), &Name::new("service").expect("valid"), key)
}

fn field(number: u8) -> Vec<u8> {
    match number {
        0 => Vec::new(),
        1 => vec![0xFF],
        2 => vec![0xFF, 0xFF],
        3 => b"f".to_vec(),
        number => vec![b'f', number],
    }
}

fn value(number: u8) -> Value {
    Value::new(ValueKind::Bytes, &vec![number; usize::from(number) % 40])
}

type Fields = BTreeMap<Vec<u8>, Value>;

struct World {
    checkpoint: Arc<dyn Checkpoint>,
    store: Store,
    /// Every committed write set, by LSN from 1.
    log: Vec<Vec<Write>>,
    durable: usize,
    model: BTreeMap<EntityKey, Fields>,
    last_write: BTreeMap<EntityKey, Lsn>,
    out: VecDeque<FlushChunk>,
    asked: VecDeque<ColdRead>,
    read: VecDeque<ColdRows>,
}

impl World {
    fn new(checkpoint: Arc<dyn Checkpoint>) -> Self {
        let store = Store::open(SHARD, Arc::clone(&checkpoint), 1).expect("opens").with_append_only(&entity(2));
        let (model, last_write) = (BTreeMap::new(), BTreeMap::new());
        let (asked, read) = (VecDeque::new(), VecDeque::new());
        World { checkpoint, store, log: Vec::new(), durable: 0, model, last_write, out: VecDeque::new(), asked, read }
    }

    fn model_apply(&mut self, lsn: Lsn, writes: &[Write]) {
        for write in writes {
            self.last_write.insert(write.entity.clone(), lsn);
            let fields = self.model.entry(write.entity.clone()).or_default();
            match &write.value {
                Some(value) => fields.insert(write.field.to_vec(), value.clone()),
                None => fields.remove(&*write.field),
            };
            if fields.is_empty() {
                self.model.remove(&write.entity);
            }
        }
    }

    fn commit(&mut self, writes: Vec<Write>) {
        let lsn = self.store.lsn().next();
        self.store.apply(lsn, writes.clone()).expect("applies");
        self.model_apply(lsn, &writes);
        self.log.push(writes);
        assert_eq!(self.log.len() as u64, lsn.0);
    }

    fn write_oldest(&mut self) {
        let Some(chunk) = self.out.pop_front() else { return };
        self.durable = self.durable.max(chunk.needs_durable().0 as usize);
        self.checkpoint.write(SHARD, &chunk).expect("writes");
        let confirmed = self.store.confirm_flush_chunk(&chunk);
        assert_eq!(confirmed, chunk.advances_to());
        if let Some(lsn) = confirmed {
            assert_eq!(self.store.checkpoint_lsn(), lsn);
            assert_eq!(self.checkpoint.lsn(SHARD), Ok(lsn));
        }
    }

    fn fail_oldest(&mut self, failure: Failure) {
        let Some(chunk) = self.out.pop_front() else { return };
        if let Failure::WrittenAllTheSame = failure {
            self.durable = self.durable.max(chunk.needs_durable().0 as usize);
            self.checkpoint.write(SHARD, &chunk).expect("writes");
        }
        self.out.clear();
        self.store.abandon_flush();
        assert_eq!(self.store.confirm_flush_chunk(&chunk), None, "a late confirmation changes nothing");
    }

    fn flush_all(&mut self) {
        self.store.begin_flush();
        loop {
            while let Some(chunk) = self.store.next_flush_chunk(700) {
                self.out.push_back(chunk);
            }
            if self.out.is_empty() {
                break;
            }
            self.write_oldest();
        }
        assert!(!self.store.is_flushing());
    }

    fn crash(&mut self, keep: u8, seed: u64) {
        let lost = self.log.len() - self.durable;
        self.log.truncate(self.durable + lost * usize::from(keep) / 255);
        self.out.clear();
        self.store =
            Store::open(SHARD, Arc::clone(&self.checkpoint), seed).expect("opens").with_append_only(&entity(2));
        assert_eq!(self.store.lsn(), self.store.checkpoint_lsn());
        (self.model, self.last_write) = (BTreeMap::new(), BTreeMap::new());
        // The log is kept from some entry before the checkpoint's LSN on.
        let kept_from = (self.store.lsn().0 as usize).saturating_sub(usize::from(keep) % 3);
        for (index, writes) in std::mem::take(&mut self.log).into_iter().enumerate() {
            let lsn = Lsn(index as u64 + 1);
            self.model_apply(lsn, &writes);
            if index >= kept_from {
                let mut bytes = Vec::new();
                Entry { shard: SHARD, lsn, time: UnixMillis(0), writes: &writes }.encode(&mut bytes);
                self.store.replay(&EntryRef::decode(&bytes).expect("decodes")).expect("replays");
            }
            self.log.push(writes);
        }
        // What recovery has read comes from disk.
        self.durable = self.log.len();
        assert_eq!(self.store.lsn().0 as usize, self.log.len());
    }

    fn expected_fields(
        &self,
        entity: &EntityKey,
        prefix: &[u8],
        after: Option<&[u8]>,
        limit: usize,
    ) -> Vec<(Box<[u8]>, Value)> {
        let fields = self.model.get(entity).into_iter().flatten();
        fields
            .filter(|(name, _)| name.starts_with(prefix) && after.is_none_or(|after| name.as_slice() > after))
            .take(limit)
            .map(|(name, value)| (name.as_slice().into(), value.clone()))
            .collect()
    }

    fn check_scan(&mut self, entity: &EntityKey, prefix: &[u8], after: Option<&[u8]>, limit: usize) {
        let expected = self.expected_fields(entity, prefix, after, limit);
        assert_eq!(self.store.scan_fields(entity, prefix, after, limit), Ok(expected));
    }

    /// A bounded scan gives the beginning of what an unbounded one gives, as long as it has to be.
    fn check_scan_within(
        &mut self,
        entity: &EntityKey,
        prefix: &[u8],
        after: Option<&[u8]>,
        limit: usize,
        max_bytes: usize,
    ) {
        let mut bytes = 0;
        let mut expected = self.expected_fields(entity, prefix, after, limit);
        let mut count = 0;
        while count < expected.len() && bytes <= max_bytes {
            let (name, value) = &expected[count];
            bytes += name.len() + value.encoded().len();
            count += 1;
        }
        expected.truncate(count);
        let found = self.store.scan_fields_within(entity, prefix, after, limit, max_bytes);
        assert_eq!(found, Ok((expected, bytes > max_bytes)));
    }

    fn check_entities(&mut self, after: Option<&EntityKey>, limit: usize) {
        for key_prefix in [&b""[..], b"a"] {
            let prefix = EntityKey::scan_prefix("app", "service", key_prefix);
            let expected: Vec<_> = self
                .model
                .keys()
                .filter(|key| key.as_bytes().starts_with(&prefix) && after.is_none_or(|after| *key > after))
                .take(limit)
                .cloned()
                .collect();
            let (found, seen) = self.store.scan_entities_seen(&prefix, after, limit).expect("scans");
            assert_eq!(found, expected);
            // The page depends on what was written up to its end, deletions included.
            let end = found.last().filter(|_| found.len() == limit);
            let is_seen = |entity: &EntityKey| {
                entity.as_bytes().starts_with(&prefix)
                    && after.is_none_or(|after| entity > after)
                    && end.is_none_or(|end| entity <= end)
                    && limit > 0
            };
            let looked_at = (0..9).map(entity).filter(is_seen);
            let newest = looked_at.map(|entity| self.store.entity_lsn(&entity)).max();
            assert_eq!(seen, newest.unwrap_or_default(), "a page that ends with {end:?}");
        }
    }

    fn check_visit(&self, how: Visiting) {
        let prefix = EntityKey::scan_prefix("app", "service", b"");
        let begin = how.from.map(|(number, behind)| (entity(number), behind.map(field)));
        let from = begin.as_ref().map_or(Vec::new(), |(entity, _)| entity.as_bytes().to_vec());
        let behind = begin.as_ref().and_then(|(entity, name)| Some((entity, name.as_deref()?)));
        let name = field(how.field);
        let seek_from =
            |visited: usize| how.seek.filter(|(at, _)| usize::from(*at) == visited).map(|(_, to)| entity(to));
        let is_wanted = |entity: &EntityKey, field: &[u8]| {
            let is_behind = behind.is_none_or(|(own, behind)| own != entity || field > behind);
            is_behind && if how.is_prefix { field.starts_with(&name) } else { field == name }
        };
        let (mut expected, mut passed_to, mut skip_to) = (Vec::new(), None, from.clone());
        for (entity, fields) in &self.model {
            if how.fields_limit == 0 || !entity.as_bytes().starts_with(&prefix) || *entity.as_bytes() < *skip_to {
                continue;
            }
            let wanted = fields.iter().filter(|(name, _)| is_wanted(entity, name)).take(how.fields_limit.into());
            let wanted: Vec<_> = wanted.map(|(name, value)| (name.as_slice().into(), value.clone())).collect();
            if wanted.is_empty() {
                continue;
            }
            expected.push((entity.clone(), wanted));
            if expected.len() == usize::from(how.stop) {
                passed_to = Some(entity.clone());
                break;
            }
            if let Some(to) = seek_from(expected.len()) {
                skip_to = skip_to.max(to.as_bytes().to_vec());
            }
        }
        let mut found = Vec::new();
        let range = EntityRange {
            prefix: &prefix,
            from: &from,
            behind,
            field: &name,
            is_prefix: how.is_prefix,
            fields_limit: how.fields_limit.into(),
        };
        let seen = self.store.visit_entities(&range, &mut |entity, fields| {
            found.push((entity, fields));
            match seek_from(found.len()) {
                _ if found.len() == usize::from(how.stop) => Visit::Stop,
                Some(to) => Visit::Seek(to.as_bytes().to_vec()),
                None => Visit::Next,
            }
        });
        assert_eq!(found, expected);
        if how.seek.is_none() && how.fields_limit > 0 {
            let is_seen = |entity: &EntityKey| {
                let is_before_end = passed_to.as_ref().is_none_or(|end| entity <= end);
                entity.as_bytes().starts_with(&prefix) && *entity.as_bytes() >= *from && is_before_end
            };
            let newest = (0..9).map(entity).filter(is_seen).map(|entity| self.store.entity_lsn(&entity)).max();
            assert_eq!(seen, Ok(newest.unwrap_or_default()));
        }
    }

    fn check_all(&mut self) {
        self.check_entities(None, 100);
        for number in 0..9 {
            let entity = entity(number);
            let last = self.last_write.get(&entity).copied().unwrap_or_default();
            let reported = self.store.entity_lsn(&entity);
            assert!(
                reported == last || (reported == Lsn::ZERO && last.0 as usize <= self.durable),
                "a reader would not wait for {last}"
            );
            self.check_scan(&entity, b"", None, 1000);
            let mut visited = Vec::new();
            let mut visit = |name: &[u8], value: &Value| {
                visited.push((name.into(), value.clone()));
                ControlFlow::Continue(())
            };
            self.store.visit_fields(&entity, b"", (7, 100), &mut visit).expect("reads");
            assert_eq!(visited, self.expected_fields(&entity, b"", None, usize::MAX));
        }
        self.check_rows(&entity(2));
        assert!(self.store.dirty_bytes() <= self.store.resident_bytes());
    }

    /// The rows read page by page are what the fields are now. With nothing unflushed, they are all fields.
    fn check_rows(&mut self, entity: &EntityKey) {
        let expected = self.expected_fields(entity, b"", None, 1000);
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            let page = self.store.scan_rows(entity, after.as_deref(), 7).expect("reads");
            found.extend(page.fields);
            after = page.last;
            if after.is_none() {
                break;
            }
        }
        assert!(found.iter().all(|row| expected.contains(row)));
        if self.store.entity_lsn(entity) == Lsn::ZERO {
            assert_eq!(found, expected);
        }
    }

    fn take(&mut self, step: Action) {
        match step {
            Action::Commit(writes) => {
                let writes = writes.into_iter().map(|(e, f, v)| write(e, f, v)).collect();
                self.commit(writes);
            }
            Action::Bulk { entity, start, count, value } => {
                let fields = start..start.saturating_add(count);
                self.commit(fields.map(|field| write(entity, field, value)).collect());
            }
            Action::Drain { entity: number, count } => self.drain(number, count),
            Action::Get { entity: number, field: name } => self.check_get(&entity(number), &field(name)),
            Action::Ask(number) => self.asked.extend(self.store.cold_read(entity(number))),
            Action::ReadBeside => self.read.extend(self.asked.pop_front().map(ColdRead::read)),
            Action::TakeRows => {
                if let Some(rows) = self.read.pop_front() {
                    self.store.take_rows(rows);
                }
            }
            Action::ScanFields { entity: number, prefix, after, limit, max_bytes } => {
                let prefix = if prefix { &b"f"[..] } else { b"" };
                let after = after.map(field);
                match max_bytes {
                    Some(most) => {
                        self.check_scan_within(&entity(number), prefix, after.as_deref(), limit.into(), most.into());
                    }
                    None => self.check_scan(&entity(number), prefix, after.as_deref(), limit.into()),
                }
            }
            Action::ScanEntities { after, limit } => self.check_entities(after.map(entity).as_ref(), limit.into()),
            Action::Visit(how) => self.check_visit(how),
            Action::Begin => {
                self.store.begin_flush();
            }
            Action::Take(max_bytes) => {
                let max_bytes = usize::from(max_bytes);
                if let Some(mut chunk) = self.store.next_flush_chunk(max_bytes) {
                    if max_bytes % 2 == 0 {
                        self.store.extend_flush_chunk(&mut chunk, max_bytes);
                    }
                    self.out.push_back(chunk);
                }
            }
            Action::Extend(more_bytes) => {
                if let Some(chunk) = self.out.back_mut() {
                    self.store.extend_flush_chunk(chunk, more_bytes.into());
                }
            }
            Action::Write => self.write_oldest(),
            Action::FlushAll => self.flush_all(),
            Action::Settle(count) => {
                self.store.settle(count.into());
            }
            Action::Fail(failure) => self.fail_oldest(failure),
            Action::Evict(target) => self.store.evict(target.into()),
            Action::Durable(part) => self.durable += (self.log.len() - self.durable) * usize::from(part) / 255,
            Action::CrashAfterExtending { take, writes, keep } => {
                self.take(Action::Begin);
                self.take(Action::Take(take));
                self.take(Action::Commit(writes));
                self.take(Action::Extend(take));
                self.take(Action::Write);
                self.crash(keep, 1);
            }
            Action::Crash { keep, seed } => self.crash(keep, seed),
        }
    }

    fn check_get(&mut self, entity: &EntityKey, name: &[u8]) {
        let expected = self.model.get(entity).and_then(|fields| fields.get(name));
        assert_eq!(self.store.get(entity, name), Ok(expected));
    }

    fn drain(&mut self, number: u8, count: u8) {
        let entity = entity(number);
        for _ in 0..count {
            let head = self.store.scan_fields(&entity, b"", None, 1).expect("scans");
            assert_eq!(head, self.expected_fields(&entity, b"", None, 1));
            let Some((name, _)) = head.into_iter().next() else { return };
            self.commit(vec![Write { entity: entity.clone(), field: name, value: None }]);
        }
    }

    fn finish(mut self) {
        self.check_all();
        // The first may be the end of a flush that began before the last writes.
        self.flush_all();
        self.flush_all();
        while self.store.settle(10) {}
        self.check_all();
        assert_eq!(self.store.checkpoint_lsn(), self.store.lsn());
        assert_eq!(self.store.dirty_bytes(), 0, "everything is flushed");
        self.store.evict(0);
        assert_eq!((self.store.resident_bytes(), self.store.resident_entities()), (0, 0), "everything is evicted");
        self.check_all();
        self.crash(255, 99);
        self.check_all();
    }
}

fn write(number: u8, name: u8, content: Option<u8>) -> Write {
    Write { entity: entity(number), field: field(name).into(), value: content.map(value) }
}

fn run(checkpoint: Arc<dyn Checkpoint>, steps: Vec<Action>) {
    let mut world = World::new(checkpoint);
    for step in steps {
        world.take(step);
    }
    world.finish();
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(3000) })]

    #[test]
    fn a_store_over_memory_equals_the_model(steps in proptest::collection::vec(step(), 1..80)) {
        run(Arc::new(MemoryCheckpoint::new()), steps);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(20) })]

    #[test]
    fn a_store_over_fjall_equals_the_model(steps in proptest::collection::vec(step(), 1..60)) {
        let folder = tempfile::tempdir().expect("a folder");
        run(Arc::new(FjallCheckpoint::open(folder.path(), 1 << 20).expect("opens")), steps);
    }
}

fn numbered(number: u16, content: Option<u8>) -> Write {
    Write { entity: entity(0), field: number.to_be_bytes().as_slice().into(), value: content.map(value) }
}

#[test]
fn a_field_written_again_is_not_taken_for_the_one_confirmed_before() {
    let mut world = World::new(Arc::new(MemoryCheckpoint::new()));
    world.commit((0..5000).map(|number| numbered(number, Some(1))).collect());
    world.store.begin_flush();
    world.out.extend(world.store.next_flush_chunk(usize::MAX / 2));
    world.write_oldest();
    assert!(world.store.dirty_bytes() > 0, "the chunk is too large to be settled at once");
    world.commit((0..5000).map(|number| numbered(number, Some(2))).collect());
    world.store.begin_flush();
    world.out.extend(world.store.next_flush_chunk(usize::MAX / 2));
    world.store.settle(usize::MAX);
    world.fail_oldest(Failure::NotWritten);
    world.finish();
}

#[test]
fn a_chunk_of_a_append_only_map_becomes_a_table() {
    let folder = tempfile::tempdir().expect("a folder");
    let checkpoint = Arc::new(FjallCheckpoint::open(folder.path(), 1 << 20).expect("opens"));
    let mut world = World::new(checkpoint);
    // In no order, some written twice and some deleted, and more than a memtable is used for.
    let name = |number: u32| number.wrapping_mul(0x9E37_79B1).to_be_bytes();
    let write = |number: u32, content: Option<u8>| Write {
        entity: entity(2),
        field: name(number).as_slice().into(),
        value: content.map(|content| Value::new(ValueKind::Bytes, &[content; 100])),
    };
    world.commit((0..30_000).map(|number| write(number, Some(1))).collect());
    world.commit((0..9_000).map(|number| write(number * 3, (number % 2 == 0).then_some(2))).collect());
    world.store.begin_flush();
    let chunk = world.store.next_flush_chunk(64 << 20).expect("there is something");
    assert!(chunk.size_bytes() > 2 << 20);
    world.out.push_back(chunk);
    world.write_oldest();
    while world.store.settle(1000) {}
    world.store.evict(0);
    assert_eq!(world.store.resident_bytes(), 0);
    let expected = world.expected_fields(&entity(2), b"", None, usize::MAX);
    assert_eq!(world.store.scan_fields(&entity(2), b"", None, usize::MAX), Ok(expected));
}

#[test]
fn a_field_put_where_a_queue_was_drained_is_found_again() {
    let mut world = World::new(Arc::new(MemoryCheckpoint::new()));
    world.commit((0..1000).map(|number| numbered(number, Some(1))).collect());
    world.flush_all();
    world.store.settle(usize::MAX);
    world.store.evict(0);
    assert_eq!(world.store.resident_entities(), 0);
    // They are partly on disk now; draining them leaves a hole at the head.
    world.drain(0, 200);
    for step in 0..20u16 {
        // Into the hole, onto disk, out of memory, while other fields keep the entity dirty.
        world.commit(vec![numbered(step * 10, Some(2))]);
        world.flush_all();
        world.store.settle(usize::MAX);
        world.commit(vec![numbered(2000 + step, Some(3))]);
        world.check_scan(&entity(0), b"", None, 2000);
        for number in 300..330 {
            let name = u16::to_be_bytes(number);
            assert_eq!(world.store.get(&entity(0), &name), Ok(Some(&value(1))));
        }
        let before = world.store.resident_bytes();
        world.store.evict(0);
        assert!(world.store.resident_bytes() < before, "clean fields of a dirty entity can go");
        world.check_scan(&entity(0), b"", None, 2000);
    }
    world.finish();
}

/// What is read beside the shard comes in late: the entity was deleted, and that was flushed and forgotten.
#[test]
fn rows_that_are_older_than_what_memory_has_forgotten_are_not_taken() {
    let mut world = World::new(Arc::new(MemoryCheckpoint::new()));
    world.commit(vec![write(0, 3, Some(1)), write(0, 4, Some(1)), write(1, 3, Some(1))]);
    let flush_and_forget = |world: &mut World| {
        world.flush_all();
        world.store.settle(usize::MAX);
        world.store.evict(0);
    };
    flush_and_forget(&mut world);
    let read = |world: &World| world.store.cold_read(entity(0)).expect("it is cold").read();
    let rows = read(&world);
    world.commit(vec![write(0, 3, None), write(0, 4, Some(2))]);
    flush_and_forget(&mut world);
    assert!(!world.store.take_rows(rows), "they are too old");
    let rows = read(&world);
    world.commit(vec![write(0, 4, Some(3))]);
    assert!(world.store.take_rows(rows), "memory knows better where they are too old");
    assert!(!world.store.is_cold(&entity(0)), "it is in memory now");
    let rows = world.store.cold_read(entity(1)).expect("it is cold").read();
    world.crash(255, 7);
    assert!(!world.store.take_rows(rows), "they are of an earlier opening");
    world.finish();
}

#[test]
fn a_scan_bounded_in_bytes_goes_on_behind_what_was_deleted() {
    let mut world = World::new(Arc::new(MemoryCheckpoint::new()));
    world.commit((0..1000).map(|number| numbered(number, Some(39))).collect());
    world.flush_all();
    world.store.settle(usize::MAX);
    world.store.evict(0);
    // On disk lie more bytes of deleted fields than the scan may gather, and behind them live ones.
    world.commit((0..900).map(|number| numbered(number, None)).collect());
    world.check_scan_within(&entity(0), b"", None, 2000, 10_000);
    world.check_scan(&entity(0), b"", None, 2000);
    world.finish();
}
