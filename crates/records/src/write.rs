//! Changing records: put, patch, delete.

use std::borrow::Cow;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode};
use millrace_api as api;
use millrace_api::{
    Begun, Condition, Form, Object, PathOperation, PathOperationKind, Principal, RecordChange, RecordOperation,
    RecordReply, RecordRequest, RecordWrite, Ttl, objects,
};
use millrace_base::{Error, IdempotencyKey, limits};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::Operation;
use crate::body;
use crate::classic;
use crate::condition;
use crate::local::Records;
use crate::media;
use crate::read::check_path;
use crate::request::{MATCHED, PREFER, PREFERENCE_APPLIED, Reply, Request, TTL};
use crate::url::{self, refused};

/// What a request wants done to a record.
pub(crate) struct AskedWrite<'a> {
    type_name: Cow<'a, str>,
    id: Cow<'a, [u8]>,
    pub(crate) write: RecordWrite<'a>,
    idempotency_key: Option<IdempotencyKey<&'a str>>,
}

impl<'a> AskedWrite<'a> {
    pub(crate) fn read(records: &Records, operation: Operation, request: &'a Request<'_>) -> Result<Self, Error> {
        let write = match operation {
            Operation::PutRecord => {
                let form = media::of_body(&request.headers)?;
                let wanted = wanted(request, true)?;
                RecordWrite { change: put(request, form)?, ..wanted }
            }
            Operation::PatchRecord => {
                media::json_body(&request.headers)?;
                let wanted = wanted(request, true)?;
                RecordWrite { change: Patch::read(&request.body)?.change(), ..wanted }
            }
            Operation::DeleteRecord => wanted(request, false)?,
            _ => {
                // Passed over, a condition would be thought to have held.
                if request.seen.condition || request.headers.contains_key(&TTL) {
                    return Err(refused("conditions and Millrace-TTL mean nothing here: use /records/{type}/{id}"));
                }
                RecordWrite { change: classic::record_change(operation, request)?, ..RecordWrite::default() }
            }
        };
        let id = if operation == Operation::ClassicPut { records.classic_id(request)? } else { request.id()? };
        Ok(Self { type_name: records.type_name(request)?, id, write, idempotency_key: request.idempotency_key()? })
    }
}

/// How a change is wanted. What is deleted neither lives on nor is shown, so nothing is said of that.
fn wanted(request: &Request<'_>, leaves_record: bool) -> Result<RecordWrite<'static>, Error> {
    let mut ttl = None;
    for (name, value) in url::pairs(request.query) {
        match name {
            "ttl_ms" if leaves_record => url::once(&mut ttl, name, read_ttl(name, value)?)?,
            _ => return Err(url::unknown(name)),
        }
    }
    if let Some(value) = request.headers.get(&TTL).filter(|_| leaves_record) {
        let value = value.to_str().map_err(|_| refused("Millrace-TTL is not text"))?;
        if ttl.replace(read_ttl("Millrace-TTL", value.trim())?).is_some() {
            return Err(refused("send Millrace-TTL or ttl_ms, not both"));
        }
    }
    let condition = if request.seen.condition { condition::of_write(&request.headers)? } else { Condition::None };
    let answer = match leaves_record && prefers(&request.headers, REPRESENTATION) {
        true if request.seen.accept => Some(media::wanted(&request.headers, media::ANY_FORM)?),
        true => Some(Form::Json),
        false => None,
    };
    Ok(RecordWrite { change: RecordChange::Delete, condition, ttl, answer })
}

fn put<'a>(request: &'a Request<'_>, form: Form) -> Result<RecordChange<'a>, Error> {
    let value = &request.body[..];
    Ok(match media::written_with(&request.headers, form)? {
        Some(schema_id) => RecordChange::PutWritten { schema_id, value },
        None => RecordChange::Put { form, value },
    })
}

fn read_ttl(name: &str, value: &str) -> Result<Ttl, Error> {
    if value == "never" {
        return Ok(Ttl::Forever);
    }
    match url::number(name, value) {
        Ok(milliseconds @ 1..=limits::TTL_MS) => Ok(Ttl::Milliseconds(milliseconds)),
        _ => Err(refused(format!("{name} is a whole number of milliseconds from 1 to {}, or never", limits::TTL_MS))),
    }
}

const REPRESENTATION: &str = "return=representation";

/// Whether `Prefer` lists a preference such as `return=minimal`.
pub(crate) fn prefers(headers: &HeaderMap, wanted: &str) -> bool {
    let values = headers.get_all(&PREFER);
    let mut preferences = values.iter().filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(','));
    preferences.any(|preference| {
        let plain = preference.split(';').next().unwrap_or_default().replace([' ', '"'], "");
        plain.eq_ignore_ascii_case(wanted)
    })
}

/// A patch: `[{"op","path","value"}]`, or with parameters.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Patch<'a> {
    #[serde(borrow, deserialize_with = "objects")]
    operations: Vec<PatchOperation<'a>>,
    #[serde(borrow, default)]
    parameters: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PatchOperation<'a> {
    op: PathOperationKind,
    #[serde(borrow)]
    path: Cow<'a, str>,
    #[serde(borrow, default, deserialize_with = "present")]
    value: Option<&'a RawValue>,
}

/// Unlike serde's own way with `Option`, tells `null` from nothing.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    Deserialize::deserialize(deserializer).map(Some)
}

impl<'a> Patch<'a> {
    fn read(body: &'a [u8]) -> Result<Self, Error> {
        const EXPECTED: &str = "a patch, [{\"op\",\"path\",\"value\"}, …]";
        let is_list = body.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'[');
        let patch = if is_list {
            let steps: Vec<Object<PatchOperation<'_>>> = body::read(body, EXPECTED)?;
            Self { operations: steps.into_iter().map(|step| step.0).collect(), parameters: None }
        } else {
            body::read::<Object<Self>>(body, EXPECTED)?.0
        };
        let limit = limits::PATCH_OPERATIONS;
        if patch.operations.is_empty() || patch.operations.len() > limit {
            return Err(refused(format!("a patch has 1 to {limit} operations")));
        }
        for step in &patch.operations {
            check_path(&step.path, "path")?;
            let takes_value = !matches!(step.op, PathOperationKind::Delete | PathOperationKind::Clear);
            let may_lack_value = !takes_value || step.op == PathOperationKind::Test;
            if step.value.is_none() && !may_lack_value {
                return Err(refused(format!("the operation at {:?} needs a value", step.path)));
            }
            if step.value.is_some() && !takes_value {
                return Err(refused(format!("the operation at {:?} takes no value", step.path)));
            }
        }
        if patch.parameters.is_some_and(|parameters| !parameters.get().starts_with('{')) {
            return Err(refused("the parameters of a patch are an object: {\"name\": value}"));
        }
        Ok(patch)
    }

    fn change(self) -> RecordChange<'a> {
        let operations = self.operations.into_iter();
        let operations = operations
            .map(|step| PathOperation { kind: step.op, path: step.path, value: step.value.map(RawValue::get) })
            .collect();
        RecordChange::Patch { operations, parameters: self.parameters.map(RawValue::get).unwrap_or_default() }
    }
}

/// A change that has begun: how its reply is told.
#[derive(Clone, Copy, Debug)]
pub struct Write {
    operation: Operation,
    answer: Option<Form>,
}

impl Records {
    /// Begins one of the operations for which [`Operation::is_write`] holds. `request` is not needed any more then,
    /// but for its headers' map, in which the reply's can be made.
    ///
    /// # Errors
    /// Those of the operation that are known before it begins.
    pub fn begin_write<B: api::Records>(
        &self,
        backend: &B,
        who: &Principal,
        operation: Operation,
        request: &Request<'_>,
    ) -> Result<(Begun<RecordReply>, Write), Error> {
        let asked = AskedWrite::read(self, operation, request)?;
        let write = Write { operation, answer: asked.write.answer };
        let request = RecordRequest {
            type_name: &asked.type_name,
            id: Some(&asked.id),
            operation: RecordOperation::Write(asked.write),
            idempotency_key: asked.idempotency_key,
        };
        Ok((backend.record(who, request), write))
    }

    /// The reply to what [`Records::begin_write`] began; `headers` is emptied and reused.
    #[must_use]
    pub fn end_write(&self, write: Write, headers: HeaderMap, reply: RecordReply) -> Reply {
        let Write { operation, answer } = write;
        match operation {
            Operation::PutRecord | Operation::PatchRecord => self.written(headers, operation, reply, answer),
            Operation::DeleteRecord => Reply::empty(headers, StatusCode::NO_CONTENT),
            Operation::ClassicPut => Reply::ok(headers),
            _ => {
                let mut patched = Reply::ok(headers);
                patched.headers.insert(MATCHED.clone(), self.number(reply.matched.into()));
                patched
            }
        }
    }

    fn written(&self, headers: HeaderMap, operation: Operation, reply: RecordReply, answer: Option<Form>) -> Reply {
        let is_patch = operation == Operation::PatchRecord;
        let status = if reply.created && !is_patch { StatusCode::CREATED } else { StatusCode::OK };
        let mut written = match answer {
            Some(form) => Reply::new(headers, status, media::value(form), Bytes::new()),
            None => Reply::empty(headers, status),
        };
        self.describe(&reply, &mut written.headers);
        if is_patch {
            written.headers.insert(MATCHED.clone(), self.number(reply.matched.into()));
        }
        if answer.is_some() {
            let applied = HeaderValue::from_static(REPRESENTATION);
            written.headers.insert(PREFERENCE_APPLIED.clone(), applied);
            written.body = reply.body;
        }
        written
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use millrace_base::ErrorCode;

    #[test]
    fn a_patch_is_a_list_or_has_parameters() {
        let list = br#" [{"op":"set","path":".a","value": null},{"op":"append-unique","path":".\"b\"","value":[ 1]}]"#;
        let patch = Patch::read(list).expect("a patch");
        let RecordChange::Patch { operations, parameters } = patch.change() else { panic!("not a patch") };
        assert_eq!((operations.len(), parameters), (2, ""));
        assert_eq!((operations[0].kind, operations[0].value), (PathOperationKind::Set, Some("null")));
        assert_eq!((&*operations[1].path, operations[1].value), (".\"b\"", Some("[ 1]")));
        let whole = br#"{"operations":[{"op":"test","path":".a"}],"parameters":{"n":1}}"#;
        let patch = Patch::read(whole).expect("a patch");
        assert!(matches!(patch.change(), RecordChange::Patch { parameters: "{\"n\":1}", .. }));
    }

    #[test]
    fn what_is_no_patch_is_refused() {
        let many = format!("[{}]", vec![r#"{"op":"clear","path":".a"}"#; limits::PATCH_OPERATIONS + 1].join(","));
        let long = format!(r#"[{{"op":"clear","path":"{}"}}]"#, "a".repeat(limits::PATH_BYTES + 1));
        for (body, code) in [
            ("", ErrorCode::InvalidInput),
            ("[", ErrorCode::InvalidInput),
            ("1", ErrorCode::BadRequest),
            ("[]", ErrorCode::BadRequest),
            (r#"[{"op":"add","path":".a","value":1}]"#, ErrorCode::BadRequest),
            (r#"[{"op":"set","path":".a"}]"#, ErrorCode::BadRequest),
            (r#"[{"op":"delete","path":".a","value":1}]"#, ErrorCode::BadRequest),
            (r#"[{"op":"set","path":".a","value":1,"from":2}]"#, ErrorCode::BadRequest),
            (r#"{"operations":[{"op":"clear","path":".a"}],"parameters":[]}"#, ErrorCode::BadRequest),
            (&many, ErrorCode::BadRequest),
            (&long, ErrorCode::InvalidPath),
        ] {
            assert_eq!(Patch::read(body.as_bytes()).map(|_| ()).map_err(|error| error.code), Err(code), "{body:.80}");
        }
    }

    #[test]
    fn preferences_and_times_to_live() {
        for (value, wants) in [
            ("return=representation", true),
            ("respond-async, return=\"representation\"; x=1", true),
            ("return=minimal", false),
        ] {
            let headers = HeaderMap::from_iter([(PREFER.clone(), HeaderValue::from_static(value))]);
            assert_eq!(prefers(&headers, REPRESENTATION), wants, "{value}");
        }
        assert_eq!(read_ttl("x", "60000"), Ok(Ttl::Milliseconds(60_000)));
        assert_eq!(read_ttl("x", "never"), Ok(Ttl::Forever));
        assert_eq!(read_ttl("x", "4000000000000000"), Ok(Ttl::Milliseconds(limits::TTL_MS)));
        for bad in ["", "0", "-1", "1s", "4000000000000001", "18446744073709551615", "18446744073709551616"] {
            assert!(read_ttl("x", bad).is_err(), "{bad}");
        }
    }
}
