//! The longest time that a patch can hold a core. Many operations of one kind run on a record of the largest size,
//! until the steps of `limits::PATCH_STEPS` are spent. The figures are milliseconds of CPU time as Linux counts it, in
//! the fastest of several rounds.
//!
//! ```sh
//! cargo run --release -p millrace-avpath --example patch_cost
//! ```

#![allow(clippy::disallowed_methods, reason = "an example that measures time")]

use millrace_avpath::{Budget, Change, EvaluationError, Parameters, Path, UpdateError};
use millrace_avro::{JsonForm, Missing, Schema, from_json};
use millrace_base::limits;
use serde_json::json;

const SCHEMA: &str = r#"{"type":"record","name":"R","fields":[
    {"name":"numbers","type":{"type":"array","items":"int"}},{"name":"words","type":{"type":"array","items":"string"}},
    {"name":"map","type":{"type":"map","values":"int"}},{"name":"text","type":"string"},{"name":"one","type":"int"},
    {"name":"singles","type":{"type":"array","items":"float"}},
    {"name":"days","type":{"type":"array","items":{"type":"int","logicalType":"date"}}},
    {"name":"parts","type":{"type":"array","items":{"type":"record","name":"P","fields":[{"name":"a","type":"int"},
        {"name":"b","type":{"type":"map","values":"int"}}]}}}]}"#;

enum Work {
    Test(&'static str),
    Update(&'static str, Change<'static>),
}

/// CPU time of this thread, whatever else runs.
fn cpu_ms() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux");
    text.split(' ').next().and_then(|ns| ns.parse::<f64>().ok()).expect("a number") / 1e6
}

fn run(schema: &Schema, record: &[u8], work: &Work) -> (usize, f64) {
    let (Work::Test(text) | Work::Update(text, _)) = work;
    let path = Path::parse(text).expect("a path");
    let mut fastest = f64::INFINITY;
    let mut operations = 0;
    for _ in 0..3 {
        let (mut budget, mut record) = (Budget::new(limits::PATCH_STEPS), record.to_vec());
        operations = 0;
        let start = cpu_ms();
        while operations < limits::PATCH_OPERATIONS {
            let result = match work {
                Work::Test(_) => path.test_within(schema, &record, Parameters::NONE, None, &mut budget).map(|_| ()),
                Work::Update(_, change) => path
                    .update_within(schema, &record, Parameters::NONE, *change, &mut budget)
                    .map(|updated| record = updated.record),
            };
            match result {
                Ok(()) => operations += 1,
                Err(UpdateError::Evaluation(EvaluationError::BudgetSpent)) => break,
                Err(error) => {
                    println!("{text}: {error}");
                    break;
                }
            }
        }
        fastest = fastest.min(cpu_ms() - start);
    }
    (operations, fastest)
}

fn main() {
    let schema = Schema::parse(SCHEMA, &[]).expect("a schema");
    let encode = |json: serde_json::Value| {
        let mut bytes = Vec::new();
        let json = json.to_string();
        from_json(&schema, schema.root(), json.as_bytes(), JsonForm::Plain, Missing::Default, &mut bytes)
            .expect("a record");
        bytes
    };
    let numbers = encode(json!({ "numbers": (0..60_000).collect::<Vec<_>>() }));
    let words = encode(json!({ "words": (0..90_000).map(|word| format!("ab{word:06}")).collect::<Vec<_>>() }));
    let accents = encode(json!({ "words": (0..60_000).map(|word| format!("éé{word:06}")).collect::<Vec<_>>() }));
    let map = (0..40_000).map(|key| (format!("k{key}"), json!(key)));
    let map = encode(json!({ "map": map.collect::<serde_json::Map<_, _>>() }));
    let text = encode(json!({ "text": "a".repeat(1_000_000) }));
    let singles = encode(json!({ "singles": vec![0.1; 60_000], "days": vec![7; 25_000] }));
    let parts = encode(json!({ "parts": vec![json!({ "a": 1 }); 9_000] }));
    let entries = (0..1000).map(|key| (format!("n{key}"), json!(key))).collect::<serde_json::Map<_, _>>();
    let entries: &'static str = json!(entries).to_string().leak();
    let many: &'static str = json!((0..1000).collect::<Vec<_>>()).to_string().leak();
    let (set, unique) = (Change::Set("5"), Change::AppendUnique("59999"));
    for (name, record, work) in [
        ("words", &words, Work::Test(".{!(.words *= 'zz')}")),
        ("words", &words, Work::Test(".{!(.words *= 'zzzzzzzzzzzzzzzzzzzzzzzz')}")),
        ("words", &words, Work::Test(".{!(.words == 'zz')}")),
        ("accents", &accents, Work::Test(".{!(.words == 'éé')}")),
        ("accents", &accents, Work::Test(".{!(.words *= 'zz')}")),
        ("numbers", &numbers, Work::Test(".{!(.numbers *= 'zz')}")),
        ("numbers", &numbers, Work::Test(".numbers{. + 1 == 5}")),
        ("numbers", &numbers, Work::Test(".{!(..numbers == ^.one)}")),
        ("singles", &singles, Work::Test(".{!(.singles *= 'zz')}")),
        ("singles", &singles, Work::Test(".{!(.singles[*] == 7)}")),
        ("singles", &singles, Work::Test(".singles[:30000]{. + 1 == 7}")),
        ("days", &singles, Work::Test(".{!(.days == '2024-01-01')}")),
        ("text", &text, Work::Test(".{!(.text *= 'aaaaaaaaab')}")),
        ("text", &text, Work::Test(".{.text == ^.text}")),
        ("map", &map, Work::Test("(.|.map(~'.*(a|b|c)9'))")),
        ("map", &map, Work::Update(".map.new", set)),
        ("map", &map, Work::Update(".map", Change::Insert(entries))),
        ("numbers", &numbers, Work::Update(".numbers", unique)),
        ("numbers", &numbers, Work::Update(".numbers", Change::InsertAll(many))),
        ("numbers", &numbers, Work::Update(".numbers[:10000]", Change::Increment("1"))),
        ("numbers", &numbers, Work::Update(".numbers[:10000]", set)),
        ("numbers", &numbers, Work::Update(".one", Change::Increment("1"))),
        ("text", &text, Work::Update(".one", Change::Increment("1"))),
        ("words", &words, Work::Update(".words", Change::Insert("  \"x\""))),
        ("words", &words, Work::Update(".one", Change::Set("  7"))),
        ("parts", &parts, Work::Update(".parts", Change::Insert("{\"a\":7}"))),
        ("parts", &parts, Work::Update(".parts[*]", Change::Set("{\"a\":7}"))),
        ("parts", &parts, Work::Update(".parts[:1000].b", Change::Insert("{\"k\":1,\"l\":2}"))),
        ("parts", &parts, Work::Update(".parts[*]", Change::Delete)),
    ] {
        let (Work::Test(text) | Work::Update(text, _)) = &work;
        let (operations, milliseconds) = run(&schema, record, &work);
        let kind = match &work {
            Work::Test(_) => "test".to_owned(),
            Work::Update(_, change) => format!("{change:?}").chars().take(20).collect(),
        };
        println!("{milliseconds:>8.1} ms  {operations:>4} operations  {name}: {kind} {text}");
    }
}
