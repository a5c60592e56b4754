//! Changes a record's bytes at the places that a path matches.

use std::collections::BTreeMap;
use std::ops::Range;

use millrace_avro::{
    JsonForm, Kind, Malformed, Missing, NodeId, Reader, Schema, ValueError, ValueErrorKind, canonicalise_stored,
    from_json, merge_json, write_bytes, write_length,
};
use millrace_base::{Error, ErrorCode};

use crate::edits::Edits;
use crate::evaluate::{Holder, Machine, Places, ValueLocation, offset};
use crate::syntax::{Key, PathStep, Steps};
use crate::{Budget, EvaluationError, Parameters, Path, UpdateError, check_matches, increment, json};

/// Bytes of JSON that take a step to read.
const JSON_PER_STEP: usize = 8;

/// Encoded bytes that take a step to check.
const CHECKED_PER_STEP: usize = 8;

/// Steps that checking a value takes.
const VALUE_STEPS: usize = 2;

/// Bytes that take a step to compare.
const COMPARED_PER_STEP: usize = 64;

/// Steps that it takes to sort a place in, and to change it.
const PLACE_STEPS: usize = 4;

/// Steps that it takes to look up an entry among others.
const ENTRY_STEPS: usize = 10;

/// What to do with the matches of a path. Values are JSON text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change<'a> {
    /// Every match becomes the value. A JSON object for a record sets the fields it names and leaves the rest. If the
    /// last step is a key that is not there, its entry is inserted.
    Set(&'a str),
    /// Adds the value as an element to arrays, the members of an object as entries to maps.
    Insert(&'a str),
    /// Adds the elements of a JSON array to arrays, the members of an object to maps.
    InsertAll(&'a str),
    /// Removes elements and entries.
    Delete,
    /// Empties arrays and maps.
    Clear,
    /// Adds the value to numbers.
    Increment(&'a str),
    /// Adds the value to arrays in which no element equals it.
    AppendUnique(&'a str),
}

/// What an update gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Updated {
    /// The record afterwards, canonical.
    pub record: Vec<u8>,
    /// How many places the path matched, each counted once. If there are none, nothing has changed.
    pub matched: usize,
}

/// What a test gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tested {
    /// Whether the path matches something, and every match equals the value.
    pub holds: bool,
    /// How many places it matches, each counted once.
    pub matched: usize,
}

impl From<UpdateError> for Error {
    fn from(error: UpdateError) -> Self {
        let code = match &error {
            UpdateError::Evaluation(error) => return error.clone().into(),
            UpdateError::WrongTarget(_) | UpdateError::WrongValue(_) => ErrorCode::WrongType,
            UpdateError::TooLarge => ErrorCode::TooLarge,
            UpdateError::Value(value) => match value.kind {
                ValueErrorKind::NotJson => ErrorCode::InvalidInput,
                ValueErrorKind::UnknownField => ErrorCode::UnknownField,
                ValueErrorKind::TooLarge => ErrorCode::TooLarge,
                ValueErrorKind::WrongType | ValueErrorKind::MissingField | ValueErrorKind::TooDeep => {
                    ErrorCode::WrongType
                }
                ValueErrorKind::Malformed => ErrorCode::Internal,
            },
        };
        Error::new(code, error.to_string())
    }
}

impl From<ValueError> for UpdateError {
    fn from(error: ValueError) -> Self {
        Self::Value(error)
    }
}

impl Path {
    /// The record with a change at every place that the path matches. If the change replaces or removes a match around
    /// another one, the inner match goes with it.
    ///
    /// # Errors
    /// If the path gives no result, matches something that cannot be changed so, or the value does not fit. Then
    /// nothing changes at all.
    pub fn update(
        &self,
        schema: &Schema,
        record: &[u8],
        parameters: &Parameters,
        change: Change<'_>,
    ) -> Result<Updated, UpdateError> {
        self.update_within(schema, record, parameters, change, &mut Budget::UNBOUNDED.clone())
    }

    /// The same, within a budget.
    ///
    /// # Errors
    /// As [`Path::update`], and if the budget is spent.
    pub fn update_within(
        &self,
        schema: &Schema,
        record: &[u8],
        parameters: &Parameters,
        change: Change<'_>,
        budget: &mut Budget,
    ) -> Result<Updated, UpdateError> {
        let mut machine = self.machine(schema, record, parameters, budget)?;
        let places = distinct(&mut machine, self.steps())?;
        let mut matched = places.len();
        let mut update = Update { machine, edits: Edits::default(), last: None };
        match change {
            Change::Set(value) => {
                matched += update.set_absent(self.steps(), value)?;
                places.iter().try_for_each(|place| update.set(*place, value))?;
            }
            Change::Insert(value) => places.iter().try_for_each(|place| update.insert(*place, value, false))?,
            Change::InsertAll(value) => places.iter().try_for_each(|place| update.insert(*place, value, true))?,
            Change::Delete => update.delete(&places)?,
            Change::Clear => places.iter().try_for_each(|place| update.clear(*place))?,
            Change::Increment(value) => places.iter().try_for_each(|place| update.increment(*place, value))?,
            Change::AppendUnique(value) => places.iter().try_for_each(|place| update.append_unique(*place, value))?,
        }
        check_matches(matched)?;
        let Update { mut machine, edits, .. } = update;
        machine.charge_budget(edits.cost(record))?;
        let updated = edits.apply(record)?;
        if !change.may_nest() {
            return Ok(Updated { record: updated, matched });
        }
        let (record, values) = canonicalise_stored(schema, schema.root(), &updated)?;
        machine.charge_budget(VALUE_STEPS * values + updated.len() / CHECKED_PER_STEP)?;
        Ok(Updated { record, matched })
    }

    /// Whether the path matches something and, with a value, whether every match equals it. A value that does not fit a
    /// match's type does not equal it.
    ///
    /// # Errors
    /// If the path gives no result or the value is not JSON.
    pub fn test(
        &self,
        schema: &Schema,
        record: &[u8],
        parameters: &Parameters,
        value: Option<&str>,
    ) -> Result<Tested, UpdateError> {
        self.test_within(schema, record, parameters, value, &mut Budget::UNBOUNDED.clone())
    }

    /// The same, within a budget.
    ///
    /// # Errors
    /// As [`Path::test`], and if the budget is spent.
    pub fn test_within(
        &self,
        schema: &Schema,
        record: &[u8],
        parameters: &Parameters,
        value: Option<&str>,
        budget: &mut Budget,
    ) -> Result<Tested, UpdateError> {
        let mut machine = self.machine(schema, record, parameters, budget)?;
        let places = distinct(&mut machine, self.steps())?;
        let mut holds = !places.is_empty();
        let mut update = Update { machine, edits: Edits::default(), last: None };
        if let Some(value) = value {
            for place in &places {
                holds &= update.equals(*place, value)?;
            }
        }
        Ok(Tested { holds, matched: places.len() })
    }
}

impl Change<'_> {
    /// Whether it may add values that nest, or that have no bytes. Their number in the whole record is bounded, and so
    /// is their depth.
    fn may_nest(self) -> bool {
        match self {
            Self::Set(value) | Self::Insert(value) | Self::InsertAll(value) | Self::AppendUnique(value) => {
                value.trim_start().starts_with(['{', '[', 'n'])
            }
            Self::Delete | Self::Clear | Self::Increment(_) => false,
        }
    }
}

/// The places that a path matches, each once, in the record's order. A place comes before those within it.
fn distinct<'v>(machine: &mut Machine<'v>, path: &'v Steps) -> Result<Places, UpdateError> {
    let root = machine.root();
    let mut places = machine.follow(path, root)?;
    check_matches(places.len())?;
    machine.charge(PLACE_STEPS * places.len())?;
    for place in &mut places {
        place.end = offset(machine.range(*place)?.end);
    }
    places.sort_by_key(|place| (place.start, std::cmp::Reverse(place.end), place.node, place.holder));
    places.dedup();
    Ok(places)
}

struct Update<'v> {
    machine: Machine<'v>,
    edits: Edits,
    /// The value as encoded for the last node. Matches are mostly of one type.
    last: Option<(NodeId, Range<usize>)>,
}

/// An existing array or map, walked to its end.
struct Container {
    item: NodeId,
    is_map: bool,
    /// Where the count is, where the items begin, and where the end mark is.
    start: usize,
    items: usize,
    end: usize,
    count: usize,
}

type Outcome<T> = Result<T, UpdateError>;

impl<'v> Update<'v> {
    /// The value encoded for a node. It is read once for all matches of that node.
    fn encode(&mut self, node: NodeId, value: &str) -> Outcome<Range<usize>> {
        if let Some((last, range)) = &self.last
            && *last == node
        {
            return Ok(range.clone());
        }
        self.machine.charge(1 + value.len() / JSON_PER_STEP)?;
        let schema = self.machine.schema;
        let write = |out: &mut Vec<u8>| {
            from_json(schema, node, value.as_bytes(), JsonForm::Plain, Missing::Default, out)
                .map_err(UpdateError::Value)
        };
        let range = self.edits.keep(write)?;
        self.last = Some((node, range.clone()));
        Ok(range)
    }

    fn set(&mut self, place: ValueLocation, value: &str) -> Outcome<()> {
        let (node, start) = self.machine.resolve(place)?;
        let is_record = matches!(self.machine.schema.kind(node), Kind::Record { .. });
        if is_record && value.trim_start().starts_with('{') {
            match self.merge(node, start as usize..place.end as usize, value) {
                // An object may be for another branch.
                Err(UpdateError::Value(_)) if self.has_other_branches(place.node) => {}
                other => return other,
            }
        }
        let new = self.encode(place.node, value)?;
        self.edits.replace(place.start as usize..place.end as usize, new);
        Ok(())
    }

    fn merge(&mut self, node: NodeId, range: Range<usize>, value: &str) -> Outcome<()> {
        self.machine.charge(1 + value.len() / JSON_PER_STEP + range.len() / CHECKED_PER_STEP)?;
        let (schema, before) = (self.machine.schema, &self.machine.record[range.clone()]);
        let write = |out: &mut Vec<u8>| {
            let start = out.len();
            let merged = merge_json(schema, node, before, value.as_bytes(), JsonForm::Plain, Missing::Default, out);
            merged.map_err(|error| {
                out.truncate(start);
                UpdateError::Value(error)
            })
        };
        let new = self.edits.keep(write)?;
        self.edits.replace(range, new);
        Ok(())
    }

    /// Whether it is a union of more than null and one other.
    fn has_other_branches(&self, node: NodeId) -> bool {
        let schema = self.machine.schema;
        match schema.kind(node) {
            Kind::Union(branches) => {
                branches.iter().filter(|branch| !matches!(schema.kind(**branch), Kind::Null)).count() > 1
            }
            _ => false,
        }
    }

    /// Inserts the entries that the path's last step names and that are not there. Returns how many.
    fn set_absent(&mut self, path: &'v Steps, value: &str) -> Outcome<usize> {
        let Some((last, before)) = path.steps.split_last() else { return Ok(0) };
        let mut names: Vec<&str> = Vec::new();
        match last {
            PathStep::Name { name, .. } => names.push(name),
            PathStep::Keys(keys) => {
                for key in keys {
                    match key {
                        Key::Text(text) if !names.contains(&&**text) => names.push(text),
                        _ => {}
                    }
                }
            }
            _ => return Ok(0),
        }
        let root = self.machine.root();
        let mut places = self.machine.follow_steps(path.from_root, before, root)?;
        check_matches(places.len())?;
        places.sort_by_key(|place| place.start);
        let mut inserted = 0;
        let mut done = None;
        for place in places {
            let (node, start) = self.machine.resolve(place)?;
            let Kind::Map(item) = self.machine.schema.kind(node) else { continue };
            if done.replace(start) == Some(start) {
                continue;
            }
            let mut absent = names.clone();
            let mut items = self.machine.items(*item, true, start)?;
            while let Some((key, _)) = self.machine.next_item(&mut items)? {
                self.machine.charge(absent.len() / 8)?;
                absent.retain(|name| *name != key);
            }
            if absent.is_empty() {
                continue;
            }
            let container = self.container(place)?.ok_or_else(not_canonical)?;
            let new = self.encode(*item, value)?;
            let entries = self.edits.keep(|out| {
                for key in &absent {
                    write_bytes(out, key.as_bytes());
                    out.extend_from_within(new.clone());
                }
                Ok::<(), UpdateError>(())
            })?;
            self.append(&container, absent.len(), entries)?;
            inserted += absent.len();
        }
        Ok(inserted)
    }

    /// The array or map at a place; `None` for anything else.
    fn container(&mut self, place: ValueLocation) -> Outcome<Option<Container>> {
        let (node, start) = self.machine.resolve(place)?;
        let (item, is_map) = match self.machine.schema.kind(node) {
            Kind::Array(item) => (*item, false),
            Kind::Map(item) => (*item, true),
            _ => return Ok(None),
        };
        let items = self.machine.items(item, is_map, start)?;
        let end = self.machine.range(place)?.end - 1;
        let (start, first, count) = (start as usize, items.at as usize, items.count as usize);
        Ok(Some(Container { item, is_map, start, items: first, end, count }))
    }

    /// Puts encoded items behind the existing ones.
    fn append(&mut self, container: &Container, added: usize, items: Range<usize>) -> Outcome<()> {
        if added == 0 {
            return Ok(());
        }
        let count = self.edits.keep(|out| {
            write_length(out, container.count + added);
            Ok::<(), UpdateError>(())
        })?;
        if container.count > 0 {
            self.edits.replace(container.start..container.items, count);
            self.edits.replace(container.end..container.end, items);
            return Ok(());
        }
        // The array has only its end mark; the count and the items go before it.
        let whole = self.edits.keep(|out| {
            out.extend_from_within(count);
            out.extend_from_within(items);
            Ok::<(), UpdateError>(())
        })?;
        self.edits.replace(container.start..container.start, whole);
        Ok(())
    }

    fn insert(&mut self, place: ValueLocation, value: &str, is_all: bool) -> Outcome<()> {
        let container = match self.container(place)? {
            Some(container) => container,
            None => return Err(self.wrong_target(place, "inserting is for arrays and maps")),
        };
        if !container.is_map && !is_all {
            let items = self.encode(container.item, value)?;
            return self.append(&container, 1, items);
        }
        let (node, _) = self.machine.resolve(place)?;
        let encoded = self.encode(node, value)?;
        let mut reader = Reader::at(self.edits.kept(encoded.clone()), 0);
        let added = reader.long()?;
        let added = usize::try_from(added).map_err(|_| not_canonical())?;
        // Without the count and the end mark.
        let items = encoded.start + reader.position()..encoded.end - 1;
        if added == 0 {
            return Ok(());
        }
        if container.is_map {
            self.insert_entries(place, &container, added, items)
        } else {
            self.append(&container, added, items)
        }
    }

    /// An entry whose key is there replaces that one's value. The others come behind.
    fn insert_entries(
        &mut self,
        place: ValueLocation,
        container: &Container,
        added: usize,
        entries: Range<usize>,
    ) -> Outcome<()> {
        self.machine.charge(ENTRY_STEPS * added + entries.len() / CHECKED_PER_STEP)?;
        let schema = self.machine.schema;
        let kept = self.edits.kept(0..entries.end);
        let mut reader = Reader::at(kept, entries.start);
        let mut new: BTreeMap<String, (usize, Range<usize>, Range<usize>)> = BTreeMap::new();
        for index in 0..added {
            let start = reader.position();
            let key = reader.string()?.to_owned();
            let value = reader.position();
            reader.skip(schema, container.item)?;
            new.insert(key, (index, start..reader.position(), value..reader.position()));
        }
        let mut members = self.machine.members(place)?;
        while let Some((key, there)) = self.machine.next(&mut members)? {
            self.machine.charge(ENTRY_STEPS)?;
            if let Some((_, _, value)) = new.remove(key) {
                self.edits.replace(there.start as usize..there.end as usize, value);
            }
        }
        // In the order given.
        let mut rest: Vec<_> = new.into_values().collect();
        rest.sort_unstable_by_key(|(index, ..)| *index);
        let items = self.edits.keep(|out| {
            for (_, entry, _) in &rest {
                out.extend_from_within(entry.clone());
            }
            Ok::<(), UpdateError>(())
        })?;
        self.append(container, rest.len(), items)
    }

    fn append_unique(&mut self, place: ValueLocation, value: &str) -> Outcome<()> {
        let container = match self.container(place)? {
            Some(container) if !container.is_map => container,
            _ => return Err(self.wrong_target(place, "appending is for arrays")),
        };
        let new = self.encode(container.item, value)?;
        let mut members = self.machine.members(place)?;
        while let Some((_, there)) = self.machine.next(&mut members)? {
            self.machine.charge(1 + new.len().min((there.end - there.start) as usize) / COMPARED_PER_STEP)?;
            let there = &self.machine.record[there.start as usize..there.end as usize];
            if self.edits.kept(new.clone()) == there {
                return Ok(());
            }
        }
        self.append(&container, 1, new)
    }

    fn delete(&mut self, places: &[ValueLocation]) -> Outcome<()> {
        let mut removed: BTreeMap<u32, i64> = BTreeMap::new();
        for place in places {
            let (container, start) = match place.holder {
                Holder::Array { container, .. } => (container, place.start),
                Holder::Map { container, entry } => (container, entry),
                Holder::None => return Err(self.wrong_target(*place, "a path cannot delete the record")),
                Holder::Record => {
                    return Err(self.wrong_target(*place, "deleting is for elements and entries; fields are set"));
                }
            };
            *removed.entry(container).or_default() += 1;
            self.edits.remove(start as usize..place.end as usize);
        }
        for (container, removed) in removed {
            let mut reader = Reader::at(self.machine.record, container as usize);
            let left = reader.long()? - removed;
            let left = usize::try_from(left).map_err(|_| not_canonical())?;
            let count = self.edits.keep(|out| {
                // An array that becomes empty is only its end mark.
                if left > 0 {
                    write_length(out, left);
                }
                Ok::<(), UpdateError>(())
            })?;
            self.edits.replace(container as usize..reader.position(), count);
        }
        Ok(())
    }

    fn clear(&mut self, place: ValueLocation) -> Outcome<()> {
        match self.container(place)? {
            Some(container) => {
                self.edits.remove(container.start..container.end);
                Ok(())
            }
            None => Err(self.wrong_target(place, "clearing is for arrays and maps")),
        }
    }

    fn increment(&mut self, place: ValueLocation, value: &str) -> Outcome<()> {
        let (node, start) = self.machine.resolve(place)?;
        if !increment::is_number(self.machine.schema, node) {
            return Err(self.wrong_target(place, "incrementing is for numbers"));
        }
        self.machine.charge(ENTRY_STEPS + value.len() / JSON_PER_STEP)?;
        let range = start as usize..place.end as usize;
        let (schema, before) = (self.machine.schema, &self.machine.record[range.clone()]);
        let new = self.edits.keep(|out| increment::increment(schema, node, before, value, out))?;
        self.edits.replace(range, new);
        Ok(())
    }

    fn equals(&mut self, place: ValueLocation, value: &str) -> Outcome<bool> {
        let expected = match self.encode(place.node, value) {
            Ok(expected) => expected,
            Err(UpdateError::Value(error)) if error.kind == ValueErrorKind::NotJson => return Err(error.into()),
            Err(UpdateError::Value(_)) => return Ok(false),
            Err(error) => return Err(error),
        };
        self.machine.charge(1 + expected.len() / COMPARED_PER_STEP)?;
        let (found, expected) =
            (&self.machine.record[place.start as usize..place.end as usize], self.edits.kept(expected));
        if found == expected || !value.trim_start().starts_with(['{', '[']) {
            return Ok(found == expected);
        }
        // Equal maps may have their entries in another order.
        self.machine.charge(2 * (found.len() + expected.len()))?;
        let schema = self.machine.schema;
        Ok(json::tree(schema, place.node, found)? == json::tree(schema, place.node, expected)?)
    }

    /// Says what the path matches instead.
    fn wrong_target(&self, place: ValueLocation, rule: &str) -> UpdateError {
        let schema = self.machine.schema;
        let found = match self.machine.resolve(place).map(|(node, _)| schema.kind(node)) {
            Ok(kind) => kind_name(kind),
            Err(error) => return error.into(),
        };
        let held = match place.holder {
            Holder::Record => " that is a field",
            _ => "",
        };
        UpdateError::WrongTarget(format!("{rule}, and the path matches {found}{held}"))
    }
}

fn kind_name(kind: &Kind) -> &'static str {
    match kind {
        Kind::Null => "null",
        Kind::Boolean => "a boolean",
        Kind::Int | Kind::Long | Kind::Float | Kind::Double => "a number",
        Kind::Bytes | Kind::Fixed { .. } => "bytes",
        Kind::String => "a string",
        Kind::Array(_) => "an array",
        Kind::Map(_) => "a map",
        Kind::Union(_) => "a union",
        Kind::Record { .. } => "a record",
        Kind::Enum { .. } => "an enum",
    }
}

fn not_canonical() -> UpdateError {
    let malformed = Malformed { position: 0, message: "a count that is not canonical" };
    UpdateError::Evaluation(EvaluationError::Malformed(malformed))
}
