//! The versions of one object: how writes and deletions change them.
//!
//! Promises: versions of a bucket that keeps them are never lost by a write; the current one is the newest; content
//! that no version has any more is reported as dropped, once. The caller has authorised, and passes what the bucket
//! says. Must not know who calls a handler, nor how other entities are written.

use millrace_api::objects::{Content, Deleted, Refusal, VersionId, Versioning, WriteConditions};
use millrace_base::Error;

use crate::conditions::{self, Present};
use crate::lock;
use crate::stored::{self, NONCURRENT, NULL_ORDER, Place, StoredVersion};

/// A field's name and its content.
pub type Field = (Vec<u8>, Vec<u8>);

/// Fields of an object's entity, as the transaction sees them.
pub trait Fields {
    /// One field.
    ///
    /// # Errors
    /// Those of the host.
    fn get(&mut self, field: &[u8]) -> Result<Option<Vec<u8>>, Error>;

    /// Sets a field.
    ///
    /// # Errors
    /// Those of the host.
    fn set(&mut self, field: &[u8], content: &[u8]) -> Result<(), Error>;

    /// Deletes a field.
    ///
    /// # Errors
    /// Those of the host.
    fn delete(&mut self, field: &[u8]) -> Result<(), Error>;

    /// The first field that begins so and comes after another one, with its content.
    ///
    /// # Errors
    /// Those of the host.
    fn next(&mut self, prefix: &[u8], after: Option<&[u8]>) -> Result<Option<Field>, Error>;
}

/// What a change did beside its answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Effects {
    /// Versions with content, more or fewer.
    pub objects: i64,
    /// Their bytes.
    pub size_bytes: i64,
    /// Content that nothing refers to any more. Inline content is not in it: it went with its version.
    pub dropped: Vec<Content>,
}

/// The object of one entity.
pub struct Versions<'f> {
    fields: &'f mut dyn Fields,
    effects: Effects,
}

/// A new version as [`Versions::put`] takes it. Its order and random bits are given there.
#[derive(Debug)]
pub struct NewVersion<'a> {
    /// What it is.
    pub row: StoredVersion,
    /// Its content, if that is inline.
    pub inline: &'a [u8],
    /// What its id is made of.
    pub random: u64,
    /// Unix milliseconds.
    pub now_ms: u64,
}

fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

impl<'f> Versions<'f> {
    /// The object whose entity has these fields.
    pub fn new(fields: &'f mut dyn Fields) -> Self {
        Self { fields, effects: Effects::default() }
    }

    /// What all changes did together.
    #[must_use]
    pub fn into_effects(self) -> Effects {
        self.effects
    }

    /// The current version; a delete marker may be it.
    ///
    /// # Errors
    /// Those of the host.
    pub fn current(&mut self) -> Result<Option<StoredVersion>, Error> {
        self.row(Place::Current)
    }

    /// The row at a place.
    ///
    /// # Errors
    /// Those of the host.
    pub fn row(&mut self, place: Place) -> Result<Option<StoredVersion>, Error> {
        self.fields.get(&place.row())?.map(|bytes| StoredVersion::from_bytes(&bytes)).transpose()
    }

    /// The inline content at a place; empty where there is none.
    ///
    /// # Errors
    /// Those of the host.
    pub fn inline(&mut self, place: Place) -> Result<Vec<u8>, Error> {
        Ok(self.fields.get(&place.inline())?.unwrap_or_default())
    }

    /// Where the version of an id lies.
    ///
    /// # Errors
    /// `InvalidArgument` for a text that is no id.
    pub fn find(&mut self, id: &str) -> Result<Option<(Place, StoredVersion)>, Error> {
        let current = self.current()?;
        let place = if id == VersionId::NULL {
            if let Some(row) = current.filter(StoredVersion::is_null) {
                return Ok(Some((Place::Current, row)));
            }
            let Some(order) = self.null_order()? else { return Ok(None) };
            Place::Noncurrent(order)
        } else {
            let Some((order, random)) = stored::parse_id(id) else {
                return Err(Refusal::InvalidArgument.error("Invalid version id specified"));
            };
            if let Some(row) = current.filter(|row| (row.order, row.random) == (order, Some(random))) {
                return Ok(Some((Place::Current, row)));
            }
            Place::Noncurrent(order)
        };
        let row = self.row(place)?.filter(|row| row.id().0 == id);
        Ok(row.map(|row| (place, row)))
    }

    /// The noncurrent version behind a place, the newest first.
    ///
    /// # Errors
    /// Those of the host.
    pub fn next(&mut self, after: Place) -> Result<Option<(Place, StoredVersion)>, Error> {
        let mut after = match after {
            Place::Current => None,
            // So its inline content is passed over, too.
            Place::Noncurrent(_) => Some(after.inline()),
        };
        while let Some((field, bytes)) = self.fields.next(NONCURRENT, after.as_deref())? {
            if let Some(place) = Place::of_row(&field) {
                return Ok(Some((place, StoredVersion::from_bytes(&bytes)?)));
            }
            after = Some(field);
        }
        Ok(None)
    }

    /// Makes a version, if the conditions hold. Gives its row, with its id.
    ///
    /// # Errors
    /// What [`conditions::check_write`] refuses.
    pub fn put(
        &mut self,
        new: NewVersion<'_>,
        versioning: Versioning,
        conditions: &WriteConditions,
    ) -> Result<StoredVersion, Error> {
        let current = self.current()?;
        conditions::check_write(conditions, present(current.as_ref()))
            .map_err(|refusal| refusal.error(sentence(refusal)))?;
        self.add(new, current, versioning)
    }

    /// Deletes the object: removes it, or makes a delete marker where the bucket keeps versions.
    ///
    /// # Errors
    /// What [`conditions::check_delete`] refuses, and what a lock keeps from being removed.
    pub fn delete(
        &mut self,
        marker: NewVersion<'_>,
        versioning: Versioning,
        conditions: &WriteConditions,
    ) -> Result<Deleted, Error> {
        let current = self.current()?;
        conditions::check_delete(conditions, present(current.as_ref()))
            .map_err(|refusal| refusal.error(sentence(refusal)))?;
        if versioning == Versioning::Off {
            if let Some(row) = current {
                lock::check_delete(row.retention, row.legal_hold, false, marker.now_ms)?;
                self.remove(Place::Current, row)?;
            }
            return Ok(Deleted::default());
        }
        let row = self.add(marker, current, versioning)?;
        Ok(Deleted { version: Some(row.id().0), is_delete_marker: true })
    }

    /// Removes a version for good. One that is not there is what the caller wants.
    ///
    /// # Errors
    /// `InvalidArgument` for a text that is no id, what conditions refuse, and what a lock keeps.
    pub fn delete_version(
        &mut self,
        id: &str,
        bypass: bool,
        conditions: &WriteConditions,
        now_ms: u64,
    ) -> Result<Deleted, Error> {
        let Some((place, row)) = self.find(id)? else {
            return Ok(Deleted { version: Some(id.to_owned()), is_delete_marker: false });
        };
        conditions::check_delete(conditions, present(Some(&row)))
            .map_err(|refusal| refusal.error(sentence(refusal)))?;
        lock::check_delete(row.retention, row.legal_hold, bypass, now_ms)?;
        let is_delete_marker = row.is_delete_marker;
        self.remove(place, row)?;
        if place == Place::Current {
            self.promote()?;
        }
        Ok(Deleted { version: Some(id.to_owned()), is_delete_marker })
    }

    /// Replaces the row of a version, whose content stays.
    ///
    /// # Errors
    /// Those of the host.
    pub fn replace(&mut self, place: Place, row: &StoredVersion) -> Result<(), Error> {
        self.fields.set(&place.row(), &row.to_bytes())
    }

    /// Whether a version has the body of this number.
    ///
    /// # Errors
    /// Those of the host.
    pub fn refers_to(&mut self, number: u64) -> Result<bool, Error> {
        let has = |row: &StoredVersion| match &row.content {
            Some(Content::Body(own)) => *own == number,
            Some(Content::Parts { parts, .. }) => parts.iter().any(|(_, part)| part.number == number),
            Some(Content::Inline) | None => false,
        };
        if self.current()?.is_some_and(|row| has(&row)) {
            return Ok(true);
        }
        let mut place = Place::Current;
        while let Some((next, row)) = self.next(place)? {
            if has(&row) {
                return Ok(true);
            }
            place = next;
        }
        Ok(false)
    }

    /// Puts a new version before the current one.
    fn add(
        &mut self,
        new: NewVersion<'_>,
        current: Option<StoredVersion>,
        versioning: Versioning,
    ) -> Result<StoredVersion, Error> {
        // Room for versions of the same millisecond; the clock may also have gone back.
        const ORDERS_PER_MS_BITS: u32 = 16;
        let newest = current.as_ref().map(|row| row.order);
        let by_clock = new.now_ms << ORDERS_PER_MS_BITS;
        let order = newest.map_or(by_clock, |newest| by_clock.max(newest.saturating_add(1)));
        let random = (versioning == Versioning::Enabled).then_some(new.random);
        if random.is_none() {
            self.drop_noncurrent_null()?;
        }
        match current {
            Some(row) if random.is_none() && (row.is_null() || versioning == Versioning::Off) => {
                self.remove(Place::Current, row)?;
            }
            Some(row) => self.retire(row)?,
            None => {}
        }
        let row = StoredVersion { order, random, ..new.row };
        self.fields.set(&Place::Current.row(), &row.to_bytes())?;
        if row.content == Some(Content::Inline) {
            self.fields.set(&Place::Current.inline(), new.inline)?;
        }
        if !row.is_delete_marker {
            self.effects.objects += 1;
            self.effects.size_bytes += signed(row.size_bytes);
        }
        Ok(row)
    }

    fn null_order(&mut self) -> Result<Option<u64>, Error> {
        let bytes = self.fields.get(NULL_ORDER)?;
        Ok(bytes.and_then(|bytes| bytes.try_into().ok()).map(u64::from_be_bytes))
    }

    fn drop_noncurrent_null(&mut self) -> Result<(), Error> {
        let Some(order) = self.null_order()? else { return Ok(()) };
        let place = Place::Noncurrent(order);
        if let Some(row) = self.row(place)? {
            self.remove(place, row)?;
        }
        Ok(())
    }

    /// Makes the current version a noncurrent one.
    fn retire(&mut self, row: StoredVersion) -> Result<(), Error> {
        let place = Place::Noncurrent(row.order);
        self.copy(Place::Current, place, &row)?;
        if row.is_null() {
            self.fields.set(NULL_ORDER, &row.order.to_be_bytes())?;
        }
        Ok(())
    }

    /// Makes the newest noncurrent version the current one, if there is one.
    fn promote(&mut self) -> Result<(), Error> {
        let Some((place, row)) = self.next(Place::Current)? else { return Ok(()) };
        self.copy(place, Place::Current, &row)?;
        if row.is_null() {
            self.fields.delete(NULL_ORDER)?;
        }
        Ok(())
    }

    /// Moves a version to another place.
    fn copy(&mut self, from: Place, to: Place, row: &StoredVersion) -> Result<(), Error> {
        self.fields.set(&to.row(), &row.to_bytes())?;
        self.fields.delete(&from.row())?;
        if row.content == Some(Content::Inline) {
            let content = self.inline(from)?;
            self.fields.set(&to.inline(), &content)?;
            self.fields.delete(&from.inline())?;
        }
        Ok(())
    }

    /// Takes a version away, and leaves its place empty.
    fn remove(&mut self, place: Place, row: StoredVersion) -> Result<(), Error> {
        self.fields.delete(&place.row())?;
        if place != Place::Current && row.is_null() {
            self.fields.delete(NULL_ORDER)?;
        }
        if !row.is_delete_marker {
            self.effects.objects -= 1;
            self.effects.size_bytes -= signed(row.size_bytes);
        }
        match row.content {
            Some(Content::Inline) => self.fields.delete(&place.inline())?,
            Some(content) => self.effects.dropped.push(content),
            None => {}
        }
        Ok(())
    }
}

/// What conditions are compared with: a delete marker is nothing.
fn present(row: Option<&StoredVersion>) -> Option<Present<'_>> {
    let row = row.filter(|row| !row.is_delete_marker)?;
    Some(Present { etag: &row.etag, modified_ms: row.modified_ms, size_bytes: row.size_bytes })
}

/// What S3 says beside these codes.
fn sentence(refusal: Refusal) -> &'static str {
    match refusal {
        Refusal::NoSuchKey => "The specified key does not exist.",
        _ => "At least one of the pre-conditions you specified did not hold",
    }
}
