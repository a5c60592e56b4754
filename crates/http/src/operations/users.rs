//! The rows of the table about users and buckets of S3.

use super::table::{CALL, json, literal};
use super::{Access, Answer, Kind, Operation, Parameter, Segment};

const USER: Segment = Segment::Variable(Parameter::User);
const BUCKET: Segment = Segment::Variable(Parameter::Bucket);

const NEW_KEY: &str = r#"{"type":"object","required":["access_key","secret_key"],"properties":{"access_key":{"type":"string"},"secret_key":{"type":"string","description":"Shown this once."}}}"#;

const LIST: Operation = Operation {
    kind: Kind::S3Users,
    method: "GET",
    path: &[literal("s3"), literal("users")],
    summary: "List the users of S3 with their access keys",
    takes_idempotency_key: false,
    request: None,
    answers: &[Answer {
        status: 200,
        description: "All users, oldest first.",
        body: json(
            r##"{"type":"object","required":["users"],"properties":{"users":{"type":"array","items":{"$ref":"#/components/schemas/S3User"}}}}"##,
        ),
    }],
    access: Access::Admin,
    ..CALL
};

/// In the order in which the guide has them.
pub(super) const USERS: &[Operation] = &[
    Operation {
        kind: Kind::S3AddUser,
        method: "POST",
        summary: "Make a user of S3 with an access key",
        request: json(
            r#"{"type":"object","required":["name"],"additionalProperties":false,"properties":{"name":{"type":"string","minLength":1,"maxLength":64,"description":"Unique; the display name."},"email":{"type":"string","maxLength":254,"description":"Unique; access lists may name the user by it."},"access_key":{"type":"string","minLength":3,"maxLength":128,"pattern":"^[A-Za-z0-9_.-]+$","description":"With secret_key; drawn when absent."},"secret_key":{"type":"string","minLength":8,"maxLength":128,"pattern":"^[!-~]+$"}}}"#,
        ),
        answers: &[Answer {
            status: 201,
            description: "The user. The secret key is shown this once.",
            body: json(
                r#"{"type":"object","required":["id","display_name","email","access_key","secret_key"],"properties":{"id":{"type":"string","pattern":"^[0-9a-f]{64}$","description":"The canonical id."},"display_name":{"type":"string"},"email":{"type":"string","description":"Empty without one."},"access_key":{"type":"string"},"secret_key":{"type":"string"}}}"#,
            ),
        }],
        ..LIST
    },
    LIST,
    Operation {
        kind: Kind::S3RemoveUser,
        method: "DELETE",
        path: &[literal("s3"), literal("users"), USER],
        summary: "Remove a user of S3 and their access keys; what the user owns stays",
        answers: &[Answer { status: 204, description: "Removed.", body: None }],
        ..LIST
    },
    Operation {
        kind: Kind::S3AddKey,
        method: "POST",
        path: &[literal("s3"), literal("users"), USER, literal("keys")],
        summary: "Make one more access key for a user of S3, who may have two active ones",
        request: json(
            r#"{"type":"object","additionalProperties":false,"properties":{"access_key":{"type":"string","minLength":3,"maxLength":128,"pattern":"^[A-Za-z0-9_.-]+$","description":"With secret_key; drawn when absent."},"secret_key":{"type":"string","minLength":8,"maxLength":128,"pattern":"^[!-~]+$"}}}"#,
        ),
        answers: &[Answer { status: 201, description: "The key.", body: json(NEW_KEY) }],
        ..LIST
    },
    Operation {
        kind: Kind::S3Keys,
        path: &[literal("s3"), literal("users"), USER, literal("keys")],
        summary: "List the access keys of a user of S3",
        answers: &[Answer {
            status: 200,
            description: "The keys, oldest first. Of revoked ones, the last stay in the list.",
            body: json(
                r##"{"type":"object","required":["keys"],"properties":{"keys":{"type":"array","items":{"$ref":"#/components/schemas/S3AccessKey"}}}}"##,
            ),
        }],
        ..LIST
    },
    Operation {
        kind: Kind::S3RevokeKey,
        method: "DELETE",
        path: &[literal("s3"), literal("users"), USER, literal("keys"), Segment::Variable(Parameter::AccessKey)],
        summary: "Revoke an access key of a user of S3, for good",
        answers: &[Answer { status: 204, description: "Revoked; every core refuses it from now on.", body: None }],
        ..LIST
    },
    Operation {
        kind: Kind::S3Buckets,
        path: &[literal("s3"), literal("buckets")],
        summary: "List the buckets of S3 of all users",
        answers: &[Answer {
            status: 200,
            description: "All buckets, by user and name. Those of users who were removed are not in the list.",
            body: json(
                r#"{"type":"object","required":["buckets"],"properties":{"buckets":{"type":"array","items":{"type":"object","required":["name","owner","owner_name","created_ms","app"],"properties":{"name":{"type":"string"},"owner":{"type":"string","description":"The canonical id."},"owner_name":{"type":"string"},"created_ms":{"type":"integer","description":"Unix milliseconds."},"app":{"type":["string","null"],"description":"The app that it belongs to."}}}}}}"#,
            ),
        }],
        ..LIST
    },
    Operation {
        kind: Kind::S3Bucket,
        path: &[literal("s3"), literal("buckets"), BUCKET],
        summary: "Show what is in a bucket of S3, and its quota",
        answers: &[Answer {
            status: 200,
            description: "The bucket. The numbers are exact: they change with each write.",
            body: json(
                r#"{"type":"object","required":["name","owner","created_ms","objects","size_bytes","quota_bytes","app","slices"],"properties":{"name":{"type":"string"},"owner":{"type":"string"},"created_ms":{"type":"integer"},"objects":{"type":"integer","description":"Versions with content."},"size_bytes":{"type":"integer","description":"Their bytes, and those of parts of uploads under way."},"quota_bytes":{"type":["integer","null"]},"app":{"type":["string","null"],"description":"The app that it belongs to."},"slices":{"type":"integer","description":"Over how many shards it is spread."}}}"#,
            ),
        }],
        ..LIST
    },
    Operation {
        kind: Kind::S3SetQuota,
        method: "PUT",
        path: &[literal("s3"), literal("buckets"), BUCKET, literal("quota")],
        summary: "Set how many bytes a bucket of S3 may hold, or take the bound away",
        request: json(
            r#"{"type":"object","required":["quota_bytes"],"additionalProperties":false,"properties":{"quota_bytes":{"type":["integer","null"],"minimum":0,"description":"null: without a bound."}}}"#,
        ),
        answers: &[Answer { status: 204, description: "Set; writes beyond it are refused from now on.", body: None }],
        ..LIST
    },
    Operation {
        kind: Kind::S3SetApp,
        method: "PUT",
        path: &[literal("s3"), literal("buckets"), BUCKET, literal("app")],
        summary: "Give a bucket of S3 to an app, or take it away",
        request: json(
            r#"{"type":"object","required":["app"],"additionalProperties":false,"properties":{"app":{"type":["string","null"],"description":"null: it belongs to no app."}}}"#,
        ),
        answers: &[Answer { status: 204, description: "Set; the app's functions may use it from now on.", body: None }],
        ..LIST
    },
    Operation {
        kind: Kind::S3SetSlices,
        method: "PUT",
        path: &[literal("s3"), literal("buckets"), BUCKET, literal("slices")],
        summary: "Spread an empty bucket of S3 over cores",
        request: json(
            r#"{"type":"object","required":["slices"],"additionalProperties":false,"properties":{"slices":{"type":"integer","minimum":1,"maximum":16}}}"#,
        ),
        answers: &[Answer { status: 204, description: "Set, or it was so before.", body: None }],
        ..LIST
    },
];
