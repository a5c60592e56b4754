//! What a shard says of messages that fail: a line for each attempt, but a bounded number of lines.
//!
//! A handler that always fails is tried sixteen times for each of its messages. Whoever reads the
//! log wants to see that and why, and not have it full of that. The same holds for workflows that fail.

use millrace_base::{Error, ErrorCode, LineLimit, UnixMillis};
use millrace_format::{OutcomeResult, WorkflowRecord};

use crate::request::Sequence;
use crate::shard::Shard;
use crate::world::World;

/// Lines in one [`WINDOW_MS`] at most; a node has many shards.
const LINES: u32 = 10;

const WINDOW_MS: u64 = 10_000;

/// Failed attempts, and which of them are told of.
pub(crate) struct Failures {
    count: u64,
    lines: LineLimit,
}

impl Default for Failures {
    fn default() -> Self {
        Self { count: 0, lines: LineLimit::new(LINES, WINDOW_MS) }
    }
}

impl Failures {
    /// Failed attempts since the start.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// Another attempt has failed. If it is to be told of: how many before it were not.
    pub(crate) fn note(&mut self, now: UnixMillis) -> Option<u64> {
        self.count += 1;
        self.lines.take(now.0)
    }
}

/// How workflows end, in the order of [`Shard::ended_workflows`].
pub const WORKFLOW_ENDS: [&str; 4] = ["succeeded", "failed", "diverged", "cancelled"];

/// The workflows that have ended since the start.
#[derive(Default)]
pub(crate) struct Ends {
    counts: [u64; WORKFLOW_ENDS.len()],
    failed: Failures,
    diverged: Failures,
}

impl Shard {
    /// How many workflows have ended since the start, by [`WORKFLOW_ENDS`].
    #[must_use]
    pub fn ended_workflows(&self) -> [u64; WORKFLOW_ENDS.len()] {
        self.ends.counts
    }

    /// Counts a workflow that has ended.
    pub(crate) fn count_end(&mut self, error: Option<&Error>) {
        let index = match error.map(|error| error.code) {
            None => 0,
            Some(ErrorCode::Diverged) => 2,
            Some(ErrorCode::Cancelled) => 3,
            Some(_) => 1,
        };
        self.ends.counts[index] += 1;
    }

    /// A workflow has ended: counts it, and says so if somebody may have to look at it.
    pub(crate) fn tell_of_end(
        &mut self,
        id: Sequence,
        record: &WorkflowRecord,
        result: &OutcomeResult,
        world: &World<'_>,
    ) {
        let error = if let OutcomeResult::Error(error) = result { Some(error) } else { None };
        self.count_end(error);
        let Some(error) = error.filter(|error| error.code != ErrorCode::Cancelled) else {
            return;
        };
        let is_diverged = error.code == ErrorCode::Diverged;
        let lines = if is_diverged { &mut self.ends.diverged } else { &mut self.ends.failed };
        let Some(left_out) = lines.note(world.now) else {
            return;
        };
        let WorkflowRecord { app, service, handler, .. } = record;
        let (invocation, key) = (self.invocation_id(id), String::from_utf8_lossy(&record.key));
        let key = &*key;
        if is_diverged {
            tracing::error!(
                %invocation, app, service, key, handler, %error, left_out,
                "a workflow strayed from its journal and was given up with nothing undone: somebody has to look at it"
            );
        } else {
            tracing::warn!(%invocation, app, service, key, handler, %error, left_out, "a workflow failed");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_are_told_of_and_the_others_counted() {
        let mut failures = Failures::default();
        let begin = UnixMillis(1_000_000);
        let told =
            |failures: &mut Failures, now, number| (0..number).filter_map(|_| failures.note(now)).collect::<Vec<_>>();
        assert_eq!(told(&mut failures, begin, 25), [0; LINES as usize]);
        assert_eq!(told(&mut failures, begin.plus(WINDOW_MS - 1), 5), [0; 0]);
        assert_eq!(told(&mut failures, begin.plus(WINDOW_MS), 2), [20, 0]);
        assert_eq!(told(&mut failures, begin, 1), [0], "a clock that was set back silences nobody");
        assert_eq!(failures.count(), 33);
    }
}
