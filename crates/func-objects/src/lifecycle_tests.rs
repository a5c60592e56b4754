//! Tables of what vanishes when.

use super::*;

/// A midnight.
const DAY_0: u64 = 20_000 * DAY_MS;

fn daily(configuration: &LifecycleConfiguration) -> Rules<'_> {
    Rules { configuration, day_ms: DAY_MS }
}

fn rule(change: impl FnOnce(&mut LifecycleRule)) -> LifecycleRule {
    let mut rule = LifecycleRule { id: "r".to_owned(), is_enabled: true, ..LifecycleRule::default() };
    change(&mut rule);
    rule
}

fn expiring(days: u32, change: impl FnOnce(&mut LifecycleRule)) -> LifecycleRule {
    rule(|rule| {
        rule.expiration = Some(Expiry::Days(days));
        change(rule);
    })
}

fn tag(key: &str, value: &str) -> Tag {
    Tag { key: key.to_owned(), value: value.to_owned() }
}

fn of(rules: Vec<LifecycleRule>) -> LifecycleConfiguration {
    LifecycleConfiguration { rules }
}

fn version(modified_ms: u64) -> Candidate<'static> {
    Candidate { size_bytes: 10, modified_ms, tags: &[], is_delete_marker: false }
}

fn marker(modified_ms: u64) -> Candidate<'static> {
    Candidate { size_bytes: 0, is_delete_marker: true, ..version(modified_ms) }
}

#[test]
fn rules_are_checked() {
    use Refusal::{InvalidArgument, InvalidRequest, InvalidTag, MalformedXml};
    let table = [
        (expiring(1, |_| ()), None),
        (expiring(0, |_| ()), Some(InvalidArgument)),
        (expiring(u32::MAX, |_| ()), Some(InvalidArgument)),
        (rule(|_| ()), Some(InvalidRequest)),
        (rule(|rule| rule.expiration = Some(Expiry::Date(DAY_0))), None),
        (rule(|rule| rule.expiration = Some(Expiry::Date(DAY_0 + 1))), Some(InvalidArgument)),
        (rule(|rule| rule.expired_object_delete_marker = true), None),
        (expiring(1, |rule| rule.expired_object_delete_marker = true), Some(MalformedXml)),
        (rule(|rule| rule.noncurrent_days = Some(1)), None),
        (rule(|rule| rule.noncurrent_days = Some(0)), Some(InvalidArgument)),
        (expiring(1, |rule| rule.newer_noncurrent_versions = Some(1)), Some(MalformedXml)),
        (rule(|rule| (rule.noncurrent_days, rule.newer_noncurrent_versions) = (Some(1), Some(100))), None),
        (
            rule(|rule| (rule.noncurrent_days, rule.newer_noncurrent_versions) = (Some(1), Some(101))),
            Some(InvalidArgument),
        ),
        (rule(|rule| rule.abort_upload_days = Some(1)), None),
        (rule(|rule| rule.abort_upload_days = Some(0)), Some(InvalidArgument)),
        (
            rule(|rule| (rule.abort_upload_days, rule.filter.tags) = (Some(1), vec![tag("k", "v")])),
            Some(InvalidRequest),
        ),
        (rule(|rule| (rule.abort_upload_days, rule.filter.size_less_than) = (Some(1), Some(5))), Some(InvalidRequest)),
        (
            rule(|rule| (rule.expired_object_delete_marker, rule.filter.tags) = (true, vec![tag("k", "v")])),
            Some(InvalidRequest),
        ),
        (expiring(1, |rule| rule.filter.tags = vec![tag("k", "1"), tag("k", "2")]), Some(InvalidTag)),
        (
            expiring(1, |rule| {
                (rule.filter.size_greater_than, rule.filter.size_less_than) = (Some(5), Some(6));
            }),
            Some(InvalidRequest),
        ),
        (
            expiring(1, |rule| {
                (rule.filter.size_greater_than, rule.filter.size_less_than) = (Some(5), Some(7));
            }),
            None,
        ),
        (expiring(1, |rule| rule.filter.size_greater_than = Some(u64::MAX)), None),
        (expiring(1, |rule| rule.filter.prefix = Some("p".repeat(1_025))), Some(InvalidArgument)),
        (expiring(1, |rule| rule.id = "i".repeat(256)), Some(InvalidArgument)),
    ];
    for (rule, expected) in table {
        let refusal = check(of(vec![rule.clone()])).err();
        assert_eq!(refusal.as_ref().and_then(Refusal::of), expected, "{rule:?}");
    }
    let twice = check(of(vec![expiring(1, |_| ()), expiring(2, |_| ())]));
    assert_eq!(twice.err().as_ref().and_then(Refusal::of), Some(InvalidArgument));
    for count in [0, 1_001] {
        let rules = (0..count).map(|index| expiring(1, |rule| rule.id = index.to_string())).collect();
        assert!(check(of(rules)).is_err(), "{count}");
    }
}

#[test]
fn nameless_rules_get_names_of_their_own() {
    let nameless = || expiring(1, |rule| rule.id.clear());
    let named = expiring(1, |rule| rule.id = "rule-2".to_owned());
    let checked = check(of(vec![nameless(), named, nameless()])).expect("they are valid");
    let ids: Vec<&str> = checked.rules.iter().map(|rule| rule.id.as_str()).collect();
    assert_eq!(ids, ["rule-1", "rule-2", "rule-3"]);
}

#[test]
fn days_end_at_midnight() {
    let rules = of(vec![expiring(2, |_| ())]);
    for (modified_ms, expected_ms) in [
        (DAY_0, DAY_0 + 2 * DAY_MS),
        (DAY_0 + 1, DAY_0 + 3 * DAY_MS),
        (DAY_0 + DAY_MS - 1, DAY_0 + 3 * DAY_MS),
        (u64::MAX, u64::MAX),
    ] {
        let (time_ms, id) = expires(daily(&rules), "k", &version(modified_ms)).expect("a rule fits");
        assert!(time_ms == expected_ms && id == "r", "{modified_ms}: {time_ms}");
        assert_eq!(due(daily(&rules), "k", &[version(modified_ms)], time_ms - 1), []);
        assert_eq!(due(daily(&rules), "k", &[version(modified_ms)], time_ms), [Due::Expire]);
    }
}

#[test]
fn filters_follow_the_table() {
    let tags = [tag("a", "1"), tag("b", "2")];
    let candidate = Candidate { tags: &tags, ..version(DAY_0) };
    type Change = fn(&mut LifecycleRule);
    let table: [(Change, bool); 13] = [
        (|_| (), true),
        (|rule| rule.is_enabled = false, false),
        (|rule| rule.filter.prefix = Some("ke".to_owned()), true),
        (|rule| rule.filter.prefix = Some(String::new()), true),
        (|rule| rule.filter.prefix = Some("ey".to_owned()), false),
        (|rule| rule.filter.tags = vec![tag("a", "1")], true),
        (|rule| rule.filter.tags = vec![tag("a", "2")], false),
        (|rule| rule.filter.tags = vec![tag("a", "1"), tag("b", "2")], true),
        (|rule| rule.filter.tags = vec![tag("a", "1"), tag("c", "3")], false),
        (|rule| rule.filter.size_greater_than = Some(9), true),
        (|rule| rule.filter.size_greater_than = Some(10), false),
        (|rule| rule.filter.size_less_than = Some(11), true),
        (|rule| rule.filter.size_less_than = Some(10), false),
    ];
    for (change, expected) in table {
        let rules = of(vec![expiring(1, change)]);
        assert_eq!(expires(daily(&rules), "key", &candidate).is_some(), expected, "{rules:?}");
    }
}

#[test]
fn the_earliest_rule_counts() {
    let date = rule(|rule| (rule.id, rule.expiration) = ("date".to_owned(), Some(Expiry::Date(DAY_0 + DAY_MS))));
    let rules = of(vec![expiring(5, |_| ()), date]);
    assert_eq!(expires(daily(&rules), "k", &version(DAY_0)), Some((DAY_0 + DAY_MS, "date")));
    assert_eq!(expires(daily(&rules), "k", &marker(DAY_0)), None);
}

#[test]
fn versions_follow_the_table() {
    let now_ms = DAY_0 + 10 * DAY_MS;
    let days_ago = |days: u64| now_ms - days * DAY_MS;
    let noncurrent = |days: u32, kept: Option<u32>| {
        of(vec![rule(|rule| (rule.noncurrent_days, rule.newer_noncurrent_versions) = (Some(days), kept))])
    };
    let five: Vec<Candidate<'_>> = (1..=5).map(|days| version(days_ago(days))).collect();
    // It counts since when a version is not current, not when it was made.
    assert_eq!(due(daily(&noncurrent(3, None)), "k", &five, now_ms), [Due::Remove(3), Due::Remove(4)]);
    assert_eq!(due(daily(&noncurrent(1, None)), "k", &five, now_ms), [1, 2, 3, 4].map(Due::Remove));
    assert_eq!(due(daily(&noncurrent(1, Some(2))), "k", &five, now_ms), [3, 4].map(Due::Remove));
    assert_eq!(due(daily(&noncurrent(1, Some(4))), "k", &five, now_ms), []);
    assert_eq!(due(daily(&noncurrent(9, None)), "k", &five, now_ms), []);
    assert_eq!(due(daily(&noncurrent(1, None)), "k", &[], now_ms), []);
    // Both at once.
    let both = of(vec![expiring(1, |rule| rule.noncurrent_days = Some(4))]);
    assert_eq!(due(daily(&both), "k", &five, now_ms), [Due::Expire, Due::Remove(4)]);
}

#[test]
fn delete_markers_follow_the_table() {
    let now_ms = DAY_0 + 10 * DAY_MS;
    let markers = of(vec![rule(|rule| rule.expired_object_delete_marker = true)]);
    let days = of(vec![expiring(3, |_| ())]);
    let old = marker(DAY_0);
    let young = marker(now_ms - DAY_MS);
    // Alone.
    assert_eq!(due(daily(&markers), "k", &[young], now_ms), [Due::Remove(0)]);
    assert_eq!(due(daily(&days), "k", &[young], now_ms), []);
    assert_eq!(due(daily(&days), "k", &[old], now_ms), [Due::Remove(0)]);
    // Before a version it stays, and no second one is made.
    assert_eq!(due(daily(&markers), "k", &[young, version(DAY_0)], now_ms), []);
    assert_eq!(due(daily(&days), "k", &[old, version(DAY_0)], now_ms), []);
    // Noncurrent ones go as versions do.
    let noncurrent = of(vec![rule(|rule| rule.noncurrent_days = Some(1))]);
    assert_eq!(due(daily(&noncurrent), "k", &[version(DAY_0 + DAY_MS), old], now_ms), [Due::Remove(1)]);
}

#[test]
fn uploads_are_aborted() {
    let rules = of(vec![rule(|rule| (rule.abort_upload_days, rule.filter.prefix) = (Some(3), Some("a".to_owned())))]);
    assert_eq!(aborts(daily(&rules), "abc", DAY_0 + 1), Some((DAY_0 + 4 * DAY_MS, "r")));
    assert_eq!(aborts(daily(&rules), "b", DAY_0), None);
}

#[test]
fn a_day_can_be_shorter() {
    let configuration = LifecycleConfiguration {
        rules: vec![rule(|rule| {
            (rule.expiration, rule.noncurrent_days, rule.abort_upload_days) = (Some(Expiry::Days(2)), Some(3), Some(1));
        })],
    };
    let rules = Rules { configuration: &configuration, day_ms: 500 };
    assert_eq!(expires(rules, "k", &version(1_000)), Some((2_000, "r")));
    assert_eq!(expires(rules, "k", &version(1_001)), Some((2_500, "r")));
    assert_eq!(aborts(rules, "k", 1_001), Some((2_000, "r")));
    let versions = [version(9_000), version(1_000)];
    assert_eq!(due(rules, "k", &versions, 9_999), []);
    assert_eq!(due(rules, "k", &versions, 10_500), [Due::Expire, Due::Remove(1)]);
    // A date is a date, however long a day is.
    let dated = LifecycleConfiguration { rules: vec![rule(|rule| rule.expiration = Some(Expiry::Date(DAY_0)))] };
    assert_eq!(expires(Rules { configuration: &dated, day_ms: 500 }, "k", &version(0)), Some((DAY_0, "r")));
}
