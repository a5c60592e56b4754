//! `T--shard/_sweep`: brings the records of one shard, and their index rows, to the type's present settings, some at a
//! time.
//!
//! The node calls it once for each shard, with empty input, after a switch to new settings and after a start. It goes
//! on by messages to itself. If another call begins a sweep of the same shard, the earlier one ends. A sweep that is
//! begun again begins where it was, or anew if the settings have changed meanwhile.
//!
//! This order makes an index complete by the time it is called complete:
//!
//! 1. An index whose definition differs from the completed one is not complete.
//! 2. The sweep waits until no transaction of the version before can run any more, because that version knew other
//!    indexes. Either it is told so, or enough time has passed. From then on every write keeps the rows of all present
//!    indexes.
//! 3. It deletes rows of indexes that are gone or not complete, and changes that are no longer kept.
//! 4. It walks over all keys. It brings each record to the present schema and gives it all its rows. Records written
//!    behind it have their rows anyway. It always walks over a type that was made again: timers of its records may have
//!    come while there was no such type, and were dropped.
//! 5. All present indexes are complete.

use std::collections::VecDeque;
use std::rc::Rc;

use bytes::Bytes;
use millrace_base::{Error, ErrorCode, Value, ValueKind};
use millrace_func::{
    Base64Alphabet, HandlerId, Host, LogLevel, Message, OperationId, ScanRequest, base64_decode, base64_encode,
};
use serde::{Deserialize, Serialize};

use crate::program::{MIGRATE, RecordProgram, RecordType, SWEEP};
use crate::rows::{
    COMPLETE, INDEX, SWEEP as STATE, change_sequence, complete_field, index_number, index_prefix, number_value,
    read_number, stream_begins_after, visit_changes,
};
use crate::turn::{Progress, Task, Turn};
use crate::wire::{Migrated, decode};

/// Records of one step, which is one transaction.
const BATCH_RECORDS: usize = 100;

/// Writes after which a step ends. This is far fewer than a transaction may make, because one more record may have many
/// rows.
const BATCH_WRITES: usize = 2_000;

/// Bytes of records written after which a step ends: far fewer than one entry takes.
const BATCH_BYTES: usize = 4 << 20;

/// Messages after which a step ends. One more record may send as many as it has triggers.
const BATCH_MESSAGES: usize = 256;

/// Rows that one step deletes.
const BATCH_ROWS: usize = 500;

/// Added to the time that a transaction may wait, because ending it takes a moment too.
const GRACE_MS: u64 = 1_000;

/// What the sweep does now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Phase {
    /// It deletes what is left over.
    Clean,
    /// It looks at records.
    Walk,
    Done,
}

/// The field `s`.
#[derive(Clone, Serialize, Deserialize)]
struct State {
    /// The settings to which it brings records.
    target: String,
    phase: Phase,
    /// The last key it has seen, base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    after: Option<String>,
    /// When it may begin: no transaction of the version before runs from then on.
    #[serde(default)]
    begins_ms: u64,
    /// Which chain of messages is the present one.
    run: u64,
    /// Records and rows are as they should be.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    cleans_only: bool,
    /// Records that it could not bring to the present schema.
    #[serde(default)]
    skipped: u64,
    /// Records that an index of several values cannot take. Such an index stays incomplete.
    #[serde(default)]
    unfit: u64,
}

/// Its input. It is empty, or has the run (in a message to itself), or says that it is alone. Or it asks how far the sweep is, and
/// hastens the run that it names.
#[derive(Default, Serialize, Deserialize)]
struct Input {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    run: Option<u64>,
    /// No transaction of the version before runs any more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    alone: bool,
    /// If `run` is the present one, no transaction of the version before it runs any more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    hastens: bool,
}

/// The answer to who hastens: no sweep to the present settings has begun; such a sweep is over. Else it is the run.
const NOT_BEGUN: &[u8] = b"null";
/// See [`NOT_BEGUN`].
const OVER: &[u8] = b"true";

pub(crate) fn start(turn: &mut Turn<'_>, type_index: usize, key: &[u8], input: &[u8]) -> Result<Progress, Error> {
    let program = Rc::clone(turn.program);
    let of = &program.types[type_index];
    let Input { run, alone, hastens } = if matches!(input, b"" | b"null") { Input::default() } else { read(input)? };
    let known = turn.host.get(STATE)?.map(|value| read::<State>(value.content())).transpose()?;
    let target = of.sweep_target();
    if hastens {
        return hasten(turn, (&program, of), key, known.filter(|state| state.target == target), run);
    }
    let mut state = match known {
        Some(state) if run.is_some_and(|run| run != state.run) => {
            // Another chain has taken over.
            drop(state);
            return Ok(Progress::Done(Bytes::new()));
        }
        Some(state) if state.target == target => {
            if state.phase == Phase::Done {
                return Ok(Progress::Done(Bytes::new()));
            }
            state
        }
        known => return begin(turn, (&program, type_index), key, (target, alone), known),
    };
    if run.is_none() {
        state.run += 1;
    }
    if alone {
        state.begins_ms = 0;
    }
    let wait_ms = state.begins_ms.saturating_sub(turn.host.now().0);
    if wait_ms > 0 {
        return go_on(turn, (&program, of), key, &state, wait_ms);
    }
    match state.phase {
        Phase::Walk => walk(turn, (program, type_index), key, state),
        _ => {
            if clean(turn, of)? {
                state.phase = if state.cleans_only { Phase::Done } else { Phase::Walk };
            }
            go_on(turn, (&program, of), key, &state, 0)
        }
    }
}

/// The sweep of run `run` need not wait. A later one may: it is of later settings, even if these are the same again.
fn hasten(
    turn: &mut Turn<'_>,
    (program, of): (&Rc<RecordProgram>, &RecordType),
    key: &[u8],
    state: Option<State>,
    run: Option<u64>,
) -> Result<Progress, Error> {
    let answer = match state {
        None => Bytes::from_static(NOT_BEGUN),
        Some(state) if state.phase == Phase::Done => Bytes::from_static(OVER),
        Some(mut state) if run == Some(state.run) => {
            (state.run, state.begins_ms) = (state.run + 1, 0);
            return go_on(turn, (program, of), key, &state, 0);
        }
        Some(state) => Bytes::from(state.run.to_string()),
    };
    Ok(Progress::Done(answer))
}

/// Whether the records of this shard are as the present settings want.
pub(crate) fn is_done(host: &mut dyn Host, of: &RecordType) -> Result<bool, Error> {
    let state = host.get(STATE)?.map(|value| read::<State>(value.content())).transpose()?;
    Ok(state.is_some_and(|state| state.phase == Phase::Done && state.target == of.sweep_target()))
}

/// The target of records and rows.
fn records_target(target: &str) -> &str {
    target.split_once('-').map_or(target, |(records, _)| records)
}

fn read<T: for<'a> Deserialize<'a>>(json: &[u8]) -> Result<T, Error> {
    serde_json::from_slice(json)
        .map_err(|error| Error::new(ErrorCode::Internal, format!("the state of a sweep cannot be read: {error}")))
}

/// Begins to bring records to settings that differ from those of the last sweep.
fn begin(
    turn: &mut Turn<'_>,
    (program, type_index): (&Rc<RecordProgram>, usize),
    key: &[u8],
    (target, alone): (String, bool),
    before: Option<State>,
) -> Result<Progress, Error> {
    let of = &program.types[type_index];
    // Records that were skipped have no rows, but may be readable now.
    let keeps_complete = before.as_ref().is_some_and(|state| state.skipped + state.unfit == 0);
    for (field, value) in turn.host.scan(&ScanRequest { prefix: vec![COMPLETE], after: None, limit: usize::MAX })? {
        let number = index_number(&field);
        let present = of.indexes.iter().find(|index| Some(index.number) == number);
        let is_same = present.is_some_and(|index| value.content() == &index.definition.to_be_bytes()[..]);
        if !(is_same && keeps_complete) {
            turn.host.delete(&field)?;
        }
    }
    let is_empty = turn.host.keys(of.service, b"", None, 1)?.is_empty();
    let is_first = before.is_none();
    let cleans_only = keeps_complete
        && before.as_ref().is_some_and(|state| {
            state.phase == Phase::Done && records_target(&state.target) == records_target(&target)
        });
    let run = before.map_or(0, |state| state.run) + 1;
    // No transaction of the version before can run: that version had no such type, or there was none since the start.
    let is_alone = alone || (is_first && (of.is_new || (program.is_first && is_empty)));
    let grace_ms = if is_alone { 0 } else { program.wait_ms.saturating_add(GRACE_MS) };
    let begins_ms = turn.host.now().plus(grace_ms).0;
    let mut state =
        State { target, phase: Phase::Clean, after: None, begins_ms, run, cleans_only, skipped: 0, unfit: 0 };
    if is_alone && is_empty && is_first {
        state.phase = Phase::Walk;
        return walk(turn, (Rc::clone(program), type_index), key, state);
    }
    go_on(turn, (program, of), key, &state, grace_ms)
}

/// Stores the state, and sends itself the message to go on.
fn go_on(
    turn: &mut Turn<'_>,
    (program, of): (&RecordProgram, &RecordType),
    key: &[u8],
    state: &State,
    delay_ms: u64,
) -> Result<Progress, Error> {
    let text = |value: serde_json::Result<String>| {
        value.map_err(|error| Error::new(ErrorCode::Internal, format!("the state of a sweep: {error}")))
    };
    turn.host.set(STATE, Value::json(&text(serde_json::to_string(state))?))?;
    if state.phase != Phase::Done {
        let handler = HandlerId { program: program.number, service: of.shard_service, handler: SWEEP };
        let input = Bytes::from(text(serde_json::to_string(&Input { run: Some(state.run), ..Input::default() }))?);
        turn.host.send(Message { handler, key: key.to_vec(), input, delay_ms, id: None })?;
    }
    Ok(Progress::Done(Bytes::new()))
}

fn walk(
    turn: &mut Turn<'_>,
    (program, type_index): (Rc<RecordProgram>, usize),
    key: &[u8],
    mut state: State,
) -> Result<Progress, Error> {
    let of = &program.types[type_index];
    let after = state.after.as_ref().and_then(|after| base64_decode(after.as_bytes()));
    let keys = turn.host.keys(of.service, b"", after.as_deref(), BATCH_RECORDS)?;
    if keys.is_empty() {
        complete(turn, of, &mut state)?;
        return go_on(turn, (&program, of), key, &state, 0);
    }
    Walk { program, type_index, key: key.to_vec(), state, keys: keys.into(), writes: 0, size_bytes: 0, messages: 0 }
        .next(turn)
}

/// Brings records to the present schema, one after the other.
struct Walk {
    program: Rc<RecordProgram>,
    type_index: usize,
    key: Vec<u8>,
    state: State,
    /// Still to be looked at, the present one first.
    keys: VecDeque<Vec<u8>>,
    writes: usize,
    size_bytes: usize,
    messages: usize,
}

impl Walk {
    fn next(self, turn: &mut Turn<'_>) -> Result<Progress, Error> {
        let of = &self.program.types[self.type_index];
        let is_full = self.writes > BATCH_WRITES || self.size_bytes > BATCH_BYTES || self.messages > BATCH_MESSAGES;
        let Some(id) = self.keys.front().filter(|_| !is_full) else {
            return go_on(turn, (&self.program, of), &self.key, &self.state, 0);
        };
        turn.call((of.service, MIGRATE), id, Bytes::new())?;
        Ok(Progress::Wait(Box::new(self)))
    }
}

impl Task for Walk {
    fn resume(
        mut self: Box<Self>,
        turn: &mut Turn<'_>,
        _: OperationId,
        result: Result<Bytes, Error>,
    ) -> Result<Progress, Error> {
        let rows: Migrated = decode(&result?)?;
        self.state.skipped += u64::from(rows.is_skipped);
        self.state.unfit += u64::from(rows.is_unfit);
        self.size_bytes += rows.size_bytes;
        self.writes += rows.rows;
        self.messages += rows.messages;
        for field in &rows.remove {
            if turn.host.get(field)?.is_some() {
                turn.host.delete(field)?;
                self.writes += 1;
            }
        }
        for field in &rows.add {
            if turn.host.get(field)?.is_none() {
                turn.host.set(field, Value::new(ValueKind::Bytes, b""))?;
                self.writes += 1;
            }
        }
        self.state.after = self.keys.pop_front().map(|id| base64_encode(&id, Base64Alphabet::Standard));
        self.next(turn)
    }
}

/// Deletes some of what is left over. Returns whether that was all.
fn clean(turn: &mut Turn<'_>, of: &RecordType) -> Result<bool, Error> {
    let mut left = BATCH_ROWS;
    let mut after = None;
    while left > 0 {
        let first = ScanRequest { prefix: vec![INDEX], after: after.take(), limit: 1 };
        let Some((field, _)) = turn.host.scan(&first)?.pop() else {
            break;
        };
        let Some(number) = index_number(&field) else {
            break;
        };
        let index = of.indexes.iter().find(|index| index.number == number);
        let completed = read_number(turn.host, &complete_field(number))?;
        if index.is_some_and(|index| completed == Some(index.definition)) {
            // No row has the prefix of all rows of the next index as its name.
            match number.checked_add(1) {
                Some(next) => after = Some(index_prefix(next)),
                None => break,
            }
            continue;
        }
        left -= take_away(turn, index_prefix(number), left)?;
    }
    if left > 0 {
        let last = if of.changes.is_some() { stream_begins_after(turn.host, of.stream)? } else { u64::MAX };
        visit_changes(turn.host, None, left, &mut |host, field, _| {
            let is_over = change_sequence(field).is_none_or(|sequence| sequence <= last);
            if is_over {
                host.delete(field)?;
                left -= 1;
            }
            Ok(is_over)
        })?;
    }
    Ok(left > 0)
}

/// All records have been looked at: the present indexes are complete.
fn complete(turn: &mut Turn<'_>, of: &RecordType, state: &mut State) -> Result<(), Error> {
    if state.skipped + state.unfit > 0 {
        let line = format!(
            "type {}: {} records cannot be read with the present schema, {} have too many values for an index, which is \
             not used in this shard",
            of.name, state.skipped, state.unfit
        );
        turn.host.log(LogLevel::Warn, &line);
    }
    for index in of.indexes.iter().filter(|index| index.is_single || state.unfit == 0) {
        let field = complete_field(index.number);
        if read_number(turn.host, &field)? != Some(index.definition) {
            turn.host.set(&field, number_value(index.definition))?;
        }
    }
    (state.phase, state.after) = (Phase::Done, None);
    Ok(())
}

fn take_away(turn: &mut Turn<'_>, prefix: Vec<u8>, limit: usize) -> Result<usize, Error> {
    let rows = turn.host.scan(&ScanRequest { prefix, after: None, limit })?;
    for (field, _) in &rows {
        turn.host.delete(field)?;
    }
    Ok(rows.len())
}
