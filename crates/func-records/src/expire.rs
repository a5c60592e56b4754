//! `T/_expire`: a timer of a record has come.
//!
//! A record counts as absent from the moment it expires; this takes it away. There is at most one
//! timer that matters: the one whose time is noted with the record. A record whose time was put off
//! meanwhile is given a new one.

use std::rc::Rc;

use bytes::Bytes;
use millrace_base::{Error, ErrorCode};
use millrace_func::{HandlerId, OperationId};
use serde::Deserialize;

use crate::effects::{self, Calls, Kind, Transition};
use crate::program::EXPIRE;
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
            let handler = HandlerId { program: program.number, service: of.service, handler: EXPIRE };
            if let Some(expires) = stored.expires_ms {
                send_timer(turn.host, handler, key, (expires, now))?;
            }
            turn.host.set(FIELD, Stored { timer_ms: stored.expires_ms, ..stored }.write())?;
        }
        return Ok(Progress::Done(Bytes::new()));
    }
    turn.host.delete(FIELD)?;
    // What cannot be read any more goes all the same, without a trigger having seen it.
    let before = program.current_value(of, &stored).ok();
    let transition = Transition {
        stored: Some(&stored),
        before: before.as_deref(),
        after: None,
        kind: Kind::Expire,
        has_expired: false,
    };
    let calls = effects::begin(turn, type_index, key, &transition, false)?;
    Rest { calls }.go_on(turn)
}

struct Rest {
    calls: Calls,
}

impl Rest {
    fn go_on(mut self, turn: &mut Turn<'_>) -> Result<Progress, Error> {
        let is_waiting = self.calls.next(turn)?;
        Ok(if is_waiting { Progress::Wait(Box::new(self)) } else { Progress::Done(Bytes::new()) })
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
