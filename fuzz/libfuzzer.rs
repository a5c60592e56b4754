//! The binary of every target: libFuzzer around the function of its name.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| millrace_fuzz_targets::run(env!("CARGO_BIN_NAME"), bytes));
