//! One core without its thread: the queue of requests, admissions, pending replies, what shards say to each other, commit
//! rounds, and the decisions about memory and checkpoints.
//!
//! A core is driven by inputs: requests, messages of other cores, finished commits, the time. Each input is one call of a
//! method of [`Core`]. What the core wants done it asks of its [`Platform`]. `millrace-node` puts threads, channels and files
//! around it; the simulator puts a simulated machine around the same code. `docs/internals/driver.md` follows one round.
//!
//! Promises: the same inputs in the same order ask the platform for the same things. A panic inside a shard's input stops
//! that shard alone: the core catches it and answers whom the shard owed an answer. Must not do I/O, read clocks, start
//! threads, or be async; must not know fronts or files.

mod admissions;
mod codec;
mod cold_reads;
mod core;
mod failover;
mod message;
mod metrics;
mod outputs;
mod password_checks;
mod pending;
mod placement;
mod platform;
mod programs;
mod queue;
mod replicated;
mod requests;
mod round;
mod routes;
mod transfers;
mod typed_request;
mod upkeep;

pub use codec::Frame;
pub use core::{Core, CoreOptions, CoreParts, first_nonce};
pub use message::{CoreAddress, CoreMessage, Destination, Job, ShardMail};
pub use metrics::CoreMetrics;
pub use millrace_shard::question::{self, Ask, Question};
pub use placement::Placement;
pub use platform::{DriverBug, Platform, Waiter};
pub use programs::{CoreVersions, Programs, ShardLog};
pub use queue::{Arrival, READ_AHEAD};
pub use replicated::{ALONE, Hosted, Standing, apply_entry};
pub use requests::{FastRead, Submitted};
pub use transfers::{Carrier, Moved, SnapshotNews, SnapshotPart, TransferJob, Transfers};
pub use typed_request::{Call, Enqueue, Request, ShardQuestion};
pub use upkeep::{FlushPolicy, SHARD_TICK_MS};
