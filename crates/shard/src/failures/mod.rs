//! What fails of messages and workflows: counts, log lines, and rows that say when it is tried again. The number of lines
//! is bounded.
//!
//! A handler that always fails is tried sixteen times for each of its messages. Whoever reads the
//! log wants to see that it fails and why, without a log full of it. The same holds for workflows.

mod rows;

use millrace_base::{Error, ErrorCode, LineLimit, UnixMillis};
use millrace_format::{FailureRecord, MessageRecord, ResultState, WorkflowRecord};

use crate::request::InvocationId;
pub(crate) use rows::{FAILURES, FailureRows};

/// Lines in one [`WINDOW_MS`] at most; a node has many shards.
const LINES: u32 = 10;

const WINDOW_MS: u64 = 10_000;

/// Events of one kind, and which of them get a line.
struct Lines {
    count: u64,
    lines: LineLimit,
}

impl Default for Lines {
    fn default() -> Self {
        Self { count: 0, lines: LineLimit::new(LINES, WINDOW_MS) }
    }
}

impl Lines {
    /// Events since the start.
    fn count(&self) -> u64 {
        self.count
    }

    /// Another event. If it gets a line: how many before it got none.
    fn note(&mut self, now: UnixMillis) -> Option<u64> {
        self.count += 1;
        self.lines.take(now.0)
    }
}

/// How workflows end, in the order of [`Figures::ended_workflows`](crate::Figures::ended_workflows).
pub const WORKFLOW_ENDS: [&str; 4] = ["succeeded", "failed", "diverged", "cancelled"];

/// What has failed and ended since the start.
#[derive(Default)]
pub(crate) struct Failures {
    attempts: Lines,
    ended: [u64; WORKFLOW_ENDS.len()],
    failed: Lines,
    diverged: Lines,
    paused: Lines,
}

impl Failures {
    /// Attempts to run messages, and calls and code of workflows, that failed.
    pub(crate) fn attempts(&self) -> u64 {
        self.attempts.count()
    }

    /// How many workflows have ended, by [`WORKFLOW_ENDS`].
    pub(crate) fn ended_workflows(&self) -> [u64; WORKFLOW_ENDS.len()] {
        self.ended
    }

    /// An attempt has failed: a line, unless there were many of late.
    pub(crate) fn attempt_failed(
        &mut self,
        invocation: InvocationId,
        message: &MessageRecord,
        error: &Error,
        now: UnixMillis,
    ) {
        if let Some(left_out) = self.attempts.note(now) {
            let MessageRecord { app, service, handler, attempts, .. } = message;
            let key = String::from_utf8_lossy(&message.key);
            let key = &*key;
            tracing::warn!(
                %invocation, app, service, key, handler, attempts, %error, left_out,
                "an attempt to run a message failed"
            );
        }
    }

    /// Something of a workflow has failed: a line if it waits for somebody, or if there were few of late.
    pub(crate) fn work_failed(&mut self, invocation: InvocationId, record: &WorkflowRecord, failure: &FailureRecord) {
        let is_paused = failure.next_try.is_none();
        let left_out = self.attempts.note(failure.failed);
        let left_out = if is_paused { self.paused.note(failure.failed) } else { left_out };
        let Some(left_out) = left_out else {
            return; // There were many lines of late.
        };
        let WorkflowRecord { app, service, handler, .. } = record;
        let key = String::from_utf8_lossy(&record.key);
        let key = &*key;
        let FailureRecord { operation, attempts, name, error, .. } = failure;
        let kind = failure.kind.map_or("code", |kind| kind.as_str());
        if is_paused {
            tracing::error!(
                %invocation, app, service, key, handler, operation, kind, name, attempts, %error, left_out,
                "a workflow is paused: what failed is tried again when somebody resumes it"
            );
        } else {
            tracing::warn!(
                %invocation, app, service, key, handler, operation, kind, name, attempts, %error, left_out,
                "an attempt of a workflow failed"
            );
        }
    }

    /// Counts a workflow that has ended.
    pub(crate) fn count_end(&mut self, error: Option<&Error>) {
        let index = match error.map(|error| error.code) {
            None => 0,
            Some(ErrorCode::Diverged) => 2,
            Some(ErrorCode::Cancelled) => 3,
            Some(_) => 1,
        };
        self.ended[index] += 1;
    }

    /// A workflow has ended: counts it, and writes a line if somebody may have to look at it.
    pub(crate) fn workflow_ended(
        &mut self,
        invocation: InvocationId,
        record: &WorkflowRecord,
        result: &ResultState,
        now: UnixMillis,
    ) {
        let error = if let ResultState::Error(error) = result { Some(error) } else { None };
        self.count_end(error);
        let Some(error) = error.filter(|error| error.code != ErrorCode::Cancelled) else {
            return; // It ended as somebody wanted.
        };
        let is_diverged = error.code == ErrorCode::Diverged;
        let lines = if is_diverged { &mut self.diverged } else { &mut self.failed };
        let Some(left_out) = lines.note(now) else {
            return; // There were many lines of late.
        };
        let WorkflowRecord { app, service, handler, .. } = record;
        let key = String::from_utf8_lossy(&record.key);
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
        let mut failures = Lines::default();
        let begin = UnixMillis(1_000_000);
        let told =
            |failures: &mut Lines, now, number| (0..number).filter_map(|_| failures.note(now)).collect::<Vec<_>>();
        assert_eq!(told(&mut failures, begin, 25), [0; LINES as usize]);
        assert_eq!(told(&mut failures, begin.plus(WINDOW_MS - 1), 5), [0; 0]);
        assert_eq!(told(&mut failures, begin.plus(WINDOW_MS), 2), [20, 0]);
        assert_eq!(told(&mut failures, begin, 1), [0], "a clock that was set back silences nobody");
        assert_eq!(failures.count(), 33);
    }
}
