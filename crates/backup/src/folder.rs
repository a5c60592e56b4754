//! A folder as a place of backups.
//!
//! Files are written beside their names and renamed, so a name that is there has all of its bytes, unless the power
//! failed before [`Folder::sync`]. Everything is readable by its owner only: backups hold secrets.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::Place;

/// See the module's documentation.
pub struct Folder {
    root: PathBuf,
}

/// Files that are in every data directory. A folder with both is none for backups.
const DATA_FILES: [&str; 2] = ["node.json", "manifest"];

/// Ends the name of a file that is being written. The process's id keeps two writers apart.
const UNFINISHED: &str = ".unfinished-";

impl Folder {
    /// The folder at this path, which need not be there yet.
    #[must_use]
    pub fn new(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }
}

impl Place for Folder {
    fn name(&self) -> String {
        self.root.display().to_string()
    }

    fn is_durable_at_once(&self) -> bool {
        false
    }

    fn refusal(&self) -> io::Result<Option<String>> {
        if let Some(data) = data_directory_around(&self.root)? {
            let data = data.display();
            let what = format!("is inside the data directory {data}: name a folder outside, better on another disk");
            return Ok(Some(what));
        }
        let is_empty = match fs::read_dir(&self.root) {
            Ok(mut entries) => entries.next().is_none(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => true,
            Err(error) => return Err(error),
        };
        Ok((!is_empty).then(|| "is not empty and holds no backups: name another folder".to_owned()))
    }

    fn create_folder(&self, name: &str) -> io::Result<()> {
        create_private_folder(&self.path(name))
    }

    fn list(&self, name: &str, unfinished: bool) -> io::Result<Vec<String>> {
        let entries = match fs::read_dir(self.path(name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut names = Vec::new();
        for entry in entries {
            if let Ok(name) = entry?.file_name().into_string()
                && (unfinished || !name.contains(UNFINISHED))
            {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }

    fn length(&self, name: &str) -> io::Result<Option<u64>> {
        match fs::metadata(self.path(name)) {
            Ok(found) => Ok(Some(found.len())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn read(&self, name: &str, limit: u64) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        File::open(self.path(name))?.take(limit.saturating_add(1)).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > limit { Err(io::ErrorKind::FileTooLarge.into()) } else { Ok(bytes) }
    }

    fn write(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let path = self.path(name);
        let unfinished = self.path(&format!("{name}{UNFINISHED}{}", std::process::id()));
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        let written = options.open(&unfinished).and_then(|mut file| {
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

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.path(name))
    }

    fn sync(&self) -> io::Result<()> {
        sync_file_system(&self.root)
    }

    fn lock(&self, name: &str, is_alone: bool) -> io::Result<Box<dyn Send>> {
        let file = File::open(self.path(name))?;
        if is_alone {
            file.lock()?
        } else {
            file.lock_shared()?
        }
        Ok(Box::new(file))
    }
}

/// The data directory that a path is inside of. A backup must not grow with itself, and a node looks after what is in its
/// directory. Links are followed as far as there is anything.
fn data_directory_around(path: &Path) -> io::Result<Option<PathBuf>> {
    let absolute = std::path::absolute(path)?;
    let real = absolute.ancestors().find(|ancestor| ancestor.exists()).unwrap_or(&absolute).canonicalize()?;
    let holds_data = |folder: &&Path| DATA_FILES.iter().all(|file| folder.join(file).exists());
    Ok(real.ancestors().find(holds_data).map(Path::to_owned))
}

/// Makes a folder and those above it, for their owner only. Those that are there stay as they are.
pub(crate) fn create_private_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Makes durable whatever was written to the file system of `path`.
pub(crate) fn sync_file_system(path: &Path) -> io::Result<()> {
    rustix::fs::syncfs(File::open(path)?).map_err(io::Error::from)
}
