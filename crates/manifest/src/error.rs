//! Why a data directory is refused.

use std::fmt;
use std::io;

/// What is wrong with a manifest, or with what it lists.
#[derive(Debug)]
pub enum ManifestError {
    /// The manifest's own bytes are not what was written.
    Unreadable(String),
    /// The directory had a manifest, and it is gone.
    Missing,
    /// A listed file is not there.
    FileMissing(String),
    /// A listed file has other bytes than were written last.
    FileChanged(String),
    /// The checkpoint holds less than the manifest knows: a file of it was lost or put back.
    CheckpointOlder {
        /// What the checkpoint has.
        has: u64,
        /// What it had when the log behind it was deleted.
        known: u64,
    },
    /// The file system failed.
    Io(String, io::Error),
}

impl ManifestError {
    pub(crate) fn io(path: &str, error: io::Error) -> Self {
        Self::Io(path.to_owned(), error)
    }
}

impl fmt::Display for ManifestError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        const ADVICE: &str = "Nothing was changed. Restore it from a backup of the whole data directory";
        match self {
            Self::Unreadable(what) => write!(formatter, "manifest: {what}. {ADVICE}"),
            Self::Missing => write!(formatter, "manifest: the file is missing. {ADVICE}"),
            Self::FileMissing(path) => {
                write!(formatter, "{path}: the file is missing, though the manifest lists it. {ADVICE}")
            }
            Self::FileChanged(path) => {
                write!(formatter, "{path}: the file is not the one that was written last. {ADVICE}")
            }
            Self::CheckpointOlder { has, known } => write!(
                formatter,
                "checkpoint: it holds {has} flushes, and the log was deleted up to flush {known}: a file in it is \
                 missing or older than the rest. {ADVICE}"
            ),
            Self::Io(path, error) => write!(formatter, "{path}: {error}"),
        }
    }
}

impl std::error::Error for ManifestError {}
