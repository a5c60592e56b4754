//! Operations whose requests or results have a form of their own on the wire.

use bytes::Bytes;
use millrace_api::{
    Form, PathOperation, PathOperationKind, RECORDS_APP, RecordChange, RecordOperation, RecordQuery, RecordReply,
    RecordWrite,
};
use millrace_base::{Error, ErrorCode, Value, limits};
use millrace_func::{BuiltInCall, Host, OperationId};
use serde::Deserialize;
use serde_json::{Map, Value as Json, json};

use crate::attempt::broken;

/// Rows of a scan: count, then name and value each.
pub(crate) fn rows(found: &[(Vec<u8>, Value)]) -> Bytes {
    let put = |out: &mut Vec<u8>, bytes: &[u8]| {
        out.extend_from_slice(&u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_be_bytes());
        out.extend_from_slice(bytes);
    };
    let mut out = u32::try_from(found.len()).unwrap_or(u32::MAX).to_be_bytes().to_vec();
    for (name, value) in found {
        put(&mut out, name);
        out.push(value.encoded().first().copied().unwrap_or_default());
        put(&mut out, value.content());
    }
    out.into()
}

/// An operation on records, as a worker writes it.
#[derive(Deserialize)]
#[serde(tag = "op", rename_all = "snake_case", deny_unknown_fields)]
enum WorkerRecordOperation {
    Get {},
    Select {
        path: String,
        #[serde(default)]
        parameters: Map<String, Json>,
    },
    Put {
        value: Json,
    },
    Delete {},
    Patch {
        operations: Vec<AskedStep>,
        #[serde(default)]
        parameters: Map<String, Json>,
    },
    Find {
        #[serde(default, rename = "where")]
        predicate: String,
        #[serde(default)]
        parameters: Map<String, Json>,
        #[serde(default)]
        order: String,
        #[serde(default)]
        prefix: String,
        #[serde(default)]
        cursor: String,
        #[serde(default)]
        limit: Option<u32>,
    },
    GetMany {
        ids: Vec<String>,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AskedStep {
    op: PathOperationKind,
    path: String,
    /// `null` is a value: only a step without one has none.
    #[serde(default, deserialize_with = "present")]
    value: Option<Json>,
}

fn present<'a, D: serde::Deserializer<'a>>(deserializer: D) -> Result<Option<Json>, D::Error> {
    Json::deserialize(deserializer).map(Some)
}

fn parameters_text(parameters: &Map<String, Json>) -> String {
    if parameters.is_empty() { String::new() } else { Json::Object(parameters.clone()).to_string() }
}

/// Asks for an operation on a record. An inner error is the handler's to see.
///
/// # Errors
/// `worker-failed` for a request that is not one.
pub(crate) fn begin_record(
    type_name: &str,
    id: &[u8],
    request: &[u8],
    host: &mut dyn Host,
) -> Result<Result<OperationId, Error>, Error> {
    let asked: WorkerRecordOperation =
        serde_json::from_slice(request).map_err(|error| broken(format_args!("an operation on a record: {error}")))?;
    let mut record = |operation: &RecordOperation<'_>| {
        let key = (!operation.is_about_type()).then_some(id);
        let (app, handler, input) = (RECORDS_APP, operation.handler(), operation.to_bytes());
        host.operate(BuiltInCall { app, service: type_name, handler, key, input })
    };
    let form = Form::Json;
    let write = |change| RecordOperation::Write(RecordWrite { change, ..RecordWrite::default() });
    Ok(match asked {
        WorkerRecordOperation::Get {} => record(&RecordOperation::Get { form }),
        WorkerRecordOperation::Select { path, parameters } => {
            record(&RecordOperation::Select { path: &path, parameters: &parameters_text(&parameters), form })
        }
        WorkerRecordOperation::Put { value } => {
            let value = value.to_string();
            record(&write(RecordChange::Put { form, value: value.as_bytes() }))
        }
        WorkerRecordOperation::Delete {} => record(&write(RecordChange::Delete)),
        WorkerRecordOperation::Patch { operations, parameters } => {
            let values: Vec<Option<String>> =
                operations.iter().map(|step| step.value.as_ref().map(Json::to_string)).collect();
            let steps = operations.iter().zip(&values).map(|(step, value)| PathOperation {
                kind: step.op,
                path: step.path.as_str().into(),
                value: value.as_deref(),
            });
            let (operations, parameters) = (steps.collect(), parameters_text(&parameters));
            record(&write(RecordChange::Patch { operations, parameters: &parameters }))
        }
        WorkerRecordOperation::Find { predicate, parameters, order, prefix, cursor, limit } => {
            let most = limits::BATCH_RECORDS as u32;
            record(&RecordOperation::Find(RecordQuery {
                predicate: &predicate,
                parameters: &parameters_text(&parameters),
                order: &order,
                prefix: prefix.as_bytes(),
                cursor: &cursor,
                limit: limit.unwrap_or(limits::PAGE_ITEMS as u32).clamp(1, most),
                ..RecordQuery::default()
            }))
        }
        WorkerRecordOperation::GetMany { ids } if ids.len() > limits::BATCH_RECORDS => {
            let message = format!("more than {} records at once", limits::BATCH_RECORDS);
            Err(Error::new(ErrorCode::OperationLimit, message))
        }
        WorkerRecordOperation::GetMany { ids } => {
            record(&RecordOperation::GetMany { ids: ids.iter().map(String::as_bytes).collect(), form })
        }
    })
}

/// The reply to an operation on a record as JSON: `{"body","matched","created"}`.
pub(crate) fn record_output(output: Bytes) -> Result<Bytes, Error> {
    let reply = RecordReply::from_bytes(output)?;
    let body: Json = if reply.body.is_empty() {
        Json::Null
    } else {
        let failed = |error| Error::new(ErrorCode::Internal, format!("a record is not JSON: {error}"));
        serde_json::from_slice(&reply.body).map_err(failed)?
    };
    Ok(json!({ "body": body, "matched": reply.matched, "created": reply.created }).to_string().into())
}
