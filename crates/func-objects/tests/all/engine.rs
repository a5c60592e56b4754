//! The engine in a world of its own: buckets, versions, uploads, lists, who may do what.

use bytes::Bytes;
use millrace_api::objects::{
    AccessInput, CannedAccess, Checksum, ChecksumAlgorithm, ChecksumKind, CompletePart, Configuration,
    ConfigurationKind, DeleteOne, Deleted, ListRequest, ObjectOperation, ObjectReply, ObjectRequest, Ownership,
    PartInput, PutInput, ReadConditions, Refusal, Requester, Retention, RetentionMode, UploadInput, Usage, Versioning,
    WriteConditions, WrittenBody,
};
use serde_json::json;

use super::world::{DAY_MS, UPLOAD, World};

fn get(version: Option<&str>) -> ObjectOperation {
    ObjectOperation::Get(ReadConditions { version: version.map(str::to_owned), ..ReadConditions::default() })
}

fn delete(version: Option<&str>) -> ObjectOperation {
    ObjectOperation::Delete(DeleteOne { version: version.map(str::to_owned), ..DeleteOne::default() })
}

fn list(prefix: &str, delimiter: &str, after: &str, limit: u16) -> ListRequest {
    ListRequest {
        prefix: prefix.to_owned(),
        delimiter: delimiter.to_owned(),
        after: after.to_owned(),
        limit,
        ..ListRequest::default()
    }
}

fn configure(world: &mut World, bucket: &str, configuration: Configuration) {
    let put = ObjectOperation::PutConfiguration { configuration, is_confirmed: false };
    assert_eq!(world.ask("alice", bucket, "", put), Ok(ObjectReply::Done));
}

fn usage(world: &mut World, bucket: &str) -> (u64, u64) {
    match world.ask("alice", bucket, "", ObjectOperation::GetUsage) {
        Ok(ObjectReply::Usage(Usage { objects, size_bytes, .. })) => (objects, size_bytes),
        other => panic!("{other:?}"),
    }
}

fn version(reply: Result<ObjectReply, Refusal>) -> String {
    match reply {
        Ok(ObjectReply::Written { version: Some(id), .. }) => id,
        Ok(ObjectReply::Deleted(Deleted { version: Some(id), .. })) => id,
        other => panic!("{other:?}"),
    }
}

#[test]
pub fn small_objects_come_back_with_their_content() {
    let mut world = World::default();
    world.bucket("alice", "photos");
    let body = Bytes::from_static(b"hello");
    let put = PutInput { body: WrittenBody::inline(&body, Default::default()), ..PutInput::default() };
    let requester = Requester { id: Some("alice"), ..Requester::default() };
    let operation = ObjectOperation::Put(Box::new(put));
    let request = ObjectRequest { requester, bucket: "photos", key: "k", operation, body: body.clone() };
    assert!(world.ask_with_body(&request).is_ok());
    let request = ObjectRequest { operation: get(None), body: Bytes::new(), ..request };
    let (reply, found) = world.ask_with_body(&request).expect("it is there");
    assert!(matches!(reply, ObjectReply::Object { info, .. } if info.size_bytes == 5 && info.owner == "alice"));
    assert_eq!(found, body);
    assert_eq!(usage(&mut world, "photos"), (1, 5));
    assert_eq!(world.ask("alice", "photos", "", ObjectOperation::DeleteBucket), Err(Refusal::BucketNotEmpty));
    assert!(world.ask("alice", "photos", "k", delete(None)).is_ok());
    assert_eq!(usage(&mut world, "photos"), (0, 0));
    assert_eq!(world.ask("alice", "photos", "", ObjectOperation::DeleteBucket), Ok(ObjectReply::Done));
    assert!(world.stored.is_empty(), "a bucket that is gone leaves nothing behind: {:?}", world.stored);
}

#[test]
pub fn versions_come_and_go() {
    let mut world = World::default();
    world.bucket("alice", "photos");
    let input = UploadInput::default;
    assert!(world.put("alice", "photos", "k", input()).is_ok());
    configure(&mut world, "photos", Configuration::Versioning(Versioning::Enabled));
    let second = version(world.put("alice", "photos", "k", input()));
    let marker = version(world.ask("alice", "photos", "k", delete(None)));
    assert_eq!(world.ask("alice", "photos", "k", get(None)), Err(Refusal::NoSuchKey));
    assert_eq!(world.ask("alice", "photos", "k", get(Some(&marker))), Err(Refusal::MethodNotAllowed));
    for id in ["null", &second] {
        assert!(world.ask("alice", "photos", "k", get(Some(id))).is_ok(), "{id}");
    }
    assert_eq!(world.ask("alice", "photos", "k", get(Some("x"))), Err(Refusal::InvalidArgument));
    let all = ObjectOperation::ListVersions(list("", "", "", 10));
    let Ok(ObjectReply::Versions(page)) = world.ask("alice", "photos", "", all) else { panic!("a list") };
    let shown: Vec<(&str, bool, bool)> =
        page.items.iter().map(|item| (item.version.as_str(), item.is_latest, item.is_delete_marker)).collect();
    assert_eq!(shown, [(marker.as_str(), true, true), (second.as_str(), false, false), ("null", false, false)]);
    assert_eq!(usage(&mut world, "photos"), (2, 20));
    world.check_bodies("photos", &["k"], &[]);
    // Suspended: the version `null` is replaced, wherever it lies.
    configure(&mut world, "photos", Configuration::Versioning(Versioning::Suspended));
    assert!(world.put("alice", "photos", "k", input()).is_ok());
    assert_eq!(usage(&mut world, "photos"), (2, 20));
    world.check_bodies("photos", &["k"], &[]);
    for id in ["null", &marker, &second] {
        assert!(world.ask("alice", "photos", "k", delete(Some(id))).is_ok(), "{id}");
    }
    assert_eq!(usage(&mut world, "photos"), (0, 0));
    world.check_bodies("photos", &["k"], &[]);
    assert_eq!(world.ask("alice", "photos", "", ObjectOperation::DeleteBucket), Ok(ObjectReply::Done));
}

fn begin(world: &mut World, who: &str, key: &str) -> String {
    match world.ask(who, "photos", key, ObjectOperation::CreateUpload(Box::default())) {
        Ok(ObjectReply::Upload { id, .. }) => id,
        other => panic!("{other:?}"),
    }
}

fn put_part(world: &mut World, who: &str, key: &str, upload: &str, number: u16, length: u64) -> CompletePart {
    let body = world.body(length);
    let part = PartInput { upload: upload.to_owned(), number, body, copy: None };
    match world.ask(who, "photos", key, ObjectOperation::PutPart(Box::new(part))) {
        Ok(ObjectReply::Written { etag, .. }) => CompletePart { number, etag, checksum: None },
        other => panic!("{other:?}"),
    }
}

fn complete(upload: &str, parts: &[CompletePart]) -> ObjectOperation {
    ObjectOperation::CompleteUpload {
        upload: upload.to_owned(),
        parts: parts.to_vec(),
        checksum: None,
        size_bytes: None,
        conditions: WriteConditions::default(),
    }
}

const MIB: u64 = 1 << 20;

#[test]
pub fn uploads_become_objects_and_leave_nothing_behind() {
    let mut world = World::default();
    world.bucket("alice", "photos");
    let id = begin(&mut world, "alice", "k");
    let old = put_part(&mut world, "alice", "k", &id, 1, 5 * MIB);
    let first = put_part(&mut world, "alice", "k", &id, 1, 6 * MIB);
    let second = put_part(&mut world, "alice", "k", &id, 2, 5 * MIB - 1);
    let third = put_part(&mut world, "alice", "k", &id, 3, 1);
    let unused = put_part(&mut world, "alice", "k", &id, 4, 7);
    assert_eq!(usage(&mut world, "photos"), (0, 6 * MIB + 5 * MIB - 1 + 1 + 7));
    let all = [("k".to_owned(), id.clone())];
    world.check_bodies("photos", &["k"], &all);
    for (parts, refusal) in [
        (vec![], Refusal::MalformedXml),
        (vec![second.clone(), first.clone()], Refusal::InvalidPartOrder),
        (vec![first.clone(), first.clone()], Refusal::InvalidPartOrder),
        (vec![old], Refusal::InvalidPart),
        (vec![CompletePart { number: 9, ..first.clone() }], Refusal::InvalidPart),
        (vec![first.clone(), second.clone(), third.clone()], Refusal::EntityTooSmall),
    ] {
        assert_eq!(world.ask("alice", "photos", "k", complete(&id, &parts)), Err(refusal), "{parts:?}");
    }
    let done = world.ask("alice", "photos", "k", complete(&id, &[first.clone(), third.clone()]));
    assert!(done.is_ok(), "{done:?}");
    // Asked again, it answers the same.
    assert_eq!(world.ask("alice", "photos", "k", complete(&id, &[first, third])), done);
    assert_eq!(world.ask("alice", "photos", "k", complete(&id, &[unused])), Err(Refusal::NoSuchUpload));
    assert_eq!(usage(&mut world, "photos"), (1, 6 * MIB + 1));
    world.check_bodies("photos", &["k"], &[]);
    // Overwritten, it goes with the rows of its parts.
    assert!(world.put("alice", "photos", "k", UploadInput::default()).is_ok());
    world.deliver();
    assert_eq!(usage(&mut world, "photos"), (1, 10));
    world.check_bodies("photos", &["k"], &[]);
    assert!(world.stored.keys().all(|place| place.0 != UPLOAD), "rows of parts are left");
}

#[test]
fn of_a_checksum_of_checksums_a_client_says_each_part_or_none() {
    let mut world = World::default();
    world.bucket("alice", "photos");
    let checksum = Some((ChecksumAlgorithm::Sha1, Some(ChecksumKind::Composite)));
    let create = ObjectOperation::CreateUpload(Box::new(UploadInput { checksum, ..UploadInput::default() }));
    let Ok(ObjectReply::Upload { id, .. }) = world.ask("alice", "photos", "k", create) else { panic!("it begins") };
    let parts = [1, 2].map(|number| put_part(&mut world, "alice", "k", &id, number, 5 * MIB));
    let mut some = parts.clone();
    some[1].checksum =
        Some(Checksum { algorithm: ChecksumAlgorithm::Sha1, kind: ChecksumKind::FullObject, value: vec![1; 20] });
    assert_eq!(world.ask("alice", "photos", "k", complete(&id, &some)), Err(Refusal::InvalidRequest));
    assert!(world.ask("alice", "photos", "k", complete(&id, &parts)).is_ok());
}

/// A policy that gives everything to everybody.
#[test]
fn without_a_signature_nobody_begins_an_upload_copies_or_grants() {
    let mut world = World::default();
    world.bucket("alice", "photos");
    let statement = r#"{ "Effect": "Allow", "Principal": "*", "Action": "s3:*", "Resource": ["arn:aws:s3:::photos", "arn:aws:s3:::photos/*"] }"#;
    let configuration = Configuration::Policy(format!(r#"{{ "Version": "2012-10-17", "Statement": {statement} }}"#));
    let policy = ObjectOperation::PutConfiguration { configuration, is_confirmed: true };
    assert_eq!(world.ask("alice", "photos", "", policy), Ok(ObjectReply::Done));
    assert!(world.put("alice", "photos", "k", UploadInput::default()).is_ok());
    let access = || AccessInput::Canned(CannedAccess::PublicRead);
    let put = |configuration| ObjectOperation::PutConfiguration { configuration, is_confirmed: false };
    for (key, operation) in [
        ("k", ObjectOperation::CreateUpload(Box::default())),
        ("k", ObjectOperation::GetSource(ReadConditions::default())),
        ("k", ObjectOperation::PutAccess { version: None, access: access() }),
        ("", put(Configuration::Access(access()))),
        ("", put(Configuration::Ownership(Ownership::ObjectWriter))),
        ("", ObjectOperation::GetConfiguration(ConfigurationKind::Ownership)),
    ] {
        let text = format!("{operation:?}");
        assert_eq!(world.ask("", "photos", key, operation.clone()), Err(Refusal::AccessDenied), "{text}");
        let said = world.ask("bob", "photos", key, operation);
        assert_ne!(said, Err(Refusal::AccessDenied), "bob, {text}");
    }
    assert!(world.put("", "photos", "k", UploadInput::default()).is_ok(), "a plain write goes on");
}

/// As many parts as S3 has, as large as an object may be. Completing writes few rows, however many parts there are.
#[test]
fn the_largest_upload_completes_with_few_rows() {
    const PARTS: u16 = 10_000;
    const LARGEST: u64 = 5 << 40;
    let mut world = World::default();
    world.bucket("alice", "photos");
    let id = begin(&mut world, "alice", "k");
    let each = LARGEST / u64::from(PARTS);
    let last = LARGEST - each * u64::from(PARTS - 1);
    let mut parts = Vec::new();
    for number in 1..PARTS {
        parts.push(put_part(&mut world, "alice", "k", &id, number, each));
    }
    let body = world.body(1);
    let beyond = PartInput { upload: id.clone(), number: PARTS + 1, body, copy: None };
    let refused = world.ask("alice", "photos", "k", ObjectOperation::PutPart(Box::new(beyond)));
    assert_eq!(refused, Err(Refusal::InvalidArgument));
    // A byte more is too much.
    parts.push(put_part(&mut world, "alice", "k", &id, PARTS, last + 1));
    let refused = world.ask("alice", "photos", "k", complete(&id, &parts));
    assert_eq!(refused, Err(Refusal::EntityTooLarge));
    *parts.last_mut().expect("parts") = put_part(&mut world, "alice", "k", &id, PARTS, last);
    let before = world.stored.clone();
    let done = world.ask("alice", "photos", "k", complete(&id, &parts));
    assert!(matches!(done, Ok(ObjectReply::Written { size_bytes: LARGEST, .. })), "{done:?}");
    let is_new = |(place, encoded): (_, &[u8])| before.get(place).is_none_or(|old| old.encoded() != encoded);
    let written = world.stored.iter().filter(|(place, value)| is_new((*place, value.encoded()))).count();
    assert!(written <= 6, "{written} rows were written");
    assert!(before.keys().all(|place| world.stored.contains_key(place)), "a row is gone");
    assert_eq!(usage(&mut world, "photos"), (1, LARGEST));
    // Deleted, it takes all rows and bodies along.
    assert!(world.ask("alice", "photos", "k", delete(None)).is_ok());
    world.deliver();
    assert_eq!(usage(&mut world, "photos"), (0, 0));
    // Those of its parts, and of the part that was replaced. The front lets go of one that was refused.
    assert_eq!(world.released.len(), usize::from(PARTS) + 1);
    assert!(world.stored.keys().all(|place| place.0 != UPLOAD), "rows of parts are left");
}

#[test]
pub fn a_part_is_read_with_its_own_checksum() {
    let mut world = World::default();
    world.bucket("alice", "photos");
    let algorithm = ChecksumAlgorithm::Crc32;
    let input = UploadInput { checksum: Some((algorithm, None)), ..UploadInput::default() };
    let begun = world.ask("alice", "photos", "k", ObjectOperation::CreateUpload(Box::new(input)));
    let Ok(ObjectReply::Upload { id, .. }) = begun else { panic!("{begun:?}") };
    let checksum = |byte| Checksum { algorithm, kind: ChecksumKind::FullObject, value: vec![byte; 4] };
    // The numbers of parts have a gap: the second part of the object has the number 3.
    let parts = [(1, 5 * MIB), (3, 7)].map(|(number, length)| {
        let mut body = world.body(length);
        body.digests.checksums.push(checksum(number as u8));
        let part = PartInput { upload: id.clone(), number, body, copy: None };
        match world.ask("alice", "photos", "k", ObjectOperation::PutPart(Box::new(part))) {
            Ok(ObjectReply::Written { etag, .. }) => {
                CompletePart { number, etag, checksum: Some(checksum(number as u8)) }
            }
            other => panic!("{other:?}"),
        }
    });
    assert!(world.ask("alice", "photos", "k", complete(&id, &parts)).is_ok());
    let read = |world: &mut World, number| {
        let conditions = ReadConditions { part_number: Some(number), ..ReadConditions::default() };
        match world.ask("alice", "photos", "k", ObjectOperation::Get(conditions)) {
            Ok(ObjectReply::Object { info, .. }) => Ok(info.part.map(|part| (part.offset, part.checksum))),
            other => other.map(|_| None),
        }
    };
    assert_eq!(read(&mut world, 1), Ok(Some((0, Some(checksum(1))))));
    assert_eq!(read(&mut world, 2), Ok(Some((5 * MIB, Some(checksum(3))))));
    assert_eq!(read(&mut world, 3), Err(Refusal::InvalidPart));
}

#[test]
pub fn a_part_has_the_checksum_of_its_upload_or_is_refused() {
    let mut world = World::default();
    world.bucket("alice", "photos");
    let input = UploadInput { checksum: Some((ChecksumAlgorithm::Sha1, None)), ..UploadInput::default() };
    let begun = world.ask("alice", "photos", "k", ObjectOperation::CreateUpload(Box::new(input)));
    let Ok(ObjectReply::Upload { id, .. }) = begun else { panic!("{begun:?}") };
    for (first, expected) in
        [(ChecksumAlgorithm::Crc32, Err(Refusal::InvalidRequest)), (ChecksumAlgorithm::Sha1, Ok(()))]
    {
        let mut body = world.body(5);
        // The server may know more checksums than the one that the client gave, which is the first.
        for algorithm in [first, ChecksumAlgorithm::Sha256] {
            let checksum = Checksum { algorithm, kind: ChecksumKind::FullObject, value: vec![1; 4] };
            body.digests.checksums.push(checksum);
        }
        let part = PartInput { upload: id.clone(), number: 1, body, copy: None };
        let reply = world.ask("alice", "photos", "k", ObjectOperation::PutPart(Box::new(part)));
        assert_eq!(reply.map(drop), expected, "{first:?}");
    }
}

#[test]
pub fn uploads_under_way_go_when_aborted_and_with_their_bucket() {
    let mut world = World::default();
    world.bucket("alice", "photos");
    let aborted = begin(&mut world, "alice", "k");
    put_part(&mut world, "alice", "k", &aborted, 1, 5);
    let abort = ObjectOperation::AbortUpload { upload: aborted };
    assert_eq!(world.ask("alice", "photos", "k", abort.clone()), Ok(ObjectReply::Done));
    assert_eq!(world.ask("alice", "photos", "k", abort), Err(Refusal::NoSuchUpload));
    assert_eq!(usage(&mut world, "photos"), (0, 0));
    world.check_bodies("photos", &["k"], &[]);
    let left = begin(&mut world, "alice", "k");
    put_part(&mut world, "alice", "k", &left, 1, 5);
    assert_eq!(world.ask("alice", "photos", "", ObjectOperation::DeleteBucket), Ok(ObjectReply::Done));
    world.deliver();
    assert!(world.stored.is_empty(), "{:?}", world.stored);
    assert_eq!(world.released.len(), 2);
}

/// S3 lists the uploads of one key in the order in which they were begun.
#[test]
pub fn uploads_of_one_key_are_listed_in_the_order_of_their_beginning() {
    let mut world = World::default();
    world.bucket("alice", "photos");
    let mut begun = Vec::new();
    for _ in 0..20 {
        begun.push(begin(&mut world, "alice", "k"));
        world.now_ms += 1;
    }
    let distinct: std::collections::BTreeSet<_> = begun.iter().collect();
    assert_eq!(distinct.len(), 20);
    // They are listed in the order of their names.
    assert!(begun.is_sorted(), "{begun:?}");
}

#[test]
pub fn a_suspended_write_over_an_object_of_parts_leaves_no_rows() {
    let mut world = World::default();
    world.bucket("alice", "photos");
    let id = begin(&mut world, "alice", "k");
    let part = put_part(&mut world, "alice", "k", &id, 1, 5);
    assert!(world.ask("alice", "photos", "k", complete(&id, &[part])).is_ok());
    configure(&mut world, "photos", Configuration::Versioning(Versioning::Enabled));
    assert!(world.put("alice", "photos", "k", UploadInput::default()).is_ok());
    configure(&mut world, "photos", Configuration::Versioning(Versioning::Suspended));
    assert!(world.ask("alice", "photos", "k", delete(None)).is_ok());
    world.deliver();
    world.check_bodies("photos", &["k"], &[]);
    assert!(world.stored.keys().all(|place| place.0 != UPLOAD), "rows of parts are left");
}

#[test]
pub fn strangers_get_what_lists_and_policies_give() {
    let mut world = World::default();
    world.bucket("alice", "photos");
    let public = UploadInput { access: AccessInput::Canned(CannedAccess::PublicRead), ..UploadInput::default() };
    assert!(world.put("alice", "photos", "public", public).is_ok());
    assert!(world.put("alice", "photos", "private", UploadInput::default()).is_ok());
    for (who, key, expected) in [
        ("alice", "private", None),
        ("bob", "private", Some(Refusal::AccessDenied)),
        ("", "private", Some(Refusal::AccessDenied)),
        ("bob", "public", None),
        ("", "public", None),
        // Whoever may not list is not told what is there.
        ("alice", "missing", Some(Refusal::NoSuchKey)),
        ("bob", "missing", Some(Refusal::AccessDenied)),
    ] {
        assert_eq!(world.ask(who, "photos", key, get(None)).err(), expected, "{who} {key}");
    }
    for operation in [
        ObjectOperation::List(list("", "", "", 10)),
        ObjectOperation::DeleteBucket,
        ObjectOperation::GetUsage,
        ObjectOperation::SetQuota(None),
        ObjectOperation::CheckWrite { size_bytes: None, write: Box::new(ObjectOperation::Put(Box::default())) },
    ] {
        assert_eq!(world.ask("bob", "photos", "", operation.clone()), Err(Refusal::AccessDenied), "{operation:?}");
    }
    assert_eq!(world.put("bob", "photos", "new", UploadInput::default()), Err(Refusal::AccessDenied));
    assert_eq!(world.ask("bob", "photos", "public", delete(None)), Err(Refusal::AccessDenied));
    let policy = json!({ "Version": "2012-10-17", "Statement": [{
        "Effect": "Allow", "Principal": { "AWS": "bob" }, "Action": ["s3:PutObject", "s3:GetObject"],
        "Resource": "arn:aws:s3:::photos/${aws:username}/*",
    }] });
    configure(&mut world, "photos", Configuration::Policy(policy.to_string()));
    assert!(world.put("bob", "photos", "bob/k", UploadInput::default()).is_ok());
    assert_eq!(world.put("bob", "photos", "carol/k", UploadInput::default()), Err(Refusal::AccessDenied));
    // The writer owns it, so the bucket's owner needs its list.
    assert_eq!(world.ask("alice", "photos", "bob/k", get(None)), Err(Refusal::AccessDenied));
    assert!(world.ask("bob", "photos", "bob/k", get(None)).is_ok());
}

#[test]
pub fn who_began_an_upload_may_abort_it() {
    let mut world = World::default();
    world.bucket("alice", "photos");
    configure(&mut world, "photos", Configuration::Access(AccessInput::Canned(CannedAccess::PublicReadWrite)));
    let id = begin(&mut world, "bob", "k");
    put_part(&mut world, "bob", "k", &id, 1, 5);
    let parts = ObjectOperation::ListParts { upload: id.clone(), after: 0, limit: 10 };
    let abort = ObjectOperation::AbortUpload { upload: id };
    assert_eq!(world.ask("carol", "photos", "k", parts.clone()), Err(Refusal::AccessDenied));
    assert_eq!(world.ask("carol", "photos", "k", abort.clone()), Err(Refusal::AccessDenied));
    assert!(world.ask("bob", "photos", "k", parts).is_ok());
    assert_eq!(world.ask("bob", "photos", "k", abort), Ok(ObjectReply::Done));
    world.check_bodies("photos", &["k"], &[]);
}

#[test]
pub fn locked_versions_stay() {
    let mut world = World::default();
    let create = ObjectOperation::CreateBucket { access: AccessInput::None, object_lock: true, ownership: None };
    assert!(world.ask("alice", "photos", "", create).is_ok());
    let until_ms = world.now_ms + DAY_MS;
    let retention = Some(Retention { mode: RetentionMode::Governance, until_ms });
    let input = UploadInput { retention, ..UploadInput::default() };
    let id = version(world.put("alice", "photos", "k", input));
    let bypassing = |bypass_governance| {
        let version = Some(id.clone());
        ObjectOperation::Delete(DeleteOne { version, bypass_governance, ..DeleteOne::default() })
    };
    let stricter = |bypass_governance| ObjectOperation::PutRetention {
        version: None,
        retention: Some(Retention { mode: RetentionMode::Compliance, until_ms }),
        bypass_governance,
    };
    assert_eq!(world.ask("alice", "photos", "k", bypassing(false)), Err(Refusal::AccessDenied));
    assert_eq!(world.ask("alice", "photos", "k", stricter(false)), Err(Refusal::AccessDenied));
    assert!(world.ask("alice", "photos", "k", stricter(true)).is_ok());
    assert_eq!(world.ask("alice", "photos", "k", bypassing(true)), Err(Refusal::AccessDenied));
    world.now_ms = until_ms;
    assert!(world.ask("alice", "photos", "k", bypassing(false)).is_ok());
    let off = Configuration::Versioning(Versioning::Suspended);
    let off = ObjectOperation::PutConfiguration { configuration: off, is_confirmed: false };
    assert_eq!(world.ask("alice", "photos", "", off), Err(Refusal::InvalidBucketState));
}
