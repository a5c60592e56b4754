//! Stored outcomes: what decodes means the same after encoding it again.

use millrace_format::Outcome;

pub(crate) fn run(bytes: &[u8]) {
    let Ok(outcome) = Outcome::decode(bytes) else { return };
    assert_eq!(Outcome::decode(&outcome.encode()), Ok(outcome));
}
