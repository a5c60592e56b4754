//! Where the table of users is kept.

use std::io;

use super::seal::DataKey;

/// What keeping the table failed with.
pub type StoreError = io::Error;

/// Keeps the table: a file of the data directory, or what a cluster agrees on.
pub trait UserStore: Send + Sync {
    /// The table's bytes; `None` if it was never kept.
    ///
    /// # Errors
    /// What the store answers.
    fn read(&self) -> Result<Option<Vec<u8>>, StoreError>;

    /// Replaces the table. It is durable when this returns, and a crash leaves the old one or the new one.
    ///
    /// # Errors
    /// What the store answers. Which of the two tables it holds is unknown then.
    fn replace(&self, bytes: &[u8]) -> Result<(), StoreError>;

    /// The key that secrets are encrypted with: the same for as long as the store exists. Asked for only if there is a
    /// secret.
    ///
    /// # Errors
    /// When there is none, and none can be made.
    fn data_key(&self) -> Result<DataKey, StoreError>;
}
