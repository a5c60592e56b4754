//! The table as requests look into it.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use super::error::UserError;
use super::records::Records;
use super::seal::DataKey;

/// Who a user is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The canonical id: 64 hexadecimal digits.
    pub id: String,
    /// The name, which is the display name too.
    pub name: String,
    /// The e-mail address, by which access lists may name the user.
    pub email: Option<String>,
}

/// Whose an access key is, and the secret that requests are signed with. Cheap to clone.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The user.
    pub identity: Arc<Identity>,
    /// The secret key.
    pub secret: Arc<str>,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Secrets do not go into logs.
        formatter.debug_struct("Credentials").field("identity", &self.identity).finish_non_exhaustive()
    }
}

/// All looks are one look into a hash table.
#[derive(Default)]
pub(super) struct Index {
    keys: HashMap<String, Credentials>,
    ids: HashMap<String, Arc<Identity>>,
    /// By e-mail address in lower case.
    emails: HashMap<String, Arc<Identity>>,
}

impl fmt::Debug for Index {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Index({} keys)", self.keys.len())
    }
}

impl Index {
    /// The index of a table. Secrets that `before` knows are not decrypted again; an access key never gets another
    /// secret.
    ///
    /// # Errors
    /// [`UserError::Malformed`] for a secret that the data key does not decrypt, or the store's error where there is no key.
    pub(super) fn of(
        records: &Records,
        before: &Index,
        data_key: impl Fn() -> Result<DataKey, UserError>,
    ) -> Result<Self, UserError> {
        let mut index = Self::default();
        let mut known_key = None;
        for user in &records.users {
            let identity =
                Arc::new(Identity { id: user.id.clone(), name: user.name.clone(), email: user.email.clone() });
            index.ids.insert(user.id.clone(), Arc::clone(&identity));
            if let Some(email) = &user.email {
                index.emails.insert(email.to_ascii_lowercase(), Arc::clone(&identity));
            }
            for key in &user.keys {
                let Some(sealed) = &key.sealed_secret else { continue };
                let known = before.keys.get(&key.access_key).filter(|known| known.identity.id == user.id);
                let secret = match known {
                    Some(known) => Arc::clone(&known.secret),
                    None => {
                        if known_key.is_none() {
                            known_key = Some(data_key()?);
                        }
                        let opened = known_key.as_ref().and_then(|it| it.open(&user.id, &key.access_key, sealed));
                        Arc::from(opened.ok_or_else(|| not_ours(&key.access_key))?)
                    }
                };
                let credentials = Credentials { identity: Arc::clone(&identity), secret };
                index.keys.insert(key.access_key.clone(), credentials);
            }
        }
        Ok(index)
    }

    pub(super) fn find(&self, access_key: &str) -> Option<&Credentials> {
        self.keys.get(access_key)
    }

    pub(super) fn of_id(&self, id: &str) -> Option<&Arc<Identity>> {
        self.ids.get(id)
    }

    pub(super) fn of_name(&self, name: &str) -> Option<&Arc<Identity>> {
        self.ids.values().find(|identity| identity.name == name)
    }

    pub(super) fn of_email(&self, email: &str) -> Option<&Arc<Identity>> {
        self.emails.get(&email.to_ascii_lowercase())
    }
}

fn not_ours(access_key: &str) -> UserError {
    UserError::Malformed(format!(
        "the secret of access key {access_key} was encrypted with another key: restore the whole data directory from one backup"
    ))
}
