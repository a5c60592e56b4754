//! How much a shard holds, and what it has counted since its start.

use crate::failures::WORKFLOW_ENDS;

/// See the module's documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Figures {
    /// Transactions that wait in the middle or for their first entity.
    pub waiting: usize,
    /// Replies that wait for the log.
    pub held_replies: usize,
    /// Entities held by suspended transactions, or queued for.
    pub locked_entities: usize,
    /// Transactions over several shards that are decided or prepared here, and have not ended everywhere.
    pub unfinished: usize,
    /// Workflows that have begun and not ended.
    pub workflows: usize,
    /// Workflows that have yet to begin.
    pub pending_workflows: usize,
    /// Workflows of which something failed too often, and that wait for somebody.
    pub paused_workflows: usize,
    /// Messages that failed and are tried again.
    pub failing_messages: usize,
    /// Messages and compensations that failed too often and wait for somebody.
    pub dead_letters: usize,
    /// How many workflows have ended since the start, by [`WORKFLOW_ENDS`].
    pub ended_workflows: [u64; WORKFLOW_ENDS.len()],
    /// Attempts to run messages, and calls and code of workflows, that failed since the start.
    pub failed_attempts: u64,
    /// How often a transaction had to start again because an older one held what it wanted.
    pub restarts: u64,
}
