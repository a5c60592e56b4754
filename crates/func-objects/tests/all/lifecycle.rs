//! Lifecycle rules at work: what vanishes, day by day, and what stays.

use millrace_api::objects::{
    AccessInput, Configuration, ConfigurationKind, Expiry, LifecycleConfiguration, LifecycleFilter, LifecycleRule,
    ListRequest, ObjectOperation, ObjectReply, ReadConditions, Refusal, Retention, RetentionMode, UploadInput,
    Versioning,
};

use super::world::{DAY_MS, UPLOAD, World, slices};

fn rule(change: impl FnOnce(&mut LifecycleRule)) -> LifecycleRule {
    let mut rule = LifecycleRule { id: "r".to_owned(), is_enabled: true, ..LifecycleRule::default() };
    change(&mut rule);
    rule
}

fn set(world: &mut World, configuration: Configuration) {
    let put = ObjectOperation::PutConfiguration { configuration, is_confirmed: false };
    assert_eq!(world.ask("alice", "photos", "", put), Ok(ObjectReply::Done));
}

fn set_rules(world: &mut World, rules: Vec<LifecycleRule>) {
    set(world, Configuration::Lifecycle(LifecycleConfiguration { rules }));
    world.deliver();
}

/// Lets days pass, each with the bucket's message.
fn pass(world: &mut World, days: u64) {
    for _ in 0..days {
        world.now_ms += DAY_MS;
        world.deliver();
    }
}

fn keys(world: &mut World) -> Vec<String> {
    let list = ListRequest { limit: 1000, ..ListRequest::default() };
    match world.ask("alice", "photos", "", ObjectOperation::List(list)) {
        Ok(ObjectReply::Objects(page)) => page.items.into_iter().map(|item| item.key).collect(),
        other => panic!("{other:?}"),
    }
}

/// Each version's key, and whether it is a delete marker.
fn versions(world: &mut World) -> Vec<(String, bool)> {
    let list = ListRequest { limit: 1000, ..ListRequest::default() };
    match world.ask("alice", "photos", "", ObjectOperation::ListVersions(list)) {
        Ok(ObjectReply::Versions(page)) => {
            page.items.into_iter().map(|item| (item.object.key, item.is_delete_marker)).collect()
        }
        other => panic!("{other:?}"),
    }
}

#[test]
pub fn objects_vanish_when_their_days_are_over() {
    let mut world = World::default();
    world.bucket("alice", "photos");
    let names: Vec<String> = (0..500).map(|number| format!("old/{number:03}")).collect();
    for key in names.iter().map(String::as_str).chain(["new/1"]) {
        assert!(world.put("alice", "photos", key, UploadInput::default()).is_ok());
    }
    let filter = LifecycleFilter { prefix: Some("old/".to_owned()), ..LifecycleFilter::default() };
    let rule = rule(|rule| (rule.expiration, rule.filter) = (Some(Expiry::Days(2)), filter));
    set_rules(&mut world, vec![rule]);
    let Ok(ObjectReply::Object { info, .. }) =
        world.ask("alice", "photos", "old/000", ObjectOperation::Get(ReadConditions::default()))
    else {
        panic!("it is there")
    };
    let midnight_ms = world.now_ms - world.now_ms % DAY_MS;
    assert_eq!(info.expires, Some((midnight_ms + 3 * DAY_MS, "r".to_owned())));
    pass(&mut world, 2);
    assert_eq!(keys(&mut world).len(), 501);
    pass(&mut world, 2);
    assert_eq!(keys(&mut world), ["new/1"]);
    let usage = world.ask("alice", "photos", "", ObjectOperation::GetUsage);
    assert!(matches!(usage, Ok(ObjectReply::Usage(usage)) if usage.objects == 1 && usage.size_bytes == 10));
    assert_eq!(world.released.len(), 500);
    // One message a day, whatever happened.
    assert_eq!(world.messages.len(), slices(), "each slice has its own");
}

#[test]
pub fn older_rules_and_buckets_that_are_gone_end_their_messages() {
    let mut world = World::default();
    world.bucket("alice", "photos");
    let days = |days| vec![rule(|rule| rule.expiration = Some(Expiry::Days(days)))];
    set_rules(&mut world, days(1));
    set_rules(&mut world, days(5));
    assert!(world.put("alice", "photos", "k", UploadInput::default()).is_ok());
    pass(&mut world, 4);
    assert_eq!((keys(&mut world).len(), world.messages.len()), (1, slices()));
    let none = ObjectOperation::DeleteConfiguration(ConfigurationKind::Lifecycle);
    assert!(world.ask("alice", "photos", "", none).is_ok());
    pass(&mut world, 4);
    assert_eq!((keys(&mut world).len(), world.messages.len()), (1, 0));
    set_rules(&mut world, days(1));
    assert!(world.ask("alice", "photos", "k", ObjectOperation::Delete(Default::default())).is_ok());
    assert!(world.ask("alice", "photos", "", ObjectOperation::DeleteBucket).is_ok());
    pass(&mut world, 2);
    assert!(world.messages.is_empty() && world.stored.is_empty());
}

#[test]
pub fn versions_vanish_and_locked_ones_stay() {
    let mut world = World::default();
    let create = ObjectOperation::CreateBucket { access: AccessInput::None, object_lock: true, ownership: None };
    assert!(world.ask("alice", "photos", "", create).is_ok());
    let until_ms = world.now_ms + 30 * DAY_MS;
    let retention = Some(Retention { mode: RetentionMode::Governance, until_ms });
    let locked = UploadInput { retention, ..UploadInput::default() };
    assert!(world.put("alice", "photos", "locked", locked).is_ok());
    for _ in 0..3 {
        assert!(world.put("alice", "photos", "free", UploadInput::default()).is_ok());
    }
    let all = |rule: &mut LifecycleRule| (rule.expiration, rule.noncurrent_days) = (Some(Expiry::Days(1)), Some(1));
    let markers = rule(|rule| (rule.id, rule.expired_object_delete_marker) = ("m".to_owned(), true));
    set_rules(&mut world, vec![rule(all), markers]);
    pass(&mut world, 2);
    let marker = |key: &str| (key.to_owned(), true);
    let kept = |key: &str| (key.to_owned(), false);
    // Current ones hide behind a marker first.
    assert_eq!(versions(&mut world), [marker("free"), kept("free"), marker("locked"), kept("locked")]);
    pass(&mut world, 4);
    assert_eq!(versions(&mut world), [marker("locked"), kept("locked")]);
    pass(&mut world, 30);
    assert_eq!(versions(&mut world), []);
    world.check_bodies("photos", &["free", "locked"], &[]);
    assert_eq!(world.ask("alice", "photos", "", ObjectOperation::DeleteBucket), Ok(ObjectReply::Done));
}

#[test]
pub fn uploads_that_nobody_completes_are_aborted() {
    let mut world = World::default();
    world.bucket("alice", "photos");
    set_rules(&mut world, vec![rule(|rule| rule.abort_upload_days = Some(1))]);
    let reply = world.ask("alice", "photos", "k", ObjectOperation::CreateUpload(Box::default()));
    let Ok(ObjectReply::Upload { id, expires, .. }) = reply else { panic!("{reply:?}") };
    let midnight_ms = world.now_ms - world.now_ms % DAY_MS;
    assert_eq!(expires, Some((midnight_ms + 2 * DAY_MS, "r".to_owned())));
    pass(&mut world, 1);
    assert!(world.stored.keys().any(|place| place.0 == UPLOAD));
    pass(&mut world, 2);
    assert!(world.stored.keys().all(|place| place.0 != UPLOAD));
    let parts = ObjectOperation::ListParts { upload: id, after: 0, limit: 10 };
    assert_eq!(world.ask("alice", "photos", "k", parts), Err(Refusal::NoSuchUpload));
}

#[test]
pub fn a_suspended_bucket_replaces_its_null_version_by_a_marker() {
    let mut world = World::default();
    world.bucket("alice", "photos");
    set(&mut world, Configuration::Versioning(Versioning::Suspended));
    assert!(world.put("alice", "photos", "k", UploadInput::default()).is_ok());
    set_rules(&mut world, vec![rule(|rule| rule.expiration = Some(Expiry::Days(1)))]);
    pass(&mut world, 2);
    assert_eq!(versions(&mut world), [("k".to_owned(), true)]);
    world.check_bodies("photos", &["k"], &[]);
}
