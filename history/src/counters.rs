//! Counters that only ever go up by one: exactly once, and strictly serializable.
//!
//! At rest a counter holds its acknowledged increments and at most the unknown ones. The reply to an increment is the
//! count before it, so each reply is given once. These replies are the order of the increments. Dependencies and
//! their circles follow from them and from the reads, as they do for lists.

use std::collections::BTreeMap;

use crate::anomaly::{Anomaly, AnomalyKind};
use crate::graph::{Cycle, Edge, Graph, Kind};
use crate::history::{Fact, History};
use crate::operation::{Access, Found};
use crate::order::add_orders;

const CHECKER: &str = "counters";

#[derive(Default)]
struct Counter {
    acknowledged: i64,
    unknown: i64,
    /// The count before, and the operation with that reply; sorted before use.
    replies: Vec<(i64, usize)>,
    /// The count that was read without the operation's own increments, and the operation that read it.
    reads: Vec<(i64, usize)>,
}

/// Checks the counters of a history.
///
/// # Errors
/// The gravest anomaly found.
pub fn check(history: &History) -> Result<(), Anomaly> {
    history.validate()?;
    let mut counters = gather(history)?;
    for (key, counter) in &mut counters {
        counter.replies.sort_unstable();
        check_replies(history, key, counter)?;
    }
    for fact in &history.facts {
        if let Fact::Counters(found) = fact {
            check_final(&counters, found)?;
        }
    }
    check_order(history, &counters)
}

fn gather(history: &History) -> Result<BTreeMap<&str, Counter>, Anomaly> {
    let mut counters: BTreeMap<&str, Counter> = BTreeMap::new();
    for operation in &history.operations {
        // A count is of the state before the operation: its own increments are taken off.
        let mut own: BTreeMap<&str, i64> = BTreeMap::new();
        for (step, found) in operation.results() {
            let (Access::Increment(key) | Access::Count(key)) = step else {
                continue;
            };
            let counter = counters.entry(key).or_default();
            let own = own.entry(key).or_default();
            match (step, found) {
                (Access::Increment(_), Some(found)) => {
                    counter.acknowledged += 1;
                    if let Found::Number(before) = found {
                        counter.replies.push((*before, operation.id));
                    }
                    *own += 1;
                }
                (Access::Increment(_), None) if operation.is_unknown() => counter.unknown += 1,
                (Access::Count(_), Some(Found::Number(count))) if count < own => {
                    let what = format!("a count of {key} misses its own transaction's increments");
                    return Err(Anomaly::new(CHECKER, AnomalyKind::Internal, what).with([operation]));
                }
                (Access::Count(_), Some(Found::Number(count))) => counter.reads.push((count - *own, operation.id)),
                _ => {}
            }
        }
    }
    Ok(counters)
}

/// Every reply is given once, and is below what the increments can have made.
fn check_replies(history: &History, key: &str, counter: &Counter) -> Result<(), Anomaly> {
    let most = counter.acknowledged + counter.unknown;
    let operation = |id: usize| &history.operations[id];
    for pair in counter.replies.windows(2) {
        if pair[0].0 == pair[1].0 {
            let what = format!("two increments of {key} replied {}: one is lost or was answered twice", pair[0].0);
            let operations = [operation(pair[0].1), operation(pair[1].1)];
            return Err(Anomaly::new(CHECKER, AnomalyKind::RepeatedReply, what).with(operations));
        }
    }
    if let Some(&(reply, id)) = counter.replies.iter().find(|(reply, _)| !(0..most).contains(reply)) {
        let what = format!("an increment of {key} replied {reply}: at most {most} increments can have happened");
        return Err(Anomaly::new(CHECKER, AnomalyKind::ExtraEffect, what).with([operation(id)]));
    }
    if let Some(&(count, id)) = counter.reads.iter().find(|(count, _)| !(0..=most).contains(count)) {
        let what = format!("{key} was read as {count}: at most {most} increments can have happened");
        return Err(Anomaly::new(CHECKER, AnomalyKind::ExtraEffect, what).with([operation(id)]));
    }
    Ok(())
}

/// The values at rest: the expected keys, each as large as its increments make it.
fn check_final(counters: &BTreeMap<&str, Counter>, found: &BTreeMap<String, i64>) -> Result<(), Anomaly> {
    let anomaly = |kind, what| Err(Anomaly::new(CHECKER, kind, what));
    for (key, counter) in counters {
        let (least, most) = (counter.acknowledged, counter.acknowledged + counter.unknown);
        let Some(&value) = found.get(*key) else {
            if least > 0 {
                return anomaly(AnomalyKind::WrongKeys, format!("{key} is missing: it was incremented {least} times"));
            }
            continue;
        };
        let expected = format!("{least} increments are acknowledged, {} unknown", counter.unknown);
        if value < least {
            return anomaly(AnomalyKind::LostIncrement, format!("{key} is {value} at rest: {expected}"));
        }
        if value > most {
            return anomaly(AnomalyKind::ExtraEffect, format!("{key} is {value} at rest: {expected}"));
        }
        if let Some((reply, _)) = counter.replies.last().filter(|(reply, _)| *reply >= value) {
            let what = format!("{key} is {value} at rest, but an increment replied that it was {reply} before");
            return anomaly(AnomalyKind::LostIncrement, what);
        }
    }
    match found.iter().find(|(key, value)| **value != 0 && !counters.contains_key(key.as_str())) {
        Some((key, value)) => anomaly(AnomalyKind::WrongKeys, format!("{key} is {value}: nobody incremented it")),
        None => Ok(()),
    }
}

/// Replies are versions. The operation with the smaller reply wrote before. A read of a count follows the last write
/// below it.
fn check_order(history: &History, counters: &BTreeMap<&str, Counter>) -> Result<(), Anomaly> {
    let mut graph = Graph::new(history.operations.len());
    let mut is_in = vec![false; history.operations.len()];
    let names: Vec<&str> = counters.keys().copied().collect();
    for (key, counter) in counters.values().enumerate() {
        for pair in counter.replies.windows(2) {
            graph.add(pair[0].1, pair[1].1, Kind::WriteWrite, key, 0);
        }
        counter.replies.iter().chain(&counter.reads).for_each(|(_, operation)| is_in[*operation] = true);
        for &(count, reader) in &counter.reads {
            let next = counter.replies.partition_point(|(reply, _)| *reply < count);
            if let Some(before) = next.checked_sub(1) {
                graph.add(counter.replies[before].1, reader, Kind::WriteRead, key, 0);
            }
            if let Some(&(_, after)) = counter.replies.get(next) {
                graph.add(reader, after, Kind::ReadWrite, key, 0);
            }
        }
    }
    add_orders(&mut graph, history, &|operation| is_in[operation.id]);
    match graph.find_cycle() {
        None => Ok(()),
        Some(cycle) => Err(explain(history, &names, &cycle)),
    }
}

fn explain(history: &History, names: &[&str], cycle: &Cycle) -> Anomaly {
    let (class, order) = cycle.class();
    let mut what = String::from("each of these comes before the next, and the last before the first:");
    for edge in &cycle.edges {
        what.push_str(&format!("\n    T{} before T{}: {}", edge.from, edge.to, reason(names, edge)));
    }
    let operations = cycle.edges.iter().map(|edge| &history.operations[edge.from as usize]);
    Anomaly::new(CHECKER, AnomalyKind::Cycle(class, order), what).with(operations)
}

fn reason(names: &[&str], edge: &Edge) -> String {
    let name = names.get(edge.key as usize).copied().unwrap_or_default();
    match edge.kind {
        Kind::WriteWrite => format!("its count of {name} was smaller"),
        Kind::WriteRead => format!("its increment of {name} was read"),
        Kind::ReadWrite => format!("it read {name} without the other's increment"),
        Kind::Process => "the same client asked it before".to_owned(),
        Kind::Realtime | Kind::Via => "it had ended when the other began".to_owned(),
    }
}
