//! A registered schema: its text, its references, and what they compile to.

use std::sync::Arc;

use millrace_avro::Schema;
use millrace_base::limits;

use crate::normal::normal_text;
use crate::refusal::Refusal;
use crate::settings::Reference;

/// A schema under its id. It never changes.
#[derive(Debug)]
pub struct StoredSchema {
    pub(crate) id: u32,
    pub(crate) text: Arc<str>,
    pub(crate) references: Vec<Reference>,
    /// Equal for texts that are the same schema.
    pub(crate) key: Arc<str>,
    /// The ids of all schemas that it uses, directly or not.
    pub(crate) uses: Vec<u32>,
    pub(crate) schema: Arc<Schema>,
    /// Bytes of the text as a JSON string.
    pub(crate) json_bytes: usize,
}

impl StoredSchema {
    /// Its id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Its text.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// What it refers to.
    #[must_use]
    pub fn references(&self) -> &[Reference] {
        &self.references
    }

    /// What it compiles to.
    #[must_use]
    pub fn schema(&self) -> &Arc<Schema> {
        &self.schema
    }
}

/// Text and references decide everything else.
impl PartialEq for StoredSchema {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id && self.text == other.text && self.references == other.references
    }
}

impl Eq for StoredSchema {}

/// A key that is the same for all texts and references that are the same schema.
pub(crate) fn key_of(normal: &str, references: &[Reference]) -> Arc<str> {
    let mut sorted: Vec<&Reference> = references.iter().collect();
    sorted.sort();
    sorted.dedup();
    let mut key = normal.to_owned();
    for Reference { name, subject, version } in sorted {
        key.push('\n');
        key.push_str(&serde_json::json!([name, subject, version]).to_string());
    }
    Arc::from(key)
}

/// The bytes of a text as a JSON string.
pub(crate) fn json_bytes(text: &str) -> usize {
    let escaped = text.bytes().map(|byte| match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 0x08 | 0x0c => 2,
        0..0x20 => 6,
        _ => 1,
    });
    escaped.sum::<usize>() + 2
}

/// A text with its references resolved, not yet compiled.
#[derive(Debug)]
pub(crate) struct Candidate {
    pub text: Arc<str>,
    pub references: Vec<Reference>,
    pub key: Arc<str>,
    pub uses: Vec<u32>,
}

impl Candidate {
    /// Checks what can be checked without compiling.
    pub(crate) fn new(text: &str, references: Vec<Reference>, uses: Vec<u32>) -> Result<Candidate, Refusal> {
        if text.len() > limits::SCHEMA_BYTES {
            let message = format!("the schema has {} bytes; {} are allowed", text.len(), limits::SCHEMA_BYTES);
            return Err(Refusal::invalid_schema(message));
        }
        if uses.len() > limits::SCHEMA_REFERENCES || references.len() > limits::SCHEMA_REFERENCES {
            let message = format!("the schema uses more than {} others", limits::SCHEMA_REFERENCES);
            return Err(Refusal::invalid_schema(message));
        }
        let key = key_of(&normal_text(text)?, &references);
        Ok(Candidate { text: Arc::from(text), references, key, uses })
    }

    /// Compiles it with the texts that it uses.
    pub(crate) fn compile(&self, used: &[&str]) -> Result<Arc<Schema>, Refusal> {
        let schema = Schema::parse(&self.text, used).map_err(|error| Refusal::invalid_schema(error.to_string()))?;
        Ok(Arc::new(schema))
    }

    pub(crate) fn into_stored(self, id: u32, schema: Arc<Schema>) -> StoredSchema {
        let json_bytes = json_bytes(&self.text);
        let Candidate { text, references, key, uses } = self;
        StoredSchema { id, text, references, key, uses, schema, json_bytes }
    }
}
