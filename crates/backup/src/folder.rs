//! A folder as a place of backups.
//!
//! Files are written beside their names and renamed, so a name that is there has all of its bytes, unless the power
//! failed before [`Folder::sync`]. Everything is readable by its owner only: backups hold secrets.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// See the module's documentation.
pub struct Folder {
    root: PathBuf,
}

/// While it lives, others respect what is being done in a place.
pub(crate) struct Lock {
    _file: File,
}

/// Ends the name of a file that is being written. The process's id keeps two writers apart.
const UNFINISHED: &str = ".unfinished-";

impl Folder {
    /// The folder at this path, which need not be there yet.
    #[must_use]
    pub fn new(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    /// Where it is, for people.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// Makes the folder `name` and those above it.
    pub(crate) fn create_folder(&self, name: &str) -> io::Result<()> {
        create_private_folder(&self.path(name))
    }

    /// Whether nothing is in it, or it is not there.
    pub(crate) fn is_empty(&self) -> io::Result<bool> {
        match fs::read_dir(&self.root) {
            Ok(mut entries) => Ok(entries.next().is_none()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// The names in the folder `name`, sorted; without those of unfinished files. None where there is no such folder.
    pub(crate) fn list(&self, name: &str) -> io::Result<Vec<String>> {
        let entries = match fs::read_dir(self.path(name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut names = Vec::new();
        for entry in entries {
            if let Ok(name) = entry?.file_name().into_string()
                && !name.contains(UNFINISHED)
            {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }

    /// A file's length; `None` where there is none.
    pub(crate) fn length(&self, name: &str) -> io::Result<Option<u64>> {
        match fs::metadata(self.path(name)) {
            Ok(found) => Ok(Some(found.len())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// A file's bytes, if they are no more than `limit`.
    pub(crate) fn read(&self, name: &str, limit: u64) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        File::open(self.path(name))?.take(limit.saturating_add(1)).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > limit { Err(io::ErrorKind::FileTooLarge.into()) } else { Ok(bytes) }
    }

    /// Writes a file, or replaces it. It is durable after [`Folder::sync`].
    pub(crate) fn write(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let path = self.path(name);
        let unfinished = self.path(&format!("{name}{UNFINISHED}{}", std::process::id()));
        let mut options = OpenOptions::new();
        let written =
            options.write(true).create(true).truncate(true).mode(0o600).open(&unfinished).and_then(|mut file| {
                file.write_all(bytes)?;
                drop(file);
                fs::rename(&unfinished, &path)
            });
        if written.is_err() {
            // Its space is wanted by others, and nobody would look for it.
            let _ = fs::remove_file(&unfinished);
        }
        written
    }

    pub(crate) fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.path(name))
    }

    /// Makes durable whatever was written to the file system so far: one call for any number of files.
    pub(crate) fn sync(&self) -> io::Result<()> {
        sync_file_system(&self.root)
    }

    /// Waits until nobody removes anything; or, alone, until nobody else does anything.
    pub(crate) fn lock(&self, name: &str, is_alone: bool) -> io::Result<Lock> {
        let file = File::open(self.path(name))?;
        if is_alone {
            file.lock()?
        } else {
            file.lock_shared()?
        }
        Ok(Lock { _file: file })
    }
}

/// Makes a folder and those above it, for their owner only. Those that are there stay as they are.
pub(crate) fn create_private_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Makes durable whatever was written to the file system of `path`.
pub(crate) fn sync_file_system(path: &Path) -> io::Result<()> {
    rustix::fs::syncfs(File::open(path)?).map_err(io::Error::from)
}
