//! The cost of one operation on one record in the engine, without the store and the log: nanoseconds, the least of
//! several rounds.
//!
//! `cargo run --release -p millrace-func-records --example record_cost`

#[path = "../tests/all/common/mod.rs"]
mod common;

use std::collections::BTreeMap;
use std::hint::black_box;
#[allow(clippy::disallowed_types, reason = "this measures time")]
use std::time::Instant;

use bytes::Bytes;
use common::{World, patch, person, put};
use millrace_api::{Form, PathOperationKind, RecordOperation, RecordQuery, RecordWrite};
use millrace_base::{Error, ErrorCode, UnixMillis, Value};
use millrace_func::{
    ActivationId, BuiltInCall, Engine, FetchRequest, HandlerId, Host, LogLevel, Message, NestedCall, Offload,
    OperationId, ScanRequest, Start, TurnResult,
};
use serde_json::json;

/// One entity's fields and nothing else.
#[derive(Default)]
struct Entity {
    fields: BTreeMap<Vec<u8>, Value>,
}

fn refuse<T>() -> Result<T, Error> {
    Err(Error::new(ErrorCode::FunctionFailed, "not here"))
}

impl Host for Entity {
    fn get(&mut self, field: &[u8]) -> Result<Option<&Value>, Error> {
        Ok(self.fields.get(field))
    }
    fn set(&mut self, field: &[u8], value: Value) -> Result<(), Error> {
        self.fields.insert(field.to_vec(), value);
        Ok(())
    }
    fn delete(&mut self, field: &[u8]) -> Result<bool, Error> {
        Ok(self.fields.remove(field).is_some())
    }
    fn scan(&mut self, _: &ScanRequest) -> Result<Vec<(Vec<u8>, Value)>, Error> {
        refuse()
    }
    fn keys(&mut self, _: u16, _: &[u8], _: Option<&[u8]>, _: usize) -> Result<Vec<Vec<u8>>, Error> {
        refuse()
    }
    fn operate(&mut self, _: BuiltInCall<'_>) -> Result<OperationId, Error> {
        refuse()
    }
    fn call(&mut self, _: NestedCall) -> Result<OperationId, Error> {
        refuse()
    }
    fn send(&mut self, _: Message) -> Result<Option<String>, Error> {
        refuse()
    }
    fn signal(&mut self, _: &str, _: &str, _: Bytes) -> Result<(), Error> {
        refuse()
    }
    fn offload(&mut self, _: Offload) -> Result<OperationId, Error> {
        refuse()
    }
    fn fetch(&mut self, _: FetchRequest) -> Result<OperationId, Error> {
        refuse()
    }
    fn now(&self) -> UnixMillis {
        UnixMillis(1_700_000_000_000)
    }
    fn random(&mut self) -> u64 {
        4
    }
    fn log(&mut self, _: LogLevel, _: &str) {}
}

const ROUNDS: usize = 20;
const CALLS: u32 = 20_000;

fn measure(name: &str, world: &World, id: HandlerId, inputs: &[Bytes]) {
    let mut entity = Entity::default();
    let mut best = f64::MAX;
    for _ in 0..ROUNDS {
        #[allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "this measures time")]
        let start = Instant::now();
        for call in 0..CALLS {
            let input = &inputs[call as usize % inputs.len()];
            let step =
                world.engine.start(ActivationId(1), Start::Handler { id, key: b"1", input }, black_box(&mut entity));
            assert!(matches!(black_box(step), TurnResult::Done(Ok(_))), "{name} failed");
        }
        #[allow(clippy::disallowed_methods, reason = "this measures time")]
        let spent = start.elapsed();
        best = best.min(spent.as_nanos() as f64 / f64::from(CALLS));
    }
    println!("{name:<28} {best:>8.0} ns");
}

fn main() {
    let world = World::with("t", json!({ "schema": person(), "create": "touch" }));
    let [read, write] = ["_read", "_write"].map(|name| world.find("t", name).expect("a handler"));
    let bond = r#"{"name":"James Bond","age":60,"gender":"Male","emails":["james@bond.com","bond@mi6.gov.uk"]}"#;
    let smith = r#"{"name":"John Smith","age":61,"gender":"Male","emails":["john@smith.com","smith@mi6.gov.uk"]}"#;
    let written = |change| RecordOperation::Write(RecordWrite { change, ..RecordWrite::default() }).to_bytes();
    let reading = |operation: RecordOperation<'_>| operation.to_bytes();
    measure("get, untouched", &world, read, &[reading(RecordOperation::Get { form: Form::Json })]);
    measure("put", &world, write, &[written(put(bond)), written(put(smith))]);
    measure("put, same again", &world, write, &[written(put(bond))]);
    let set = |json| written(patch(&[(PathOperationKind::Set, ".age", Some(json))]));
    let mut stored = World::with("t", json!({ "schema": person(), "create": "touch" }));
    stored.put("1", bond).expect("puts");
    measure("patch of one field", &world, write, &[set("1"), set("2")]);
    measure("increment", &world, write, &[written(patch(&[(PathOperationKind::Increment, ".age", Some("1"))]))]);
    for (name, operation) in [
        ("get, JSON", RecordOperation::Get { form: Form::Json }),
        ("get, binary", RecordOperation::Get { form: Form::Binary }),
        ("get a field", RecordOperation::GetField { field: "name", form: Form::Json }),
        ("select a path", RecordOperation::Select { path: ".emails[1]", parameters: "", form: Form::Json }),
    ] {
        measure_stored(name, &stored, read, &reading(operation));
    }
    let indexes = json!([{ "name": "by_age", "path": ".age" }]);
    let mut indexed = World::with("t", json!({ "schema": person(), "indexes": indexes }));
    for number in 0..200 {
        indexed.put(&number.to_string(), &format!("{{\"age\":{number}}}")).expect("puts");
    }
    let found = indexed.query(RecordQuery { predicate: ".age == 7", ..RecordQuery::default() }).expect("finds");
    assert_eq!(found["records"].as_array().map(Vec::len), Some(1));
}

/// The same with a record that is there.
fn measure_stored(name: &str, world: &World, id: HandlerId, input: &Bytes) {
    let stored = world.stored.iter().find(|(place, _)| place.0 == "t").map(|(_, value)| value.clone());
    let mut entity = Entity { fields: [(b"r".to_vec(), stored.expect("a record"))].into() };
    let mut best = f64::MAX;
    for _ in 0..ROUNDS {
        #[allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "this measures time")]
        let start = Instant::now();
        for _ in 0..CALLS {
            let step =
                world.engine.start(ActivationId(1), Start::Handler { id, key: b"1", input }, black_box(&mut entity));
            assert!(matches!(black_box(step), TurnResult::Done(Ok(_))), "{name} failed");
        }
        #[allow(clippy::disallowed_methods, reason = "this measures time")]
        let spent = start.elapsed();
        best = best.min(spent.as_nanos() as f64 / f64::from(CALLS));
    }
    println!("{name:<28} {best:>8.0} ns");
}
