//! Reading an entity's rows beside its shard: whoever waits for the disk is not the core.
//!
//! Three steps. The shard asks what would have to be read ([`Store::cold_read`]). Any thread reads it
//! ([`ColdRead::read`]). The shard takes the rows in ([`Store::take_rows`]), as if it had read them itself at that moment.
//!
//! The entity may be written, flushed and evicted meanwhile. Rows that could be older than what memory has forgotten are
//! not taken: `docs/internals/store.md` says why the others are right.

use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use millrace_base::{EntityKey, ShardId, Value};

use crate::fields::Fields;
use crate::row::{prefix_end, row_key};
use crate::scan::FieldRow;
use crate::store::{Residency, damaged_row, upper};
use crate::{Checkpoint, Store, StoreError};

/// An entity with at most so many fields is loaded whole on first touch. One scan of neighbouring rows is then cheaper
/// than point reads, and absent fields are known to be absent.
const LOAD_FIELDS: usize = 128;

/// Bytes of rows up to which an entity is loaded whole, for the same reason.
const LOAD_BYTES: usize = 64 << 10;

/// What the checkpoint has of an entity.
pub(crate) enum Found {
    /// All its rows.
    Few(Vec<FieldRow>),
    /// More than are loaded at once.
    Many,
}

impl Found {
    /// Reads the rows that begin with this.
    pub(crate) fn read(checkpoint: &dyn Checkpoint, prefix: &[u8]) -> Result<Self, StoreError> {
        let end = prefix_end(prefix);
        let mut rows: Vec<FieldRow> = Vec::new();
        let (mut bytes, mut is_small, mut is_damaged) = (0, true, false);
        checkpoint.scan(Bound::Included(prefix), upper(end.as_deref()), &mut |row, encoded| {
            // The bounds are checked only if there is another row. So a single large value is not read twice.
            if rows.len() >= LOAD_FIELDS || bytes >= LOAD_BYTES {
                is_small = false;
                return ControlFlow::Break(());
            }
            let name = row.get(prefix.len()..).unwrap_or_default();
            bytes += name.len() + encoded.len();
            match Value::from_encoded(encoded) {
                Some(value) => rows.push((name.into(), value)),
                None => is_damaged = true,
            }
            ControlFlow::Continue(())
        })?;
        match (is_damaged, is_small) {
            (true, _) => Err(damaged_row(prefix)),
            (false, true) => Ok(Self::Few(rows)),
            (false, false) => Ok(Self::Many),
        }
    }
}

/// A read to be made by any thread.
pub struct ColdRead {
    checkpoint: Arc<dyn Checkpoint>,
    shard: ShardId,
    entity: EntityKey,
    moment: Moment,
}

/// Of which store this is, and what it had forgotten when the read was asked for.
#[derive(Clone)]
struct Moment {
    store: Arc<()>,
    confirmed_chunks: u64,
}

/// What a [`ColdRead`] has read.
pub struct ColdRows {
    shard: ShardId,
    entity: EntityKey,
    moment: Moment,
    found: Result<Found, StoreError>,
}

impl ColdRead {
    /// Whose rows they are.
    #[must_use]
    pub fn of(&self) -> (ShardId, &EntityKey) {
        (self.shard, &self.entity)
    }

    /// Waits for the disk.
    #[must_use]
    pub fn read(self) -> ColdRows {
        let found = Found::read(&*self.checkpoint, &row_key(self.shard, self.entity.as_bytes(), b""));
        ColdRows { shard: self.shard, entity: self.entity, moment: self.moment, found }
    }

    /// What to bring back where reading ends without a result.
    #[must_use]
    pub fn without_result(&self) -> ColdRows {
        let found = Err(StoreError::Checkpoint("reading ended without a result".to_owned()));
        ColdRows { shard: self.shard, entity: self.entity.clone(), moment: self.moment.clone(), found }
    }
}

impl ColdRows {
    /// Whose rows they are.
    #[must_use]
    pub fn of(&self) -> (ShardId, &EntityKey) {
        (self.shard, &self.entity)
    }
}

impl Store {
    /// Whether any entity can be cold: not while the shard has no row.
    #[must_use]
    pub fn may_be_cold(&self) -> bool {
        !self.checkpoint_empty
    }

    /// Whether a read of `entity` would wait for the disk for its rows. Not if it is so large that its fields are read one
    /// by one.
    #[must_use]
    pub fn is_cold(&self, entity: &EntityKey) -> bool {
        let is_unknown = |index| self.entities[index].residency == Residency::Unknown;
        self.may_be_cold()
            && !self.is_append_only(entity.as_bytes())
            && self.find(entity.as_bytes()).is_none_or(is_unknown)
    }

    /// What has to be read before memory can answer for `entity`, if it is cold.
    #[must_use]
    pub fn cold_read(&self, entity: EntityKey) -> Option<ColdRead> {
        self.is_cold(&entity).then(|| ColdRead {
            checkpoint: Arc::clone(&self.checkpoint),
            shard: self.shard,
            entity,
            moment: Moment { store: Arc::clone(&self.identity), confirmed_chunks: self.confirmed_chunks },
        })
    }

    /// Takes in what was read beside the shard. Says whether it did. If not, the next read goes to the checkpoint: the
    /// rows may be older than what memory has forgotten since, they are of an earlier opening, or reading failed.
    pub fn take_rows(&mut self, rows: ColdRows) -> bool {
        let ColdRows { entity, moment, found, .. } = rows;
        if !Arc::ptr_eq(&moment.store, &self.identity) || moment.confirmed_chunks != self.confirmed_chunks {
            return false;
        }
        // The read that follows tells who asked of a failure.
        let (Ok(found), Some(index)) = (found, self.touch(entity.as_bytes())) else { return false };
        if self.entities[index].residency == Residency::Unknown {
            self.fill_in(index, found);
        }
        true
    }

    /// Reads an entity's rows below what memory already holds of it: all of them if they are few.
    pub(crate) fn load(&mut self, index: u32) -> Result<(), StoreError> {
        let entity = &mut self.entities[index];
        let prefix = row_key(self.shard, &entity.key, b"");
        if let Fields::AppendOnlyMap(_) = entity.fields {
            let mut residency = Residency::Complete;
            let end = prefix_end(&prefix);
            self.checkpoint.scan(Bound::Included(&prefix), upper(end.as_deref()), &mut |_, _| {
                residency = Residency::Partial;
                ControlFlow::Break(())
            })?;
            entity.residency = residency;
            return Ok(());
        }
        let found = Found::read(&*self.checkpoint, &prefix)?;
        self.fill_in(index, found);
        Ok(())
    }

    fn fill_in(&mut self, index: u32, found: Found) {
        let entity = &mut self.entities[index];
        match found {
            Found::Few(rows) => {
                entity.residency = Residency::Complete;
                for (name, value) in rows {
                    entity.fields.add_clean(&name, value, &mut self.sizes);
                }
            }
            Found::Many => {
                entity.residency = Residency::Partial;
                entity.fields.become_many(&mut self.sizes);
            }
        }
    }
}
