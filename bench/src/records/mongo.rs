//! The same records in a server of MongoDB's protocol. A record is one document whose `_id` is the record's id as text.
//! Every write asks for the journal on disk before its reply.

use std::fmt::Write;
use std::net::SocketAddr;
use std::ops::Range;

use serde_json::Value;

use super::workload::Work;
use crate::{Outcome, small};

/// Documents of one insert; a server takes 100,000.
const BATCH: u64 = 1000;

/// Makes a write durable on one server before its reply.
const DURABLE: &str = r#""writeConcern":{"w":1,"j":true},"$db":"records""#;

/// The command for one record. `id` and `age` may be template parts. `record` is the whole record with that age.
pub fn command(work: Work, id: &str, age: &str, record: &str) -> String {
    let update = |change: &str, upsert: bool| {
        format!(
            r#"{{"update":"personinfo","updates":[{{"q":{{"_id":"{id}"}},"u":{change},"upsert":{upsert}}}],"ordered":true,{DURABLE}}}"#
        )
    };
    match work {
        Work::Get => {
            format!(r#"{{"find":"personinfo","filter":{{"_id":"{id}"}},"limit":1,"singleBatch":true,"$db":"records"}}"#)
        }
        Work::Put => update(record, true),
        Work::Update => update(&format!(r#"{{"$set":{{"age":{age}}}}}"#), false),
    }
}

/// Inserts records that differ only in their ids. `record` is JSON.
///
/// # Errors
/// If the server refuses any of them.
pub fn fill(address: SocketAddr, ids: Range<u64>, record: &str) -> Outcome<()> {
    let fields = record.strip_prefix('{').ok_or("a record is no object")?;
    let mut first = ids.start;
    while first < ids.end {
        let end = (first + BATCH).min(ids.end);
        let mut documents = String::new();
        for id in first..end {
            let comma = if id == first { "" } else { "," };
            write!(documents, r#"{comma}{{"_id":"{id}",{fields}"#).map_err(|error| error.to_string())?;
        }
        let command = format!(r#"{{"insert":"personinfo","documents":[{documents}],"ordered":false,{DURABLE}}}"#);
        let reply = small::mongo(address, &command)?;
        if reply["n"] != end - first || reply.get("writeErrors").is_some() || reply.get("writeConcernError").is_some() {
            return Err(format!("inserting records {first} to {end} gave {reply}"));
        }
        first = end;
    }
    Ok(())
}

/// A stored record without its id.
///
/// # Errors
/// If there is no such record.
pub fn read(address: SocketAddr, id: u64) -> Outcome<Value> {
    let reply = small::mongo(address, &command(Work::Get, &id.to_string(), "", ""))?;
    let batch = reply["cursor"]["firstBatch"].as_array().map(Vec::as_slice).unwrap_or_default();
    let [Value::Object(document)] = batch else { return Err(format!("reading record {id} gave {reply}")) };
    let mut document = document.clone();
    if document.remove("_id") != Some(Value::String(id.to_string())) {
        return Err(format!("reading record {id} gave {reply}"));
    }
    Ok(Value::Object(document))
}

#[cfg(test)]
mod tests {
    use millrace_loadgen::RequestTemplate;

    use super::*;

    #[test]
    fn every_command_is_a_template_and_every_write_asks_for_the_journal() {
        let age = r#"{"$numberInt":"{{uniform:0:60}}"}"#;
        let record = format!(r#"{{"name":"J","age":{age}}}"#);
        for work in [Work::Get, Work::Put, Work::Update] {
            let command = command(work, "{{uniform:1:10}}", age, &record);
            RequestTemplate::mongo(&command).unwrap_or_else(|error| panic!("{command}: {error}"));
            let json: Value = serde_json::from_str(&command).unwrap();
            let is_write = json.get("update").is_some();
            assert_eq!(is_write, work != Work::Get);
            assert_eq!(json["writeConcern"]["j"] == true, is_write, "{command}");
            assert_eq!(json["updates"][0]["upsert"] == true, work == Work::Put);
        }
    }
}
