//! Who asks, and what they may do: the same for every front.
//!
//! A [`Keyring`] holds the key file of a node, and reads it again when it changes. Each core has a view of it, an
//! [`Access`], which turns the token that a request carries into a [`Caller`]. What the caller may do is decided by its
//! [`Principal`]. [`Users`] are those of S3: their requests are signed with access keys, and hold no token.
//!
//! Promises: a token is compared in constant time. Its secret is nowhere at rest. A key file that cannot be used leaves
//! the one before in force. An unchanged key file costs a request one atomic load.
//!
//! Must not know a protocol: where a token stands in a request, and how a refusal is said, is the front's.

mod access;
mod agreed;
mod keyring;
mod keys;
mod principal;
mod shared;
mod users;

pub use access::{Access, Caller};
pub use agreed::{AgreeError, AgreedKeys, KeyAgreement};
pub use keyring::{Keyring, Stamp, needs_keys};
pub use keys::{KeyError, KeyFile, KeyRecord, KeySet, PREFIX};
pub use principal::{Permission, Principal, Role, RoleError};
pub use shared::{Cached, Shared};
pub use users::{
    AccessKey, Credentials, DataKey, Identity, KeyStatus, NewKey, NewSecret, NewUser, StoreError, UserError, UserStore,
    UserSummary, Users, UsersView,
};
