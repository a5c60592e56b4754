//! A slab that grows by pages. An index stays valid until it is removed. Growing copies nothing, which would pause for
//! many milliseconds at a million entities, and does not double the memory.

/// Slots of a page. 1,024 entities are some 72 KiB: half of a page may be empty in each shard without costing much.
const PAGE: usize = 1024;

/// The pages and their free list.
pub(crate) struct Arena<T> {
    pages: Vec<Vec<Slot<T>>>,
    next_free: u32,
    count: usize,
}

enum Slot<T> {
    Taken(T),
    Free(u32),
}

const END: u32 = u32::MAX;

impl<T> Arena<T> {
    pub(crate) fn new() -> Self {
        Self { pages: Vec::new(), next_free: END, count: 0 }
    }

    /// Items held.
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// One past the highest index ever used.
    pub(crate) fn end(&self) -> u32 {
        match self.pages.last() {
            Some(last) => ((self.pages.len() - 1) * PAGE + last.len()) as u32,
            None => 0,
        }
    }

    /// Keeps `item` and returns its index. Indexes are not promised to be the lowest possible; equal histories give
    /// equal indexes.
    ///
    /// # Panics
    /// At 2^32 - 1 items, which is 300 GiB of entities in one shard.
    pub(crate) fn insert(&mut self, item: T) -> u32 {
        self.count += 1;
        if self.next_free != END {
            let index = self.next_free;
            let slot = &mut self.pages[index as usize / PAGE][index as usize % PAGE];
            if let Slot::Free(next) = std::mem::replace(slot, Slot::Taken(item)) {
                self.next_free = next;
            }
            return index;
        }
        if self.pages.last().is_none_or(|page| page.len() == PAGE) {
            // The first page grows as needed, so that an almost empty shard stays small.
            let capacity = if self.pages.is_empty() { 0 } else { PAGE };
            self.pages.push(Vec::with_capacity(capacity));
        }
        let index = self.end();
        assert!(index != END, "a shard holds fewer than 2^32 - 1 entities");
        let last = self.pages.len() - 1;
        self.pages[last].push(Slot::Taken(item));
        index
    }

    /// The item at `index`, if one is there.
    pub(crate) fn get(&self, index: u32) -> Option<&T> {
        match self.pages.get(index as usize / PAGE)?.get(index as usize % PAGE)? {
            Slot::Taken(item) => Some(item),
            Slot::Free(_) => None,
        }
    }

    /// The item at `index`, if one is there.
    pub(crate) fn get_mut(&mut self, index: u32) -> Option<&mut T> {
        match self.pages.get_mut(index as usize / PAGE)?.get_mut(index as usize % PAGE)? {
            Slot::Taken(item) => Some(item),
            Slot::Free(_) => None,
        }
    }

    /// Takes the item at `index` out.
    pub(crate) fn remove(&mut self, index: u32) -> Option<T> {
        let slot = self.pages.get_mut(index as usize / PAGE)?.get_mut(index as usize % PAGE)?;
        match std::mem::replace(slot, Slot::Free(self.next_free)) {
            Slot::Taken(item) => {
                self.next_free = index;
                self.count -= 1;
                Some(item)
            }
            Slot::Free(next) => {
                *slot = Slot::Free(next);
                None
            }
        }
    }
}

impl<T> std::ops::Index<u32> for Arena<T> {
    type Output = T;

    /// # Panics
    /// If nothing is at `index`. The indexes of this crate point at live entities.
    fn index(&self, index: u32) -> &T {
        self.get(index).expect("an index of this crate points at a live entity")
    }
}

impl<T> std::ops::IndexMut<u32> for Arena<T> {
    fn index_mut(&mut self, index: u32) -> &mut T {
        self.get_mut(index).expect("an index of this crate points at a live entity")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indexes_stay_valid_and_freed_ones_are_used_again() {
        let mut arena = Arena::new();
        let indexes: Vec<u32> = (0..10_000).map(|item| arena.insert(item)).collect();
        assert_eq!((arena.len(), arena.end()), (10_000, 10_000));
        assert_eq!(arena.remove(indexes[5_000]), Some(5_000));
        assert_eq!(arena.remove(indexes[5_000]), None);
        assert_eq!(arena.remove(indexes[7]), Some(7));
        assert_eq!((arena.get(indexes[7]), arena.len()), (None, 9_998));
        assert_eq!((arena.insert(-1), arena.insert(-2)), (indexes[7], indexes[5_000]));
        assert_eq!((arena[indexes[7]], arena[indexes[9_999]], arena.end()), (-1, 9_999, 10_000));
    }
}
