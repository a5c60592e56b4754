//! Why a backup or a restore failed.

use std::fmt;
use std::io;

/// Why a backup or a restore failed. Each is a sentence for the operator.
#[derive(Debug)]
pub enum BackupError {
    /// The place or the data directory cannot be used as it is.
    Refused(String),
    /// The archive broke off, or is not what the node sent.
    Archive(String),
    /// A chunk or a snapshot is missing or has other bytes than were written. The text names it.
    Damaged(String),
    /// The file system failed at this path.
    Io(String, io::Error),
}

impl BackupError {
    pub(crate) fn io(path: impl fmt::Display, error: io::Error) -> Self {
        BackupError::Io(path.to_string(), error)
    }
}

impl fmt::Display for BackupError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BackupError::Refused(what) | BackupError::Archive(what) | BackupError::Damaged(what) => {
                formatter.write_str(what)
            }
            BackupError::Io(path, error) => write!(formatter, "{path}: {error}"),
        }
    }
}

impl std::error::Error for BackupError {}
