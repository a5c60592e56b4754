//! What can be wrong with a path, and what can go wrong when it runs.

use std::fmt;

use millrace_avro::{Malformed, ValueError};
use millrace_base::{Error, ErrorCode, limits};

/// A path or predicate that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathError {
    /// The column, in characters; the first is 1.
    pub position: usize,
    /// What was expected there.
    pub message: String,
}

impl fmt::Display for PathError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "column {}: {}", self.position, self.message)
    }
}

impl std::error::Error for PathError {}

impl From<PathError> for Error {
    fn from(error: PathError) -> Self {
        Error::new(ErrorCode::InvalidPath, error.to_string())
    }
}

/// Why a path or predicate gives no result.
#[derive(Clone, Debug, PartialEq)]
pub enum EvaluationError {
    /// It contains `$name`, and no value was given for it.
    UnboundParameter(Box<str>),
    /// It looks at more than [`limits::PATH_STEPS`] values.
    TooManySteps,
    /// Together with those before it, it looks at more values than they may.
    BudgetSpent,
    /// It matches more than [`limits::PATH_MATCHES`] places, or reaches ten times as many on its way.
    TooManyMatches,
    /// The record is not a canonical value of the schema.
    Malformed(Malformed),
}

impl fmt::Display for EvaluationError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnboundParameter(name) => write!(formatter, "no value was given for ${name}"),
            Self::TooManySteps => {
                write!(formatter, "the path would look at more than {} values; narrow it down", limits::PATH_STEPS)
            }
            Self::BudgetSpent => formatter
                .write_str("together with what came before, the path would look at more values than one request may"),
            Self::TooManyMatches => {
                let most = limits::PATH_MATCHES;
                write!(
                    formatter,
                    "the path matches more than {most} places, or {} on its way; narrow it down",
                    10 * most
                )
            }
            Self::Malformed(malformed) => write!(formatter, "the record is damaged: {malformed}"),
        }
    }
}

impl std::error::Error for EvaluationError {}

impl From<Malformed> for EvaluationError {
    fn from(malformed: Malformed) -> Self {
        Self::Malformed(malformed)
    }
}

impl From<EvaluationError> for Error {
    fn from(error: EvaluationError) -> Self {
        let code = match error {
            EvaluationError::Malformed(_) => ErrorCode::Internal,
            _ => ErrorCode::InvalidPath,
        };
        Error::new(code, error.to_string())
    }
}

/// Why an update changed nothing.
#[derive(Clone, Debug, PartialEq)]
pub enum UpdateError {
    /// The path gives no result.
    Evaluation(EvaluationError),
    /// The path matches something that the operation cannot change. The text says what and why.
    WrongTarget(String),
    /// The value does not fit where it should go.
    Value(ValueError),
    /// The value does not fit where it should go. The text says why.
    WrongValue(String),
    /// The record would have more than [`limits::RECORD_BYTES`].
    TooLarge,
}

impl fmt::Display for UpdateError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Evaluation(error) => error.fmt(formatter),
            Self::WrongTarget(message) | Self::WrongValue(message) => formatter.write_str(message),
            Self::Value(error) => error.fmt(formatter),
            Self::TooLarge => write!(formatter, "the record would have more than {} bytes", limits::RECORD_BYTES),
        }
    }
}

impl std::error::Error for UpdateError {}

impl From<EvaluationError> for UpdateError {
    fn from(error: EvaluationError) -> Self {
        Self::Evaluation(error)
    }
}

impl From<Malformed> for UpdateError {
    fn from(malformed: Malformed) -> Self {
        Self::Evaluation(malformed.into())
    }
}
