//! The field that holds a record: refused, or what is written again is the same.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| millrace_func_records::check_stored(bytes));
