//! What can be wrong with schemas and values.

use std::fmt;

/// Why a text is not a schema, and where in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchemaError {
    /// For people. It begins with the place, if there is one.
    pub message: String,
}

impl SchemaError {
    pub(crate) fn new(path: &str, message: impl fmt::Display) -> SchemaError {
        SchemaError { message: if path.is_empty() { message.to_string() } else { format!("{path}: {message}") } }
    }
}

impl fmt::Display for SchemaError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)
    }
}

impl std::error::Error for SchemaError {}

/// Bytes that are not an encoding of a value of the schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// The place, counted from the first byte given.
    pub position: usize,
    /// What is wrong there.
    pub message: &'static str,
}

impl fmt::Display for Malformed {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "not a value of the schema: {} at byte {}", self.message, self.position)
    }
}

impl std::error::Error for Malformed {}

/// What kind of fault a value has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueErrorKind {
    /// The text is not JSON.
    NotJson,
    /// A value of another type than the schema's, out of range, or given twice.
    WrongType,
    /// A field that the record does not have.
    UnknownField,
    /// A field without default is left out.
    MissingField,
    /// Nested deeper than values may be.
    TooDeep,
    /// Larger than values may be.
    TooLarge,
    /// Bytes that are not an encoding of a value of the schema.
    Malformed,
}

/// Why a value is not one of the schema, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueError {
    /// What kind of fault.
    pub kind: ValueErrorKind,
    /// The place: `.emails[3]`, `.devApps("a").n`; `.` for the whole value.
    pub path: String,
    /// The fault, for people; without the path.
    pub message: String,
}

impl fmt::Display for ValueError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.path, self.message)
    }
}

impl std::error::Error for ValueError {}
