//! The dirty entities in the order of their keys.
//!
//! A tree of pointers to keys would miss the cache at every comparison: at a million entities that
//! is most of the cost of a replay. So entities are grouped by app and service, which all keys of
//! a group share, and each entry holds the first bytes of what distinguishes it.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

/// Bytes an entry keeps of its key beside the pointer.
const HEAD_BYTES: usize = 16;

/// Dirty entities: key to index.
#[derive(Default)]
pub(crate) struct DirtyIndex {
    /// By `app 00 service 00`. No such group is a prefix of another.
    groups: BTreeMap<Box<[u8]>, BTreeMap<Entry, u32>>,
    count: usize,
}

struct Entry {
    /// The bytes after the group, filled up with zeros, as a big-endian number in two parts: one
    /// of 128 bits would be aligned to 16.
    head: [u64; 2],
    key: Arc<[u8]>,
}

impl Entry {
    fn new(key: Arc<[u8]>, group: usize) -> Self {
        let rest = &key[group..];
        let mut head = [0; HEAD_BYTES];
        let length = rest.len().min(HEAD_BYTES);
        head[..length].copy_from_slice(&rest[..length]);
        let number = u128::from_be_bytes(head);
        Self { head: [(number >> 64) as u64, number as u64], key }
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> Ordering {
        self.head.cmp(&other.head).then_with(|| self.key.cmp(&other.key))
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Entry {}

/// Where the group ends in `key`; zero when it holds no whole group, as the start of a scan may.
fn group_end(key: &[u8]) -> usize {
    let mut nuls = key.iter().enumerate().filter(|(_, byte)| **byte == 0).map(|(at, _)| at);
    nuls.next();
    nuls.next().map_or(0, |at| at + 1)
}

impl DirtyIndex {
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    pub(crate) fn insert(&mut self, key: &Arc<[u8]>, index: u32) {
        let group = group_end(key);
        let entry = Entry::new(Arc::clone(key), group);
        let old = match self.groups.get_mut(&key[..group]) {
            Some(entries) => entries.insert(entry, index),
            None => self.groups.entry(key[..group].into()).or_default().insert(entry, index),
        };
        self.count += usize::from(old.is_none());
    }

    pub(crate) fn remove(&mut self, key: &Arc<[u8]>) {
        let group = group_end(key);
        let Some(entries) = self.groups.get_mut(&key[..group]) else { return };
        self.count -= usize::from(entries.remove(&Entry::new(Arc::clone(key), group)).is_some());
        if entries.is_empty() {
            self.groups.remove(&key[..group]);
        }
    }

    /// The entities with keys from `low` on, in order.
    pub(crate) fn from(&self, low: &[u8]) -> impl Iterator<Item = (&Arc<[u8]>, u32)> {
        let group = group_end(low);
        let first = self.groups.get(&low[..group]).into_iter();
        let first = first
            .flat_map(move |entries| entries.range((Bound::Included(Entry::new(low.into(), group)), Bound::Unbounded)));
        // Without a whole group, `low` may lie before, at or after groups, never inside one.
        let next_group = if group == 0 { Bound::Included(low) } else { Bound::Excluded(&low[..group]) };
        let others = self.groups.range::<[u8], _>((next_group, Bound::Unbounded)).flat_map(|(_, entries)| entries);
        first.chain(others).map(|(entry, index)| (&entry.key, *index))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn key() -> impl Strategy<Value = Vec<u8>> {
        let name = || "[a-b]{0,2}";
        let rest = proptest::collection::vec(prop_oneof![Just(0xFFu8), Just(b'a')], 0..20);
        (name(), name(), rest).prop_map(|(app, service, rest)| {
            [app.as_bytes(), b"\0", service.as_bytes(), b"\0", &rest, b"\0\x01"].concat()
        })
    }

    proptest! {
        #[test]
        fn it_is_an_ordered_map(keys in proptest::collection::vec(key(), 0..60), low in key(), cut in 0..30usize, gone in 0..30usize) {
            let mut model = BTreeMap::new();
            let mut dirty = DirtyIndex::default();
            for (index, key) in keys.iter().enumerate() {
                dirty.insert(&key.as_slice().into(), index as u32);
                model.insert(key.clone(), index as u32);
            }
            for key in keys.iter().take(gone) {
                dirty.remove(&key.as_slice().into());
                model.remove(key);
            }
            prop_assert_eq!(dirty.len(), model.len());
            let low = &low[..cut.min(low.len())];
            let found: Vec<_> = dirty.from(low).map(|(key, index)| (key.to_vec(), index)).collect();
            let expected: Vec<_> = model.range(low.to_vec()..).map(|(key, index)| (key.clone(), *index)).collect();
            prop_assert_eq!(found, expected);
        }
    }
}
