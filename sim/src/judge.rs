//! What clients asked and were told, as a history for the checker of `millrace-history`: could a
//! server that is strictly serializable and does everything once have answered so?
//!
//! An operation begins with its first sending and ends with the first reply that says that it took effect:
//! sendings under one idempotency key are one operation. Banks do not share accounts, so each has a
//! history of its own; counters, lists, registers and what is left at rest are in one.

use std::collections::BTreeMap;

use millrace_history::{Access, Fact, Found, History, verdict};
use serde_json::Value as Json;

use crate::ledger::{Kind, Known, Ledger, Operation};
use crate::lists;
use crate::workload::{FLOOR, accounts};

/// What is learnt when nothing is under way any more.
#[derive(Default)]
pub struct AtRest {
    /// What should be none, and how many there are.
    pub left: Vec<(&'static str, usize)>,
    /// Every counter.
    pub counters: BTreeMap<String, i64>,
}

/// Judges a run that has come to rest; how many acknowledged operations it looked at.
///
/// # Errors
/// The anomalies, with the operations that prove them.
pub fn judge(ledger: &Ledger, at_rest: &AtRest, shard_count: u16) -> Result<usize, String> {
    let mut acknowledged = 0;
    for (name, mut history) in histories(ledger, shard_count)? {
        if name == SHARED {
            history.note(Fact::Counters(at_rest.counters.clone()));
            for &(what, count) in &at_rest.left {
                history.note(Fact::AtRest { what: what.to_owned(), count: i64::try_from(count).unwrap_or(i64::MAX) });
            }
        }
        let verdict = verdict(&history);
        if !verdict.is_sound() {
            return Err(format!("what clients saw of {name}: {verdict}"));
        }
        acknowledged += verdict.outcomes.0;
    }
    Ok(acknowledged)
}

const SHARED: &str = "counters, lists and registers";

fn histories(ledger: &Ledger, shard_count: u16) -> Result<BTreeMap<String, History>, String> {
    let mut histories = BTreeMap::from([(SHARED.to_owned(), History::new())]);
    for operation in &ledger.operations {
        let (Some((name, steps)), Some(begin)) = (asked(operation), operation.begin) else {
            continue;
        };
        let history = histories.entry(name.to_owned()).or_default();
        if let (true, Some(bank)) = (history.facts.is_empty(), bank_of(&operation.kind)) {
            let holds = accounts(bank, shard_count).map(|account| (account, FLOOR));
            history.note(Fact::Accounts(holds.into_iter().collect()));
        }
        // Nobody waits for another's reply before it asks, so each is a client of its own.
        let id = history.invoke(operation.id as u64, steps, begin);
        match (&operation.known, operation.end) {
            (Known::Done(reply), Some(end)) => {
                let json: Json = serde_json::from_slice(reply).unwrap_or(Json::Null);
                let found = found(&operation.kind, &json, shard_count);
                history.ok(id, found.ok_or_else(|| format!("op{} was answered {json}", operation.id))?, end);
            }
            _ if ledger.bounds(operation) == (0, 0) => history.fail(id, "refused, or never begun", begin),
            _ => {}
        }
    }
    Ok(histories)
}

fn bank_of(kind: &Kind) -> Option<&str> {
    match kind {
        Kind::Transfer { bank, .. } | Kind::Audit { bank } => Some(bank),
        _ => None,
    }
}

/// What an operation is to the checker, and in whose history.
fn asked(operation: &Operation) -> Option<(&str, Vec<Access>)> {
    let name = bank_of(&operation.kind).unwrap_or(SHARED);
    let steps = match &operation.kind {
        Kind::Add { key } => vec![Access::increment(key)],
        Kind::Read { key } => vec![Access::count(key)],
        Kind::Transfer { from, to, amount, .. } => vec![Access::transfer(from, to, *amount)],
        Kind::Audit { .. } => vec![Access::Balances],
        Kind::Steps { steps, .. } => steps.clone(),
        Kind::Message { .. } | Kind::Send { .. } | Kind::Saga { .. } | Kind::Again { .. } => return None,
    };
    Some((name, steps))
}

/// What a reply says of each step.
fn found(kind: &Kind, reply: &Json, shard_count: u16) -> Option<Vec<Found>> {
    // An account without a balance holds nothing; the checker knows no debts, so every account has more.
    let balance = |json: &Json| if json.is_null() { Some(FLOOR) } else { Some(json.as_i64()? + FLOOR) };
    let found = match kind {
        // The count before, as the checker wants it.
        Kind::Add { .. } => Found::Number(reply.as_i64()? - 1),
        Kind::Read { .. } if reply.is_null() => Found::Number(0),
        Kind::Read { .. } => Found::Number(reply.as_i64()?),
        Kind::Transfer { from, .. } => Found::Balances(BTreeMap::from([(from.clone(), balance(reply)?)])),
        Kind::Audit { bank } => {
            let accounts = accounts(bank, shard_count);
            let read = reply.as_array().filter(|read| read.len() == accounts.len())?;
            let read: Option<Vec<i64>> = read.iter().map(balance).collect();
            Found::Balances(accounts.into_iter().zip(read?).collect())
        }
        Kind::Steps { steps, .. } => return lists::found(steps, reply),
        Kind::Message { .. } | Kind::Send { .. } | Kind::Saga { .. } | Kind::Again { .. } => return None,
    };
    Some(vec![found])
}
