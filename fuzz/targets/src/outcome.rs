//! Stored invocation results. A decoded result means the same after it is encoded again.

use millrace_format::Outcome;

pub(crate) fn run(bytes: &[u8]) {
    let Ok(outcome) = Outcome::decode(bytes) else { return };
    assert_eq!(Outcome::decode(&outcome.encode()), Ok(outcome));
}
