//! One core's view of the keys.

use crate::keyring::Keyring;
use crate::keys::KeySet;
use crate::principal::Principal;
use crate::shared::Cached;

/// Who sends a request.
#[derive(Clone, Debug)]
pub struct Caller {
    /// What the caller may do.
    pub principal: Principal,
    /// The caller brought no key where keys are asked for: a refusal then means "bring a key".
    pub is_anonymous: bool,
}

impl Caller {
    /// Whether nothing at all is allowed without a key. Such a caller is not told what there is, not even by the kind
    /// of an error.
    #[must_use]
    pub fn may_only_bring_a_key(&self) -> bool {
        self.is_anonymous && !self.principal.may_something()
    }
}

/// The keys as one core of a front looks at them.
#[derive(Debug)]
pub struct Access {
    keys: Option<Cached<KeySet>>,
}

impl Access {
    /// A view of a keyring. Without one, every caller may do everything.
    #[must_use]
    pub fn new(keyring: Option<&Keyring>) -> Self {
        Self { keys: keyring.map(Keyring::view) }
    }

    /// Whether callers are asked for keys.
    #[must_use]
    pub fn asks_for_keys(&self) -> bool {
        self.keys.is_some()
    }

    /// The caller who brings this token, or none. `None` for a token of no key.
    #[must_use]
    pub fn caller(&self, token: Option<&str>) -> Option<Caller> {
        let Some(keys) = &self.keys else {
            return Some(Caller { principal: Principal::unrestricted(), is_anonymous: false });
        };
        let keys = keys.get();
        let principal = match token {
            Some(token) => keys.verify(token)?,
            None => keys.anonymous(),
        };
        Some(Caller { principal: principal.clone(), is_anonymous: token.is_none() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{KeyFile, Permission, Role};

    #[test]
    fn without_keys_everybody_may_do_everything() {
        let access = Access::new(None);
        assert!(!access.asks_for_keys());
        for token in [None, Some("mr_a_b")] {
            let caller = access.caller(token).expect("anybody");
            assert!(caller.principal.may(Permission::Admin) && !caller.is_anonymous);
        }
    }

    #[test]
    fn with_keys_a_token_says_who_asks() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("keys.json");
        let mut file = KeyFile { anonymous: vec!["call:main/login".to_owned()], ..KeyFile::default() };
        let token = file.add("ci", &[7; 32], &[Role::Deploy], 0).expect("new");
        file.save(&path).expect("saved");
        let keyring = Keyring::open(&path).expect("usable");
        let access = Access::new(Some(&keyring));
        assert!(access.asks_for_keys());
        let caller = access.caller(Some(&token)).expect("known");
        assert!(caller.principal.may(Permission::Deploy) && !caller.is_anonymous);
        let login = Permission::Call { app: "main", service: "login" };
        let nobody = access.caller(None).expect("anybody");
        assert!(nobody.principal.may(login) && !nobody.principal.may(Permission::Deploy) && nobody.is_anonymous);
        assert!(!nobody.may_only_bring_a_key());
        assert!(access.caller(Some("mr_ci_other")).is_none());
        file.anonymous.clear();
        file.save(&path).expect("saved");
        keyring.reload_changed();
        assert!(access.caller(None).expect("anybody").may_only_bring_a_key(), "the view follows the file");
    }
}
