//! `T/_expire`: a timer of a record has come.
//!
//! A record counts as absent from the moment it expires; this takes it away. There is at most one
//! timer that matters: the one whose time is noted with the record. A record whose time was put off
//! meanwhile is given a new one. A timer of a type that has been deleted meanwhile is dropped; should
//! there be a type of its name again, the sweep that follows does what the timer was to do.

use std::rc::Rc;

use bytes::Bytes;
use millrace_base::{Error, ErrorCode, UnixMillis};
use millrace_func::{HandlerId, OperationId};
use serde::Deserialize;

use crate::effects::{self, Calls, Kind, Transition};
use crate::program::{EXPIRE, RecordType};
use crate::stored::{FIELD, Stored};
use crate::turn::{Progress, Task, Turn};
use crate::write::send_timer;

#[derive(Deserialize)]
struct Timer {
    at_ms: u64,
}

pub(crate) fn start(turn: &mut Turn<'_>, type_index: usize, key: &[u8], input: &[u8]) -> Result<Progress, Error> {
    let timer: Timer = serde_json::from_slice(input)
        .map_err(|error| Error::new(ErrorCode::Internal, format!("a timer cannot be read: {error}")))?;
    let program = Rc::clone(turn.program);
    let of = &program.types[type_index];
    let now = turn.host.now();
    let Some(value) = turn.host.get(FIELD)?.cloned() else {
        return Ok(Progress::Done(Bytes::new()));
    };
    let stored = Stored::read(&value)?;
    if !stored.is_expired(now) {
        // Of several timers only the one that is noted goes on.
        if stored.timer_ms == Some(timer.at_ms) {
            let timed = with_timer(turn, of, key, stored)?;
            turn.host.set(FIELD, timed.write())?;
        }
        return Ok(Progress::Done(Bytes::new()));
    }
    let calls = take_away(turn, type_index, key, &stored)?;
    Rest { calls, output: Bytes::new() }.go_on(turn)
}

/// Sends a record the timer that it needs now, in place of one that has come. What it gives has to be stored.
pub(crate) fn with_timer<'a>(
    turn: &mut Turn<'_>,
    of: &RecordType,
    key: &[u8],
    stored: Stored<'a>,
) -> Result<Stored<'a>, Error> {
    let handler = HandlerId { program: turn.program.number, service: of.service, handler: EXPIRE };
    if let Some(expires) = stored.expires_ms {
        let now = turn.host.now();
        send_timer(turn.host, handler, key, (expires, now))?;
    }
    Ok(Stored { timer_ms: stored.expires_ms, ..stored })
}

/// Whether a record expires some time, and the timer that was to see to it is not under way any more: it came
/// while there was no such type, and was dropped. Or it comes this moment, and finds another one noted.
pub(crate) fn has_lost_its_timer(stored: &Stored<'_>, now: UnixMillis) -> bool {
    stored.expires_ms.is_some() && stored.timer_ms.is_none_or(|timer| timer < now.0)
}

/// Takes an expired record away. Gives what has to be called then; after an error nothing has been written.
pub(crate) fn take_away(
    turn: &mut Turn<'_>,
    type_index: usize,
    key: &[u8],
    stored: &Stored<'_>,
) -> Result<Calls, Error> {
    let program = Rc::clone(turn.program);
    // What cannot be read any more goes all the same, without a trigger having seen it.
    let before = program.current_value(&program.types[type_index], stored).ok();
    let transition = Transition {
        stored: Some(stored),
        before: before.as_deref(),
        after: None,
        kind: Kind::Expire,
        has_expired: false,
    };
    let calls = effects::begin(turn, type_index, key, &transition, false)?;
    turn.host.delete(FIELD)?;
    Ok(calls)
}

/// What is left to do once a record has been taken away.
pub(crate) struct Rest {
    pub calls: Calls,
    pub output: Bytes,
}

impl Rest {
    pub(crate) fn go_on(mut self, turn: &mut Turn<'_>) -> Result<Progress, Error> {
        let is_waiting = self.calls.next(turn)?;
        Ok(if is_waiting { Progress::Wait(Box::new(self)) } else { Progress::Done(self.output) })
    }
}

impl Task for Rest {
    fn resume(
        self: Box<Self>,
        turn: &mut Turn<'_>,
        _: OperationId,
        result: Result<Bytes, Error>,
    ) -> Result<Progress, Error> {
        result?;
        self.go_on(turn)
    }
}
