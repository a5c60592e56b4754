//! The data directory: who uses it, how many shards it has, which format it is in.
//!
//! ```text
//! data/
//!   node.json     format version, shard count, the key of outcomes' names; written once
//!   lock          held (flock) while a node runs
//!   pid           the running node's process id
//!   log/          millrace_log
//!   checkpoint/   millrace_store (fjall)
//!   apps/         deployed apps, one tar each
//!   keys.json     API keys (millrace_http)
//! ```

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use millrace_base::limits;
use millrace_io::{Random, RealRandom};
use millrace_shard::OutcomeNames;
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
            DirectoryError::Io(path, error) => {
                write!(formatter, "the data directory cannot be used (--data): {}: {error}", path.display())
            }
        }
    }
}

impl std::error::Error for DirectoryError {}

/// A data directory in use by this process.
#[derive(Debug)]
pub struct DataDirectory {
    path: PathBuf,
    shard_count: u16,
    outcome_names: OutcomeNames,
    /// Keeps the lock for as long as the directory is in use.
    _lock: File,
}

impl DataDirectory {
    /// Creates or opens the directory and locks it against other processes. One that is just going
    /// away is waited for.
    ///
    /// # Errors
    /// [`DirectoryError`], which names what to change.
    pub fn open(path: &Path, shards: Option<u16>) -> Result<Self, DirectoryError> {
        if let Some(count) = shards
            && !(1..=limits::SHARDS).contains(&count)
        {
            return Err(DirectoryError::ShardCount(count));
        }
        let io = |error| DirectoryError::Io(path.to_owned(), error);
        fs::create_dir_all(path).map_err(io)?;
        let lock = OpenOptions::new().create(true).truncate(false).write(true).open(path.join("lock")).map_err(io)?;
        take_lock(&lock).map_err(|()| DirectoryError::InUse(path.to_owned()))?;
        let (shard_count, outcome_names) = Self::read_or_make(path, shards)?;
        Ok(Self { path: path.to_owned(), shard_count, outcome_names, _lock: lock })
    }

    fn read_or_make(path: &Path, asked: Option<u16>) -> Result<(u16, OutcomeNames), DirectoryError> {
        let file = path.join("node.json");
        let io = |error| DirectoryError::Io(file.clone(), error);
        let wrong = |what: String| DirectoryError::Format(file.clone(), what);
        match fs::read(&file) {
            Ok(bytes) => {
                let node = NodeFile::parse(&bytes).map_err(wrong)?;
                match asked {
                    Some(asked) if asked != node.shards => Err(DirectoryError::Shards { has: node.shards, asked }),
                    _ => Ok((node.shards, names_with(node.outcome_key))),
                }
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                if path.join("log").exists() {
                    let what = "missing, though the directory holds a log: restore it from a backup";
                    return Err(wrong(what.to_owned()));
                }
                let mut key = [0; 16];
                RealRandom.fill(&mut key);
                let node = NodeFile { shards: asked.unwrap_or(DEFAULT_SHARDS), outcome_key: Some(key) };
                write_durably(&file, &node.to_json().map_err(wrong)?).map_err(io)?;
                Ok((node.shards, names_with(node.outcome_key)))
            }
            Err(error) => Err(io(error)),
        }
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// How many shards it has.
    #[must_use]
    pub fn shard_count(&self) -> u16 {
        self.shard_count
    }

    /// How its outcomes are named.
    pub(crate) fn outcome_names(&self) -> OutcomeNames {
        self.outcome_names
    }

    /// Writes `<data>/pid`.
    ///
    /// # Errors
    /// What the file system answers.
    pub fn write_pid(&self) -> io::Result<()> {
        fs::write(self.path.join("pid"), format!("{}\n", std::process::id()))
    }
}

fn names_with(outcome_key: Option<[u8; 16]>) -> OutcomeNames {
    outcome_key.map_or(OutcomeNames::Plain, OutcomeNames::Hashed)
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
            format!(r#"{{"format":3,"shards":3,"outcome_key":"{key}"}}"#),
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
    fn names_of_outcomes_stay_what_they_were() {
        let folder = tempfile::tempdir().expect("a folder");
        let names = || DataDirectory::open(folder.path(), None).map(|directory| directory.outcome_names());
        let first = names().expect("new");
        assert!(matches!(first, OutcomeNames::Hashed(_)));
        assert_eq!(names().expect("again"), first);
        let file = folder.path().join("node.json");
        fs::write(&file, r#"{"format":2,"shards":3,"outcome_key":"000102030405060708090a0b0c0d0e0f"}"#)
            .expect("written");
        let key = std::array::from_fn(|index| index as u8);
        assert_eq!(names().expect("the documented form"), OutcomeNames::Hashed(key));
        fs::write(&file, r#"{"format":1,"shards":3}"#).expect("written");
        assert_eq!(names().expect("an earlier version's"), OutcomeNames::Plain);
        fs::remove_file(&file).expect("removed");
        fs::create_dir(folder.path().join("log")).expect("made");
        assert!(matches!(names(), Err(DirectoryError::Format(..))), "a new key for an old log");
    }
}
