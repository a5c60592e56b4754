//! The keys of conditions, and the actions that operations need.

use millrace_api::objects::{
    Configuration, ConfigurationKind, DeleteOne, PartInput, PutInput, ReadConditions, Requester, Versioning,
    WriteConditions,
};

use super::*;
use crate::access::actions;

fn upload() -> UploadInput {
    UploadInput {
        tags: vec![Tag { key: "colour".to_owned(), value: "red".to_owned() }],
        storage_class: "STANDARD_IA".to_owned(),
        retention: Some(Retention { mode: RetentionMode::Compliance, until_ms: 3 * DAY_MS + 1 }),
        legal_hold: Some(true),
        ..UploadInput::default()
    }
}

/// The values of a key as text; `-`: it has none.
fn value(operation: &ObjectOperation, key: &str) -> String {
    let requester = Requester {
        id: Some("id-a"),
        name: "alice",
        address: "::ffff:10.0.0.1".parse().ok(),
        is_encrypted: true,
        referer: "http://r",
        auth_kind: "POST",
        ..Requester::default()
    };
    let request = ObjectRequest {
        requester,
        bucket: "b",
        key: "k",
        operation: ObjectOperation::HeadBucket,
        body: bytes::Bytes::new(),
    };
    let existing_tags = [Tag { key: "Old".to_owned(), value: "1".to_owned() }];
    let context = Context { request: &request, operation, existing_tags: &existing_tags, now_ms: 5_500 };
    context.values(&ConditionKey::new(key)).map_or_else(|| "-".to_owned(), |values| values.join(","))
}

#[test]
fn keys_that_every_request_has() {
    let get = ObjectOperation::Get(ReadConditions { version: Some("v1".to_owned()), ..ReadConditions::default() });
    for (key, expected) in [
        ("aws:SourceIp", "10.0.0.1"),
        ("AWS:SecureTransport", "true"),
        ("aws:Referer", "http://r"),
        ("aws:UserAgent", "-"),
        ("aws:username", "alice"),
        ("aws:userid", "id-a"),
        ("aws:PrincipalArn", "arn:aws:iam::id-a:user/alice"),
        ("aws:PrincipalType", "User"),
        ("aws:EpochTime", "5"),
        ("aws:CurrentTime", "5"),
        ("aws:Other", "-"),
        ("s3:authType", "POST"),
        ("s3:signatureversion", "-"),
        ("s3:ExistingObjectTag/Old", "1"),
        ("s3:ExistingObjectTag/old", "-"),
        ("s3:RequestObjectTag/colour", "-"),
        ("s3:VersionId", "v1"),
        ("s3:prefix", "-"),
        ("s3:x-amz-acl", "-"),
        ("s3:x-amz-server-side-encryption", "-"),
    ] {
        assert_eq!(value(&get, key), expected, "{key}");
    }
}

#[test]
fn keys_of_lists_and_writes() {
    let list = ListRequest { prefix: String::new(), delimiter: "/".to_owned(), limit: 7, ..ListRequest::default() };
    let list = ObjectOperation::List(list);
    let user = Grant { grantee: Grantee::User("x".to_owned()), permission: Permission::FullControl };
    let group = Grant { grantee: Grantee::Group(Group::AllUsers), permission: Permission::Read };
    let copy = CopyInput { source: "b/k".to_owned(), version: None, metadata_directive: "COPY".to_owned() };
    let conditions = WriteConditions { if_none_match: vec!["*".to_owned()], ..WriteConditions::default() };
    let access = AccessInput::Grants(vec![user, group.clone(), group]);
    let granting = UploadInput { access, ..upload() };
    let put = PutInput { input: granting, copy: Some(copy.clone()), conditions, ..PutInput::default() };
    let put = ObjectOperation::Put(Box::new(put));
    let canned = UploadInput { access: AccessInput::Canned(CannedAccess::PublicRead), ..UploadInput::default() };
    let create = ObjectOperation::CreateUpload(Box::new(canned));
    let part =
        PartInput { copy: Some(CopyInput { metadata_directive: String::new(), ..copy }), ..PartInput::default() };
    let part = ObjectOperation::PutPart(Box::new(part));
    for (operation, key, expected) in [
        (&list, "s3:prefix", ""),
        (&list, "s3:delimiter", "/"),
        (&list, "s3:max-keys", "7"),
        (&put, "s3:RequestObjectTag/colour", "red"),
        (&put, "s3:RequestObjectTagKeys", "colour"),
        (&put, "s3:x-amz-acl", "-"),
        (&put, "s3:x-amz-grant-full-control", "id=x"),
        (
            &put,
            "s3:x-amz-grant-read",
            "uri=http://acs.amazonaws.com/groups/global/AllUsers, uri=http://acs.amazonaws.com/groups/global/AllUsers",
        ),
        (&put, "s3:x-amz-grant-write", "-"),
        (&put, "s3:x-amz-copy-source", "b/k"),
        (&put, "s3:x-amz-metadata-directive", "COPY"),
        (&put, "s3:x-amz-storage-class", "STANDARD_IA"),
        (&put, "s3:object-lock-mode", "COMPLIANCE"),
        (&put, "s3:object-lock-remaining-retention-days", "3"),
        (&put, "s3:object-lock-legal-hold", "ON"),
        (&put, "s3:if-none-match", "*"),
        (&put, "s3:if-match", "-"),
        (&create, "s3:x-amz-acl", "public-read"),
        (&create, "s3:RequestObjectTagKeys", "-"),
        (&create, "s3:object-lock-legal-hold", "-"),
        (&part, "s3:x-amz-copy-source", "b/k"),
        (&part, "s3:x-amz-metadata-directive", "-"),
        (&ObjectOperation::PutLegalHold { version: None, is_held: false }, "s3:object-lock-legal-hold", "OFF"),
    ] {
        assert_eq!(value(operation, key), expected, "{key}");
    }
}

#[test]
fn operations_need_what_s3_documents() {
    use ObjectOperation as O;
    let version = || Some("v".to_owned());
    let one = |version, bypass_governance| DeleteOne { version, bypass_governance, ..DeleteOne::default() };
    let put = O::Put(Box::new(PutInput { input: upload(), ..PutInput::default() }));
    for (operation, expected) in [
        (O::HeadBucket, "s3:ListBucket"),
        (O::ListVersions(ListRequest::default()), "s3:ListBucketVersions"),
        (O::Get(ReadConditions::default()), "s3:GetObject"),
        (O::GetSource(ReadConditions { version: version(), ..ReadConditions::default() }), "s3:GetObjectVersion"),
        (O::GetAttributes { version: None, parts_after: 0, max_parts: 0 }, "s3:GetObject s3:GetObjectAttributes"),
        (put, "s3:PutObject s3:PutObjectTagging s3:PutObjectRetention s3:PutObjectLegalHold"),
        (O::Put(Box::default()), "s3:PutObject"),
        (O::CheckWrite { size_bytes: None, write: Box::new(O::Put(Box::default())) }, "s3:PutObject"),
        (O::Delete(one(None, false)), "s3:DeleteObject"),
        (O::Delete(one(version(), true)), "s3:DeleteObjectVersion"),
        (O::PutTags { version: None, tags: vec![] }, "s3:DeleteObjectTagging"),
        (O::PutTags { version: version(), tags: upload().tags }, "s3:PutObjectVersionTagging"),
        (O::DeleteConfiguration(ConfigurationKind::Policy), "s3:DeleteBucketPolicy"),
        (O::DeleteConfiguration(ConfigurationKind::Cors), "s3:PutBucketCORS"),
        (O::GetConfiguration(ConfigurationKind::Lifecycle), "s3:GetLifecycleConfiguration"),
        (
            O::PutConfiguration { configuration: Configuration::Versioning(Versioning::Enabled), is_confirmed: false },
            "s3:PutBucketVersioning",
        ),
        (O::AbortUpload { upload: String::new() }, "s3:AbortMultipartUpload"),
    ] {
        let needed: Vec<&str> = actions::of(&operation).into_iter().map(|(action, _)| action).collect();
        assert_eq!(needed.join(" "), expected, "{operation:?}");
    }
}
