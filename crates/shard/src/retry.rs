//! What an error means: whether whoever asked is told of it, or it is tried again, and when.

use millrace_base::ErrorCode;
use millrace_func::RetryPolicy;

/// What becomes of something that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It is an answer: whoever asked gets it. Another attempt would give the same.
    Terminal,
    /// It says nothing of what was tried, only that it cannot be done now. It is tried until it can.
    Passing,
    /// It is tried again, as a policy says.
    Retried,
}

/// What becomes of a call that failed: refusals are terminal, failures are not.
pub(crate) fn fate_of_call(code: ErrorCode) -> Fate {
    use ErrorCode::{UnknownHandler, UnknownService, WaitLimit};
    match code {
        WaitLimit => Fate::Passing,
        code if code.is_retryable() => Fate::Passing,
        // A deployment may bring them.
        UnknownService | UnknownHandler => Fate::Retried,
        code if code.is_failure() => Fate::Retried,
        _ => Fate::Terminal,
    }
}

/// What becomes of code of a workflow, or of a step of it, that ended with an error.
pub(crate) fn fate_of_code(code: ErrorCode) -> Fate {
    use ErrorCode::{Diverged, FetchRefused, OperationLimit};
    match code {
        // Its settings are as old as its code.
        FetchRefused => Fate::Terminal,
        // The journal only grows.
        OperationLimit => Fate::Terminal,
        Diverged => Fate::Terminal,
        code if code.is_lost_attempt() => Fate::Passing,
        code => match fate_of_call(code) {
            Fate::Passing => Fate::Retried,
            fate => fate,
        },
    }
}

/// The pause after the `attempts`-th failure of what is tried without end.
pub(crate) fn retry_wait_ms(attempts: u32) -> u64 {
    RetryPolicy::default().pause_ms(attempts)
}

/// The longest pause of what no worker is there for: to ask again costs no request, and it is to go on when one is back.
const LONGEST_AWAY_MS: u64 = 2_000;

/// The pause after the `attempts`-th time in a row that something could not be done now.
pub(crate) fn passing_wait_ms(code: ErrorCode, attempts: u32) -> u64 {
    let pause_ms = retry_wait_ms(attempts);
    if code == ErrorCode::WorkerUnavailable { pause_ms.min(LONGEST_AWAY_MS) } else { pause_ms }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_answers_and_failures_are_tried_again() {
        use ErrorCode::*;
        for code in [Aborted, Forbidden, InvalidInput, UnknownRecord, PreconditionFailed, WorkflowEnded, Cancelled] {
            assert_eq!((fate_of_call(code), fate_of_code(code)), (Fate::Terminal, Fate::Terminal), "{code:?}");
        }
        for code in [FunctionFailed, CpuLimit, MemoryLimit, StackLimit, Stalled, SizeLimit, UnknownHandler, Internal] {
            assert_eq!((fate_of_call(code), fate_of_code(code)), (Fate::Retried, Fate::Retried), "{code:?}");
        }
        for code in [Overloaded, ReadOnly, ShuttingDown, ShardStopped, WaitLimit, WorkerUnavailable] {
            assert_eq!(fate_of_call(code), Fate::Passing, "{code:?}");
        }

        assert_eq!(fate_of_code(WorkerFailed), Fate::Passing);
    }

    #[test]
    fn a_worker_that_is_back_is_found_within_two_seconds() {
        for attempts in [1, 2, 5, 20, 1_000] {
            assert!(passing_wait_ms(ErrorCode::WorkerUnavailable, attempts) <= 2_000);
            assert_eq!(passing_wait_ms(ErrorCode::Overloaded, attempts), retry_wait_ms(attempts));
        }
        assert!(retry_wait_ms(20) > 2_000);
    }
}
