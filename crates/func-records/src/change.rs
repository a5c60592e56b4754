//! Makes a record's new value from its old one and the caller's operation: bytes to bytes. It stores nothing.

use std::borrow::Cow;
use std::collections::BTreeSet;

use millrace_api::{PathOperation, PathOperationKind, RecordChange};
use millrace_avpath::{Budget, Change, EvaluationError, Path, UpdateError};
use millrace_base::{Error, ErrorCode, limits};

use crate::program::{RecordProgram, RecordType};
use crate::turn::Shared;
use crate::values::{self, Parameters};

/// The result of a change.
pub(crate) struct Changed<'a> {
    /// `None`: the record is deleted.
    pub after: Option<Cow<'a, [u8]>>,
    /// How many places a patch matched.
    pub matched: u32,
}

/// The message does not name the id, because the caller has it in the URL or in its code.
pub(crate) fn unknown_record(of: &RecordType) -> Error {
    Error::new(ErrorCode::UnknownRecord, format!("there is no such record of the type {:?}", of.name))
}

/// Makes the new value. `base` is the value to change: the stored one or, on touch, the defaults.
pub(crate) fn change<'a>(
    (shared, program): (&Shared, &RecordProgram),
    of: &RecordType,
    base: Option<&'a [u8]>,
    is_stored: bool,
    change: &RecordChange<'_>,
) -> Result<Changed<'a>, Error> {
    match change {
        RecordChange::Delete if is_stored => Ok(Changed { after: None, matched: 1 }),
        RecordChange::Delete => Err(unknown_record(of)),
        RecordChange::Put { form, value } => {
            let value = values::read_node(&of.schema, of.schema.root(), *form, value)?;
            Ok(Changed { after: Some(Cow::Owned(value)), matched: 1 })
        }
        RecordChange::PutWritten { schema_id, value } => {
            let value = program.value_written_with(of, *schema_id, value)?;
            Ok(Changed { after: Some(Cow::Owned(value)), matched: 1 })
        }
        RecordChange::PutField { field, form, value } => {
            let base = base.ok_or_else(|| unknown_record(of))?;
            let (node, range) = values::field(&of.schema, base, field)?;
            let value = values::read_node(&of.schema, node, *form, value)
                .map_err(|error| Error { message: format!("field {field:?}: {}", error.message), ..error })?;
            let after = [&base[..range.start], &value, &base[range.end..]].concat();
            Ok(Changed { after: Some(Cow::Owned(after)), matched: 1 })
        }
        RecordChange::Patch { operations, parameters } => {
            let base = base.ok_or_else(|| unknown_record(of))?;
            patch(shared, of, base, operations, &Parameters::parse(parameters)?)
        }
    }
}

fn patch<'a>(
    shared: &Shared,
    of: &RecordType,
    base: &'a [u8],
    operations: &[PathOperation<'_>],
    parameters: &Parameters,
) -> Result<Changed<'a>, Error> {
    if operations.is_empty() || operations.len() > limits::PATCH_OPERATIONS {
        let message =
            format!("a patch has 1 to {} operations, this one has {}", limits::PATCH_OPERATIONS, operations.len());
        return Err(Error::new(ErrorCode::BadRequest, message));
    }
    let mut value = Cow::Borrowed(base);
    let mut matched = 0;
    let mut budget = Budget::new(limits::PATCH_STEPS);
    let mut paths = BTreeSet::new();
    for (index, operation) in operations.iter().enumerate() {
        let at = |error: Error| match operations.len() {
            1 => error,
            _ => Error { message: format!("operation {}: {}", index + 1, error.message), ..error },
        };
        let is_new_path = paths.insert(&*operation.path);
        budget
            .charge(OPERATION_STEPS + if is_new_path { path_steps(&operation.path) } else { 0 })
            .map_err(too_much)
            .map_err(at)?;
        let (after, places) = step(shared, of, &value, operation, parameters, &mut budget).map_err(at)?;
        matched += places;
        if let Some(after) = after {
            value = Cow::Owned(after);
        }
    }
    Ok(Changed { after: Some(value), matched: u32::try_from(matched).unwrap_or(u32::MAX) })
}

/// Steps that every operation takes. Then steps for reading a path: for each byte, and for each regular expression,
/// which may become as large as [`limits::PATH_REGEX_BYTES`].
const OPERATION_STEPS: usize = 50;
const PATH_STEPS_PER_BYTE: usize = 4;
const PATTERN_STEPS: usize = 30_000;

/// The steps for reading a path. They count whether or not it is in the cache, so that callers need not know.
fn path_steps(path: &str) -> usize {
    PATH_STEPS_PER_BYTE * path.len() + PATTERN_STEPS * path.matches('~').count().min(limits::PATH_PATTERNS)
}

fn too_much(_: EvaluationError) -> Error {
    let message = format!(
        "up to here the patch would look at more than {} values, or copy as many bytes as takes that long: make it \
         several patches, or narrow its paths down",
        limits::PATCH_STEPS
    );
    Error::new(ErrorCode::InvalidPath, message)
}

/// An error in a value names the place within that value. The path says where the value should go.
fn refused(path: &Path, error: UpdateError) -> Error {
    match error {
        UpdateError::Evaluation(error @ EvaluationError::BudgetSpent) => too_much(error),
        UpdateError::Value(fault) => {
            let place = if fault.path == "." { String::new() } else { format!("{}: ", fault.path) };
            let message = format!("the value for {}: {place}{}", path.text(), fault.message);
            Error { message, ..UpdateError::Value(fault).into() }
        }
        error => error.into(),
    }
}

/// One operation: the value after it, if it changes any, and how many places it matched.
fn step(
    shared: &Shared,
    of: &RecordType,
    value: &[u8],
    operation: &PathOperation<'_>,
    parameters: &Parameters,
    budget: &mut Budget,
) -> Result<(Option<Vec<u8>>, usize), Error> {
    let path = shared.path(&operation.path)?;
    if operation.kind == PathOperationKind::Test {
        let tested = path.test_within(&of.schema, value, parameters, operation.value, budget);
        let tested = tested.map_err(|error| refused(&path, error))?;
        if tested.holds {
            return Ok((None, tested.matched));
        }
        let message = match (tested.matched, operation.value) {
            (0, _) => format!("{} matches nothing", path.text()),
            (_, Some(value)) => format!("{} is not {}", path.text(), shortened(value)),
            (_, None) => format!("{} does not hold", path.text()),
        };
        return Err(Error::new(ErrorCode::TestFailed, message));
    }
    let needed = || {
        operation.value.ok_or_else(|| {
            let message = format!("{:?} at {} needs a value", operation.kind, path.text());
            Error::new(ErrorCode::InvalidInput, message)
        })
    };
    let change = match operation.kind {
        PathOperationKind::Set => Change::Set(needed()?),
        PathOperationKind::Insert => Change::Insert(needed()?),
        PathOperationKind::InsertAll => Change::InsertAll(needed()?),
        PathOperationKind::Increment => Change::Increment(needed()?),
        PathOperationKind::AppendUnique => Change::AppendUnique(needed()?),
        PathOperationKind::Delete => Change::Delete,
        PathOperationKind::Clear => Change::Clear,
        PathOperationKind::Test => return Err(Error::new(ErrorCode::Internal, "a test changes nothing")),
    };
    let updated = path.update_within(&of.schema, value, parameters, change, budget);
    let updated = updated.map_err(|error| refused(&path, error))?;
    if updated.matched == 0 {
        return Err(Error::new(ErrorCode::NoMatch, format!("{} matches nothing in the record", path.text())));
    }
    Ok((Some(updated.record), updated.matched))
}

/// The beginning of a text that a stranger chose.
fn shortened(text: &str) -> String {
    const SHOWN: usize = 80;
    let mut shown: String = text.chars().take(SHOWN).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    shown
}
