//! Changes of subjects, versions and rules.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::level::{Level, Mode};
use crate::read::{NewSchema, Registered, VersionNumber, is_to};
use crate::refusal::{Refusal, RefusalKind};
use crate::state::{LARGEST_IMPORTED, LARGEST_NUMBER, Registry, Version, check_subject_name, shown, subject_not_found};
use crate::stored::Candidate;
use crate::types::Blame;

fn not_permitted(message: impl Into<String>) -> Refusal {
    Refusal::new(RefusalKind::NotPermitted, message)
}

/// What registering does with a schema that the subject has already.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Known {
    /// Nothing.
    Keeps,
    /// Unless it is the latest version, it becomes the latest, as a new version with the same id.
    BecomesLatest,
}

impl Registry {
    /// Registers a schema as a subject's next version, if the subject does not have it yet.
    ///
    /// # Errors
    /// If the schema is not valid, breaks the subject's level or does not fit the type's settings. Also if the mode
    /// does not allow it.
    pub fn register(&mut self, subject: &str, schema: &NewSchema) -> Result<Registered, Refusal> {
        self.change(|next| {
            let level = next.effective_compatibility(subject);
            let registered = next.register_with(subject, schema, level, Known::Keeps)?;
            next.refit(subject, None, Blame::Schema)?;
            Ok(registered)
        })
    }

    /// Makes a schema a type's current one. The caller checks that it fits the settings.
    pub(crate) fn register_at(&mut self, name: &str, schema: &NewSchema, level: Level) -> Result<Registered, Refusal> {
        self.register_with(name, schema, level, Known::BecomesLatest)
    }

    fn register_with(
        &mut self,
        subject: &str,
        schema: &NewSchema,
        level: Level,
        known: Known,
    ) -> Result<Registered, Refusal> {
        check_subject_name(subject)?;
        let candidate = self.candidate(schema)?;
        let latest = self.subjects.get(subject).and_then(|subject| subject.latest());
        if let Some(found) = self.find(subject, &candidate, false) {
            let is_asked = schema.id.is_none_or(|id| id == found.schema.id)
                && schema.version.is_none_or(|version| version == found.version);
            let is_done = known == Known::Keeps || latest.is_some_and(|(version, _)| version == found.version);
            if is_asked && is_done {
                return Ok(Registered { id: found.schema.id, version: found.version, is_new: false });
            }
        }
        self.check_writable(subject)?;
        let is_import = self.effective_mode(subject) == Mode::Import;
        match (schema.id, is_import) {
            (Some(_), false) => return Err(not_permitted("a schema is given its id here, unless the mode is IMPORT")),
            (None, true) => return Err(not_permitted("in the mode IMPORT a schema comes with its id")),
            _ => {}
        }
        self.check_references(schema)?;
        let compiled = self.compile(&candidate)?;
        if !is_import {
            let points = self.breaches(subject, level, &compiled);
            if !points.is_empty() {
                let first = points.first().map_or("", String::as_str);
                let message =
                    format!("the schema is not {level} compatible with subject {:?}: {first}", shown(subject));
                return Err(Refusal { points, ..Refusal::new(RefusalKind::Incompatible, message) });
            }
        }
        let version = self.number_version(subject, schema.version, is_import)?;
        let id = self.number_schema(&candidate, schema.id)?;
        if !self.schemas.contains_key(&id) {
            self.ids_by_key.entry(candidate.key.clone()).and_modify(|first| *first = id.min(*first)).or_insert(id);
            self.schemas.insert(id, Arc::new(candidate.into_stored(id, compiled)));
        }
        self.subject_mut(subject).versions.insert(version, Version { id, is_deleted: false });
        Ok(Registered { id, version, is_new: true })
    }

    /// Checks that everything a new schema refers to exists and is not deleted.
    fn check_references(&self, schema: &NewSchema) -> Result<(), Refusal> {
        for reference in &schema.references {
            let (number, _) = self.referred(reference)?;
            let subject = self.subjects.get(&reference.subject);
            if subject.and_then(|subject| subject.versions.get(&number)).is_none_or(|version| version.is_deleted) {
                let (name, subject) = (shown(&reference.name), shown(&reference.subject));
                let message = format!("reference {name:?}: version {number} of subject {subject:?} is deleted");
                return Err(Refusal::invalid_schema(message));
            }
        }
        Ok(())
    }

    /// The number of a subject's next version.
    fn number_version(&self, subject: &str, asked: Option<u32>, is_import: bool) -> Result<u32, Refusal> {
        let versions = self.subjects.get(subject).map(|subject| &subject.versions);
        let next = versions.and_then(|versions| versions.last_key_value()).map_or(1, |(last, _)| last + 1);
        match asked {
            None if next <= LARGEST_NUMBER => Ok(next),
            None => Err(Refusal::invalid("the subject has no numbers left for versions")),
            Some(asked) if !(1..=LARGEST_NUMBER).contains(&asked) => {
                Err(Refusal::new(RefusalKind::InvalidVersion, format!("{asked} is not a version")))
            }
            Some(asked) if asked == next => Ok(asked),
            Some(_) if !is_import => {
                Err(Refusal::invalid_schema(format!("the version is not one more than the previous one: give {next}")))
            }
            Some(asked) if versions.is_some_and(|versions| versions.contains_key(&asked)) => {
                Err(not_permitted(format!("there is a version {asked} already")))
            }
            Some(asked) if asked > LARGEST_IMPORTED => {
                let message = format!("version {asked} leaves no room for more: {LARGEST_IMPORTED} is the largest");
                Err(Refusal::new(RefusalKind::InvalidVersion, message))
            }
            Some(asked) => Ok(asked),
        }
    }

    /// The id of a schema: the one it has, the one asked for, or the next.
    fn number_schema(&mut self, candidate: &Candidate, asked: Option<u32>) -> Result<u32, Refusal> {
        let id = match asked {
            Some(asked) => match self.schemas.get(&asked) {
                Some(found) if found.key != candidate.key => {
                    return Err(not_permitted(format!("the id {asked} is another schema's")));
                }
                Some(_) => asked,
                None if (1..=LARGEST_IMPORTED).contains(&asked) => asked,
                None => {
                    let message =
                        format!("a schema's id is taken as it comes from 1 to {LARGEST_IMPORTED}, not {asked}");
                    return Err(Refusal::invalid(message));
                }
            },
            None => match self.ids_by_key.get(&candidate.key) {
                Some(id) => *id,
                None if self.next_id <= LARGEST_NUMBER => self.next_id,
                None => return Err(Refusal::invalid("there are no ids left for schemas")),
            },
        };
        self.next_id = self.next_id.max(id + 1);
        Ok(id)
    }

    /// Refuses a write that the mode does not allow.
    pub(crate) fn check_writable(&self, subject: &str) -> Result<(), Refusal> {
        let mode = self.effective_mode(subject);
        if mode.is_read_only() {
            return Err(not_permitted(format!("subject {:?} is in the mode {mode}", shown(subject))));
        }
        Ok(())
    }

    /// Deletes one version. Softly: it is still found by its id. Permanently: only if it was deleted softly before.
    /// Returns its number.
    ///
    /// # Errors
    /// If the version is not there or not in that state, or if others refer to it. Also if the mode does not allow it,
    /// or if a type would lose the schema that reads its records.
    pub fn delete_version(&mut self, subject: &str, number: VersionNumber, permanent: bool) -> Result<u32, Refusal> {
        self.change(|next| {
            next.check_writable(subject)?;
            // The latest is the latest that is not deleted, also for permanent deletion.
            let even_deleted = matches!(number, VersionNumber::Number(_));
            let found = next.version(subject, number, even_deleted)?;
            let (version, is_deleted) = (found.version, found.is_deleted);
            let told = |kind, what: &str| {
                Err(Refusal::new(kind, format!("version {version} of subject {:?} {what}", shown(subject))))
            };
            match (permanent, is_deleted) {
                (false, true) => return told(RefusalKind::VersionDeleted, "is deleted already"),
                (true, false) => return told(RefusalKind::VersionNotDeleted, "must be deleted softly first"),
                _ => {}
            }
            next.check_unreferenced(subject, &BTreeSet::from([version]), permanent)?;
            if permanent {
                next.check_is_no_type(subject)?;
                next.subject_mut(subject).versions.remove(&version);
            } else {
                let state = next.subject_mut(subject);
                if let Some(version) = state.versions.get_mut(&version) {
                    version.is_deleted = true;
                }
                if state.record_type.is_some() {
                    next.check_still_readable(subject, version)?;
                    next.refit(subject, None, Blame::Schema)?;
                }
            }
            next.forget_rules_of_deleted(subject);
            next.sweep(subject);
            Ok(version)
        })
    }

    /// Deletes all versions of a subject, and its rules: softly, or permanently those deleted softly before. Returns
    /// their numbers.
    ///
    /// # Errors
    /// As [`Registry::delete_version`]. [`Registry::delete_type`] deletes a type.
    pub fn delete_subject(&mut self, subject: &str, permanent: bool) -> Result<Vec<u32>, Refusal> {
        self.change(|next| {
            next.check_writable(subject)?;
            let state = next.subject(subject)?;
            if state.versions.is_empty() {
                return Err(subject_not_found(subject));
            }
            next.check_is_no_type(subject)?;
            if !permanent {
                return next.hide_subject(subject);
            }
            if state.has_live() {
                let message = format!("subject {:?} must be deleted softly first", shown(subject));
                return Err(Refusal::new(RefusalKind::SubjectNotDeleted, message));
            }
            let versions: BTreeSet<u32> = state.versions.keys().copied().collect();
            next.check_unreferenced(subject, &versions, true)?;
            next.subject_mut(subject).versions.clear();
            next.sweep(subject);
            Ok(versions.into_iter().collect())
        })
    }

    /// Deletes all versions of a subject softly.
    pub(crate) fn hide_subject(&mut self, subject: &str) -> Result<Vec<u32>, Refusal> {
        let versions: BTreeSet<u32> = self.subject(subject)?.live().map(|(number, _)| number).collect();
        if versions.is_empty() {
            let message = format!("subject {:?} is deleted already", shown(subject));
            return Err(Refusal::new(RefusalKind::SubjectDeleted, message));
        }
        self.check_unreferenced(subject, &versions, false)?;
        self.subject_mut(subject).versions.values_mut().for_each(|version| version.is_deleted = true);
        self.forget_rules_of_deleted(subject);
        Ok(versions.into_iter().collect())
    }

    /// If all versions of a subject are deleted, the subject begins anew, and its rules end with the versions.
    fn forget_rules_of_deleted(&mut self, subject: &str) {
        if self.subjects.get(subject).is_some_and(|state| !state.has_live()) {
            let state = self.subject_mut(subject);
            (state.compatibility, state.mode) = (None, None);
        }
    }

    fn check_is_no_type(&self, subject: &str) -> Result<(), Refusal> {
        if self.record_type(subject).is_err() {
            return Ok(());
        }
        let message = format!("{subject:?} is a type, whose records need its schemas: delete the type first");
        Err(Refusal::new(RefusalKind::TypeInUse, message))
    }

    /// Whether others refer to these versions. For soft deletion, only others that are not deleted count.
    fn check_unreferenced(&self, subject: &str, versions: &BTreeSet<u32>, permanent: bool) -> Result<(), Refusal> {
        for (name, state) in &self.subjects {
            for (number, version) in &state.versions {
                let goes_too = name == subject && versions.contains(number);
                if goes_too || (version.is_deleted && !permanent) {
                    continue;
                }
                let references = self.schemas.get(&version.id).map_or(&[][..], |schema| &schema.references);
                let is_hit = |to| versions.iter().any(|number| is_to(to, subject, *number));
                if references.iter().any(is_hit) {
                    let (subject, name) = (shown(subject), shown(name));
                    let message = format!("subject {subject:?}: version {number} of subject {name:?} refers to it");
                    return Err(Refusal::new(RefusalKind::Referenced, message));
                }
            }
        }
        Ok(())
    }

    /// Sets the compatibility level of a subject, which may have no versions yet. Without a subject, sets the level for
    /// all. `None` removes it: a subject then has the level for all, and the level for all becomes `BACKWARD`.
    ///
    /// # Errors
    /// If the mode does not allow it.
    pub fn set_compatibility(&mut self, subject: Option<&str>, level: Option<Level>) -> Result<(), Refusal> {
        self.change(|next| {
            let Some(subject) = subject else {
                if next.mode.is_some_and(Mode::is_read_only) {
                    return Err(not_permitted("the registry is read-only"));
                }
                next.compatibility = level;
                return Ok(());
            };
            check_subject_name(subject)?;
            next.check_writable(subject)?;
            if level.is_some() || next.subjects.contains_key(subject) {
                next.subject_mut(subject).compatibility = level;
                next.sweep(subject);
            }
            Ok(())
        })
    }

    /// Sets the mode of a subject, or, without a subject, the mode for all. `None` removes it. `IMPORT` needs a
    /// subject, or a registry, without versions, unless it is forced.
    ///
    /// # Errors
    /// If there are versions, or if a subject should become `READONLY_OVERRIDE`.
    pub fn set_mode(&mut self, subject: Option<&str>, mode: Option<Mode>, force: bool) -> Result<(), Refusal> {
        self.change(|next| {
            let has_live = match subject {
                Some(subject) => next.subjects.get(subject).is_some_and(|state| state.has_live()),
                None => next.subjects.values().any(|state| state.has_live()),
            };
            if mode == Some(Mode::Import) && !force && has_live {
                return Err(not_permitted("IMPORT is for what has no schemas yet, unless it is forced"));
            }
            let Some(subject) = subject else {
                next.mode = mode;
                return Ok(());
            };
            check_subject_name(subject)?;
            if mode == Some(Mode::ReadOnlyOverride) {
                let message = "READONLY_OVERRIDE is a mode for all subjects, not for one";
                return Err(Refusal::new(RefusalKind::InvalidMode, message));
            }
            if mode.is_some() || next.subjects.contains_key(subject) {
                next.subject_mut(subject).mode = mode;
                next.sweep(subject);
            }
            Ok(())
        })
    }
}
