//! A client of Millrace's public protocols.
//!
//! Promises: speaks only the published HTTP contract, so that it works against any node of the
//! same contract; sends a request again only when that cannot make it take effect twice. Must
//! not depend on any crate of the server: what it knows of the server is what a stranger can
//! read in the docs.
//!
//! [`Client`] is the async client. [`pack_directory`] makes the tar that a deployment sends.

mod client;
mod error;
mod pack;
mod tls;
mod transport;
mod workflows;

pub use client::{Call, Client, ClientOptions, Health};
pub use error::{ClientError, Problem};
pub use pack::pack_directory;
pub use workflows::{
    DeadLetter, DeadLetterPage, EntityKey, Invocation, InvocationFilter, InvocationPage, JournalStep, Schedule,
    ScheduleFilter, SchedulePage,
};
