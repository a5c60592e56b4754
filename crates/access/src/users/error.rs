//! Why a change of users is refused.

use std::fmt;

use super::store::StoreError;

/// A change that was refused, or a table that cannot be used.
#[derive(Debug)]
pub enum UserError {
    /// A name, an address or a key is wrong.
    Refused(String),
    /// Another user or key has this name, address or id.
    Taken(String),
    /// There is no such user or key.
    Unknown(String),
    /// A limit is reached.
    Full(String),
    /// The kept table is not one, or its secrets were encrypted with another key.
    Malformed(String),
    /// The table could not be kept. After a failed change, a restart may find the state before it or after it.
    Store(StoreError),
}

impl fmt::Display for UserError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(reason) | Self::Taken(reason) | Self::Unknown(reason) | Self::Full(reason) => {
                formatter.write_str(reason)
            }
            Self::Malformed(reason) => write!(formatter, "the users of S3 cannot be read: {reason}"),
            Self::Store(error) => write!(formatter, "the users of S3 cannot be kept: {error}"),
        }
    }
}

impl std::error::Error for UserError {}

impl From<StoreError> for UserError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}
