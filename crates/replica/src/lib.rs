//! Replication of one shard's log over several nodes, as a pure state machine: events in, commands out.
//! `docs/internals/replication.md` has the words, the messages, the states and the argument.
//!
//! Promises: one owner at most acts in each epoch; a committed entry is never lost or changed; a reply that may leave shows
//! everything that was acknowledged before. Input of a peer never panics: what contradicts a committed entry comes out as
//! [`Command::Broken`]. Must not do I/O, read clocks, draw randomness, or be async.

mod candidate;
mod codec;
mod event;
mod following;
mod ids;
mod input_context;
mod log_view;
mod message;
mod nomination;
mod owner;
mod peer;
mod replica;
mod replica_set;
mod resync;
mod rounds;
mod settings;
mod shard_log;

pub use event::{Command, Event, Write};
pub use ids::{EntryId, Epoch, NodeId, Promised};
pub use log_view::LogView;
pub use message::{EntryKind, LogEntry, Message};
pub use nomination::Nomination;
pub use owner::Lag;
pub use replica::{Recovered, Replica, RoleName};
pub use replica_set::{Change, ReplicaSet};
pub use settings::{Bug, Settings};
pub use shard_log::{Leaving, Proof, ReadTicket, ShardLog, Single};

#[cfg(test)]
mod proof;
