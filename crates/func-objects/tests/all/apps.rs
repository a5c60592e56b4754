//! Functions of apps, and the buckets that apps own.

use bytes::Bytes;
use millrace_api::objects::{
    Configuration, ObjectOperation, ObjectReply, ObjectRequest, PutInput, ReadConditions, Refusal, Requester, Slices,
    UploadInput, WrittenBody, app_id,
};
use millrace_base::{ErrorCode, limits};
use serde_json::json;

use crate::world::{OBJECT, World};

type Read = Result<(ObjectReply, Bytes), Refusal>;

fn ask(world: &mut World, app: &str, key: &str, operation: ObjectOperation, body: &'static [u8]) -> Read {
    let id = app_id(app);
    let requester = Requester::function(&id);
    let body = Bytes::from_static(body);
    world.ask_with_body(&ObjectRequest { requester, bucket: "photos", key, operation, body })
}

fn get(world: &mut World, app: &str, key: &str) -> Result<Bytes, Refusal> {
    ask(world, app, key, ObjectOperation::GetWhole(ReadConditions::default()), b"").map(|(_, body)| body)
}

fn put(world: &mut World, app: &str, key: &str, body: &'static [u8]) -> Result<ObjectReply, Refusal> {
    let length = body.len() as u64;
    let put = PutInput { body: WrittenBody { length, ..WrittenBody::default() }, ..PutInput::default() };
    ask(world, app, key, ObjectOperation::Put(Box::new(put)), body).map(|(reply, _)| reply)
}

fn give(world: &mut World, who: &str, app: Option<&str>) -> Result<ObjectReply, Refusal> {
    world.ask(who, "photos", "", ObjectOperation::SetApp(app.map(str::to_owned)))
}

#[test]
pub fn an_app_uses_its_own_buckets_and_no_others() {
    let mut world = World::default();
    world.bucket("alice", "photos");
    assert_eq!(put(&mut world, "shop", "k", b"v"), Err(Refusal::AccessDenied));
    assert_eq!(give(&mut world, "alice", Some("shop")), Err(Refusal::AccessDenied), "the administrator gives it");
    assert_eq!(give(&mut world, "system", Some("objects")), Err(Refusal::InvalidArgument));
    assert_eq!(give(&mut world, "system", Some("shop")), Ok(ObjectReply::Done));
    let Ok(ObjectReply::Written { etag, checksum, .. }) = put(&mut world, "shop", "k", b"hello") else {
        panic!("the bucket is its own");
    };
    assert_eq!(etag, "5d41402abc4b2a76b9719d911017c592", "the MD5 of hello");
    assert!(checksum.is_some());
    assert_eq!(get(&mut world, "shop", "k"), Ok(Bytes::from_static(b"hello")));
    // The bucket's owner owns what the app writes.
    let Ok(ObjectReply::Object { info, .. }) =
        world.ask("alice", "photos", "k", ObjectOperation::Get(ReadConditions::default()))
    else {
        panic!("alice reads it");
    };
    assert_eq!(info.owner, "alice");
    assert_eq!(get(&mut world, "other", "k"), Err(Refusal::AccessDenied));
    // What users put there, it reads too; settings are not its business.
    world.put("alice", "photos", "large", UploadInput::default()).expect("hers");
    assert_eq!(get(&mut world, "shop", "large"), Ok(Bytes::from_static(b"1")));
    assert_eq!(give(&mut world, "system", None), Ok(ObjectReply::Done));
    assert_eq!(get(&mut world, "shop", "k"), Err(Refusal::AccessDenied));
}

#[test]
pub fn a_policy_lets_an_app_in_and_keeps_it_out() {
    let mut world = World::default();
    world.bucket("alice", "photos");
    world.put("alice", "photos", "k", UploadInput::default()).expect("hers");
    let policy = |effect: &str| {
        let statement = json!({
            "Effect": effect, "Principal": { "App": "shop" }, "Action": "s3:GetObject",
            "Resource": "arn:aws:s3:::photos/*",
        });
        let text = json!({ "Version": "2012-10-17", "Statement": [statement] }).to_string();
        ObjectOperation::PutConfiguration { configuration: Configuration::Policy(text), is_confirmed: true }
    };
    world.ask("alice", "photos", "", policy("Allow")).expect("hers");
    assert!(get(&mut world, "shop", "k").is_ok());
    assert_eq!(get(&mut world, "other", "k"), Err(Refusal::AccessDenied));
    assert_eq!(put(&mut world, "shop", "k", b"v"), Err(Refusal::AccessDenied));
    // A user of that name is somebody else.
    assert_eq!(
        world.ask("shop", "photos", "k", ObjectOperation::Get(ReadConditions::default())).err(),
        Some(Refusal::AccessDenied)
    );
    give(&mut world, "system", Some("shop")).expect("given");
    assert!(put(&mut world, "shop", "k2", b"v").is_ok());
    world.ask("alice", "photos", "", policy("Deny")).expect("hers");
    assert_eq!(get(&mut world, "shop", "k"), Err(Refusal::AccessDenied));
    assert!(put(&mut world, "shop", "k2", b"v").is_ok(), "only reads are denied");
}

/// Why a read fails, other than by a refusal.
fn failure(world: &mut World, key: &str) -> Option<ErrorCode> {
    let (id, operation) = (app_id("shop"), ObjectOperation::GetWhole(ReadConditions::default()));
    let requester = Requester::function(&id);
    let request = ObjectRequest { requester, bucket: "photos", key, operation, body: Bytes::new() };
    world.call(OBJECT, 0, &request.target(&Slices::default()).key, &request.to_bytes()).err().map(|error| error.code)
}

#[test]
pub fn a_read_sees_one_object_whole() {
    let mut world = World::default();
    world.bucket("alice", "photos");
    give(&mut world, "system", Some("shop")).expect("given");
    let replace = |world: &mut World| {
        world.put("alice", "photos", "k", UploadInput::default()).expect("hers");
    };
    replace(&mut world);
    world.before_read = Some(replace);
    assert_eq!(get(&mut world, "shop", "k"), Ok(Bytes::from_static(b"2")), "the new one");
    // A body that is still the object's and cannot be read is an error, and is not tried for ever.
    world.released.insert(2);
    assert_eq!(failure(&mut world, "k"), Some(ErrorCode::Internal));
    // A longer one is refused before it is read.
    let put = PutInput { body: world.body(limits::OBJECT_READ_BYTES as u64 + 1), ..PutInput::default() };
    world.ask("alice", "photos", "long", ObjectOperation::Put(Box::new(put))).expect("hers");
    assert_eq!(failure(&mut world, "long"), Some(ErrorCode::SizeLimit));
}
