//! The same records in PostgreSQL behind pREST. pREST serves tables and views at `/{database}/{schema}/{table}`, so its
//! URLs and bodies differ from those of the record API.

use std::net::SocketAddr;
use std::ops::Range;

use serde_json::{Value, json};

use super::workload::Work;
use crate::{Outcome, small};

/// Rows of one insert, each of two parameters; a statement takes 65,535.
const BATCH: u64 = 1000;

const SCHEMA: &str = "/postgres/public";

/// Its reply to an update of one row.
pub const CHANGED: &str = r#"{"rows_affected":1}"#;

/// Method, path and body for one record. `id` and `age` may be template parts. `record` is the whole record with that
/// age.
pub fn request(work: Work, id: &str, age: &str, record: &str) -> (&'static str, String, Option<String>) {
    match work {
        Work::Get => ("GET", path(id), None),
        Work::Put => ("PUT", format!("{SCHEMA}/personinfo?id={id}"), Some(format!(r#"{{"record":{record}}}"#))),
        // A view of one field. Its update sets the path; see the rival's `schema.sql`.
        Work::Update => ("PATCH", format!("{SCHEMA}/personinfo_age?id={id}"), Some(format!(r#"{{"age":{age}}}"#))),
    }
}

fn path(id: &str) -> String {
    format!("{SCHEMA}/personinfo?id={id}&_select=record")
}

/// The reply to a read. `record` has the form that JSONB prints.
pub fn found(record: &str) -> String {
    format!(r#"[{{"record":{record}}}]"#)
}

/// Inserts records that differ only in their ids. `record` is JSON.
///
/// # Errors
/// If the server refuses any of them.
pub fn fill(address: SocketAddr, ids: Range<u64>, record: &str) -> Outcome<()> {
    let mut first = ids.start;
    while first < ids.end {
        let end = (first + BATCH).min(ids.end);
        // pREST inserts JSON only as text.
        let rows: Vec<Value> = (first..end).map(|id| json!({"id": id.to_string(), "record": record})).collect();
        let body = Value::Array(rows).to_string();
        match small::http(address, "POST", &format!("/batch{SCHEMA}/personinfo"), &body)? {
            (200 | 201, _) => {}
            (status, reply) => return Err(format!("inserting records {first} to {end} gave {status}: {reply}")),
        }
        first = end;
    }
    Ok(())
}

/// A stored record.
///
/// # Errors
/// If there is no such record.
pub fn read(address: SocketAddr, id: u64) -> Outcome<Value> {
    let (status, reply) = small::http(address, "GET", &path(&id.to_string()), "")?;
    let rows = serde_json::from_str::<Value>(&reply).unwrap_or_default();
    match (status, rows.as_array().map(Vec::as_slice)) {
        (200, Some([row])) => Ok(row["record"].clone()),
        _ => Err(format!("reading record {id} gave {status}: {reply}")),
    }
}
