//! The field that holds a record: refused, or what is written again is the same.

pub(crate) fn run(bytes: &[u8]) {
    millrace_func_records::check_stored(bytes);
}
