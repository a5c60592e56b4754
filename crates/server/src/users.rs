//! The users of S3 of one data directory: where their table is kept.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use millrace_access::{DataKey, UserStore, Users};
use millrace_io::{Random, RealRandom};
use millrace_manifest::Manifest;
use millrace_node::{DataDirectory, S3_USERS_FILE};

use crate::Failure;

/// A file that the directory's manifest lists, with secrets encrypted under the directory's own.
struct DirectoryUsers {
    data: PathBuf,
    manifest: Manifest,
}

impl UserStore for DirectoryUsers {
    fn read(&self) -> io::Result<Option<Vec<u8>>> {
        self.manifest.read_file(S3_USERS_FILE)
    }

    fn replace(&self, bytes: &[u8]) -> io::Result<()> {
        self.manifest.write_file(S3_USERS_FILE, bytes)
    }

    fn data_key(&self) -> io::Result<DataKey> {
        DataDirectory::secret(&self.data, &self.manifest).map(|secret| DataKey::derive(&secret))
    }
}

/// Reads the users of a data directory.
///
/// # Errors
/// A sentence that says what is wrong with their table.
pub(crate) fn open(directory: &DataDirectory) -> Result<Arc<Users>, Failure> {
    let store = DirectoryUsers { data: directory.path().to_owned(), manifest: directory.manifest().clone() };
    Users::open(store, |bytes| RealRandom.fill(bytes))
        .map_err(|error| format!("{}: {error}", directory.path().join(S3_USERS_FILE).display()).into())
}
