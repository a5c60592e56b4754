//! What the operator hears of peers and strangers. A stranger cannot fill the log: each kind of line has a limit.

use std::fmt::Display;
use std::sync::Mutex;
use std::time::Instant;

use millrace_base::LineLimit;

use crate::links::lock;

const WINDOW_MS: u64 = 1_000;

/// Lines of one kind in a second.
const LINES: u32 = 5;

pub(crate) struct Log {
    began: Instant,
    refused: Mutex<LineLimit>,
    links: Mutex<LineLimit>,
}

impl Default for Log {
    fn default() -> Self {
        let limit = || Mutex::new(LineLimit::new(LINES, WINDOW_MS));
        Self { began: Instant::now(), refused: limit(), links: limit() }
    }
}

impl Log {
    fn take(&self, limit: &Mutex<LineLimit>) -> Option<u64> {
        let now_ms = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        lock(limit).take(now_ms)
    }

    /// Somebody connected and was refused.
    pub(crate) fn refused(&self, who: &dyn Display, why: &dyn Display) {
        if let Some(unsaid) = self.take(&self.refused) {
            tracing::warn!(from = %who, reason = %why, unsaid, "a connection to the peers' port is refused");
        }
    }

    /// A link ended, or could not begin.
    pub(crate) fn down(&self, node: millrace_replica::NodeId, why: &dyn Display) {
        if let Some(unsaid) = self.take(&self.links) {
            tracing::warn!(%node, reason = %why, unsaid, "no link to a node");
        }
    }
}
