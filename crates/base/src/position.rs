//! Where and when: shards, log positions, wall-clock instants.

use std::fmt;

/// One partition of all entities of a node. Shards are numbered from 0. Their count is fixed when a data directory is
/// created.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardId(pub u16);

impl fmt::Display for ShardId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", self.0)
    }
}

/// A position in one shard's log. The first entry is 1, each next entry one more. [`Lsn::ZERO`] means "before the first
/// entry".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lsn(pub u64);

impl Lsn {
    /// Before the first entry.
    pub const ZERO: Lsn = Lsn(0);

    /// The position after this one.
    #[must_use]
    pub fn next(self) -> Lsn {
        Lsn(self.0 + 1)
    }
}

impl fmt::Display for Lsn {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", self.0)
    }
}

/// One attempt of a transaction that touches several shards. A transaction that starts again is another attempt.
/// Messages still on their way for the first attempt must not reach the second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TransactionId {
    /// The shard that coordinates it.
    pub coordinator: ShardId,
    /// Each start of that shard draws it at random, so that no two starts give the same ids.
    pub incarnation: u64,
    /// That shard counts it since its start.
    pub number: u64,
}

impl TransactionId {
    /// How long its bytes are.
    pub const BYTES: usize = 18;

    /// The coordinator's shard, incarnation, number, each big-endian.
    #[must_use]
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..2].copy_from_slice(&self.coordinator.0.to_be_bytes());
        bytes[2..10].copy_from_slice(&self.incarnation.to_be_bytes());
        bytes[10..].copy_from_slice(&self.number.to_be_bytes());
        bytes
    }

    /// Reads what [`TransactionId::to_bytes`] wrote; `None` for bytes of another length.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (coordinator, rest) = bytes.split_first_chunk::<2>()?;
        let (incarnation, rest) = rest.split_first_chunk::<8>()?;
        let number: [u8; 8] = rest.try_into().ok()?;
        Some(Self {
            coordinator: ShardId(u16::from_be_bytes(*coordinator)),
            incarnation: u64::from_be_bytes(*incarnation),
            number: u64::from_be_bytes(number),
        })
    }
}

/// Milliseconds since 1970-01-01T00:00:00Z. Pure layers get the time as an argument; they never read a clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnixMillis(pub u64);

impl UnixMillis {
    /// This instant moved `milliseconds` into the future, saturating.
    #[must_use]
    pub fn plus(self, milliseconds: u64) -> UnixMillis {
        UnixMillis(self.0.saturating_add(milliseconds))
    }
}

/// The shard that owns every entity with this key, of whatever app and service.
///
/// The hash is XXH3-64 (seed 0) of the key. If the key has a non-empty text between the first `{` and the next `}`,
/// only that text is hashed. This is as in the Redis Cluster specification. Data directories depend on this function:
/// it never changes.
///
/// # Panics
/// If `shard_count` is zero. A node without shards is a bug in the check of its configuration.
#[must_use]
pub fn shard_of_key(key: &[u8], shard_count: u16) -> ShardId {
    assert!(shard_count > 0, "a node has at least one shard");
    let hash = xxhash_rust::xxh3::xxh3_64(placement_part(key));
    // The remainder is below shard_count, which fits in u16.
    ShardId((hash % u64::from(shard_count)) as u16)
}

/// For each shard, the smallest number whose text is placed there.
///
/// # Panics
/// As [`shard_of_key`].
#[must_use]
pub fn shard_keys(shard_count: u16) -> Vec<Vec<u8>> {
    let mut keys = vec![Vec::new(); usize::from(shard_count)];
    let mut missing = keys.len();
    for number in 0u64.. {
        let text = number.to_string().into_bytes();
        let key: &mut Vec<u8> = &mut keys[usize::from(shard_of_key(&text, shard_count).0)];
        if key.is_empty() {
            *key = text;
            missing -= 1;
        }
        if missing == 0 {
            break;
        }
    }
    keys
}

/// Up to this size, a copy of the hashed bytes costs less than the state of a hash over parts.
const COPIED_BYTES: usize = 256;

/// Tells requests apart: XXH3-64 over the parts, each behind its length. It is stored with invocation results, so it
/// never changes. It does not protect a caller that looks for collisions with its own requests.
#[must_use]
pub fn fingerprint(parts: &[&[u8]]) -> u64 {
    let size_bytes: usize = parts.iter().map(|part| part.len() + 8).sum();
    if size_bytes <= COPIED_BYTES {
        let mut bytes = [0; COPIED_BYTES];
        let mut end = 0;
        for part in parts {
            for piece in [&(part.len() as u64).to_le_bytes()[..], part] {
                bytes[end..end + piece.len()].copy_from_slice(piece);
                end += piece.len();
            }
        }
        return xxhash_rust::xxh3::xxh3_64(&bytes[..end]);
    }
    let mut hasher = xxhash_rust::xxh3::Xxh3::new();
    for part in parts {
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
    hasher.digest()
}

fn placement_part(key: &[u8]) -> &[u8] {
    let Some(open) = key.iter().position(|byte| *byte == b'{') else {
        return key;
    };
    let tagged = &key[open + 1..];
    match tagged.iter().position(|byte| *byte == b'}') {
        Some(close) if close > 0 => &tagged[..close],
        _ => key,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placement_never_changes() {
        // Golden: a data directory written by any version must find its entities again.
        let shards: Vec<u16> = ["", "alice", "bob", "account-17", "{cart}:1"]
            .iter()
            .map(|key| shard_of_key(key.as_bytes(), 64).0)
            .collect();
        assert_eq!(shards, GOLDEN);
    }

    const GOLDEN: [u16; 5] = [2, 48, 37, 15, 29];

    #[test]
    fn fingerprints_keep_parts_apart_and_never_change() {
        assert_ne!(fingerprint(&[b"ab", b"c"]), fingerprint(&[b"a", b"bc"]));
        assert_eq!(fingerprint(&[b"add", b"1"]), GOLDEN_FINGERPRINT);
        // Small and large parts are hashed in two ways, which must give the same.
        for length in [0, COPIED_BYTES - 8, COPIED_BYTES - 7, 3 * COPIED_BYTES] {
            let part = vec![7; length];
            let whole = [&(length as u64).to_le_bytes()[..], &part].concat();
            assert_eq!(fingerprint(&[&part]), xxhash_rust::xxh3::xxh3_64(&whole));
        }
    }

    const GOLDEN_FINGERPRINT: u64 = 10_892_399_596_302_795_104;

    #[test]
    fn transaction_ids_are_stored_as_documented() {
        let id = TransactionId { coordinator: ShardId(0x0102), incarnation: 3, number: 4 };
        let bytes = *b"\x01\x02\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0\x04";
        assert_eq!(id.to_bytes(), bytes);
        assert_eq!(TransactionId::from_bytes(&bytes), Some(id));
        assert_eq!(TransactionId::from_bytes(&bytes[1..]), None);
    }

    #[test]
    fn a_tag_replaces_the_key() {
        assert_eq!(shard_of_key(b"{alice}:cart", 64), shard_of_key(b"alice", 64));
        assert_eq!(placement_part(b"x{}y"), b"x{}y");
        assert_eq!(placement_part(b"x{open"), b"x{open");
        assert_eq!(placement_part(b"x{a}{b}"), b"a");
    }
}
