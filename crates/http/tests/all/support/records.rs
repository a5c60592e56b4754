//! What the mock backend knows of records.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use millrace_api::{
    AppFile, Condition, Error, ErrorCode, Form, IdempotencyKey, Permission, Principal, RECORDS_APP, RecordChange,
    RecordOperation, RecordReply, RecordRequest, SystemApp,
};

/// The tag of every record that is read.
pub const TAG: &str = "\"00000000000012ab\"";

#[derive(Default)]
pub struct MockRecords {
    /// The app's files and how often they were replaced.
    pub app: Mutex<(u64, Arc<Vec<AppFile>>)>,
    /// How many replacements come too late.
    pub conflicts: AtomicU64,
    /// JSON texts; a cursor is the number of changes before it.
    pub changes: Mutex<VecDeque<String>>,
    /// What readers of changes get instead.
    pub failure: Mutex<Option<Error>>,
    pub pages: AtomicU64,
}

fn refuse<T>(code: ErrorCode) -> Result<T, Error> {
    Err(Error::new(code, "as asked"))
}

/// One line that says what was asked for.
pub fn line(request: &RecordRequest<'_>) -> String {
    let id = request.id.map_or_else(|| "-".to_owned(), |id| id.escape_ascii().to_string());
    let key = request.idempotency_key.as_ref().map_or("-", IdempotencyKey::as_str);
    format!("{} {id} {:?} {key}", request.type_name, request.operation)
}

impl MockRecords {
    pub fn record(&self, who: &Principal, request: RecordRequest<'_>) -> Result<RecordReply, Error> {
        if !who.may(Permission::Call { app: RECORDS_APP, service: request.type_name }) {
            return refuse(ErrorCode::Forbidden);
        }
        if request.type_name == "none" {
            return refuse(ErrorCode::UnknownType);
        }
        if request.id == Some(b"missing") {
            return refuse(ErrorCode::UnknownRecord);
        }
        let whole = RecordReply {
            tag: Some(0x12ab),
            schema_id: Some(7),
            expires_ms: (request.id == Some(b"mortal")).then_some(1_900_000_000_000),
            ..RecordReply::default()
        };
        Ok(match request.operation {
            RecordOperation::Get { form } => RecordReply { body: written(form), ..whole },
            RecordOperation::GetField { field, .. } => RecordReply { body: format!("\"{field}\"").into(), ..whole },
            RecordOperation::Select { .. } => {
                RecordReply { matched: 2, body: Bytes::from_static(b"[1,2]"), ..RecordReply::default() }
            }
            RecordOperation::Write(write) => {
                let matched = match &write.change {
                    RecordChange::Patch { operations, .. } if operations.iter().any(|one| one.path == ".nothing") => {
                        return refuse(ErrorCode::NoMatch);
                    }
                    RecordChange::Patch { operations, .. } => u32::try_from(operations.len()).expect("few"),
                    _ => 0,
                };
                if write.condition == Condition::Match(vec![9]) {
                    return refuse(ErrorCode::PreconditionFailed);
                }
                let created = request.id.is_some_and(|id| id.starts_with(b"new"));
                let body = write.answer.map(written).unwrap_or_default();
                RecordReply { matched, created, body, ..whole }
            }
            RecordOperation::GetMany { .. } => RecordReply { body: Bytes::from_static(b"[]"), ..whole },
            RecordOperation::Find(_) => {
                RecordReply { body: Bytes::from_static(b"{\"records\":[]}"), ..RecordReply::default() }
            }
            RecordOperation::Changes { cursor, limit } => self.page(cursor, limit)?,
            RecordOperation::Indexes => RecordReply { body: Bytes::from_static(b"{}"), ..RecordReply::default() },
        })
    }

    fn page(&self, cursor: &str, limit: u32) -> Result<RecordReply, Error> {
        self.pages.fetch_add(1, Ordering::SeqCst);
        if let Some(error) = self.failure.lock().expect("no panic").clone() {
            return Err(error);
        }
        let changes = self.changes.lock().expect("no panic");
        let from = match cursor {
            "" => 0,
            "now" => changes.len(),
            number => number.parse().map_err(|_| Error::new(ErrorCode::BadRequest, "no such cursor"))?,
        };
        let texts: Vec<&str> = changes.iter().skip(from).take(limit as usize).map(String::as_str).collect();
        let body = format!("{{\"changes\":[{}],\"cursor\":\"{}\"}}", texts.join(","), from + texts.len());
        Ok(RecordReply { body: body.into(), ..RecordReply::default() })
    }

    pub fn system_app(&self) -> SystemApp {
        let app = self.app.lock().expect("no panic");
        SystemApp { version: app.0, files: Arc::clone(&app.1) }
    }

    pub fn replace(&self, expected_version: u64, files: Vec<AppFile>) -> Result<u64, Error> {
        let mut app = self.app.lock().expect("no panic");
        if self.conflicts.load(Ordering::SeqCst) > 0 {
            self.conflicts.fetch_sub(1, Ordering::SeqCst);
            app.0 += 1;
        }
        if app.0 != expected_version {
            return refuse(ErrorCode::PreconditionFailed);
        }
        *app = (app.0 + 1, Arc::new(files));
        Ok(app.0)
    }
}

fn written(form: Form) -> Bytes {
    Bytes::from_static(match form {
        Form::Json => b"{\"name\":\"\",\"age\":0}",
        Form::AvroJson => b"{\"avro\":1}",
        Form::Binary => b"\x00\x02",
    })
}
