//! Every row of the language's table, and the targets of updates.

use crate::support::Record;
use millrace_avpath::Change::{self, AppendUnique, Clear, Delete, Increment, Insert, InsertAll, Set};
use millrace_avpath::UpdateError;
use serde_json::{Value, json};

#[test]
fn every_row_of_the_table() {
    let account = Record::account();
    for (path, expected) in [
        (".registerTime", json!([10000])),
        ("^.id", json!(["abCd"])),
        (".nonExist", json!([])),
        ("(.registerTime|.nonExist|.id)", json!([10000, "abCd"])),
        (".chargeRecords[*].time", json!([1, 2])),
        (".chargeRecords[0].time", json!([1])),
        (".chargeRecords[-1].time", json!([2])),
        (r#".devApps("a"|"zz").numBlackApps"#, json!([1])),
        (r#".devApps(~"a.*").numBlackApps"#, json!([1])),
        (".devApps{.numBlackApps>2}.numBlackApps", json!([3])),
        (".chargeRecords{.time*100==.amount}.time", json!([1])),
        (".chargeRecords{.time>0}{.amount<0}.time", json!([2])),
    ] {
        assert_eq!(account.select(path), expected, "{path}");
    }
    assert_eq!(account.select(".{.id==\"ABCD\"}"), json!([account.json()]));
    assert_eq!(account.select(".{.id===\"ABCD\"}"), json!([]));
    for (strict, expected) in [(false, true), (true, false)] {
        for (operator, text) in [("=", "ABCD"), ("^", "AB"), ("$", "CD"), ("*", "BC")] {
            let more = if strict { "=" } else { "" };
            assert_eq!(account.holds(&format!(".id {operator}={more} \"{text}\"")), expected, "{operator}={more}");
        }
    }
}

#[test]
fn what_the_old_server_did_wrong() {
    let account = Record::account();
    for (path, expected) in [
        // Half-open slices; out of range gives nothing.
        (".chargeRecords[0:1].time", json!([1])),
        (".chargeRecords[:1].time", json!([1])),
        (".chargeRecords[1:].time", json!([2])),
        (".chargeRecords[-1:].time", json!([2])),
        (".chargeRecords[0:9].time", json!([1, 2])),
        (".chargeRecords[2].time", json!([])),
        (".chargeRecords[-3].time", json!([])),
        (".chargeRecords[9:1].time", json!([])),
        // Descendants.
        ("..time", json!([1, 2])),
        ("..numBlackApps", json!([1, 2, 3])),
        // Parentheses group.
        (".chargeRecords{(.time + 1) * 50 == .amount}.time", json!([1])),
        (".chargeRecords{.time == 9 && (.time == 1 || .time == 2)}.time", json!([])),
        // An index behind a filter counts what the filter leaves.
        (".devApps{.numBlackApps>1}[0].numBlackApps", json!([2])),
        (".devApps{.numBlackApps>1}[-1].numBlackApps", json!([3])),
        (".devApps{.numBlackApps>0}[1:].numBlackApps", json!([2, 3])),
        // A missing value is absent, which is not an error.
        (".chargeRecords{.nothing.there > 1}", json!([])),
        (".chargeRecords{!.nothing}.time", json!([1, 2])),
    ] {
        assert_eq!(account.select(path), expected, "{path}");
    }
    assert_eq!(account.select_with(".devApps{.numBlackApps==$n}.numBlackApps", r#"{"n":2}"#), json!([2]));
    assert_eq!(account.select_with(".devApps{.numBlackApps==$n}.numBlackApps", r#"{"n":[1,3]}"#), json!([1, 3]));
}

/// The record after a change, and how many places matched.
fn after(path: &str, change: Change<'_>) -> (usize, Value) {
    let mut account = Record::account();
    let matched = account.change(path, change).unwrap_or_else(|error| panic!("{path}: {error}"));
    (matched, account.json())
}

#[test]
fn set_changes_every_match() {
    let (matched, json) = after("..time", Set("7"));
    assert_eq!(
        (matched, &json["chargeRecords"][0]["time"], &json["chargeRecords"][1]["time"]),
        (2, &json!(7), &json!(7))
    );
    let (matched, json) = after(".", Set(r#"{"id":"x","registerTime":60}"#));
    assert_eq!((matched, &json["id"], &json["registerTime"]), (1, &json!("x"), &json!(60)));
    assert_eq!(json["lastLoginTime"], json!(20000), "what the object does not name stays");
    let (matched, json) = after(".chargeRecords[1]", Set(r#"{"amount":1}"#));
    assert_eq!((matched, &json["chargeRecords"][1]), (1, &json!({"time":2,"amount":1.0})));
    let (matched, json) = after(".nothing", Set("1"));
    assert_eq!((matched, json), (0, Record::account().json()));
}

#[test]
fn setting_an_absent_key_inserts_it() {
    let (matched, json) = after(r#".devApps("z")"#, Set(r#"{"numBlackApps":9}"#));
    assert_eq!((matched, &json["devApps"]["z"]["numBlackApps"]), (1, &json!(9)));
    let (matched, json) = after(".devApps.z", Set("{}"));
    assert_eq!((matched, &json["devApps"]["z"]["numBlackApps"]), (1, &json!(0)));
    let (matched, json) = after(r#".devApps("z"|"a"|"y"|"z")"#, Set(r#"{"appTimestamp":5}"#));
    assert_eq!((matched, json["devApps"].as_object().expect("a map").len()), (3, 5));
    assert_eq!(json["devApps"]["a"], json!({"appTimestamp":5,"numBlackApps":1,"numInstalledApps":0}));
    assert_eq!(after(r#".devApps(~"z")"#, Set("{}")).0, 0);
    assert_eq!(after(r#".devApps("z").numBlackApps"#, Set("1")).0, 0);
}

#[test]
fn insert_and_insert_all() {
    let (_, json) = after(".devApps", InsertAll(r#"{"g":{},"h":{"numBlackApps":10}}"#));
    assert_eq!((&json["devApps"]["g"]["numBlackApps"], &json["devApps"]["h"]["numBlackApps"]), (&json!(0), &json!(10)));
    let (_, json) = after(".devApps", Insert(r#"{"g":{},"a":{"numBlackApps":10}}"#));
    assert_eq!(
        (json["devApps"].as_object().expect("a map").len(), &json["devApps"]["a"]["numBlackApps"]),
        (4, &json!(10))
    );
    let (_, json) = after(".chargeRecords", Insert(r#"{"time":4,"amount":-4.0}"#));
    assert_eq!(json["chargeRecords"][2], json!({"time":4,"amount":-4.0}));
    let (_, json) = after(".chargeRecords", InsertAll(r#"[{"time":4},{"time":5}]"#));
    assert_eq!(
        (json["chargeRecords"].as_array().expect("an array").len(), &json["chargeRecords"][3]["time"]),
        (4, &json!(5))
    );
    let (_, json) = after(".chargeRecords", InsertAll("[]"));
    assert_eq!(json, Record::account().json());
}

#[test]
fn delete_takes_exactly_the_matches() {
    let (matched, json) = after(".devApps{.numBlackApps>1}", Delete);
    assert_eq!(
        (matched, &json["devApps"]),
        (2, &json!({"a":{"appTimestamp":0,"numBlackApps":1,"numInstalledApps":0}}))
    );
    let (matched, json) = after(".chargeRecords{.time < 1000}", Delete);
    assert_eq!((matched, &json["chargeRecords"]), (2, &json!([])));
    let (matched, json) = after(".chargeRecords[0]", Delete);
    assert_eq!((matched, &json["chargeRecords"]), (1, &json!([{"time":2,"amount":-50.0}])));
    let (matched, json) = after(r#"(.chargeRecords[0]|.chargeRecords[-2]|.devApps("b"))"#, Delete);
    assert_eq!((matched, json["devApps"].as_object().expect("a map").len()), (2, 2));
}

#[test]
fn clear_increment_append_unique_and_test() {
    let (matched, json) = after("(.devApps|.chargeRecords)", Clear);
    assert_eq!((matched, &json["devApps"], &json["chargeRecords"]), (2, &json!({}), &json!([])));
    let (_, json) = after("(.registerTime|.chargeRecords[*].amount|.devApps.a.numBlackApps)", Increment("-2"));
    assert_eq!((&json["registerTime"], &json["chargeRecords"][0]["amount"]), (&json!(9998), &json!(98.0)));
    assert_eq!(json["devApps"]["a"]["numBlackApps"], json!(-1));
    let (matched, json) = after(".chargeRecords", AppendUnique(r#"{"amount":100,"time":1}"#));
    assert_eq!((matched, json), (1, Record::account().json()));
    let (_, json) = after(".chargeRecords", AppendUnique(r#"{"amount":100,"time":3}"#));
    assert_eq!(json["chargeRecords"].as_array().expect("an array").len(), 3);
    let account = Record::account();
    assert!(account.test(".id", None) && account.test(".id", Some("\"abCd\"")));
    assert!(
        !account.test(".nothing", None) && !account.test(".id", Some("\"abcd\"")) && !account.test(".id", Some("1"))
    );
    assert!(account.test(".chargeRecords[*]{.time == 1}", Some(r#"{"time":1,"amount":100}"#)));
    assert!(!account.test("..time", Some("1")), "every match");
}

#[test]
fn what_cannot_be_done_says_why_and_changes_nothing() {
    for (path, change, part) in [
        (".id", Insert("1"), "the path matches a string that is a field"),
        (".chargeRecords[*]", Clear, "the path matches a record"),
        (".id", Delete, "fields are set"),
        (".", Delete, "cannot delete the record"),
        ("(.devApps|.id)", Clear, "a string"),
        (".id", Increment("1"), "a string"),
        (".devApps", AppendUnique("1"), "a map"),
        (".registerTime", Set("\"x\""), "long"),
        (".registerTime", Set("{"), "."),
        (".", Set(r#"{"nothing":1}"#), "nothing"),
        (".chargeRecords", Insert(r#"{"time":"x"}"#), ".time"),
        (".registerTime", Increment("9223372036854775807"), "beyond what a long can hold"),
        (".devApps.a.numBlackApps", Increment("2147483647"), "beyond what an int can hold"),
        (".registerTime", Increment("1.5"), "whole number"),
        (".devApps", InsertAll("[]"), "[]"),
    ] {
        let mut account = Record::account();
        let error = account.change(path, change).expect_err(path);
        assert!(error.to_string().contains(part), "{path}: {error}");
        assert_eq!(account.json(), Record::account().json());
    }
    let mut account = Record::account();
    let large = format!("\"{}\"", "x".repeat((1 << 20) - 10));
    assert_eq!(account.change(".id", Set(&large)), Err(UpdateError::TooLarge));
}
