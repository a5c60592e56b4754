//! The questions that the registry answers.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;

use millrace_avro::Schema;

use crate::compatibility::breaches;
use crate::level::{Level, Mode};
use crate::refusal::{Refusal, RefusalKind};
use crate::settings::Reference;
use crate::state::{LARGEST_NUMBER, Registry, Subject, shown, subject_not_found};
use crate::stored::{Candidate, StoredSchema};

/// Which versions are looked at. Soft deletion hides a version, permanent deletion removes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Shown {
    /// Those that are not deleted.
    #[default]
    Live,
    /// All.
    All,
    /// Those that are deleted.
    Deleted,
}

impl Shown {
    fn takes(self, is_deleted: bool) -> bool {
        match self {
            Shown::Live => !is_deleted,
            Shown::All => true,
            Shown::Deleted => is_deleted,
        }
    }
}

/// A version as URLs name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VersionNumber {
    /// The latest one.
    Latest,
    /// This one.
    Number(u32),
}

impl VersionNumber {
    /// A positive number, `latest` or `-1`.
    ///
    /// # Errors
    /// If it is anything else.
    pub fn parse(text: &str) -> Result<VersionNumber, Refusal> {
        match text {
            "latest" | "-1" => Ok(VersionNumber::Latest),
            _ => match text.parse() {
                Ok(number @ 1..=LARGEST_NUMBER) if !text.starts_with('+') => Ok(VersionNumber::Number(number)),
                _ => {
                    let message = format!("{:?} is not a version: give its number or latest", shown(text));
                    Err(Refusal::new(RefusalKind::InvalidVersion, message))
                }
            },
        }
    }
}

/// The versions against which a schema is tested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Against {
    /// Those that registering it would test: the latest version, or all if the level is transitive.
    Subject,
    /// One version, whatever the level.
    Version(VersionNumber),
}

/// A schema as it is sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewSchema {
    /// Its text.
    pub text: String,
    /// Its kind. The registry keeps only `AVRO`, which is also meant if none is given.
    pub schema_type: Option<String>,
    /// What it refers to.
    pub references: Vec<Reference>,
    /// Whether to keep its normal form instead of the text as it is.
    pub normalize: bool,
    /// The id that it should have. Only in the mode [`Mode::Import`].
    pub id: Option<u32>,
    /// The version that it should be.
    pub version: Option<u32>,
}

impl NewSchema {
    /// A schema without references.
    pub fn avro(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }
}

/// Where a schema was registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registered {
    /// The schema's id.
    pub id: u32,
    /// The subject's version.
    pub version: u32,
    /// Whether this call registered it. Otherwise it was there already.
    pub is_new: bool,
}

/// One version of a subject.
#[derive(Clone, Copy, Debug)]
pub struct SchemaVersion<'a> {
    /// The subject.
    pub subject: &'a str,
    /// Its number.
    pub version: u32,
    /// Whether it is deleted, softly.
    pub is_deleted: bool,
    /// The schema.
    pub schema: &'a Arc<StoredSchema>,
}

impl Registry {
    /// The names of subjects that have versions of the kind asked for, in order.
    #[must_use]
    pub fn subjects(&self, which: Shown) -> Vec<&str> {
        let has = |subject: &Subject| match which {
            Shown::Live => subject.has_live(),
            Shown::All => !subject.versions.is_empty(),
            Shown::Deleted => !subject.versions.is_empty() && !subject.has_live(),
        };
        self.subjects.iter().filter(|(_, subject)| has(subject)).map(|(name, _)| name.as_str()).collect()
    }

    /// The numbers of a subject's versions, in order.
    ///
    /// # Errors
    /// If it has none of the kind asked for.
    pub fn versions(&self, subject: &str, which: Shown) -> Result<Vec<u32>, Refusal> {
        let versions = &self.subject(subject)?.versions;
        let numbers: Vec<u32> =
            versions.iter().filter(|(_, version)| which.takes(version.is_deleted)).map(|(&number, _)| number).collect();
        if numbers.is_empty() { Err(subject_not_found(subject)) } else { Ok(numbers) }
    }

    /// One version of a subject. With `even_deleted`, also a deleted one.
    ///
    /// # Errors
    /// If the subject has no versions, or not this one.
    pub fn version(
        &self,
        subject: &str,
        number: VersionNumber,
        even_deleted: bool,
    ) -> Result<SchemaVersion<'_>, Refusal> {
        let which = if even_deleted { Shown::All } else { Shown::Live };
        let numbers = self.versions(subject, which)?;
        let found = match number {
            VersionNumber::Latest => numbers.last().copied(),
            VersionNumber::Number(number) => Some(number).filter(|number| numbers.contains(number)),
        };
        let version = found.and_then(|number| self.all_versions_of(subject).find(|version| version.version == number));
        version.ok_or_else(|| version_not_found(subject, number))
    }

    /// Every version of a subject, in order; none if there is no such subject.
    pub(crate) fn all_versions_of(&self, subject: &str) -> impl DoubleEndedIterator<Item = SchemaVersion<'_>> {
        self.subjects.get_key_value(subject).into_iter().flat_map(|(subject, state)| {
            state.versions.iter().filter_map(|(&version, found)| {
                let schema = self.schemas.get(&found.id)?;
                Some(SchemaVersion { subject, version, is_deleted: found.is_deleted, schema })
            })
        })
    }

    /// Every version of every subject whose name starts with `prefix`, by subject and number.
    pub fn all_versions<'a>(&'a self, prefix: &'a str, which: Shown) -> impl Iterator<Item = SchemaVersion<'a>> {
        let from = (Bound::Included(prefix), Bound::Unbounded);
        let names = self.subjects.range::<str, _>(from).map(|(name, _)| name.as_str());
        names
            .take_while(move |name| name.starts_with(prefix))
            .flat_map(|name| self.all_versions_of(name))
            .filter(move |version| which.takes(version.is_deleted))
    }

    /// The schema with this id, wherever it is registered, deleted or not.
    ///
    /// # Errors
    /// If there is no such schema.
    pub fn schema(&self, id: u32) -> Result<&Arc<StoredSchema>, Refusal> {
        self.stored(id)
    }

    /// The subjects and versions that are this schema.
    ///
    /// # Errors
    /// If there is no such schema.
    pub fn versions_with(&self, id: u32, which: Shown) -> Result<Vec<(&str, u32)>, Refusal> {
        self.stored(id)?;
        let versions = self.all_versions("", which).filter(|version| version.schema.id == id);
        Ok(versions.map(|version| (version.subject, version.version)).collect())
    }

    /// The ids of the schemas that refer to this version and are not deleted.
    ///
    /// # Errors
    /// If there is no such version.
    pub fn referenced_by(&self, subject: &str, number: VersionNumber) -> Result<Vec<u32>, Refusal> {
        let number = self.version(subject, number, true)?.version;
        let live = self.all_versions("", Shown::Live);
        let referring = live.filter(|version| version.schema.references.iter().any(|to| is_to(to, subject, number)));
        Ok(referring.map(|version| version.schema.id).collect::<BTreeSet<_>>().into_iter().collect())
    }

    /// The version of a subject that is this schema: the latest one. With `even_deleted`, deleted versions come after
    /// those that are not.
    ///
    /// # Errors
    /// If the subject or the schema is not there, or the schema is not valid.
    pub fn lookup(&self, subject: &str, schema: &NewSchema, even_deleted: bool) -> Result<SchemaVersion<'_>, Refusal> {
        let which = if even_deleted { Shown::All } else { Shown::Live };
        self.versions(subject, which)?;
        let candidate = self.candidate(schema)?;
        match self.find(subject, &candidate, even_deleted) {
            Some(version) => Ok(version),
            None => {
                self.compile(&candidate)?;
                let message = format!("subject {:?} has no such schema", shown(subject));
                Err(Refusal::new(RefusalKind::SchemaNotFound, message))
            }
        }
    }

    pub(crate) fn find(&self, subject: &str, candidate: &Candidate, even_deleted: bool) -> Option<SchemaVersion<'_>> {
        let same = |version: &SchemaVersion<'_>| version.schema.key == candidate.key;
        let newest = || self.all_versions_of(subject).rev().filter(same);
        let live = newest().find(|version| !version.is_deleted);
        live.or_else(|| newest().next().filter(|_| even_deleted))
    }

    /// Resolves references and computes the key that tells equal schemas.
    pub(crate) fn candidate(&self, schema: &NewSchema) -> Result<Candidate, Refusal> {
        if let Some(other) = schema.schema_type.as_deref().filter(|kind| *kind != "AVRO") {
            let message = format!("schemas of type {:?} are not kept here, only AVRO", shown(other));
            return Err(Refusal::invalid_schema(message));
        }
        let mut references = schema.references.clone();
        if references.len() > millrace_base::limits::SCHEMA_REFERENCES {
            let message = format!("the schema uses more than {} others", millrace_base::limits::SCHEMA_REFERENCES);
            return Err(Refusal::invalid_schema(message));
        }
        for reference in &mut references {
            let (number, _) = self.referred(reference)?;
            reference.version = i32::try_from(number).unwrap_or(i32::MAX);
        }
        let uses = self.uses_of(&references)?;
        if !schema.normalize {
            return Candidate::new(&schema.text, references, uses);
        }
        references.sort();
        references.dedup();
        let candidate = Candidate::new(&schema.text, references, uses)?;
        let text = crate::normal::normal_text(&candidate.text)?;
        Ok(Candidate { text: text.into(), ..candidate })
    }

    /// Where a schema would break the subject's level. Empty if it fits. Registers nothing.
    ///
    /// # Errors
    /// If the schema is not valid or the version to test against is not there. An unknown subject has nothing that
    /// could be broken.
    pub fn test_compatibility(
        &self,
        subject: &str,
        against: Against,
        schema: &NewSchema,
    ) -> Result<Vec<String>, Refusal> {
        let compiled = self.compile(&self.candidate(schema)?)?;
        let level = self.effective_compatibility(subject);
        match against {
            Against::Subject => Ok(self.breaches(subject, level, &compiled)),
            Against::Version(number) => match self.version(subject, number, false) {
                Ok(old) => Ok(breaches(level, &compiled, [(old.version, &**old.schema.schema())].into_iter())),
                Err(_) if number == VersionNumber::Latest => Ok(Vec::new()),
                Err(refusal) => Err(refusal),
            },
        }
    }

    /// Where a new schema of a subject would break this level.
    pub(crate) fn breaches(&self, subject: &str, level: Level, new: &Schema) -> Vec<String> {
        let count = if level.is_transitive() { usize::MAX } else { 1 };
        let live = self.all_versions_of(subject).rev().filter(|version| !version.is_deleted);
        breaches(level, new, live.take(count).map(|old| (old.version, &**old.schema.schema())))
    }

    /// The level that was set for a subject. Without a subject, the level for all, which is always there.
    #[must_use]
    pub fn compatibility(&self, subject: Option<&str>) -> Option<Level> {
        match subject {
            Some(subject) => self.subjects.get(subject)?.compatibility,
            None => Some(self.compatibility.unwrap_or_default()),
        }
    }

    /// The level that applies to a subject.
    #[must_use]
    pub fn effective_compatibility(&self, subject: &str) -> Level {
        self.compatibility(Some(subject)).or(self.compatibility).unwrap_or_default()
    }

    /// The mode that was set for a subject. Without a subject, the mode for all, which is always there.
    #[must_use]
    pub fn mode(&self, subject: Option<&str>) -> Option<Mode> {
        match subject {
            Some(subject) => self.subjects.get(subject)?.mode,
            None => Some(self.mode.unwrap_or_default()),
        }
    }

    /// The mode that applies to a subject.
    #[must_use]
    pub fn effective_mode(&self, subject: &str) -> Mode {
        match self.mode {
            Some(Mode::ReadOnlyOverride) => Mode::ReadOnlyOverride,
            all => self.mode(Some(subject)).or(all).unwrap_or_default(),
        }
    }
}

pub(crate) fn is_to(reference: &Reference, subject: &str, number: u32) -> bool {
    reference.subject == subject && u32::try_from(reference.version) == Ok(number)
}

pub(crate) fn version_not_found(subject: &str, number: VersionNumber) -> Refusal {
    let subject = shown(subject);
    let message = match number {
        VersionNumber::Latest => format!("subject {subject:?} has no version"),
        VersionNumber::Number(number) => format!("subject {subject:?} has no version {number}"),
    };
    Refusal::new(RefusalKind::VersionNotFound, message)
}
