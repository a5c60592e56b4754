//! Queries: every plan gives what looking at all records would give, in order, page by page.

use crate::common::{World, person};
use millrace_api::RecordQuery;
use millrace_base::{ErrorCode, limits};
use serde_json::{Value, json};

fn settings(indexes: Value) -> Value {
    json!({ "schema": person(), "indexes": indexes })
}

fn all_indexes() -> Value {
    json!([
        { "name": "by_age", "path": ".age" },
        { "name": "by_name", "path": ".name", "ignore_case": true },
        { "name": "by_exact_name", "path": ".name" },
        { "name": "by_gender", "path": ".gender" },
        { "name": "by_email", "path": ".emails[*]" },
    ])
}

struct Person {
    id: String,
    age: i64,
    name: String,
    gender: &'static str,
    emails: Vec<String>,
}

/// People with ages, names and addresses that repeat.
fn people(count: i64) -> Vec<Person> {
    let person = |number: i64| Person {
        id: format!("p{:04}", number * 7919 % 10_000),
        age: number * 37 % 50 - 5,
        name: ["anna", "Anna", "Bob", "bob", "", "zoé"][number as usize % 6].to_owned(),
        gender: ["Unknown", "Female", "Male"][number as usize / 2 % 3],
        emails: (0..number % 4).map(|at| format!("{}@x", (number + at * 5) % 9)).collect(),
    };
    (0..count).map(person).collect()
}

fn world(indexes: Value, count: i64) -> (World, Vec<Person>) {
    let mut world = World::with("t", settings(indexes));
    let people = people(count);
    for person in &people {
        let json = json!({ "name": person.name, "age": person.age, "gender": person.gender, "emails": person.emails });
        world.put(&person.id, &json.to_string()).expect("puts");
    }
    (world, people)
}

type Holds = fn(&Person) -> bool;

const QUERIES: [(&str, Holds); 16] = [
    ("", |_| true),
    (".age == 7", |person| person.age == 7),
    (".age > 30", |person| person.age > 30),
    (".age >= 30 && .age < 33", |person| (30..33).contains(&person.age)),
    ("5 > .age && .gender === \"Male\"", |person| person.age < 5 && person.gender == "Male"),
    (".name == \"ANNA\"", |person| person.name.eq_ignore_ascii_case("anna")),
    (".name === \"Anna\"", |person| person.name == "Anna"),
    (".name ^== \"b\"", |person| person.name.starts_with('b')),
    (".name ^= \"b\"", |person| person.name.to_lowercase().starts_with('b')),
    (".name > \"Anna\" && .name <= \"bob\"", |person| "Anna" < person.name.as_str() && person.name.as_str() <= "bob"),
    (".gender == \"female\"", |person| person.gender == "Female"),
    (".emails[*] === \"3@x\"", |person| person.emails.iter().any(|email| email == "3@x")),
    (".emails === \"3@x\"", |person| person.emails.iter().any(|email| email == "3@x")),
    (".emails[*] > \"6\" && .emails[*] < \"2\"", |person| {
        person.emails.iter().any(|email| email.as_str() > "6") && person.emails.iter().any(|email| email.as_str() < "2")
    }),
    (".age < 0 || .age > 40", |person| person.age < 0 || person.age > 40),
    (".age == \"7\"", |person| person.age == 7),
];

#[test]
fn every_plan_gives_the_same() {
    for indexes in [json!([]), all_indexes(), json!([{ "name": "by_age", "path": ".age" }])] {
        let (mut world, people) = world(indexes, 240);
        world.check_rows("t");
        for (predicate, holds) in QUERIES {
            for (order, limit) in
                [("", 7), ("", 1000), (".age", 7), ("-.age", 7), (".name", 100), ("-.name", 11), (".gender", 50)]
            {
                let mut expected: Vec<&Person> = people.iter().filter(|person| holds(person)).collect();
                expected.sort_by(|a, b| {
                    let by = match order.trim_start_matches('-') {
                        ".age" => a.age.cmp(&b.age),
                        ".name" => a.name.cmp(&b.name),
                        ".gender" => a.gender.cmp(b.gender),
                        _ => std::cmp::Ordering::Equal,
                    };
                    by.then_with(|| a.id.cmp(&b.id))
                });
                if order.starts_with('-') {
                    expected.reverse();
                }
                let query = RecordQuery { predicate, order, limit, ..RecordQuery::default() };
                let (ids, _) = world.ids(&query).expect(predicate);
                let expected: Vec<&str> = expected.iter().map(|person| person.id.as_str()).collect();
                assert_eq!(ids, expected, "{predicate} by {order} in pages of {limit}");
            }
        }
    }
}

#[test]
fn records_ids_and_parameters() {
    let (mut world, _) = world(all_indexes(), 60);
    let page = world
        .query(RecordQuery {
            predicate: ".age == $age",
            parameters: r#"{"age":7}"#,
            limit: 1,
            ..RecordQuery::default()
        })
        .expect("finds");
    let record = &page["records"][0];
    assert_eq!(record["record"]["age"], 7);
    assert!(record["id"].is_string() && record["etag"].is_string());
    let page = world.query(RecordQuery { ids_only: true, limit: 2, ..RecordQuery::default() }).expect("finds");
    let keys: Vec<&String> = page["records"][1].as_object().expect("an object").keys().collect();
    assert_eq!(keys, ["id"]);
    for is_reversed in [true, false] {
        world.is_reversed = is_reversed;
        let query = RecordQuery { prefix: b"p00", predicate: ".age < 100", limit: 3, ..RecordQuery::default() };
        let (with, _) = world.ids(&query).expect("finds");
        let (without, _) = world.ids(&RecordQuery { predicate: "", ..query.clone() }).expect("finds");
        let (ordered, _) = world.ids(&RecordQuery { order: "-.age", ..query }).expect("finds");
        assert!(with == without && with.len() == ordered.len() && !with.is_empty());
        assert!(with.iter().chain(&ordered).all(|id| id.starts_with("p00")));
    }
}

#[test]
fn cursors_are_checked() {
    let (mut world, _) = world(json!([]), 20);
    let query = RecordQuery { predicate: ".age < 100", limit: 5, ..RecordQuery::default() };
    let page = world.query(query.clone()).expect("finds");
    let cursor = page["cursor"].as_str().expect("more").to_owned();
    world.query(RecordQuery { cursor: &cursor, ..query.clone() }).expect("goes on");
    for query in [
        RecordQuery { cursor: &cursor, predicate: ".age < 99", ..query.clone() },
        RecordQuery { cursor: &cursor, order: ".age", ..query.clone() },
        RecordQuery { cursor: &cursor[1..], ..query.clone() },
        RecordQuery { cursor: "!", ..query.clone() },
    ] {
        assert_eq!(world.query(query).expect_err("another").code, ErrorCode::BadRequest);
    }
}

#[test]
fn errors_name_the_place() {
    let (mut world, _) = world(json!([]), 3);
    for (query, code, part) in [
        (RecordQuery { predicate: ".age ==", ..RecordQuery::default() }, ErrorCode::InvalidPath, "column"),
        (RecordQuery { predicate: ".age == $x", ..RecordQuery::default() }, ErrorCode::InvalidPath, "$x"),
        (RecordQuery { order: ".emails[*]", ..RecordQuery::default() }, ErrorCode::InvalidPath, "one scalar"),
        (RecordQuery { order: ".nope", ..RecordQuery::default() }, ErrorCode::InvalidPath, ".nope"),
        (RecordQuery { order: "-", ..RecordQuery::default() }, ErrorCode::InvalidPath, "-.age"),
        (RecordQuery { parameters: "[", ..RecordQuery::default() }, ErrorCode::InvalidInput, "JSON object"),
        (
            RecordQuery { form: millrace_api::Form::Binary, ..RecordQuery::default() },
            ErrorCode::UnsupportedMediaType,
            "JSON",
        ),
    ] {
        let error = world.query(query).expect_err(part);
        assert_eq!(error.code, code, "{error}");
        assert!(error.message.contains(part), "{error}");
    }
}

#[test]
fn sorting_is_bounded_and_an_index_helps() {
    let count = limits::QUERY_SCANNED as i64 * 3 + 200;
    let mut world = World::with("t", json!({ "schema": person() }));
    for number in 0..count {
        world.put(&format!("{number:05}"), &format!("{{\"age\":{}}}", number % 1000)).expect("puts");
    }
    let query = RecordQuery { order: "-.age", limit: 3, ..RecordQuery::default() };
    let error = world.query(query.clone()).expect_err("too many");
    assert_eq!(error.code, ErrorCode::BadRequest);
    assert!(error.message.contains("declare an index on .age"), "{error}");
    // A scan goes on from page to page, although most pages of a rare predicate are empty.
    let rare = RecordQuery { predicate: ".age == 999", limit: 1000, ..RecordQuery::default() };
    let (ids, pages) = world.ids(&rare).expect("finds");
    assert!(ids.len() == 3 && pages > 1, "{ids:?} in {pages}");
    let indexes = json!([{ "name": "by_age", "path": ".age" }]);
    world.switch("t", json!({ "indexes": indexes })).expect("loads");
    world.sweep("t");
    let error = world.query(query.clone()).expect_err("not built yet");
    assert!(error.message.contains("by_age is still being built"), "{error}");
    let explained = world.query(RecordQuery { explain: true, ..rare.clone() }).expect("explains");
    assert_eq!(explained["plan"], "scan");
    assert!(explained["why_not"][0].as_str().expect("why").contains("still being built in 3 of 3"), "{explained}");
    world.settle(60_000);
    let page = world.query(query).expect("finds");
    assert_eq!(page["records"][0]["record"]["age"], 999);
    let (ids, pages) = world.ids(&rare).expect("finds");
    assert_eq!((ids.len(), pages), (3, 1));
    assert!(world.calls < 20, "{} calls for three records", world.calls);
    let explained = world.query(RecordQuery { explain: true, ..rare }).expect("explains");
    assert_eq!((&explained["plan"], &explained["index"]), (&json!("index"), &json!("by_age")));
    assert_eq!(explained["range"], ".age == 999");
}

#[test]
fn explain_says_why_an_index_does_not_serve() {
    let (mut world, _) =
        world(json!([{ "name": "by_name", "path": ".name" }, { "name": "by_age", "path": ".age" }]), 5);
    for (predicate, part) in [
        (".name == \"Anna\"", "ignores case"),
        (".age == \"7\"", "another type"),
        (".gender === \"Male\"", "no index on .gender"),
        (".name *= \"x\"", "does not help"),
        (".age < 0 || .age > 40", "compares no simple path"),
    ] {
        let explained =
            world.query(RecordQuery { predicate, explain: true, ..RecordQuery::default() }).expect("explains");
        assert_eq!(explained["plan"], "scan", "{explained}");
        assert!(explained["why_not"].to_string().contains(part), "{explained}");
    }
    for (order, reasons) in [("-.gender", json!(["no index has the order of .gender"])), (".age", json!([]))] {
        let explained = world.query(RecordQuery { order, explain: true, ..RecordQuery::default() }).expect("explains");
        assert_eq!((&explained["why_not"], explained["order"]["sorts"] == true), (&reasons, order != ".age"));
    }
}
