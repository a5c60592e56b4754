//! A transaction that puts something in several places puts it in all of them: orders and stocks (hotel), reviews and
//! their indexes (media).
//!
//! The stores are audited at rest. There are as many orders as successful reservations, and each stock is lower by as
//! many. Every store has the same elements, the acknowledged ones among them, each once. Unknown operations widen the
//! bounds by one each. They never excuse a difference between stores.

use std::collections::{BTreeMap, BTreeSet};

use crate::anomaly::{Anomaly, AnomalyKind};
use crate::history::{Fact, History};
use crate::operation::{Access, Found, Key, Operation, Value};

const CHECKER: &str = "set_equal";

type Stocks = BTreeMap<String, BTreeMap<Key, i64>>;

/// Checks every audit of a history.
///
/// # Errors
/// The first anomaly found. Operations whose audit is missing are an anomaly too.
pub fn check(history: &History) -> Result<(), Anomaly> {
    history.validate()?;
    let (mut has_stocks, mut has_stores) = (false, false);
    for fact in &history.facts {
        match fact {
            Fact::Stocks { before, left, orders } => {
                has_stocks = true;
                check_stocks(history, before, left, *orders)?;
                check_refusals(history, before)?;
            }
            Fact::Stores(stores) => {
                has_stores = true;
                check_stores(history, stores)?;
            }
            Fact::StoreSizes(sizes) => {
                has_stores = true;
                check_sizes(history, sizes)?;
            }
            _ => {}
        }
    }
    let has = |is: fn(&Access) -> bool| history.operations.iter().any(|operation| operation.steps.iter().any(is));
    if has(|step| matches!(step, Access::Reserve(_))) && !has_stocks {
        return Err(anomaly(AnomalyKind::Malformed, "there are reservations and no audit of stocks at rest"));
    }
    if has(|step| matches!(step, Access::Publish)) && !has_stores {
        return Err(anomaly(AnomalyKind::Malformed, "there are publications and no audit of stores at rest"));
    }
    Ok(())
}

fn anomaly(kind: AnomalyKind, what: impl Into<String>) -> Anomaly {
    Anomaly::new(CHECKER, kind, what)
}

/// How often something happened: surely, and perhaps in addition.
#[derive(Clone, Copy, Default)]
struct Bounds {
    surely: i64,
    perhaps: i64,
}

impl Bounds {
    fn note(&mut self, is_sure: bool) {
        let count = if is_sure { &mut self.surely } else { &mut self.perhaps };
        *count += 1;
    }

    fn check(self, count: i64, what: &str) -> Result<(), Anomaly> {
        let expected = format!("{} are acknowledged, {} unknown", self.surely, self.perhaps);
        if count < self.surely {
            return Err(anomaly(AnomalyKind::LostEffect, format!("{what} is {count}: {expected}")));
        }
        if count > self.surely + self.perhaps {
            return Err(anomaly(AnomalyKind::ExtraEffect, format!("{what} is {count}: {expected}")));
        }
        Ok(())
    }
}

/// Reservations: the operation, the stocks it takes, and whether it is acknowledged or unknown. Refused ones are left
/// out.
fn reservations(history: &History) -> impl Iterator<Item = (&Operation, &BTreeMap<String, Key>, bool)> {
    history.operations.iter().flat_map(|operation| {
        operation.results().filter_map(move |(step, found)| match (step, found) {
            (Access::Reserve(stocks), Some(Found::Accepted(true))) => Some((operation, stocks, true)),
            (Access::Reserve(stocks), None) if operation.is_unknown() => Some((operation, stocks, false)),
            _ => None,
        })
    })
}

fn check_stocks(history: &History, before: &Stocks, left: &Stocks, orders: i64) -> Result<(), Anomaly> {
    let mut all = Bounds::default();
    let mut each: BTreeMap<(&str, &str), Bounds> = BTreeMap::new();
    for (_, stocks, is_sure) in reservations(history) {
        all.note(is_sure);
        for (kind, key) in stocks {
            each.entry((kind, key)).or_default().note(is_sure);
        }
    }
    all.check(orders, "the number of orders")?;
    if before.keys().ne(left.keys()) {
        return Err(anomaly(AnomalyKind::WrongKeys, "the kinds of stock changed"));
    }
    for (kind, stocks) in before {
        let left = &left[kind];
        if stocks.keys().ne(left.keys()) {
            return Err(anomaly(AnomalyKind::WrongKeys, format!("the {kind} stocks changed")));
        }
        let mut taken = 0;
        for (key, &count) in stocks {
            let rest = left[key];
            if rest < 0 {
                return Err(anomaly(AnomalyKind::ExtraEffect, format!("{kind} {key} has {rest} left")));
            }
            let bounds = each.remove(&(kind.as_str(), key.as_str())).unwrap_or_default();
            bounds.check(count - rest, &format!("what was taken from {kind} {key}"))?;
            taken += count - rest;
        }
        // Every order takes one of each kind.
        if taken != orders {
            let what = format!("{orders} orders, but {taken} taken from {kind} stocks");
            return Err(anomaly(AnomalyKind::Unequal, what));
        }
    }
    match each.iter().find(|(_, bounds)| bounds.surely > 0) {
        Some(((kind, key), _)) => Err(anomaly(AnomalyKind::WrongKeys, format!("{kind} {key} is not in the audit"))),
        None => Ok(()),
    }
}

/// A reservation is refused only if enough others can have come before it to empty one of its stocks.
fn check_refusals(history: &History, before: &Stocks) -> Result<(), Anomaly> {
    let mut begins: BTreeMap<(&str, &str), Vec<u64>> = BTreeMap::new();
    for (operation, stocks, _) in reservations(history) {
        for (kind, key) in stocks {
            begins.entry((kind, key)).or_default().push(operation.begin);
        }
    }
    begins.values_mut().for_each(|begins| begins.sort_unstable());
    for operation in &history.operations {
        let end = operation.effect_by().unwrap_or(u64::MAX);
        for (step, found) in operation.results() {
            let (Access::Reserve(stocks), Some(Found::Accepted(false))) = (step, found) else {
                continue;
            };
            let is_empty = |(kind, key): (&String, &Key)| {
                let Some(&count) = before.get(kind).and_then(|stocks| stocks.get(key)) else {
                    return true;
                };
                let begins = begins.get(&(kind.as_str(), key.as_str())).map_or(&[][..], Vec::as_slice);
                begins.partition_point(|begin| *begin <= end) as i64 >= count
            };
            if !stocks.iter().any(is_empty) {
                let what = "it was refused while every stock it names had some left";
                return Err(anomaly(AnomalyKind::WrongRefusal, what).with([operation]));
            }
        }
    }
    Ok(())
}

/// The ids told to clients, each with its operation, and the number of unknown publications.
fn published(history: &History) -> Result<(BTreeMap<&Value, &Operation>, Bounds), Anomaly> {
    let mut ids: BTreeMap<&Value, &Operation> = BTreeMap::new();
    let mut bounds = Bounds::default();
    for operation in &history.operations {
        for (step, found) in operation.results() {
            match (step, found) {
                (Access::Publish, Some(Found::Value(id))) => {
                    bounds.surely += 1;
                    let Some(id) = id else { continue };
                    if let Some(other) = ids.insert(id, operation) {
                        let what = format!("two publications were told the id {id}");
                        return Err(anomaly(AnomalyKind::RepeatedReply, what).with([other, operation]));
                    }
                }
                (Access::Publish, None) if operation.is_unknown() => bounds.perhaps += 1,
                _ => {}
            }
        }
    }
    Ok((ids, bounds))
}

fn check_stores(history: &History, stores: &BTreeMap<String, Vec<Value>>) -> Result<(), Anomaly> {
    let (ids, bounds) = published(history)?;
    let mut first: Option<(&str, BTreeSet<&Value>)> = None;
    for (name, elements) in stores {
        let mut set = BTreeSet::new();
        if let Some(twice) = elements.iter().find(|element| !set.insert(*element)) {
            return Err(anomaly(AnomalyKind::DuplicateElement, format!("{twice} is in {name} twice")));
        }
        if let Some((other, expected)) = &first
            && let Some(element) = expected.symmetric_difference(&set).next()
        {
            let (has, lacks) = if set.contains(*element) { (name.as_str(), *other) } else { (*other, name.as_str()) };
            let what = format!("{element} is in {has} and not in {lacks}");
            return Err(anomaly(AnomalyKind::Unequal, what).with(ids.get(*element).copied()));
        }
        if let Some((id, operation)) = ids.iter().find(|(id, _)| !set.contains(**id)) {
            let what = format!("acknowledged {id} is not in {name}");
            return Err(anomaly(AnomalyKind::LostEffect, what).with([*operation]));
        }
        bounds.check(set.len() as i64, &format!("the number of elements in {name}"))?;
        first.get_or_insert((name, set));
    }
    Ok(())
}

fn check_sizes(history: &History, sizes: &BTreeMap<String, i64>) -> Result<(), Anomaly> {
    let (_, bounds) = published(history)?;
    let mut first: Option<(&String, i64)> = None;
    for (name, &size) in sizes {
        let (other, expected) = *first.get_or_insert((name, size));
        if size != expected {
            let what = format!("{expected} elements in {other}, {size} in {name}");
            return Err(anomaly(AnomalyKind::Unequal, what));
        }
        bounds.check(size, &format!("the number of elements in {name}"))?;
    }
    Ok(())
}
