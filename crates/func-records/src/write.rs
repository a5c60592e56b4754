//! `T/_write`: one change of one record, with all its effects.
//!
//! One turn reads the record, checks the condition, makes the new value, stores it, and sends the messages for after
//! the commit. Then nested calls follow in this order: index rows and change rows, triggers that may refuse. A write
//! that changes nothing does none of this.

use std::borrow::Cow;
use std::rc::Rc;

use bytes::Bytes;
use millrace_api::{Condition, Form, RecordChange, RecordOperation, RecordReply, RecordWrite, Ttl};
use millrace_base::{Error, ErrorCode, UnixMillis, limits};
use millrace_func::{HandlerId, Host, Message, OperationId};

use crate::change::{Changed, change};
use crate::effects::{Calls, Kind, Transition};
use crate::program::{EXPIRE, RecordProgram, RecordType};
use crate::rows::check_id;
use crate::stored::{FIELD, Stored};
use crate::turn::{Progress, Task, Turn};
use crate::{effects, values};

/// When a record expires, and whether a write set this rather than the type.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Expiry {
    at_ms: Option<u64>,
    is_said: bool,
}

pub(crate) fn start(turn: &mut Turn<'_>, type_index: usize, key: &[u8], input: &[u8]) -> Result<Progress, Error> {
    let RecordOperation::Write(write) = RecordOperation::from_bytes(input)? else {
        return Err(Error::new(ErrorCode::Internal, "an operation that only reads was sent to be written"));
    };
    check_id(key)?;
    let program = Rc::clone(turn.program);
    let of = &program.types[type_index];
    let now = turn.host.now();
    let value = turn.host.get(FIELD)?.cloned();
    let stored = value.as_ref().map(Stored::read).transpose()?;
    let live = stored.filter(|stored| !stored.is_expired(now));
    let before = match live.map(|live| program.current_value(of, &live)).transpose() {
        // A record that no schema can read any more may still be replaced or deleted.
        Err(error) if error.code == ErrorCode::WrongType && needs_no_value(&write) => None,
        before => before?,
    };
    let base = match &before {
        Some(before) => Some(&**before),
        None => of.touched_value().filter(|_| live.is_none()),
    };
    check_condition(&write.condition, base.map(|value| of.tag(value)), live.is_some())?;
    let Changed { after, matched } = change((turn.shared, &program), of, base, live.is_some(), &write.change)?;
    let expiry = expiry(of, &write, live.as_ref(), now)?;
    let mut reply = RecordReply { matched, ..RecordReply::default() };
    if let Some(after) = &after {
        let is_put = matches!(write.change, RecordChange::Put { .. } | RecordChange::PutWritten { .. });
        let is_untouched = live.is_none() && !is_put && write.ttl.is_none() && base == Some(after);
        let is_same = live.is_some_and(|live| {
            before.as_deref() == Some(after) && Expiry { at_ms: live.expires_ms, is_said: live.is_said } == expiry
        });
        reply.tag = Some(of.tag(after));
        reply.schema_id = Some(of.schema_id);
        reply.expires_ms = if is_untouched { None } else { expiry.at_ms };
        reply.created = live.is_none() && !is_untouched;
        if is_untouched || is_same {
            return finish(of, reply, after, write.answer);
        }
        check_size(after)?;
    }
    let written = Written { stored, now, expiry };
    store(turn.host, (program.number, of), key, after.as_deref(), &written)?;
    let is_replaced = stored.is_some() && live.is_none();
    let transition = Transition {
        stored: stored.as_ref(),
        before: before.as_deref(),
        after: after.as_deref(),
        kind: match (live.is_some(), after.is_some()) {
            (_, false) => Kind::Delete,
            (true, true) => Kind::Update,
            (false, true) => Kind::Create,
        },
        has_expired: is_replaced,
    };
    let calls = effects::begin(turn, type_index, key, &transition, true)?;
    let after = after.map(Cow::into_owned);
    let rest = Rest { program, type_index, calls, reply, after, answer: write.answer };
    rest.go_on(turn)
}

/// Whether the write does not depend on the record's value.
fn needs_no_value(write: &RecordWrite<'_>) -> bool {
    let is_blind =
        matches!(write.change, RecordChange::Put { .. } | RecordChange::PutWritten { .. } | RecordChange::Delete);
    let asks_for_tags =
        matches!(&write.condition, Condition::Match(tags) | Condition::NoneMatch(tags) if !tags.is_empty());
    is_blind && !asks_for_tags
}

/// What is known of a record that is about to be stored.
struct Written<'a> {
    stored: Option<Stored<'a>>,
    now: UnixMillis,
    expiry: Expiry,
}

/// Stores the record, or deletes it, and makes sure that a timer comes when it expires.
fn store(
    host: &mut dyn Host,
    (program, of): (millrace_func::Program, &RecordType),
    key: &[u8],
    after: Option<&[u8]>,
    written: &Written<'_>,
) -> Result<(), Error> {
    let Some(after) = after else {
        host.delete(FIELD)?;
        return Ok(());
    };
    let Written { stored, now, expiry } = written;
    // A timer whose time has passed has come, or finds that another one is under way.
    let mut timer_ms = stored.and_then(|stored| stored.timer_ms).filter(|timer| *timer >= now.0);
    if let Some(expires) = expiry.at_ms
        && timer_ms.is_none_or(|timer| expires < timer)
    {
        let handler = HandlerId { program, service: of.service, handler: EXPIRE };
        send_timer(host, handler, key, (expires, *now))?;
        timer_ms = Some(expires);
    }
    let stored =
        Stored { schema_id: of.schema_id, expires_ms: expiry.at_ms, is_said: expiry.is_said, timer_ms, value: after };
    host.set(FIELD, stored.write())
}

/// Sends the message that deletes an expired record.
pub(crate) fn send_timer(
    host: &mut dyn Host,
    handler: HandlerId,
    key: &[u8],
    (at_ms, now): (u64, UnixMillis),
) -> Result<(), Error> {
    let input = Bytes::from(format!("{{\"at_ms\":{at_ms}}}"));
    host.send(Message { handler, key: key.to_vec(), input, delay_ms: at_ms.saturating_sub(now.0), id: None })?;
    Ok(())
}

/// A type's own time to live begins anew with each write. A time that a write set stays until another write sets
/// another one.
fn expiry(
    of: &RecordType,
    write: &RecordWrite<'_>,
    live: Option<&Stored<'_>>,
    now: UnixMillis,
) -> Result<Expiry, Error> {
    Ok(match (write.ttl, live) {
        (Some(Ttl::Forever), _) => Expiry { at_ms: None, is_said: true },
        (Some(Ttl::Milliseconds(ttl_ms)), _) if ttl_ms > limits::TTL_MS => {
            let message =
                format!("a time to live is at most {} ms; without one a record stays for ever", limits::TTL_MS);
            return Err(Error::new(ErrorCode::BadRequest, message));
        }
        (Some(Ttl::Milliseconds(ttl_ms)), _) => Expiry { at_ms: Some(now.plus(ttl_ms).0), is_said: true },
        (None, Some(live)) if live.is_said => Expiry { at_ms: live.expires_ms, is_said: true },
        (None, _) => Expiry { at_ms: of.ttl_ms.map(|ttl_ms| now.plus(ttl_ms).0), is_said: false },
    })
}

/// In a type whose records are made on touch, a record that is not stored counts as there, with its defaults. Only
/// `If-None-Match: *` asks for what is stored.
fn check_condition(condition: &Condition, tag: Option<u64>, is_stored: bool) -> Result<(), Error> {
    let refuse = |message: &str| Err(Error::new(ErrorCode::PreconditionFailed, message));
    match (condition, tag) {
        (Condition::None, _) => Ok(()),
        (Condition::Match(tags), None) if tags.is_empty() && is_stored => Ok(()),
        (Condition::Match(_), None) => refuse("there is no such record"),
        (Condition::Match(tags), Some(tag)) if tags.is_empty() || tags.contains(&tag) => Ok(()),
        (Condition::Match(_), Some(_)) => refuse("the record has changed: it has none of the tags given"),
        (Condition::NoneMatch(tags), _) if tags.is_empty() => {
            if is_stored {
                refuse("the record is there already")
            } else {
                Ok(())
            }
        }
        (Condition::NoneMatch(tags), Some(tag)) if tags.contains(&tag) => {
            refuse("the record has one of the tags given")
        }
        (Condition::NoneMatch(_), _) => Ok(()),
    }
}

fn check_size(value: &[u8]) -> Result<(), Error> {
    // The field has a head and a kind beside the value.
    const HEAD_BYTES: usize = 64;
    let most = limits::RECORD_BYTES - HEAD_BYTES;
    if value.len() > most {
        let message = format!("the record would have {} bytes; {most} are allowed", value.len());
        return Err(Error::new(ErrorCode::TooLarge, message));
    }
    Ok(())
}

fn finish(of: &RecordType, reply: RecordReply, value: &[u8], answer: Option<Form>) -> Result<Progress, Error> {
    let mut out = reply.header(answer.map_or(0, |_| value.len() * 2));
    if let Some(form) = answer {
        values::print(&mut out, &of.schema, value, form)?;
    }
    Ok(Progress::Done(Bytes::from(out)))
}

/// The work left of a write: calls one after the other, and the reply.
struct Rest {
    program: Rc<RecordProgram>,
    type_index: usize,
    calls: Calls,
    reply: RecordReply,
    after: Option<Vec<u8>>,
    answer: Option<Form>,
}

impl Rest {
    fn go_on(mut self, turn: &mut Turn<'_>) -> Result<Progress, Error> {
        if self.calls.next(turn)? {
            return Ok(Progress::Wait(Box::new(self)));
        }
        if self.calls.ran_triggers {
            self.look_again(turn.host)?;
        }
        let of = &self.program.types[self.type_index];
        match &self.after {
            Some(after) => finish(of, self.reply, after, self.answer),
            None => Ok(Progress::Done(self.reply.to_bytes())),
        }
    }

    /// A trigger may have written the record itself, so the reply reads what is there in the end.
    fn look_again(&mut self, host: &mut dyn Host) -> Result<(), Error> {
        let of = &self.program.types[self.type_index];
        let Some(value) = host.get(FIELD)? else {
            (self.reply.tag, self.reply.schema_id, self.reply.expires_ms, self.after) = (None, None, None, None);
            return Ok(());
        };
        let stored = Stored::read(value)?;
        let after = self.program.current_value(of, &stored)?;
        self.reply.tag = Some(of.tag(&after));
        self.reply.schema_id = Some(of.schema_id);
        self.reply.expires_ms = stored.expires_ms;
        self.after = Some(after.into_owned());
        Ok(())
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
