//! The fields of a large entity. Every operation costs the logarithm of their number.
//!
//! Live fields and tombstones are kept apart. So a read of a queue's head does not walk over everything already taken
//! from the queue. One [`Hole`] does the same for the checkpoint's rows below.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use millrace_base::Value;

use crate::fields::{FieldName, Lookup, Sizes, Slot, State, field_bytes};

/// The names of fields taken for one flush, or still to be taken.
pub(crate) type Names = BTreeSet<Box<[u8]>>;

/// Names from `start` on, and below `end` if there is one. Within it, a tombstone hides every row of the checkpoint. A
/// scan that starts inside may start at the end instead. Otherwise each read of a queue's head would step over all its
/// taken items, in the overlay and as the checkpoint's own tombstones.
pub(crate) struct Hole {
    pub(crate) start: Box<[u8]>,
    pub(crate) end: Option<Box<[u8]>>,
}

impl Hole {
    pub(crate) fn contains(&self, name: &[u8]) -> bool {
        *self.start <= *name && self.end.as_ref().is_none_or(|end| name < &**end)
    }
}

/// The fields of a large entity.
#[derive(Default)]
pub(crate) struct Many {
    live: BTreeMap<Box<[u8]>, (Value, State)>,
    /// Tombstones. A clean one is dropped at once.
    dead: BTreeMap<Box<[u8]>, State>,
    /// Names of the fields that are fresh or dirty, without those that a running flush has taken over.
    unwritten: Names,
    /// Fields that were in flight when the list became maps. Their chunk knows only the entity.
    in_flight_before: Vec<Box<[u8]>>,
    pub(crate) hole: Option<Hole>,
    resident_bytes: usize,
    clean_count: usize,
}

impl Many {
    pub(crate) fn from_slots(slots: Vec<Slot>, sizes: &mut Sizes) -> Self {
        let mut many = Many::default();
        for slot in slots {
            let bytes = field_bytes(&slot.name, slot.value.as_ref());
            sizes.remove(bytes, slot.state);
            many.add(bytes, slot.state, sizes);
            if matches!(slot.state, State::Fresh | State::Dirty) {
                many.unwritten.insert(slot.name.clone());
            }
            if slot.state == State::InFlight {
                many.in_flight_before.push(slot.name.clone());
            }
            match slot.value {
                Some(value) => {
                    many.live.insert(slot.name, (value, slot.state));
                }
                None => {
                    many.dead.insert(slot.name, slot.state);
                }
            }
        }
        many
    }

    fn add(&mut self, bytes: usize, state: State, sizes: &mut Sizes) {
        sizes.add(bytes, state);
        self.resident_bytes += bytes;
        self.clean_count += usize::from(state == State::Clean);
    }

    fn remove(&mut self, bytes: usize, state: State, sizes: &mut Sizes) {
        sizes.remove(bytes, state);
        self.resident_bytes -= bytes;
        self.clean_count -= usize::from(state == State::Clean);
    }

    pub(crate) fn resident_bytes(&self) -> usize {
        self.resident_bytes
    }

    pub(crate) fn lookup(&self, name: &[u8]) -> Lookup<'_> {
        match self.live.get(name) {
            Some((value, _)) => Lookup::Live(value),
            None if self.dead.contains_key(name) => Lookup::Dead,
            None => Lookup::Missing,
        }
    }

    pub(crate) fn has_live(&self) -> bool {
        !self.live.is_empty()
    }

    pub(crate) fn live_range<'a>(
        &'a self,
        low: Bound<&'a [u8]>,
        high: Bound<&'a [u8]>,
    ) -> impl Iterator<Item = (&'a [u8], &'a Value)> {
        // A map refuses a range that runs backwards. A scan after the end of its prefix asks for one.
        let range = crate::checkpoint::is_range(low, high).then(|| self.live.range::<[u8], _>((low, high)));
        range.into_iter().flatten().map(|(name, (value, _))| (&**name, value))
    }

    pub(crate) fn write(&mut self, name: impl FieldName, value: Option<Value>, complete: bool, sizes: &mut Sizes) {
        match value {
            Some(value) => self.put(name.into(), value, complete, sizes),
            None => self.delete(name.into(), complete, sizes),
        }
    }

    fn put(&mut self, name: Box<[u8]>, value: Value, complete: bool, sizes: &mut Sizes) {
        // Once flushed, the field is a row inside the hole: keep the part below it.
        if let Some(hole) = self.hole.as_mut().filter(|hole| hole.contains(&name)) {
            hole.end = Some(name.clone());
        }
        let bytes = field_bytes(&name, Some(&value));
        let (old, state) = match self.live.entry(name) {
            Entry::Occupied(mut held) => {
                let old_bytes = field_bytes(held.key(), Some(&held.get().0));
                let old_state = held.get().1;
                let state = if old_state == State::Fresh { State::Fresh } else { State::Dirty };
                // Until such a field is taken, the flush that will take it knows its name.
                if !matches!(old_state, State::Fresh | State::Dirty) {
                    self.unwritten.insert(held.key().clone());
                }
                held.insert((value, state));
                (Some((old_bytes, old_state)), state)
            }
            Entry::Vacant(free) => {
                let dead = if self.dead.is_empty() { None } else { self.dead.remove(free.key()) };
                let old = dead.map(|state| (field_bytes(free.key(), None), state));
                let state = if old.is_none() && complete { State::Fresh } else { State::Dirty };
                self.unwritten.insert(free.key().clone());
                free.insert((value, state));
                (old, state)
            }
        };
        if let Some((bytes, state)) = old {
            self.remove(bytes, state, sizes);
        }
        self.add(bytes, state, sizes);
    }

    fn delete(&mut self, name: Box<[u8]>, complete: bool, sizes: &mut Sizes) {
        match self.live.remove(&name) {
            Some((value, state)) => {
                self.remove(field_bytes(&name, Some(&value)), state, sizes);
                if state == State::Fresh {
                    self.unwritten.remove(&name);
                    return;
                }
            }
            None => match self.dead.remove(&name) {
                Some(state) => self.remove(field_bytes(&name, None), state, sizes),
                None if complete => return,
                None => {}
            },
        }
        self.add(field_bytes(&name, None), State::Dirty, sizes);
        self.unwritten.insert(name.clone());
        self.dead.insert(name, State::Dirty);
    }

    pub(crate) fn add_clean(&mut self, name: &[u8], value: Value, sizes: &mut Sizes) {
        if matches!(self.lookup(name), Lookup::Missing) {
            self.add(field_bytes(name, Some(&value)), State::Clean, sizes);
            self.live.insert(name.into(), (value, State::Clean));
        }
    }

    /// The names that a flush that reaches this entity has to write. They belong to the flush from now on.
    pub(crate) fn start_taking(&mut self) -> Names {
        std::mem::take(&mut self.unwritten)
    }

    /// Gives the field `name` to `take` and marks it in flight. Ignores a name whose field has vanished since, because
    /// it was fresh and was deleted.
    pub(crate) fn take(&mut self, name: &[u8], take: impl FnOnce(Option<&Value>)) {
        if let Some((value, state)) = self.live.get_mut(name) {
            take(Some(value));
            *state = State::InFlight;
        } else if let Some(state) = self.dead.get_mut(name) {
            take(None);
            *state = State::InFlight;
        }
        self.unwritten.remove(name);
    }

    /// The checkpoint holds `name` as it was taken.
    pub(crate) fn confirm(&mut self, name: &[u8], sizes: &mut Sizes) {
        if let Some((value, state)) = self.live.get_mut(name) {
            if *state == State::InFlight {
                sizes.dirty -= field_bytes(name, Some(value));
                *state = State::Clean;
                self.clean_count += 1;
            }
        } else if self.dead.get(name) == Some(&State::InFlight) {
            self.dead.remove(name);
            self.remove(field_bytes(name, None), State::InFlight, sizes);
        }
    }

    /// `name` was taken and not written, or only perhaps.
    pub(crate) fn revert(&mut self, name: Box<[u8]>) {
        let state = match self.live.get_mut(&name) {
            Some((_, state)) => state,
            None => match self.dead.get_mut(&name) {
                Some(state) => state,
                None => return,
            },
        };
        if *state == State::InFlight {
            *state = State::Dirty;
        }
        if matches!(*state, State::Fresh | State::Dirty) {
            self.unwritten.insert(name);
        }
    }

    /// The fields that a chunk took while they were a list, if the chunk is still out.
    pub(crate) fn in_flight_before(&mut self) -> Vec<Box<[u8]>> {
        std::mem::take(&mut self.in_flight_before)
    }

    /// Drops the clean fields if they are worth the walk, that is, at least as many as the others. The entity is no
    /// longer complete then. Returns whether anything was dropped.
    pub(crate) fn drop_clean(&mut self, sizes: &mut Sizes) -> bool {
        if self.clean_count == 0 || self.clean_count * 2 < self.live.len() + self.dead.len() {
            return false;
        }
        let mut dropped = 0;
        self.live.retain(|name, (value, state)| {
            if *state == State::Clean {
                dropped += field_bytes(name, Some(value));
            }
            *state != State::Clean
        });
        sizes.resident -= dropped;
        self.resident_bytes -= dropped;
        self.clean_count = 0;
        true
    }

    /// Remembers that a scan from `start` found nothing below `end` in the checkpoint.
    pub(crate) fn set_hole(&mut self, start: Box<[u8]>, end: Option<Box<[u8]>>) {
        self.hole = Some(Hole { start, end });
    }
}
