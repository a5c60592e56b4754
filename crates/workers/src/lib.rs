//! Connections to workers: [`millrace_func::Workers`] over HTTP, and over connections that workers have made.
//!
//! Read in this order: `workers` (whose workers are where), `gate` (who may begin), `request` (what is sent), `signature`;
//! `line` for workers that dial in, `stream` for attempts on streams of their own.
//!
//! Promises:
//! - An exchange ends by its time limit, with a worker's turn or an error, and holds no more than the limits allow.
//! - A turn is handed over only if it came whole, for the attempt that asked for it.
//! - Who listens where a worker should be gets nothing that another worker would take: each request is signed for one
//!   attempt and a minute.
//!
//! Must not read what is in a turn, beyond where it ends. Must not know shards or transactions.

mod deployment;
mod gate;
mod line;
mod probe;
mod request;
mod signature;
mod stream;
mod workers;

pub use signature::{Signed, Signer, SigningKeys};
pub use workers::HttpWorkers;
