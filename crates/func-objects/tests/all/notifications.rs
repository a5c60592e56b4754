//! Who is told of what happens to objects.

use millrace_api::objects::{
    CompletePart, Configuration, ConfigurationKind, CopyInput, DeleteOne, NotificationConfiguration, NotificationRule,
    ObjectOperation, ObjectReply, PartInput, PutInput, Refusal, Tag, UploadInput, Versioning, WriteConditions,
};
use serde_json::Value;

use super::world::World;

fn rule(events: &str, prefix: &str, suffix: &str) -> NotificationRule {
    NotificationRule {
        id: String::new(),
        app: "shop".to_owned(),
        service: "photos".to_owned(),
        handler: "arrived".to_owned(),
        events: events.split_whitespace().map(str::to_owned).collect(),
        prefix: prefix.to_owned(),
        suffix: suffix.to_owned(),
    }
}

fn put(rules: Vec<NotificationRule>) -> ObjectOperation {
    let configuration = Configuration::Notification(NotificationConfiguration { rules });
    ObjectOperation::PutConfiguration { configuration, is_confirmed: false }
}

fn world_with(rules: Vec<NotificationRule>) -> World {
    let mut world = World::default();
    world.bucket("alice", "photos");
    assert_eq!(world.ask("alice", "photos", "", put(rules)), Ok(ObjectReply::Done));
    world
}

/// The events that handlers were told, each with its key.
fn told(world: &mut World) -> Vec<String> {
    let text = |message: millrace_func::Message| {
        let input: Value = serde_json::from_slice(&message.input).expect("JSON");
        assert_eq!(
            (input["bucket"].as_str(), input["key"].as_str()),
            (Some("photos"), std::str::from_utf8(&message.key).ok())
        );
        format!("{} {}", input["event"].as_str().unwrap_or_default(), input["key"].as_str().unwrap_or_default())
    };
    std::mem::take(&mut world.told).into_iter().map(text).collect()
}

#[test]
pub fn each_change_is_told_once() {
    let mut world = world_with(vec![rule("s3:ObjectCreated:* s3:ObjectRemoved:* s3:ObjectTagging:*", "", "")]);
    assert!(world.put("alice", "photos", "k", UploadInput::default()).is_ok());
    assert_eq!(told(&mut world), ["s3:ObjectCreated:Put k"]);
    let body = world.body(1);
    let copied = PutInput { body, copy: Some(CopyInput::default()), ..PutInput::default() };
    assert!(world.ask("alice", "photos", "copy", ObjectOperation::Put(Box::new(copied))).is_ok());
    assert_eq!(told(&mut world), ["s3:ObjectCreated:Copy copy"]);
    let tags = vec![Tag { key: "a".to_owned(), value: "b".to_owned() }];
    for tags in [tags, vec![]] {
        assert!(world.ask("alice", "photos", "k", ObjectOperation::PutTags { version: None, tags }).is_ok());
    }
    assert_eq!(told(&mut world), ["s3:ObjectTagging:Put k", "s3:ObjectTagging:Delete k"]);
    // What is refused is not told.
    let fresh = WriteConditions { if_none_match: vec!["*".to_owned()], ..WriteConditions::default() };
    let refused = PutInput { conditions: fresh, body: world.body(1), ..PutInput::default() };
    assert!(world.ask("alice", "photos", "k", ObjectOperation::Put(Box::new(refused))).is_err());
    assert_eq!(told(&mut world), [""; 0]);
    let configuration = Configuration::Versioning(Versioning::Enabled);
    let enable = ObjectOperation::PutConfiguration { configuration, is_confirmed: false };
    assert!(world.ask("alice", "photos", "", enable).is_ok());
    let version = Some("null".to_owned());
    let objects = vec![
        ("k".to_owned(), DeleteOne::default()),
        ("copy".to_owned(), DeleteOne { version, ..DeleteOne::default() }),
    ];
    assert!(world.ask("alice", "photos", "", ObjectOperation::DeleteMany { objects }).is_ok());
    world.deliver();
    assert_eq!(told(&mut world), ["s3:ObjectRemoved:DeleteMarkerCreated k", "s3:ObjectRemoved:Delete copy"]);
}

/// Three rules for each of a thousand objects are more messages than one transaction may send.
#[test]
pub fn a_thousand_deletions_are_told_once_each() {
    let mut world = world_with(vec![rule("s3:ObjectRemoved:*", "", ""); 3]);
    let mut keys: Vec<String> = (0..1000).map(|number| format!("k{number:04}")).collect();
    for key in &keys {
        assert!(world.put("alice", "photos", key, UploadInput::default()).is_ok());
    }
    let objects = keys.iter().map(|key| (key.clone(), DeleteOne::default())).collect();
    assert!(world.ask("alice", "photos", "", ObjectOperation::DeleteMany { objects }).is_ok());
    let began_ms = world.now_ms;
    world.now_ms += 5;
    world.deliver();
    let times = world.told.iter().map(|message| serde_json::from_slice::<Value>(&message.input).expect("JSON"));
    assert!(times.map(|input| input["time_ms"].as_u64()).all(|time_ms| time_ms == Some(began_ms)));
    keys = keys.iter().flat_map(|key| vec![format!("s3:ObjectRemoved:Delete {key}"); 3]).collect();
    let mut told = told(&mut world);
    // Each slice tells of its own.
    told.sort();
    assert_eq!(told, keys);
}

#[test]
pub fn only_buckets_that_the_app_allows_have_rules() {
    let mut world = World::default();
    world.bucket("alice", "other");
    let rules = put(vec![rule("s3:ObjectCreated:*", "", "")]);
    assert_eq!(world.ask("alice", "other", "", rules), Err(Refusal::InvalidArgument));
}

#[test]
pub fn an_upload_that_is_completed_twice_is_told_once() {
    let mut world = world_with(vec![rule("s3:ObjectCreated:CompleteMultipartUpload", "", "")]);
    let reply = world.ask("alice", "photos", "k", ObjectOperation::CreateUpload(Box::default()));
    let Ok(ObjectReply::Upload { id: upload, .. }) = reply else { panic!("{reply:?}") };
    let part = PartInput { upload: upload.clone(), number: 1, body: world.body(5), copy: None };
    let reply = world.ask("alice", "photos", "k", ObjectOperation::PutPart(Box::new(part)));
    let Ok(ObjectReply::Written { etag, .. }) = reply else { panic!("{reply:?}") };
    let complete = ObjectOperation::CompleteUpload {
        upload,
        parts: vec![CompletePart { number: 1, etag, checksum: None }],
        checksum: None,
        size_bytes: None,
        conditions: WriteConditions::default(),
    };
    let first = world.ask("alice", "photos", "k", complete.clone());
    assert_eq!(world.ask("alice", "photos", "k", complete), first);
    assert_eq!(told(&mut world), ["s3:ObjectCreated:CompleteMultipartUpload k"]);
}

#[test]
pub fn rules_choose_by_event_and_key() {
    let mut world = world_with(vec![rule("s3:ObjectCreated:Put", "in/", ".jpg"), rule("s3:ObjectRemoved:*", "", "")]);
    for key in ["in/a.jpg", "in/a.png", "out/a.jpg"] {
        assert!(world.put("alice", "photos", key, UploadInput::default()).is_ok());
    }
    assert_eq!(told(&mut world), ["s3:ObjectCreated:Put in/a.jpg"]);
    assert!(world.ask("alice", "photos", "out/a.jpg", ObjectOperation::Delete(DeleteOne::default())).is_ok());
    assert_eq!(told(&mut world), ["s3:ObjectRemoved:Delete out/a.jpg"]);
    let none = ObjectOperation::DeleteConfiguration(ConfigurationKind::Notification);
    assert!(world.ask("alice", "photos", "", none).is_ok());
    assert!(world.put("alice", "photos", "in/b.jpg", UploadInput::default()).is_ok());
    assert_eq!(told(&mut world), [""; 0]);
}

#[test]
pub fn an_app_that_is_gone_keeps_no_one_from_writing() {
    let mut world = world_with(vec![rule("s3:ObjectCreated:*", "", "")]);
    world.has_shop = false;
    assert!(world.put("alice", "photos", "k", UploadInput::default()).is_ok());
    assert_eq!(told(&mut world), [""; 0]);
}

#[test]
pub fn rules_are_checked() {
    let mut world = world_with(vec![]);
    let with = |change: fn(&mut NotificationRule)| {
        let mut rule = rule("s3:ObjectCreated:*", "", "");
        change(&mut rule);
        vec![rule]
    };
    for (rules, is_valid) in [
        (with(|_| ()), true),
        (with(|rule| rule.events = vec!["s3:ObjectCreated:Put".to_owned()]), true),
        (with(|rule| rule.events = vec![]), false),
        (with(|rule| rule.events = vec!["s3:Object*".to_owned()]), false),
        (with(|rule| rule.events = vec!["s3:Replication:*".to_owned()]), false),
        (with(|rule| rule.handler = "other".to_owned()), false),
        (with(|rule| rule.handler = "_read".to_owned()), false),
        (with(|rule| rule.handler = "count".to_owned()), false),
        (with(|rule| (rule.app, rule.service) = ("objects".to_owned(), "upload".to_owned())), false),
        (with(|rule| rule.app = "records".to_owned()), false),
        (vec![rule("s3:ObjectCreated:*", "", ""); 101], false),
    ] {
        let expected = if is_valid { Ok(ObjectReply::Done) } else { Err(Refusal::InvalidArgument) };
        assert_eq!(world.ask("alice", "photos", "", put(rules.clone())), expected, "{:?}", rules.first());
    }
}
