//! Looking at all bodies, some at a time: whether they are what was written, and whether anything still refers to them.

use std::ops::Bound;

use crate::BodyName;
use crate::bodies::Bodies;
use crate::error::BlobError;
use crate::format::BLOCK_BYTES;

/// Where a look at all bodies goes on: behind this one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cursor(Option<BodyName>);

/// A body and for whom it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owned {
    /// The body.
    pub name: BodyName,
    /// As its writer gave it.
    pub owner: Vec<u8>,
    /// Its bytes.
    pub length: u64,
}

/// A damaged body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rot {
    /// The body.
    pub name: BodyName,
    /// For whom it was written, if that can still be read.
    pub owner: Option<Vec<u8>>,
    /// What is damaged.
    pub what: BlobError,
}

impl Bodies {
    /// The next bodies behind a cursor, at most `limit`, without those whose writers have not ended. The cursor for
    /// those behind; `None` at the end.
    fn names(&self, cursor: Cursor, limit: usize) -> (Vec<BodyName>, Option<Cursor>) {
        let state = self.shared.state();
        let from = cursor.0.map_or(Bound::Unbounded, Bound::Excluded);
        let names: Vec<BodyName> =
            state.bodies.range((from, Bound::Unbounded)).map(|(name, _)| *name).take(limit).collect();
        let next = names.last().filter(|_| names.len() == limit).map(|last| Cursor(Some(*last)));
        let settled = names.into_iter().filter(|name| !state.unsettled.contains(name)).collect();
        (settled, next)
    }

    /// Bodies with their owners, so that the caller can ask which are still referred to, and free the others. None of
    /// those whose writers have not ended. A damaged one is left out: [`Bodies::scrub`] tells of it.
    pub fn owners(&self, cursor: Cursor, limit: usize) -> (Vec<Owned>, Option<Cursor>) {
        let (names, next) = self.names(cursor, limit);
        let owned = |name: BodyName| {
            let reader = self.read(name).ok()?;
            Some(Owned { name, owner: reader.owner().ok()?, length: reader.length() })
        };
        (names.into_iter().filter_map(owned).collect(), next)
    }

    /// Reads bodies behind a cursor, about so many bytes, and tells which are damaged.
    pub fn scrub(&self, cursor: Cursor, max_bytes: u64) -> (Vec<Rot>, Option<Cursor>) {
        const NAMES: usize = 256;
        let (mut found, mut bytes, mut last) = (Vec::new(), 0, cursor);
        let (names, next) = self.names(cursor, NAMES);
        for name in names {
            if bytes > max_bytes {
                return (found, Some(last));
            }
            last = Cursor(Some(name));
            match self.check(name) {
                Ok(length) => bytes += length,
                Err(BlobError::Gone(_)) => {}
                Err(what) => found.push(self.rot_of(name, what)),
            }
        }
        (found, next)
    }

    fn rot_of(&self, name: BodyName, what: BlobError) -> Rot {
        let owner = self.reader(name).ok().and_then(|reader| reader.owner().ok());
        Rot { name, owner, what }
    }

    /// The bodies that are known to be damaged: they were found so at the start, by a look at all, or by somebody who has read
    /// them. Each is read again.
    pub fn damaged(&self) -> Vec<Rot> {
        let known = self.shared.state().damaged.clone();
        let suspects: Vec<BodyName> = known.into_iter().chain(self.shared.suspects().clone()).collect();
        let mut found = Vec::new();
        for name in suspects {
            match self.check(name) {
                // It was got anew, or has gone.
                Ok(_) | Err(BlobError::Gone(_)) => drop(self.shared.suspects().remove(&name)),
                Err(what) => found.push(self.rot_of(name, what)),
            }
        }
        found.sort_by_key(|rot| rot.name);
        found.dedup_by_key(|rot| rot.name);
        found
    }

    /// Reads all of a body, and gives its length.
    fn check(&self, name: BodyName) -> Result<u64, BlobError> {
        let reader = self.read(name)?;
        reader.check_end()?;
        let mut block = vec![0; BLOCK_BYTES];
        for at in (0..reader.length()).step_by(BLOCK_BYTES) {
            let now = (reader.length() - at).min(BLOCK_BYTES as u64) as usize;
            reader.read_at(at, &mut block[..now])?;
        }
        reader.owner()?;
        Ok(reader.length())
    }
}
