//! The versions of an object under random writes and deletions, against a plain list of versions.

use std::collections::{BTreeMap, BTreeSet};

use millrace_api::objects::{Content, Refusal, Retention, RetentionMode, Versioning, WriteConditions};
use millrace_base::Error;
use millrace_func_objects::stored::{Place, StoredVersion};
use millrace_func_objects::versions::{Effects, Field, Fields, NewVersion, Versions};
use proptest::prelude::*;

/// An entity in memory.
#[derive(Default)]
struct Entity(BTreeMap<Vec<u8>, Vec<u8>>);

impl Fields for Entity {
    fn get(&mut self, field: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        Ok(self.0.get(field).cloned())
    }

    fn set(&mut self, field: &[u8], content: &[u8]) -> Result<(), Error> {
        self.0.insert(field.to_vec(), content.to_vec());
        Ok(())
    }

    fn delete(&mut self, field: &[u8]) -> Result<(), Error> {
        self.0.remove(field);
        Ok(())
    }

    fn next(&mut self, prefix: &[u8], after: Option<&[u8]>) -> Result<Option<Field>, Error> {
        let after = after.unwrap_or_default();
        let mut rows = self.0.iter().filter(|(field, _)| field.starts_with(prefix) && field.as_slice() > after);
        Ok(rows.next().map(|(field, content)| (field.clone(), content.clone())))
    }
}

/// What happens to an object.
#[derive(Clone, Debug)]
enum Event {
    Put {
        body: Option<u64>,
    },
    Delete,
    DeleteVersion {
        place: usize,
    },
    DeleteNull,
    Versioning(Versioning),
    /// The clock jumps, also back.
    Clock(u64),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => prop::option::of(any::<u64>()).prop_map(|body| Event::Put { body }),
        2 => Just(Event::Delete),
        2 => (0_usize..6).prop_map(|place| Event::DeleteVersion { place }),
        1 => Just(Event::DeleteNull),
        1 => Just(Event::Versioning(Versioning::Enabled)),
        1 => Just(Event::Versioning(Versioning::Suspended)),
        1 => (0_u64..1_000).prop_map(Event::Clock),
    ]
}

/// A version of the model: its id, its content, and whether it is a delete marker.
type Kept = (String, Option<Content>, Vec<u8>, bool);

struct World {
    entity: Entity,
    /// The newest first.
    model: Vec<Kept>,
    versioning: Versioning,
    now_ms: u64,
    count: u64,
    dropped: BTreeSet<u64>,
    given: BTreeSet<u64>,
    total: Effects,
}

impl World {
    fn new() -> Self {
        Self {
            entity: Entity::default(),
            model: Vec::new(),
            versioning: Versioning::Off,
            now_ms: 500,
            count: 0,
            dropped: BTreeSet::new(),
            given: BTreeSet::new(),
            total: Effects::default(),
        }
    }

    fn noted(&mut self, effects: Effects) {
        self.total.objects += effects.objects;
        self.total.size_bytes += effects.size_bytes;
        for content in effects.dropped {
            let Content::Body(number) = content else { panic!("only bodies are given") };
            assert!(self.dropped.insert(number), "{number} is dropped twice");
        }
    }

    fn add(&mut self, id: String, content: Option<Content>, inline: Vec<u8>) {
        if id == "null" {
            self.model.retain(|kept| kept.0 != "null");
        }
        let is_marker = content.is_none();
        self.model.insert(0, (id, content, inline, is_marker));
    }

    fn run(&mut self, event: &Event) {
        self.count += 1;
        let conditions = WriteConditions::default();
        let (random, now_ms, versioning) = (self.count, self.now_ms, self.versioning);
        match event {
            Event::Put { body } => {
                let inline = vec![7; usize::try_from(self.count % 5).expect("it is small")];
                // Numbers are never given twice.
                let content = if body.is_some() { Content::Body(self.count) } else { Content::Inline };
                if body.is_some() {
                    self.given.insert(self.count);
                }
                let row = StoredVersion {
                    size_bytes: inline.len() as u64,
                    content: Some(content.clone()),
                    ..StoredVersion::default()
                };
                let mut versions = Versions::new(&mut self.entity);
                let new = NewVersion { row, inline: &inline, random, now_ms };
                let row = versions.put(new, versioning, &conditions).expect("no condition");
                let effects = versions.into_effects();
                self.noted(effects);
                self.add(row.id().0, Some(content), inline);
            }
            Event::Delete => {
                let row = StoredVersion { is_delete_marker: true, ..StoredVersion::default() };
                let mut versions = Versions::new(&mut self.entity);
                let marker = NewVersion { row, inline: &[], random, now_ms };
                let deleted = versions.delete(marker, versioning, &conditions).expect("nothing is locked");
                let effects = versions.into_effects();
                self.noted(effects);
                match deleted.version {
                    Some(id) => self.add(id, None, vec![]),
                    None => self.model.clear(),
                }
            }
            Event::DeleteVersion { place } => {
                let Some(id) = self.model.get(*place).map(|kept| kept.0.clone()) else { return };
                self.delete_version(&id);
            }
            Event::DeleteNull => self.delete_version("null"),
            Event::Versioning(versioning) => self.versioning = *versioning,
            Event::Clock(now_ms) => self.now_ms = *now_ms,
        }
    }

    fn delete_version(&mut self, id: &str) {
        let mut versions = Versions::new(&mut self.entity);
        let deleted = versions.delete_version(id, false, &WriteConditions::default(), 0).expect("nothing is locked");
        let effects = versions.into_effects();
        self.noted(effects);
        let was_marker = self.model.iter().any(|kept| kept.0 == id && kept.3);
        assert_eq!((deleted.version.as_deref(), deleted.is_delete_marker), (Some(id), was_marker));
        self.model.retain(|kept| kept.0 != id);
    }

    /// Compares everything that can be seen.
    fn check(&mut self) {
        let mut versions = Versions::new(&mut self.entity);
        let mut found = Vec::new();
        if let Some(row) = versions.current().expect("memory") {
            found.push((Place::Current, row));
        }
        let mut place = Place::Current;
        while let Some((next, row)) = versions.next(place).expect("memory") {
            place = next;
            found.push((next, row));
        }
        let mut seen = Vec::new();
        for (place, row) in &found {
            let inline = versions.inline(*place).expect("memory");
            assert_eq!(versions.find(&row.id().0), Ok(Some((*place, row.clone()))));
            if let Some(Content::Body(number)) = row.content {
                assert_eq!(versions.refers_to(number), Ok(true));
                assert!(!self.dropped.contains(&number), "{number} is kept and dropped");
            }
            let inline = if row.content == Some(Content::Inline) { inline } else { vec![] };
            seen.push((row.id().0, row.content.clone(), inline, row.is_delete_marker));
        }
        let model: Vec<Kept> = self
            .model
            .iter()
            .cloned()
            .map(|mut kept| {
                if kept.1 != Some(Content::Inline) {
                    kept.2.clear();
                }
                kept
            })
            .collect();
        assert_eq!(seen, model);
        let kept = self.model.iter().filter(|kept| !kept.3);
        assert_eq!(self.total.objects, i64::try_from(kept.clone().count()).expect("it is small"));
        assert_eq!(
            self.total.size_bytes,
            found.iter().map(|(_, row)| i64::try_from(row.size_bytes).expect("small")).sum::<i64>()
        );
        // Every body that was given is either kept or dropped.
        let bodies = kept.filter_map(|kept| match kept.1 {
            Some(Content::Body(number)) => Some(number),
            _ => None,
        });
        let mut all: BTreeSet<u64> = bodies.collect();
        all.extend(&self.dropped);
        assert_eq!(all, self.given);
        if self.model.is_empty() {
            assert!(self.entity.0.is_empty(), "an object that is gone leaves nothing behind: {:?}", self.entity.0);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn versions_are_those_of_the_model(events in prop::collection::vec(event(), 0..40)) {
        let mut world = World::new();
        for event in &events {
            world.run(event);
            world.check();
        }
    }
}

fn put(entity: &mut Entity, row: StoredVersion, conditions: &WriteConditions) -> Result<StoredVersion, Error> {
    let new = NewVersion { row, inline: b"x", random: 1, now_ms: 1_000 };
    Versions::new(entity).put(new, Versioning::Enabled, conditions)
}

fn row(etag: &str) -> StoredVersion {
    StoredVersion { etag: etag.to_owned(), content: Some(Content::Inline), ..StoredVersion::default() }
}

#[test]
fn conditions_are_compared_with_the_current_version() {
    let mut entity = Entity::default();
    let fresh = WriteConditions { if_none_match: vec!["*".to_owned()], ..WriteConditions::default() };
    assert!(put(&mut entity, row("a"), &fresh).is_ok());
    let refused = put(&mut entity, row("b"), &fresh).expect_err("it is there");
    assert_eq!(Refusal::of(&refused), Some(Refusal::PreconditionFailed));
    // A delete marker is nothing.
    let marker = StoredVersion { is_delete_marker: true, ..StoredVersion::default() };
    let marker = NewVersion { row: marker, inline: &[], random: 2, now_ms: 1_000 };
    assert!(Versions::new(&mut entity).delete(marker, Versioning::Enabled, &WriteConditions::default()).is_ok());
    let same = WriteConditions { if_match: vec!["a".to_owned()], ..WriteConditions::default() };
    let refused = put(&mut entity, row("b"), &same).expect_err("it is gone");
    assert_eq!(Refusal::of(&refused), Some(Refusal::NoSuchKey));
    assert!(put(&mut entity, row("b"), &fresh).is_ok());
}

#[test]
fn what_is_locked_stays() {
    let mut entity = Entity::default();
    let retention = Some(Retention { mode: RetentionMode::Governance, until_ms: 5_000 });
    let locked = StoredVersion { retention, ..row("a") };
    let id = put(&mut entity, locked, &WriteConditions::default()).expect("no condition").id().0;
    let mut delete = |bypass, now_ms| {
        let result = Versions::new(&mut entity).delete_version(&id, bypass, &WriteConditions::default(), now_ms);
        result.map_err(|error| Refusal::of(&error))
    };
    assert_eq!(delete(false, 4_999), Err(Some(Refusal::AccessDenied)));
    assert!(delete(true, 4_999).is_ok());
}

#[test]
fn texts_that_are_no_ids_are_refused() {
    let mut entity = Entity::default();
    for id in ["x", "", "nullnull", "..", "v\0"] {
        let found = Versions::new(&mut entity).find(id).map_err(|error| Refusal::of(&error));
        assert_eq!(found, Err(Some(Refusal::InvalidArgument)), "{id}");
    }
    assert_eq!(Versions::new(&mut entity).find("null"), Ok(None));
}
