//! Follows a path through an encoded record, from places to places, without a tree.

use std::ops::Range;

use millrace_avro::{Field, Kind, Malformed, NodeId, Reader, Schema};
use millrace_base::limits;
use smallvec::SmallVec;

use crate::syntax::{Key, PathStep, Steps};
use crate::{Budget, EvaluationError, Parameters};

/// Where a value lies in the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ValueLocation {
    /// Its node in the schema: a union if the schema says so, whatever its branch.
    pub node: NodeId,
    pub start: u32,
    /// [`UNKNOWN`] until it has been computed.
    pub end: u32,
    pub holder: Holder,
}

/// What directly holds a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Holder {
    /// Nothing: it is the record.
    None,
    /// A record.
    Record,
    /// An array whose count stands at `container`.
    Array { container: u32, index: u32 },
    /// A map whose count stands at `container`; the entry begins, with its key, at `entry`.
    Map { container: u32, entry: u32 },
}

pub(crate) const UNKNOWN: u32 = u32::MAX;

/// Places that one step may lead to. This is more than a path may match, because later steps remove some.
const LIST_PLACES: usize = 10 * limits::PATH_MATCHES;

/// Bytes passed over that count as one value looked at, because they take about as long.
const BYTES_PER_STEP: usize = 16;

pub(crate) type Places = SmallVec<[ValueLocation; 4]>;

type Evaluate<T> = Result<T, EvaluationError>;

/// One evaluation.
pub(crate) struct Machine<'v> {
    pub schema: &'v Schema,
    pub record: &'v [u8],
    pub parameters: SmallVec<[&'v serde_json::Value; 2]>,
    /// By slot: the record type in which the name was last looked up, and the field's index. Elements of an array are
    /// mostly of one type.
    remembered: SmallVec<[(NodeId, u32); 8]>,
    steps_left: usize,
    /// The steps that it began with: those of the budget, or those that one evaluation may take.
    steps: usize,
    budget: &'v mut Budget,
}

impl Drop for Machine<'_> {
    fn drop(&mut self) {
        // The machine never takes more steps than the budget has.
        let _ = self.budget.charge(self.steps - self.steps_left);
    }
}

const NO_NODE: NodeId = NodeId(u32::MAX);
const NO_FIELD: u32 = u32::MAX;

/// Where the values directly within a value are.
pub(crate) enum Members<'v> {
    None,
    Fields { fields: &'v [Field], next: usize, at: u32 },
    Items(Items),
}

/// The rest of an array or a map.
pub(crate) struct Items {
    pub node: NodeId,
    pub is_map: bool,
    /// Where the count is.
    pub container: u32,
    pub count: u32,
    pub next: u32,
    pub at: u32,
}

impl<'v> Machine<'v> {
    /// Has parameters of these names, and `slots` names to remember.
    pub(crate) fn new(
        (schema, record): (&'v Schema, &'v [u8]),
        names: &[Box<str>],
        slots: u32,
        parameters: &'v Parameters,
        budget: &'v mut Budget,
    ) -> Evaluate<Self> {
        if record.len() >= UNKNOWN as usize {
            return Err(malformed(record.len(), "the record is too large").into());
        }
        let bind = |name: &str| parameters.get(name).ok_or_else(|| EvaluationError::UnboundParameter(name.into()));
        let parameters = names.iter().map(|name| bind(name)).collect::<Evaluate<_>>()?;
        let remembered = SmallVec::from_elem((NO_NODE, NO_FIELD), slots as usize);
        let steps = budget.left().min(limits::PATH_STEPS);
        Ok(Self { schema, record, parameters, remembered, steps_left: steps, steps, budget })
    }

    /// The record itself.
    #[inline]
    pub(crate) fn root(&self) -> ValueLocation {
        ValueLocation { node: self.schema.root(), start: 0, end: offset(self.record.len()), holder: Holder::None }
    }

    /// What the path leads to from `here`, in document order except for alternatives.
    pub(crate) fn follow(&mut self, path: &'v Steps, here: ValueLocation) -> Evaluate<Places> {
        self.follow_steps(path.from_root, &path.steps, here)
    }

    pub(crate) fn follow_steps(
        &mut self,
        from_root: bool,
        steps: &'v [PathStep],
        here: ValueLocation,
    ) -> Evaluate<Places> {
        let here = if from_root { self.root() } else { here };
        let (found, rest) = self.lead(steps, here)?;
        match found {
            Single::One(place) => Ok(SmallVec::from_iter([place])),
            Single::Absent => Ok(Places::new()),
            Single::Many(place) => self.fan_out(rest, place),
        }
    }

    /// Follows the steps as long as each leads to one place, which needs no list. Returns the steps that are left.
    #[inline]
    pub(crate) fn lead(
        &mut self,
        steps: &'v [PathStep],
        mut here: ValueLocation,
    ) -> Evaluate<(Single, &'v [PathStep])> {
        let mut rest = steps;
        while let [step, after @ ..] = rest {
            match self.single(step, here)? {
                Single::One(place) => here = place,
                other => return Ok((other, rest)),
            }
            rest = after;
        }
        Ok((Single::One(here), rest))
    }

    /// Goes on with all places that each step leads to.
    pub(crate) fn fan_out(&mut self, steps: &'v [PathStep], here: ValueLocation) -> Evaluate<Places> {
        let mut list = SmallVec::from_iter([here]);
        let mut is_filtered = false;
        for step in steps {
            let mut next = Places::new();
            self.step(step, &list, is_filtered, &mut next)?;
            is_filtered = matches!(step, PathStep::Filter(_));
            list = next;
        }
        Ok(list)
    }

    /// The step's result if that is at most one place.
    #[inline]
    fn single(&mut self, step: &PathStep, here: ValueLocation) -> Evaluate<Single> {
        match step {
            PathStep::Itself => Ok(Single::One(here)),
            PathStep::Name { name, slot } => self.child(here, name, Some(*slot)),
            PathStep::At(index) => {
                let (node, start) = self.resolve(here)?;
                let Some(mut items) = self.array(node, start)? else { return Ok(Single::Absent) };
                let Some(index) = absolute(*index, items.count) else { return Ok(Single::Absent) };
                while items.next < index {
                    self.next_item(&mut items)?;
                }
                Ok(self.next_item(&mut items)?.map_or(Single::Absent, |(_, place)| Single::One(place)))
            }
            PathStep::Keys(keys) => match &**keys {
                [Key::Text(key)] => self.child(here, key, None),
                _ => Ok(Single::Many(here)),
            },
            _ => Ok(Single::Many(here)),
        }
    }

    fn step(
        &mut self,
        step: &'v PathStep,
        from: &[ValueLocation],
        is_filtered: bool,
        out: &mut Places,
    ) -> Evaluate<()> {
        if let PathStep::Either(paths) = step {
            for path in paths {
                for place in from {
                    for found in self.follow(path, *place)? {
                        push(out, found)?;
                    }
                }
            }
            return Ok(());
        }
        if is_filtered && let Some((first, after)) = positions(step, offset(from.len())) {
            out.extend_from_slice(&from[first as usize..after as usize]);
            return Ok(());
        }
        for place in from {
            self.charge(1)?;
            match step {
                PathStep::Filter(expression) if is_filtered => {
                    if self.holds(expression, *place)? {
                        push(out, *place)?;
                    }
                }
                _ => self.step_from(step, *place, out)?,
            }
        }
        Ok(())
    }

    fn step_from(&mut self, step: &'v PathStep, here: ValueLocation, out: &mut Places) -> Evaluate<()> {
        match step {
            PathStep::Itself => push(out, here),
            PathStep::Name { name, slot } => self.named(here, name, Some(*slot), out),
            PathStep::Keys(keys) => self.keys(here, keys, out),
            PathStep::Members => {
                let mut members = self.members(here)?;
                while let Some((_, place)) = self.next(&mut members)? {
                    push(out, place)?;
                }
                Ok(())
            }
            PathStep::Descendants => {
                push(out, here)?;
                self.descend(here, None, 0, out)
            }
            PathStep::Within => self.descend(here, None, 0, out),
            PathStep::Named(name) => self.descend(here, Some(name), 0, out),
            PathStep::All | PathStep::At(_) | PathStep::Slice(..) => self.elements(here, step, out),
            PathStep::Filter(expression) => {
                let (node, _) = self.resolve(here)?;
                if !matches!(self.schema.kind(node), Kind::Array(_) | Kind::Map(_)) {
                    return if self.holds(expression, here)? { push(out, here) } else { Ok(()) };
                }
                let mut members = self.members(here)?;
                while let Some((_, place)) = self.next(&mut members)? {
                    if self.holds(expression, place)? {
                        push(out, place)?;
                    }
                }
                Ok(())
            }
            // The caller has taken these apart.
            PathStep::Either(_) => Ok(()),
        }
    }

    /// The field or entry `name`. For an array, that of each element.
    fn named(&mut self, here: ValueLocation, name: &str, slot: Option<u32>, out: &mut Places) -> Evaluate<()> {
        match self.child(here, name, slot)? {
            Single::One(place) => push(out, place),
            Single::Absent => Ok(()),
            Single::Many(_) => {
                let mut members = self.members(here)?;
                while let Some((_, place)) = self.next(&mut members)? {
                    self.named(place, name, slot, out)?;
                }
                Ok(())
            }
        }
    }

    /// The fields or entries of these names. For an array, those of each element.
    fn keys(&mut self, here: ValueLocation, keys: &[Key], out: &mut Places) -> Evaluate<()> {
        let (node, _) = self.resolve(here)?;
        let is_array = matches!(self.schema.kind(node), Kind::Array(_));
        let mut members = self.members(here)?;
        while let Some((name, place)) = self.next(&mut members)? {
            if is_array {
                self.keys(place, keys, out)?;
                continue;
            }
            let cost: usize = keys.iter().map(|key| key.cost(name)).sum();
            self.charge(cost / 8)?;
            if keys.iter().any(|key| key.matches(name)) {
                push(out, place)?;
            }
        }
        Ok(())
    }

    /// All values within `here`, or those of this name.
    fn descend(&mut self, here: ValueLocation, name: Option<&str>, depth: usize, out: &mut Places) -> Evaluate<()> {
        if depth > limits::VALUE_DEPTH {
            return Err(malformed(here.start as usize, "the value nests too deep").into());
        }
        let mut members = self.members(here)?;
        while let Some((key, place)) = self.next(&mut members)? {
            if name.is_none_or(|name| name == key && !members.is_array()) {
                push(out, place)?;
            }
            self.descend(place, name, depth + 1, out)?;
        }
        Ok(())
    }

    fn elements(&mut self, here: ValueLocation, step: &PathStep, out: &mut Places) -> Evaluate<()> {
        let (node, start) = self.resolve(here)?;
        let Some(mut items) = self.array(node, start)? else { return Ok(()) };
        let (first, after) = positions(step, items.count).unwrap_or_default();
        while items.next < after {
            let index = items.next;
            let Some((_, place)) = self.next_item(&mut items)? else { break };
            if index >= first {
                push(out, place)?;
            }
        }
        Ok(())
    }

    /// The field or entry `name`; [`Single::Many`] from an array on.
    #[inline]
    fn child(&mut self, here: ValueLocation, name: &str, slot: Option<u32>) -> Evaluate<Single> {
        let (node, start) = self.resolve(here)?;
        let schema = self.schema;
        match schema.kind(node) {
            Kind::Record { fields, .. } => {
                let Some(index) = self.field_index(node, fields, name, slot)? else { return Ok(Single::Absent) };
                let mut reader = Reader::at(self.record, start as usize);
                for field in &fields[..index] {
                    reader.skip(schema, field.node)?;
                }
                let at = offset(reader.position());
                self.charge(1 + (at - start) as usize / BYTES_PER_STEP)?;
                Ok(Single::One(ValueLocation {
                    node: fields[index].node,
                    start: at,
                    end: UNKNOWN,
                    holder: Holder::Record,
                }))
            }
            Kind::Map(_) => {
                let mut members = self.members(here)?;
                while let Some((key, place)) = self.next(&mut members)? {
                    if key == name {
                        return Ok(Single::One(place));
                    }
                }
                Ok(Single::Absent)
            }
            Kind::Array(_) => Ok(Single::Many(here)),
            _ => Ok(Single::Absent),
        }
    }

    #[inline]
    fn field_index(
        &mut self,
        node: NodeId,
        fields: &[Field],
        name: &str,
        slot: Option<u32>,
    ) -> Evaluate<Option<usize>> {
        let known = slot.and_then(|slot| self.remembered.get_mut(slot as usize));
        if let Some((known_node, index)) = known
            && *known_node == node
        {
            return Ok((*index != NO_FIELD).then_some(*index as usize));
        }
        self.charge(fields.len() / 8)?;
        let index = fields.iter().position(|field| *field.name == *name);
        if let Some(known) = slot.and_then(|slot| self.remembered.get_mut(slot as usize)) {
            *known = (node, index.map_or(NO_FIELD, offset));
        }
        Ok(index)
    }

    /// Counts values looked at.
    #[inline]
    pub(crate) fn charge(&mut self, steps: usize) -> Evaluate<()> {
        match self.steps_left.checked_sub(steps) {
            Some(left) => {
                self.steps_left = left;
                Ok(())
            }
            None => Err(self.out_of_steps()),
        }
    }

    /// Counts steps that bound all evaluations together, and not this one.
    pub(crate) fn charge_budget(&mut self, steps: usize) -> Evaluate<()> {
        self.budget.charge(steps)
    }

    #[cold]
    fn out_of_steps(&mut self) -> EvaluationError {
        self.steps_left = 0;
        if self.steps < limits::PATH_STEPS { EvaluationError::BudgetSpent } else { EvaluationError::TooManySteps }
    }

    /// The value's own node and where it begins. For a union, those of its branch.
    #[inline]
    pub(crate) fn resolve(&self, place: ValueLocation) -> Result<(NodeId, u32), Malformed> {
        match self.schema.kind(place.node) {
            Kind::Union(branches) => {
                let mut reader = Reader::at(self.record, place.start as usize);
                let branch = reader.index(branches.len())?;
                Ok((branches[branch], offset(reader.position())))
            }
            _ => Ok((place.node, place.start)),
        }
    }

    /// The bytes a value takes.
    pub(crate) fn range(&mut self, place: ValueLocation) -> Evaluate<Range<usize>> {
        let start = place.start as usize;
        if place.end != UNKNOWN {
            return Ok(start..place.end as usize);
        }
        let mut reader = Reader::at(self.record, start);
        reader.skip(self.schema, place.node)?;
        self.charge((reader.position() - start) / BYTES_PER_STEP)?;
        Ok(start..reader.position())
    }

    /// The items of an array that begins at `start`; `None` for other values.
    fn array(&mut self, node: NodeId, start: u32) -> Evaluate<Option<Items>> {
        match self.schema.kind(node) {
            Kind::Array(item) => Ok(Some(self.items(*item, false, start)?)),
            _ => Ok(None),
        }
    }

    pub(crate) fn items(&mut self, node: NodeId, is_map: bool, start: u32) -> Evaluate<Items> {
        let mut reader = Reader::at(self.record, start as usize);
        let count = reader.long()?;
        let count = u32::try_from(count).map_err(|_| malformed(start as usize, "a count that is not canonical"))?;
        self.charge(1)?;
        Ok(Items { node, is_map, container: start, count, next: 0, at: offset(reader.position()) })
    }

    pub(crate) fn members(&mut self, place: ValueLocation) -> Evaluate<Members<'v>> {
        let (node, start) = self.resolve(place)?;
        Ok(match self.schema.kind(node) {
            Kind::Record { fields, .. } => Members::Fields { fields, next: 0, at: start },
            Kind::Array(item) => Members::Items(self.items(*item, false, start)?),
            Kind::Map(value) => Members::Items(self.items(*value, true, start)?),
            _ => Members::None,
        })
    }

    /// The next one, with its field's name or its key. An element has neither.
    pub(crate) fn next(&mut self, members: &mut Members<'v>) -> Evaluate<Option<(&'v str, ValueLocation)>> {
        match members {
            Members::None => Ok(None),
            Members::Items(items) => self.next_item(items),
            Members::Fields { fields, next, at } => {
                let Some(field) = fields.get(*next) else { return Ok(None) };
                let start = *at;
                let mut reader = Reader::at(self.record, start as usize);
                reader.skip(self.schema, field.node)?;
                (*next, *at) = (*next + 1, offset(reader.position()));
                self.charge(1 + (*at - start) as usize / BYTES_PER_STEP)?;
                Ok(Some((&field.name, ValueLocation { node: field.node, start, end: *at, holder: Holder::Record })))
            }
        }
    }

    #[inline]
    pub(crate) fn next_item(&mut self, items: &mut Items) -> Evaluate<Option<(&'v str, ValueLocation)>> {
        if items.next == items.count {
            return Ok(None);
        }
        let entry = items.at;
        let mut reader = Reader::at(self.record, entry as usize);
        let key = if items.is_map { reader.string()? } else { "" };
        let start = offset(reader.position());
        reader.skip(self.schema, items.node)?;
        items.at = offset(reader.position());
        let (container, index) = (items.container, items.next);
        items.next += 1;
        self.charge(1 + (items.at - entry) as usize / BYTES_PER_STEP)?;
        let holder = if items.is_map { Holder::Map { container, entry } } else { Holder::Array { container, index } };
        Ok(Some((key, ValueLocation { node: items.node, start, end: items.at, holder })))
    }
}

impl Members<'_> {
    fn is_array(&self) -> bool {
        matches!(self, Self::Items(items) if !items.is_map)
    }
}

/// What a step from one place leads to.
pub(crate) enum Single {
    Absent,
    One(ValueLocation),
    /// Any number of places, from this one on.
    Many(ValueLocation),
}

fn push(out: &mut Places, place: ValueLocation) -> Evaluate<()> {
    if out.len() == LIST_PLACES {
        return Err(EvaluationError::TooManyMatches);
    }
    out.push(place);
    Ok(())
}

/// The first index, and the one after the last, that `[…]` takes out of so many; `None` for other steps.
fn positions(step: &PathStep, count: u32) -> Option<(u32, u32)> {
    // Negative bounds count from the end. All are cut to what is there.
    let bound = |bound: i64| {
        let from_start = if bound < 0 { bound.saturating_add(count.into()) } else { bound };
        u32::try_from(from_start.clamp(0, count.into())).unwrap_or(count)
    };
    match step {
        PathStep::All => Some((0, count)),
        PathStep::At(index) => Some(absolute(*index, count).map_or((0, 0), |index| (index, index + 1))),
        PathStep::Slice(from, to) => {
            let (first, after) = (from.map_or(0, bound), to.map_or(count, bound));
            Some((first, after.max(first)))
        }
        _ => None,
    }
}

/// The index counted from the start, if there is such an element.
fn absolute(index: i64, count: u32) -> Option<u32> {
    let index = if index < 0 { index.checked_add(count.into())? } else { index };
    u32::try_from(index).ok().filter(|index| *index < count)
}

/// Positions in a record fit: a larger record is refused before anything is read.
pub(crate) fn offset(position: usize) -> u32 {
    u32::try_from(position).unwrap_or(UNKNOWN)
}

fn malformed(position: usize, message: &'static str) -> Malformed {
    Malformed { position, message }
}
