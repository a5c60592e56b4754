//! Random types, values, paths and changes, and a model of them. The model works on JSON trees and was written from the
//! guide alone.
#![allow(dead_code, reason = "each program uses a part of it")]

use std::collections::BTreeSet;

use proptest::prelude::*;
use serde_json::{Map, Value, json};

#[derive(Clone, Debug)]
pub enum Type {
    Long,
    Double,
    Text,
    Boolean,
    Nullable(Box<Type>),
    Array(Box<Type>),
    Map(Box<Type>),
    Record(Vec<(String, Type)>),
}

pub const NAMES: [&str; 4] = ["a", "b", "c", "d"];

impl Type {
    pub fn schema(&self, records: &mut usize) -> Value {
        match self {
            Self::Long => json!("long"),
            Self::Double => json!("double"),
            Self::Text => json!("string"),
            Self::Boolean => json!("boolean"),
            Self::Nullable(inner) => json!(["null", inner.schema(records)]),
            Self::Array(item) => json!({"type": "array", "items": item.schema(records)}),
            Self::Map(value) => json!({"type": "map", "values": value.schema(records)}),
            Self::Record(fields) => {
                *records += 1;
                let name = format!("R{records}");
                let fields: Vec<Value> =
                    fields.iter().map(|(name, of)| json!({"name": name, "type": of.schema(records)})).collect();
                json!({"type": "record", "name": name, "fields": fields})
            }
        }
    }

    pub fn value(&self) -> BoxedStrategy<Value> {
        match self {
            Self::Long => (-3_i64..8).prop_map(Value::from).boxed(),
            Self::Double => (-3_i32..8).prop_map(|n| json!(f64::from(n) / 2.0)).boxed(),
            Self::Text => prop::sample::select(vec!["", "a", "A", "ab", "5", "ä"]).prop_map(Value::from).boxed(),
            Self::Boolean => any::<bool>().prop_map(Value::from).boxed(),
            Self::Nullable(inner) => prop_oneof![1 => Just(Value::Null), 3 => inner.value()].boxed(),
            Self::Array(item) => prop::collection::vec(item.value(), 0..5).prop_map(Value::from).boxed(),
            Self::Map(value) => prop::collection::btree_map(prop::sample::select(&NAMES[..]), value.value(), 0..4)
                .prop_map(|map| Value::Object(map.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()))
                .boxed(),
            Self::Record(fields) => fields
                .iter()
                .fold(Just(Map::new()).boxed(), |record, (name, of)| {
                    let name = name.clone();
                    (record, of.value())
                        .prop_map(move |(mut record, value)| {
                            record.insert(name.clone(), value);
                            record
                        })
                        .boxed()
                })
                .prop_map(Value::Object)
                .boxed(),
        }
    }

    pub fn zero(&self) -> Value {
        match self {
            Self::Long => json!(0),
            Self::Double => json!(0.0),
            Self::Text => json!(""),
            Self::Boolean => json!(false),
            Self::Nullable(_) => Value::Null,
            Self::Array(_) => json!([]),
            Self::Map(_) => json!({}),
            Self::Record(fields) => fields.iter().map(|(name, of)| (name.clone(), of.zero())).collect(),
        }
    }

    /// The value with its missing parts filled in; `None` if it does not fit.
    pub fn accept(&self, value: &Value) -> Option<Value> {
        match (self, value) {
            (Self::Long, Value::Number(number)) => number.as_i64().map(Value::from),
            (Self::Double, Value::Number(number)) => number.as_f64().map(Value::from),
            (Self::Text, Value::String(_)) | (Self::Boolean, Value::Bool(_)) => Some(value.clone()),
            (Self::Nullable(_), Value::Null) => Some(Value::Null),
            (Self::Nullable(inner), _) => inner.accept(value),
            (Self::Array(item), Value::Array(items)) => items.iter().map(|value| item.accept(value)).collect(),
            (Self::Map(of), Value::Object(map)) => {
                map.iter().map(|(key, value)| Some((key.clone(), of.accept(value)?))).collect()
            }
            (Self::Record(fields), Value::Object(map)) => {
                let known = |name: &String| fields.iter().any(|(field, _)| field == name);
                let filled = fields.iter().map(|(name, of)| {
                    let value = map.get(name).map_or(Some(of.zero()), |value| of.accept(value));
                    Some((name.clone(), value?))
                });
                if map.keys().all(known) { filled.collect() } else { None }
            }
            _ => None,
        }
    }

    pub fn has_maps(&self) -> bool {
        match self {
            Self::Map(_) => true,
            Self::Nullable(inner) | Self::Array(inner) => inner.has_maps(),
            Self::Record(fields) => fields.iter().any(|(_, of)| of.has_maps()),
            _ => false,
        }
    }

    /// The type without its `null`.
    pub fn inner(&self) -> &Type {
        if let Self::Nullable(inner) = self { inner } else { self }
    }
}

pub fn types(depth: u32) -> BoxedStrategy<Type> {
    let scalar = prop_oneof![Just(Type::Long), Just(Type::Double), Just(Type::Text), Just(Type::Boolean)];
    if depth == 0 {
        return scalar.boxed();
    }
    let plain = prop_oneof![
        2 => scalar,
        2 => types(depth - 1).prop_map(|item| Type::Array(Box::new(item))),
        2 => types(depth - 1).prop_map(|value| Type::Map(Box::new(value))),
        3 => record_type(depth - 1),
    ];
    (plain, prop::bool::weighted(0.3))
        .prop_map(|(plain, nullable)| match plain {
            plain if nullable && !matches!(plain, Type::Nullable(_)) => Type::Nullable(Box::new(plain)),
            plain => plain,
        })
        .boxed()
}

pub fn record_type(depth: u32) -> impl Strategy<Value = Type> {
    prop::collection::vec(types(depth), 1..4)
        .prop_map(|fields| Type::Record(NAMES.iter().map(|name| (*name).to_owned()).zip(fields).collect()))
}

#[derive(Clone, Debug)]
pub enum PathStep {
    Name(&'static str),
    Members,
    Descendants,
    Named(&'static str),
    Within,
    All,
    At(i64),
    Slice(Option<i64>, Option<i64>),
    Filter(Condition),
    Keys(Vec<&'static str>),
    Matching(&'static str),
    Either(Vec<PathStep>, Vec<PathStep>),
}

#[derive(Clone, Debug)]
pub enum Condition {
    Exists(Vec<PathStep>),
    Compare(Vec<PathStep>, &'static str, Value),
    Both(Vec<PathStep>, &'static str, Vec<PathStep>),
    Sum(Vec<PathStep>, i64, i64),
    Not(Box<Condition>),
    And(Box<Condition>, Box<Condition>),
    Or(Box<Condition>, Box<Condition>),
}

pub fn paths(depth: u32) -> BoxedStrategy<Vec<PathStep>> {
    prop::collection::vec(steps(depth), 1..4).boxed()
}

pub fn steps(depth: u32) -> BoxedStrategy<PathStep> {
    let name = || prop::sample::select(&NAMES[..]);
    let bound = || prop::option::of(-3_i64..4);
    let flat = prop_oneof![
        6 => name().prop_map(PathStep::Name),
        2 => Just(PathStep::Members),
        1 => Just(PathStep::Descendants),
        1 => name().prop_map(PathStep::Named),
        1 => Just(PathStep::Within),
        3 => Just(PathStep::All),
        2 => (-3_i64..4).prop_map(PathStep::At),
        1 => (bound(), bound()).prop_filter("a bound", |(from, to)| from.is_some() || to.is_some())
            .prop_map(|(from, to)| PathStep::Slice(from, to)),
        2 => prop::collection::vec(name(), 1..5).prop_map(PathStep::Keys),
        1 => prop::sample::select(vec!["a", ".*", "[bc]", "a|d"]).prop_map(PathStep::Matching),
    ];
    if depth == 0 {
        return flat.boxed();
    }
    prop_oneof![
        5 => flat,
        3 => conditions(depth - 1).prop_map(PathStep::Filter),
        1 => (paths(depth - 1), paths(depth - 1)).prop_map(|(a, b)| PathStep::Either(a, b)),
    ]
    .boxed()
}

pub fn conditions(depth: u32) -> BoxedStrategy<Condition> {
    let operator = || prop::sample::select(vec!["==", "!=", "===", "!==", "<", "<=", ">", ">=", "^=", "*==", "$="]);
    let literal = prop_oneof![
        (-3_i64..6).prop_map(Value::from),
        Just(json!(0.5)),
        prop::sample::select(vec!["a", "A", "b", "5"]).prop_map(Value::from),
        Just(json!(true)),
        Just(Value::Null),
    ];
    let flat = prop_oneof![
        2 => paths(depth).prop_map(Condition::Exists),
        5 => (paths(depth), operator(), literal).prop_map(|(path, op, value)| Condition::Compare(path, op, value)),
        1 => (paths(depth), operator(), paths(depth)).prop_map(|(a, op, b)| Condition::Both(a, op, b)),
        1 => (paths(depth), -3_i64..4, -3_i64..6).prop_map(|(path, add, least)| Condition::Sum(path, add, least)),
    ];
    if depth == 0 {
        return flat.boxed();
    }
    let inner = || conditions(depth - 1).prop_map(Box::new);
    prop_oneof![
        4 => flat,
        1 => inner().prop_map(Condition::Not),
        1 => (inner(), inner()).prop_map(|(a, b)| Condition::And(a, b)),
        1 => (inner(), inner()).prop_map(|(a, b)| Condition::Or(a, b)),
    ]
    .boxed()
}

pub fn path_text(path: &[PathStep]) -> String {
    // `.` first: not every step can begin a path.
    let steps: Vec<String> = path.iter().map(step_text).collect();
    format!(".{}", steps.concat()).replacen(
        "..",
        ".",
        usize::from(matches!(path[0], PathStep::Name(_) | PathStep::Members)),
    )
}

pub fn step_text(step: &PathStep) -> String {
    let bound = |bound: &Option<i64>| bound.map(|n| n.to_string()).unwrap_or_default();
    match step {
        PathStep::Name(name) => format!(".{name}"),
        PathStep::Members => ".*".to_owned(),
        PathStep::Descendants => " ..".to_owned(),
        PathStep::Named(name) => format!(" ..{name}"),
        PathStep::Within => " ..*".to_owned(),
        PathStep::All => "[*]".to_owned(),
        PathStep::At(index) => format!("[{index}]"),
        PathStep::Slice(from, to) => format!("[{}:{}]", bound(from), bound(to)),
        PathStep::Filter(condition) => format!("{{{}}}", condition_text(condition)),
        PathStep::Keys(keys) => {
            format!("({})", keys.iter().map(|key| format!("{key:?}")).collect::<Vec<_>>().join("|"))
        }
        PathStep::Matching(pattern) => format!("(~\"{pattern}\")"),
        PathStep::Either(a, b) => format!("({}|{})", path_text(a), path_text(b)),
    }
}

pub fn condition_text(condition: &Condition) -> String {
    match condition {
        Condition::Exists(path) => path_text(path),
        Condition::Compare(path, operator, value) => format!("{} {operator} {value}", path_text(path)),
        Condition::Both(a, operator, b) => format!("{} {operator} {}", path_text(a), path_text(b)),
        Condition::Sum(path, add, least) => format!("{} + {add} >= {least}", path_text(path)),
        Condition::Not(inner) => format!("!({})", condition_text(inner)),
        Condition::And(a, b) => format!("({}) && ({})", condition_text(a), condition_text(b)),
        Condition::Or(a, b) => format!("({}) || ({})", condition_text(a), condition_text(b)),
    }
}

/// A value, its type, and the way to it.
#[derive(Clone, Debug)]
pub struct ValueLocation<'t> {
    pub of: &'t Type,
    pub value: Value,
    pub way: Vec<String>,
}

impl<'t> ValueLocation<'t> {
    pub fn members(&self) -> Vec<(Option<String>, ValueLocation<'t>)> {
        let below = |step: &str, of: &'t Type, value: &Value| {
            let way = self.way.iter().cloned().chain([step.to_owned()]).collect();
            ValueLocation { of, value: value.clone(), way }
        };
        match (self.of.inner(), &self.value) {
            (Type::Array(item), Value::Array(items)) => {
                items.iter().enumerate().map(|(n, value)| (None, below(&n.to_string(), item, value))).collect()
            }
            (Type::Map(of), Value::Object(map)) => {
                map.iter().map(|(key, value)| (Some(key.clone()), below(key, of, value))).collect()
            }
            (Type::Record(fields), Value::Object(map)) => {
                fields.iter().map(|(name, of)| (Some(name.clone()), below(name, of, &map[name]))).collect()
            }
            _ => Vec::new(),
        }
    }

    pub fn is_array(&self) -> bool {
        self.value.is_array()
    }

    pub fn is_map(&self) -> bool {
        matches!(self.of.inner(), Type::Map(_)) && self.value.is_object()
    }

    /// Those whose name passes. It looks into arrays.
    pub fn named(&self, passes: &dyn Fn(&str) -> bool) -> Vec<ValueLocation<'t>> {
        let mut found = Vec::new();
        for (name, member) in self.members() {
            match name {
                None => found.extend(member.named(passes)),
                Some(name) if passes(&name) => found.push(member),
                Some(_) => {}
            }
        }
        found
    }

    pub fn within(&self) -> Vec<(Option<String>, ValueLocation<'t>)> {
        self.members()
            .into_iter()
            .flat_map(|(name, member)| {
                let below = member.within();
                [(name, member)].into_iter().chain(below)
            })
            .collect()
    }
}

pub fn select<'t>(path: &[PathStep], from: &ValueLocation<'t>) -> Vec<ValueLocation<'t>> {
    let mut places = vec![from.clone()];
    let mut filtered = false;
    for step in path {
        let is_filter = matches!(step, PathStep::Filter(_));
        places = match step {
            PathStep::Either(a, b) => {
                let both = [a, b];
                both.iter().flat_map(|path| places.iter().flat_map(|place| select(path, place))).collect()
            }
            PathStep::All | PathStep::At(_) | PathStep::Slice(..) if filtered => cut(step, &places),
            PathStep::Filter(condition) if filtered => {
                places.into_iter().filter(|place| holds(condition, place)).collect()
            }
            _ => places.iter().flat_map(|place| one(step, place)).collect(),
        };
        filtered = is_filter;
    }
    places
}

pub fn one<'t>(step: &PathStep, place: &ValueLocation<'t>) -> Vec<ValueLocation<'t>> {
    let only =
        |members: Vec<(Option<String>, ValueLocation<'t>)>| members.into_iter().map(|(_, member)| member).collect();
    match step {
        PathStep::Name(name) => place.named(&|key| key == *name),
        PathStep::Keys(keys) => place.named(&|key| keys.contains(&key)),
        PathStep::Matching("a") => place.named(&|key| key == "a"),
        PathStep::Matching("[bc]") => place.named(&|key| key == "b" || key == "c"),
        PathStep::Matching("a|d") => place.named(&|key| key == "a" || key == "d"),
        PathStep::Matching(_) => place.named(&|_| true),
        PathStep::Members => only(place.members()),
        PathStep::Descendants => [place.clone()].into_iter().chain(only(place.within())).collect(),
        PathStep::Within => only(place.within()),
        PathStep::Named(name) => {
            place.within().into_iter().filter(|(key, _)| key.as_deref() == Some(name)).map(|(_, place)| place).collect()
        }
        PathStep::All | PathStep::At(_) | PathStep::Slice(..) if place.is_array() => cut(step, &only(place.members())),
        PathStep::Filter(condition) => {
            let tested = if place.is_array() || place.is_map() { only(place.members()) } else { vec![place.clone()] };
            tested.into_iter().filter(|place| holds(condition, place)).collect()
        }
        _ => Vec::new(),
    }
}

pub fn cut<'t>(step: &PathStep, items: &[ValueLocation<'t>]) -> Vec<ValueLocation<'t>> {
    let count = items.len() as i64;
    let from_start = |index: i64| if index < 0 { index + count } else { index };
    let (first, after) = match step {
        PathStep::At(index) => (from_start(*index), from_start(*index) + 1),
        PathStep::Slice(from, to) => (from.map_or(0, from_start), to.map_or(count, from_start)),
        _ => (0, count),
    };
    let is_in = |n: i64| n >= first && n < after;
    items.iter().enumerate().filter(|(n, _)| is_in(*n as i64)).map(|(_, place)| place.clone()).collect()
}

/// Values to compare: arrays stand for their elements.
pub fn operands(path: &[PathStep], here: &ValueLocation<'_>) -> Vec<Value> {
    let found = select(path, here).into_iter().map(|place| place.value);
    found.flat_map(|value| if let Value::Array(items) = value { items } else { vec![value] }).collect()
}

pub fn holds(condition: &Condition, here: &ValueLocation<'_>) -> bool {
    match condition {
        Condition::Exists(path) => {
            operands(path, here).iter().any(|value| !matches!(value, Value::Null | Value::Bool(false)))
        }
        Condition::Compare(path, operator, literal) => {
            operands(path, here).iter().any(|value| compare(operator, value, literal))
        }
        Condition::Both(a, operator, b) => {
            let right = operands(b, here);
            operands(a, here).iter().any(|a| right.iter().any(|b| compare(operator, a, b)))
        }
        Condition::Sum(path, add, least) => {
            let first = operands(path, here).into_iter().next();
            first.and_then(|value| value.as_f64()).is_some_and(|n| n + *add as f64 >= *least as f64)
        }
        Condition::Not(inner) => !holds(inner, here),
        Condition::And(a, b) => holds(a, here) && holds(b, here),
        Condition::Or(a, b) => holds(a, here) || holds(b, here),
    }
}

pub fn compare(operator: &str, a: &Value, b: &Value) -> bool {
    let number = |value: &Value, other: &Value| match value {
        Value::String(text) if other.is_number() => text.parse::<f64>().ok(),
        value => value.as_f64(),
    };
    let order = match (a, b) {
        (Value::String(a), Value::String(b)) => Some(a.cmp(b)),
        (Value::Bool(a), Value::Bool(b)) => Some(a.cmp(b)),
        (Value::Null, Value::Null) => Some(std::cmp::Ordering::Equal),
        _ => number(a, b).zip(number(b, a)).and_then(|(a, b)| a.partial_cmp(&b)),
    };
    let text = |value: &Value| match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => {
            Some(number.as_i64().map_or(number.as_f64().expect("a number").to_string(), |n| n.to_string()))
        }
        Value::Bool(value) => Some(value.to_string()),
        _ => None,
    };
    let lower = |value: &Value| text(value).map(|text| text.to_lowercase());
    let equal = match (a, b) {
        (Value::String(a), Value::String(b)) => a.to_lowercase() == b.to_lowercase(),
        (Value::Object(_) | Value::Array(_), Value::Object(_) | Value::Array(_)) => a == b,
        _ => order.is_some_and(|order| order.is_eq()),
    };
    let is_text = a.is_string() == b.is_string();
    let same = match (a, b) {
        (Value::String(a), Value::String(b)) => a == b,
        _ => is_text && equal,
    };
    match operator {
        "==" => equal,
        "!=" => !equal,
        "===" => same,
        "!==" => !same,
        "<" => order.is_some_and(|order| order.is_lt()),
        "<=" => order.is_some_and(|order| order.is_le()),
        ">" => order.is_some_and(|order| order.is_gt()),
        ">=" => order.is_some_and(|order| order.is_ge()),
        "^=" => lower(a).zip(lower(b)).is_some_and(|(a, b)| a.starts_with(&b)),
        "$=" => lower(a).zip(lower(b)).is_some_and(|(a, b)| a.ends_with(&b)),
        _ => a.as_str().zip(b.as_str()).is_some_and(|(a, b)| a.contains(b)),
    }
}

#[derive(Clone, Debug)]
pub enum Edit {
    Set(Value),
    Insert(Value),
    InsertAll(Value),
    Delete,
    Clear,
    Increment(i64),
    AppendUnique(Value),
}

pub fn edits() -> impl Strategy<Value = Edit> {
    let value = || {
        prop::sample::select(vec![
            json!(5),
            json!(2.5),
            json!("ab"),
            json!(true),
            Value::Null,
            json!({}),
            json!([]),
            json!({"a": 1}),
            json!({"b": "x", "d": 2}),
            json!([1, 2]),
            json!({"a": {}, "c": {}}),
            json!([[]]),
            json!([{}, {"a": 5}]),
        ])
    };
    prop_oneof![
        4 => value().prop_map(Edit::Set),
        2 => value().prop_map(Edit::Insert),
        2 => value().prop_map(Edit::InsertAll),
        2 => Just(Edit::Delete),
        1 => Just(Edit::Clear),
        1 => (-3_i64..4).prop_map(Edit::Increment),
        1 => value().prop_map(Edit::AppendUnique),
    ]
}

/// What a change makes of one matched value; `None` if it cannot be done.
pub fn changed(edit: &Edit, place: &ValueLocation<'_>) -> Option<Value> {
    match (edit, place.of.inner(), &place.value) {
        (Edit::Set(Value::Object(new)), Type::Record(fields), Value::Object(old)) => {
            let mut merged = old.clone();
            for (name, value) in new {
                let (_, of) = fields.iter().find(|(field, _)| field == name)?;
                merged.insert(name.clone(), of.accept(value)?);
            }
            Some(Value::Object(merged))
        }
        (Edit::Set(value), ..) => place.of.accept(value),
        (Edit::Clear, _, Value::Array(_)) => Some(json!([])),
        (Edit::Clear, Type::Map(_), Value::Object(_)) => Some(json!({})),
        (Edit::Increment(by), Type::Long, Value::Number(old)) => Some(json!(old.as_i64()? + by)),
        (Edit::Increment(by), Type::Double, Value::Number(old)) => Some(json!(old.as_f64()? + *by as f64)),
        (Edit::Insert(value), Type::Array(item), Value::Array(items)) => {
            Some(items.iter().cloned().chain([item.accept(value)?]).collect())
        }
        (Edit::InsertAll(value @ Value::Array(_)), Type::Array(_), Value::Array(items)) => {
            let new = place.of.inner().accept(value)?;
            Some(items.iter().chain(new.as_array()?).cloned().collect())
        }
        (Edit::Insert(value) | Edit::InsertAll(value), Type::Map(_), Value::Object(old)) => {
            let Value::Object(new) = place.of.inner().accept(value)? else { return None };
            Some(Value::Object(old.clone().into_iter().chain(new).collect()))
        }
        (Edit::AppendUnique(value), Type::Array(item), Value::Array(items)) => {
            let new = item.accept(value)?;
            let known = items.contains(&new);
            Some(items.iter().cloned().chain((!known).then_some(new)).collect())
        }
        _ => None,
    }
}

/// The value at a way.
pub fn at<'v>(root: &'v mut Value, way: &[String]) -> &'v mut Value {
    way.iter().fold(root, |value, step| match value {
        Value::Array(items) => &mut items[step.parse::<usize>().expect("an index")],
        Value::Object(map) => map.get_mut(step).expect("a member"),
        _ => panic!("nothing at {step}"),
    })
}

/// The record after a change and how many places matched; `None` if it cannot be done.
pub fn update(path: &[PathStep], root: &ValueLocation<'_>, edit: &Edit) -> Option<(Value, usize)> {
    let mut seen = BTreeSet::new();
    let mut places: Vec<ValueLocation<'_>> =
        select(path, root).into_iter().filter(|place| seen.insert(place.way.clone())).collect();
    let mut record = root.value.clone();
    let mut matched = places.len();
    if matches!(edit, Edit::Delete) {
        return delete(root, &places).map(|record| (record, matched));
    }
    // The first places, which can take others with them, come last, so that their content is settled by then. A change
    // that replaces a whole value does not depend on the content.
    places.sort_by_key(|place| std::cmp::Reverse(place.way.len()));
    for place in &places {
        let alone = changed(edit, place)?;
        let now = at(&mut record, &place.way);
        let settled = ValueLocation { value: now.clone(), ..place.clone() };
        let keeps_inner = matches!(edit, Edit::Insert(_) | Edit::InsertAll(_) | Edit::AppendUnique(_));
        *now = match keeps_inner {
            true if matches!(edit, Edit::AppendUnique(_)) && alone == place.value => now.clone(),
            true => grown(edit, place, &settled)?,
            false => alone,
        };
    }
    if let (Edit::Set(value), Some((PathStep::Name(_) | PathStep::Keys(_), before))) = (edit, path.split_last()) {
        let names = if let Some(PathStep::Keys(keys)) = path.last() { keys.clone() } else { last_name(path) };
        let mut seen = BTreeSet::new();
        for map in select(before, root).into_iter().filter(ValueLocation::is_map) {
            let Type::Map(of) = map.of.inner() else { continue };
            if !seen.insert(map.way.clone()) {
                continue;
            }
            for name in names.iter().collect::<BTreeSet<_>>() {
                if map.value.get(*name).is_none() {
                    matched += 1;
                    let new = of.accept(value)?;
                    // It is gone if something around it was replaced.
                    let is_gone = places.iter().any(|place| map.way.starts_with(&place.way));
                    if !is_gone {
                        at(&mut record, &map.way)[*name] = new;
                    }
                }
            }
        }
    }
    Some((record, matched))
}

pub fn last_name(path: &[PathStep]) -> Vec<&'static str> {
    if let Some(PathStep::Name(name)) = path.last() { vec![name] } else { Vec::new() }
}

/// The value as it was decides what is inserted. Its content is as changes within left it.
pub fn grown(edit: &Edit, before: &ValueLocation<'_>, now: &ValueLocation<'_>) -> Option<Value> {
    match (edit, before.of.inner()) {
        (Edit::AppendUnique(value), _) => changed(&Edit::Insert(value.clone()), now),
        _ => changed(edit, now),
    }
}

pub fn delete(root: &ValueLocation<'_>, places: &[ValueLocation<'_>]) -> Option<Value> {
    let mut record = root.value.clone();
    let mut ways: Vec<&Vec<String>> = Vec::new();
    for place in places {
        let (_, holder) = place.way.split_last()?;
        let holder = find(root, holder)?;
        if !holder.is_array() && !holder.is_map() {
            return None;
        }
        ways.push(&place.way);
    }
    // Later elements first, and deeper ones.
    ways.sort_by_key(|way| {
        let key = |step: &String| step.parse::<usize>().map_or((0, step.clone()), |n| (n + 1, String::new()));
        std::cmp::Reverse((way.len(), way.iter().map(key).collect::<Vec<_>>()))
    });
    for way in ways {
        let (last, holder) = way.split_last()?;
        match at(&mut record, holder) {
            Value::Array(items) => drop(items.remove(last.parse().ok()?)),
            Value::Object(map) => drop(map.remove(last)),
            _ => return None,
        }
    }
    Some(record)
}

pub fn find<'t>(root: &ValueLocation<'t>, way: &[String]) -> Option<ValueLocation<'t>> {
    way.iter().try_fold(root.clone(), |place, step| {
        place.members().into_iter().map(|(_, member)| member).find(|member| member.way.last() == Some(step))
    })
}

pub fn cases() -> impl Strategy<Value = (Type, Value)> {
    record_type(3).prop_flat_map(|of| {
        let value = of.value();
        (Just(of), value)
    })
}

/// A path that leads somewhere, and the type it leads to. Random paths rarely lead anywhere.
pub fn guided(of: &Type, seeds: &[u16]) -> (Vec<PathStep>, Type) {
    let (mut path, mut here) = (Vec::new(), of.clone());
    for seed in seeds {
        let (kind, pick) = (seed % 8, usize::from(seed / 8));
        let not_one = || Condition::Not(Box::new(Condition::Compare(vec![PathStep::Name("a")], "==", json!(1))));
        let (step, next) = match here.inner() {
            Type::Record(fields) => {
                let (at, (_, of)) = fields.iter().enumerate().nth(pick % fields.len()).expect("a field");
                let step = match kind {
                    0 => PathStep::Named(NAMES[at]),
                    1 => PathStep::Keys(vec![NAMES[at]]),
                    2 => PathStep::Either(vec![PathStep::Name(NAMES[at])], vec![PathStep::Members]),
                    _ => PathStep::Name(NAMES[at]),
                };
                (step, of.clone())
            }
            Type::Array(item) => {
                let step = match kind {
                    0 => PathStep::At(pick as i64 % 4 - 2),
                    1 => PathStep::Slice(Some(pick as i64 % 3), None),
                    2 => PathStep::Filter(not_one()),
                    _ => PathStep::All,
                };
                (step, (**item).clone())
            }
            Type::Map(of) => {
                let step = match kind {
                    0 => PathStep::Members,
                    1 => PathStep::Matching("[bc]"),
                    2 => PathStep::Filter(not_one()),
                    3 => PathStep::Keys(vec!["d", "a", "d"]),
                    _ => PathStep::Name(NAMES[pick % 4]),
                };
                (step, (**of).clone())
            }
            _ => break,
        };
        path.push(step);
        here = next;
    }
    (path, here)
}

/// Changes that values of a type allow.
pub fn fitting(of: &Type) -> BoxedStrategy<Edit> {
    let set = of.value().prop_map(Edit::Set);
    match of.inner() {
        Type::Array(item) => prop_oneof![
            set,
            item.value().prop_map(Edit::Insert),
            of.inner().value().prop_map(Edit::InsertAll),
            item.value().prop_map(Edit::AppendUnique),
            Just(Edit::Clear),
            Just(Edit::Delete),
        ]
        .boxed(),
        Type::Map(_) => prop_oneof![
            set,
            of.inner().value().prop_map(Edit::Insert),
            of.inner().value().prop_map(Edit::InsertAll),
            Just(Edit::Clear),
            Just(Edit::Delete),
        ]
        .boxed(),
        _ => prop_oneof![2 => set, 1 => Just(Edit::Delete), 1 => (-3_i64..4).prop_map(Edit::Increment)].boxed(),
    }
}

pub fn changes() -> impl Strategy<Value = (Type, Value, Vec<PathStep>, Edit)> {
    let parts = (cases(), prop::collection::vec(any::<u16>(), 1..5), paths(1), prop::bool::weighted(0.8), edits());
    parts.prop_flat_map(|((of, value), seeds, free, is_guided, edit)| {
        let (path, target) = if is_guided { guided(&of, &seeds) } else { (free, of.clone()) };
        let edit = prop_oneof![1 => Just(edit), 4 => fitting(&target)];
        (Just(of), Just(value), Just(path), edit)
    })
}

pub fn selections() -> impl Strategy<Value = (Type, Value, Vec<PathStep>)> {
    let parts = (cases(), prop::collection::vec(any::<u16>(), 1..5), paths(2), any::<bool>());
    parts.prop_map(|((of, value), seeds, free, is_guided)| {
        let path = if is_guided { [guided(&of, &seeds).0, free].concat() } else { free };
        (of, value, path)
    })
}
