//! The registry as files of an app: `registry.json`, and `triggers/{type}/{name}.js`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use millrace_api::AppFile;
use millrace_base::limits;
use serde::{Deserialize, Serialize};

use crate::level::{Level, Mode};
use crate::refusal::Refusal;
use crate::settings::{ChangesSettings, Create, IndexSettings, Reference, TriggerSettings, TypeSettings, When};
use crate::state::{LARGEST_NUMBER, Registry, Subject, Version, check_subject_name, shown};
use crate::stored::{Candidate, StoredSchema};
use crate::types::{Blame, IndexNumber, TypeState};

const REGISTRY: &str = "registry.json";

/// The format of `registry.json` that this version writes.
const FORMAT: u32 = 1;

/// Only to tell another format from a damaged file.
#[derive(Deserialize)]
struct AnyFormat {
    format: u32,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RegistryFile {
    format: u32,
    next_id: u32,
    #[serde(default, skip_serializing_if = "is_zero")]
    first_index: u16,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    compatibility: Option<Level>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mode: Option<Mode>,
    subjects: BTreeMap<String, SubjectFile>,
    schemas: Vec<SchemaFile>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SubjectFile {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    compatibility: Option<Level>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mode: Option<Mode>,
    versions: Vec<VersionFile>,
    #[serde(default, skip_serializing_if = "is_zero")]
    next_index: u16,
    #[serde(default, skip_serializing_if = "is_zero")]
    stream: u16,
    #[serde(default, skip_serializing_if = "is_false")]
    leaves_records: bool,
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    record_type: Option<TypeFile>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct VersionFile {
    version: u32,
    id: u32,
    #[serde(default, skip_serializing_if = "is_false")]
    deleted: bool,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TypeFile {
    #[serde(default, skip_serializing_if = "is_zero")]
    began: u16,
    create: Create,
    ttl_ms: Option<u64>,
    indexes: Vec<IndexFile>,
    triggers: Vec<TriggerFile>,
    changes: Option<ChangesSettings>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct IndexFile {
    name: String,
    path: String,
    ignore_case: bool,
    number: u16,
    kind: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TriggerFile {
    name: String,
    path: String,
    when: When,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SchemaFile {
    id: u32,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    references: Vec<Reference>,
    schema: String,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero(number: &u16) -> bool {
    *number == 0
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_false(flag: &bool) -> bool {
    !flag
}

fn trigger_path(type_name: &str, trigger: &str) -> String {
    format!("triggers/{type_name}/{trigger}.js")
}

fn damaged(what: impl std::fmt::Display) -> Refusal {
    Refusal::invalid(format!("{REGISTRY}: {what}"))
}

impl Registry {
    /// The registry's files, in the order of their paths. Equal registries have equal files.
    #[must_use]
    pub fn to_files(&self) -> Vec<AppFile> {
        let mut triggers = Vec::new();
        let subjects = self.subjects.iter().map(|(name, subject)| {
            if let Some(state) = &subject.record_type {
                triggers.extend(state.settings.triggers.iter().map(|trigger| AppFile {
                    path: trigger_path(name, &trigger.name),
                    content: trigger.source.as_bytes().to_vec(),
                }));
            }
            (name.clone(), SubjectFile::new(subject))
        });
        let file = RegistryFile {
            format: FORMAT,
            next_id: self.next_id,
            first_index: self.first_index,
            compatibility: self.compatibility,
            mode: self.mode,
            subjects: subjects.collect(),
            schemas: self.schemas.values().map(|schema| SchemaFile::new(schema)).collect(),
        };
        let mut content = serde_json::to_vec_pretty(&file).expect("texts and numbers are always JSON");
        content.push(b'\n');
        let mut files = vec![AppFile { path: REGISTRY.to_owned(), content }];
        triggers.sort_by(|a, b| a.path.cmp(&b.path));
        files.append(&mut triggers);
        files
    }

    /// Reads what [`Registry::to_files`] wrote. No files give an empty registry.
    ///
    /// # Errors
    /// If they are anything else.
    pub fn from_files(files: &[AppFile]) -> Result<Registry, Refusal> {
        Self::from_files_with(files, None)
    }

    /// As [`Registry::from_files`], but does not compile schemas again that `previous` has.
    ///
    /// # Errors
    /// As [`Registry::from_files`].
    pub fn from_files_with(files: &[AppFile], previous: Option<&Registry>) -> Result<Registry, Refusal> {
        if files.is_empty() {
            return Ok(Registry::default());
        }
        let mut sources = BTreeMap::new();
        for file in files {
            let text = std::str::from_utf8(&file.content)
                .map_err(|_| Refusal::invalid(format!("{}: not UTF-8", shown(&file.path))))?;
            sources.insert(file.path.as_str(), text);
        }
        let text = sources.remove(REGISTRY).ok_or_else(|| damaged("is missing"))?;
        let any: AnyFormat = serde_json::from_str(text).map_err(damaged)?;
        if any.format != FORMAT {
            let message = format!("has format {}; this program reads format {FORMAT}", any.format);
            return Err(damaged(message));
        }
        let file: RegistryFile = serde_json::from_str(text).map_err(damaged)?;
        let mut registry = Registry {
            compatibility: file.compatibility,
            mode: file.mode,
            next_id: file.next_id,
            first_index: file.first_index,
            ..Registry::default()
        };
        if !(1..=LARGEST_NUMBER + 1).contains(&file.next_id) {
            return Err(damaged(format!("next_id {} is not an id", file.next_id)));
        }
        for (name, subject) in file.subjects {
            let read = subject
                .read(&name, &mut sources)
                .map_err(|error| damaged(format!("subject {:?}: {error}", shown(&name))))?;
            registry.subjects.insert(name, Arc::new(read));
        }
        if let Some(path) = sources.keys().next() {
            return Err(Refusal::invalid(format!("{:?}: there is no such trigger", shown(path))));
        }
        registry.load_schemas(file.schemas, previous)?;
        registry.check_extent()?;
        let types: Vec<String> = registry.types().map(|found| found.name.to_owned()).collect();
        types.iter().try_for_each(|name| {
            registry.refit(name, None, Blame::Settings).map_err(|error| damaged(format!("type {name:?}: {error}")))
        })?;
        Ok(registry)
    }

    /// Checks ids, and compiles schemas after those they refer to.
    fn load_schemas(&mut self, files: Vec<SchemaFile>, previous: Option<&Registry>) -> Result<(), Refusal> {
        let mut waiting = BTreeMap::new();
        for file in files {
            if !(1..self.next_id).contains(&file.id) {
                return Err(damaged(format!("schema {}: next_id is {}", file.id, self.next_id)));
            }
            let id = file.id;
            if waiting.insert(id, file).is_some() {
                return Err(damaged(format!("schema {id} is there twice")));
            }
        }
        let versions = self.subjects.values().flat_map(|subject| subject.versions.values());
        let held: BTreeSet<u32> = versions.map(|version| version.id).collect();
        if !held.iter().eq(waiting.keys()) {
            return Err(damaged("schemas and versions have different ids"));
        }
        for id in held {
            self.load(id, &mut waiting, previous, 0).map_err(|error| damaged(format!("schema {id}: {error}")))?;
        }
        self.index_keys();
        Ok(())
    }

    fn load(
        &mut self,
        id: u32,
        waiting: &mut BTreeMap<u32, SchemaFile>,
        previous: Option<&Registry>,
        depth: usize,
    ) -> Result<(), Refusal> {
        if self.schemas.contains_key(&id) {
            return Ok(());
        }
        // A schema that is being loaded is no longer waiting, so references in a circle end here too.
        let file = waiting.remove(&id).ok_or_else(|| Refusal::invalid("refers to itself"))?;
        if depth > limits::SCHEMA_REFERENCES || file.references.len() > limits::SCHEMA_REFERENCES {
            return Err(Refusal::invalid("uses too many others"));
        }
        for reference in &file.references {
            if reference.version < 1 {
                return Err(Refusal::invalid("a reference without a version"));
            }
            let (_, id) = self.referred(reference)?;
            self.load(id, waiting, previous, depth + 1)?;
        }
        let uses = self.uses_of(&file.references)?;
        let same = previous.and_then(|previous| previous.schemas.get(&id).map(|found| (previous, found)));
        if let Some((previous, found)) = same
            && *found.text == *file.schema
            && found.references == file.references
            && found.uses == uses
            && uses.iter().all(|id| is_shared(self.schemas.get(id), previous.schemas.get(id)))
        {
            let found = found.clone();
            self.schemas.insert(id, found);
            return Ok(());
        }
        let candidate = Candidate::new(&file.schema, file.references, uses)?;
        let used: Vec<&str> =
            candidate.uses.iter().filter_map(|id| self.schemas.get(id)).map(|used| used.text()).collect();
        let schema = candidate.compile(&used)?;
        self.schemas.insert(id, Arc::new(candidate.into_stored(id, schema)));
        Ok(())
    }
}

fn is_shared(a: Option<&Arc<StoredSchema>>, b: Option<&Arc<StoredSchema>>) -> bool {
    matches!((a, b), (Some(a), Some(b)) if Arc::ptr_eq(a, b))
}

impl SchemaFile {
    fn new(schema: &StoredSchema) -> Self {
        Self { id: schema.id, references: schema.references.clone(), schema: schema.text.to_string() }
    }
}

impl SubjectFile {
    fn new(subject: &Subject) -> Self {
        let versions = subject.versions.iter();
        Self {
            compatibility: subject.compatibility,
            mode: subject.mode,
            versions: versions
                .map(|(&version, found)| VersionFile { version, id: found.id, deleted: found.is_deleted })
                .collect(),
            next_index: subject.next_index,
            stream: subject.stream,
            leaves_records: subject.leaves_records,
            record_type: subject.record_type.as_ref().map(TypeFile::new),
        }
    }

    fn read(self, name: &str, sources: &mut BTreeMap<&str, &str>) -> Result<Subject, Refusal> {
        check_subject_name(name)?;
        let mut subject = Subject {
            compatibility: self.compatibility,
            mode: self.mode,
            next_index: self.next_index,
            stream: self.stream,
            leaves_records: self.leaves_records,
            ..Subject::default()
        };
        if subject.stream > subject.next_index {
            return Err(Refusal::invalid("a stream of changes that cannot be"));
        }
        for VersionFile { version, id, deleted: is_deleted } in self.versions {
            let is_next = subject.versions.last_key_value().is_none_or(|(last, _)| *last < version);
            if !is_next || !(1..=LARGEST_NUMBER).contains(&version) {
                return Err(Refusal::invalid(format!("version {version} is out of order")));
            }
            subject.versions.insert(version, Version { id, is_deleted });
        }
        if let Some(file) = self.record_type {
            if !subject.has_live() {
                return Err(Refusal::invalid("a type without a schema"));
            }
            let state = file.read(name, sources)?;
            let mut numbers = BTreeSet::new();
            if !state.numbers.iter().all(|index| index.number < subject.next_index && numbers.insert(index.number)) {
                return Err(Refusal::invalid("numbers of indexes that cannot be"));
            }
            subject.record_type = Some(state);
        }
        Ok(subject)
    }
}

impl TypeFile {
    fn new(state: &TypeState) -> Self {
        let TypeSettings { create, ttl_ms, indexes, triggers, changes } = &*state.settings;
        let indexes = indexes.iter().zip(&state.numbers).map(|(index, number)| IndexFile {
            name: index.name.clone(),
            path: index.path.clone(),
            ignore_case: index.ignore_case,
            number: number.number,
            kind: number.kind.clone(),
        });
        let triggers = triggers.iter().map(|trigger| TriggerFile {
            name: trigger.name.clone(),
            path: trigger.path.clone(),
            when: trigger.when,
        });
        Self {
            began: state.began,
            create: *create,
            ttl_ms: *ttl_ms,
            indexes: indexes.collect(),
            triggers: triggers.collect(),
            changes: *changes,
        }
    }

    fn read(self, name: &str, sources: &mut BTreeMap<&str, &str>) -> Result<TypeState, Refusal> {
        let mut settings =
            TypeSettings { create: self.create, ttl_ms: self.ttl_ms, changes: self.changes, ..TypeSettings::default() };
        let mut numbers = Vec::with_capacity(self.indexes.len());
        for IndexFile { name, path, ignore_case, number, kind } in self.indexes {
            settings.indexes.push(IndexSettings { name, path, ignore_case });
            numbers.push(IndexNumber { number, kind });
        }
        for TriggerFile { name: trigger, path, when } in self.triggers {
            let file = trigger_path(name, &trigger);
            let source = sources.remove(file.as_str()).ok_or_else(|| Refusal::invalid(format!("no file {file}")))?;
            settings.triggers.push(TriggerSettings { name: trigger, path, when, source: source.to_owned() });
        }
        Ok(TypeState { settings: Arc::new(settings), numbers, began: self.began })
    }
}

#[cfg(test)]
#[path = "files_tests.rs"]
mod tests;
