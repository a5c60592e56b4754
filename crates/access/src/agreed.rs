//! API keys that the nodes of a cluster agree on, in place of a file on each.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use crate::keyring::Keyring;
use crate::keys::{KeyError, KeyFile, KeySet};
use crate::principal::Role;
use crate::users::StoreError;

/// The keys, and their version: one more with each change. 0: the cluster has none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgreedKeys {
    /// The version.
    pub version: u64,
    /// The keys, as a key file has them: without secrets.
    pub keys: KeyFile,
}

/// Why keys are not replaced.
#[derive(Debug)]
pub enum AgreeError {
    /// They are wrong.
    Refused(String),
    /// They could not be kept.
    Store(StoreError),
}

/// Keeps keys of a version, if it is the one after the present one. Blocks.
type Keep = Box<dyn Fn(u64, &[u8]) -> Result<(), StoreError> + Send + Sync>;

/// See the module's documentation.
pub struct KeyAgreement {
    held: Mutex<AgreedKeys>,
    keyring: Option<Arc<Keyring>>,
    keep: Keep,
}

impl fmt::Debug for KeyAgreement {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("KeyAgreement").finish_non_exhaustive()
    }
}

impl KeyAgreement {
    /// Keys that `keep` keeps, for this keyring. A node that was started without keys has none.
    pub fn new(
        keyring: Option<Arc<Keyring>>,
        keep: impl Fn(u64, &[u8]) -> Result<(), StoreError> + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Self { held: Mutex::default(), keyring, keep: Box::new(keep) })
    }

    /// The keys as they are now.
    #[must_use]
    pub fn held(&self) -> AgreedKeys {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the keys, if they still have the version that `next` names. Blocks.
    ///
    /// # Errors
    /// [`AgreeError`]; also for keys without which nobody could change them again.
    pub fn replace(&self, next: &AgreedKeys) -> Result<(), AgreeError> {
        let refused = |reason: &dyn fmt::Display| AgreeError::Refused(reason.to_string());
        KeySet::new(&next.keys).map_err(|error| refused(&error))?;
        let admin = Role::Admin.to_string();
        if !next.keys.keys.iter().any(|key| key.roles.contains(&admin)) {
            return Err(refused(&"one key has to have the role admin: without it nobody could change the keys again"));
        }
        let bytes = serde_json::to_vec(&next.keys).map_err(|error| refused(&error))?;
        (self.keep)(next.version, &bytes).map_err(AgreeError::Store)
    }

    /// The nodes have agreed on keys. They are in force from now on.
    ///
    /// # Errors
    /// What is wrong with them; those of before stay in force.
    pub fn hear(&self, version: u64, bytes: &[u8]) -> Result<KeyFile, KeyError> {
        let keys = KeyFile::parse(bytes).map_err(KeyError::Refused)?;
        if let Some(keyring) = &self.keyring {
            keyring.replace(&keys)?;
        }
        *self.held.lock().unwrap_or_else(PoisonError::into_inner) = AgreedKeys { version, keys: keys.clone() };
        Ok(keys)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Access, Permission};

    #[test]
    fn agreed_keys_take_the_place_of_the_file_for_good() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("keys.json");
        let mut file = KeyFile::default();
        let first = file.add("first", &[1; 32], &[Role::Admin], 0).expect("new");
        file.save(&path).expect("saved");
        let keyring = Keyring::open(&path).expect("usable");
        let access = Access::new(Some(&keyring));
        let agreement = KeyAgreement::new(Some(Arc::clone(&keyring)), |_, _| Ok(()));
        let mut next = KeyFile::default();
        let second = next.add("second", &[2; 32], &[Role::Admin], 0).expect("new");
        agreement.hear(1, &serde_json::to_vec(&next).expect("JSON")).expect("usable");
        assert!(access.caller(Some(&first)).is_none(), "it is revoked at once");
        assert!(access.caller(Some(&second)).expect("known").principal.may(Permission::Admin));
        file.anonymous = vec!["admin".to_owned()];
        file.save(&path).expect("saved");
        keyring.reload_changed();
        assert!(access.caller(Some(&first)).is_none(), "the file does not count any more");
        assert_eq!(agreement.held(), AgreedKeys { version: 1, keys: next });
        assert!(agreement.hear(2, b"{").is_err());
        assert_eq!(agreement.held().version, 1);
    }

    #[test]
    fn keys_without_an_administrator_are_refused() {
        let kept = Arc::new(Mutex::new(Vec::new()));
        let keeps = Arc::clone(&kept);
        let agreement = KeyAgreement::new(None, move |version, _| {
            keeps.lock().expect("whole").push(version);
            Ok(())
        });
        let mut keys = KeyFile::default();
        keys.add("ci", &[1; 32], &[Role::Deploy], 0).expect("new");
        let refused = agreement.replace(&AgreedKeys { version: 3, keys: keys.clone() });
        assert!(matches!(refused, Err(AgreeError::Refused(_))));
        keys.add("ann", &[2; 32], &[Role::Admin], 0).expect("new");
        agreement.replace(&AgreedKeys { version: 3, keys }).expect("one may change them");
        assert_eq!(*kept.lock().expect("whole"), [3]);
    }
}
