//! The load of the contests of records.

use std::net::SocketAddr;
use std::time::Duration;

use millrace_loadgen::mongo::found;
use millrace_loadgen::{Expectation, HttpRequest, Plan, RequestTemplate};
use serde_json::Value;

use super::fill::fill;
use super::{mongo, prest};
use crate::contest::Load;
use crate::server::{Server, Setup};
use crate::transactions::workload::get;
use crate::{Outcome, small};

/// The type in the figures of the old server.
pub const SCHEMA: &str = r#"{"type":"record","name":"PersonInfo","fields":[{"name":"name","type":"string"},{"name":"age","type":"int"},{"name":"gender","type":{"type":"enum","name":"Gender","symbols":["Unknown","Female","Male"]}},{"name":"emails","type":{"type":"array","items":"string"}}]}"#;

/// The number of records in the figures of the old server.
pub const BENCHMARKED: u64 = 10_240;
/// As many as the keys of the durable counter.
pub const KEYS: u64 = 100_000;

/// The first content of every record, so that each reply to a read can be checked as a whole.
const RECORD: &str = r#"{"name":"James Bond","age":60,"gender":"Male","emails":["james@example.org"]}"#;
/// The same in the form that JSONB prints.
const RECORD_JSONB: &str = r#"{"age": 60, "name": "James Bond", "emails": ["james@example.org"], "gender": "Male"}"#;
/// Ages that the load writes. The first age is not among them.
const AGES: (u64, u64) = (0, 60);
const AGE_AT_FIRST: u64 = 60;

/// Records that the audit reads.
const AUDITED: u64 = 100;

/// The server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Millrace, over the URLs of the record API.
    Native,
    /// Millrace, over the URLs of the old server.
    Classic,
    /// The bare responder.
    Limit,
    /// PostgreSQL behind a front with the URLs of the record API.
    Postgres,
    /// PostgreSQL behind pREST.
    Prest,
    /// MongoDB.
    Mongo,
}

/// The kind of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Reads a whole record.
    Get,
    /// Replaces a record.
    Put,
    /// Updates one field of a record.
    Update,
}

/// One kind of request to one kind of server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Records {
    /// The server.
    pub target: Target,
    /// The kind of request.
    pub work: Work,
    /// Records that exist before the load.
    pub count: u64,
}

/// Creates the type.
///
/// # Errors
/// If the server refuses it.
pub fn make_type(address: SocketAddr) -> Outcome<()> {
    match small::http(address, "POST", "/putschema/personinfo", SCHEMA)? {
        (200, reply) if reply == "OK" => Ok(()),
        (status, reply) => Err(format!("putting the schema gave {status}: {reply}")),
    }
}

impl Records {
    /// Template parts that draw id and age.
    fn drawn(&self) -> (String, String) {
        (format!("{{{{uniform:1:{}}}}}", self.count + 1), format!("{{{{uniform:{}:{}}}}}", AGES.0, AGES.1))
    }

    /// The command of MongoDB's protocol.
    fn command(&self) -> String {
        let (id, age) = self.drawn();
        let age = format!(r#"{{"$numberInt":"{age}"}}"#);
        mongo::command(self.work, &id, &age, &record_with(&age))
    }

    /// Method, path and body over HTTP.
    fn request(&self) -> (&'static str, String, Option<String>) {
        let Self { target, work, count } = *self;
        let (id, age) = self.drawn();
        let native = format!("/records/personinfo/{id}");
        let record = record_with(&age);
        match (work, target) {
            (_, Target::Prest) => prest::request(work, &id, &age, &record),
            (Work::Get, Target::Classic | Target::Limit) => {
                ("GET", format!("/personinfo/get/1?benchmark_only={count}"), None)
            }
            (Work::Get, _) => ("GET", native, None),
            (Work::Put, Target::Classic) => ("POST", format!("/personinfo/put/{id}"), Some(record)),
            (Work::Put, _) => ("PUT", native, Some(record)),
            (Work::Update, Target::Classic) => {
                ("POST", format!("/personinfo/update/{id}"), Some(format!(".age\n{age}")))
            }
            (Work::Update, _) => {
                let body = format!(r#"[{{"op":"set","path":".age","value":{age}}}]"#);
                ("PATCH", native, Some(body))
            }
        }
    }

    /// The whole body of a right reply.
    fn reply(&self) -> Outcome<Vec<u8>> {
        let text = match (self.target, self.work) {
            (Target::Mongo, Work::Get) => return found(RECORD).map_err(|error| error.to_string()),
            // The number of documents found.
            (Target::Mongo, _) => return Ok(1i32.to_le_bytes().to_vec()),
            (Target::Prest, Work::Get) => return Ok(prest::found(RECORD_JSONB).into_bytes()),
            (Target::Prest, _) => prest::CHANGED,
            (Target::Limit, _) => "ok",
            (Target::Postgres, Work::Get) => RECORD_JSONB,
            (_, Work::Get) => RECORD,
            (Target::Classic, _) => "OK",
            _ => "",
        };
        Ok(text.as_bytes().to_vec())
    }

    fn template(&self, address: SocketAddr) -> Outcome<RequestTemplate> {
        let template = if self.target == Target::Mongo {
            RequestTemplate::mongo(&self.command())
        } else {
            let (method, path, body) = self.request();
            let url = format!("http://{address}{path}");
            let request = HttpRequest { method, url: &url, headers: &[], body: body.as_deref() };
            RequestTemplate::http(&request).map(|parts| parts.0)
        };
        template.map_err(|error| error.to_string())
    }

    /// A stored record.
    fn read(&self, address: SocketAddr, id: u64) -> Outcome<Value> {
        match self.target {
            Target::Mongo => mongo::read(address, id),
            Target::Prest => prest::read(address, id),
            _ => get(address, &format!("/records/personinfo/{id}")),
        }
    }
}

/// The record with another age.
fn record_with(age: &str) -> String {
    RECORD.replace(&format!("\"age\":{AGE_AT_FIRST}"), &format!("\"age\":{age}"))
}

impl Load for Records {
    fn prepare(&self, server: &Server, setup: &Setup) -> Outcome<()> {
        let (address, ids) = (server.address, 1..self.count + 1);
        match self.target {
            Target::Limit => return Ok(()),
            Target::Mongo => return mongo::fill(address, ids, RECORD),
            Target::Prest => return prest::fill(address, ids, RECORD),
            Target::Postgres => {}
            Target::Native | Target::Classic => make_type(address)?,
        }
        fill(address, ids, &setup.load_cpus, |_| RECORD.to_owned())
    }

    fn plan(&self, name: &str, server: &Server) -> Outcome<Plan> {
        let mut plan = Plan::new(name, server.address, self.template(server.address)?);
        plan.expectation = Expectation { statuses: vec![200], body: Some(self.reply()?), ..Expectation::default() };
        plan.timeout = Duration::from_secs(30);
        plan.server_pids = server.pids();
        Ok(plan)
    }

    /// Compares some records with the first content. Only the age may differ, and only if the load writes.
    fn audit(&self, address: SocketAddr) -> Outcome<()> {
        if self.target == Target::Limit {
            return Ok(());
        }
        let expected: Value = serde_json::from_str(RECORD).map_err(|error| error.to_string())?;
        let mut changed = 0;
        for at in 0..AUDITED {
            let id = at * self.count / AUDITED + 1;
            let mut record = self.read(address, id)?;
            let age = record["age"].as_u64().filter(|age| *age <= AGE_AT_FIRST);
            changed += u64::from(age.is_some_and(|age| age != AGE_AT_FIRST));
            record["age"] = age.map_or(Value::Null, |_| AGE_AT_FIRST.into());
            if record != expected {
                return Err(format!("record {id} is {record}"));
            }
        }
        if (changed > 0) == (self.work != Work::Get) {
            Ok(())
        } else {
            Err(format!("{changed} of {AUDITED} records were changed"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_request_is_a_template_and_its_body_json() {
        for target in [Target::Native, Target::Classic, Target::Postgres, Target::Prest, Target::Mongo] {
            for work in [Work::Get, Work::Put, Work::Update] {
                let records = Records { target, work, count: 10 };
                records.template(SocketAddr::from(([127, 0, 0, 1], 1))).unwrap();
                if let (_, _, Some(body)) = records.request() {
                    let filled = body.replace("{{uniform:0:60}}", "7");
                    let json = filled.strip_prefix(".age\n").unwrap_or(&filled);
                    serde_json::from_str::<Value>(json).unwrap_or_else(|error| panic!("{filled}: {error}"));
                }
            }
        }
        assert_eq!(
            serde_json::from_str::<Value>(RECORD).unwrap(),
            serde_json::from_str::<Value>(RECORD_JSONB).unwrap()
        );
        serde_json::from_str::<Value>(SCHEMA).unwrap();
    }
}
