//! Requests read without hyper: where one ends does not depend on what comes behind, or in which pieces it came.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| millrace_http::check_plain(bytes));
