//! The users of S3 of one data directory: where their table is kept.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use millrace_access::{DataKey, StoreError, UserStore, Users};
use millrace_base::ErrorCode;
use millrace_io::{Random, RealRandom};
use millrace_manifest::Manifest;
use millrace_node::{DataDirectory, S3_USERS_FILE, Tables};

use crate::Failure;

/// What a cluster keeps its users under.
const TABLE: &str = millrace_node::S3_USERS_TABLE;

/// A file that the directory's manifest lists, with secrets encrypted under the directory's own.
struct DirectoryUsers {
    data: PathBuf,
    manifest: Manifest,
}

impl UserStore for DirectoryUsers {
    fn read(&self) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(self.manifest.read_file(S3_USERS_FILE)?)
    }

    fn replace(&self, _: u64, bytes: &[u8]) -> Result<(), StoreError> {
        Ok(self.manifest.write_file(S3_USERS_FILE, bytes)?)
    }

    fn data_key(&self) -> Result<DataKey, StoreError> {
        Ok(data_key(&self.data, &self.manifest)?)
    }
}

fn data_key(data: &std::path::Path, manifest: &Manifest) -> io::Result<DataKey> {
    DataDirectory::secret(data, manifest).map(|secret| DataKey::derive(&secret))
}

/// A table that all nodes hold. All directories of a cluster have the same secret, so each node can read it.
struct ClusterUsers {
    tables: Arc<Tables>,
    key: DataKey,
}

impl UserStore for ClusterUsers {
    fn read(&self) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(None)
    }

    fn replace(&self, before: u64, bytes: &[u8]) -> Result<(), StoreError> {
        self.tables.replace(TABLE, before, bytes.to_vec()).map_err(|error| match error.code {
            ErrorCode::PreconditionFailed => StoreError::Changed,
            _ => StoreError::Cluster(error),
        })
    }

    fn data_key(&self) -> Result<DataKey, StoreError> {
        Ok(self.key.clone())
    }
}

/// Reads the users of a data directory; those of a cluster are heard of once the node follows it.
///
/// # Errors
/// A sentence that says what is wrong with their table.
pub(crate) fn open(directory: &DataDirectory, tables: Option<&Arc<Tables>>) -> Result<Arc<Users>, Failure> {
    let fill = |bytes: &mut [u8]| RealRandom.fill(bytes);
    let file = directory.path().join(S3_USERS_FILE);
    let Some(tables) = tables else {
        let store = DirectoryUsers { data: directory.path().to_owned(), manifest: directory.manifest().clone() };
        return Users::open(store, fill).map_err(|error| format!("{}: {error}", file.display()).into());
    };
    let key = data_key(directory.path(), directory.manifest())?;
    let users = Users::open(ClusterUsers { tables: Arc::clone(tables), key }, fill)?;
    let heard = Arc::clone(&users);
    tables.watch(TABLE, move |version, bytes| {
        if let Err(error) = heard.hear(version, bytes) {
            tracing::error!(%error, "the users of S3 that the cluster holds cannot be used; those of before stay in force");
        }
    });
    Ok(users)
}
