//! What a core counts.

use millrace_base::ErrorCode;
use millrace_base::metric::{Counter, Gauge, Histogram};
use millrace_log::AppendReport;
use millrace_shard::WORKFLOW_ENDS;

/// One core's numbers. Written by that core only.
#[derive(Debug, Default)]
#[allow(missing_docs, reason = "the table of metrics describes each")]
pub struct CoreMetrics {
    pub entries: Counter,
    pub batches: Counter,
    pub log_bytes: Counter,
    pub fsync_ns: Histogram,
    pub group_size: Histogram,
    pub shed: Counter,
    pub passed_on: Counter,
    pub detours: Counter,
    pub shards_opened: Counter,
    pub shards_received: Counter,
    pub shards_given_up: Counter,
    pub catch_ups: Counter,
    pub checkpointed_bytes: Counter,
    pub cpu_kills: Counter,
    pub memory_kills: Counter,
    pub stack_kills: Counter,
    pub other_kills: Counter,
    pub resident_bytes: Gauge,
    pub resident_entities: Gauge,
    pub dirty_bytes: Gauge,
    pub queued_requests: Gauge,
    pub open_requests: Gauge,
    pub waiting_transactions: Gauge,
    pub locked_entities: Gauge,
    pub unfinished_commits: Gauge,
    pub transaction_restarts: Counter,
    pub workflows: Gauge,
    pub pending_workflows: Gauge,
    pub paused_workflows: Gauge,
    pub failing_messages: Gauge,
    pub dead_letters: Gauge,
    pub stopped_shards: Gauge,
    /// Of the shard that is furthest ahead of the machine's clock.
    pub clock_lead_ms: Gauge,
    pub failed_attempts: Counter,
    /// By [`WORKFLOW_ENDS`].
    pub workflows_ended: [Counter; WORKFLOW_ENDS.len()],
}

impl CoreMetrics {
    pub(crate) fn committed(&self, report: &AppendReport) {
        self.batches.increment();
        self.log_bytes.add(report.bytes);
        self.group_size.record(u64::from(report.entries));
        self.fsync_ns.record(report.sync_us * 1000);
    }

    /// Counts functions that were stopped by a limit.
    pub(crate) fn count_error(&self, code: ErrorCode) {
        match code {
            ErrorCode::CpuLimit => self.cpu_kills.increment(),
            ErrorCode::MemoryLimit => self.memory_kills.increment(),
            ErrorCode::StackLimit => self.stack_kills.increment(),
            ErrorCode::DepthLimit
            | ErrorCode::OperationLimit
            | ErrorCode::SizeLimit
            | ErrorCode::Stalled
            | ErrorCode::WaitLimit => self.other_kills.increment(),
            _ => {}
        }
    }
}
