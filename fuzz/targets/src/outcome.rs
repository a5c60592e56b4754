//! Stored invocation results. A decoded result means the same after it is encoded again.

use millrace_format::InvocationResult;

pub(crate) fn run(bytes: &[u8]) {
    let Ok(outcome) = InvocationResult::decode(bytes) else { return };
    assert_eq!(InvocationResult::decode(&outcome.encode()), Ok(outcome));
}
