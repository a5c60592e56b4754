//! When a shard may write that was opened anew.
//!
//! Where shards fail alone, an earlier opening of this shard may have promised that what it held locked stays as it is for
//! `hold_ms`. Nobody knows any more what that was. So for that long after it was opened the shard lets nobody lock an
//! entity alone. It behaves as if a transaction that reads had locked each entity. A transaction that wants an entity
//! alone queues for it. None of that is needed if the earlier opening held nothing when it ended, and said nothing after that.

use super::{Execution, ExecutionContext};
use crate::context::Rows;

/// See the module's documentation.
pub(super) enum Gate {
    Open,
    /// The shard was opened a moment ago, and has not looked at the clock yet.
    Shut {
        hold_ms: u64,
    },
    /// Shut until the monotonic clock shows this.
    ShutUntil {
        until_ms: u64,
    },
}

impl Gate {
    /// The gate of a shard that is opened. One without entries has never promised anything.
    pub(super) fn new(rows: &Rows) -> Self {
        match rows.options().held_ms() {
            Some(hold_ms) if rows.lsn().0 > 0 => Gate::Shut { hold_ms },
            _ => Gate::Open,
        }
    }

    pub(super) fn is_open(&self) -> bool {
        matches!(self, Gate::Open)
    }

    /// When it is to be looked at next, by the monotonic clock.
    pub(super) fn next_due_ms(&self) -> Option<u64> {
        match self {
            Gate::Open => None,
            Gate::Shut { .. } => Some(0),
            Gate::ShutUntil { until_ms } => Some(*until_ms),
        }
    }
}

impl Execution {
    /// Lets those write who wait for the time to be over.
    pub(super) fn look_at_gate(&mut self, context: &ExecutionContext<'_, '_>) {
        let now_ms = context.world.monotonic_ms;
        let until_ms = match self.gate {
            Gate::Open => return,
            Gate::Shut { hold_ms } => now_ms.saturating_add(hold_ms),
            Gate::ShutUntil { until_ms } => until_ms,
        };
        if now_ms < until_ms {
            self.gate = Gate::ShutUntil { until_ms };
        } else {
            self.open_gate();
        }
    }

    /// Lets everybody write.
    pub(crate) fn open_gate(&mut self) {
        self.gate = Gate::Open;
        self.freed.extend(self.locks.open());
    }

    /// Whether nothing is locked, so that nobody outside counts on what this shard holds.
    pub(crate) fn holds_nothing(&self) -> bool {
        self.locks.is_empty()
    }
}
