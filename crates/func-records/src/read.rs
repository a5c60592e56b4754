//! `T/_read`: operations that only read. Those on one record take one turn, straight from the stored bytes into the
//! reply.

use std::rc::Rc;

use bytes::Bytes;
use millrace_api::{Form, RecordOperation, RecordReply};
use millrace_base::{Error, ErrorCode};
use millrace_func::Reader;

use crate::change::unknown_record;
use crate::effects::{id_member, tag_text};
use crate::program::{RecordProgram, RecordType};
use crate::stored::{FIELD, Stored};
use crate::turn::{Progress, Shared, Turn};
use crate::values::{self, Parameters};
use crate::wire::{Ask, INTERNAL, decode, encode};
use crate::{changes, find, get_many, progress};

pub(crate) fn start(turn: &mut Turn<'_>, type_index: usize, key: &[u8], input: &[u8]) -> Result<Progress, Error> {
    if let Some((&INTERNAL, ask)) = input.split_first() {
        return answer(turn, type_index, key, decode(ask)?);
    }
    let operation = RecordOperation::from_bytes(input)?;
    let shared = turn.shared;
    let read = shared.with_output(|out| {
        let read = of_one(shared, (turn.program, type_index), &operation, turn.host, out)?;
        Some(read.map(|reply| {
            let mut output = reply.header(out.len());
            output.extend_from_slice(out);
            Progress::Done(Bytes::from(output))
        }))
    });
    if let Some(progress) = read {
        return progress;
    }
    match operation {
        RecordOperation::GetMany { ids, form } => get_many::start(turn, type_index, &ids, form),
        RecordOperation::Find(query) => find::start(turn, type_index, &query),
        RecordOperation::Changes { cursor, limit } => changes::start(turn, type_index, cursor, limit),
        RecordOperation::Indexes => progress::start(turn, type_index),
        _ => Err(Error::new(ErrorCode::Internal, "a write was sent to be only read")),
    }
}

/// Answers without a turn if only the record itself is needed. `None` for everything else.
pub(crate) fn at_once(
    shared: &Shared,
    program: &RecordProgram,
    type_index: usize,
    input: &[u8],
    reader: &mut dyn Reader,
) -> Option<Result<RecordReply, Error>> {
    // The turn refuses an input that is not an operation.
    let operation = RecordOperation::from_bytes(input).ok()?;
    shared.with_output(|out| {
        let read = of_one(shared, (program, type_index), &operation, reader, out)?;
        Some(read.map(|reply| RecordReply { body: Bytes::copy_from_slice(out), ..reply }))
    })
}

/// Runs an operation on one record and appends its body. `None` for an operation on several.
fn of_one<R: Reader + ?Sized>(
    shared: &Shared,
    (program, type_index): (&RecordProgram, usize),
    operation: &RecordOperation<'_>,
    reader: &mut R,
    out: &mut Vec<u8>,
) -> Option<Result<RecordReply, Error>> {
    let of = program.types.get(type_index)?;
    Some(match operation {
        RecordOperation::Get { form } => get((program, of), reader, *form, out),
        RecordOperation::GetField { field, form } => get_field((program, of), reader, field, *form, out),
        RecordOperation::Select { path, parameters, form } => {
            check_json(*form).and_then(|()| select(shared, (program, of), reader, (path, parameters), *form, out))
        }
        _ => return None,
    })
}

/// Runs `use_it` on the record's value in the present schema, and on its expiry.
#[inline]
fn with_value<T, R: Reader + ?Sized>(
    program: &RecordProgram,
    of: &RecordType,
    reader: &mut R,
    reads_untouched: bool,
    use_it: impl FnOnce(&[u8], Option<u64>) -> Result<T, Error>,
) -> Result<T, Error> {
    let now = reader.now();
    if let Some(value) = reader.get(FIELD)? {
        let stored = Stored::read(value)?;
        if !stored.is_expired(now) {
            return use_it(&program.current_value(of, &stored)?, stored.expires_ms);
        }
    }
    match of.touched_value() {
        Some(value) if reads_untouched => use_it(value, None),
        _ => Err(unknown_record(of)),
    }
}

fn reply(of: &RecordType, value: &[u8], expires_ms: Option<u64>, matched: u32) -> RecordReply {
    RecordReply {
        tag: Some(of.tag(value)),
        matched,
        expires_ms,
        schema_id: Some(of.schema_id),
        ..RecordReply::default()
    }
}

fn get<R: Reader + ?Sized>(
    (program, of): (&RecordProgram, &RecordType),
    reader: &mut R,
    form: Form,
    out: &mut Vec<u8>,
) -> Result<RecordReply, Error> {
    with_value(program, of, reader, true, |value, expires_ms| {
        values::print(out, &of.schema, value, form)?;
        Ok(reply(of, value, expires_ms, 1))
    })
}

fn get_field<R: Reader + ?Sized>(
    (program, of): (&RecordProgram, &RecordType),
    reader: &mut R,
    name: &str,
    form: Form,
    out: &mut Vec<u8>,
) -> Result<RecordReply, Error> {
    with_value(program, of, reader, true, |value, expires_ms| {
        // A reader may ask for what is not there; only for a writer that is a mistake.
        let no_match = |error: Error| Error { code: ErrorCode::NoMatch, ..error };
        let (node, range) = values::field(&of.schema, value, name).map_err(no_match)?;
        values::print_node(out, &of.schema, node, &value[range], form)?;
        Ok(reply(of, value, expires_ms, 1))
    })
}

fn select<R: Reader + ?Sized>(
    shared: &Shared,
    (program, of): (&RecordProgram, &RecordType),
    reader: &mut R,
    (path, parameters): (&str, &str),
    form: Form,
    out: &mut Vec<u8>,
) -> Result<RecordReply, Error> {
    let path = shared.path(path)?;
    let parsed;
    let parameters = if parameters.is_empty() {
        Parameters::NONE
    } else {
        parsed = Parameters::parse(parameters)?;
        &parsed
    };
    with_value(program, of, reader, true, |value, expires_ms| {
        let found = path.select(&of.schema, value, parameters)?;
        let matched = u32::try_from(found.len()).unwrap_or(u32::MAX);
        out.push(b'[');
        for (index, found) in found.into_iter().enumerate() {
            if index > 0 {
                out.push(b',');
            }
            values::print_node(out, &of.schema, found.node, &value[found.range], form)?;
            // A path may match a place, and a place around it, many times.
            if out.len() > millrace_base::limits::RECORD_JSON_BYTES {
                let message = "what the path matches is too much for one reply: narrow it down";
                return Err(Error::new(ErrorCode::TooLarge, message));
            }
        }
        out.push(b']');
        Ok(reply(of, value, expires_ms, matched))
    })
}

/// Several values in one reply are JSON.
pub(crate) fn check_json(form: Form) -> Result<(), Error> {
    if form == Form::Binary {
        let message = "several values are answered as JSON only; Avro binary is for one record or one field";
        return Err(Error::new(ErrorCode::UnsupportedMediaType, message));
    }
    Ok(())
}

/// Answers a query over many records. Records that nobody has written are in no list.
fn answer(turn: &mut Turn<'_>, type_index: usize, key: &[u8], ask: Ask<'_>) -> Result<Progress, Error> {
    let program = Rc::clone(turn.program);
    let of = &program.types[type_index];
    let shared = turn.shared;
    let output = with_value(&program, of, turn.host, false, |value, _| match ask {
        Ask::Probe { probe, steps } => {
            let named =
                |error: Error| Error { message: format!("the record {}: {}", shown(key), error.message), ..error };
            find::probe(shared, of, value, &probe, steps).map(|probed| encode(&probed)).map_err(named)
        }
        Ask::Fetch { ids_only: true, .. } => Ok(Bytes::from(id_member(key))),
        Ask::Fetch { form, ids_only: false } => {
            let mut out = object_head(key, of.tag(value));
            values::print(&mut out, &of.schema, value, form)?;
            Ok(Bytes::from(out))
        }
    });
    match output {
        Ok(output) => Ok(Progress::Done(output)),
        Err(error) if error.code == ErrorCode::UnknownRecord => Ok(Progress::Done(Bytes::new())),
        Err(error) => Err(error),
    }
}

/// A record's id for messages.
fn shown(id: &[u8]) -> String {
    const SHOWN: usize = 100;
    let text = String::from_utf8_lossy(id);
    let mut shown: String = text.chars().take(SHOWN).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    format!("{shown:?}")
}

/// The members of a list's object before the record itself.
pub(crate) fn object_head(id: &[u8], tag: u64) -> Vec<u8> {
    format!("{},\"etag\":\"{}\",\"record\":", id_member(id), tag_text(tag)).into_bytes()
}
