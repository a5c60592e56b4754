//! The decision table. Every combination of requester, policy, lists, block and ownership is compared with a second
//! statement of the rules. Hand-made cases stand beside it.

use std::borrow::Cow;

use millrace_api::objects::{AccessList, Grant, Grantee, Group, PublicAccessBlock};
use serde_json::json;

use super::*;
use crate::access::policy::ConditionKey;

struct TestRequest(Option<&'static str>);

impl Request for TestRequest {
    fn principal_id(&self) -> Option<&str> {
        self.0
    }

    fn principal_name(&self) -> &str {
        self.0.unwrap_or_default()
    }

    fn values(&self, _key: &ConditionKey) -> Option<Vec<Cow<'_, str>>> {
        None
    }
}

fn list(owner: &str, grants: &[(Grantee, Permission)]) -> AccessList {
    let grants = grants.iter().map(|(grantee, permission)| Grant { grantee: grantee.clone(), permission: *permission });
    AccessList { owner: owner.to_owned(), grants: grants.collect() }
}

fn policy(effect: &str, principal: &str) -> Policy {
    let resources = ["arn:aws:s3:::b", "arn:aws:s3:::b/*"];
    let statement =
        json!({ "Effect": effect, "Principal": { "AWS": principal }, "Action": "s3:*", "Resource": resources });
    let text = json!({ "Version": "2012-10-17", "Statement": [statement] }).to_string();
    Policy::parse(&text, "b").expect("it is valid")
}

const OWNER: &str = "owner";
const WRITER: &str = "writer";
const OTHER: &str = "other";

/// Which action, of which kind.
const ACTIONS: [(&str, bool); 14] = [
    ("s3:ListBucket", false),
    ("s3:PutObject", true),
    ("s3:DeleteObject", true),
    ("s3:DeleteObjectVersion", true),
    ("s3:GetBucketAcl", false),
    ("s3:PutBucketAcl", false),
    ("s3:PutBucketPolicy", false),
    ("s3:PutLifecycleConfiguration", false),
    ("s3:GetObject", true),
    ("s3:GetObjectAcl", true),
    ("s3:PutObjectAcl", true),
    ("s3:GetObjectTagging", true),
    ("s3:AbortMultipartUpload", true),
    ("s3:BypassGovernanceRetention", true),
];

/// What the lists in the table give: nothing, everything to everybody, everything to `other`.
fn grants(index: usize) -> Vec<(Grantee, Permission)> {
    match index {
        0 => vec![],
        1 => vec![(Grantee::Group(Group::AllUsers), Permission::FullControl)],
        _ => vec![(Grantee::User(OTHER.to_owned()), Permission::FullControl)],
    }
}

/// The rules once more, from what was put into the table.
struct Case {
    who: Option<&'static str>,
    policy: usize,
    list: usize,
    blocks: bool,
    enforced: bool,
    action: (&'static str, bool),
}

impl Case {
    fn expected(&self) -> bool {
        let is_owner = self.who == Some(OWNER);
        // 0: none, 1: denies everybody, 2: allows everybody, 3: allows `other`.
        if self.policy == 1 {
            return is_owner && self.action.0 == "s3:PutBucketPolicy";
        }
        let is_public_policy = self.policy == 2;
        let by_policy = is_public_policy && (!self.blocks || is_owner) || self.policy == 3 && self.who == Some(OTHER);
        let by_list = !self.enforced
            && match self.list {
                0 => false,
                1 => !self.blocks,
                _ => self.who == Some(OTHER),
            };
        let is_writer = self.who == Some(WRITER);
        by_policy
            || match self.action.0 {
                "s3:GetObject" | "s3:GetObjectAcl" | "s3:PutObjectAcl" => {
                    by_list || if self.enforced { is_owner } else { is_writer }
                }
                "s3:ListBucket" | "s3:PutObject" | "s3:DeleteObject" | "s3:GetBucketAcl" | "s3:PutBucketAcl" => {
                    by_list || is_owner
                }
                "s3:AbortMultipartUpload" => is_owner || is_writer,
                _ => is_owner,
            }
    }

    fn found(&self) -> bool {
        let policy = match self.policy {
            0 => None,
            1 => Some(policy("Deny", "*")),
            2 => Some(policy("Allow", "*")),
            _ => Some(policy("Allow", OTHER)),
        };
        let of_bucket = list(OWNER, &grants(self.list));
        let of_object = list(WRITER, &grants(self.list));
        let block = PublicAccessBlock {
            ignore_public_acls: self.blocks,
            restrict_public_buckets: self.blocks,
            ..PublicAccessBlock::default()
        };
        let ownership = if self.enforced { Ownership::BucketOwnerEnforced } else { Ownership::ObjectWriter };
        let bucket = Bucket {
            name: "b",
            access: List::from(&of_bucket),
            policy: policy.as_ref(),
            rules: Rules { ownership, block },
            is_of_asking_app: false,
        };
        let target = match self.action.1 {
            true => Target::Object { key: "k", access: Some(List::from(&of_object)) },
            false => Target::Bucket,
        };
        is_allowed(&bucket, self.action.0, target, &TestRequest(self.who))
    }
}

#[test]
fn every_combination_follows_the_rules() {
    let mut count = 0;
    for who in [None, Some(OWNER), Some(WRITER), Some(OTHER), Some("stranger")] {
        for (policy, list) in (0..4).flat_map(|policy| (0..3).map(move |list| (policy, list))) {
            for (blocks, enforced) in [(false, false), (false, true), (true, false), (true, true)] {
                for action in ACTIONS {
                    let case = Case { who, policy, list, blocks, enforced, action };
                    let what =
                        format!("{who:?} {} policy {policy} list {list} blocks {blocks} enforced {enforced}", action.0);
                    assert_eq!(case.found(), case.expected(), "{what}");
                    count += 1;
                }
            }
        }
    }
    assert_eq!(count, 5 * 12 * 4 * 14);
}

#[test]
fn objects_that_are_not_there_are_told_to_who_may_list() {
    let private = list(OWNER, &[]);
    let public = list(OWNER, &[(Grantee::Group(Group::AllUsers), Permission::Read)]);
    for (access, who, expected) in [
        (&private, Some(OWNER), true),
        (&private, Some(OTHER), false),
        (&private, None, false),
        (&public, Some(OTHER), true),
        (&public, None, true),
    ] {
        let bucket = Bucket {
            name: "b",
            access: List::from(access),
            policy: None,
            rules: Rules::default(),
            is_of_asking_app: false,
        };
        let target = Target::Object { key: "k", access: None };
        assert_eq!(is_allowed(&bucket, "s3:GetObject", target, &TestRequest(who)), expected, "{who:?}");
    }
}

#[test]
fn a_permission_gives_itself_alone() {
    let other = Some(OTHER);
    for (permission, action, expected) in [
        (Permission::Read, "s3:ListBucket", true),
        (Permission::Read, "s3:PutObject", false),
        (Permission::Write, "s3:PutObject", true),
        (Permission::Write, "s3:DeleteObject", true),
        (Permission::Write, "s3:DeleteObjectVersion", false),
        (Permission::Write, "s3:ListBucket", false),
        (Permission::ReadAcp, "s3:GetBucketAcl", true),
        (Permission::ReadAcp, "s3:PutBucketAcl", false),
        (Permission::WriteAcp, "s3:PutBucketAcl", true),
        (Permission::FullControl, "s3:PutBucketPolicy", false),
        (Permission::FullControl, "s3:DeleteBucket", false),
    ] {
        let access = list(OWNER, &[(Grantee::User(OTHER.to_owned()), permission)]);
        let bucket = Bucket {
            name: "b",
            access: List::from(&access),
            policy: None,
            rules: Rules::default(),
            is_of_asking_app: false,
        };
        let found = is_allowed(&bucket, action, Target::Bucket, &TestRequest(other));
        assert_eq!(found, expected, "{permission:?} {action}");
    }
}
