//! One shard's state: finding, reading, writing and replaying.

use std::collections::VecDeque;
use std::hash::Hasher;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use foldhash::SharedSeed;
use foldhash::quality::FoldHasher;
use hashbrown::HashTable;
use millrace_base::{EntityKey, Lsn, ShardId, UnixMillis, Value};
use millrace_format::{EntryRef, Write, WriteRef};

use crate::append_only_map::{AppendOnlyMap, Held};
use crate::arena::Arena;
use crate::dirty::DirtyIndex;
use crate::fields::{FieldName, Fields, Lookup, Sizes};
use crate::flush::{Flush, Taken};
use crate::row::{SHARD_BYTES, decode_time, prefix_end, row_key, time_row};
use crate::snapshot::refuse_resetting;
use crate::{Checkpoint, StoreError};

/// What memory knows of the fields that an entity has in the checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Residency {
    /// Nothing: the entity was written without being read.
    Unknown,
    /// Everything: a field not in memory is absent.
    Complete,
    /// It is large: fields not in memory are read one by one. Its fields are maps.
    Partial,
}

/// An entity in memory.
pub(crate) struct Entity {
    pub(crate) key: Box<[u8]>,
    /// The LSN of the last write to it. Zero if the checkpoint holds all of it.
    pub(crate) last_write: Lsn,
    pub(crate) fields: Fields,
    pub(crate) residency: Residency,
    /// Touched since the eviction clock's hand last passed.
    pub(crate) referenced: bool,
}

/// Bytes that an entity takes beside its fields: itself, its key, its slot in the hash table (9 bytes at a load between
/// 7/16 and 7/8).
pub(crate) fn entity_bytes(key: &[u8]) -> usize {
    const INDEX_BYTES: usize = 16;
    std::mem::size_of::<Entity>() + INDEX_BYTES + key.len()
}

/// Bytes that being dirty adds: 20 bytes in the ordered index, whose nodes are two thirds full.
pub(crate) const DIRTY_INDEX_BYTES: usize = 32;

/// Where a key is, with a part of its hash. So neither growth nor most misses touch the entity.
#[derive(Clone, Copy)]
pub(crate) struct Located {
    hash: u32,
    pub(crate) index: u32,
}

impl Located {
    /// The table's hash, made from the stored half: the table reads its top and its low bits.
    fn table_hash(hash: u32) -> u64 {
        u64::from(hash) << 32 | u64::from(hash)
    }
}

/// One shard's state. It is single-threaded, and pure except for the checkpoint that it gets.
pub struct Store {
    pub(crate) shard: ShardId,
    pub(crate) checkpoint: Arc<dyn Checkpoint>,
    hash_seed: u64,
    shared_seed: SharedSeed,
    pub(crate) lsn: Lsn,
    /// The time of the last entry that had one.
    pub(crate) time: UnixMillis,
    pub(crate) checkpoint_lsn: Lsn,
    /// No row of this shard can be in the checkpoint, so whatever memory lacks is absent.
    pub(crate) checkpoint_empty: bool,
    pub(crate) entities: Arena<Entity>,
    located: HashTable<Located>,
    /// Entities whose `last_write` is not zero, in the order of their keys.
    pub(crate) dirty: DirtyIndex,
    pub(crate) sizes: Sizes,
    pub(crate) flush: Option<Flush>,
    /// Confirmed chunks whose entities are still to be made clean.
    pub(crate) written: VecDeque<Taken>,
    pub(crate) next_chunk: u64,
    /// Chunks after whose confirmation memory may have forgotten what they hold.
    pub(crate) confirmed_chunks: u64,
    /// Tells this opening from others.
    pub(crate) identity: Arc<()>,
    pub(crate) clock_hand: u32,
    /// `replay` keeps it between entries only to reuse its memory.
    found: Vec<Option<u32>>,
    /// The encoded key of the entity that is kept as an append-only map.
    append_only_key: Option<Box<[u8]>>,
    /// Where the append-only map is, if it is in memory. Every request with an idempotency key looks for it.
    append_only_map: Option<u32>,
    /// The value last read of the append-only map, which holds no values that it could lend.
    read: Option<Value>,
}

impl Store {
    /// The state of `shard` as the checkpoint holds it. Next, replay the log's entries after [`Store::checkpoint_lsn`].
    /// `hash_seed` should be secret: it keeps chosen keys from colliding. Nothing observable depends on it.
    ///
    /// # Errors
    /// [`StoreError`] if the checkpoint cannot be read, or if an import into the shard did not end.
    pub fn open(shard: ShardId, checkpoint: Arc<dyn Checkpoint>, hash_seed: u64) -> Result<Store, StoreError> {
        refuse_resetting(&*checkpoint, shard)?;
        Self::open_any(shard, checkpoint, hash_seed)
    }

    pub(crate) fn open_any(
        shard: ShardId,
        checkpoint: Arc<dyn Checkpoint>,
        hash_seed: u64,
    ) -> Result<Store, StoreError> {
        let lsn = checkpoint.lsn(shard)?;
        let prefix = shard.0.to_be_bytes();
        let end = prefix_end(&prefix);
        let mut checkpoint_empty = true;
        let time_row = time_row(shard);
        let time = checkpoint.get(&time_row)?.map_or(Ok(UnixMillis(0)), |value| decode_time(&value))?;
        checkpoint.scan(Bound::Included(&prefix), upper(end.as_deref()), &mut |row, _| {
            checkpoint_empty = row == time_row;
            if checkpoint_empty { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        Ok(Store {
            shard,
            checkpoint,
            hash_seed,
            shared_seed: SharedSeed::from_u64(hash_seed),
            lsn,
            time,
            checkpoint_lsn: lsn,
            checkpoint_empty,
            entities: Arena::new(),
            located: HashTable::new(),
            dirty: DirtyIndex::default(),
            sizes: Sizes::default(),
            flush: None,
            written: VecDeque::new(),
            next_chunk: 0,
            confirmed_chunks: 0,
            identity: Arc::default(),
            clock_hand: 0,
            found: Vec::new(),
            append_only_key: None,
            append_only_map: None,
            read: None,
        })
    }

    /// Keeps `entity` as an append-only map: it has very many fields, each written about once and deleted about in the
    /// order of writes. What is observed and what the checkpoint holds is the same. Only for a store without rows in
    /// memory.
    #[must_use]
    pub fn with_append_only(mut self, entity: &EntityKey) -> Store {
        assert_eq!(self.entities.len(), 0, "rows lie in memory in one form or the other");
        self.append_only_key = Some(entity.as_bytes().into());
        self
    }

    pub(crate) fn is_append_only(&self, key: &[u8]) -> bool {
        self.append_only_key.as_deref() == Some(key)
    }

    /// The shard whose state this is.
    #[must_use]
    pub fn shard(&self) -> ShardId {
        self.shard
    }

    /// The LSN of the last applied entry.
    #[must_use]
    pub fn lsn(&self) -> Lsn {
        self.lsn
    }

    /// The time of the last applied entry, or a later one: no entry of the shard had a later time than this. Zero if there
    /// was no entry with a time.
    #[must_use]
    pub fn time(&self) -> UnixMillis {
        self.time
    }

    /// An entry of this time is applied.
    pub fn note_time(&mut self, time: UnixMillis) {
        self.time = self.time.max(time);
    }

    /// The LSN up to which the checkpoint holds everything. The log is needed from the next LSN on.
    #[must_use]
    pub fn checkpoint_lsn(&self) -> Lsn {
        self.checkpoint_lsn
    }

    /// The LSN of the last write to `entity`. A reply that read it must wait for this LSN. [`Lsn::ZERO`] if the
    /// checkpoint holds all of it, because only durable writes reach the checkpoint.
    #[must_use]
    pub fn entity_lsn(&self, entity: &EntityKey) -> Lsn {
        self.find(entity.as_bytes()).map_or(Lsn::ZERO, |index| self.entities[index].last_write)
    }

    /// Entities with writes that no checkpoint holds yet.
    #[must_use]
    pub fn dirty_entities(&self) -> usize {
        self.dirty.len()
    }

    /// Entities in memory.
    #[must_use]
    pub fn resident_entities(&self) -> usize {
        self.entities.len()
    }

    /// Bytes of memory held for entities and their fields.
    #[must_use]
    pub fn resident_bytes(&self) -> usize {
        self.sizes.resident
    }

    /// The part of [`Store::resident_bytes`] that cannot be evicted before it is flushed.
    #[must_use]
    pub fn dirty_bytes(&self) -> usize {
        self.sizes.dirty
    }

    /// A field's value.
    ///
    /// # Errors
    /// [`StoreError`] if the checkpoint had to be read and could not be.
    pub fn get(&mut self, entity: &EntityKey, field: &[u8]) -> Result<Option<&Value>, StoreError> {
        let Some(index) = self.touch(entity.as_bytes()) else { return Ok(None) };
        if matches!(self.entities[index].fields, Fields::AppendOnlyMap(_)) {
            self.read = self.read_append_only_map(index, field)?;
            return Ok(self.read.as_ref());
        }
        if matches!(self.entities[index].fields.lookup(field), Lookup::Missing) {
            if self.entities[index].residency == Residency::Unknown {
                self.load(index)?;
            }
            let missing = matches!(self.entities[index].fields.lookup(field), Lookup::Missing);
            if missing && self.entities[index].residency == Residency::Partial {
                self.load_field(index, field)?;
            }
        }
        match self.entities[index].fields.lookup(field) {
            Lookup::Live(value) => Ok(Some(value)),
            Lookup::Dead | Lookup::Missing => Ok(None),
        }
    }

    /// Applies the writes of one committed transaction.
    ///
    /// # Errors
    /// None at present: writing needs no read.
    ///
    /// # Panics
    /// If `lsn` is not the next one. Then the shard that numbers entries is broken.
    pub fn apply(&mut self, lsn: Lsn, writes: impl IntoIterator<Item = Write>) -> Result<(), StoreError> {
        assert_eq!(lsn, self.lsn.next(), "entries are applied in order");
        self.lsn = lsn;
        for Write { entity, field, value } in writes {
            let index = self.find(entity.as_bytes());
            self.write(index, entity.as_bytes(), field, value);
        }
        Ok(())
    }

    /// Applies an entry read from the log. Ignores entries up to [`Store::lsn`], so a log may be replayed from an
    /// earlier entry than necessary.
    ///
    /// # Errors
    /// [`StoreError`] if the entry is of another shard, leaves a gap, or holds a key or value that this version does
    /// not know. Nothing of it is applied then.
    pub fn replay(&mut self, entry: &EntryRef<'_>) -> Result<(), StoreError> {
        if entry.shard != self.shard {
            return Err(StoreError::WrongShard { expected: self.shard, found: entry.shard });
        }
        if entry.lsn <= self.lsn {
            return Ok(());
        }
        if entry.lsn != self.lsn.next() {
            return Err(StoreError::OutOfOrder { expected: self.lsn.next(), found: entry.lsn });
        }
        let mut found = std::mem::take(&mut self.found);
        found.clear();
        for write in &entry.writes {
            found.push(self.check(write)?);
        }
        self.lsn = entry.lsn;
        self.note_time(entry.time);
        for (write, found) in entry.writes.iter().zip(&found) {
            // `check` has refused every entry with a value that would vanish here.
            let value = write.value.and_then(Value::from_encoded);
            // An earlier write of this entry may have brought the entity in.
            let index = found.or_else(|| (entry.writes.len() > 1).then(|| self.find(write.entity)).flatten());
            self.write(index, write.entity, write.field, value);
        }
        self.found = found;
        Ok(())
    }

    /// Where a logged write's entity is, if it is in memory. Refuses a key or value that this version cannot hold.
    fn check(&self, write: &WriteRef<'_>) -> Result<Option<u32>, StoreError> {
        let known_value = match write.value {
            // Only the first byte of an encoded value decides whether its kind is known.
            Some(encoded) => Value::from_encoded(encoded.get(..1).unwrap_or_default()).is_some(),
            None => true,
        };
        let found = self.find(write.entity);
        let is_key = |bytes| EntityKey::split_from(bytes).is_some_and(|(_, rest)| rest.is_empty());
        if known_value && (found.is_some() || is_key(write.entity)) {
            return Ok(found);
        }
        Err(StoreError::Corrupt("a log entry holds a key or value of no known kind".to_owned()))
    }

    /// Writes to the entity `key`, which is at `index` if it is in memory.
    fn write(&mut self, index: Option<u32>, key: &[u8], field: impl FieldName, value: Option<Value>) {
        let index = index.unwrap_or_else(|| self.insert(key));
        let entities = &self.entities;
        if entities[index].last_write == Lsn::ZERO {
            self.dirty.insert(&entities[index].key, index, |index| &entities[index].key);
            self.sizes.resident += DIRTY_INDEX_BYTES;
            self.sizes.dirty += DIRTY_INDEX_BYTES;
        }
        let entity = &mut self.entities[index];
        entity.referenced = true;
        entity.last_write = self.lsn;
        entity.fields.write(field, value, entity.residency == Residency::Complete, &mut self.sizes);
    }

    fn hash(&self, key: &[u8]) -> u32 {
        let mut hasher = FoldHasher::with_seed(self.hash_seed, &self.shared_seed);
        hasher.write(key);
        (hasher.finish() >> 32) as u32
    }

    pub(crate) fn find(&self, key: &[u8]) -> Option<u32> {
        if self.is_append_only(key) {
            return self.append_only_map;
        }
        let hash = self.hash(key);
        let is_it = |located: &Located| located.hash == hash && *self.entities[located.index].key == *key;
        self.located.find(Located::table_hash(hash), is_it).map(|located| located.index)
    }

    /// Finds an entity that is to be read, or brings it in. `None` if it is known to have no fields.
    pub(crate) fn touch(&mut self, key: &[u8]) -> Option<u32> {
        if let Some(index) = self.find(key) {
            self.entities[index].referenced = true;
            return Some(index);
        }
        // While asking costs nothing, nothing is remembered about absent entities.
        (!self.checkpoint_empty).then(|| self.insert(key))
    }

    fn insert(&mut self, key: &[u8]) -> u32 {
        let residency = if self.checkpoint_empty { Residency::Complete } else { Residency::Unknown };
        let fields = if self.is_append_only(key) {
            Fields::AppendOnlyMap(Box::new(AppendOnlyMap::new(self.hash_seed)))
        } else {
            Fields::new()
        };
        let entity = Entity { key: key.into(), last_write: Lsn::ZERO, fields, residency, referenced: true };
        let index = self.entities.insert(entity);
        if self.is_append_only(key) {
            self.append_only_map = Some(index);
        }
        let hash = self.hash(key);
        let table_hash = |located: &Located| Located::table_hash(located.hash);
        self.located.insert_unique(Located::table_hash(hash), Located { hash, index }, table_hash);
        self.sizes.resident += entity_bytes(key);
        index
    }

    /// Forgets a clean entity.
    pub(crate) fn remove(&mut self, index: u32) {
        let Some(entity) = self.entities.remove(index) else { return };
        debug_assert_eq!(entity.last_write, Lsn::ZERO, "only clean entities are forgotten");
        self.sizes.resident -= entity_bytes(&entity.key) + entity.fields.resident_bytes();
        self.append_only_map = self.append_only_map.filter(|append_only_map| *append_only_map != index);
        let hash = Located::table_hash(self.hash(&entity.key));
        if let Ok(found) = self.located.find_entry(hash, |located| located.index == index) {
            found.remove();
        }
    }

    /// A field of the append-only map. A value read from the checkpoint is not kept, because only a repeated request
    /// asks for it again.
    fn read_append_only_map(&mut self, index: u32, field: &[u8]) -> Result<Option<Value>, StoreError> {
        match self.entities[index].fields.held(field) {
            Held::Live(encoded) => return Ok(Value::from_encoded(encoded)),
            Held::Dead => return Ok(None),
            Held::Missing => {}
        }
        if self.entities[index].residency == Residency::Unknown {
            self.load(index)?;
        }
        if self.entities[index].residency == Residency::Complete {
            return Ok(None);
        }
        let row = row_key(self.shard, &self.entities[index].key, field);
        let encoded = self.checkpoint.get(&row)?;
        encoded.map(|encoded| Value::from_encoded(&encoded).ok_or_else(|| damaged_row(&row))).transpose()
    }

    fn load_field(&mut self, index: u32, field: &[u8]) -> Result<(), StoreError> {
        let entity = &mut self.entities[index];
        let row = row_key(self.shard, &entity.key, field);
        if let Some(encoded) = self.checkpoint.get(&row)? {
            let value = Value::from_encoded(&encoded).ok_or_else(|| damaged_row(&row))?;
            entity.fields.add_clean(field, value, &mut self.sizes);
        }
        Ok(())
    }
}

/// The end of a range that stops before `end`, if there is one.
pub(crate) fn upper(end: Option<&[u8]>) -> Bound<&[u8]> {
    end.map_or(Bound::Unbounded, Bound::Excluded)
}

pub(crate) fn damaged_row(row: &[u8]) -> StoreError {
    let name = row.get(SHARD_BYTES..).unwrap_or_default().escape_ascii();
    StoreError::Corrupt(format!("checkpoint row {name} holds no value of a known kind"))
}
