//! A path in one line, and JSON below it: parameters of a selection, or the value of a change. A path that is read
//! writes a path that is read again and does the same. A changed value is canonical.

use std::sync::LazyLock;

use millrace_avpath::{Budget, Change, EvaluationError, Parameters, Path, Predicate, UpdateError};
use millrace_avro::{JsonForm, Missing, Schema, canonicalise, from_json};

struct Record {
    schema: Schema,
    bytes: Vec<u8>,
}

static RECORD: LazyLock<Record> = LazyLock::new(|| {
    let schema = r#"{"type":"record","name":"R","fields":[
        {"name":"id","type":"string"},{"name":"n","type":["null","long","string"]},{"name":"ratio","type":"float"},
        {"name":"price","type":{"type":"bytes","logicalType":"decimal","precision":9,"scale":2}},
        {"name":"day","type":{"type":"int","logicalType":"date"}},
        {"name":"list","type":{"type":"array","items":["null","R","double"]}},
        {"name":"map","type":{"type":"map","values":{"type":"array","items":"int"}}},{"name":"next","type":["null","R"]}]}"#;
    let json = r#"{"id":"abCd","n":7,"ratio":0.5,"price":"1.25","day":"2024-02-29","list":[1.5,null,{"id":"x","n":"5"}],
        "map":{"a":[1,2],"b c":[]},"next":{"id":"ß","map":{"a":[3]}}}"#;
    let schema = Schema::parse(schema, &[]).expect("a schema");
    let mut bytes = Vec::new();
    from_json(&schema, schema.root(), json.as_bytes(), JsonForm::Plain, Missing::Default, &mut bytes)
        .expect("a record");
    Record { schema, bytes }
});

pub(crate) fn run(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let (text, json) = text.split_once('\n').unwrap_or((text, ""));
    let parameters = Parameters::parse(json).unwrap_or_default();
    run_path(text, json, &parameters);
    run_predicate(text, &parameters);
}

fn run_path(text: &str, json: &str, parameters: &Parameters) {
    let Record { schema, bytes } = &*RECORD;
    let path = match Path::parse(text) {
        Ok(path) => path,
        Err(error) => {
            assert!(!error.message.is_empty() && (1..=text.chars().count() + 1).contains(&error.position));
            return;
        }
    };
    let again = Path::parse(path.text()).expect("its own text");
    assert_eq!(again.text(), path.text());
    let found = path.select(schema, bytes, parameters);
    assert_eq!(again.select(schema, bytes, parameters), found);
    let changes = [
        Change::Set(json),
        Change::Insert(json),
        Change::InsertAll(json),
        Change::Delete,
        Change::Clear,
        Change::Increment(json),
        Change::AppendUnique(json),
    ];
    for change in changes {
        if let Ok(updated) = path.update(schema, bytes, parameters, change) {
            assert_eq!(canonicalise(schema, schema.root(), &updated.record).as_ref(), Ok(&updated.record));
        }
        let mut budget = Budget::new(1000);
        match path.update_within(schema, bytes, parameters, change, &mut budget) {
            Err(UpdateError::Evaluation(EvaluationError::BudgetSpent)) => assert_eq!(budget.left(), 0),
            within => assert_eq!(within, path.update(schema, bytes, parameters, change)),
        }
    }
    if let Ok(tested) = path.test(schema, bytes, parameters, None) {
        assert_eq!(tested.holds, found.is_ok_and(|found| !found.is_empty()));
    }
}

fn run_predicate(text: &str, parameters: &Parameters) {
    let Record { schema, bytes } = &*RECORD;
    let Ok(predicate) = Predicate::parse(text) else { return };
    let again = Predicate::parse(predicate.text()).expect("its own text");
    assert_eq!(again.text(), predicate.text());
    let holds = predicate.matches(schema, bytes, parameters);
    assert_eq!(again.matches(schema, bytes, parameters), holds);
    // A predicate that holds meets each of its demands by itself.
    if holds == Ok(true) {
        for comparison in predicate.comparisons(parameters).expect("bound") {
            let demand = format!("{} {} $v", comparison.path, comparison.comparator.symbol());
            let values = Parameters::parse(&serde_json::json!({ "v": comparison.values }).to_string()).expect("JSON");
            let demand = Predicate::parse(&demand).expect("a predicate");
            assert_eq!(demand.matches(schema, bytes, &values), Ok(true));
        }
    }
}
