//! API keys: the file they are kept in and the check of what a request carries.
//!
//! A key reads `mr_<id>_<secret>`. The secret is 32 random bytes in base64url, and the file keeps
//! only its SHA-256. A fast hash is right here: slow ones exist to make guessing short passwords
//! costly, and 256 random bits cannot be guessed at any speed; a slow one would only let strangers
//! spend the server's CPU. Nothing here draws randomness or reads a clock: callers bring both.

use std::collections::HashMap;
use std::fmt;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use millrace_base::{hex, limits};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::principal::{Principal, Role};

/// What every key starts with, so that people and secret scanners know one when they see it.
pub const PREFIX: &str = "mr_";

/// Bytes of a key's id.
const ID_BYTES: usize = 32;

/// A key file, or a change to one, that is refused.
#[derive(Debug)]
pub enum KeyError {
    /// The file cannot be read or written.
    Io(PathBuf, std::io::Error),
    /// The file is not a key file: path and reason.
    Malformed(PathBuf, String),
    /// A record or a request to make one is wrong.
    Refused(String),
}

impl fmt::Display for KeyError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(path, error) => write!(formatter, "key file {}: {error}", path.display()),
            Self::Malformed(path, reason) => write!(formatter, "key file {}: {reason}", path.display()),
            Self::Refused(reason) => formatter.write_str(reason),
        }
    }
}

impl std::error::Error for KeyError {}

/// One key at rest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyRecord {
    /// Names the key: 1 to 32 of `a-z 0-9 -`.
    pub id: String,
    /// SHA-256 of the secret's 32 bytes, in hexadecimal.
    pub secret_sha256: String,
    /// What the key may do, as [`Role::parse`] reads it.
    pub roles: Vec<String>,
    /// When it was made, in milliseconds since 1970.
    pub created_ms: u64,
}

/// The key file: JSON.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyFile {
    /// What a request without a key may do: for public routes, such as a login that checks
    /// passwords itself. Empty lets it do nothing.
    #[serde(default)]
    pub anonymous: Vec<String>,
    /// The keys.
    #[serde(default)]
    pub keys: Vec<KeyRecord>,
}

impl KeyFile {
    /// Reads a key file.
    ///
    /// # Errors
    /// [`KeyError::Io`] and [`KeyError::Malformed`].
    pub fn load(path: &Path) -> Result<Self, KeyError> {
        let text = fs::read(path).map_err(|error| KeyError::Io(path.to_owned(), error))?;
        Self::parse(&text).map_err(|reason| KeyError::Malformed(path.to_owned(), reason))
    }

    /// Reads a key file's text.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &[u8]) -> Result<Self, String> {
        let file: Self = serde_json::from_slice(text).map_err(|error| error.to_string())?;
        KeySet::new(&file).map_err(|error| error.to_string())?;
        Ok(file)
    }

    /// Writes the file so that a reader, or a crash, meets the old one or the new one, and only
    /// its owner may read it.
    ///
    /// # Errors
    /// [`KeyError::Io`].
    pub fn save(&self, path: &Path) -> Result<(), KeyError> {
        let mut text = serde_json::to_vec_pretty(self).map_err(|error| KeyError::Refused(error.to_string()))?;
        text.push(b'\n');
        let mut temporary = path.as_os_str().to_owned();
        temporary.push(".new");
        let temporary = PathBuf::from(temporary);
        let write = || -> std::io::Result<()> {
            let mut options = fs::OpenOptions::new();
            options.write(true).create(true).truncate(true);
            #[cfg(unix)]
            std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
            let mut file = options.open(&temporary)?;
            file.write_all(&text)?;
            file.sync_all()?;
            fs::rename(&temporary, path)
        };
        write().map_err(|error| KeyError::Io(path.to_owned(), error))
    }

    /// Adds a key and returns its token, which is shown once and kept nowhere.
    ///
    /// # Errors
    /// [`KeyError::Refused`] for a wrong or taken id, no roles, or too many keys.
    pub fn add(&mut self, id: &str, secret: &[u8; 32], roles: &[Role], created_ms: u64) -> Result<String, KeyError> {
        check_id(id)?;
        if self.keys.iter().any(|key| key.id == id) {
            return Err(KeyError::Refused(format!("there is a key {id} already")));
        }
        if roles.is_empty() {
            return Err(KeyError::Refused("a key without roles could do nothing".to_owned()));
        }
        if self.keys.len() >= limits::API_KEYS {
            return Err(KeyError::Refused(format!("there are {} keys already", limits::API_KEYS)));
        }
        self.keys.push(KeyRecord {
            id: id.to_owned(),
            secret_sha256: hex(&Sha256::digest(secret)),
            roles: roles.iter().map(Role::to_string).collect(),
            created_ms,
        });
        Ok(format!("{PREFIX}{id}_{}", URL_SAFE_NO_PAD.encode(secret)))
    }

    /// Removes a key; says whether it was there.
    pub fn remove(&mut self, id: &str) -> bool {
        let before = self.keys.len();
        self.keys.retain(|key| key.id != id);
        self.keys.len() < before
    }
}

fn check_id(id: &str) -> Result<(), KeyError> {
    let is_fine = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if id.is_empty() || id.len() > ID_BYTES || !id.bytes().all(is_fine) {
        return Err(KeyError::Refused(format!("{id:?} is not a key's id: use 1 to {ID_BYTES} of a-z 0-9 -")));
    }
    Ok(())
}

struct Key {
    digest: [u8; 32],
    principal: Principal,
}

/// The keys as requests are checked against them.
pub struct KeySet {
    keys: HashMap<String, Key>,
    anonymous: Principal,
}

impl fmt::Debug for KeySet {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "KeySet({} keys)", self.keys.len())
    }
}

impl KeySet {
    /// Checks a file's records.
    ///
    /// # Errors
    /// [`KeyError::Refused`] naming the first wrong record.
    pub fn new(file: &KeyFile) -> Result<Self, KeyError> {
        if file.keys.len() > limits::API_KEYS {
            return Err(KeyError::Refused(format!("more than {} keys", limits::API_KEYS)));
        }
        let mut keys = HashMap::with_capacity(file.keys.len());
        for record in &file.keys {
            check_id(&record.id)?;
            let wrong = |reason: String| KeyError::Refused(format!("key {}: {reason}", record.id));
            let digest = from_hex(&record.secret_sha256)
                .ok_or_else(|| wrong("secret_sha256 must be 64 hexadecimal digits".to_owned()))?;
            let principal = principal(&record.roles).map_err(wrong)?;
            if keys.insert(record.id.clone(), Key { digest, principal }).is_some() {
                return Err(wrong("the id occurs twice".to_owned()));
            }
        }
        let anonymous =
            principal(&file.anonymous).map_err(|reason| KeyError::Refused(format!("anonymous: {reason}")))?;
        Ok(Self { keys, anonymous })
    }

    /// Who brings `token`, or `None` for a token of no key.
    #[must_use]
    pub fn verify(&self, token: &str) -> Option<&Principal> {
        let (id, secret) = token.strip_prefix(PREFIX)?.split_once('_')?;
        // Larger than a secret, because the decoder asks for some room beyond its output.
        let mut bytes = [0u8; 48];
        let length = URL_SAFE_NO_PAD.decode_slice(secret, &mut bytes).ok()?;
        let digest: [u8; 32] = Sha256::digest(&bytes[..length]).into();
        let key = self.keys.get(id)?;
        (length == 32 && equal(&digest, &key.digest)).then_some(&key.principal)
    }

    /// Who brings no key.
    #[must_use]
    pub fn anonymous(&self) -> &Principal {
        &self.anonymous
    }

    /// How many keys there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.keys.len()
    }
}

fn principal(roles: &[String]) -> Result<Principal, String> {
    let roles: Result<Vec<Role>, _> = roles.iter().map(|role| Role::parse(role)).collect();
    roles.map(Principal::with_roles).map_err(|error| error.to_string())
}

/// Compares in a time that does not depend on where the two differ.
fn equal(left: &[u8; 32], right: &[u8; 32]) -> bool {
    let difference = left.iter().zip(right).fold(0u8, |difference, (a, b)| difference | (a ^ b));
    std::hint::black_box(difference) == 0
}

fn from_hex(text: &str) -> Option<[u8; 32]> {
    let digits: Vec<u8> =
        text.chars().map(|digit| digit.to_digit(16).map(|value| value as u8)).collect::<Option<_>>()?;
    let bytes: Vec<u8> = digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect();
    if digits.len() == 64 { bytes.try_into().ok() } else { None }
}

#[cfg(test)]
#[path = "keys_tests.rs"]
mod tests;
