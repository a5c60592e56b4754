//! The table as it is kept: JSON.

use std::collections::BTreeSet;

use millrace_base::limits;
use serde::{Deserialize, Serialize};

use super::error::UserError;
use super::rules::{check_access_key, check_email, check_name, is_id};

/// The version this build writes and reads.
const FORMAT: u32 = 1;

/// Whether requests may be signed with an access key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KeyStatus {
    /// They may.
    Active,
    /// No longer. Its secret is gone.
    Revoked,
}

/// One access key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct KeyRecord {
    pub(super) access_key: String,
    /// As [`super::seal::DataKey`] encrypts it; `None` once it is revoked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) sealed_secret: Option<String>,
    pub(super) created_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) revoked_ms: Option<u64>,
}

impl KeyRecord {
    pub(super) fn status(&self) -> KeyStatus {
        if self.revoked_ms.is_none() { KeyStatus::Active } else { KeyStatus::Revoked }
    }
}

/// One user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct UserRecord {
    pub(super) id: String,
    pub(super) name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) email: Option<String>,
    pub(super) created_ms: u64,
    /// Oldest first.
    pub(super) keys: Vec<KeyRecord>,
}

impl UserRecord {
    pub(super) fn active_keys(&self) -> usize {
        self.keys.iter().filter(|key| key.status() == KeyStatus::Active).count()
    }
}

/// All users, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Records {
    pub(super) users: Vec<UserRecord>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File<Users> {
    format: u32,
    users: Users,
}

impl Records {
    /// The table's bytes.
    ///
    /// # Errors
    /// None that could be met: numbers and text are always JSON.
    pub(super) fn encode(&self) -> Result<Vec<u8>, UserError> {
        let mut bytes = serde_json::to_vec(&File { format: FORMAT, users: &self.users })
            .map_err(|error| UserError::Malformed(error.to_string()))?;
        bytes.push(b'\n');
        Ok(bytes)
    }

    /// Reads the table's bytes.
    ///
    /// # Errors
    /// [`UserError::Malformed`] with the first thing that is wrong.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, UserError> {
        #[derive(Deserialize)]
        struct Version {
            format: u32,
        }
        let malformed = |error: serde_json::Error| UserError::Malformed(error.to_string());
        let Version { format } = serde_json::from_slice(bytes).map_err(malformed)?;
        if format != FORMAT {
            let message = format!("format {format} is not known to this build, which reads {FORMAT}");
            return Err(UserError::Malformed(message));
        }
        let file: File<Vec<UserRecord>> = serde_json::from_slice(bytes).map_err(malformed)?;
        let records = Self { users: file.users };
        records.check().map_err(|error| UserError::Malformed(error.to_string()))?;
        Ok(records)
    }

    /// Checks what every table promises: limits, forms, and that nothing occurs twice.
    fn check(&self) -> Result<(), UserError> {
        let (mut ids, mut names, mut emails, mut keys) =
            (BTreeSet::new(), BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        let wrong = |what: String| Err(UserError::Malformed(what));
        if self.users.len() > limits::S3_USERS {
            return wrong(format!("more than {} users", limits::S3_USERS));
        }
        for user in &self.users {
            if !is_id(&user.id) || !ids.insert(&user.id) {
                return wrong(format!("user {:?}: its id is no canonical id, or occurs twice", user.name));
            }
            check_name(&user.name)?;
            if !names.insert(&user.name) {
                return wrong(format!("user {:?}: the name occurs twice", user.name));
            }
            if let Some(email) = &user.email {
                check_email(email)?;
                if !emails.insert(email.to_ascii_lowercase()) {
                    return wrong(format!("user {:?}: the e-mail address occurs twice", user.name));
                }
            }
            if user.keys.len() > limits::S3_KEYS || user.active_keys() > limits::S3_ACTIVE_KEYS {
                return wrong(format!("user {:?}: too many keys", user.name));
            }
            for key in &user.keys {
                check_access_key(&key.access_key)?;
                if !keys.insert(&key.access_key) {
                    return wrong(format!("access key {}: it occurs twice", key.access_key));
                }
                if key.sealed_secret.is_some() != (key.status() == KeyStatus::Active) {
                    return wrong(format!(
                        "access key {}: an active key has a secret, a revoked one none",
                        key.access_key
                    ));
                }
            }
        }
        Ok(())
    }

    /// The place of the user with this id or name.
    pub(super) fn find(&self, name_or_id: &str) -> Option<usize> {
        self.users.iter().position(|user| user.id == name_or_id || user.name == name_or_id)
    }

    pub(super) fn has_access_key(&self, access_key: &str) -> bool {
        self.users.iter().flat_map(|user| &user.keys).any(|key| key.access_key == access_key)
    }

    pub(super) fn has_email(&self, email: &str) -> bool {
        self.users.iter().filter_map(|user| user.email.as_deref()).any(|known| known.eq_ignore_ascii_case(email))
    }
}
