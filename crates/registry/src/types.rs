//! Types: subjects whose schemas are those of records.

use std::sync::Arc;

use millrace_avro::{Kind, Schema};
use millrace_base::limits;

use crate::level::Level;
use crate::normal::pick;
use crate::place::{check_exists, indexed_kind};
use crate::read::{NewSchema, Registered, SchemaVersion, VersionNumber};
use crate::refusal::{Refusal, RefusalKind};
use crate::settings::{ANY_CHANGE, Create, IndexSettings, TriggerSettings, TypeChange, TypeSettings, check_type_name};
use crate::state::{Registry, Subject, shown};
use crate::stored::StoredSchema;

/// What makes a subject a type.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TypeState {
    pub settings: Arc<TypeSettings>,
    /// For each of the settings' indexes, in their order.
    pub numbers: Vec<IndexNumber>,
    /// The subject's stream of changes when the type was made. Each type of a name has another one.
    pub began: u16,
}

/// An index's number, and what it was given for beside its settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct IndexNumber {
    pub number: u16,
    pub kind: String,
}

/// A type as the engine sees it.
#[derive(Clone, Copy, Debug)]
pub struct RecordType<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its settings.
    pub settings: &'a Arc<TypeSettings>,
    /// The subject's latest version, with which records are written. Its root is a record.
    pub version: u32,
    /// That version's schema.
    pub schema: &'a Arc<StoredSchema>,
    /// Tells the stream of changes from earlier ones that ended, of this type or of an earlier type of its name.
    pub stream: u16,
    /// Its stream of changes when it was made. Tells the type from deleted types of its name.
    pub began: u16,
    numbers: &'a [IndexNumber],
    registry: &'a Registry,
}

/// An index with its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NumberedIndex<'a> {
    /// Its number in the type. It belongs to this definition (path, case, what is at the path) for ever.
    pub number: u16,
    /// Its definition.
    pub settings: &'a IndexSettings,
}

/// The result of [`Registry::put_type`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PutType {
    /// The current schema, and whether this call registered it.
    pub schema: Registered,
    /// Whether this call made the type.
    pub is_new: bool,
}

impl<'a> RecordType<'a> {
    /// The id of the current schema.
    #[must_use]
    pub fn schema_id(&self) -> u32 {
        self.schema.id
    }

    /// Every version that records may have, in the order of registration. Deleted versions are included, and an id
    /// comes again if it was registered again. If the level asks for it, a version reads what the one before it wrote.
    /// It reads what older ones wrote only if the level is transitive.
    pub fn versions(&self) -> impl DoubleEndedIterator<Item = SchemaVersion<'a>> + use<'a> {
        self.registry.all_versions_of(self.name)
    }

    /// Its indexes, in the order of the settings.
    pub fn indexes(&self) -> impl Iterator<Item = NumberedIndex<'a>> + use<'a> {
        let numbers = self.numbers.iter().map(|number| number.number);
        self.settings.indexes.iter().zip(numbers).map(|(settings, number)| NumberedIndex { number, settings })
    }
}

fn unknown_type(name: &str) -> Refusal {
    Refusal::new(RefusalKind::UnknownType, format!("there is no type {:?}", shown(name)))
}

/// Tells what to blame: a change of settings is refused as such, a new schema as incompatible with the existing
/// settings.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Blame {
    Settings,
    Schema,
}

impl Registry {
    /// All types, in the order of their names.
    pub fn types(&self) -> impl Iterator<Item = RecordType<'_>> {
        self.subjects.iter().filter_map(|(name, subject)| self.type_of(name, subject))
    }

    /// One type.
    ///
    /// # Errors
    /// `unknown-type`.
    pub fn record_type(&self, name: &str) -> Result<RecordType<'_>, Refusal> {
        let found = self.subjects.get_key_value(name);
        found.and_then(|(name, subject)| self.type_of(name, subject)).ok_or_else(|| unknown_type(name))
    }

    fn type_of<'a>(&'a self, name: &'a str, subject: &'a Subject) -> Option<RecordType<'a>> {
        let TypeState { settings, numbers, began } = subject.record_type.as_ref()?;
        let (version, id) = subject.latest()?;
        let schema = self.schemas.get(&id)?;
        let (stream, began) = (subject.stream, *began);
        Some(RecordType { name, settings, version, schema, stream, began, numbers, registry: self })
    }

    /// Makes a type or changes it: its schema, its compatibility level, its settings, if the change names them. A new
    /// type without settings has the default ones. If an earlier version has the schema, it becomes current again, as a
    /// new version with the same id.
    ///
    /// # Errors
    /// If any part of it cannot be done. Then nothing is done.
    pub fn put_type(&mut self, name: &str, change: &TypeChange) -> Result<PutType, Refusal> {
        self.change(|next| {
            next.check_writable(name)?;
            check_type_name(name)?;
            if let Some(level) = change.compatibility {
                next.subject_mut(name).compatibility = level;
            }
            let level = next.effective_compatibility(name);
            let schema = change
                .schema
                .as_ref()
                .map(|text| NewSchema { references: change.references.clone(), ..NewSchema::avro(text.as_str()) });
            if schema.is_none() && !change.references.is_empty() {
                return Err(Refusal::invalid("references belong to a schema: give it too"));
            }
            next.put_type_with(name, schema.as_ref(), level, |settings| apply(change, settings))
        })
    }

    /// The classic `putschema`. `full_name` picks one type of a file that defines several.
    ///
    /// # Errors
    /// If the schema is not valid, or breaks a level that was set.
    pub fn put_classic_schema(&mut self, name: &str, text: &str, full_name: Option<&str>) -> Result<PutType, Refusal> {
        let picked = full_name.map_or(Ok(None), |full_name| pick(text, full_name))?;
        let schema = NewSchema::avro(picked.as_deref().unwrap_or(text));
        self.change(|next| {
            next.check_writable(name)?;
            check_type_name(name)?;
            let level = next.compatibility(Some(name)).or(next.compatibility).unwrap_or(Level::None);
            let is_type = next.record_type(name).is_ok();
            next.put_type_with(name, Some(&schema), level, |settings| {
                if !is_type {
                    settings.create = Create::Touch;
                }
            })
        })
    }

    fn put_type_with(
        &mut self,
        name: &str,
        schema: Option<&NewSchema>,
        level: Level,
        change: impl FnOnce(&mut TypeSettings),
    ) -> Result<PutType, Refusal> {
        let registered = schema.map(|schema| self.register_at(name, schema, level)).transpose()?;
        let latest = self.subjects.get(name).and_then(|subject| subject.latest());
        let Some((version, id)) = latest else {
            let message = format!("there is no type {:?}: give a schema to make it", shown(name));
            return Err(Refusal::new(RefusalKind::UnknownType, message));
        };
        let subject = self.subject_mut(name);
        subject.leaves_records = false;
        let is_new = subject.record_type.is_none();
        let began = subject.stream;
        let state = subject.record_type.get_or_insert_with(|| TypeState { began, ..TypeState::default() });
        let before = state.settings.clone();
        let settings = Arc::make_mut(&mut state.settings);
        change(settings);
        // Only for new settings: a longer time stored before there was a bound can still be read.
        if settings.ttl_ms > before.ttl_ms && settings.ttl_ms > Some(limits::TTL_MS) {
            return Err(Refusal::invalid(format!("ttl_ms is at most {}, or null for never", limits::TTL_MS)));
        }
        settings.canonicalise();
        let blame = if before == state.settings { Blame::Schema } else { Blame::Settings };
        self.refit(name, Some(&before), blame)?;
        let schema = Registered { id, version, is_new: registered.is_some_and(|registered| registered.is_new) };
        Ok(PutType { schema, is_new })
    }

    /// Adds a trigger to a type, or replaces the one of its name.
    ///
    /// # Errors
    /// `unknown-type`, or `bad-request` if it does not fit.
    pub fn put_trigger(&mut self, name: &str, trigger: TriggerSettings) -> Result<(), Refusal> {
        self.change_settings(name, |settings| {
            match settings.triggers.iter_mut().find(|found| found.name == trigger.name) {
                Some(found) => *found = trigger,
                None => settings.triggers.push(trigger),
            }
            Ok(())
        })
    }

    /// Removes a trigger from a type.
    ///
    /// # Errors
    /// `unknown-type`, or `unknown-handler` if the type has no such trigger.
    pub fn delete_trigger(&mut self, name: &str, trigger: &str) -> Result<(), Refusal> {
        self.change_settings(name, |settings| {
            let Some(position) = settings.triggers.iter().position(|found| found.name == trigger) else {
                let message = format!("type {:?} has no trigger {:?}", shown(name), shown(trigger));
                return Err(Refusal::new(RefusalKind::UnknownTrigger, message));
            };
            settings.triggers.remove(position);
            Ok(())
        })
    }

    fn change_settings(
        &mut self,
        name: &str,
        change: impl FnOnce(&mut TypeSettings) -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        self.change(|next| {
            next.record_type(name)?;
            next.check_writable(name)?;
            let Some(state) = &mut next.subject_mut(name).record_type else {
                return Err(unknown_type(name));
            };
            let before = state.settings.clone();
            let settings = Arc::make_mut(&mut state.settings);
            change(settings)?;
            settings.canonicalise();
            next.refit(name, Some(&before), Blame::Settings)
        })
    }

    /// Removes a type and deletes its schemas softly. `has_records` says whether records of it are stored. If so, it is
    /// refused unless it is forced. The caller that switches to the registry without the type makes sure that there are
    /// still no records then, unless [`Registry::may_leave_records`].
    ///
    /// # Errors
    /// `unknown-type`, or `type-in-use` if it has records or if schemas of other subjects refer to it.
    pub fn delete_type(&mut self, name: &str, has_records: bool, force: bool) -> Result<(), Refusal> {
        self.change(|next| {
            next.record_type(name)?;
            next.check_writable(name)?;
            if has_records && !force {
                let message = format!("the type {name:?} has records: delete them first, or force it");
                return Err(Refusal::new(RefusalKind::TypeInUse, message));
            }
            let subject = next.subject_mut(name);
            let state = subject.record_type.take();
            subject.leaves_records = force;
            let ended = next.end_stream(name);
            // Without changes the number only tells the type from the next of its name.
            if state.is_some_and(|state| state.settings.changes.is_some()) {
                ended?;
            }
            next.hide_subject(name).map(drop)
        })
    }

    /// Whether an unknown type was deleted by force, so that records of it may be stored.
    #[must_use]
    pub fn may_leave_records(&self, name: &str) -> bool {
        self.subjects.get(name).is_some_and(|subject| subject.leaves_records)
    }

    /// Changes of a type are no longer kept. If they are kept again later, that is another stream.
    fn end_stream(&mut self, name: &str) -> Result<(), Refusal> {
        let subject = self.subject_mut(name);
        let number = subject.next_index.max(subject.stream.saturating_add(1));
        let next = number.checked_add(1).ok_or_else(|| {
            Refusal::invalid("the type has had 65535 indexes and streams of changes, and numbers are never used again")
        })?;
        (subject.stream, subject.next_index) = (number, next);
        Ok(())
    }

    /// Checks that a type's settings fit its current schema, and numbers its indexes. `before` are the settings to
    /// which the present numbers belong, if they differ. Does nothing for a subject that is not a type.
    pub(crate) fn refit(&mut self, name: &str, before: Option<&TypeSettings>, blame: Blame) -> Result<(), Refusal> {
        let Some(subject) = self.subjects.get(name) else {
            return Ok(());
        };
        let (Some(state), Some((_, id))) = (&subject.record_type, subject.latest()) else {
            return Ok(());
        };
        let stored = self.stored(id)?;
        check_type_name(name)?;
        check_is_record(stored.schema())?;
        state.settings.check()?;
        let misfit = |what: &str, name: &str, why: String| match blame {
            Blame::Settings => Refusal::invalid(format!("{what} {name:?}: {why}")),
            Blame::Schema => {
                let message = format!("the schema does not fit the type's {what} {name:?}: {why}");
                Refusal { points: vec![why], ..Refusal::new(RefusalKind::Incompatible, message) }
            }
        };
        for trigger in state.settings.triggers.iter().filter(|trigger| trigger.path != ANY_CHANGE) {
            check_exists(stored.schema(), &trigger.path).map_err(|why| misfit("trigger", &trigger.name, why))?;
        }
        let ends_stream = state.settings.changes.is_none() && before.is_some_and(|before| before.changes.is_some());
        let old: Vec<(&IndexSettings, &IndexNumber)> =
            before.unwrap_or(&state.settings).indexes.iter().zip(&state.numbers).collect();
        let mut next_index = subject.next_index;
        let mut numbers = Vec::with_capacity(state.settings.indexes.len());
        for index in &state.settings.indexes {
            let kind = indexed_kind(stored.schema(), &index.path, index.ignore_case)
                .map_err(|why| misfit("index", &index.name, why))?;
            let same = old.iter().find(|(settings, number)| {
                settings.path == index.path && settings.ignore_case == index.ignore_case && number.kind == kind
            });
            let number = match same {
                Some((_, number)) => number.number,
                None => {
                    let number = next_index;
                    next_index = number.checked_add(1).ok_or_else(|| {
                        Refusal::invalid("the type has had 65535 indexes, and numbers are never used again")
                    })?;
                    number
                }
            };
            numbers.push(IndexNumber { number, kind });
        }
        let subject = self.subject_mut(name);
        subject.next_index = next_index;
        if let Some(state) = &mut subject.record_type {
            state.numbers = numbers;
        }
        if ends_stream { self.end_stream(name) } else { Ok(()) }
    }

    /// Whether a version of a type may be deleted. The next latest version must read what it wrote, unless the level
    /// asks for nothing.
    pub(crate) fn check_still_readable(&self, name: &str, deleted: u32) -> Result<(), Refusal> {
        let Some((latest, _)) = self.subjects.get(name).and_then(|subject| subject.latest()) else {
            let message = format!("{name:?} is a type, and this its only schema: delete the type instead");
            return Err(Refusal::new(RefusalKind::TypeInUse, message));
        };
        if latest > deleted || self.effective_compatibility(name) == Level::None {
            return Ok(());
        }
        let reader = self.version(name, VersionNumber::Number(latest), false)?.schema.schema();
        let writer = self.version(name, VersionNumber::Number(deleted), true)?.schema.schema();
        let earlier = [(deleted, &**writer)].into_iter();
        let points = crate::compatibility::breaches(Level::Backward, reader, earlier);
        if points.is_empty() {
            return Ok(());
        }
        let message = format!("records of version {deleted} could not be read with version {latest}");
        Err(Refusal { points, ..Refusal::new(RefusalKind::Incompatible, message) })
    }
}

fn check_is_record(schema: &Schema) -> Result<(), Refusal> {
    match schema.kind(schema.root()) {
        Kind::Record { .. } => Ok(()),
        Kind::Union(_) => Err(Refusal::invalid_schema(
            "a type's schema is a record; of a file with several types, fullname picks one",
        )),
        _ => Err(Refusal::invalid_schema("a type's schema is a record")),
    }
}

fn apply(change: &TypeChange, settings: &mut TypeSettings) {
    if let Some(create) = change.create {
        settings.create = create;
    }
    if let Some(ttl_ms) = change.ttl_ms {
        settings.ttl_ms = ttl_ms;
    }
    if let Some(indexes) = &change.indexes {
        settings.indexes.clone_from(indexes);
    }
    if let Some(triggers) = &change.triggers {
        settings.triggers.clone_from(triggers);
    }
    if let Some(changes) = change.changes {
        settings.changes = changes;
    }
}
