//! The key file of a node, as all fronts and cores share it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use crate::keys::{KeyError, KeyFile, KeySet};
use crate::shared::{Cached, Shared};

/// Changes when a file is rewritten or replaced; `None` while it is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp(Option<(u64, u64, Option<SystemTime>)>);

impl Stamp {
    /// The stamp of a file as it is now.
    #[must_use]
    pub fn of(path: &Path) -> Self {
        Self(std::fs::metadata(path).ok().map(|metadata| {
            #[cfg(unix)]
            let inode = std::os::unix::fs::MetadataExt::ino(&metadata);
            #[cfg(not(unix))]
            let inode = 0;
            (inode, metadata.len(), metadata.modified().ok())
        }))
    }
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Keyring {
    path: PathBuf,
    keys: Arc<Shared<KeySet>>,
    /// Of the file as it was last read, usable or not: so each change is read once.
    stamp: Mutex<Stamp>,
    /// Others have said which keys count: not the file.
    is_told: AtomicBool,
}

impl Keyring {
    /// Reads a key file.
    ///
    /// # Errors
    /// [`KeyError`] when it cannot be used.
    pub fn open(path: &Path) -> Result<Arc<Self>, KeyError> {
        let stamp = Mutex::new(Stamp::of(path));
        let keys = Arc::new(Shared::new(read(path)?));
        Ok(Arc::new(Self { path: path.to_owned(), keys, stamp, is_told: AtomicBool::new(false) }))
    }

    /// How many keys there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.keys.load().count()
    }

    /// Takes keys in place of those of the file, which does not count any more.
    ///
    /// # Errors
    /// [`KeyError::Refused`]; the keys are as before then.
    pub fn replace(&self, file: &KeyFile) -> Result<(), KeyError> {
        let keys = KeySet::new(file)?;
        self.is_told.store(true, Ordering::Relaxed);
        self.keys.replace(keys);
        Ok(())
    }

    pub(crate) fn view(&self) -> Cached<KeySet> {
        Cached::new(Arc::clone(&self.keys))
    }

    /// Reads the file again if it changed. One that cannot be used leaves the keys of before in force. Blocks on the
    /// disk.
    pub fn reload_changed(&self) {
        if self.is_told.load(Ordering::Relaxed) {
            return;
        }
        let now = Stamp::of(&self.path);
        let mut stamp = self.stamp.lock().unwrap_or_else(PoisonError::into_inner);
        if *stamp == now {
            return;
        }
        *stamp = now;
        match read(&self.path) {
            Ok(keys) => {
                tracing::info!(keys = keys.count(), "API keys read again");
                self.keys.replace(keys);
            }
            Err(error) => tracing::error!(%error, "changed API keys cannot be used; the old ones stay in force"),
        }
    }
}

fn read(path: &Path) -> Result<KeySet, KeyError> {
    KeyFile::load(path).and_then(|file| KeySet::new(&file))
}

/// Whether a front that listens here must have keys: others than this machine's processes can reach it.
#[must_use]
pub fn needs_keys(address: SocketAddr) -> bool {
    !address.ip().is_loopback()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Role;

    #[test]
    fn a_file_that_cannot_be_used_leaves_the_keys_of_before() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("keys.json");
        assert!(matches!(Keyring::open(&path), Err(KeyError::Io(..))));
        let mut file = KeyFile::default();
        file.add("one", &[1; 32], &[Role::Admin], 0).expect("new");
        file.save(&path).expect("saved");
        let keyring = Keyring::open(&path).expect("usable");
        assert_eq!(keyring.count(), 1);
        std::fs::write(&path, "{ broken").expect("written");
        keyring.reload_changed();
        assert_eq!(keyring.count(), 1);
        std::fs::remove_file(&path).expect("there");
        keyring.reload_changed();
        assert_eq!(keyring.count(), 1);
        file.add("two", &[2; 32], &[Role::Admin], 0).expect("new");
        file.save(&path).expect("saved");
        keyring.reload_changed();
        assert_eq!(keyring.count(), 2);
    }

    #[test]
    fn only_loopback_may_go_without_keys() {
        for (address, needs) in [
            ("127.0.0.1:80", false),
            ("127.9.9.9:80", false),
            ("[::1]:80", false),
            ("0.0.0.0:80", true),
            ("[::]:80", true),
            ("10.0.0.1:80", true),
        ] {
            assert_eq!(needs_keys(address.parse().expect("an address")), needs, "{address}");
        }
    }
}
