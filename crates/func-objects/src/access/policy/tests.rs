//! Tables of what policies say, and of what is refused.

use std::collections::BTreeMap;

use millrace_api::objects::Refusal;
use serde_json::{Value, json};

use super::*;

/// A request with these keys.
#[derive(Default)]
struct TestRequest {
    id: Option<&'static str>,
    name: &'static str,
    keys: BTreeMap<ConditionKey, Vec<&'static str>>,
}

impl Request for TestRequest {
    fn principal_id(&self) -> Option<&str> {
        self.id
    }

    fn principal_name(&self) -> &str {
        self.name
    }

    fn values(&self, key: &ConditionKey) -> Option<Vec<Cow<'_, str>>> {
        self.keys.get(key).map(|values| values.iter().map(|value| Cow::Borrowed(*value)).collect())
    }
}

/// Alice's request with keys as `name=value`, several values behind each other.
fn alice(keys: &[(&str, &[&'static str])]) -> TestRequest {
    let keys = keys.iter().map(|(name, values)| (ConditionKey::new(name), values.to_vec())).collect();
    TestRequest { id: Some("id-a"), name: "alice", keys }
}

fn anonymous() -> TestRequest {
    TestRequest::default()
}

fn policy_of(statements: Value) -> String {
    json!({ "Version": "2012-10-17", "Statement": statements }).to_string()
}

fn parsed(text: &str) -> Policy {
    Policy::parse(text, "b").unwrap_or_else(|error| panic!("{text}: {}", error.message))
}

/// A statement that allows everybody to read objects, with changes.
/// One whose condition may be on any key is about all actions.
fn statement(changes: Value) -> Value {
    let action = if changes.get("Condition").is_some() { "s3:*" } else { "s3:GetObject" };
    let mut statement =
        json!({ "Effect": "Allow", "Principal": "*", "Action": action, "Resource": "arn:aws:s3:::b/*" });
    for (name, value) in changes.as_object().expect("an object") {
        statement[name] = value.clone();
    }
    let fields = statement.as_object_mut().expect("an object");
    fields.retain(|_, value| !value.is_null());
    statement
}

fn verdict(changes: Value, action: &str, resource: &str, request: &TestRequest) -> Verdict {
    parsed(&policy_of(json!([statement(changes)]))).evaluate(action, resource, request)
}

#[test]
fn actions_and_resources_follow_the_table() {
    use Verdict::{Allow, Silent};
    let any = "arn:aws:s3:::*";
    for (changes, action, resource, expected) in [
        (json!({}), "s3:GetObject", "b/k", Allow),
        (json!({}), "s3:GetObject", "b/a/b/c", Allow),
        (json!({}), "s3:GetObject", "b", Silent),
        (json!({}), "s3:GetObject", "bb/k", Silent),
        (json!({}), "s3:PutObject", "b/k", Silent),
        (json!({ "Action": "s3:getobject" }), "s3:GetObject", "b/k", Allow),
        (json!({ "Action": ["s3:PutObject", "s3:GetObject"] }), "s3:GetObject", "b/k", Allow),
        (json!({ "Action": "s3:Get*" }), "s3:GetObjectAcl", "b/k", Allow),
        (json!({ "Action": "s3:Get*" }), "s3:PutObject", "b/k", Silent),
        (json!({ "Action": "s3:*" }), "s3:PutObject", "b/k", Allow),
        (json!({ "Action": "*" }), "s3:PutObject", "b/k", Allow),
        (json!({ "Action": null, "NotAction": "s3:Get*" }), "s3:PutObject", "b/k", Allow),
        (json!({ "Action": null, "NotAction": "s3:Get*" }), "s3:GetObject", "b/k", Silent),
        (json!({ "Resource": any }), "s3:GetObject", "b/k", Allow),
        (json!({ "Resource": any, "Action": "s3:ListBucket" }), "s3:ListBucket", "b", Allow),
        (json!({ "Resource": "arn:aws:s3:::b*" }), "s3:GetObject", "b/k", Allow),
        (json!({ "Resource": "arn:aws:s3:::b/a?c" }), "s3:GetObject", "b/abc", Allow),
        (json!({ "Resource": "arn:aws:s3:::b/a?c" }), "s3:GetObject", "b/ac", Silent),
        (json!({ "Resource": "arn:aws:s3:::b/a/*/z" }), "s3:GetObject", "b/a/1/2/z", Allow),
        (json!({ "Resource": ["arn:aws:s3:::b", "arn:aws:s3:::b/x"] }), "s3:GetObject", "b/x", Allow),
        (json!({ "Resource": null, "NotResource": "arn:aws:s3:::b/x*" }), "s3:GetObject", "b/y", Allow),
        (json!({ "Resource": null, "NotResource": "arn:aws:s3:::b/x*" }), "s3:GetObject", "b/xy", Silent),
    ] {
        assert_eq!(verdict(changes.clone(), action, resource, &alice(&[])), expected, "{changes} {action} {resource}");
    }
}

#[test]
fn principals_follow_the_table() {
    // The principal; whether it is alice, whether it is somebody without a signature.
    for (principal, is_alice, is_anonymous) in [
        (json!("*"), true, true),
        (json!({ "AWS": "*" }), true, true),
        (json!({ "AWS": ["x", "*"] }), true, true),
        (json!({ "AWS": "id-a" }), true, false),
        (json!({ "AWS": "id-b" }), false, false),
        (json!({ "AWS": "alice" }), false, false),
        (json!({ "AWS": "arn:aws:iam::id-a:root" }), true, false),
        (json!({ "AWS": "arn:aws:iam::id-b:root" }), false, false),
        (json!({ "AWS": "arn:aws:iam:::user/alice" }), true, false),
        (json!({ "AWS": "arn:aws:iam:::user/team/alice" }), true, false),
        (json!({ "AWS": "arn:aws:iam:::user/id-a" }), true, false),
        (json!({ "AWS": "arn:aws:iam::id-a:user/alice" }), true, false),
        (json!({ "AWS": "arn:aws:iam::123456789012:user/alice" }), false, false),
        (json!({ "AWS": "arn:aws:iam:::user/bob" }), false, false),
        (json!({ "AWS": "arn:aws:iam::1:role/alice" }), false, false),
        (json!({ "CanonicalUser": "id-a" }), true, false),
        (json!({ "Service": "logging.s3.amazonaws.com" }), false, false),
    ] {
        let of = |name: &str, effect: &str, request: &TestRequest| {
            let mut changes = json!({ "Principal": null, "Effect": effect });
            changes[name] = principal.clone();
            verdict(changes, "s3:GetObject", "b/k", request) != Verdict::Silent
        };
        assert_eq!(of("Principal", "Allow", &alice(&[])), is_alice, "{principal}");
        assert_eq!(of("Principal", "Allow", &anonymous()), is_anonymous, "{principal}");
        assert_eq!(of("NotPrincipal", "Deny", &alice(&[])), !is_alice, "not {principal}");
        assert_eq!(of("NotPrincipal", "Deny", &anonymous()), !is_anonymous, "not {principal}");
    }
}

#[test]
fn a_denial_counts_more_than_every_allowance() {
    let allow = statement(json!({}));
    let deny = statement(json!({ "Effect": "Deny", "Resource": "arn:aws:s3:::b/secret*" }));
    for statements in [json!([allow, deny]), json!([deny, allow]), json!([allow, deny, allow])] {
        let policy = parsed(&policy_of(statements));
        assert_eq!(policy.evaluate("s3:GetObject", "b/secret/k", &anonymous()), Verdict::Deny);
        assert_eq!(policy.evaluate("s3:GetObject", "b/k", &anonymous()), Verdict::Allow);
        assert_eq!(policy.evaluate("s3:PutObject", "b/k", &anonymous()), Verdict::Silent);
    }
}

/// Whether a condition holds for a request whose key `s3:prefix` has these values; `None`: it does not have the key.
fn holds(operator: &str, own: &Value, found: Option<&[&'static str]>) -> bool {
    let request = match found {
        Some(values) => alice(&[("s3:prefix", values)]),
        None => alice(&[]),
    };
    let mut condition = json!({});
    condition[operator] = json!({ "s3:Prefix": own });
    verdict(json!({ "Condition": condition }), "s3:GetObject", "b/k", &request) == Verdict::Allow
}

#[test]
fn text_conditions_follow_the_table() {
    // The operator, its values, the request's value, whether it holds.
    for (operator, own, found, expected) in [
        ("StringEquals", json!("a"), "a", true),
        ("StringEquals", json!("a"), "A", false),
        ("StringEquals", json!("a*"), "ab", false),
        ("StringEquals", json!("a*"), "a*", true),
        ("StringEquals", json!(["x", "a"]), "a", true),
        ("StringEquals", json!(5), "5", true),
        ("StringEquals", json!(true), "true", true),
        ("StringNotEquals", json!(["x", "a"]), "a", false),
        ("StringNotEquals", json!(["x", "y"]), "a", true),
        ("StringEqualsIgnoreCase", json!("AÜ"), "aü", true),
        ("StringNotEqualsIgnoreCase", json!("A"), "a", false),
        ("StringLike", json!("a*c?"), "abcd", true),
        ("StringLike", json!("a*"), "ba", false),
        ("StringNotLike", json!("a*"), "ba", true),
        ("StringNotLike", json!(["b*", "a*"]), "ba", false),
        ("ArnEquals", json!("arn:aws:s3:::b*"), "arn:aws:s3:::bucket", true),
        ("ArnLike", json!("arn:aws:s3:*:*:x"), "arn:aws:s3:eu:1:x", true),
        ("ArnNotEquals", json!("arn:aws:s3:::b"), "arn:aws:s3:::c", true),
        ("ArnLike", json!("*"), "whatever", true),
    ] {
        assert_eq!(holds(operator, &own, Some(&[found])), expected, "{operator} {own} {found}");
    }
}

#[test]
fn typed_conditions_follow_the_table() {
    for (operator, own, found, expected) in [
        ("NumericEquals", json!("10"), "10.0", true),
        ("NumericEquals", json!(10), "11", false),
        ("NumericNotEquals", json!(10), "11", true),
        ("NumericLessThan", json!(10), "9", true),
        ("NumericLessThan", json!(10), "10", false),
        ("NumericLessThanEquals", json!(10), "10", true),
        ("NumericGreaterThan", json!(10), "10", false),
        ("NumericGreaterThanEquals", json!(10), "10", true),
        ("NumericLessThan", json!(10), "x", false),
        ("NumericLessThan", json!(10), "NaN", false),
        ("DateEquals", json!("2026-11-24T00:00:00Z"), "1795478400", true),
        ("DateNotEquals", json!("2026-11-24T00:00:00Z"), "1795478400", false),
        ("DateLessThan", json!("2026-11-24T00:00:00Z"), "2026-11-23T23:59:59Z", true),
        ("DateLessThanEquals", json!("2026-11-24"), "2026-11-24T00:00:00Z", true),
        ("DateGreaterThan", json!("2026-11-24"), "2026-11-24T00:00:00Z", false),
        ("DateGreaterThanEquals", json!("2026-11-24"), "2026-11-24T00:00:00Z", true),
        ("Bool", json!("true"), "true", true),
        ("Bool", json!(false), "true", false),
        ("Bool", json!("False"), "false", true),
        ("IpAddress", json!("10.0.0.0/8"), "10.1.2.3", true),
        ("IpAddress", json!("10.0.0.0/8"), "11.1.2.3", false),
        ("IpAddress", json!("10.1.2.3"), "10.1.2.3", true),
        ("IpAddress", json!("10.1.2.3/32"), "10.1.2.4", false),
        ("IpAddress", json!("0.0.0.0/0"), "10.1.2.4", true),
        ("IpAddress", json!("0.0.0.0/0"), "::1", false),
        ("IpAddress", json!("10.0.0.0/8"), "::ffff:10.1.2.3", true),
        ("IpAddress", json!("2001:db8::/32"), "2001:db8::1", true),
        ("IpAddress", json!("2001:db8::/32"), "2001:db9::1", false),
        ("IpAddress", json!(["10.0.0.0/8", "::1"]), "::1", true),
        ("NotIpAddress", json!(["10.0.0.0/8", "::1"]), "::1", false),
        ("NotIpAddress", json!("10.0.0.0/8"), "11.0.0.1", true),
    ] {
        assert_eq!(holds(operator, &own, Some(&[found])), expected, "{operator} {own} {found}");
    }
}

#[test]
fn missing_and_many_values_follow_the_table() {
    let own = json!(["a", "b"]);
    // The operator; without the key, with a, with c, with a and b, with a and c, with c and d.
    for (operator, expected) in [
        ("StringEquals", [false, true, false, true, true, false]),
        ("StringEqualsIfExists", [true, true, false, true, true, false]),
        ("StringNotEquals", [true, false, true, false, false, true]),
        ("StringNotEqualsIfExists", [true, false, true, false, false, true]),
        ("ForAllValues:StringEquals", [true, true, false, true, false, false]),
        ("ForAnyValue:StringEquals", [false, true, false, true, true, false]),
        ("ForAnyValue:StringEqualsIfExists", [true, true, false, true, true, false]),
        ("ForAllValues:StringNotEquals", [true, false, true, false, false, true]),
        ("ForAnyValue:StringNotEquals", [false, false, true, false, true, true]),
    ] {
        let cases: [Option<&[&'static str]>; 6] =
            [None, Some(&["a"]), Some(&["c"]), Some(&["a", "b"]), Some(&["a", "c"]), Some(&["c", "d"])];
        for (found, expected) in cases.into_iter().zip(expected) {
            assert_eq!(holds(operator, &own, found), expected, "{operator} {found:?}");
        }
    }
    for (own, missing, present) in [(json!("true"), true, false), (json!(false), false, true)] {
        assert_eq!(holds("Null", &own, None), missing, "{own}");
        assert_eq!(holds("Null", &own, Some(&["a"])), present, "{own}");
    }
}

#[test]
fn all_keys_and_all_operators_have_to_hold() {
    let condition = json!({
        "StringEquals": { "s3:ExistingObjectTag/colour": "red", "s3:prefix": "p" },
        "Bool": { "aws:SecureTransport": true },
    });
    let of = |keys: &[(&str, &[&'static str])]| {
        verdict(json!({ "Condition": condition }), "s3:GetObject", "b/k", &alice(keys)) == Verdict::Allow
    };
    let (tag, prefix, tls): (&[&str], &[&str], &[&str]) = (&["red"], &["p"], &["true"]);
    assert!(of(&[("s3:existingobjecttag/colour", tag), ("s3:PREFIX", prefix), ("aws:securetransport", tls)]));
    assert!(!of(&[("s3:ExistingObjectTag/Colour", tag), ("s3:prefix", prefix), ("aws:securetransport", tls)]));
    assert!(!of(&[("s3:ExistingObjectTag/colour", tag), ("s3:prefix", prefix)]));
}

#[test]
fn variables_stand_for_plain_text() {
    let home = |version: &str, resource: &str, name: &'static str, asked: &str| {
        let statement = statement(json!({ "Resource": resource }));
        let policy = json!({ "Version": version, "Statement": statement }).to_string();
        let request = TestRequest { name, ..alice(&[("aws:username", std::slice::from_ref(&name))]) };
        parsed(&policy).evaluate("s3:GetObject", asked, &request) == Verdict::Allow
    };
    let (new, old) = ("2012-10-17", "2008-10-17");
    let own = "arn:aws:s3:::b/${aws:username}/*";
    assert!(home(new, own, "alice", "b/alice/k"));
    assert!(!home(new, own, "alice", "b/bob/k"));
    // A name is no pattern.
    assert!(!home(new, own, "*", "b/bob/k"));
    assert!(home(new, own, "*", "b/*/k"));
    // Older policies have no variables.
    assert!(!home(old, own, "alice", "b/alice/k"));
    assert!(home(old, own, "alice", "b/${aws:username}/k"));
    // Characters, defaults, keys that are not there.
    assert!(home(new, "arn:aws:s3:::b/${*}${?}${$}", "alice", "b/*?$"));
    assert!(!home(new, "arn:aws:s3:::b/${*}", "alice", "b/x"));
    assert!(home(new, "arn:aws:s3:::b/${aws:referer, 'x*'}", "alice", "b/x*"));
    assert!(!home(new, "arn:aws:s3:::b/${aws:referer, 'x*'}", "alice", "b/xy"));
    assert!(!home(new, "arn:aws:s3:::b/${aws:referer}", "alice", "b/"));
    let condition = json!({ "StringLike": { "s3:prefix": "home/${aws:username}/*" } });
    let request = alice(&[("aws:username", &["alice"]), ("s3:prefix", &["home/alice/x"])]);
    assert_eq!(verdict(json!({ "Condition": condition }), "s3:GetObject", "b/k", &request), Verdict::Allow);
}

/// Checks that a policy is refused, and that the author is told why.
fn assert_refused(text: &str, reason: &str) {
    let error = Policy::parse(text, "b").err();
    let refusal = error.as_ref().and_then(Refusal::of);
    let message = error.map_or_else(|| "nothing".to_owned(), |error| error.message);
    assert_eq!(refusal, Some(Refusal::MalformedPolicy), "{text}: {message}");
    assert!(message.contains(reason), "{text}: {message}");
}

#[test]
fn malformed_policies_are_refused_with_the_reason() {
    let of = |changes: Value| policy_of(json!([statement(changes)]));
    for (text, reason) in [
        (String::new(), "first byte"),
        ("[]".to_owned(), "first byte"),
        ("{".to_owned(), "invalid Json"),
        ("{}".to_owned(), "Statement"),
        (json!({ "Statement": [] }).to_string(), "Statement"),
        (json!({ "Statement": [5] }).to_string(), "JSON object"),
        (json!({ "Version": "2020-01-01", "Statement": [statement(json!({}))] }).to_string(), "version"),
        (json!({ "Version": 2012, "Statement": [statement(json!({}))] }).to_string(), "version"),
        (json!({ "Id": 5, "Statement": [statement(json!({}))] }).to_string(), "Id"),
        (json!({ "Other": 5, "Statement": [statement(json!({}))] }).to_string(), "Other"),
        (policy_of(json!([statement(json!({ "Sid": "s" })), statement(json!({ "Sid": "s" }))])), "unique"),
        (of(json!({ "Effect": null })), "Effect"),
        (of(json!({ "Effect": "allow" })), "effect"),
        (of(json!({ "Conditions": {} })), "Conditions"),
        (of(json!({ "Principal": null })), "Principal"),
        (of(json!({ "NotPrincipal": "*" })), "together"),
        (of(json!({ "Principal": null, "NotPrincipal": { "AWS": "id-a" } })), "NotPrincipal"),
        (of(json!({ "Principal": "alice" })), "principal"),
        (of(json!({ "Principal": {} })), "principal"),
        (of(json!({ "Principal": { "AWS": [] } })), "principal"),
        (of(json!({ "Principal": { "AWS": "" } })), "principal"),
        (of(json!({ "Principal": { "AWS": "arn:aws:iam::*:root" } })), "principal"),
        (of(json!({ "Principal": { "AWS": "arn:aws:iam:::user/*" } })), "principal"),
        (of(json!({ "Principal": { "AWS": "arn:aws:iam::" } })), "principal"),
        (of(json!({ "Principal": { "Who": "x" } })), "principal"),
        (of(json!({ "Action": null })), "Action"),
        (of(json!({ "Action": [] })), "action"),
        (of(json!({ "Action": "s3:GetObjekt" })), "action"),
        (of(json!({ "Action": "ec2:*" })), "action"),
        (of(json!({ "Action": 5 })), "action"),
        (of(json!({ "NotAction": "s3:GetObject" })), "together"),
        (of(json!({ "Resource": null })), "Resource"),
        (of(json!({ "Resource": "*" })), "resource"),
        (of(json!({ "Resource": "b/*" })), "resource"),
        (of(json!({ "Resource": "arn:aws:s3:::other/*" })), "resource"),
        (of(json!({ "Resource": "arn:aws:ec2:::b/*" })), "resource"),
        (of(json!({ "Resource": "arn:aws:s3:eu:1:b/*" })), "resource"),
        (of(json!({ "Resource": "arn:aws:s3:::b/${aws:username" })), "no end"),
        (of(json!({ "Resource": "arn:aws:s3:::b/${other}" })), "variable"),
        (of(json!({ "Resource": "arn:aws:s3:::b/${aws:usrename}/*" })), "variable"),
        (of(json!({ "Resource": "arn:aws:s3:::b/${aws:x, y}" })), "quotes"),
        (of(json!({ "Resource": "arn:aws:s3:::b" })), "does not apply"),
        (of(json!({ "Action": "s3:ListBucket" })), "does not apply"),
        (of(json!({ "Resource": format!("arn:aws:s3:::b/{}", "a".repeat(2_100)) })), "2048"),
    ] {
        assert_refused(&text, reason);
    }
}

#[test]
fn malformed_conditions_are_refused_with_the_reason() {
    let condition = |condition: Value| policy_of(json!([statement(json!({ "Condition": condition }))]));
    for (text, reason) in [
        (condition(json!(5)), "JSON object"),
        (condition(json!({ "StringEquals": 5 })), "JSON object"),
        (condition(json!({ "StringIs": { "s3:prefix": "x" } })), "StringIs"),
        (condition(json!({ "stringequals": { "s3:prefix": "x" } })), "stringequals"),
        (condition(json!({ "StringEqualsIfexists": { "s3:prefix": "x" } })), "StringEqualsIfexists"),
        (condition(json!({ "forAllValues:StringEquals": { "s3:prefix": "x" } })), "forAllValues"),
        (condition(json!({ "ForSome:StringEquals": { "s3:prefix": "x" } })), "ForSome"),
        (condition(json!({ "NullIfExists": { "s3:prefix": true } })), "NullIfExists"),
        (condition(json!({ "IfExists": { "s3:prefix": true } })), "IfExists"),
        (condition(json!({ "StringEquals": { "prefix": "x" } })), "key"),
        (condition(json!({ "StringEquals": { "s3:": "x" } })), "key"),
        (condition(json!({ "StringEquals": { "s3:prefix": [] } })), "no values"),
        (condition(json!({ "StringEquals": { "s3:prefix": null } })), "values"),
        (condition(json!({ "StringEquals": { "s3:prefix": [["x"]] } })), "values"),
        (condition(json!({ "NumericEquals": { "s3:max-keys": "x" } })), "number"),
        (condition(json!({ "NumericEquals": { "s3:max-keys": "inf" } })), "number"),
        (condition(json!({ "DateEquals": { "aws:CurrentTime": "x" } })), "time"),
        (condition(json!({ "Bool": { "aws:SecureTransport": "yes" } })), "true or false"),
        (condition(json!({ "IpAddress": { "aws:SourceIp": "10.0.0.0/33" } })), "address"),
        (condition(json!({ "IpAddress": { "aws:SourceIp": "10.0.0" } })), "address"),
        (condition(json!({ "ArnEquals": { "aws:PrincipalArn": "arn:x" } })), "ARN"),
        (condition(json!({ "ArnLike": { "aws:PrincipalArn": "arn:*:x" } })), "ARN"),
    ] {
        assert_refused(&text, reason);
    }
}

#[test]
fn a_condition_on_a_key_that_requests_for_the_action_do_not_have_is_refused_when_it_is_put() {
    let of = |action: Value, key: &str| {
        let condition = json!({ "StringEquals": { key: "x" } });
        let resource = json!(["arn:aws:s3:::b", "arn:aws:s3:::b/*"]);
        policy_of(json!([statement(json!({ "Action": action, "Resource": resource, "Condition": condition }))]))
    };
    for (action, key) in [
        (json!("s3:GetObject"), "s3:prefix"),
        (json!("s3:ListBucketMultipartUploads"), "s3:prefix"),
        (json!("s3:GetObject"), "s3:x-amz-acl"),
        (json!("s3:GetObject"), "s3:VersionId"),
        (json!(["s3:GetObject", "s3:PutObject"]), "s3:x-amz-grant-read"),
        (json!("s3:DeleteObject*"), "s3:x-amz-copy-source"),
    ] {
        let text = of(action, key);
        assert_refused(&text, "Conditions do not apply");
        assert_eq!(
            Policy::kept(&text).evaluate("s3:GetObject", "b/x", &TestRequest::default()),
            Verdict::Silent,
            "{text}"
        );
    }
    for (action, key) in [
        (json!("s3:List*"), "s3:prefix"),
        (json!("*"), "s3:max-keys"),
        (json!(["s3:PutObject", "s3:PutObjectAcl"]), "s3:x-amz-acl"),
        (json!("s3:GetObject*"), "s3:VersionId"),
        (json!("s3:GetObject"), "aws:UserAgent"),
    ] {
        let text = of(action, key);
        assert!(Policy::parse(&text, "b").is_ok(), "{text}");
    }
}

#[test]
fn a_denial_on_a_key_that_no_request_has_is_refused() {
    let of = |key: &str| {
        let condition = json!({ "StringLike": { key: "x" } });
        policy_of(json!([statement(json!({ "Effect": "Deny", "Condition": condition }))]))
    };
    for (key, reason) in [
        ("s3:prefx", "there is no such key"),
        ("aws:SourceIP4", "there is no such key"),
        ("s3:aws:prefix", "there is no such key"),
        ("aws:UserAgent/x", "there is no such key"),
        ("s3:prefix/", "there is no such key"),
        ("s3:ExistingObjectTag", "behind a slash"),
        ("s3:RequestObjectTag/", "behind a slash"),
        ("aws:SourceVpc", "does not evaluate"),
        ("aws:PrincipalTag/team", "does not evaluate"),
        ("s3:TlsVersion", "does not evaluate"),
    ] {
        assert_refused(&of(key), reason);
    }
    for key in ["S3:PREFIX", "aws:username", "s3:ExistingObjectTag/a/b", "s3:x-amz-server-side-encryption"] {
        assert!(Policy::parse(&of(key), "b").is_ok(), "{key}");
    }
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(1_000))]

    /// Whatever a stranger writes is read or refused with a reason, and what is read can be asked.
    #[test]
    fn no_text_makes_a_policy_panic(
        place in 0_usize..400,
        cut in 0_usize..8,
        put in ".{0,12}",
        key in ".{0,40}",
    ) {
        let condition = json!({
            "ForAnyValue:StringLikeIfExists": { "s3:prefix": ["a*${aws:username, 'x'}?", "b"] },
            "IpAddress": { "aws:SourceIp": "10.0.0.0/8" }, "DateLessThan": { "aws:CurrentTime": "2026-11-24T10:30:15Z" },
        });
        let text = policy_of(json!([statement(json!({ "Condition": condition, "NotPrincipal": null }))]));
        let characters: Vec<char> = text.chars().collect();
        let place = place.min(characters.len());
        let end = (place + cut).min(characters.len());
        let mut mutated: String = characters[..place].iter().collect();
        mutated.push_str(&put);
        mutated.extend(&characters[end..]);
        match Policy::parse(&mutated, "b") {
            Ok(policy) => {
                let request = alice(&[("s3:prefix", &["ab"]), ("aws:SourceIp", &["::1"]), ("aws:CurrentTime", &["x"])]);
                let _ = (policy.evaluate("s3:GetObject", &format!("b/{key}"), &request), policy.is_public());
            }
            Err(error) => proptest::prop_assert!(!error.message.is_empty()),
        }
        let _ = Policy::kept(&put).evaluate(&put, &key, &anonymous());
    }
}

#[test]
fn large_policies_are_refused() {
    let text = |bytes: usize| {
        let text = policy_of(json!([statement(json!({}))]));
        format!("{}{}", text, " ".repeat(bytes - text.len()))
    };
    assert!(Policy::parse(&text(20 * 1024), "b").is_ok());
    let error = Policy::parse(&text(20 * 1024 + 1), "b").expect_err("it is too large");
    assert_eq!(Refusal::of(&error), Some(Refusal::PolicyTooLarge));
    // Deep nesting is refused, not followed.
    let deep = format!("{{\"Statement\":{}", "[".repeat(20_000));
    assert!(Policy::parse(&deep, "b").is_err());
}

#[test]
fn public_policies_follow_the_table() {
    let with = |condition: Value| statement(json!({ "Condition": condition }));
    let not_principal = |effect: &str| {
        let named = json!({ "AWS": "arn:aws:iam::x:root" });
        statement(json!({ "Effect": effect, "Principal": null, "NotPrincipal": named }))
    };
    for (statements, expected) in [
        (json!([statement(json!({}))]), true),
        (json!([statement(json!({ "Principal": { "AWS": "*" } }))]), true),
        (json!([statement(json!({ "Principal": { "AWS": "arn:aws:iam::x:root" } }))]), false),
        (json!([not_principal("Deny")]), false),
        (json!([statement(json!({ "Effect": "Deny" }))]), false),
        (json!([statement(json!({ "Principal": { "AWS": "x" } })), statement(json!({}))]), true),
        (json!([with(json!({ "IpAddress": { "aws:SourceIp": "10.0.0.0/32" } }))]), false),
        (json!([with(json!({ "IpAddress": { "aws:SourceIp": "10.0.0.0/8" } }))]), false),
        (json!([with(json!({ "IpAddress": { "aws:SourceIp": "8.0.0.0/7" } }))]), true),
        (json!([with(json!({ "IpAddress": { "aws:SourceIp": ["10.0.0.1", "0.0.0.0/0"] } }))]), true),
        (json!([with(json!({ "IpAddress": { "aws:SourceIp": "2001:db8::/31" } }))]), true),
        (json!([with(json!({ "NotIpAddress": { "aws:SourceIp": "10.0.0.0/32" } }))]), true),
        (json!([with(json!({ "StringEquals": { "aws:PrincipalAccount": "id-1" } }))]), false),
        (json!([with(json!({ "StringLike": { "aws:PrincipalAccount": "id-*" } }))]), true),
        (json!([with(json!({ "StringLike": { "aws:PrincipalAccount": "id-1" } }))]), false),
        (json!([with(json!({ "StringEquals": { "aws:userid": "${aws:userid}" } }))]), true),
        (json!([with(json!({ "StringEqualsIfExists": { "aws:PrincipalAccount": "id-1" } }))]), true),
        (json!([with(json!({ "ForAllValues:StringEquals": { "aws:PrincipalAccount": "id-1" } }))]), true),
        (json!([with(json!({ "StringEquals": { "s3:ExistingObjectTag/public": "yes" } }))]), true),
        (json!([with(json!({ "StringEquals": { "aws:Referer": "http://x" } }))]), true),
    ] {
        assert_eq!(parsed(&policy_of(statements.clone())).is_public(), expected, "{statements}");
    }
}

#[test]
fn a_policy_that_cannot_be_read_any_more_denies_everything() {
    for text in ["", "{}", "x"] {
        let policy = Policy::kept(text);
        for (action, resource) in [("s3:GetObject", "b/k"), ("s3:PutBucketPolicy", "b")] {
            assert_eq!(policy.evaluate(action, resource, &alice(&[])), Verdict::Deny);
            assert_eq!(policy.evaluate(action, resource, &anonymous()), Verdict::Deny);
        }
    }
    let policy = Policy::kept(&policy_of(json!([statement(json!({}))])));
    assert_eq!(policy.evaluate("s3:GetObject", "b/k", &anonymous()), Verdict::Allow);
}
