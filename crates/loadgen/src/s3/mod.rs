//! Load for S3 servers, and the check of every reply: `millrace bench s3`.
//!
//! Each client is a thread with a connection of its own. It signs a request, sends it, compares the reply's bytes with what
//! was written, and sends the next. The client is written for this: no library's retries, checks or buffers are measured.
//!
//! Promises: a reply counts only if its status and every byte of its body are right. Several servers run each cell in turn,
//! in the same run. Memory does not grow with the size of objects. No reply makes it panic. It must not depend on any crate
//! of the server.

mod args;
mod body;
mod client;
mod connection;
mod counts;
mod plan;
mod report;
mod run;
#[cfg(test)]
mod run_tests;
mod xml;

pub use args::{S3Args, run_s3, tell};
pub use counts::Times;
pub use millrace_signing::Credentials;
pub use plan::{Cell, Operation, Settings, Target, size_text};
pub use report::{Report, Row};
pub use run::{Event, run};
