//! What the server's log has of calls that fail because of the function, or of the server.
//!
//! The caller is told, but it is the operator who can mend it. A line says whose call it was and why; a call that a
//! function refused (an `Abort`) and a request that was wrong are none. Anybody who can make a function fail can do
//! so often: each handler has at most one line a second on each core, with the number of those left out.

use std::sync::{Mutex, PoisonError};

use millrace_base::{Error, LineLimit};

use crate::metrics::HandlerName;

/// Between two lines of one handler.
const PAUSE_NS: u64 = 1_000_000_000;

/// One handler's on one core. Only failures take the lock, and only that core's.
#[derive(Debug)]
pub(crate) struct FailureLog {
    name: HandlerName,
    lines: Mutex<LineLimit>,
}

impl FailureLog {
    pub(crate) fn new(name: HandlerName) -> Self {
        Self { name, lines: Mutex::new(LineLimit::new(1, PAUSE_NS)) }
    }

    /// A call was answered with `error`, at a time of the node's clock.
    #[cold]
    pub(crate) fn note(&self, error: &Error, now_ns: u64) {
        if !is_failure(error) {
            return;
        }
        let taken = self.lines.lock().unwrap_or_else(PoisonError::into_inner).take(now_ns);
        if let Some(left_out) = taken {
            let [app, service, handler] = &self.name;
            tracing::warn!(app, service, handler, %error, left_out, "a call failed");
        }
    }
}

/// Whether the one who runs the server should look into it. What may succeed when it is tried again is counted
/// elsewhere, and is no fault of a function.
fn is_failure(error: &Error) -> bool {
    error.code.is_failure() && !error.code.is_retryable()
}

#[cfg(test)]
mod tests {
    use millrace_base::ErrorCode;

    use super::*;

    #[test]
    fn refusals_and_wrong_requests_are_no_failures() {
        let is = |code| is_failure(&Error::new(code, "x"));
        assert!(is(ErrorCode::FunctionFailed) && is(ErrorCode::CpuLimit) && is(ErrorCode::Internal));
        assert!(!is(ErrorCode::Aborted) && !is(ErrorCode::InvalidInput) && !is(ErrorCode::Overloaded));
    }
}
