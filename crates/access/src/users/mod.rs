//! Users of S3 and their access keys.
//!
//! A user has a canonical id, a unique name, perhaps a unique e-mail address, and access keys. A request is signed with
//! a key's secret, so the node needs the secret itself and not its hash. It is encrypted where it is kept.
//!
//! Promises: a change is durable before it is seen and before its method returns. Every core sees it at its next look,
//! which costs one atomic load. A secret leaves this module twice only: when its key is made, and to check a signature.
//! What cannot be read or decrypted is an error, and never an empty table.
//!
//! Must not know where the table is kept: a [`UserStore`] does. It draws no randomness and reads no clock: callers
//! bring both.

mod error;
mod index;
mod records;
mod rules;
mod seal;
mod store;
mod table;

pub use error::UserError;
pub use index::{Credentials, Identity};
pub use records::KeyStatus;
pub use seal::DataKey;
pub use store::{StoreError, UserStore};
pub use table::{AccessKey, NewKey, NewSecret, NewUser, UserSummary, Users, UsersView};

#[cfg(test)]
mod tests;
