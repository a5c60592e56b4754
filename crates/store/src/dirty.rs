//! The dirty entities in the order of their keys.
//!
//! A tree of pointers to keys would miss the cache at every comparison. At a million entities that is most of the cost
//! of a replay. So entities are grouped by app and service, which all keys of a group share. Within a group, an entity
//! is found by the first bytes of the rest of its key, its *head*. Few entities share a head: only those are kept by
//! their whole keys. All other keys stay where the entities are, and the caller says how to get them.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Bound;

/// Bytes of a head.
const HEAD_BYTES: usize = 16;

/// Stands for a head that several entities have had. No entity has this index: see [`crate::arena`].
const SHARED: u32 = u32::MAX;

/// The first bytes after the group, padded with zeros, as a big-endian number. It has two parts because a number of 128
/// bits would be aligned to 16. If one key is smaller than another, its head is not larger.
type Head = [u64; 2];

/// Dirty entities: key to index.
#[derive(Default)]
pub(crate) struct DirtyIndex {
    /// By `app 00 service 00`. No such group is a prefix of another.
    groups: BTreeMap<Box<[u8]>, Group>,
    count: usize,
}

#[derive(Default)]
struct Group {
    /// The entity with this head, or [`SHARED`].
    by_head: BTreeMap<Head, u32>,
    /// The entities whose heads are shared, by their keys without the group.
    by_key: BTreeMap<Box<[u8]>, u32>,
}

fn head_of(rest: &[u8]) -> Head {
    let mut head = [0; HEAD_BYTES];
    let length = rest.len().min(HEAD_BYTES);
    head[..length].copy_from_slice(&rest[..length]);
    let number = u128::from_be_bytes(head);
    [(number >> 64) as u64, number as u64]
}

/// Where the group ends in `key`. Zero if `key` holds no whole group, as the start of a scan may.
fn group_end(key: &[u8]) -> usize {
    let mut nuls = key.iter().enumerate().filter(|(_, byte)| **byte == 0).map(|(at, _)| at);
    nuls.next();
    nuls.next().map_or(0, |at| at + 1)
}

impl Group {
    /// Adds an entity that is not here. `rest_of` gives the rest of another entity's key.
    fn insert<'a>(&mut self, rest: &[u8], index: u32, rest_of: impl Fn(u32) -> &'a [u8]) {
        match self.by_head.entry(head_of(rest)) {
            Entry::Vacant(free) => {
                free.insert(index);
            }
            Entry::Occupied(mut found) => {
                let other = found.insert(SHARED);
                if other != SHARED {
                    self.by_key.insert(rest_of(other).into(), other);
                }
                self.by_key.insert(rest.into(), index);
            }
        }
    }

    fn remove(&mut self, rest: &[u8]) -> bool {
        let head = head_of(rest);
        let Entry::Occupied(found) = self.by_head.entry(head) else { return false };
        if *found.get() != SHARED {
            found.remove();
            return true;
        }
        let is_removed = self.by_key.remove(rest).is_some();
        if sharing(&self.by_key, head, &[]).next().is_none() {
            found.remove();
        }
        is_removed
    }

    /// The entities whose rest is `low` or greater, in order.
    fn from<'a, F>(&'a self, low: Vec<u8>, rest_of: F) -> impl Iterator<Item = u32> + use<'a, F>
    where
        F: Fn(u32) -> &'a [u8] + 'a,
    {
        let first = head_of(&low);
        self.by_head.range(first..).flat_map(move |(head, index)| {
            let is_shared = *index == SHARED;
            // Of those with the first head, some may come before `low`.
            let is_alone = !is_shared && (*head > first || rest_of(*index) >= &low[..]);
            let low: &[u8] = if *head > first { &[] } else { &low };
            let sharing = is_shared.then(|| sharing(&self.by_key, *head, low));
            is_alone.then_some(*index).into_iter().chain(sharing.into_iter().flatten())
        })
    }
}

/// The entities kept by key that share `head` and whose rest is `low` or greater.
fn sharing<'a>(by_key: &'a BTreeMap<Box<[u8]>, u32>, head: Head, low: &[u8]) -> impl Iterator<Item = u32> + use<'a> {
    let bytes = (u128::from(head[0]) << 64 | u128::from(head[1])).to_be_bytes();
    // The least key with a head is the head without the zeros that may have padded it.
    let filled = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |at| at + 1);
    let from = low.max(&bytes[..filled]);
    let range = by_key.range::<[u8], _>((Bound::Included(from), Bound::Unbounded));
    range.take_while(move |(rest, _)| head_of(rest) == head).map(|(_, index)| *index)
}

impl DirtyIndex {
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// Adds an entity that is not here. `key_of` gives the key of one that is.
    pub(crate) fn insert<'a>(&mut self, key: &[u8], index: u32, key_of: impl Fn(u32) -> &'a [u8]) {
        let (group, rest) = key.split_at(group_end(key));
        let rest_of = |index| &key_of(index)[group.len()..];
        match self.groups.get_mut(group) {
            Some(entities) => entities.insert(rest, index, rest_of),
            None => self.groups.entry(group.into()).or_default().insert(rest, index, rest_of),
        }
        self.count += 1;
    }

    pub(crate) fn remove(&mut self, key: &[u8]) {
        let (group, rest) = key.split_at(group_end(key));
        let Some(entities) = self.groups.get_mut(group) else { return };
        self.count -= usize::from(entities.remove(rest));
        if entities.by_head.is_empty() {
            self.groups.remove(group);
        }
    }

    /// The entities whose key is `low` or greater, in order.
    pub(crate) fn from<'a, F>(&'a self, low: &[u8], key_of: F) -> impl Iterator<Item = u32> + use<'a, F>
    where
        F: Fn(u32) -> &'a [u8] + Copy + 'a,
    {
        let (group, rest) = low.split_at(group_end(low));
        let length = group.len();
        let first = self.groups.get(group);
        let first = first.map(|entities| entities.from(rest.to_vec(), move |index| &key_of(index)[length..]));
        // Without a whole group, `low` may lie before, at or after groups, never inside one.
        let next_group = if group.is_empty() { Bound::Included(low) } else { Bound::Excluded(group) };
        let others = self.groups.range::<[u8], _>((next_group, Bound::Unbounded));
        let others = others.flat_map(move |(group, entities)| {
            let length = group.len();
            entities.from(Vec::new(), move |index| &key_of(index)[length..])
        });
        first.into_iter().flatten().chain(others)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn key() -> impl Strategy<Value = Vec<u8>> {
        let name = || "[a-b]{0,1}";
        let byte = || prop_oneof![Just(0xFFu8), Just(b'a'), Just(0u8)];
        // Most rests are longer than a head, and begin alike.
        let rest = (0..20usize, proptest::collection::vec(byte(), 0..4))
            .prop_map(|(length, end)| [vec![b'a'; length], end].concat());
        (name(), name(), rest).prop_map(|(app, service, rest)| {
            [app.as_bytes(), b"\0", service.as_bytes(), b"\0", &rest, b"\0\x01"].concat()
        })
    }

    proptest! {
        #[test]
        fn it_is_an_ordered_map(
            keys in proptest::collection::btree_set(key(), 0..60).prop_map(|keys| keys.into_iter().collect::<Vec<_>>()).prop_shuffle(),
            low in key(),
            near in 0..120usize,
            cut in 0..30usize,
            gone in proptest::collection::vec(0..60usize, 0..60),
        ) {
            let mut model = BTreeMap::new();
            let mut dirty = DirtyIndex::default();
            let key_of = |index: u32| keys[index as usize].as_slice();
            for (index, key) in keys.iter().enumerate() {
                dirty.insert(key, index as u32, key_of);
                model.insert(key.clone(), index as u32);
            }
            for key in gone.iter().filter_map(|at| keys.get(*at)) {
                dirty.remove(key);
                model.remove(key);
            }
            prop_assert_eq!(dirty.len(), model.len());
            // Right behind a key, or anywhere.
            let low = match keys.get(near) {
                Some(key) => [key.as_slice(), b"a"].concat(),
                None => low[..cut.min(low.len())].to_vec(),
            };
            let found: Vec<_> = dirty.from(&low, key_of).collect();
            let expected: Vec<_> = model.range(low..).map(|(_, index)| *index).collect();
            prop_assert_eq!(found, expected);
            for key in &keys {
                dirty.remove(key);
            }
            prop_assert!(dirty.len() == 0 && dirty.groups.is_empty());
        }
    }
}
