//! Where and when: shards, log positions, wall-clock instants.

use std::fmt;

/// One partition of all entities of a node. Shards are numbered from 0; their count is fixed
/// when a data directory is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardId(pub u16);

impl fmt::Display for ShardId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", self.0)
    }
}

/// A position in one shard's log: the first entry is 1, each next entry one more.
/// [`Lsn::ZERO`] means "before the first entry".
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

/// Milliseconds since 1970-01-01T00:00:00Z. Pure layers are handed the time; they never read a clock.
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
/// The hash is XXH3-64 (seed 0) of the key, or of the text between the first `{` and the next
/// `}` when that is not empty, as in the Redis Cluster specification. Data directories depend on
/// this function: it never changes.
///
/// # Panics
/// When `shard_count` is zero: a node without shards is a bug in its configuration check.
#[must_use]
pub fn shard_of_key(key: &[u8], shard_count: u16) -> ShardId {
    assert!(shard_count > 0, "a node has at least one shard");
    let hash = xxhash_rust::xxh3::xxh3_64(placement_part(key));
    // The remainder is below shard_count, which fits in u16.
    ShardId((hash % u64::from(shard_count)) as u16)
}

/// Tells requests apart: XXH3-64 over the parts, each behind its length. Stored with outcomes, so
/// it never changes. Not a defence against somebody who looks for collisions with himself.
#[must_use]
pub fn fingerprint(parts: &[&[u8]]) -> u64 {
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
    }

    const GOLDEN_FINGERPRINT: u64 = 10_892_399_596_302_795_104;

    #[test]
    fn a_tag_replaces_the_key() {
        assert_eq!(shard_of_key(b"{alice}:cart", 64), shard_of_key(b"alice", 64));
        assert_eq!(placement_part(b"x{}y"), b"x{}y");
        assert_eq!(placement_part(b"x{open"), b"x{open");
        assert_eq!(placement_part(b"x{a}{b}"), b"a");
    }
}
