//! Cursors of pages and of changes: refused with a reason, or the place that they are written for.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| millrace_func_records::check_cursors(bytes));
