//! From a snapshot back to a data directory.
//!
//! A node never opens a directory that was restored in part: a marker is there from before the first file until all files
//! are durable.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use crate::folder::{create_private_folder, sync_file_system};
use crate::{BackupError, Repository, Snapshot};

/// It is in a data directory whose restore has not ended.
pub const UNFINISHED_FILE: &str = "restore.unfinished";

/// What a restore did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RestoreReport {
    /// Files written.
    pub files: usize,
    /// Their bytes.
    pub bytes: u64,
}

impl Repository {
    /// Writes a snapshot's files into a directory, which is empty or not there yet, or whose last restore has not ended.
    /// All is durable when this returns. After an error the directory is as empty as before.
    ///
    /// # Errors
    /// [`BackupError::Refused`] for a directory that is not empty; [`BackupError::Damaged`] for a chunk that is not what was
    /// backed up; [`BackupError::Io`].
    pub fn restore(&self, snapshot: &Snapshot, directory: &Path) -> Result<RestoreReport, BackupError> {
        let _lock = self.lock(false)?;
        begin(directory)?;
        let restored = self.restore_files(snapshot, directory).and_then(|report| {
            let ended = sync_file_system(directory)
                .and_then(|()| fs::remove_file(directory.join(UNFINISHED_FILE)))
                .and_then(|()| File::open(directory)?.sync_all());
            ended.map(|()| report).map_err(|error| BackupError::io(directory.display(), error))
        });
        if restored.is_err() {
            // What cannot be removed stays behind its marker.
            let _ = clear(directory);
        }
        restored
    }

    fn restore_files(&self, snapshot: &Snapshot, directory: &Path) -> Result<RestoreReport, BackupError> {
        let mut report = RestoreReport::default();
        for file in &snapshot.files {
            let path = directory.join(&file.path);
            let failed = |error| BackupError::io(path.display(), error);
            if let Some(folder) = path.parent() {
                create_private_folder(folder).map_err(failed)?;
            }
            let mut out = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path).map_err(failed)?;
            for (chunk, bytes) in file.parts() {
                out.write_all(&self.read_chunk(chunk, bytes, &file.path)?).map_err(failed)?;
            }
            report.files += 1;
            report.bytes += file.bytes;
        }
        for folder in &snapshot.folders {
            create_private_folder(&directory.join(folder)).map_err(|error| BackupError::io(folder, error))?;
        }
        Ok(report)
    }
}

/// Puts the marker into an empty directory.
fn begin(directory: &Path) -> Result<(), BackupError> {
    let failed = |error| BackupError::io(directory.display(), error);
    create_private_folder(directory).map_err(failed)?;
    let marker = directory.join(UNFINISHED_FILE);
    if marker.exists() {
        clear(directory).map_err(failed)?;
    }
    if fs::read_dir(directory).map_err(failed)?.next().is_some() {
        let what = format!(
            "{} is not empty: restore into an empty directory, and move it to its place when you have looked at it",
            directory.display()
        );
        return Err(BackupError::Refused(what));
    }
    let made = File::create_new(&marker).and_then(|file| {
        file.sync_all()?;
        File::open(directory)?.sync_all()
    });
    made.map_err(failed)
}

/// Removes everything in a directory, its marker last.
fn clear(directory: &Path) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_name() == UNFINISHED_FILE {
            continue;
        }
        let path = entry.path();
        if entry.file_type()?.is_dir() { fs::remove_dir_all(path)? } else { fs::remove_file(path)? }
    }
    fs::remove_file(directory.join(UNFINISHED_FILE))
}
