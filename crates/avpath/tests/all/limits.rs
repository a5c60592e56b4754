//! Input from strangers is refused with a reason or handled within bounds, and never panics.

#![allow(clippy::disallowed_methods, reason = "a test that measures time")]

use std::time::{Duration, Instant};

use crate::support::Record;
use millrace_avpath::{Change, EvaluationError, Parameters, Path, Predicate, UpdateError};
use millrace_base::limits;
use proptest::prelude::*;
use serde_json::json;

#[test]
fn long_and_deep_texts_are_refused() {
    assert!(Path::parse(&".a".repeat(limits::PATH_BYTES / 2)).is_ok());
    let error = Path::parse(&".a".repeat(limits::PATH_BYTES)).expect_err("too long");
    assert_eq!((error.position, &*error.message), (limits::PATH_BYTES + 1, "longer than 4096 bytes"));
    for (open, close) in [("(.a", ")"), (".a{", ".b}"), (".{!", ".a}"), (".{-", ".a}"), (".{(", ".a)}")] {
        let nested = |depth: usize| format!("{}{}", open.repeat(depth), close.repeat(depth));
        assert!(Path::parse(&nested(10)).is_ok(), "{}", nested(10));
        let error = Path::parse(&nested(100)).expect_err("too deep");
        assert!(error.message.contains("nested deeper than 32"), "{open}: {error}");
    }
    let patterns = |count: usize| format!(".({})", vec!["~'a.*'"; count].join("|"));
    assert!(Path::parse(&patterns(limits::PATH_PATTERNS)).is_ok());
    assert!(Path::parse(&patterns(limits::PATH_PATTERNS + 1)).is_err());
    let error = Path::parse(".(~'(a{100}){100}')").expect_err("a large expression");
    assert!(error.message.contains("more than 65536 bytes"), "{error}");
    // What people write fits.
    assert!(Path::parse(r#".(~"user-\d+:[a-z_]*\.(jpe?g|png)")"#).is_ok());
}

/// Long enough for the slowest machine, and far less than unbounded work would take.
const BEARABLE: Duration = Duration::from_secs(5);

#[test]
fn evaluations_are_bounded() {
    let numbers: Vec<i64> = (0..20_000).collect();
    let schema = r#"{"type":"record","name":"R","fields":[
        {"name":"numbers","type":{"type":"array","items":"long"}},{"name":"text","type":"string"},
        {"name":"map","type":{"type":"map","values":"long"}},
        {"name":"nothing","type":{"type":"array","items":"null"}}]}"#;
    let map: serde_json::Map<_, _> = (0..10_000).map(|n| (format!("key{n}"), json!(n))).collect();
    let record = Record::new(
        schema,
        json!({"numbers": numbers, "text": "a".repeat(100_000), "map": map, "nothing": vec![(); 50_000]}),
    );
    let select = |text: &str| {
        let start = Instant::now();
        let path = Path::parse(text).expect("a path");
        let found = path.select(&record.schema, &record.bytes, Parameters::NONE).map(|found| found.len());
        assert!(start.elapsed() < BEARABLE, "{text} took {:?}", start.elapsed());
        found
    };
    assert_eq!(select(".numbers[:10000]"), Ok(10_000));
    assert_eq!(select(".numbers[*]"), Err(EvaluationError::TooManyMatches));
    assert_eq!(select(".nothing[:3]"), Ok(3));
    assert_eq!(select(".numbers{. < 10}"), Ok(10));
    assert_eq!(select(".numbers{^..{.}}"), Err(EvaluationError::TooManySteps));
    assert_eq!(select(".numbers{^.nothing[-1] == 1}"), Err(EvaluationError::TooManySteps));
    assert_eq!(select(".numbers{^.map.key9999 == 1}"), Err(EvaluationError::TooManySteps));
    assert_eq!(select(".map{^.text *= 'b'}"), Err(EvaluationError::TooManySteps));
    assert_eq!(select(".{.numbers == .numbers}"), Ok(1));
    assert_eq!(select(".{.numbers > .numbers && .numbers === .nothing}"), Err(EvaluationError::TooManySteps));
    assert!(matches!(select(&"..".repeat(2000)), Err(EvaluationError::TooManyMatches | EvaluationError::TooManySteps)));
    assert!(select(&format!(".map(~'{}')", "(a*)*".repeat(20))).is_ok());
    // The worst case of a regular expression: all of it is tried at each letter.
    let keys = Record::new(
        r#"{"type":"record","name":"K","fields":[{"name":"map","type":{"type":"map","values":"null"}}]}"#,
        json!({"map": {"a".repeat(400_000): null}}),
    );
    let start = Instant::now();
    let path = Path::parse(".map(~'(a?){200}b')").expect("a path");
    assert_eq!(path.select(&keys.schema, &keys.bytes, Parameters::NONE), Ok(vec![]));
    assert!(start.elapsed() < BEARABLE, "{:?}", start.elapsed());
    let value = format!("\"{}\"", "x".repeat(1000));
    let start = Instant::now();
    let path = Path::parse(".map.*").expect("a path");
    let updated = path.update(&record.schema, &record.bytes, Parameters::NONE, Change::Set(&value));
    assert!(matches!(updated, Err(UpdateError::Value(_))), "{updated:?}");
    assert!(start.elapsed() < BEARABLE);
}

#[test]
fn damaged_records_are_errors() {
    let record = Record::account();
    let path = Path::parse("..*{.time > 0 || . == 'x' || .a}").expect("a path");
    let predicate = Predicate::parse(".chargeRecords[-1].amount == -50 && .devApps.c.numBlackApps == 3").expect("one");
    for end in 0..record.bytes.len() {
        assert!(path.select(&record.schema, &record.bytes[..end], Parameters::NONE).is_err(), "{end}");
        let _ = predicate.matches(&record.schema, &record.bytes[..end], Parameters::NONE);
    }
}

/// Texts of the language's own tokens, so that much of them is read.
fn texts() -> impl Strategy<Value = String> {
    let token = prop::sample::select(vec![
        ".",
        "..",
        "^",
        "*",
        "[",
        "]",
        "{",
        "}",
        "(",
        ")",
        "|",
        "||",
        "&&",
        "==",
        "!=",
        "===",
        "^=",
        "$=",
        "*==",
        "<",
        ">=",
        "+",
        "-",
        "/",
        "%",
        "!",
        ":",
        "~",
        "~\"a.*\"",
        "\"a\"",
        "'id'",
        "id",
        "time",
        "devApps",
        "chargeRecords",
        "a",
        "0",
        "1",
        "-1",
        "2.5",
        "1e3",
        "true",
        "null",
        "$p",
        " ",
        "\\",
        "é",
    ]);
    prop::collection::vec(token, 0..20).prop_map(|tokens| tokens.concat())
}

fn run(text: &str, record: &[u8]) {
    let account = Record::account();
    let parameters = Parameters::parse(r#"{"p":[1,"a",null,{}]}"#).expect("parameters");
    if let Ok(path) = Path::parse(text) {
        assert_eq!(Path::parse(path.text()).expect("its own text").text(), path.text());
        let _ = path.select(&account.schema, record, &parameters);
        for change in
            [Change::Set("{}"), Change::Set("1"), Change::Delete, Change::Clear, Change::InsertAll("{\"a\":{}}")]
        {
            let _ = path.update(&account.schema, record, &parameters, change);
        }
        let _ = path.test(&account.schema, record, &parameters, Some("[1]"));
    }
    if let Ok(predicate) = Predicate::parse(text) {
        let again = Predicate::parse(predicate.text()).expect("its own text");
        assert_eq!(again.text(), predicate.text());
        let first = predicate.matches(&account.schema, record, &parameters);
        assert_eq!(again.matches(&account.schema, record, &parameters), first);
        let _ = predicate.comparisons(&parameters);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_text_does_harm(text in prop_oneof![texts(), any::<String>()]) {
        run(&text, &Record::account().bytes);
    }

    #[test]
    fn no_bytes_do_harm(text in texts(), bytes in prop::collection::vec(any::<u8>(), 0..60)) {
        run(&text, &bytes);
    }
}
