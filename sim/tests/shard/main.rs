//! The shard's promises, one file each, on a few shards without a disk. Each test says what would
//! be broken if it failed.

mod across;
mod alone;
mod at_once;
mod atomic;
mod chosen_ids;
mod contained;
mod cuts;
mod dead_letters;
mod deadlock;
mod durable_before_visible;
mod exactly_once;
mod in_doubt;
mod keys;
mod layouts;
mod messages;
mod one_log;
mod participation_ids;
mod read_only;
mod records;
mod restarts;
mod routes;
mod schedules;
mod serializable;
mod signals;
mod stopped;
mod take_back;
mod transaction_states;
mod transactions;
mod waiting;
mod workflow_crashes;
mod workflow_errors;
mod workflows;

pub use millrace_base::{ErrorCode, ShardId};
pub use millrace_format::{ResultState, StepKind};
pub use millrace_shard::InvocationId;
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

/// A start of the workflow.
pub fn flow(service: &str, key: &str, script: Script) -> Callee {
    Callee::flow(service, key, script)
}
