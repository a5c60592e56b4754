//! Bodies of objects, beside the log: written once, read in any part, and let go.
//!
//! A body is named by its shard and a number that no other ever has. It is durable before anything refers to it. Small
//! ones lie one behind the other in segments, one open segment for each lane of writers; large ones have a file of their
//! own. Every 64 KiB have a checksum, which every read checks. `docs/internals/objects.md` has the byte tables.
//!
//! Promises: a body that [`Bodies::sync`] has given is whole after any crash, until it is freed. What is read is what was
//! written, or an error that names the body. A failed sync stops its lane, and is never tried again. Freeing is not
//! durable: what a crash forgets is found by [`Bodies::owners`], as every body keeps for whom it was written.
//!
//! Must not know what bodies are for. Everything here blocks: the caller has threads for it.

mod bodies;
mod check;
mod compact;
mod error;
mod format;
mod index;
mod lane;
mod numbers;
mod reader;
mod recover;
mod scrub;
mod walk;
mod writer;

pub use bodies::{Bodies, BodyName, BodyOptions, Counts};
pub use check::check_bytes;
pub use error::BlobError;
pub use format::OWNER_BYTES;
pub use reader::BodyReader;
pub use recover::Recovered;
pub use scrub::{Cursor, Owned, Rot};
pub use writer::{BodyWriter, Unsettled, Written};
