//! How a version of an object is kept: the fields of the object's entity, and the row in them.
//!
//! The current version is the field `cur`, so that a read takes one look. Noncurrent ones are fields in the order in
//! which lists show them, the newest first. Inline content is a field of its own beside the row: a list does not read
//! it. A row is one byte of version and postcard: fields are only ever added behind a new version byte.

use millrace_api::objects::{
    AccessList, Checksum, Content, ListedObject, ListedVersion, ObjectInfo, Retention, Tag, VersionId,
};
use millrace_base::{Error, ErrorCode};
use serde::{Deserialize, Serialize};

/// The encoding of rows.
const ENCODING: u8 = 1;

/// The row of the current version.
pub const CURRENT: &[u8] = b"cur";

/// The order of the noncurrent version `null`, while there is one: it is the only version whose id does not say where
/// it lies.
pub const NULL_ORDER: &[u8] = b"null";

/// What rows of noncurrent versions begin with.
pub const NONCURRENT: &[u8] = b"v";

/// Behind the field of a row: the field of its inline content.
const INLINE: &[u8] = b":b";

/// Bytes of the field of a noncurrent version's row.
const NONCURRENT_BYTES: usize = NONCURRENT.len() + 8;

/// Where a version lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// It is the current one.
    Current,
    /// A newer one is; this is its order.
    Noncurrent(u64),
}

impl Place {
    /// The field of the row.
    #[must_use]
    pub fn row(self) -> Vec<u8> {
        match self {
            Self::Current => CURRENT.to_vec(),
            // Greater orders first.
            Self::Noncurrent(order) => [NONCURRENT, &(!order).to_be_bytes()].concat(),
        }
    }

    /// The field of the inline content.
    #[must_use]
    pub fn inline(self) -> Vec<u8> {
        [&self.row(), INLINE].concat()
    }

    /// The place of a noncurrent version's row; `None`: the field is another one.
    #[must_use]
    pub fn of_row(field: &[u8]) -> Option<Self> {
        let order = field.strip_prefix(NONCURRENT).filter(|_| field.len() == NONCURRENT_BYTES)?;
        Some(Self::Noncurrent(!u64::from_be_bytes(order.try_into().ok()?)))
    }
}

/// A version of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredVersion {
    /// Greater than that of every older version of the object.
    pub order: u64,
    /// Random bits of its id; `None`: it is the version `null`.
    pub random: Option<u64>,
    /// It says that the object is gone, and has no content.
    pub is_delete_marker: bool,
    /// The content's bytes.
    pub size_bytes: u64,
    /// Without quotes.
    pub etag: String,
    /// Unix milliseconds.
    pub modified_ms: u64,
    /// Who may what, and who owns it.
    pub access: AccessList,
    /// See [`ObjectInfo::headers`].
    pub headers: Vec<(String, String)>,
    /// See [`ObjectInfo::metadata`].
    pub metadata: Vec<(String, String)>,
    /// Tags.
    pub tags: Vec<Tag>,
    /// Its checksum.
    pub checksum: Option<Checksum>,
    /// Until when it cannot be deleted.
    pub retention: Option<Retention>,
    /// Whether it is held.
    pub legal_hold: Option<bool>,
    /// As the client gave it; empty: `STANDARD`.
    pub storage_class: String,
    /// Where its content lies; `None`: it is a delete marker.
    pub content: Option<Content>,
}

impl StoredVersion {
    /// As it is kept.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        postcard::to_extend(self, vec![ENCODING]).expect("a vector takes whatever it is given")
    }

    /// Reads a row.
    ///
    /// # Errors
    /// `internal`: only this crate writes rows.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Error> {
        let read = match bytes.split_first() {
            Some((&ENCODING, rest)) => postcard::from_bytes(rest).ok(),
            _ => None,
        };
        read.ok_or_else(|| Error::new(ErrorCode::Internal, "the row of an object's version cannot be read"))
    }

    /// Its id.
    #[must_use]
    pub fn id(&self) -> VersionId {
        match self.random {
            None => VersionId(VersionId::NULL.to_owned()),
            Some(random) => VersionId(id_of(self.order, random)),
        }
    }

    /// Whether it is the version `null`.
    #[must_use]
    pub fn is_null(&self) -> bool {
        self.random.is_none()
    }

    /// How many parts it was made of.
    #[must_use]
    pub fn part_count(&self) -> Option<u16> {
        match &self.content {
            // There are at most 10,000.
            Some(Content::Parts { parts, .. }) => u16::try_from(parts.len()).ok(),
            _ => None,
        }
    }

    /// As a read shows it.
    #[must_use]
    pub fn info(&self, shows_version: bool) -> ObjectInfo {
        ObjectInfo {
            size_bytes: self.size_bytes,
            etag: self.etag.clone(),
            modified_ms: self.modified_ms,
            version: shows_version.then(|| self.id().0),
            is_delete_marker: self.is_delete_marker,
            owner: self.access.owner.clone(),
            headers: self.headers.clone(),
            metadata: self.metadata.clone(),
            tags: self.tags.clone(),
            checksum: self.checksum.clone(),
            part_count: self.part_count(),
            retention: self.retention,
            legal_hold: self.legal_hold,
            storage_class: self.shown_storage_class(),
            ..ObjectInfo::default()
        }
    }

    /// As a list of current objects shows it.
    #[must_use]
    pub fn listed(&self, key: &str) -> ListedObject {
        ListedObject {
            key: key.to_owned(),
            size_bytes: self.size_bytes,
            etag: self.etag.clone(),
            modified_ms: self.modified_ms,
            owner: self.access.owner.clone(),
            storage_class: self.shown_storage_class(),
            checksum: self.checksum.as_ref().map(|checksum| (checksum.algorithm, checksum.kind)),
        }
    }

    /// As a list of versions shows it.
    #[must_use]
    pub fn listed_version(&self, key: &str, is_latest: bool) -> ListedVersion {
        let object = self.listed(key);
        ListedVersion { object, version: self.id().0, is_latest, is_delete_marker: self.is_delete_marker }
    }

    fn shown_storage_class(&self) -> String {
        if self.storage_class.is_empty() { "STANDARD".to_owned() } else { self.storage_class.clone() }
    }
}

/// Digits of ids, in the order of their values: ids of greater orders are greater.
const DIGITS: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

/// Digits of an id: 128 bits, five each.
const ID_DIGITS: u32 = 26;

fn id_of(order: u64, random: u64) -> String {
    let bits = u128::from(order) << 64 | u128::from(random);
    let digit = |place: u32| char::from(DIGITS[usize::try_from(bits >> (place * 5) & 31).unwrap_or(0)]);
    (0..ID_DIGITS).rev().map(digit).collect()
}

/// The order and random bits that an id says; `None`: no version has this id.
#[must_use]
pub fn parse_id(id: &str) -> Option<(u64, u64)> {
    if id.len() != ID_DIGITS as usize {
        return None;
    }
    let mut bits = 0_u128;
    for byte in id.bytes() {
        let digit = DIGITS.iter().position(|digit| *digit == byte)?;
        // The first digit has three bits: more would be lost.
        bits = bits.checked_mul(32)? | digit as u128;
    }
    let order = u64::try_from(bits >> 64).ok()?;
    Some((order, u64::try_from(bits & u128::from(u64::MAX)).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_say_where_a_version_lies() {
        let mut last = String::new();
        for (order, random) in [(0, 0), (0, 1), (1, 0), (1_795_516_215_000 << 16, u64::MAX), (u64::MAX, u64::MAX)] {
            let id = id_of(order, random);
            assert_eq!(parse_id(&id), Some((order, random)), "{id}");
            assert!(id.len() == 26 && id > last, "{id} after {last}");
            last = id;
        }
        for id in ["", "null", "0", &"z".repeat(26), &"0".repeat(27), "00000000000000000000000000 ", &"ü".repeat(13)] {
            assert_eq!(parse_id(id), None, "{id}");
        }
    }

    #[test]
    fn newer_versions_come_first() {
        let fields: Vec<Vec<u8>> = [9, 8, 256, 1].map(|order| Place::Noncurrent(order).row()).into();
        let mut sorted = fields.clone();
        sorted.sort();
        assert_eq!(sorted, [&fields[2], &fields[0], &fields[1], &fields[3]].map(Clone::clone));
        for order in [0, 9, u64::MAX] {
            let place = Place::Noncurrent(order);
            assert_eq!(Place::of_row(&place.row()), Some(place));
            assert_eq!(Place::of_row(&place.inline()), None);
        }
        assert_eq!(Place::of_row(CURRENT), None);
        assert_eq!(Place::of_row(b"v"), None);
    }

    #[test]
    fn rows_come_back() {
        let row =
            StoredVersion { order: 5, random: Some(7), content: Some(Content::Body(3)), ..StoredVersion::default() };
        assert_eq!(StoredVersion::from_bytes(&row.to_bytes()), Ok(row));
        for bytes in [&b""[..], b"\x02", b"\x01\xff"] {
            assert!(StoredVersion::from_bytes(bytes).is_err());
        }
    }
}
