//! A client of Millrace's public protocols.
//!
//! Promises: it speaks only the published HTTP contract, so it works against any node of the same contract. It repeats a
//! request only if the request cannot take effect twice. It must not depend on any crate of the server: it knows only
//! what the docs say.
//!
//! [`Client`] is the async client. [`pack_directory`] makes the tar that a deployment sends.

mod backup;
mod client;
mod error;
mod pack;
mod s3;
mod tls;
mod transport;
mod users;
mod workflows;

pub use backup::BackupStream;
pub use client::{Call, Client, ClientOptions, FieldFilter, Health};
pub use error::{ClientError, Problem};
pub use millrace_signing::Credentials;
pub use pack::pack_directory;
pub use s3::{S3Bucket, S3Object};
pub use users::NewS3User;
pub use workflows::{
    DeadLetter, DeadLetterPage, EntityKey, Failure, Invocation, InvocationFilter, InvocationPage, JournalStep,
    Schedule, ScheduleFilter, SchedulePage,
};
