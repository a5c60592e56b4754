//! The table of one node: changes, and the view that each core has of it.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use millrace_base::limits;
use serde::{Deserialize, Serialize};

use super::error::UserError;
use super::index::{Credentials, Identity, Index};
use super::records::{KeyRecord, KeyStatus, Records, UserRecord};
use super::rules::{
    access_key_of, check_access_key, check_email, check_name, check_secret_key, id_of, secret_key_of, shown,
};
use super::seal::NONCE_BYTES;
use super::store::{StoreError, UserStore};
use crate::shared::{Cached, Shared};

/// What a user is made from.
#[derive(Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewUser {
    /// The name.
    pub name: String,
    /// The e-mail address.
    #[serde(default)]
    pub email: Option<String>,
    /// The user's first key.
    #[serde(default)]
    pub access_key: Option<String>,
    /// Its secret.
    #[serde(default)]
    pub secret_key: Option<String>,
}

/// What a key is made from: both are given, or none and both are drawn.
#[derive(Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewKey {
    /// The access key.
    #[serde(default)]
    pub access_key: Option<String>,
    /// Its secret.
    #[serde(default)]
    pub secret_key: Option<String>,
}

/// An access key as lists show it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AccessKey {
    /// The access key.
    pub access_key: String,
    /// Whether it may be used.
    pub status: KeyStatus,
    /// When it was made, in milliseconds since 1970.
    pub created_ms: u64,
}

/// A user as lists show them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UserSummary {
    /// The canonical id.
    pub id: String,
    /// The name.
    pub display_name: String,
    /// The e-mail address, or empty.
    pub email: String,
    /// When the user was made, in milliseconds since 1970.
    pub created_ms: u64,
    /// The keys, oldest first.
    pub keys: Vec<AccessKey>,
}

/// Draws random bytes fit for secrets.
type Fill = Box<dyn Fn(&mut [u8]) + Send + Sync>;

/// How often a change is made again because somebody else was quicker.
const ATTEMPTS: usize = 16;

/// The table, and its version: one more with each change that this program has heard of.
#[derive(Default)]
struct Held {
    version: u64,
    records: Records,
}

/// See the module's documentation.
pub struct Users {
    store: Box<dyn UserStore>,
    fill: Fill,
    /// Held during a change, so changes follow each other.
    changing: Mutex<()>,
    held: Mutex<Held>,
    index: Arc<Shared<Index>>,
}

impl fmt::Debug for Users {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Users").finish_non_exhaustive()
    }
}

impl Users {
    /// Reads the table that `store` keeps; an empty one if it never kept one. `fill` fills bytes with randomness fit
    /// for secrets.
    ///
    /// # Errors
    /// [`UserError::Malformed`] and [`UserError::Store`].
    pub fn open(
        store: impl UserStore + 'static,
        fill: impl Fn(&mut [u8]) + Send + Sync + 'static,
    ) -> Result<Arc<Self>, UserError> {
        let records = match store.read()? {
            Some(bytes) => Records::decode(&bytes)?,
            None => Records::default(),
        };
        let index = Index::of(&records, &Index::default(), || Ok(store.data_key()?))?;
        Ok(Arc::new(Self {
            store: Box::new(store),
            fill: Box::new(fill),
            changing: Mutex::new(()),
            held: Mutex::new(Held { version: 0, records }),
            index: Arc::new(Shared::new(index)),
        }))
    }

    /// One core's view.
    #[must_use]
    pub fn view(&self) -> UsersView {
        UsersView { index: Cached::new(Arc::clone(&self.index)) }
    }

    /// All users, oldest first.
    #[must_use]
    pub fn list(&self) -> Vec<UserSummary> {
        self.lock().records.users.iter().map(summary).collect()
    }

    /// The keys of the user with this name or id, oldest first.
    ///
    /// # Errors
    /// [`UserError::Unknown`].
    pub fn keys(&self, name_or_id: &str) -> Result<Vec<AccessKey>, UserError> {
        let Held { records, .. } = &*self.lock();
        let place = place_of(records, name_or_id)?;
        Ok(records.users[place].keys.iter().map(access_key).collect())
    }

    /// Makes a user with one key. Blocks on the store.
    ///
    /// # Errors
    /// [`UserError`]; the table is as before then.
    pub fn add_user(&self, new: &NewUser, now_ms: u64) -> Result<(UserSummary, NewSecret), UserError> {
        check_name(&new.name)?;
        new.email.as_deref().map_or(Ok(()), check_email)?;
        self.change(|records| {
            if records.users.len() >= limits::S3_USERS {
                return Err(UserError::Full(format!("there are {} users already", limits::S3_USERS)));
            }
            if records.find(&new.name).is_some() {
                return Err(UserError::Taken(format!("there is a user {:?} already", new.name)));
            }
            if let Some(email) = new.email.as_deref().filter(|email| records.has_email(email)) {
                return Err(UserError::Taken(format!("another user has the e-mail address {email}")));
            }
            let id = id_of(self.draw());
            let pair = NewKey { access_key: new.access_key.clone(), secret_key: new.secret_key.clone() };
            let (key, secret) = self.make_key(records, &id, &pair, now_ms)?;
            let (name, email) = (new.name.clone(), new.email.clone());
            let user = UserRecord { id, name, email, created_ms: now_ms, keys: vec![key] };
            let shown = summary(&user);
            records.users.push(user);
            Ok((shown, secret))
        })
    }

    /// Removes the user with this name or id, and their keys. What the user owns stays. Blocks on the store.
    ///
    /// # Errors
    /// [`UserError`]; the table is as before then.
    pub fn remove_user(&self, name_or_id: &str) -> Result<(), UserError> {
        self.change(|records| {
            let place = place_of(records, name_or_id)?;
            records.users.remove(place);
            Ok(())
        })
    }

    /// Makes one more key for the user with this name or id. Blocks on the store.
    ///
    /// # Errors
    /// [`UserError`]; the table is as before then.
    pub fn add_key(&self, name_or_id: &str, new: &NewKey, now_ms: u64) -> Result<NewSecret, UserError> {
        self.change(|records| {
            let place = place_of(records, name_or_id)?;
            if records.users[place].active_keys() >= limits::S3_ACTIVE_KEYS {
                let message = format!("the user has {} active keys: revoke one first", limits::S3_ACTIVE_KEYS);
                return Err(UserError::Full(message));
            }
            let id = records.users[place].id.clone();
            let (key, secret) = self.make_key(records, &id, new, now_ms)?;
            let keys = &mut records.users[place].keys;
            keys.push(key);
            if keys.len() > limits::S3_KEYS
                && let Some(oldest) = keys.iter().position(|key| key.status() == KeyStatus::Revoked)
            {
                keys.remove(oldest);
            }
            Ok(secret)
        })
    }

    /// Revokes a key of the user with this name or id; revoking it again changes nothing. Blocks on the store.
    ///
    /// # Errors
    /// [`UserError`]; the table is as before then.
    pub fn revoke_key(&self, name_or_id: &str, access_key: &str, now_ms: u64) -> Result<(), UserError> {
        self.change(|records| {
            let place = place_of(records, name_or_id)?;
            let key = records.users[place].keys.iter_mut().find(|key| key.access_key == access_key);
            let key =
                key.ok_or_else(|| UserError::Unknown(format!("the user has no access key {:?}", shown(access_key))))?;
            if key.status() == KeyStatus::Active {
                (key.sealed_secret, key.revoked_ms) = (None, Some(now_ms));
            }
            Ok(())
        })
    }

    /// Takes a table that somebody else has kept. An older one than this program knows changes nothing.
    ///
    /// # Errors
    /// [`UserError::Malformed`] and [`UserError::Store`]; the table is as before then.
    pub fn hear(&self, version: u64, bytes: &[u8]) -> Result<(), UserError> {
        let records = Records::decode(bytes)?;
        let index = self.index_of(&records)?;
        self.hold(Held { version, records }, index);
        Ok(())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Held> {
        // Records are replaced in one step: a panic leaves them whole.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn index_of(&self, records: &Records) -> Result<Index, UserError> {
        Index::of(records, &self.index.load(), || Ok(self.store.data_key()?))
    }

    /// Makes a table visible, unless a later one is.
    fn hold(&self, next: Held, index: Index) {
        let mut held = self.lock();
        if next.version > held.version {
            *held = next;
            self.index.replace(index);
        }
    }

    /// Makes one change durable, and then visible.
    fn change<T>(&self, change: impl Fn(&mut Records) -> Result<T, UserError>) -> Result<T, UserError> {
        let _one_at_a_time = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        for _ in 0..ATTEMPTS {
            let (version, before) = {
                let held = self.lock();
                (held.version, held.records.clone())
            };
            let mut records = before.clone();
            let answer = change(&mut records)?;
            if records == before {
                return Ok(answer);
            }
            let index = self.index_of(&records)?;
            // The store may tell of it before it returns, and of later ones: nobody holds the table meanwhile.
            match self.store.replace(version, &records.encode()?) {
                Ok(()) => {
                    self.hold(Held { version: version + 1, records }, index);
                    return Ok(answer);
                }
                Err(StoreError::Changed) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(StoreError::Changed.into())
    }

    fn make_key(
        &self,
        records: &Records,
        user: &str,
        new: &NewKey,
        now_ms: u64,
    ) -> Result<(KeyRecord, NewSecret), UserError> {
        let (access_key, secret_key) = match (&new.access_key, &new.secret_key) {
            (Some(access_key), Some(secret_key)) => {
                check_access_key(access_key)?;
                check_secret_key(secret_key)?;
                (access_key.clone(), secret_key.clone())
            }
            (None, None) => (access_key_of(self.draw()), secret_key_of(self.draw())),
            _ => {
                let message = "give access key and secret key, or none of them".to_owned();
                return Err(UserError::Refused(message));
            }
        };
        if records.has_access_key(&access_key) {
            return Err(UserError::Taken(format!("the access key {access_key} was given out already")));
        }
        let nonce: [u8; NONCE_BYTES] = self.draw();
        let sealed = self.store.data_key()?.seal(user, &access_key, &secret_key, nonce);
        let record = KeyRecord {
            access_key: access_key.clone(),
            sealed_secret: Some(sealed),
            created_ms: now_ms,
            revoked_ms: None,
        };
        Ok((record, NewSecret { access_key, secret_key }))
    }

    fn draw<const BYTES: usize>(&self) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        (self.fill)(&mut bytes);
        bytes
    }
}

/// A key that was just made: the only time that its secret is shown.
#[derive(Clone, PartialEq, Eq, Serialize)]
pub struct NewSecret {
    /// The access key.
    pub access_key: String,
    /// Its secret.
    pub secret_key: String,
}

impl fmt::Debug for NewSecret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("NewSecret").field("access_key", &self.access_key).finish_non_exhaustive()
    }
}

fn place_of(records: &Records, name_or_id: &str) -> Result<usize, UserError> {
    records.find(name_or_id).ok_or_else(|| UserError::Unknown(format!("there is no user {:?}", shown(name_or_id))))
}

fn summary(user: &UserRecord) -> UserSummary {
    UserSummary {
        id: user.id.clone(),
        display_name: user.name.clone(),
        email: user.email.clone().unwrap_or_default(),
        created_ms: user.created_ms,
        keys: user.keys.iter().map(access_key).collect(),
    }
}

fn access_key(key: &KeyRecord) -> AccessKey {
    AccessKey { access_key: key.access_key.clone(), status: key.status(), created_ms: key.created_ms }
}

/// The users as one core looks at them: an unchanged table costs one atomic load.
#[derive(Debug)]
pub struct UsersView {
    index: Cached<Index>,
}

impl UsersView {
    /// Whose an active access key is, with its secret.
    #[must_use]
    pub fn find(&self, access_key: &str) -> Option<Credentials> {
        self.index.get().find(access_key).cloned()
    }

    /// The user with a canonical id.
    #[must_use]
    pub fn of_id(&self, id: &str) -> Option<Arc<Identity>> {
        self.index.get().of_id(id).cloned()
    }

    /// The user of a name. Looks at every user.
    #[must_use]
    pub fn of_name(&self, name: &str) -> Option<Arc<Identity>> {
        self.index.get().of_name(name).cloned()
    }

    /// The user with an e-mail address, whatever its case.
    #[must_use]
    pub fn of_email(&self, email: &str) -> Option<Arc<Identity>> {
        self.index.get().of_email(email).cloned()
    }
}
