//! What the server's log has of calls that fail because of the function, or of the server.
//!
//! The caller is told, but it is the operator who can mend it. A line says whose call it was and why; a call that a
//! function refused (an `Abort`) and a request that was wrong are none. Anybody who can make a function fail can do
//! so often: each handler has at most one line a second on each core, with the number of those left out.

use std::sync::atomic::{AtomicU64, Ordering};

use millrace_base::Error;

use crate::metrics::HandlerName;

/// Between two lines of one handler.
const PAUSE_NS: u64 = 1_000_000_000;

/// One handler's on one core, which alone writes it.
#[derive(Debug, Default)]
pub(crate) struct FailureLog {
    name: HandlerName,
    /// When the next line may come, in nanoseconds of the node's clock.
    next_ns: AtomicU64,
    /// Failures since the last line.
    untold: AtomicU64,
}

impl FailureLog {
    pub(crate) fn new(name: HandlerName) -> Self {
        Self { name, ..Self::default() }
    }

    /// A call was answered with `error`.
    #[cold]
    pub(crate) fn note(&self, error: &Error, now_ns: u64) {
        if !is_failure(error) {
            return;
        }
        if let Some(left_out) = self.take_turn(now_ns) {
            let [app, service, handler] = &self.name;
            tracing::warn!(app, service, handler, %error, left_out, "a call failed");
        }
    }

    /// How many were left out since the last line, if it is time for the next.
    fn take_turn(&self, now_ns: u64) -> Option<u64> {
        if now_ns < self.next_ns.load(Ordering::Relaxed) {
            self.untold.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        self.next_ns.store(now_ns + PAUSE_NS, Ordering::Relaxed);
        Some(self.untold.swap(0, Ordering::Relaxed))
    }
}

/// Whether the one who runs the server should look into it. What may succeed when it is tried again is counted
/// elsewhere, and is no fault of a function.
fn is_failure(error: &Error) -> bool {
    error.code.status() >= 500 && !error.code.is_retryable()
}

#[cfg(test)]
mod tests {
    use millrace_base::ErrorCode;

    use super::*;

    #[test]
    fn a_line_a_second_and_how_many_it_stands_for() {
        let log = FailureLog::default();
        assert_eq!(log.take_turn(5), Some(0));
        for later in 1..=3 {
            assert_eq!(log.take_turn(5 + later * PAUSE_NS / 4), None);
        }
        assert_eq!(log.take_turn(5 + PAUSE_NS), Some(3));
        assert_eq!(log.take_turn(6 + PAUSE_NS), None);
        assert_eq!(log.take_turn(6 + 9 * PAUSE_NS), Some(1));
    }

    #[test]
    fn refusals_and_wrong_requests_are_no_failures() {
        let is = |code| is_failure(&Error::new(code, "x"));
        assert!(is(ErrorCode::FunctionFailed) && is(ErrorCode::CpuLimit) && is(ErrorCode::Internal));
        assert!(!is(ErrorCode::Aborted) && !is(ErrorCode::InvalidInput) && !is(ErrorCode::Overloaded));
    }
}
