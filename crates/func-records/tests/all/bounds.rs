//! What one request may take of a core, and that nothing is lost by it.

use crate::common::World;
use millrace_api::{PathOperationKind, RecordQuery};
use millrace_base::{ErrorCode, limits};
use serde_json::json;

fn numbers() -> serde_json::Value {
    json!({ "schema": { "type": "record", "name": "R", "fields": [
        { "name": "a", "type": "int", "default": 0 },
        { "name": "n", "type": { "type": "array", "items": "int" } },
    ]}})
}

/// Records with so many numbers each, all of them below 60.
fn world(count: usize, numbers_each: usize) -> World {
    let mut world = World::with("t", numbers());
    for number in 0..count {
        put(&mut world, number, numbers_each);
    }
    world
}

fn put(world: &mut World, number: usize, numbers: usize) {
    let numbers: Vec<usize> = (0..numbers).map(|at| at % 60).collect();
    let json = json!({ "a": number % 7, "n": numbers }).to_string();
    world.put(&format!("{number:03}"), &json).expect("puts");
}

#[test]
fn a_page_ends_when_its_steps_are_spent_and_pages_together_hold_everything() {
    // Each of them takes some 90,000 steps.
    let mut world = world(150, 30_000);
    let some = |ids: &[String]| ids.iter().map(|id| id.parse::<usize>().expect("a number")).collect::<Vec<_>>();
    for limit in [1000, 5] {
        let none = RecordQuery { predicate: ".n === 61", limit, ..RecordQuery::default() };
        let (ids, pages) = world.ids(&none).expect("finds nothing");
        assert!(ids.is_empty() && (2..10).contains(&pages), "{pages} pages");
        let query = RecordQuery { predicate: ".n === 61 || .a === 3", limit, ..RecordQuery::default() };
        let (ids, pages) = world.ids(&query).expect("finds");
        assert_eq!(some(&ids), (0..150).filter(|number| number % 7 == 3).collect::<Vec<_>>());
        assert!(pages >= 2);
    }
    let page = world.query(RecordQuery { predicate: ".n === 61", ..RecordQuery::default() }).expect("a page");
    assert_eq!(page["records"], json!([]));
    assert!(page["cursor"].is_string(), "{page}");
}

#[test]
fn records_that_take_more_than_a_visit_are_got_behind_one_by_one() {
    let mut world = world(12, 150_000);
    let query = RecordQuery { predicate: ".n{. === 61} || .a === 3", ..RecordQuery::default() };
    let (ids, pages) = world.ids(&query).expect("finds");
    assert_eq!(ids, ["003", "010"]);
    assert!(pages <= 12, "{pages} pages");
}

#[test]
fn an_index_in_order_is_gone_through_in_bounds_both_ways() {
    let mut settings = numbers();
    settings["indexes"] = json!([{ "name": "by_a", "path": ".a" }]);
    let mut world = World::with("t", settings);
    for number in 0..150 {
        put(&mut world, number, 30_000);
    }
    for (order, expected) in [(".a", ["003", "010"]), ("-.a", ["143", "136"])] {
        let predicate = ".n === 61 || (.a > 1 && .a === 3)";
        let query = RecordQuery { predicate, order, limit: 1000, ..RecordQuery::default() };
        let (ids, pages) = world.ids(&query).expect("finds");
        assert_eq!((ids.len(), &ids[..2]), (21, &expected.map(str::to_owned)[..]));
        assert!(pages > 1, "{pages} pages");
    }
    // Its range is looked at record by record, without sorting.
    let query = RecordQuery { predicate: ".a >= 2 && .n === 61", limit: 1000, ..RecordQuery::default() };
    let (ids, pages) = world.ids(&query).expect("finds nothing");
    assert!(ids.is_empty() && pages > 1, "{pages} pages");
}

#[test]
fn sorting_what_takes_too_long_says_what_to_do() {
    let mut world = world(30, 30_000);
    let query = RecordQuery { predicate: ".n === 61", order: "-.a", ..RecordQuery::default() };
    let error = world.query(query).expect_err("too much");
    assert_eq!(error.code, ErrorCode::BadRequest);
    assert!(error.message.contains("declare an index on .a, or narrow the query down"), "{error}");
    let query = RecordQuery { order: "-.a", limit: 3, ids_only: true, ..RecordQuery::default() };
    assert_eq!(world.query(query).expect("sorts")["records"].as_array().map(Vec::len), Some(3));
}

#[test]
fn a_record_whose_evaluation_goes_over_the_limit_is_named() {
    let mut world = world(5, 10);
    put(&mut world, 7, 300_000);
    let query = RecordQuery { predicate: ".n{. === 61}", ..RecordQuery::default() };
    let error = world.query(query).expect_err("too large");
    assert_eq!(error.code, ErrorCode::InvalidPath);
    assert!(error.message.contains("the record \"007\""), "{error}");
    assert!(error.message.contains(&limits::PATH_STEPS.to_string()), "{error}");
}

#[test]
fn parameters_are_asked_for_before_records_are_looked_at() {
    let mut world = world(0, 0);
    let query = RecordQuery { predicate: ".a + 1 == $x || .a == 1", ..RecordQuery::default() };
    let error = world.query(query.clone()).expect_err("unbound");
    assert!(error.code == ErrorCode::InvalidPath && error.message.contains("$x"), "{error}");
    // A parameter that nothing asks for is allowed, as with paths.
    world.query(RecordQuery { parameters: r#"{"x":1,"y":2}"#, ..query }).expect("runs");
}

#[test]
fn a_patch_has_one_budget_for_all_operations() {
    use PathOperationKind::{AppendUnique, Increment, InsertAll, Set, Test};
    let mut world = world(1, 60_000);
    let before = world.get("000").expect("there");
    let all: String = format!("[{}]", vec!["1"; 100].join(","));
    let operations: [(PathOperationKind, &str, Option<&str>); 4] = [
        (Test, ".{!(.n === 61)}", None),
        (AppendUnique, ".n", Some("59")),
        (Increment, ".n[:5000]", Some("1")),
        (InsertAll, ".n", Some(&all)),
    ];
    for operation in operations {
        world.patch("000", &[operation; 3]).expect("a few");
        world.put("000", &before).expect("puts");
        let mut many = vec![(Set, ".a", Some("5"))];
        many.extend([operation; 999]);
        let error = world.patch("000", &many).expect_err("too many");
        assert_eq!(error.code, ErrorCode::InvalidPath, "{operation:?}: {error}");
        let named = error.message.strip_prefix("operation ").and_then(|rest| rest.split(':').next());
        let named: usize = named.and_then(|number| number.parse().ok()).expect("an operation's number");
        assert!((3..=1000).contains(&named) && error.message.contains("the patch"), "{error}");
        assert_eq!(world.get("000").expect("there"), before);
    }
    // Paths that each have to be parsed take steps too.
    let paths: Vec<String> = (0..1000).map(|number| format!(".(~'a{number}.*')")).collect();
    let tests: Vec<_> = paths.iter().map(|path| (Test, path.as_str(), None)).collect();
    let error = world.patch("000", &tests[..1]).expect_err("no such field");
    assert_eq!(error.code, ErrorCode::TestFailed);
    // As many as a patch may have, of the kind that people write.
    world.put("000", r#"{"n":[1,2,3]}"#).expect("puts");
    world.patch("000", &[(Increment, ".a", Some("1")); limits::PATCH_OPERATIONS]).expect("increments");
    assert_eq!(world.select("000", ".a").expect("reads"), "[1000]");
}

#[test]
fn ids_have_one_limit() {
    let mut world = world(0, 0);
    let longest = "x".repeat(limits::RECORD_ID_BYTES);
    world.put(&longest, r#"{"n":[]}"#).expect("puts");
    assert_eq!(world.ids(&RecordQuery::default()).expect("lists").0, std::slice::from_ref(&longest));
    let error = world.put(&format!("{longest}x"), r#"{"n":[]}"#).expect_err("too long");
    assert_eq!(error.code, ErrorCode::TooLarge);
    assert!(error.message.contains("at most 512 bytes"), "{error}");
}
