//! The HTTP front: HTTP/1.1 and HTTP/2 over TCP or TLS, translated to `millrace_api` operations.
//!
//! One [`serve`] runs on each core, on a `current_thread` runtime inside a `LocalSet`; all of them
//! share one [`Front`]. Usual HTTP/1.1 requests are read and answered by `plain`, all others through hyper; `handle` does
//! not know which. A request never leaves its core before it reaches the [`Backend`].
//!
//! Promises:
//! - One table ([`OPERATIONS`]) drives the router, `/openapi.json` and the guide's list.
//! - Whatever a stranger sends, or refuses to read, is bounded in bytes and in time.
//! - Every error is an RFC 9457 problem document with a stable code. The only exceptions are what
//!   cannot be parsed as HTTP at all (a bare 400, 414 or 431) and connections past the limit.
//! - `accept` failures never end the server, and a drain answers every request that has arrived whole.
//!
//! Must not know shards, storage, functions or config files: it parses, authenticates, translates.

pub mod archive;
mod auth;
mod backend;
mod body;
mod buckets;
mod cluster_keys;
mod connection;
mod cors;
mod error_pages;
mod events;
mod framing;
mod front;
mod handle;

mod io;
mod listen;
mod listing;
mod local;
mod manage;
mod metrics;
mod nodes;
pub mod openapi;
mod operations;
mod options;
mod origin;
pub mod path;
mod pending_reply;
mod plain;
mod problem;
mod records;
mod reply;
pub mod router;
mod serve;
mod starting;
mod status;
mod test_clock;
mod tls;
mod users;

pub use backend::Backend;
pub use error_pages::error_page;
pub use front::{Front, check_listener};
pub use listen::{bind, bind_all};
pub use operations::{Access, Kind, OPERATIONS, Operation, Parameter, QueryParameter, Segment};
pub use options::{Limits, Options, StartError, Timeouts, TlsFiles};
#[doc(hidden)]
pub use plain::head::check as check_plain;
pub use problem::problem_json;
pub use serve::serve;
pub use starting::{Entrance, Starting, starting_reply};
pub use status::status_of;
