//! The data directory: who uses it, how many shards it has, which format it is in.
//!
//! ```text
//! data/
//!   node.json     format version, shard count, the key of results' names; written once
//!   manifest      millrace_manifest: what of all this must be there
//!   lock          held (flock) while a node runs
//!   pid           the running node's process id
//!   log/          millrace_log
//!   checkpoint/   millrace_store (fjall)
//!   apps/         deployed apps, one tar each
//!   emptied       in a cluster: what was here is lost, by DataDirectory::empty
//!   keys.json     API keys (millrace_http)
//!   secret        what keys of this directory are derived from
//!   s3-users.json users of S3 and their access keys (millrace_access)
//! ```

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use millrace_backup::UNFINISHED_FILE;
use millrace_base::limits;
use millrace_io::{Disk, Random, RealDisk, RealRandom};
use millrace_manifest::{Manifest, ManifestError};
use millrace_shard::ResultNames;
use rustix::fs::{FlockOperation, flock};

use crate::node_file::NodeFile;
use crate::options::DEFAULT_SHARDS;

/// Why a data directory cannot be used.
#[derive(Debug)]
pub enum DirectoryError {
    /// Another process uses it.
    InUse(PathBuf),
    /// It was created with another number of shards.
    Shards {
        /// What it has.
        has: u16,
        /// What was asked for.
        asked: u16,
    },
    /// `--shards` is out of range.
    ShardCount(u16),
    /// Its `node.json` is of another version, or not readable.
    Format(PathBuf, String),
    /// A file that must be there is missing, or not the one that was written last.
    Manifest(PathBuf, ManifestError),
    /// The file system failed.
    Io(PathBuf, io::Error),
}

impl fmt::Display for DirectoryError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DirectoryError::InUse(path) => {
                write!(
                    formatter,
                    "the data directory {} is used by another millrace process; stop it or give another --data",
                    path.display()
                )
            }
            DirectoryError::Shards { has, asked } => write!(
                formatter,
                "the data directory has {has} shards, fixed when it was created; start without --shards {asked}, or with another --data"
            ),
            DirectoryError::ShardCount(count) => {
                write!(formatter, "--shards {count} is outside 1 to {}", limits::SHARDS)
            }
            DirectoryError::Format(path, what) => write!(formatter, "{}: {what}", path.display()),
            DirectoryError::Manifest(path, error) => {
                write!(formatter, "the data directory {} is not whole: {error}", path.display())
            }
            DirectoryError::Io(path, error) => {
                write!(formatter, "the data directory cannot be used (--data): {}: {error}", path.display())
            }
        }
    }
}

impl std::error::Error for DirectoryError {}

/// Gives a folder of the data directory, `""` for itself, as a disk.
pub type DiskMaker = Arc<dyn Fn(&str) -> Arc<dyn Disk> + Send + Sync>;

/// A data directory in use by this process.
pub struct DataDirectory {
    path: PathBuf,
    disks: DiskMaker,
    node: NodeFile,
    manifest: Manifest,
    /// Why the manifest on disk could not be read; `manifest` lists nothing then.
    unreadable: Option<ManifestError>,
    /// Keeps the lock for as long as the directory is in use.
    _lock: File,
}

const NODE_FILE: &str = "node.json";

/// The users of S3 and their access keys.
pub const S3_USERS_FILE: &str = "s3-users.json";

/// In a cluster: the table of the same.
pub const S3_USERS_TABLE: &str = "s3-users";

/// Files at the root that the manifest lists with their bytes, where they are there.
const LISTED_FILES: [&str; 3] = [NODE_FILE, "secret", S3_USERS_FILE];

/// Folders whose files the manifest lists with their bytes.
const LISTED_FOLDERS: [&str; 2] = ["apps", "app-versions"];

/// Says that the directory was emptied.
const EMPTIED: &str = "emptied";

/// What an emptied directory loses. It keeps the secret and the shards' number, its certificate, and how often its node has
/// started.
const EMPTIED_OF: [&str; 7] = ["log", "checkpoint", "apps", "app-versions", "bodies", "manifest", "pid"];

/// Written by the operator's commands. Without it a node that asks for keys would serve everybody.
pub(crate) const KEY_FILE: &str = "keys.json";

impl DataDirectory {
    /// Creates or opens the directory, locks it against other processes and compares it with its
    /// manifest. A process that is just going away is waited for.
    ///
    /// # Errors
    /// [`DirectoryError`], which names what to change. Nothing was changed then.
    pub fn open(path: &Path, shards: Option<u16>) -> Result<Self, DirectoryError> {
        Self::open_on(path, shards, real_disks(path))
    }

    /// As [`DataDirectory::open`], with other disks for the log, the manifest and the bodies of objects. All else is in the files
    /// of the operating system.
    ///
    /// # Errors
    /// As [`DataDirectory::open`].
    pub fn open_on(path: &Path, shards: Option<u16>, disks: DiskMaker) -> Result<Self, DirectoryError> {
        let mut directory = Self::open_unchecked_on(path, shards, disks)?;
        let refused = |error| DirectoryError::Manifest(path.to_owned(), error);
        if let Some(error) = directory.unreadable.take() {
            return Err(refused(error));
        }
        if directory.node.has_manifest && directory.manifest.contents().generation == 0 {
            return Err(refused(ManifestError::Missing));
        }
        directory.manifest.check_files().map_err(refused)?;
        if path.join(KEY_FILE).exists() && directory.node.has_manifest {
            directory.manifest.expect_file(KEY_FILE).map_err(|error| DirectoryError::Io(path.to_owned(), error))?;
        }
        Ok(directory)
    }

    /// As [`DataDirectory::open`] for an existing directory, whatever it lacks: to look at it and to repair it.
    ///
    /// # Errors
    /// [`DirectoryError`] when it is in use, or its `node.json` cannot be read.
    pub fn open_unchecked(path: &Path, shards: Option<u16>) -> Result<Self, DirectoryError> {
        Self::open_unchecked_on(path, shards, real_disks(path))
    }

    fn open_unchecked_on(path: &Path, shards: Option<u16>, disks: DiskMaker) -> Result<Self, DirectoryError> {
        if let Some(count) = shards
            && !(1..=limits::SHARDS).contains(&count)
        {
            return Err(DirectoryError::ShardCount(count));
        }
        let io = |error| DirectoryError::Io(path.to_owned(), error);
        if path.join(UNFINISHED_FILE).exists() {
            let what = "a restore into this directory did not end: run `millrace restore` again".to_owned();
            return Err(DirectoryError::Format(path.join(UNFINISHED_FILE), what));
        }
        fs::create_dir_all(path).map_err(io)?;
        let lock = OpenOptions::new().create(true).truncate(false).write(true).open(path.join("lock")).map_err(io)?;
        take_lock(&lock).map_err(|()| DirectoryError::InUse(path.to_owned()))?;
        let disk = disks("");
        let (found, unreadable) = match Manifest::open(&disk) {
            Ok(found) => (found, None),
            Err(error) => (None, Some(error)),
        };
        let manifest = found.unwrap_or_else(|| Manifest::new(&disk, random_bytes()));
        let node = Self::read_or_make(path, shards, &manifest)?;
        Ok(Self { path: path.to_owned(), disks, node, manifest, unreadable, _lock: lock })
    }

    /// Whether a node runs in this directory. One that is just going away is waited for.
    #[must_use]
    pub fn is_in_use(path: &Path) -> bool {
        // Without the file no node has ever run there.
        File::open(path.join("lock")).is_ok_and(|lock| take_lock(&lock).is_err())
    }

    /// Makes the directory of a node of a cluster. What its nodes derive from the secret is the same on all of them: the names
    /// of results, so that a key holds wherever its shard moves, and what is drawn for a key. A cluster that began with a
    /// node's data has the key of that node's results instead.
    ///
    /// # Errors
    /// [`DirectoryError`]; also when it is one already.
    pub fn prepare(
        path: &Path,
        shards: u16,
        secret: &[u8; 32],
        result_key: Option<[u8; 16]>,
    ) -> Result<(), DirectoryError> {
        if path.join(NODE_FILE).exists() {
            let what = "it is a data directory already: give another".to_owned();
            return Err(DirectoryError::Format(path.join(NODE_FILE), what));
        }
        let io = |error| DirectoryError::Io(path.to_owned(), error);
        fs::create_dir_all(path).map_err(io)?;
        crate::entropy::write_secret(path, secret).map_err(io)?;
        let derived = || {
            let mut key = [0; 16];
            key.copy_from_slice(&crate::entropy::derived(secret, b"names of results")[..16]);
            key
        };
        let outcome_key = Some(result_key.unwrap_or_else(derived));
        let node = NodeFile { shards, outcome_key, has_manifest: false };
        let bytes = node.to_json().map_err(|what| DirectoryError::Format(path.join(NODE_FILE), what))?;
        write_durably(&path.join(NODE_FILE), &bytes).map_err(io)
    }

    /// Whether [`DataDirectory::empty`] has emptied the directory, ever.
    #[must_use]
    pub fn is_emptied(path: &Path) -> bool {
        path.join(EMPTIED).exists()
    }

    /// Empties the directory of a node of a cluster. Its next start gets everything from the other nodes. It keeps what makes
    /// it a directory of that node.
    ///
    /// # Errors
    /// [`DirectoryError`]; also while a node runs there. What was begun is to be repeated then.
    pub fn empty(path: &Path) -> Result<(), DirectoryError> {
        let io = |error| DirectoryError::Io(path.to_owned(), error);
        let lock = OpenOptions::new().create(true).truncate(false).write(true).open(path.join("lock")).map_err(io)?;
        take_lock(&lock).map_err(|()| DirectoryError::InUse(path.to_owned()))?;
        let file = path.join(NODE_FILE);
        let wrong = |what: String| DirectoryError::Format(file.clone(), what);
        let node = NodeFile::parse(&fs::read(&file).map_err(io)?).map_err(wrong)?;
        // The first thing: from now on nobody takes the replicas for new ones, which have promised nothing.
        write_durably(&path.join(EMPTIED), b"").map_err(io)?;
        let bytes = NodeFile { has_manifest: false, ..node }.to_json().map_err(wrong)?;
        write_durably(&file, &bytes).map_err(io)?;
        for name in EMPTIED_OF {
            let removed = match fs::symlink_metadata(path.join(name)) {
                Ok(found) if found.is_dir() => fs::remove_dir_all(path.join(name)),
                Ok(_) => fs::remove_file(path.join(name)),
                Err(error) => Err(error),
            };
            match removed {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(io(error)),
                _ => {}
            }
        }
        sync_folder_of(&file).map_err(io)
    }

    fn read_or_make(path: &Path, asked: Option<u16>, manifest: &Manifest) -> Result<NodeFile, DirectoryError> {
        let file = path.join(NODE_FILE);
        let io = |error| DirectoryError::Io(file.clone(), error);
        let wrong = |what: String| DirectoryError::Format(file.clone(), what);
        match fs::read(&file) {
            Ok(bytes) => {
                let node = NodeFile::parse(&bytes).map_err(wrong)?;
                match asked {
                    Some(asked) if asked != node.shards => Err(DirectoryError::Shards { has: node.shards, asked }),
                    _ => Ok(node),
                }
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let is_used = |name: &str| path.join(name).exists();
                if is_used("log") || is_used("checkpoint") {
                    let what = "missing, though the directory holds state: restore it from a backup";
                    return Err(wrong(what.to_owned()));
                }
                let node = NodeFile {
                    shards: asked.unwrap_or(DEFAULT_SHARDS),
                    outcome_key: Some(random_bytes()),
                    has_manifest: true,
                };
                let bytes = node.to_json().map_err(wrong)?;
                manifest.replace_file(NODE_FILE, Some(&bytes), || write_durably(&file, &bytes)).map_err(io)?;
                Ok(node)
            }
            Err(error) => Err(io(error)),
        }
    }

    /// What must be there.
    #[must_use]
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// 32 bytes that only this directory has: what its keys are derived from. Asked for the first time, it makes them.
    /// May be called from any thread.
    ///
    /// # Errors
    /// What the file system answers.
    pub fn secret(path: &Path, manifest: &Manifest) -> io::Result<[u8; 32]> {
        crate::entropy::secret(path, manifest, &RealRandom)
    }

    /// Lists what is there now. A directory of an earlier version gets its manifest so, once the log has been
    /// recovered, and never opens without it again; a repaired one gets a new list.
    ///
    /// # Errors
    /// What the file system answers.
    pub fn adopt(&mut self) -> Result<(), DirectoryError> {
        let io = |error| DirectoryError::Io(self.path.clone(), error);
        let mut files: Vec<String> = Vec::new();
        files.extend(LISTED_FILES.iter().filter(|name| self.path.join(name).exists()).map(|name| (*name).to_owned()));
        for folder in LISTED_FOLDERS {
            files.extend(tars_in(&self.path, folder).map_err(io)?);
        }
        self.manifest.adopt_files(&files).map_err(io)?;
        let node = NodeFile { has_manifest: true, ..self.node };
        let bytes = node.to_json().map_err(|what| DirectoryError::Format(self.path.join(NODE_FILE), what))?;
        let write = || write_durably(&self.path.join(NODE_FILE), &bytes);
        self.manifest.replace_file(NODE_FILE, Some(&bytes), write).map_err(io)?;
        self.node = node;
        Ok(())
    }

    /// As [`DataDirectory::adopt`], for a directory that has never had a manifest.
    ///
    /// # Errors
    /// What the file system answers.
    pub(crate) fn adopt_earlier_version(&mut self) -> Result<(), DirectoryError> {
        if self.node.has_manifest { Ok(()) } else { self.adopt() }
    }

    /// A folder of it, `""` for itself, as a disk.
    #[must_use]
    pub fn disk(&self, folder: &str) -> Arc<dyn Disk> {
        (self.disks)(folder)
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// How many shards it has.
    #[must_use]
    pub fn shard_count(&self) -> u16 {
        self.node.shards
    }

    /// The key of the names of results, if they are not plain.
    pub(crate) fn result_key(&self) -> Option<[u8; 16]> {
        self.node.outcome_key
    }

    /// How its results are named.
    pub(crate) fn result_names(&self) -> ResultNames {
        self.node.outcome_key.map_or(ResultNames::Plain, ResultNames::Hashed)
    }

    /// Writes `<data>/pid`.
    ///
    /// # Errors
    /// What the file system answers.
    pub fn write_pid(&self) -> io::Result<()> {
        fs::write(self.path.join("pid"), format!("{}\n", std::process::id()))
    }
}

fn random_bytes() -> [u8; 16] {
    let mut bytes = [0; 16];
    RealRandom.fill(&mut bytes);
    bytes
}

/// The apps kept in a folder, as paths from the data directory.
fn tars_in(path: &Path, folder: &str) -> io::Result<Vec<String>> {
    let entries = match fs::read_dir(path.join(folder)) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut tars = Vec::new();
    for entry in entries {
        if let Some(name) = entry?.file_name().to_str().filter(|name| name.ends_with(".tar")) {
            tars.push(format!("{folder}/{name}"));
        }
    }
    tars.sort();
    Ok(tars)
}

impl Drop for DataDirectory {
    fn drop(&mut self) {
        // Left over after a crash it does no harm: the lock decides who may start.
        let _ = fs::remove_file(self.path.join("pid"));
    }
}

/// A process that was killed holds its lock until the kernel has taken it apart, which takes the longer the more
/// memory it had. Whoever starts right after it need not fail.
const PREDECESSOR_MS: u64 = 2_000;
const LOOK_AGAIN_MS: u64 = 10;

fn take_lock(lock: &File) -> Result<(), ()> {
    for _ in 0..PREDECESSOR_MS / LOOK_AGAIN_MS {
        if flock(lock, FlockOperation::NonBlockingLockExclusive).is_ok() {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(LOOK_AGAIN_MS));
    }
    flock(lock, FlockOperation::NonBlockingLockExclusive).map_err(|_| ())
}

fn real_disks(path: &Path) -> DiskMaker {
    let path = path.to_owned();
    Arc::new(move |folder| Arc::new(RealDisk::new(path.join(folder))))
}

/// Writes a file so that after a power cut it is there whole, as before, or not at all.
pub(crate) fn write_durably(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let temporary = path.with_extension("new");
    let mut file = File::create(&temporary)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    drop(file);
    fs::rename(&temporary, path)?;
    sync_folder_of(path)
}

/// Makes the entry of `path` in its folder durable.
pub(crate) fn sync_folder_of(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shard_count_is_fixed_when_the_directory_is_created() {
        let folder = tempfile::tempdir().expect("a folder");
        let first = DataDirectory::open(folder.path(), Some(3)).expect("new");
        assert_eq!(first.shard_count(), 3);
        assert!(matches!(DataDirectory::open(folder.path(), None), Err(DirectoryError::InUse(_))));
        drop(first);
        assert_eq!(DataDirectory::open(folder.path(), None).expect("again").shard_count(), 3);
        let other = DataDirectory::open(folder.path(), Some(4));
        assert!(matches!(other, Err(DirectoryError::Shards { has: 3, asked: 4 })));
        assert!(matches!(DataDirectory::open(folder.path(), Some(0)), Err(DirectoryError::ShardCount(0))));
    }

    #[test]
    fn one_that_is_given_up_a_moment_later_can_be_used() {
        let folder = tempfile::tempdir().expect("a folder");
        let first = DataDirectory::open(folder.path(), Some(3)).expect("new");
        let goes = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(300));
            drop(first);
        });
        assert_eq!(DataDirectory::open(folder.path(), None).expect("waited for").shard_count(), 3);
        goes.join().expect("gone");
    }

    #[test]
    fn a_directory_of_another_format_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let key = "000102030405060708090a0b0c0d0e0f";
        let bad = [
            String::new(),
            "{}".to_owned(),
            r#"{"format":2,"shards":3}"#.to_owned(),
            format!(r#"{{"format":4,"shards":3,"outcome_key":"{key}"}}"#),
            format!(r#"{{"format":1,"shards":3,"outcome_key":"{key}"}}"#),
            format!(r#"{{"format":2,"shards":3,"outcome_key":"+{}"}}"#, &key[1..31]),
            r#"{"format":1,"shards":0}"#.to_owned(),
        ];
        for text in bad {
            fs::write(folder.path().join("node.json"), &text).expect("written");
            assert!(matches!(DataDirectory::open(folder.path(), None), Err(DirectoryError::Format(..))), "{text}");
        }
    }

    /// Under other names, nothing that was done would be known any more.
    #[test]
    fn names_of_invocation_results_stay_what_they_were() {
        let folder = tempfile::tempdir().expect("a folder");
        let names = || DataDirectory::open(folder.path(), None).map(|directory| directory.result_names());
        let first = names().expect("new");
        assert!(matches!(first, ResultNames::Hashed(_)));
        assert_eq!(names().expect("again"), first);
        let file = folder.path().join("node.json");
        fs::write(&file, r#"{"format":3,"shards":3}"#).expect("written");
        assert!(matches!(names(), Err(DirectoryError::Manifest(..))), "not the one that was written last");
        fs::remove_file(folder.path().join("manifest")).expect("removed");
        assert!(matches!(names(), Err(DirectoryError::Manifest(..))), "it had a manifest");
        fs::write(&file, r#"{"format":2,"shards":3,"outcome_key":"000102030405060708090a0b0c0d0e0f"}"#)
            .expect("written");
        let key = std::array::from_fn(|index| index as u8);
        assert_eq!(names().expect("the documented form"), ResultNames::Hashed(key));
        fs::write(&file, r#"{"format":1,"shards":3}"#).expect("written");
        assert_eq!(names().expect("an earlier version's"), ResultNames::Plain);
        fs::remove_file(&file).expect("removed");
        fs::create_dir(folder.path().join("log")).expect("made");
        assert!(matches!(names(), Err(DirectoryError::Format(..))), "a new key for an old log");
    }
}
