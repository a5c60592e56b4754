//! What the hot paths of the codec cost, in nanoseconds: `cargo run --release -p millrace-avro --example codec_cost`.

#![allow(clippy::disallowed_methods, reason = "it measures time")]
#![allow(clippy::unwrap_used, reason = "a program for a developer, over schemas and values of its own")]

use millrace_avro::{JsonForm, Missing, Resolution, Schema, canonicalise, from_json, order_key, skip, to_json};
use std::hint::black_box;
use std::time::Instant;

const PERSON: &str = r#"{"type":"record","name":"PersonInfo","fields":[
    {"name":"name","type":"string"},{"name":"age","type":"int"},
    {"name":"gender","type":{"type":"enum","name":"Gender","symbols":["Unknown","Female","Male"]}},
    {"name":"emails","type":{"type":"array","items":"string"}}]}"#;

const ACCOUNT: &str = r#"{"type":"record","name":"Account","fields":[
    {"name":"id","type":"string"},
    {"name":"charges","type":{"type":"array","items":{"type":"record","name":"Charge","fields":[
        {"name":"time","type":"long"},{"name":"amount","type":"double"},{"name":"note","type":["null","string"]}]}}},
    {"name":"registered","type":{"type":"long","logicalType":"timestamp-millis"}}]}"#;

/// The best of several runs, because the machine is never quite idle.
fn measure(what: &str, mut run: impl FnMut()) {
    const RUNS: u32 = 20_000;
    let best = (0..15)
        .map(|_| {
            let start = Instant::now();
            (0..RUNS).for_each(|_| run());
            start.elapsed().as_nanos() as f64 / f64::from(RUNS)
        })
        .fold(f64::INFINITY, f64::min);
    println!("{what:<58} {best:>9.1} ns");
}

fn encode(schema: &Schema, json: &str) -> Vec<u8> {
    let mut out = Vec::new();
    from_json(schema, schema.root(), json.as_bytes(), JsonForm::Plain, Missing::Default, &mut out).unwrap();
    out
}

fn measure_value(name: &str, schema: &Schema, json: &str) {
    let bytes = encode(schema, json);
    let root = schema.root();
    let mut out = Vec::with_capacity(64 << 10);
    println!("{name}: {} bytes, {} as JSON", bytes.len(), json.len());
    measure("  skip", || {
        black_box(skip(schema, root, black_box(&bytes)).unwrap());
    });
    for form in [JsonForm::Plain, JsonForm::Avro] {
        measure(&format!("  to_json {form:?}"), || {
            out.clear();
            to_json(schema, root, black_box(&bytes), form, &mut out).unwrap();
            black_box(&out);
        });
    }
    measure("  from_json", || {
        out.clear();
        from_json(schema, root, black_box(json.as_bytes()), JsonForm::Plain, Missing::Refuse, &mut out).unwrap();
        black_box(&out);
    });
    measure("  canonicalise", || drop(black_box(canonicalise(schema, root, black_box(&bytes)).unwrap())));
}

fn main() {
    let person = Schema::parse(PERSON, &[]).unwrap();
    let json = r#"{"name":"James Bond","age":60,"gender":"Male","emails":["james@example.org","bond@example.org"]}"#;
    measure_value("PersonInfo", &person, json);

    let account = Schema::parse(ACCOUNT, &[]).unwrap();
    let charges: Vec<String> =
        (0..100).map(|n| format!(r#"{{"time":{},"amount":{n}.5,"note":null}}"#, 1_700_000_000_000_i64 + n)).collect();
    let json = format!(r#"{{"id":"abCd","charges":[{}],"registered":"2024-01-02T03:04:05.678Z"}}"#, charges.join(","));
    measure_value("Account with 100 charges", &account, &json);

    let wider = Schema::parse(
        &ACCOUNT.replace(r#""name":"note""#, r#""name":"paid","type":"boolean","default":true},{"name":"note""#),
        &[],
    );
    let resolution = Resolution::new(&account, &wider.unwrap()).unwrap();
    let bytes = encode(&account, &json);
    let mut out = Vec::new();
    measure("  resolution that adds a field to each charge", || {
        out.clear();
        resolution.apply(black_box(&bytes), &mut out).unwrap();
    });
    let number = Schema::parse(r#""long""#, &[]).unwrap();
    measure("order_key of a long", || {
        out.clear();
        black_box(order_key(&number, number.root(), black_box(&[0x78]), true, &mut out));
    });
    measure("Schema::parse of Account", || drop(black_box(Schema::parse(black_box(ACCOUNT), &[]).unwrap())));
}
