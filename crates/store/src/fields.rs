//! The fields of one entity in memory. Few fields are a sorted list, many are ordered maps. The one entity that is an
//! append-only map has a structure of its own.
//!
//! Every field in memory is in one of the states of [`State`]. A field not in memory is absent if the entity is
//! complete, else unknown. The entity knows which, and passes it in as `complete`.

use std::ops::Bound;

use millrace_base::Value;

use crate::append_only_map::{AppendOnlyMap, Held};
use crate::many::Many;

/// Fields kept in a sorted list; more are kept in maps. An insertion moves half of the list: 32 fields are 1,280 bytes,
/// less than what a tree's node costs.
pub(crate) const FEW_FIELDS: usize = 32;

/// How a field in memory relates to its row in the checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Equal to the row.
    Clean,
    /// There has never been a row, so deleting the field leaves no tombstone.
    Fresh,
    /// Differs from the row.
    Dirty,
    /// Taken into a flush chunk and not written since.
    InFlight,
}

/// One field. Without a value it is a tombstone, which is never clean.
pub(crate) struct Slot {
    pub(crate) name: Box<[u8]>,
    pub(crate) value: Option<Value>,
    pub(crate) state: State,
}

/// The memory that fields take. Every change keeps it up to date.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sizes {
    /// Bytes in memory.
    pub(crate) resident: usize,
    /// The part of them that no checkpoint holds yet.
    pub(crate) dirty: usize,
}

impl Sizes {
    pub(crate) fn add(&mut self, bytes: usize, state: State) {
        self.resident += bytes;
        if state != State::Clean {
            self.dirty += bytes;
        }
    }

    pub(crate) fn remove(&mut self, bytes: usize, state: State) {
        self.resident -= bytes;
        if state != State::Clean {
            self.dirty -= bytes;
        }
    }
}

/// The memory of one field: its slot, its name, its value.
pub(crate) fn field_bytes(name: &[u8], value: Option<&Value>) -> usize {
    std::mem::size_of::<Slot>() + name.len() + value.map_or(0, |value| value.encoded().len())
}

/// What memory knows of a field.
pub(crate) enum Lookup<'a> {
    /// It has this value.
    Live(&'a Value),
    /// It was deleted.
    Dead,
    /// Memory does not hold it, or an append-only map holds it.
    Missing,
}

/// A name that the caller owns already, or that is copied only if it must be kept.
pub(crate) trait FieldName: AsRef<[u8]> + Into<Box<[u8]>> {}
impl<T: AsRef<[u8]> + Into<Box<[u8]>>> FieldName for T {}

/// The fields of one entity.
pub(crate) enum Fields {
    One(Slot),
    Few(Vec<Slot>),
    Many(Box<Many>),
    AppendOnlyMap(Box<AppendOnlyMap>),
}

impl Fields {
    pub(crate) fn new() -> Self {
        Fields::Few(Vec::new())
    }

    pub(crate) fn lookup(&self, name: &[u8]) -> Lookup<'_> {
        let slots = match self {
            Fields::One(slot) => std::slice::from_ref(slot),
            Fields::Few(slots) => slots,
            Fields::Many(many) => return many.lookup(name),
            Fields::AppendOnlyMap(_) => return Lookup::Missing,
        };
        match position(slots, name) {
            Ok(at) => slots[at].value.as_ref().map_or(Lookup::Dead, Lookup::Live),
            Err(_) => Lookup::Missing,
        }
    }

    /// The same for all kinds of fields, with the value as it is stored.
    pub(crate) fn held(&self, name: &[u8]) -> Held<'_> {
        match self {
            Fields::AppendOnlyMap(append_only_map) => append_only_map.lookup(name),
            other => match other.lookup(name) {
                Lookup::Live(value) => Held::Live(value.encoded()),
                Lookup::Dead => Held::Dead,
                Lookup::Missing => Held::Missing,
            },
        }
    }

    /// Applies a write.
    pub(crate) fn write(&mut self, name: impl FieldName, value: Option<Value>, complete: bool, sizes: &mut Sizes) {
        let slots = match self {
            Fields::One(slot) => std::slice::from_mut(slot),
            Fields::Few(slots) => slots,
            Fields::Many(many) => return many.write(name, value, complete, sizes),
            Fields::AppendOnlyMap(append_only_map) => {
                return append_only_map.write(name.as_ref(), value.as_ref().map(Value::encoded), complete, sizes);
            }
        };
        match position(slots, name.as_ref()) {
            Ok(at) => {
                let slot = &mut slots[at];
                sizes.remove(field_bytes(&slot.name, slot.value.as_ref()), slot.state);
                if slot.state == State::Fresh && value.is_none() {
                    self.remove(at);
                    return;
                }
                if slot.state != State::Fresh {
                    slot.state = State::Dirty;
                }
                slot.value = value;
                sizes.add(field_bytes(&slot.name, slot.value.as_ref()), slot.state);
            }
            // If the field is known to be absent, its deletion leaves nothing to remember.
            Err(_) if complete && value.is_none() => {}
            Err(at) => {
                let state = if complete { State::Fresh } else { State::Dirty };
                self.insert(at, Slot { name: name.into(), value, state }, sizes);
            }
        }
    }

    /// Adds a field read from the checkpoint, unless memory has a newer state of it.
    pub(crate) fn add_clean(&mut self, name: &[u8], value: Value, sizes: &mut Sizes) {
        let slots = match self {
            Fields::One(slot) => std::slice::from_ref(slot),
            Fields::Few(slots) => slots,
            Fields::Many(many) => return many.add_clean(name, value, sizes),
            // An append-only map holds records in the order of writes, so it does not keep what is read.
            Fields::AppendOnlyMap(_) => return,
        };
        if let Err(at) = position(slots, name) {
            self.insert(at, Slot { name: name.into(), value: Some(value), state: State::Clean }, sizes);
        }
    }

    fn insert(&mut self, at: usize, slot: Slot, sizes: &mut Sizes) {
        sizes.add(field_bytes(&slot.name, slot.value.as_ref()), slot.state);
        match self {
            Fields::Few(slots) if slots.is_empty() => *self = Fields::One(slot),
            Fields::Few(slots) => {
                slots.insert(at, slot);
                if slots.len() > FEW_FIELDS {
                    self.become_many(sizes);
                }
            }
            Fields::One(_) => {
                let Fields::One(other) = std::mem::replace(self, Fields::new()) else { return };
                let pair = if at == 0 { [slot, other] } else { [other, slot] };
                *self = Fields::Few(Vec::from(pair));
            }
            // `write` and `add_clean` have handled these before they come here.
            Fields::Many(_) | Fields::AppendOnlyMap(_) => {}
        }
    }

    fn remove(&mut self, at: usize) {
        match self {
            Fields::One(_) => *self = Fields::new(),
            Fields::Few(slots) => {
                slots.remove(at);
            }
            Fields::Many(_) | Fields::AppendOnlyMap(_) => {}
        }
    }

    /// Turns a list into maps.
    pub(crate) fn become_many(&mut self, sizes: &mut Sizes) {
        let slots = match std::mem::replace(self, Fields::new()) {
            Fields::One(slot) => vec![slot],
            Fields::Few(slots) => slots,
            other => {
                *self = other;
                return;
            }
        };
        *self = Fields::Many(Box::new(Many::from_slots(slots, sizes)));
    }

    /// Live fields from `low` to `high` in order, with their encoded values.
    pub(crate) fn live_range<'a>(
        &'a self,
        low: &'a [u8],
        high: Option<&'a [u8]>,
    ) -> Box<dyn Iterator<Item = (&'a [u8], &'a [u8])> + 'a> {
        let slots = match self {
            Fields::One(slot) => std::slice::from_ref(slot),
            Fields::Few(slots) => slots,
            Fields::Many(many) => {
                let high = high.map_or(Bound::Unbounded, Bound::Excluded);
                let range = many.live_range(Bound::Included(low), high);
                return Box::new(range.map(|(name, value)| (name, value.encoded())));
            }
            Fields::AppendOnlyMap(append_only_map) => {
                return Box::new(append_only_map.live_range(low, high).into_iter());
            }
        };
        let start = slots.partition_point(|slot| &*slot.name < low);
        let end = high.map_or(slots.len(), |high| slots.partition_point(|slot| &*slot.name < high));
        let slots = slots.get(start..end).unwrap_or_default();
        Box::new(slots.iter().filter_map(|slot| slot.value.as_ref().map(|value| (&*slot.name, value.encoded()))))
    }

    /// Whether any field in memory has a value.
    pub(crate) fn has_live(&self) -> bool {
        match self {
            Fields::One(slot) => slot.value.is_some(),
            Fields::Few(slots) => slots.iter().any(|slot| slot.value.is_some()),
            Fields::Many(many) => many.has_live(),
            Fields::AppendOnlyMap(append_only_map) => append_only_map.has_live(),
        }
    }

    /// Gives every field of a list that the checkpoint lacks to `take`, and marks it in flight.
    pub(crate) fn take_few(&mut self, mut take: impl FnMut(&[u8], Option<&Value>)) {
        for slot in self.few_mut() {
            if matches!(slot.state, State::Fresh | State::Dirty) {
                take(&slot.name, slot.value.as_ref());
                slot.state = State::InFlight;
            }
        }
    }

    /// The checkpoint holds the fields that were taken of a list. The list may have become maps since.
    pub(crate) fn confirm_few(&mut self, sizes: &mut Sizes) {
        if let Fields::Many(many) = self {
            for name in many.in_flight_before() {
                many.confirm(&name, sizes);
            }
            return;
        }
        let mut any_tombstone = false;
        for slot in self.few_mut() {
            if slot.state == State::InFlight {
                sizes.dirty -= field_bytes(&slot.name, slot.value.as_ref());
                slot.state = State::Clean;
                any_tombstone |= slot.value.is_none();
            }
        }
        if any_tombstone {
            let mut keep = |slot: &Slot| {
                let gone = slot.value.is_none() && slot.state == State::Clean;
                if gone {
                    sizes.resident -= field_bytes(&slot.name, None);
                }
                !gone
            };
            match self {
                Fields::One(slot) if !keep(slot) => *self = Fields::new(),
                Fields::Few(slots) => slots.retain(keep),
                Fields::One(_) | Fields::Many(_) | Fields::AppendOnlyMap(_) => {}
            }
        }
    }

    /// The fields that were taken of a list were not written, or only perhaps.
    pub(crate) fn revert_few(&mut self) {
        if let Fields::Many(many) = self {
            for name in many.in_flight_before() {
                many.revert(name);
            }
            return;
        }
        for slot in self.few_mut() {
            if slot.state == State::InFlight {
                slot.state = State::Dirty;
            }
        }
    }

    fn few_mut(&mut self) -> &mut [Slot] {
        match self {
            Fields::One(slot) => std::slice::from_mut(slot),
            Fields::Few(slots) => slots,
            Fields::Many(_) | Fields::AppendOnlyMap(_) => &mut [],
        }
    }

    /// All the memory that the fields take.
    pub(crate) fn resident_bytes(&self) -> usize {
        match self {
            Fields::One(slot) => field_bytes(&slot.name, slot.value.as_ref()),
            Fields::Few(slots) => slots.iter().map(|slot| field_bytes(&slot.name, slot.value.as_ref())).sum(),
            Fields::Many(many) => many.resident_bytes(),
            Fields::AppendOnlyMap(append_only_map) => append_only_map.resident_bytes(),
        }
    }
}

fn position(slots: &[Slot], name: &[u8]) -> Result<usize, usize> {
    slots.binary_search_by(|slot| slot.name.as_ref().cmp(name))
}
