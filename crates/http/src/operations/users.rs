//! The rows of the table about users of S3.

use super::table::{CALL, json, literal};
use super::{Access, Answer, Kind, Operation, Parameter, Segment};

const USER: Segment = Segment::Variable(Parameter::User);

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
];
