//! Why a change or a question is refused.

use std::fmt;

use millrace_base::{Error, ErrorCode};

/// What kind of refusal. The Confluent Schema Registry has a number for each kind, by which clients of its API tell
/// errors apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalKind {
    /// There is no such subject.
    SubjectNotFound,
    /// The subject has no such version.
    VersionNotFound,
    /// There is no such schema.
    SchemaNotFound,
    /// The subject is already deleted, softly.
    SubjectDeleted,
    /// The subject must be deleted softly first.
    SubjectNotDeleted,
    /// The version is already deleted, softly.
    VersionDeleted,
    /// The version must be deleted softly first.
    VersionNotDeleted,
    /// The new schema breaks the compatibility rule.
    Incompatible,
    /// The text is not a valid schema, or of a kind that the registry does not keep.
    InvalidSchema,
    /// Not the number of a version.
    InvalidVersion,
    /// Not a compatibility level.
    InvalidLevel,
    /// Not a mode.
    InvalidMode,
    /// The mode does not allow it.
    NotPermitted,
    /// Other schemas refer to it.
    Referenced,
    /// Not the name of a subject.
    InvalidSubject,
    /// There is no such type.
    UnknownType,
    /// The type has no such trigger.
    UnknownTrigger,
    /// The type has records, or is still a type.
    TypeInUse,
    /// Settings that do not fit, or too much of something.
    Invalid,
}

impl RefusalKind {
    /// The error code that the Confluent Schema Registry has for it.
    #[must_use]
    pub fn number(self) -> u32 {
        match self {
            Self::SubjectNotFound | Self::UnknownType => 40401,
            Self::VersionNotFound => 40402,
            Self::SchemaNotFound => 40403,
            Self::SubjectDeleted => 40404,
            Self::SubjectNotDeleted => 40405,
            Self::VersionDeleted => 40406,
            Self::VersionNotDeleted => 40407,
            Self::UnknownTrigger => 404,
            Self::Incompatible => 409,
            Self::InvalidSchema => 42201,
            Self::InvalidVersion => 42202,
            Self::InvalidLevel => 42203,
            Self::InvalidMode => 42204,
            Self::NotPermitted | Self::TypeInUse => 42205,
            Self::Referenced => 42206,
            Self::InvalidSubject => 42208,
            Self::Invalid => 422,
        }
    }

    /// The code of the error that callers of Millrace see.
    #[must_use]
    pub fn code(self) -> ErrorCode {
        match self {
            Self::SubjectNotFound
            | Self::VersionNotFound
            | Self::SchemaNotFound
            | Self::SubjectDeleted
            | Self::VersionDeleted => ErrorCode::UnknownSchema,
            Self::Incompatible => ErrorCode::IncompatibleSchema,
            Self::InvalidSchema => ErrorCode::InvalidSchema,
            Self::UnknownType => ErrorCode::UnknownType,
            // A trigger is a handler of the type's.
            Self::UnknownTrigger => ErrorCode::UnknownHandler,
            Self::TypeInUse | Self::Referenced => ErrorCode::TypeInUse,
            Self::SubjectNotDeleted
            | Self::VersionNotDeleted
            | Self::InvalidVersion
            | Self::InvalidLevel
            | Self::InvalidMode
            | Self::NotPermitted
            | Self::InvalidSubject
            | Self::Invalid => ErrorCode::BadRequest,
        }
    }
}

/// A refusal. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// What kind.
    pub kind: RefusalKind,
    /// What happened, for a person.
    pub message: String,
    /// Each single point, if there may be several: the places at which schemas do not fit.
    pub points: Vec<String>,
}

impl Refusal {
    pub(crate) fn new(kind: RefusalKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), points: Vec::new() }
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(RefusalKind::Invalid, message)
    }

    pub(crate) fn invalid_schema(message: impl Into<String>) -> Self {
        Self::new(RefusalKind::InvalidSchema, message)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)
    }
}

impl std::error::Error for Refusal {}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Error {
        let mut error = Error::new(refusal.kind.code(), refusal.message);
        if !refusal.points.is_empty() {
            error.detail = Some(serde_json::json!({ "messages": refusal.points }).to_string());
        }
        error
    }
}
