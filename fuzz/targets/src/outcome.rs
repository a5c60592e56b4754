//! Stored outcomes: what decodes means the same after encoding it again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use millrace_format::Outcome;

fuzz_target!(|bytes: &[u8]| {
    let Ok(outcome) = Outcome::decode(bytes) else { return };
    assert_eq!(Outcome::decode(&outcome.encode()), Ok(outcome));
});
