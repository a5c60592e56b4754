//! The effects of a change of a record: index rows, change rows, triggers.

use std::collections::VecDeque;
use std::rc::Rc;

use bytes::Bytes;
use millrace_base::{Error, limits, shard_of_key};
use millrace_func::{HandlerId, Message};
use serde_json::json;

use crate::program::{APPLY, RecordProgram, RecordType, Trigger};
use crate::stored::Stored;
use crate::triggers::{DEPTH_BYTES, with_depth};
use crate::turn::Turn;
use crate::values;
use crate::wire::{Apply, encode};

/// Bytes of one stored change, which is a row of its own, of the size of a field's value. A change of a larger record
/// is stored without the record. If it is still larger, it is stored without the values.
const CHANGE_BYTES: usize = 256 << 10;

/// What happened to a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Create,
    Update,
    Delete,
    Expire,
}

impl Kind {
    fn as_str(self) -> &'static str {
        match self {
            Kind::Create => "create",
            Kind::Update => "update",
            Kind::Delete => "delete",
            Kind::Expire => "expire",
        }
    }
}

/// A record before and after a change.
pub(crate) struct Transition<'a> {
    /// The stored value, even if it counts as absent, because its index rows are there.
    pub stored: Option<&'a Stored<'a>>,
    /// The value before, in the present schema, if the record counted as there.
    pub before: Option<&'a [u8]>,
    /// The value now.
    pub after: Option<&'a [u8]>,
    pub kind: Kind,
    /// The stored record had expired, and no change has reported that yet.
    pub has_expired: bool,
}

/// Nested calls still to make, one after the other.
#[derive(Default)]
pub(crate) struct Calls {
    calls: VecDeque<((u16, u16), Vec<u8>, Bytes)>,
    /// Messages sent besides.
    pub messages: usize,
    /// Rows written, and bytes of calls and messages: the share of a transaction that it takes.
    pub rows: usize,
    pub size_bytes: usize,
    /// One of the calls was a trigger.
    pub ran_triggers: bool,
    triggers_service: Option<u16>,
}

impl Calls {
    /// Begins the next call, if there is one.
    pub(crate) fn next(&mut self, turn: &mut Turn<'_>) -> Result<bool, Error> {
        let Some((handler, key, input)) = self.calls.pop_front() else {
            return Ok(false);
        };
        self.ran_triggers |= Some(handler.0) == self.triggers_service;
        turn.call(handler, &key, input)?;
        Ok(true)
    }

    /// Sends the triggers that run after the commit, and adds the others to the calls.
    fn add_triggers(
        &mut self,
        turn: &mut Turn<'_>,
        of: &RecordType,
        key: &[u8],
        (triggers, input): (&[&Trigger], &str),
    ) -> Result<(), Error> {
        let (before, after) = (with_depth(turn.depth, input), with_depth(turn.depth.saturating_add(1), input));
        let Some(service) = of.triggers_service else {
            return Ok(());
        };
        for trigger in triggers {
            if trigger.is_before {
                self.calls.push_back(((service, trigger.handler), key.to_vec(), before.clone()));
            } else {
                let handler = HandlerId { program: turn.program.number, service, handler: trigger.handler };
                turn.host.send(Message { handler, key: key.to_vec(), input: after.clone(), delay_ms: 0, id: None })?;
                self.messages += 1;
                self.size_bytes += after.len();
            }
        }
        Ok(())
    }
}

/// Sends the messages for after the commit, and returns the calls to make before it. An expiry cannot be refused:
/// `may_refuse` is false for it.
pub(crate) fn begin(
    turn: &mut Turn<'_>,
    type_index: usize,
    key: &[u8],
    transition: &Transition<'_>,
    may_refuse: bool,
) -> Result<Calls, Error> {
    let program = Rc::clone(turn.program);
    let of = &program.types[type_index];
    let mut calls = Calls { triggers_service: of.triggers_service, ..Calls::default() };
    // Only the time to live has changed, or an untouched record was put with the same value.
    let is_same = transition.before == transition.after && transition.before.is_some();
    let mut apply = Apply::default();
    if !of.indexes.is_empty() {
        (apply.remove, apply.add) = row_changes(&program, of, key, transition)?;
    }
    if transition.has_expired {
        tell_of_expiry(turn, &mut calls, of, key, transition)?;
    }
    let triggers = if is_same { Vec::new() } else { triggers_of(of, transition, may_refuse)? };
    let difference = if !is_same && (of.changes.is_some() || !triggers.is_empty()) {
        values::difference(&of.schema, transition.before, transition.after)?
    } else {
        String::new()
    };
    if of.changes.is_some() {
        if transition.has_expired {
            let expired = Transition { after: None, before: None, kind: Kind::Expire, ..*transition };
            apply.changes.push(change_members(of, key, &expired, "[]")?);
        }
        if !is_same {
            apply.changes.push(change_members(of, key, transition, &difference)?);
        }
    }
    if !(apply.remove.is_empty() && apply.add.is_empty() && apply.changes.is_empty()) {
        let shard = shard_of_key(key, turn.shared.shard_keys.len() as u16);
        let shard_key = turn.shared.shard_keys[usize::from(shard.0)].clone();
        let input = encode(&apply);
        calls.rows = apply.remove.len() + apply.add.len() + apply.changes.len();
        calls.size_bytes = input.len();
        calls.calls.push_back(((of.shard_service, APPLY), shard_key, input));
    }
    if !triggers.is_empty() {
        let input = trigger_input(of, key, transition, &difference)?;
        calls.add_triggers(turn, of, key, (&triggers, &input))?;
    }
    Ok(calls)
}

/// The triggers that a change runs.
fn triggers_of<'a>(
    of: &'a RecordType,
    transition: &Transition<'_>,
    may_refuse: bool,
) -> Result<Vec<&'a Trigger>, Error> {
    let mut triggers = Vec::new();
    for trigger in &of.triggers {
        if (may_refuse || !trigger.is_before)
            && values::differs(&trigger.path, &of.schema, transition.before, transition.after)?
        {
            triggers.push(trigger);
        }
    }
    Ok(triggers)
}

/// Sends the messages about a record's expiry, if another record replaces it before its timer has come.
fn tell_of_expiry(
    turn: &mut Turn<'_>,
    calls: &mut Calls,
    of: &RecordType,
    key: &[u8],
    transition: &Transition<'_>,
) -> Result<(), Error> {
    if of.triggers.iter().all(|trigger| trigger.is_before) {
        return Ok(());
    }
    // A record that can no longer be read is deleted without any trigger seeing it.
    let program = Rc::clone(turn.program);
    let Some(Ok(before)) = transition.stored.map(|stored| program.current_value(of, stored)) else {
        return Ok(());
    };
    let expiry =
        Transition { before: Some(&before), after: None, kind: Kind::Expire, has_expired: false, ..*transition };
    let triggers = triggers_of(of, &expiry, false)?;
    if !triggers.is_empty() {
        let difference = values::difference(&of.schema, expiry.before, None)?;
        let input = trigger_input(of, key, &expiry, &difference)?;
        calls.add_triggers(turn, of, key, (&triggers, &input))?;
    }
    Ok(())
}

/// Names of index rows.
type Rows = Vec<Vec<u8>>;

/// Index rows to delete and to add. The existing rows are those of the stored value, in the schema in which it was
/// written.
fn row_changes(
    program: &RecordProgram,
    of: &RecordType,
    key: &[u8],
    transition: &Transition<'_>,
) -> Result<(Rows, Rows), Error> {
    let before = match transition.stored {
        Some(stored) => program.stored_rows(of, stored, key)?,
        None => Vec::new(),
    };
    let after = match transition.after {
        Some(after) => of.new_rows(after, key)?,
        None => Vec::new(),
    };
    let remove = before.iter().filter(|row| after.binary_search(row).is_err()).cloned().collect();
    let add = after.into_iter().filter(|row| before.binary_search(row).is_err()).collect();
    Ok((remove, add))
}

/// `"id":"…"`, or `"id_base64":"…"` if the id is not UTF-8.
pub(crate) fn id_member(id: &[u8]) -> String {
    match std::str::from_utf8(id) {
        Ok(id) => format!("\"id\":{}", json!(id)),
        Err(_) => {
            let text = millrace_func::base64_encode(id, millrace_func::Base64Alphabet::Standard);
            format!("\"id_base64\":\"{text}\"")
        }
    }
}

/// A tag as text in JSON.
pub(crate) fn tag_text(tag: u64) -> String {
    format!("{tag:016x}")
}

fn value_json(of: &RecordType, value: Option<&[u8]>) -> Result<String, Error> {
    match value {
        Some(value) => values::json(&of.schema, value),
        None => Ok("null".to_owned()),
    }
}

/// A change as stored, without its sequence and time.
fn change_members(of: &RecordType, id: &[u8], transition: &Transition<'_>, difference: &str) -> Result<String, Error> {
    let mut members = format!("{},\"kind\":\"{}\"", id_member(id), transition.kind.as_str());
    let Some(after) = transition.after else {
        return Ok(members);
    };
    members.push_str(&format!(",\"etag\":\"{}\"", tag_text(of.tag(after))));
    if after.len() <= CHANGE_BYTES {
        let record = values::json(&of.schema, after)?;
        if record.len() <= CHANGE_BYTES {
            members.push_str(&format!(",\"record\":{record}"));
        }
    }
    // For a new record, the record says everything.
    if transition.before.is_some() && difference.len() <= CHANGE_BYTES {
        members.push_str(&format!(",\"changes\":{difference}"));
    }
    Ok(members)
}

/// A trigger's input, without the depth and the brace before it.
fn trigger_input(of: &RecordType, id: &[u8], transition: &Transition<'_>, difference: &str) -> Result<String, Error> {
    let input = format!(
        "{},\"record\":{},\"before\":{},\"changes\":{difference}}}",
        id_member(id),
        value_json(of, transition.after)?,
        value_json(of, transition.before)?,
    );
    if DEPTH_BYTES + input.len() > limits::INPUT_BYTES {
        let message = format!("what the type's triggers would be given has more than {} bytes", limits::INPUT_BYTES);
        return Err(Error::new(millrace_base::ErrorCode::TooLarge, message));
    }
    Ok(input)
}
