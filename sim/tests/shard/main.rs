//! The shard's promises, one file each, on a few shards without a disk. Each test says what would
//! be broken if it failed.

mod atomic;
mod contained;
mod durable_before_visible;
mod exactly_once;
mod messages;
mod read_only;
mod routes;
mod serializable;
mod stopped;

pub use millrace_base::{ErrorCode, ShardId};
pub use millrace_sim::rig::Rig;
pub use millrace_sim::script::{Callee, Script};
pub use serde_json::{Value as Json, json};

/// An empty script.
pub fn s() -> Script {
    Script::new()
}

/// A call of the handler that may write.
pub fn run(service: &str, key: &str, script: Script) -> Callee {
    Callee::run(service, key, script)
}

/// A call of the query.
pub fn read(service: &str, key: &str, script: Script) -> Callee {
    Callee::read(service, key, script)
}
