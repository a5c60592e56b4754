//! `ctx.record` and `ctx.records`: operations on typed records. The objects that they give are made
//! in `glue.js`; what those ask the host for, and what its answers mean, is here.

use std::borrow::Cow;

use bytes::Bytes;
use millrace_api::{
    Form, PathOperation, PathOperationKind, RECORDS_APP, RecordChange, RecordOperation, RecordQuery, RecordReply,
    RecordWrite,
};
use millrace_base::{Error, ErrorCode, limits};
use millrace_func::BuiltInCall;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::isolate::Isolate;
use crate::js::{Kind, NULL, Raw, Thrown, UNDEFINED, Value, boolean, int, is_nullish, kind, number};
use crate::native::{Call, Entry, NativeOwner};
use crate::operations::Answer;

pub(crate) const ENTRIES: &[Entry] = &[
    (NativeOwner::Context, "record", 2, record),
    (NativeOwner::Context, "records", 1, records),
    (NativeOwner::Helpers, "recordGet", 3, get),
    (NativeOwner::Helpers, "recordSelect", 5, select),
    (NativeOwner::Helpers, "recordPut", 4, put),
    (NativeOwner::Helpers, "recordUpdate", 5, update),
    (NativeOwner::Helpers, "recordPatch", 5, patch),
    (NativeOwner::Helpers, "recordDelete", 3, delete),
    (NativeOwner::Helpers, "recordsFind", 8, find),
    (NativeOwner::Helpers, "recordsGetMany", 3, get_many),
];

/// What the reply to an operation on records gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecordAnswer {
    /// The body; an error is an error.
    Body,
    /// The rows of the body.
    Rows,
    /// The record, or `null` when there is none.
    Record,
    /// Whether the write made the record.
    Created,
    /// Whether there was a record to delete.
    Deleted,
    /// How many places matched.
    Matched,
    /// The same, where no match is no error.
    MatchedOrNone,
}

impl RecordAnswer {
    /// The value that stands for an error, where one does.
    pub(crate) fn instead_of(self, error: &Error) -> Option<Raw> {
        match (self, error.code) {
            (Self::Record, ErrorCode::UnknownRecord) => Some(NULL),
            (Self::Deleted, ErrorCode::UnknownRecord) => Some(boolean(false)),
            (Self::MatchedOrNone, ErrorCode::NoMatch) => Some(int(0)),
            _ => None,
        }
    }
}

/// One step of a patch as JavaScript gives it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PatchStep<'a> {
    op: PathOperationKind,
    #[serde(borrow)]
    path: Cow<'a, str>,
    #[serde(borrow, default, deserialize_with = "present")]
    value: Option<&'a RawValue>,
}

/// `null` is a value: only a step without one has none.
fn present<'a, D: serde::Deserializer<'a>>(deserializer: D) -> Result<Option<&'a RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

impl Isolate {
    /// What a reply to an operation on records means.
    pub(crate) fn record_value(&self, answer: RecordAnswer, output: &Bytes) -> Result<Value, Thrown> {
        let reply = RecordReply::from_bytes(output.clone()).map_err(|error| self.throw_error(error))?;
        match answer {
            RecordAnswer::Body | RecordAnswer::Record => self.parse_json(&reply.body),
            RecordAnswer::Rows => {
                let body = self.parse_json(&reply.body)?;
                self.context.get_named(body.raw(), c"records")
            }
            RecordAnswer::Created => Ok(self.context.own(boolean(reply.created))),
            RecordAnswer::Deleted => Ok(self.context.own(boolean(true))),
            RecordAnswer::Matched | RecordAnswer::MatchedOrNone => {
                Ok(self.context.own(number(f64::from(reply.matched))))
            }
        }
    }

    /// A string argument.
    fn record_text(&self, raw: Raw, what: &str) -> Result<String, Thrown> {
        if kind(raw) != Kind::String {
            return Err(self.context.throw_type(&format!("{what} must be a string")));
        }
        let text = self.context.text(raw)?;
        match std::str::from_utf8(text.bytes()) {
            Ok(text) => Ok(text.to_owned()),
            Err(_) => Err(self.context.throw_type(&format!("{what} must not contain half of a surrogate pair"))),
        }
    }

    /// The values of `$name` in paths: JSON text, empty when none are given.
    fn record_parameters(&self, raw: Raw) -> Result<String, Thrown> {
        if is_nullish(raw) {
            return Ok(String::new());
        }
        if kind(raw) != Kind::Object || self.context.is_array(raw) {
            return Err(self.context.throw_type("the parameters of a path are an object: { name: value }"));
        }
        self.record_json(raw)
    }

    fn record_json(&self, raw: Raw) -> Result<String, Thrown> {
        if kind(raw) == Kind::Undefined {
            return Err(self.context.throw_type("undefined cannot be stored in a record"));
        }
        let json = self.input(raw)?;
        String::from_utf8(json.to_vec()).map_err(|_| self.context.throw_type("the value is not text"))
    }
}

/// `ctx.record(type, id)`: nothing is asked for before the object is used.
fn record(call: &Call<'_>) -> Result<Value, Thrown> {
    let isolate = call.isolate;
    isolate.check_context(call.this)?;
    isolate.record_text(call.argument(0), "the type of a record")?;
    isolate.entity_key(call.argument(1))?;
    let mut arguments = [call.this, call.argument(0), call.argument(1)];
    call.context.call(isolate.glue.make_record, UNDEFINED, &mut arguments)
}

/// `ctx.records(type)`.
fn records(call: &Call<'_>) -> Result<Value, Thrown> {
    let isolate = call.isolate;
    isolate.check_context(call.this)?;
    isolate.record_text(call.argument(0), "the type of records")?;
    call.context.call(isolate.glue.make_records, UNDEFINED, &mut [call.this, call.argument(0)])
}

/// Asks for an operation on the record that the arguments `ctx`, type and id name.
fn ask(call: &Call<'_>, operation: &RecordOperation<'_>, answer: RecordAnswer) -> Result<Value, Thrown> {
    let isolate = call.isolate;
    isolate.check_context(call.argument(0))?;
    let type_name = isolate.record_text(call.argument(1), "the type of a record")?;
    let id = if operation.is_about_type() { Vec::new() } else { isolate.entity_key(call.argument(2))? };
    isolate.check_operations()?;
    isolate.await_operation_as(Answer::Record(answer), || {
        let key = (!operation.is_about_type()).then_some(&*id);
        let (app, handler, input) = (RECORDS_APP, operation.handler(), operation.to_bytes());
        isolate.with_host(|host| host.operate(BuiltInCall { app, service: &type_name, handler, key, input }))
    })
}

fn get(call: &Call<'_>) -> Result<Value, Thrown> {
    ask(call, &RecordOperation::Get { form: Form::Json }, RecordAnswer::Record)
}

fn select(call: &Call<'_>) -> Result<Value, Thrown> {
    let path = call.isolate.record_text(call.argument(3), "a path")?;
    let parameters = call.isolate.record_parameters(call.argument(4))?;
    let operation = RecordOperation::Select { path: &path, parameters: &parameters, form: Form::Json };
    ask(call, &operation, RecordAnswer::Body)
}

fn write(call: &Call<'_>, change: RecordChange<'_>, answer: RecordAnswer) -> Result<Value, Thrown> {
    ask(call, &RecordOperation::Write(RecordWrite { change, ..RecordWrite::default() }), answer)
}

fn put(call: &Call<'_>) -> Result<Value, Thrown> {
    let value = call.isolate.record_json(call.argument(3))?;
    write(call, RecordChange::Put { form: Form::Json, value: value.as_bytes() }, RecordAnswer::Created)
}

fn delete(call: &Call<'_>) -> Result<Value, Thrown> {
    write(call, RecordChange::Delete, RecordAnswer::Deleted)
}

/// Path, value and parameters: a patch of one step that sets what the path matches.
fn update(call: &Call<'_>) -> Result<Value, Thrown> {
    let path = call.isolate.record_text(call.argument(3), "a path")?;
    let value = call.isolate.record_json(call.argument(4))?;
    let parameters = call.isolate.record_parameters(call.argument(5))?;
    let step = PathOperation { kind: PathOperationKind::Set, path: path.into(), value: Some(&value) };
    let change = RecordChange::Patch { operations: vec![step], parameters: &parameters };
    write(call, change, RecordAnswer::MatchedOrNone)
}

/// An array of `{ op, path, value }`, and parameters.
fn patch(call: &Call<'_>) -> Result<Value, Thrown> {
    let isolate = call.isolate;
    if !isolate.context.is_array(call.argument(3)) {
        return Err(isolate.context.throw_type("a patch is an array of { op, path, value }"));
    }
    let json = isolate.record_json(call.argument(3))?;
    let steps: Vec<PatchStep<'_>> = serde_json::from_str(&json).map_err(|error| {
        isolate.context.throw_type(&format!("a patch is an array of {{ op, path, value }}: {error}"))
    })?;
    let operations = steps.into_iter().map(|step| PathOperation {
        kind: step.op,
        path: step.path,
        value: step.value.map(RawValue::get),
    });
    let parameters = isolate.record_parameters(call.argument(4))?;
    let change = RecordChange::Patch { operations: operations.collect(), parameters: &parameters };
    write(call, change, RecordAnswer::Matched)
}

/// `ctx`, type, then where, parameters, order, prefix, cursor and limit; what is not given is `undefined`.
fn find(call: &Call<'_>) -> Result<Value, Thrown> {
    let isolate = call.isolate;
    let text = |index, what| match call.argument(index) {
        raw if is_nullish(raw) => Ok(String::new()),
        raw => isolate.record_text(raw, what),
    };
    let predicate = text(2, "where")?;
    let parameters = isolate.record_parameters(call.argument(3))?;
    let (order, cursor) = (text(4, "order")?, text(6, "cursor")?);
    let prefix = match call.argument(5) {
        raw if is_nullish(raw) => Vec::new(),
        raw => isolate.entity_key(raw)?,
    };
    let most = limits::BATCH_RECORDS as u32;
    let limit = match kind(call.argument(7)) {
        Kind::Undefined | Kind::Null => limits::PAGE_ITEMS as u32,
        Kind::Int(limit) if (1..=most as i32).contains(&limit) => limit.unsigned_abs(),
        _ => return Err(isolate.context.throw_type(&format!("limit must be a whole number from 1 to {most}"))),
    };
    let query = RecordQuery {
        predicate: &predicate,
        parameters: &parameters,
        order: &order,
        prefix: &prefix,
        cursor: &cursor,
        limit,
        ..RecordQuery::default()
    };
    ask(call, &RecordOperation::Find(query), RecordAnswer::Body)
}

/// `ctx`, type and an array of ids.
fn get_many(call: &Call<'_>) -> Result<Value, Thrown> {
    let isolate = call.isolate;
    let array = call.argument(2);
    if !isolate.context.is_array(array) {
        return Err(isolate.context.throw_type("getMany takes an array of ids"));
    }
    let length = isolate.context.get(array, isolate.atoms.length)?;
    let count = match kind(length.raw()) {
        Kind::Int(count) if (0..=limits::BATCH_RECORDS as i32).contains(&count) => count.unsigned_abs(),
        _ => {
            let message = format!("getMany takes at most {} ids", limits::BATCH_RECORDS);
            return Err(isolate.context.throw_type(&message));
        }
    };
    let mut ids = Vec::with_capacity(count as usize);
    for index in 0..count {
        ids.push(isolate.entity_key(isolate.context.get_index(array, index)?.raw())?);
    }
    let ids = ids.iter().map(Vec::as_slice).collect();
    ask(call, &RecordOperation::GetMany { ids, form: Form::Json }, RecordAnswer::Rows)
}
