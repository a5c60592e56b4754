//! Whole files: replaced with both states listed while the change is under way.

use std::collections::BTreeMap;
use std::io;

use millrace_base::fingerprint;

use crate::contents::{FileRecord, Next};
use crate::error::ManifestError;
use crate::{MAX_BYTES, Manifest, read};

/// A file's fingerprint, from its bytes.
#[must_use]
pub fn fingerprint_of(bytes: &[u8]) -> u64 {
    fingerprint(&[bytes])
}

impl Manifest {
    /// Replaces the file at `path` by `bytes`, or removes it where there are none. `replace` does it,
    /// durably. Until it has, the old state is right too: a crash leaves one of the two.
    ///
    /// # Errors
    /// What the file system answers. Whether the file was replaced is unknown then, and both states stay right.
    pub fn replace_file(
        &self,
        path: &str,
        bytes: Option<&[u8]>,
        replace: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        let fingerprint = bytes.map(fingerprint_of);
        // After a replacement that failed, only the disk knows which of the two states the file has.
        let found = self.fingerprint_on_disk(path)?;
        self.change(|contents| {
            let next = (found != fingerprint).then_some(Next { fingerprint });
            contents.files.insert(path.to_owned(), FileRecord { now: found, next });
        })?;
        replace()?;
        self.change(|contents| {
            if fingerprint.is_none() {
                contents.files.remove(path);
            } else {
                contents.files.insert(path.to_owned(), FileRecord { now: fingerprint, next: None });
            }
        })
    }

    /// Writes the file at `path` anew, durably, beside the old one and then in its place.
    ///
    /// # Errors
    /// As [`Manifest::replace_file`]. A crash leaves the old file or the new one, and both are right then.
    pub fn write_file(&self, path: &str, bytes: &[u8]) -> io::Result<()> {
        if bytes.len() as u64 > MAX_BYTES {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let disk = &*self.shared.disk;
        self.replace_file(path, Some(bytes), || {
            let next = format!("{path}.new");
            let file = disk.create(&next)?;
            file.write_at(bytes, 0)?;
            file.sync_data()?;
            disk.rename(&next, path)?;
            disk.sync_directory(path.rsplit_once('/').map_or("", |(folder, _)| folder))
        })
    }

    /// The bytes of the file at `path`; `None` where there is none.
    ///
    /// # Errors
    /// What the file system answers.
    pub fn read_file(&self, path: &str) -> io::Result<Option<Vec<u8>>> {
        match read(&*self.shared.disk, path) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn fingerprint_on_disk(&self, path: &str) -> io::Result<Option<u64>> {
        Ok(self.read_file(path)?.as_deref().map(fingerprint_of))
    }

    /// Lists the files that are there, as they are, and no others: those of a directory that had no manifest, or of one
    /// whose loss was accepted.
    ///
    /// # Errors
    /// What the file system answers.
    pub fn adopt_files(&self, paths: &[String]) -> io::Result<()> {
        let mut found = BTreeMap::new();
        for path in paths {
            let now = self.fingerprint_on_disk(path)?;
            found.insert(path.clone(), FileRecord { now, next: None });
        }
        self.change(|contents| {
            contents.files = found;
            contents.expected.clear();
            contents.folders.clear();
        })
    }

    /// A file that others write must be there from now on.
    ///
    /// # Errors
    /// What the file system answers.
    pub fn expect_file(&self, path: &str) -> io::Result<()> {
        self.change(|contents| {
            contents.expected.insert(path.to_owned());
        })
    }

    /// These folders must be there from now on, and no others.
    ///
    /// # Errors
    /// What the file system answers.
    pub fn expect_folders(&self, paths: &[String]) -> io::Result<()> {
        self.change(|contents| contents.folders = paths.iter().cloned().collect())
    }

    /// Compares the listed files with those on disk, and looks whether those of the checkpoint and the
    /// folders are there. Changes nothing.
    ///
    /// # Errors
    /// [`ManifestError`] for the first file that is missing or has other bytes.
    pub fn check_files(&self) -> Result<(), ManifestError> {
        let disk = &*self.shared.disk;
        let contents = self.contents();
        for (path, record) in &contents.files {
            let found = self.fingerprint_on_disk(path).map_err(|error| ManifestError::io(path, error))?;
            if found != record.now && record.next.is_none_or(|next| next.fingerprint != found) {
                let error = if found.is_none() { ManifestError::FileMissing } else { ManifestError::FileChanged };
                return Err(error(path.clone()));
            }
        }
        let of_checkpoint = contents.checkpoint.iter().flat_map(|checkpoint| &checkpoint.files);
        for path in of_checkpoint.chain(&contents.expected).chain(&contents.folders) {
            if !disk.exists(path).map_err(|error| ManifestError::io(path, error))? {
                return Err(ManifestError::FileMissing(path.clone()));
            }
        }
        Ok(())
    }

    /// Compares the checkpoint's count of flushes with the one for which log segments were removed.
    ///
    /// # Errors
    /// [`ManifestError::CheckpointOlder`].
    pub fn check_checkpoint(&self, mark: u64) -> Result<(), ManifestError> {
        let known = self.state().checkpoint.as_ref().map_or(0, |checkpoint| checkpoint.mark);
        if mark < known { Err(ManifestError::CheckpointOlder { has: mark, known }) } else { Ok(()) }
    }
}
