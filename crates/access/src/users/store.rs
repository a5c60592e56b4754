//! Where the table of users is kept.

use std::{fmt, io};

use millrace_base::Error;

use super::seal::DataKey;

/// What keeping the table failed with.
#[derive(Debug)]
pub enum StoreError {
    /// A file cannot be read or written.
    Io(io::Error),
    /// Somebody else has replaced the table meanwhile, and this one was not kept.
    Changed,
    /// The nodes of the cluster cannot agree on it at this moment.
    Cluster(Error),
}

impl fmt::Display for StoreError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(formatter),
            Self::Changed => formatter.write_str("others change it all the time; try again"),
            Self::Cluster(error) => formatter.write_str(&error.message),
        }
    }
}

impl std::error::Error for StoreError {}

impl From<io::Error> for StoreError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Keeps the table: a file of the data directory, or what a cluster agrees on.
pub trait UserStore: Send + Sync {
    /// The table's bytes as this program finds them, which is version 0; `None` if it was never kept.
    ///
    /// # Errors
    /// What the store answers.
    fn read(&self) -> Result<Option<Vec<u8>>, StoreError>;

    /// Replaces the table, whose version is one more than that of the one before. It is durable when this returns, and a
    /// crash leaves the old one or the new one.
    ///
    /// # Errors
    /// [`StoreError::Changed`] if the table is not of the version `before` any more. Otherwise it is unknown which of the
    /// two tables the store holds.
    fn replace(&self, before: u64, bytes: &[u8]) -> Result<(), StoreError>;

    /// The key that secrets are encrypted with: the same for as long as the store exists. Asked for only if there is a
    /// secret.
    ///
    /// # Errors
    /// When there is none, and none can be made.
    fn data_key(&self) -> Result<DataKey, StoreError>;
}
