//! The state itself, and the code that keeps it whole.

use std::collections::BTreeMap;
use std::sync::Arc;

use millrace_avro::Schema;
use millrace_base::limits;

use crate::level::{Level, Mode};
use crate::refusal::{Refusal, RefusalKind};
use crate::settings::Reference;
use crate::stored::{Candidate, StoredSchema, json_bytes};
use crate::types::TypeState;

/// Ids and versions are positive 32-bit numbers in the API that clients know.
pub(crate) const LARGEST_NUMBER: u32 = i32::MAX as u32;

/// The largest id, and the largest version, that is taken from elsewhere. This registry numbers behind all numbers that
/// were ever there. So foreign numbers must leave room: this leaves half of all.
pub(crate) const LARGEST_IMPORTED: u32 = LARGEST_NUMBER / 2;

/// Bytes of the JSON around one entry, more than it ever takes.
const ENTRY_OVERHEAD_BYTES: usize = 256;

/// The registry. See the crate's documentation. Cheap to clone, because entries are shared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registry {
    pub(crate) schemas: BTreeMap<u32, Arc<StoredSchema>>,
    /// The smallest id of each schema's key.
    pub(crate) ids_by_key: BTreeMap<Arc<str>, u32>,
    pub(crate) subjects: BTreeMap<String, Arc<Subject>>,
    pub(crate) compatibility: Option<Level>,
    pub(crate) mode: Option<Mode>,
    /// This id and all larger ones were never given.
    pub(crate) next_id: u32,
    /// No removed subject had this index number or a larger one.
    pub(crate) first_index: u16,
}

/// One subject. It has a version, or at least a rule of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Subject {
    pub compatibility: Option<Level>,
    pub mode: Option<Mode>,
    pub versions: BTreeMap<u32, Version>,
    /// This index number and all larger ones were never given in this type.
    pub next_index: u16,
    /// The number of the type's stream of changes. It is another one each time that changes were not kept for a while.
    /// It is never given again, because it is one that indexes could have had.
    pub stream: u16,
    /// Its type was deleted by force, so records of it may be stored.
    pub leaves_records: bool,
    pub record_type: Option<TypeState>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Version {
    pub id: u32,
    pub is_deleted: bool,
}

impl Subject {
    /// Versions that are not deleted, in order.
    pub(crate) fn live(&self) -> impl DoubleEndedIterator<Item = (u32, u32)> {
        self.versions.iter().filter(|(_, version)| !version.is_deleted).map(|(&number, version)| (number, version.id))
    }

    /// Number and id of the latest version that is not deleted.
    pub(crate) fn latest(&self) -> Option<(u32, u32)> {
        self.live().next_back()
    }

    pub(crate) fn has_live(&self) -> bool {
        self.latest().is_some()
    }

    fn is_void(&self) -> bool {
        self.versions.is_empty() && self.compatibility.is_none() && self.mode.is_none()
    }
}

impl Default for Registry {
    fn default() -> Self {
        Self {
            schemas: BTreeMap::new(),
            ids_by_key: BTreeMap::new(),
            subjects: BTreeMap::new(),
            compatibility: None,
            mode: None,
            next_id: 1,
            first_index: 0,
        }
    }
}

pub(crate) fn subject_not_found(subject: &str) -> Refusal {
    Refusal::new(RefusalKind::SubjectNotFound, format!("there is no subject {:?}", shown(subject)))
}

/// A stranger's name, cut to a length that suits a message.
pub(crate) fn shown(name: &str) -> String {
    name.chars().take(limits::NAME_BYTES).collect()
}

pub(crate) fn check_subject_name(subject: &str) -> Result<(), Refusal> {
    if subject.is_empty() || subject.len() > limits::KEY_BYTES || subject.chars().any(char::is_control) {
        let message = format!("a subject's name has 1 to {} bytes and no control characters", limits::KEY_BYTES);
        return Err(Refusal::new(RefusalKind::InvalidSubject, message));
    }
    Ok(())
}

impl Registry {
    /// Runs a change on a copy, which replaces this registry if the change succeeds.
    pub(crate) fn change<T>(&mut self, change: impl FnOnce(&mut Registry) -> Result<T, Refusal>) -> Result<T, Refusal> {
        let mut next = self.clone();
        let answer = change(&mut next)?;
        let (before, after) = (self.extent(), next.extent());
        // A change that shrinks the registry is never refused, even if limits were lowered meanwhile.
        for ((what, limit), (before, after)) in EXTENT_LIMITS.iter().zip(before.into_iter().zip(after)) {
            if after > *limit && after > before {
                return Err(Refusal::invalid(format!("the registry is full: {after} {what}; {limit} are allowed")));
            }
        }
        *self = next;
        Ok(answer)
    }

    pub(crate) fn check_extent(&self) -> Result<(), Refusal> {
        for ((what, limit), extent) in EXTENT_LIMITS.iter().zip(self.extent()) {
            if extent > *limit {
                return Err(Refusal::invalid(format!(
                    "the registry is too large: {extent} {what}; {limit} are allowed"
                )));
            }
        }
        Ok(())
    }

    /// The amounts that [`EXTENT_LIMITS`] limits.
    fn extent(&self) -> [usize; 4] {
        let mut bytes = ENTRY_OVERHEAD_BYTES;
        let (mut versions, mut files) = (0, 1);
        for schema in self.schemas.values() {
            bytes += schema.json_bytes + ENTRY_OVERHEAD_BYTES;
            for Reference { name, subject, .. } in &schema.references {
                bytes += json_bytes(name) + json_bytes(subject) + ENTRY_OVERHEAD_BYTES;
            }
        }
        for (name, subject) in &self.subjects {
            versions += subject.versions.len();
            bytes += json_bytes(name) + (subject.versions.len() + 1) * ENTRY_OVERHEAD_BYTES;
            let Some(record_type) = &subject.record_type else {
                continue;
            };
            bytes += ENTRY_OVERHEAD_BYTES;
            for index in &record_type.settings.indexes {
                bytes += json_bytes(&index.name) + json_bytes(&index.path) + ENTRY_OVERHEAD_BYTES;
            }
            for trigger in &record_type.settings.triggers {
                bytes += json_bytes(&trigger.name) + json_bytes(&trigger.path) + ENTRY_OVERHEAD_BYTES;
                bytes += trigger.source.len();
                files += 1;
            }
        }
        [self.subjects.len(), versions, files, bytes]
    }

    pub(crate) fn subject(&self, name: &str) -> Result<&Subject, Refusal> {
        self.subjects.get(name).map(AsRef::as_ref).ok_or_else(|| subject_not_found(name))
    }

    /// The subject to be changed. Makes it if needed.
    pub(crate) fn subject_mut(&mut self, name: &str) -> &mut Subject {
        let subject = self.subjects.entry(name.to_owned()).or_insert_with(|| {
            Arc::new(Subject { next_index: self.first_index, stream: self.first_index, ..Subject::default() })
        });
        Arc::make_mut(subject)
    }

    /// Removes what nothing uses any more, after versions or rules of a subject were removed.
    pub(crate) fn sweep(&mut self, name: &str) {
        if let Some(subject) = self.subjects.get(name)
            && subject.is_void()
        {
            self.first_index = self.first_index.max(subject.next_index);
            self.subjects.remove(name);
        }
        let held: std::collections::BTreeSet<u32> =
            self.subjects.values().flat_map(|subject| subject.versions.values().map(|version| version.id)).collect();
        self.schemas.retain(|id, _| held.contains(id));
        self.index_keys();
    }

    /// Rebuilds the map from keys to ids.
    pub(crate) fn index_keys(&mut self) {
        self.ids_by_key.clear();
        for (&id, schema) in &self.schemas {
            self.ids_by_key.entry(schema.key.clone()).or_insert(id);
        }
    }

    pub(crate) fn stored(&self, id: u32) -> Result<&Arc<StoredSchema>, Refusal> {
        self.schemas
            .get(&id)
            .ok_or_else(|| Refusal::new(RefusalKind::SchemaNotFound, format!("there is no schema with the id {id}")))
    }

    /// The ids of all schemas that references lead to.
    pub(crate) fn uses_of(&self, references: &[Reference]) -> Result<Vec<u32>, Refusal> {
        let mut uses = Vec::new();
        for reference in references {
            let id = self.referred(reference)?.1;
            let used = self.stored(id)?;
            for &id in used.uses.iter().chain([&id]) {
                if !uses.contains(&id) {
                    uses.push(id);
                }
            }
            if uses.len() > limits::SCHEMA_REFERENCES {
                let message = format!("the schema uses more than {} others", limits::SCHEMA_REFERENCES);
                return Err(Refusal::invalid_schema(message));
            }
        }
        Ok(uses)
    }

    /// Number and id of the version that a reference means.
    pub(crate) fn referred(&self, reference: &Reference) -> Result<(u32, u32), Refusal> {
        let subject = self.subjects.get(&reference.subject);
        let found = subject.and_then(|subject| match u32::try_from(reference.version) {
            Ok(number) => subject.versions.get(&number).map(|version| (number, version.id)),
            Err(_) if reference.version == -1 => subject.latest(),
            Err(_) => None,
        });
        found.ok_or_else(|| {
            let Reference { name, subject, version } = reference;
            let (name, subject) = (shown(name), shown(subject));
            Refusal::invalid_schema(format!("reference {name:?}: there is no version {version} of subject {subject:?}"))
        })
    }

    /// Compiles a candidate, or finds it compiled.
    pub(crate) fn compile(&self, candidate: &Candidate) -> Result<Arc<Schema>, Refusal> {
        if let Some(id) = self.ids_by_key.get(&candidate.key) {
            return Ok(self.stored(*id)?.schema.clone());
        }
        let used: Vec<&str> =
            candidate.uses.iter().filter_map(|id| self.schemas.get(id)).map(|used| used.text()).collect();
        candidate.compile(&used)
    }
}

/// Bounds of the registry as a whole. Its files are an app's.
const EXTENT_LIMITS: [(&str, usize); 4] = [
    ("subjects", limits::SCHEMAS),
    ("versions", limits::SCHEMAS),
    ("files", limits::APP_FILES),
    ("bytes", limits::APP_BYTES),
];
