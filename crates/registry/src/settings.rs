//! A type's settings, as users write them in JSON.

use std::collections::BTreeSet;

use millrace_api::{Object, objects};
use millrace_avpath::Path;
use millrace_base::{Name, limits};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use crate::refusal::Refusal;

/// The path of triggers that run at any change.
pub(crate) const ANY_CHANGE: &str = ".";

/// Words that URLs have in the place of a type's name.
const RESERVED_TYPES: [&str; 4] = ["contexts", "ids", "subjects", "types"];

/// Whether a subject of this name can be a type. The name needs room for what the engine adds to it.
#[must_use]
pub fn is_type_name(name: &str) -> bool {
    Name::is_valid(name)
        && name.len() <= limits::TYPE_NAME_BYTES
        // Names are short: a plain loop is quicker than a searcher.
        && !name.as_bytes().windows(2).any(|pair| pair == b"--")
        && !RESERVED_TYPES.contains(&name)
}

/// As [`is_type_name`], with the reason.
///
/// # Errors
/// `bad-request`, which says what a type's name may be.
pub fn check_type_name(name: &str) -> Result<(), Refusal> {
    if is_type_name(name) {
        return Ok(());
    }
    let shown: String = name.chars().take(limits::NAME_BYTES).collect();
    Err(Refusal::invalid(format!(
        "{shown:?} is not the name of a type: use 1 to {} of the characters A-Z a-z 0-9 _ -, not starting with a digit \
         or -, without --, and none of the words {}",
        limits::TYPE_NAME_BYTES,
        RESERVED_TYPES.join(", ")
    )))
}

/// When records come to exist.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Create {
    /// On first touch, with the schema's defaults.
    Touch,
    /// When they are put.
    #[default]
    Explicit,
}

/// When a trigger runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum When {
    /// In the transaction that changes the record; it may refuse the change.
    Before,
    /// Once the change is committed, exactly once.
    #[default]
    After,
}

/// A reference to a type that another subject defines.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reference {
    /// The type's full name, which the schema uses.
    pub name: String,
    /// The subject that defines it.
    pub subject: String,
    /// The version of the subject. The registry replaces -1, the latest one, by its number.
    pub version: i32,
}

/// A secondary index.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IndexSettings {
    /// Its name, one of the type's.
    pub name: String,
    /// What it indexes: a simple path to a scalar.
    pub path: String,
    /// Whether upper and lower case are the same.
    #[serde(default)]
    pub ignore_case: bool,
}

/// A trigger.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TriggerSettings {
    /// Its name, one of the type's.
    pub name: String,
    /// Changes below this simple path run it; `.` for any change.
    pub path: String,
    /// When it runs.
    #[serde(default)]
    pub when: When,
    /// JavaScript.
    pub source: String,
}

/// How long changes are kept for readers of the change stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChangesSettings {
    /// Keep changes for so long.
    #[serde(default = "default_retention_ms")]
    pub retention_ms: u64,
    /// Keep at most so many in each shard.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retention_count: Option<u64>,
}

fn default_retention_ms() -> u64 {
    limits::CHANGE_RETENTION_MS
}

/// All settings of a type.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TypeSettings {
    /// When records come to exist.
    pub create: Create,
    /// How long after the last write a record vanishes, unless the write says otherwise.
    pub ttl_ms: Option<u64>,
    /// Its indexes.
    pub indexes: Vec<IndexSettings>,
    /// Its triggers.
    pub triggers: Vec<TriggerSettings>,
    /// The change stream, if it has one.
    pub changes: Option<ChangesSettings>,
}

/// A change of a type: the body of `PUT /schemas/{type}`. What it leaves out stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TypeChange {
    /// The schema's text. In JSON, the schema itself or a string that holds it.
    #[serde(deserialize_with = "schema_text")]
    pub schema: Option<String>,
    /// What the schema refers to.
    #[serde(deserialize_with = "objects")]
    pub references: Vec<Reference>,
    /// The subject's compatibility level, which already applies to this change; `null` for the global one.
    #[serde(deserialize_with = "even_null")]
    pub compatibility: Option<Option<crate::Level>>,
    /// See [`TypeSettings::create`].
    pub create: Option<Create>,
    /// See [`TypeSettings::ttl_ms`]; `null` for none.
    #[serde(deserialize_with = "even_null")]
    pub ttl_ms: Option<Option<u64>>,
    /// All the indexes.
    #[serde(deserialize_with = "all")]
    pub indexes: Option<Vec<IndexSettings>>,
    /// All the triggers.
    #[serde(deserialize_with = "all")]
    pub triggers: Option<Vec<TriggerSettings>>,
    /// See [`TypeSettings::changes`]; `null` for none.
    #[serde(deserialize_with = "settings_or_null")]
    pub changes: Option<Option<ChangesSettings>>,
}

/// Tells `null` from an absent member.
fn even_null<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<Option<T>>, D::Error> {
    Option::<T>::deserialize(deserializer).map(Some)
}

fn settings_or_null<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<ChangesSettings>>, D::Error> {
    let settings: Option<Object<ChangesSettings>> = Option::deserialize(deserializer)?;
    Ok(Some(settings.map(|settings| settings.0)))
}

/// A list that replaces the existing one. `null` counts as absent.
fn all<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<Vec<T>>, D::Error> {
    let all: Option<Vec<Object<T>>> = Option::deserialize(deserializer)?;
    Ok(all.map(|all| all.into_iter().map(|one| one.0).collect()))
}

/// Keeps the text of a schema as it is in the JSON around it.
fn schema_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let raw: Option<Box<RawValue>> = Option::deserialize(deserializer)?;
    raw.map(|raw| {
        let text = raw.get();
        if text.starts_with('"') {
            serde_json::from_str(text).map_err(serde::de::Error::custom)
        } else {
            Ok(text.to_owned())
        }
    })
    .transpose()
}

impl TypeChange {
    /// Reads JSON.
    ///
    /// # Errors
    /// `bad-request`, which names the place.
    pub fn from_json(text: &str) -> Result<TypeChange, Refusal> {
        let read: Result<Object<Self>, _> = serde_json::from_str(text);
        read.map(|change| change.0).map_err(|error| Refusal::invalid(format!("not settings of a type: {error}")))
    }
}

impl TypeSettings {
    /// Writes paths in their normal form, so that equal paths have equal texts.
    pub(crate) fn canonicalise(&mut self) {
        let indexes = self.indexes.iter_mut().map(|index| &mut index.path);
        for path in indexes.chain(self.triggers.iter_mut().map(|trigger| &mut trigger.path)) {
            // The check refuses a text that is not a path.
            if let Ok(parsed) = Path::parse(path) {
                *path = parsed.text().to_owned();
            }
        }
    }

    /// Checks what settings allow without the schema.
    pub(crate) fn check(&self) -> Result<(), Refusal> {
        for (what, count) in [("indexes", self.indexes.len()), ("triggers", self.triggers.len())] {
            if count > limits::INDEXES {
                return Err(Refusal::invalid(format!("{count} {what}; {} are allowed", limits::INDEXES)));
            }
        }
        check_names("index", limits::NAME_BYTES, self.indexes.iter().map(|index| index.name.as_str()))?;
        // A trigger's handler has the name of the trigger with `_` before it.
        let most = limits::NAME_BYTES - 1;
        check_names("trigger", most, self.triggers.iter().map(|trigger| trigger.name.as_str()))?;
        let mut definitions = BTreeSet::new();
        for index in &self.indexes {
            check_path("index", &index.name, &index.path)?;
            if !definitions.insert((&index.path, index.ignore_case)) {
                return Err(Refusal::invalid(format!(
                    "index {:?}: there is one already of {}",
                    index.name, index.path
                )));
            }
        }
        for trigger in self.triggers.iter().filter(|trigger| trigger.path != ANY_CHANGE) {
            check_path("trigger", &trigger.name, &trigger.path)?;
        }
        if self.ttl_ms == Some(0) {
            return Err(Refusal::invalid("ttl_ms: 0 would remove every record at once"));
        }
        Ok(())
    }
}

/// Checks that they are names of at most so many characters, and all different.
fn check_names<'a>(what: &str, most: usize, names: impl Iterator<Item = &'a str>) -> Result<(), Refusal> {
    let mut seen = BTreeSet::new();
    for name in names {
        Name::new(name).map_err(|error| Refusal::invalid(format!("{what}: {error}")))?;
        if name.len() > most {
            return Err(Refusal::invalid(format!("{what} {name:?}: a {what}'s name has at most {most} characters")));
        }
        if !seen.insert(name) {
            return Err(Refusal::invalid(format!("{what} {name:?} is there twice")));
        }
    }
    Ok(())
}

fn check_path(what: &str, name: &str, text: &str) -> Result<(), Refusal> {
    let path = Path::parse(text).map_err(|error| Refusal::invalid(format!("{what} {name:?}: path {text}: {error}")))?;
    if path.is_simple() {
        return Ok(());
    }
    Err(Refusal::invalid(format!("{what} {name:?}: {text} is not a simple path: only fields and [*]")))
}
