//! `T/_expire`: a record's timer has come.
//!
//! A record counts as absent from the moment it expires; this call deletes it. At most one timer matters: the one whose
//! time is stored with the record. If the record's expiry was put off meanwhile, it gets a new timer. A timer of a type
//! that has been deleted meanwhile is dropped. If a type of that name is made again, the sweep that follows does the
//! timer's work.

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
        // Of several timers only the stored one goes on.
        if stored.timer_ms == Some(timer.at_ms) {
            let timed = with_timer(turn, of, key, stored)?;
            turn.host.set(FIELD, timed.write())?;
        }
        return Ok(Progress::Done(Bytes::new()));
    }
    let calls = take_away(turn, type_index, key, &stored)?;
    Rest { calls, output: Bytes::new() }.go_on(turn)
}

/// Sends a record the timer that it needs now, in place of one that has come. The caller has to store the returned
/// record.
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

/// Whether a record will expire, and the timer for it is no longer under way: it came while there was no such type, and
/// was dropped. Or the timer comes at this moment, and finds another one stored.
pub(crate) fn has_lost_its_timer(stored: &Stored<'_>, now: UnixMillis) -> bool {
    stored.expires_ms.is_some() && stored.timer_ms.is_none_or(|timer| timer < now.0)
}

/// Deletes an expired record. Returns the calls to make then. After an error nothing has been written.
pub(crate) fn take_away(
    turn: &mut Turn<'_>,
    type_index: usize,
    key: &[u8],
    stored: &Stored<'_>,
) -> Result<Calls, Error> {
    let program = Rc::clone(turn.program);
    // A record that can no longer be read is deleted all the same, without any trigger seeing it.
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

/// The work left after a record has been deleted.
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
