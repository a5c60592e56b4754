//! The cost of paths: nanoseconds for each evaluation, in the fastest of several rounds. Other work on the machine can
//! only make a round slower.
//!
//! ```sh
//! cargo run --release -p millrace-avpath --example path_cost
//! ```

#![allow(clippy::disallowed_methods, reason = "an example that measures time")]

use std::hint::black_box;
use std::time::Instant;

use millrace_avpath::{Change, Parameters, Path, Predicate};
use millrace_avro::{JsonForm, Missing, Schema, from_json};

const SCHEMA: &str = r#"{"type":"record","name":"Customer","fields":[
    {"name":"id","type":"string"},{"name":"name","type":"string"},{"name":"age","type":"int"},
    {"name":"gender","type":{"type":"enum","name":"Gender","symbols":["Unknown","Female","Male"]}},
    {"name":"emails","type":{"type":"array","items":"string"}},
    {"name":"address","type":["null",{"type":"record","name":"Address","fields":[
        {"name":"street","type":"string"},{"name":"zip","type":"string"},
        {"name":"geo","type":{"type":"record","name":"Geo","fields":[
            {"name":"latitude","type":"double"},{"name":"longitude","type":"double"},{"name":"city","type":"string"}]}}]}]},
    {"name":"orders","type":{"type":"array","items":{"type":"record","name":"Order","fields":[
        {"name":"number","type":"long"},{"name":"product","type":"string"},{"name":"paid","type":"boolean"},
        {"name":"amount","type":"double"},{"name":"quantity","type":"int"}]}}},
    {"name":"labels","type":{"type":"map","values":"int"}}]}"#;

fn record() -> String {
    let orders: Vec<String> = (0..100)
        .map(|n| {
            format!(r#"{{"number":{n},"product":"product {n}","paid":{},"amount":{n}.5,"quantity":3}}"#, n % 2 == 0)
        })
        .collect();
    let labels: Vec<String> = (0..20).map(|n| format!(r#""label{n}":{n}"#)).collect();
    format!(
        r#"{{"id":"c-17","name":"James Bond","age":60,"gender":"Male","emails":["a@b.org","c@d.org"],
        "address":{{"street":"Millbank 85","zip":"SW1P","geo":{{"latitude":51.5,"longitude":-0.1,"city":"London"}}}},
        "orders":[{}],"labels":{{{}}}}}"#,
        orders.join(","),
        labels.join(",")
    )
}

/// The fastest of several rounds, in nanoseconds for each run.
fn measure(name: &str, mut run: impl FnMut()) {
    const ROUNDS: usize = 100;
    const RUNS: u32 = 500;
    let rounds = (0..ROUNDS).map(|_| {
        let start = Instant::now();
        for _ in 0..RUNS {
            run();
        }
        start.elapsed().as_secs_f64() * 1e9 / f64::from(RUNS)
    });
    println!("{:>10.0} ns  {name}", rounds.fold(f64::INFINITY, f64::min));
}

fn main() {
    let schema = Schema::parse(SCHEMA, &[]).expect("a schema");
    let mut bytes = Vec::new();
    let root = schema.root();
    from_json(&schema, root, record().as_bytes(), JsonForm::Plain, Missing::Default, &mut bytes).expect("a record");
    println!("a record of {} bytes with 100 orders", bytes.len());
    let parameters = Parameters::parse(r#"{"n":50}"#).expect("parameters");
    for text in [
        ".age",
        ".address.geo.city",
        ".orders[99].product",
        ".orders[*].product",
        ".orders{.amount > 50}.number",
        r#".orders{.amount > $n && .paid}.number"#,
        r#".orders{.product == "PRODUCT 7"}.number"#,
        r#".orders{.product *= "duct 7"}.number"#,
        r#".labels("label7")"#,
        r#".labels(~"label1.*")"#,
        "..city",
    ] {
        let path = Path::parse(text).expect("a path");
        let count = path.select(&schema, &bytes, &parameters).expect("a result").len();
        measure(&format!("select {text}: {count}"), || {
            black_box(path.select(&schema, black_box(&bytes), &parameters).expect("a result"));
        });
        measure(&format!("parse {text}"), || {
            black_box(Path::parse(black_box(text)).expect("a path"));
        });
    }
    for text in [
        ".age >= 18",
        r#".address.geo.city == "london" && .age > 50"#,
        ".orders[*].amount > 98",
        r#".orders{.product === "product 99"}"#,
        r#".orders{.product == "PRODUCT 99"}"#,
        r#".orders{.product ^= "PRODUCT 99"}"#,
        r#".orders{.product *= "duct 99"}"#,
        ".orders{.number == 99}",
        ".orders{.amount > 98.2 && .amount < 99.7}",
        r#".orders{.amount > 98.2 || .product === "product 99"}"#,
        ".orders{.paid}",
        ".orders{.amount * .quantity > 297}",
        ".{.orders{.number == 99}}",
    ] {
        let predicate = Predicate::parse(text).expect("a predicate");
        measure(&format!("predicate {text}"), || {
            black_box(predicate.matches(&schema, black_box(&bytes), &parameters).expect("a result"));
        });
    }
    for (text, change) in [
        (".age", Change::Set("61")),
        (".age", Change::Increment("1")),
        (".address", Change::Set(r#"{"zip":"SE1"}"#)),
        (".emails", Change::AppendUnique(r#""e@f.org""#)),
        (".orders{.paid}", Change::Delete),
        (r#".labels("new")"#, Change::Set("1")),
    ] {
        let path = Path::parse(text).expect("a path");
        measure(&format!("{change:?} {text}"), || {
            black_box(path.update(&schema, black_box(&bytes), &parameters, change).expect("a result"));
        });
    }
}
