//! The checkpoint's version files, before the library opens them.
//!
//! For each keyspace the library keeps a file `current`: the number of a version file, and its checksum. The library opens
//! the version file without comparing the checksum. Another version's bytes under that name would be a state of the past.
//!
//! | offset | length | `current` |
//! |---|---|---|
//! | 0 | 8 | number of the version, little-endian. |
//! | 8 | 16 | XXH3-128 of the file `v` and the number, little-endian. |
//! | 24 | 1 | kind of the checksum: 0. |

use std::io;
use std::path::Path;

use xxhash_rust::xxh3::xxh3_128;

use crate::StoreError;

/// Compares each keyspace's version file with the checksum that its `current` has. That `version` or `current` is missing is
/// the manifest's concern.
///
/// # Errors
/// [`StoreError::Corrupt`], which names the file.
#[expect(clippy::disallowed_methods, reason = "these are the library's own files")]
pub(crate) fn check(path: &Path) -> Result<(), StoreError> {
    let keyspaces = match std::fs::read_dir(path.join("keyspaces")) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        keyspaces => keyspaces.map_err(|error| failed(path, &error))?,
    };
    if path.join("version").exists() && !path.join("lock").exists() {
        let what = "the file is missing: restore the data directory from a backup, or make an empty file of this name";
        return Err(StoreError::Corrupt(format!("{}: {what}", path.join("lock").display())));
    }
    for keyspace in keyspaces {
        let folder = keyspace.map_err(|error| failed(path, &error))?.path();
        let file = folder.join("current");
        let current = match std::fs::read(&file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            current => current.map_err(|error| failed(&file, &error))?,
        };
        let tables = folder.join("tables");
        if !tables.is_dir() {
            let what = "the folder is missing; restore the data directory from a backup";
            return Err(StoreError::Corrupt(format!("{}: {what}", tables.display())));
        }
        let Some((number, sum)) = parse(&current) else {
            return Err(StoreError::Corrupt(format!("{}: the file cannot be read", file.display())));
        };
        let version = folder.join(format!("v{number}"));
        let bytes = std::fs::read(&version).map_err(|error| failed(&version, &error))?;
        if xxh3_128(&bytes) != sum {
            let what = "the file is not the one that `current` names; restore the data directory from a backup";
            return Err(StoreError::Corrupt(format!("{}: {what}", version.display())));
        }
    }
    Ok(())
}

fn failed(path: &Path, error: &io::Error) -> StoreError {
    StoreError::Checkpoint(format!("{}: {error}", path.display()))
}

/// The version's number and checksum. A later kind of checksum is not known to this build.
fn parse(current: &[u8]) -> Option<(u64, u128)> {
    let (number, rest) = current.split_first_chunk::<8>()?;
    let (sum, kind) = rest.split_first_chunk::<16>()?;
    (kind == [0]).then(|| (u64::from_le_bytes(*number), u128::from_le_bytes(*sum)))
}
