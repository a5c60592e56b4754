//! The vocabulary that every other crate shares: names, entity keys, values, log positions, shard placement, time and
//! limits.
//!
//! Promises: every type here is plain data with one canonical form. Every conversion from a stranger's bytes returns an
//! error instead of panicking. Must not do I/O, be async, or know what a log, a store or a front is.

mod byte_budget;
mod chosen_id;
mod entity_key;
mod error;
mod hex;
mod http2_frame_budget;
mod idempotency_key;
pub mod json;
pub mod limits;
mod line_limit;
pub mod metric;
mod name;
mod position;
pub mod url;
mod value;

pub use byte_budget::{BudgetBuffer, ByteBudget, HeldBytes};
pub use chosen_id::check_chosen_id;
pub use entity_key::{EntityKey, EntityKeyParts};
pub use error::{Error, ErrorCode};
pub use hex::hex;
pub use http2_frame_budget::Http2FrameBudget;
pub use idempotency_key::IdempotencyKey;
pub use line_limit::LineLimit;
pub use name::{Name, NameError};
pub use position::{Lsn, ShardId, TransactionId, UnixMillis, fingerprint, shard_keys, shard_of_key};
pub use value::{Value, ValueKind};
