//! Encoded values in the forms that callers and rows need. These are the calls of `avro` and `avpath`, with their
//! errors as callers see them.

use std::ops::Range;

use millrace_api::Form;
use millrace_avpath::EvaluationError;
pub(crate) use millrace_avpath::{Parameters, Path, Predicate};
use millrace_avro::{
    DifferenceKind, JsonForm, Kind, Malformed, Missing, NodeId, Reader, Schema, ValueError, ValueErrorKind,
    canonicalise, from_json, order_key, to_json,
};
use millrace_base::{Error, ErrorCode, limits};

use crate::rows::ORDER_KEY_BYTES;

/// The order key of null, and of a value that is not there at all.
pub(crate) const NULL_KEY: [u8; 1] = [0x10];

/// Places of one change that are reported one by one. More are reported as one change of the whole.
const DIFFERENCES: usize = 1000;

#[cold]
pub(crate) fn damaged(malformed: Malformed) -> Error {
    Error::new(ErrorCode::Internal, format!("a stored record is damaged: {malformed}"))
}

/// The error that a caller gets for a value that does not fit.
#[cold]
pub(crate) fn refused(error: ValueError) -> Error {
    let code = match error.kind {
        ValueErrorKind::NotJson => ErrorCode::InvalidInput,
        ValueErrorKind::UnknownField => ErrorCode::UnknownField,
        ValueErrorKind::TooLarge => ErrorCode::TooLarge,
        ValueErrorKind::WrongType
        | ValueErrorKind::MissingField
        | ValueErrorKind::TooDeep
        | ValueErrorKind::Malformed => ErrorCode::WrongType,
    };
    Error::new(code, error.to_string())
}

fn json_form(form: Form) -> Option<JsonForm> {
    match form {
        Form::Json => Some(JsonForm::Plain),
        Form::AvroJson => Some(JsonForm::Avro),
        Form::Binary => None,
    }
}

/// Appends a whole record in the form asked for.
#[inline]
pub(crate) fn print(out: &mut Vec<u8>, schema: &Schema, value: &[u8], form: Form) -> Result<(), Error> {
    print_node(out, schema, schema.root(), value, form)
}

/// Appends a value of a node.
#[inline]
pub(crate) fn print_node(
    out: &mut Vec<u8>,
    schema: &Schema,
    node: NodeId,
    value: &[u8],
    form: Form,
) -> Result<(), Error> {
    match json_form(form) {
        Some(form) => to_json(schema, node, value, form, out).map_err(damaged),
        None => {
            out.extend_from_slice(value);
            Ok(())
        }
    }
}

/// A record as plain JSON.
pub(crate) fn json(schema: &Schema, value: &[u8]) -> Result<String, Error> {
    let mut out = Vec::with_capacity(value.len() * 2);
    print(&mut out, schema, value, Form::Json)?;
    String::from_utf8(out).map_err(|_| Error::new(ErrorCode::Internal, "a record's JSON is not UTF-8"))
}

/// The canonical encoding of a caller's value for a node.
pub(crate) fn read_node(schema: &Schema, node: NodeId, form: Form, text: &[u8]) -> Result<Vec<u8>, Error> {
    match json_form(form) {
        Some(form) => {
            let mut out = Vec::with_capacity(text.len());
            from_json(schema, node, text, form, Missing::Default, &mut out).map_err(refused)?;
            Ok(out)
        }
        None => canonicalise(schema, node, text).map_err(refused),
    }
}

/// A field of the root: its node, and where it lies in a record.
pub(crate) fn field(schema: &Schema, value: &[u8], name: &str) -> Result<(NodeId, Range<usize>), Error> {
    let fields = match schema.kind(schema.root()) {
        Kind::Record { fields, .. } => &fields[..],
        _ => &[],
    };
    let mut reader = Reader::new(value);
    for field in fields {
        let start = reader.position();
        reader.skip(schema, field.node).map_err(damaged)?;
        if *field.name == *name {
            return Ok((field.node, start..reader.position()));
        }
    }
    let names: Vec<&str> = fields.iter().take(32).map(|field| &*field.name).collect();
    let name: String = name.chars().take(64).collect();
    Err(Error::new(ErrorCode::UnknownField, format!("the record has no field {name:?}; it has {}", names.join(", "))))
}

/// The order keys of the values that a simple path leads to. A path that leads to one place has one key, whatever is
/// there. `None`: there are more than an index takes of one record.
pub(crate) fn order_keys(
    path: &Path,
    schema: &Schema,
    record: &[u8],
    (ignore_case, is_single): (bool, bool),
) -> Result<Option<Vec<Vec<u8>>>, Error> {
    let found = match path.select(schema, record, Parameters::NONE) {
        Err(EvaluationError::TooManyMatches | EvaluationError::TooManySteps) => return Ok(None),
        found => found?,
    };
    if found.len() > limits::INDEX_ROWS_PER_RECORD {
        return Ok(None);
    }
    let mut keys = Vec::with_capacity(found.len().max(1));
    for found in found {
        let mut key = Vec::with_capacity(12);
        if order_key(schema, found.node, &record[found.range], ignore_case, &mut key) {
            key.truncate(ORDER_KEY_BYTES);
            keys.push(key);
        }
    }
    if is_single && keys.is_empty() {
        keys.push(NULL_KEY.to_vec());
    }
    Ok(Some(keys))
}

/// Whether the values at a path differ before and after. If they are too much to compare, they count as different.
pub(crate) fn differs(
    path: &Path,
    schema: &Schema,
    before: Option<&[u8]>,
    after: Option<&[u8]>,
) -> Result<bool, Error> {
    if before == after {
        return Ok(false);
    }
    let parts = |record: Option<&'_ [u8]>| match record {
        Some(record) => path.select(schema, record, Parameters::NONE),
        None => Ok(Vec::new()),
    };
    match (parts(before), parts(after)) {
        (Ok(old), Ok(new)) => {
            let (before, after) = (before.unwrap_or_default(), after.unwrap_or_default());
            let old = old.into_iter().map(|found| &before[found.range]);
            Ok(!old.eq(new.into_iter().map(|found| &after[found.range])))
        }
        (Err(EvaluationError::TooManyMatches | EvaluationError::TooManySteps), _)
        | (_, Err(EvaluationError::TooManyMatches | EvaluationError::TooManySteps)) => Ok(true),
        (Err(error), _) | (_, Err(error)) => Err(error.into()),
    }
}

/// What has changed, as a JSON array of `{path, kind, value}`.
pub(crate) fn difference(schema: &Schema, before: Option<&[u8]>, after: Option<&[u8]>) -> Result<String, Error> {
    let mut out = vec![b'['];
    for change in millrace_avro::difference(schema, before, after, DIFFERENCES) {
        if out.len() > 1 {
            out.push(b',');
        }
        let kind = match change.kind {
            DifferenceKind::Set => "set",
            DifferenceKind::Insert => "insert",
            DifferenceKind::Delete => "delete",
        };
        let path = serde_json::Value::from(change.path);
        out.extend_from_slice(format!("{{\"path\":{path},\"kind\":\"{kind}\",\"value\":").as_bytes());
        match (change.after, after) {
            (Some((node, range)), Some(after)) => print_node(&mut out, schema, node, &after[range], Form::Json)?,
            _ => out.extend_from_slice(b"null"),
        }
        out.push(b'}');
    }
    out.push(b']');
    String::from_utf8(out).map_err(|_| Error::new(ErrorCode::Internal, "a record's JSON is not UTF-8"))
}
