//! What requesters learn of objects that are not there.

use bytes::Bytes;
use millrace_api::objects::{ReadConditions, Requester};
use serde_json::{Value, json};

use super::*;
use crate::rows::BucketRow;
use crate::settings::SettingsCache;
use crate::wire::SettingsOutput;

/// Whether somebody who reads `key`, which is not there, is told so.
fn is_told(statements: &Value, who: Option<&str>, key: &str) -> bool {
    let policy = json!({ "Version": "2012-10-17", "Statement": statements }).to_string();
    Policy::parse(&policy, "b").expect("it is valid");
    let row = BucketRow { owner: "owner".to_owned(), policy_number: Some(1), ..BucketRow::default() };
    let settings = SettingsCache::new(crate::lifecycle::DAY_MS).told(SettingsOutput {
        row,
        policy: Some(policy),
        lifecycle: None,
    });
    let request = ObjectRequest {
        requester: Requester { id: who, ..Requester::default() },
        bucket: "b",
        key,
        operation: ObjectOperation::Get(ReadConditions::default()),
        body: Bytes::new(),
    };
    let ask = Ask { settings: &settings, request: &request, now_ms: 0 };
    ask.check(Known::default()).is_ok()
}

#[test]
fn only_who_may_list_learns_that_an_object_is_not_there() {
    let statement = |effect: &str, action: &str, resource: &str| {
        let resource = format!("arn:aws:s3:::{resource}");
        json!({ "Effect": effect, "Principal": "*", "Action": action, "Resource": resource })
    };
    let mut of_prefix = statement("Allow", "s3:ListBucket", "b");
    of_prefix["Condition"] = json!({ "StringLike": { "s3:prefix": "public/*" } });
    let list = statement("Allow", "s3:ListBucket", "b");
    let get = statement("Allow", "s3:GetObject", "b/*");
    let no_get = statement("Deny", "s3:GetObject", "b/*");
    let no_list = statement("Deny", "s3:ListBucket", "b");
    for (statements, who, key, expected) in [
        (json!([of_prefix]), Some("x"), "public/object", true),
        (json!([of_prefix]), None, "public/object", true),
        (json!([of_prefix]), Some("x"), "private/object", false),
        (json!([list]), Some("x"), "k", true),
        (json!([get]), Some("x"), "k", false),
        (json!([get, list]), Some("x"), "k", true),
        (json!([list, no_get]), Some("x"), "k", false),
        (json!([get]), Some("owner"), "k", true),
        (json!([no_get]), Some("owner"), "k", false),
        (json!([no_list]), Some("owner"), "k", false),
    ] {
        assert_eq!(is_told(&statements, who, key), expected, "{statements} {who:?} {key}");
    }
}
