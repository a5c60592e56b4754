//! Buckets with several slices: nobody sees that they have them.

use std::collections::BTreeMap;

use millrace_api::objects::{
    CompletePart, Configuration, ConfigurationKind, DeleteOne, Expiry, LifecycleConfiguration, LifecycleRule,
    ListRequest, ObjectOperation, ObjectReply, PartInput, PutInput, ReadConditions, Refusal, Slices, Tag, UploadInput,
    Versioning, WriteConditions,
};
use millrace_base::Value;
use proptest::prelude::*;

use super::world::{Answered, BUCKET, OBJECT, World, with_slices};
use super::{apps, engine, lifecycle, lists, notifications};

#[test]
fn what_holds_for_a_bucket_holds_for_one_with_slices() {
    with_slices(3, || {
        apps::an_app_uses_its_own_buckets_and_no_others();
        apps::a_policy_lets_an_app_in_and_keeps_it_out();
        engine::small_objects_come_back_with_their_content();
        engine::versions_come_and_go();
        engine::uploads_become_objects_and_leave_nothing_behind();
        engine::a_part_is_read_with_its_own_checksum();
        engine::a_part_has_the_checksum_of_its_upload_or_is_refused();
        engine::uploads_under_way_go_when_aborted_and_with_their_bucket();
        engine::a_suspended_write_over_an_object_of_parts_leaves_no_rows();
        engine::strangers_get_what_lists_and_policies_give();
        engine::who_began_an_upload_may_abort_it();
        engine::locked_versions_stay();
        lifecycle::objects_vanish_when_their_days_are_over();
        lifecycle::older_rules_and_buckets_that_are_gone_end_their_messages();
        lifecycle::versions_vanish_and_locked_ones_stay();
        lifecycle::uploads_that_nobody_completes_are_aborted();
        lifecycle::a_suspended_bucket_replaces_its_null_version_by_a_marker();
        lists::pages_follow_the_table();
        lists::a_folder_whose_objects_are_deleted_is_not_shown();
        lists::pages_of_one_objects_versions_go_on_behind_any_of_them();
        notifications::each_change_is_told_once();
        notifications::a_thousand_deletions_are_told_once_each();
        notifications::an_upload_that_is_completed_twice_is_told_once();
        notifications::rules_choose_by_event_and_key();
        notifications::an_app_that_is_gone_keeps_no_one_from_writing();
    });
}

/// What somebody does with a bucket.
#[derive(Clone, Debug)]
enum Act {
    Put { key: usize, size_bytes: u64, is_new: bool },
    Delete { key: usize },
    DeleteVersion { which: usize },
    DeleteMany { keys: Vec<usize> },
    Tag { key: usize },
    Get { key: usize },
    CheckWrite { key: usize, size_bytes: u64 },
    Begin { key: usize },
    PutPart { which: usize, number: u16, size_bytes: u64 },
    Complete { which: usize, number: u16 },
    Abort { which: usize },
    KeepVersions(bool),
    Quota(Option<u64>),
    List { kind: u8, prefix: usize, after: usize, limit: u16, has_delimiter: bool },
    Usage,
    DeleteBucket,
}

const KEYS: [&str; 10] = ["a", "a/b", "a/c", "a/c/d", "b", "b/", "b/x", "c", "é/1", "z"];
const PREFIXES: [&str; 5] = ["", "a", "a/", "b/", "x"];

fn act() -> impl Strategy<Value = Act> {
    let key = || 0..KEYS.len();
    prop_oneof![
        8 => (key(), 1_u64..40, any::<bool>())
            .prop_map(|(key, size_bytes, is_new)| Act::Put { key, size_bytes, is_new }),
        3 => key().prop_map(|key| Act::Delete { key }),
        2 => (0..8_usize).prop_map(|which| Act::DeleteVersion { which }),
        2 => prop::collection::vec(key(), 0..6).prop_map(|keys| Act::DeleteMany { keys }),
        1 => key().prop_map(|key| Act::Tag { key }),
        2 => key().prop_map(|key| Act::Get { key }),
        1 => (key(), 0_u64..60).prop_map(|(key, size_bytes)| Act::CheckWrite { key, size_bytes }),
        2 => key().prop_map(|key| Act::Begin { key }),
        3 => (0..4_usize, 1..3_u16, 1_u64..30)
            .prop_map(|(which, number, size_bytes)| Act::PutPart { which, number, size_bytes }),
        2 => (0..4_usize, 1..3_u16).prop_map(|(which, number)| Act::Complete { which, number }),
        1 => (0..4_usize).prop_map(|which| Act::Abort { which }),
        1 => any::<bool>().prop_map(Act::KeepVersions),
        2 => prop::option::weighted(0.8, 0_u64..200).prop_map(Act::Quota),
        4 => (0..3_u8, 0..PREFIXES.len(), 0..KEYS.len() + 1, 0..5_u16, any::<bool>()).prop_map(
            |(kind, prefix, after, limit, has_delimiter)| Act::List { kind, prefix, after, limit, has_delimiter }
        ),
        2 => Just(Act::Usage),
        1 => Just(Act::DeleteBucket),
    ]
}

/// Somebody at work, and what they remember.
struct Actor {
    world: World,
    versions: Vec<(usize, String)>,
    uploads: Vec<(usize, String)>,
    etags: BTreeMap<(String, u16), String>,
}

impl Actor {
    fn new(slices: u16) -> Self {
        let mut world = World::default();
        world.bucket("alice", "photos");
        world.spread("photos", slices);
        Self { world, versions: Vec::new(), uploads: Vec::new(), etags: BTreeMap::new() }
    }

    fn upload(&self, which: usize) -> (&'static str, String) {
        let (key, upload) = self.uploads.get(which).cloned().unwrap_or((0, "none".to_owned()));
        (KEYS[key], upload)
    }

    fn act(&mut self, act: &Act) -> Answered {
        self.world.now_ms += 1;
        let (who, key, operation) = match act {
            Act::Put { key, size_bytes, is_new } => {
                let if_none_match = if *is_new { vec!["*".to_owned()] } else { Vec::new() };
                let conditions = WriteConditions { if_none_match, ..WriteConditions::default() };
                let put = PutInput { body: self.world.body(*size_bytes), conditions, ..PutInput::default() };
                ("alice", KEYS[*key], ObjectOperation::Put(Box::new(put)))
            }
            Act::Delete { key } => ("alice", KEYS[*key], ObjectOperation::Delete(DeleteOne::default())),
            Act::DeleteVersion { which } => {
                let (key, version) = self.versions.get(*which).cloned().unwrap_or((0, "null".to_owned()));
                let one = DeleteOne { version: Some(version), ..DeleteOne::default() };
                ("alice", KEYS[key], ObjectOperation::Delete(one))
            }
            Act::DeleteMany { keys } => {
                let objects = keys.iter().map(|key| (KEYS[*key].to_owned(), DeleteOne::default())).collect();
                ("alice", "", ObjectOperation::DeleteMany { objects })
            }
            Act::Tag { key } => {
                let tags = vec![Tag { key: "k".to_owned(), value: "v".to_owned() }];
                ("alice", KEYS[*key], ObjectOperation::PutTags { version: None, tags })
            }
            Act::Get { key } => ("alice", KEYS[*key], ObjectOperation::Get(ReadConditions::default())),
            Act::CheckWrite { key, size_bytes } => {
                let write = Box::new(ObjectOperation::Put(Box::default()));
                ("alice", KEYS[*key], ObjectOperation::CheckWrite { size_bytes: Some(*size_bytes), write })
            }
            Act::Begin { key } => ("alice", KEYS[*key], ObjectOperation::CreateUpload(Box::default())),
            Act::PutPart { which, number, size_bytes } => {
                let body = self.world.body(*size_bytes);
                let (key, upload) = self.upload(*which);
                let part = PartInput { upload, number: *number, body, copy: None };
                ("alice", key, ObjectOperation::PutPart(Box::new(part)))
            }
            Act::Complete { which, number } => {
                let (key, upload) = self.upload(*which);
                let etag = self.etags.get(&(upload.clone(), *number)).cloned().unwrap_or_default();
                let parts = vec![CompletePart { number: *number, etag, checksum: None }];
                let conditions = WriteConditions::default();
                let complete =
                    ObjectOperation::CompleteUpload { upload, parts, checksum: None, size_bytes: None, conditions };
                ("alice", key, complete)
            }
            Act::Abort { which } => {
                let (key, upload) = self.upload(*which);
                ("alice", key, ObjectOperation::AbortUpload { upload })
            }
            Act::KeepVersions(are_kept) => {
                let versioning = if *are_kept { Versioning::Enabled } else { Versioning::Suspended };
                let configuration = Configuration::Versioning(versioning);
                ("alice", "", ObjectOperation::PutConfiguration { configuration, is_confirmed: false })
            }
            Act::Quota(bytes) => ("system", "", ObjectOperation::SetQuota(*bytes)),
            Act::List { kind, prefix, after, limit, has_delimiter } => {
                let delimiter = if *has_delimiter { "/".to_owned() } else { String::new() };
                let after = KEYS.get(*after).copied().unwrap_or_default().to_owned();
                let prefix = PREFIXES[*prefix].to_owned();
                let request = ListRequest { prefix, delimiter, after, limit: *limit, ..ListRequest::default() };
                let kinds = [ObjectOperation::List, ObjectOperation::ListVersions, ObjectOperation::ListUploads];
                ("alice", "", kinds[usize::from(*kind)](request))
            }
            Act::Usage => ("alice", "", ObjectOperation::GetUsage),
            Act::DeleteBucket => ("alice", "", ObjectOperation::DeleteBucket),
        };
        let answered = self.world.ask(who, "photos", key, operation);
        self.note(act, &answered);
        self.world.deliver();
        answered
    }

    fn note(&mut self, act: &Act, answered: &Answered) {
        match (act, answered) {
            (Act::Put { key, .. }, Ok(ObjectReply::Written { version: Some(id), .. })) => {
                self.versions.push((*key, id.clone()));
            }
            (Act::Begin { key }, Ok(ObjectReply::Upload { id, .. })) => self.uploads.push((*key, id.clone())),
            (Act::PutPart { which, number, .. }, Ok(ObjectReply::Written { etag, .. })) => {
                self.etags.insert((self.upload(*which).1, *number), etag.clone());
            }
            _ => {}
        }
    }
}

/// What can be compared: names of delete markers of one request depend on the order in which its slices come.
fn comparable(answered: Answered) -> Answered {
    match answered {
        Ok(ObjectReply::DeletedMany(mut all)) => {
            for one in all.iter_mut().filter_map(|one| one.result.as_mut().ok()) {
                one.version = None;
            }
            Ok(ObjectReply::DeletedMany(all))
        }
        Ok(ObjectReply::Versions(mut page)) => {
            for item in &mut page.items {
                if item.is_delete_marker {
                    item.version.clear();
                }
            }
            if let Some((_, id)) = &mut page.next {
                id.clear();
            }
            Ok(ObjectReply::Versions(page))
        }
        other => other,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn nobody_sees_how_many_slices_a_bucket_has(
        acts in prop::collection::vec(act(), 1..60),
        slices in 2_u16..6,
    ) {
        let (mut one, mut many) = (Actor::new(1), Actor::new(slices));
        for act in &acts {
            let (expected, answered) = (one.act(act), many.act(act));
            prop_assert_eq!(comparable(answered), comparable(expected), "{:?}", act);
        }
        prop_assert_eq!(&one.world.released, &many.world.released);
    }
}

fn put(world: &mut World, key: &str) -> Answered {
    world.put("alice", "photos", key, UploadInput::default())
}

/// Fields of each of the bucket's entities.
fn slices_of(world: &World) -> BTreeMap<Vec<u8>, BTreeMap<Vec<u8>, Value>> {
    let mut slices: BTreeMap<Vec<u8>, BTreeMap<Vec<u8>, Value>> = BTreeMap::new();
    for ((service, key, field), value) in &world.stored {
        if *service == BUCKET {
            slices.entry(key.clone()).or_default().insert(field.clone(), value.clone());
        }
    }
    slices
}

#[test]
fn every_slice_has_the_settings() {
    let mut world = World::default();
    world.bucket("alice", "photos");
    world.spread("photos", 4);
    let rule = LifecycleRule { id: "r".to_owned(), is_enabled: true, ..LifecycleRule::default() };
    let rule = LifecycleRule { expiration: Some(Expiry::Days(1)), ..rule };
    let policy = r#"{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":"*","Action":"s3:GetObject","Resource":"arn:aws:s3:::photos/*"}]}"#;
    let put = |configuration| ObjectOperation::PutConfiguration { configuration, is_confirmed: true };
    let changes = [
        ("alice", put(Configuration::Policy(policy.to_owned()))),
        ("alice", put(Configuration::Lifecycle(LifecycleConfiguration { rules: vec![rule] }))),
        ("alice", put(Configuration::Versioning(Versioning::Enabled))),
        ("system", ObjectOperation::SetQuota(Some(1 << 30))),
        ("system", ObjectOperation::SetApp(Some("shop".to_owned()))),
        ("alice", ObjectOperation::DeleteConfiguration(ConfigurationKind::Policy)),
    ];
    for (who, change) in changes {
        assert_eq!(world.ask(who, "photos", "", change.clone()), Ok(ObjectReply::Done));
        let slices = slices_of(&world);
        assert_eq!(slices.len(), 4);
        let first = &slices[&b"{photos}"[..]];
        assert!(slices.values().all(|slice| slice == first), "{change:?}: {slices:?}");
    }
}

#[test]
fn objects_and_their_bodies_lie_in_all_slices() {
    let mut world = World::default();
    world.bucket("alice", "photos");
    world.spread("photos", 3);
    for number in 0..60 {
        assert!(put(&mut world, &number.to_string()).is_ok());
    }
    let slices = Slices::spread("photos", 3, 64);
    for place in std::iter::once("photos".to_owned()).chain(slices.others("photos")) {
        let prefix = format!("{{{place}}}").into_bytes();
        let objects = world.stored.keys().filter(|(service, key, _)| *service == OBJECT && key.starts_with(&prefix));
        assert!((8..35).contains(&objects.count()), "{place}");
    }
}

#[test]
fn slices_change_while_a_bucket_is_empty() {
    let mut world = World::default();
    world.bucket("alice", "photos");
    let spread = |world: &mut World, who, count| world.ask(who, "photos", "", ObjectOperation::SetSlices(count));
    assert_eq!(spread(&mut world, "alice", 2), Err(Refusal::AccessDenied));
    for wrong in [0, 17] {
        assert_eq!(spread(&mut world, "system", wrong), Err(Refusal::InvalidArgument));
    }
    world.spread("photos", 16);
    assert_eq!(slices_of(&world).len(), 16);
    // Not in the first slice.
    let key = (0..).map(|number: u32| number.to_string());
    let slices = Slices::spread("photos", 16, 64);
    let key = key.into_iter().find(|key| slices.place("photos", key) != "photos").expect("most are elsewhere");
    assert!(put(&mut world, &key).is_ok());
    assert_eq!(spread(&mut world, "system", 2), Err(Refusal::BucketNotEmpty));
    assert_eq!(spread(&mut world, "system", 16), Ok(ObjectReply::Done), "it is so");
    assert_eq!(slices_of(&world).len(), 16);
    let delete = ObjectOperation::Delete(DeleteOne::default());
    assert!(world.ask("alice", "photos", &key, delete.clone()).is_ok());
    let Ok(ObjectReply::Upload { id, .. }) =
        world.ask("alice", "photos", &key, ObjectOperation::CreateUpload(Box::default()))
    else {
        panic!("an upload begins")
    };
    assert_eq!(spread(&mut world, "system", 2), Err(Refusal::BucketNotEmpty), "an upload is under way");
    assert!(world.ask("alice", "photos", &key, ObjectOperation::AbortUpload { upload: id }).is_ok());
    world.spread("photos", 2);
    assert_eq!(slices_of(&world).len(), 2);
    world.spread("photos", 1);
    assert_eq!(slices_of(&world).len(), 1);
    // What the node knew is old now, and it finds the object all the same.
    assert!(put(&mut world, &key).is_ok());
    assert_eq!(world.known["photos"], Slices::default());
    assert!(world.ask("alice", "photos", &key, delete).is_ok());
    assert_eq!(world.ask("alice", "photos", "", ObjectOperation::DeleteBucket), Ok(ObjectReply::Done));
    assert!(world.stored.is_empty(), "{:?}", world.stored);
}

#[test]
fn a_bucket_that_is_not_empty_in_one_slice_stays_whole() {
    let mut world = World::default();
    world.bucket("alice", "photos");
    world.spread("photos", 4);
    let slices = Slices::spread("photos", 4, 64);
    for place in slices.others("photos") {
        let mut keys = (0..).map(|number: u32| number.to_string());
        let key = keys.find(|key| slices.place("photos", key) == place).expect("each slice has keys");
        assert!(put(&mut world, &key).is_ok());
        let before = world.stored.clone();
        assert_eq!(world.ask("alice", "photos", "", ObjectOperation::DeleteBucket), Err(Refusal::BucketNotEmpty));
        assert_eq!(world.stored, before);
        assert!(world.ask("alice", "photos", &key, ObjectOperation::Delete(DeleteOne::default())).is_ok());
    }
    assert_eq!(world.ask("alice", "photos", "", ObjectOperation::DeleteBucket), Ok(ObjectReply::Done));
    assert!(world.stored.is_empty(), "{:?}", world.stored);
    // It is not found, whatever the node still knows of its slices.
    assert_eq!(put(&mut world, "k"), Err(Refusal::NoSuchBucket));
    world.known.insert("photos".to_owned(), slices);
    assert_eq!(put(&mut world, "1"), Err(Refusal::NoSuchBucket));
}
