//! Which keys conditions and variables may name.
//!
//! A key that no request ever has would make a `Deny` fit nothing, and nobody would notice. So a policy may name the
//! keys only that requests are really asked for. AWS refuses keys that it does not define, too.

use super::ConditionKey;
use crate::access::glob;

/// `aws:` keys that requests are asked for.
const GLOBAL: &[&str] = &[
    "currenttime",
    "epochtime",
    "principalaccount",
    "principalarn",
    "principaltype",
    "referer",
    "securetransport",
    "sourceip",
    "useragent",
    "userid",
    "username",
];

/// `s3:` keys that requests are asked for. Those of server-side encryption are here although no request has them:
/// requests with encryption are refused before any policy is asked, so "not there" is the truth.
const OF_S3: &[&str] = &[
    "authtype",
    "delimiter",
    "if-match",
    "if-none-match",
    "max-keys",
    "object-lock-legal-hold",
    "object-lock-mode",
    "object-lock-remaining-retention-days",
    "object-lock-retain-until-date",
    "prefix",
    "requestobjecttagkeys",
    "signatureversion",
    "versionid",
    "x-amz-acl",
    "x-amz-copy-source",
    "x-amz-grant-full-control",
    "x-amz-grant-read",
    "x-amz-grant-read-acp",
    "x-amz-grant-write",
    "x-amz-grant-write-acp",
    "x-amz-metadata-directive",
    "x-amz-server-side-encryption",
    "x-amz-server-side-encryption-aws-kms-key-id",
    "x-amz-server-side-encryption-customer-algorithm",
    "x-amz-storage-class",
];

/// `s3:` keys with the key of a tag behind a slash.
const OF_TAG: &[&str] = &["existingobjecttag", "requestobjecttag"];

/// Keys that AWS defines and that no request to this server has. Their refusal says so.
const ELSEWHERE: &[&str] = &[
    "aws:assumedroot",
    "aws:calledvia",
    "aws:calledviafirst",
    "aws:calledvialast",
    "aws:ec2instancesourceprivateipv4",
    "aws:ec2instancesourcevpc",
    "aws:federatedprovider",
    "aws:multifactorauthage",
    "aws:multifactorauthpresent",
    "aws:principalisawsservice",
    "aws:principalorgid",
    "aws:principalorgpaths",
    "aws:principalservicename",
    "aws:principalservicenameslist",
    "aws:principaltag",
    "aws:requestedregion",
    "aws:requesttag",
    "aws:resourceaccount",
    "aws:resourceorgid",
    "aws:resourceorgpaths",
    "aws:resourcetag",
    "aws:sourceaccount",
    "aws:sourcearn",
    "aws:sourceidentity",
    "aws:sourceorgid",
    "aws:sourceorgpaths",
    "aws:sourceowner",
    "aws:sourcevpc",
    "aws:sourcevpcarn",
    "aws:sourcevpce",
    "aws:tagkeys",
    "aws:tokenissuetime",
    "aws:viaawsservice",
    "aws:vpcsourceip",
    "s3:accesspointnetworkorigin",
    "s3:buckettag",
    "s3:dataaccesspointaccount",
    "s3:dataaccesspointarn",
    "s3:inventoryaccessibleoptionalfields",
    "s3:locationconstraint",
    "s3:objectcreationoperation",
    "s3:resourceaccount",
    "s3:signatureage",
    "s3:tlsversion",
    "s3:x-amz-content-sha256",
    "s3:x-amz-object-ownership",
    "s3:x-amz-website-redirect-location",
];

/// Actions whose requests have a key, for those keys where S3 looks. In lower case, without what stands before the colon.
const ACTIONS: &[(&[&str], &[&str])] = &[
    (&["s3:delimiter", "s3:max-keys", "s3:prefix"], &["listbucket", "listbucketversions"]),
    (
        &[
            "s3:x-amz-acl",
            "s3:x-amz-grant-full-control",
            "s3:x-amz-grant-read",
            "s3:x-amz-grant-read-acp",
            "s3:x-amz-grant-write",
            "s3:x-amz-grant-write-acp",
        ],
        &["createbucket", "putbucketacl", "putobject", "putobjectacl", "putobjectversionacl"],
    ),
    (&["s3:x-amz-copy-source", "s3:x-amz-metadata-directive"], &["putobject"]),
    (
        &["s3:versionid"],
        &[
            "deleteobjectversion",
            "deleteobjectversiontagging",
            "getobjectversion",
            "getobjectversionacl",
            "getobjectversionattributes",
            "getobjectversionforreplication",
            "getobjectversiontagging",
            "getobjectversiontorrent",
            "putobjectversionacl",
            "putobjectversiontagging",
        ],
    ),
];

/// Whether some request for an action can have the key. `action` is a pattern in lower case. A condition on another key never
/// holds, so its statement would not do what it says.
pub fn is_of(key: &ConditionKey, action: &str) -> bool {
    let Some(pattern) = action.strip_prefix("s3:") else { return true };
    let has = |(keys, _): &&(&[&str], &[&str])| keys.contains(&key.name.as_str());
    ACTIONS.iter().find(has).is_none_or(|(_, actions)| actions.iter().any(|action| glob::is_match(pattern, action)))
}

/// Reads the name of a key that requests are asked for.
///
/// # Errors
/// What is wrong with it.
pub fn read(text: &str) -> Result<ConditionKey, String> {
    let key = ConditionKey::new(text);
    let is_plain = key.argument.is_empty() && !text.contains('/');
    let is_known = match key.name.split_once(':') {
        Some(("aws", name)) => is_plain && GLOBAL.contains(&name),
        Some(("s3", name)) if OF_TAG.contains(&name) => !key.argument.is_empty(),
        Some(("s3", name)) => is_plain && OF_S3.contains(&name),
        _ => false,
    };
    if is_known {
        return Ok(key);
    }
    let reason = if ELSEWHERE.contains(&key.name.as_str()) {
        "this server does not evaluate it, so the statement would not do what it says"
    } else if key.name.strip_prefix("s3:").is_some_and(|name| OF_TAG.contains(&name)) {
        "the key of a tag follows it, behind a slash"
    } else {
        "there is no such key for S3"
    };
    Err(format!("Policy has an invalid condition key - {text}: {reason}"))
}
