//! Each step of a workflow takes effect once. When nothing is under way, every workflow has ended. It did all that it
//! had to, or what it did is compensated. Nothing is given up for an error that may pass. Only what is kept of ended workflows is left.

use std::collections::{BTreeMap, BTreeSet};

use millrace_base::{ErrorCode, ShardId, Value};
use millrace_format::{InvocationResult, JournalRow, ResultState, StepKind, WorkflowRecord};
use millrace_shard::InvocationId;

use super::{States, View};
use crate::ledger::{Kind, Known, Operation};

pub fn check<S: States>(view: &mut View<'_, S>) -> Result<(), String> {
    for operation in &view.ledger.operations {
        if let Kind::Saga { from, to, via, .. } = &operation.kind {
            check_saga(view, operation, (from, to, via))?;
        }
        if let Kind::Again { from, to } = &operation.kind {
            check_again(view, operation, (from, to))?;
        }
    }
    for shard in (0..view.shard_count).map(ShardId) {
        check_rows(view, shard)?;
    }
    Ok(())
}

fn check_saga<S: States>(
    view: &mut View<'_, S>,
    operation: &Operation,
    (from, to, via): (&str, &str, &str),
) -> Result<(), String> {
    let id = operation.id;
    let (here, there) =
        (view.number("account", from, &operation.mark()), view.number("account", to, &operation.mark()));
    let beside = ["a", "b"].map(|side| view.number("account", via, &format!("via{id}{side}")));
    if [here, there, beside[0], beside[1]].iter().any(|count| !(0..=1).contains(count)) {
        return Err(format!("op{id} is noted {here} times on {from}, {there} on {to}, {beside:?} on {via}"));
    }
    if view.is_final && here != there {
        return Err(format!("op{id} is noted {here} times on {from} and {there} on {to} for good"));
    }
    let [first, second, slow] = [(via, "first"), (via, "second"), (to, "slow")]
        .map(|(key, what)| view.number("account", key, &format!("{what}{id}")));
    if first + second > 1 || (view.is_final && slow != 0) {
        return Err(format!("op{id} went {first} and {second} ways at once, and {slow} calls were not compensated"));
    }
    let told: i64 = (0..view.shard_count).flat_map(|shard| view.told(ShardId(shard), id)).sum();
    if !(0..=2).contains(&told) || (view.is_final && told == 1) {
        return Err(format!("op{id} sent two messages, of which {told} took effect"));
    }
    let Known::Done(started) = &operation.known else {
        return Ok(());
    };
    let name = String::from_utf8_lossy(started).into_owned();
    let invocation =
        InvocationId::parse(&name, view.shard_count).ok_or_else(|| format!("op{id} was answered {name}"))?;
    let field = [&b"i"[..], &invocation.sequence.encode()].concat();
    let rows = view.rows(invocation.shard, "outcome");
    let row = rows.iter().find(|(found, _)| **found == *field);
    let Some(row) = row else {
        let is_whole = here == there && beside.iter().all(|count| *count == here);
        // A failed and compensated workflow keeps what was done beside it.
        let is_over = operation.is_expired && (is_whole || (here, there) == (0, 0));
        return if is_over { Ok(()) } else { Err(format!("op{id} was started as {name}, of which nothing is known")) };
    };
    match InvocationResult::decode(row.1.content()).map_err(|error| error.to_string())?.result {
        ResultState::Pending if view.is_final => Err(format!("op{id} never ended: {name}")),
        ResultState::Value(_) if (here, there, beside) != (1, 1, [1, 1]) => {
            Err(format!("op{id} succeeded, and is noted {here}, {there}, {beside:?} times"))
        }
        // What fails otherwise is tried again, and then paused: nothing is undone.
        ResultState::Error(error)
            if !matches!(error.code, ErrorCode::Aborted | ErrorCode::Cancelled | ErrorCode::FetchFailed) =>
        {
            Err(format!("op{id} was given up for an error that may pass: {error}"))
        }
        ResultState::Error(error) if (here, there) != (0, 0) || error.message.contains("compensations failed") => {
            Err(format!("op{id} failed ({error}), and is noted {here} and {there} times"))
        }
        _ => Ok(()),
    }
}

/// Each run notes each thing once.
fn check_again<S: States>(
    view: &mut View<'_, S>,
    operation: &Operation,
    (from, to): (&str, &str),
) -> Result<(), String> {
    let id = operation.id;
    let before = view.number("note", from, &format!("before{id}"));
    let behind = view.number("note", to, &format!("behind{id}"));
    let [whole, from_step] = operation.restarts;
    // One begins anew only when it has ended, and every run that has ended has noted all.
    let (started, most_started) = view.ledger.bounds(operation);
    let last = if view.is_final { started } else { 0 };
    let (least_before, least_behind) = (last + whole.certain, last + whole.certain + from_step.certain);
    let most_before = most_started + whole.certain + whole.in_doubt;
    let most_behind = most_before + from_step.certain + from_step.in_doubt;
    if !(least_before..=most_before).contains(&before) || !(least_behind..=most_behind).contains(&behind) {
        return Err(format!(
            "op{id} is noted {before} and {behind} times, and was restarted {whole:?} from its beginning and {from_step:?} from \
             its step"
        ));
    }
    let told = view.number("note", to, &format!("told{id}"));
    if told > most_before || (view.is_final && (told != before || behind < before)) {
        return Err(format!(
            "op{id} is noted {before} times before its step, {behind} times behind it, and sent {told}"
        ));
    }
    Ok(())
}

impl<S: States> View<'_, S> {
    /// How often each note of a shard was told of an operation.
    fn told(&mut self, shard: ShardId, id: usize) -> Vec<i64> {
        let field = format!("told{id}");
        let mut entities = self.states.store(shard).scan_entities(b"", None, usize::MAX).expect("the store reads");
        entities.retain(|entity| !entity.is_internal() && entity.parts().service == "note");
        let mut number = |entity| {
            let value = self.states.store(shard).get(&entity, field.as_bytes()).expect("the store reads").cloned();
            value.and_then(|value| serde_json::from_slice(value.content()).ok()).unwrap_or(0)
        };
        entities.into_iter().map(&mut number).collect()
    }
}

fn check_rows<S: States>(view: &mut View<'_, S>, shard: ShardId) -> Result<(), String> {
    let ids = |rows: Vec<(Box<[u8]>, Value)>| rows.into_iter().map(|(field, _)| field).collect::<BTreeSet<_>>();
    let workflows = [view.rows(shard, "workflow"), view.rows(shard, "ended")];
    let is_from_a_step = |(_, value): &&(Box<[u8]>, Value)| {
        let record = WorkflowRecord::decode(value.content()).expect("rows can be read");
        record.runs.iter().any(|run| run.first_operation > 0)
    };
    let with_gaps = ids(workflows.iter().flatten().filter(is_from_a_step).cloned().collect());
    let [live, ended] = workflows.map(ids);
    let mut journals: BTreeMap<Box<[u8]>, Vec<(u32, JournalRow)>> = BTreeMap::new();
    for (field, value) in view.rows(shard, "journal") {
        let (id, number) = field.split_at(field.len() - 4);
        let number = u32::from_be_bytes(number.try_into().expect("four bytes"));
        let row = JournalRow::decode(value.content()).map_err(|error| error.to_string())?;
        journals.entry(id.into()).or_default().push((number, row));
    }
    for (id, rows) in &journals {
        if !live.contains(id) && !ended.contains(id) {
            return Err(format!("shard {shard} has a journal of a workflow that it does not know: {id:?}"));
        }
        let mut operations = BTreeSet::new();
        for (index, (number, row)) in (0..).zip(rows) {
            let is_new = row.kind == StepKind::Cancel || operations.insert(row.operation);
            let is_of_code = matches!(row.kind, StepKind::Call | StepKind::Step);
            if is_of_code && matches!(&row.result, Err(error) if error.code == ErrorCode::FunctionFailed) {
                return Err(format!("shard {shard}: {id:?} was told of a failure that may pass: {row:?}"));
            }
            if (*number != index && !with_gaps.contains(id)) || !is_new {
                return Err(format!("shard {shard}: the journal of {id:?} has row {number} at {index}: {row:?}"));
            }
        }
    }
    if let Some(both) = live.intersection(&ended).next() {
        return Err(format!("shard {shard}: workflow {both:?} has ended and has not"));
    }
    let signals = view.rows(shard, "signal");
    if let Some((field, _)) = signals.iter().find(|(field, _)| !live.contains(&field[..10])) {
        return Err(format!("shard {shard} has a signal for nobody: {field:?}"));
    }
    let failures = view.rows(shard, "failure");
    if let Some((field, _)) = failures.iter().find(|(field, _)| !live.contains(&field[..10])) {
        return Err(format!("shard {shard} has a failure of no workflow: {field:?}"));
    }
    if view.is_final && !live.is_empty() {
        return Err(format!("shard {shard} has workflows that never end: {live:?}"));
    }
    Ok(())
}
