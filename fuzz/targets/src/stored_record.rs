//! The field that holds a record. It is refused, or it is the same when written again.

pub(crate) fn run(bytes: &[u8]) {
    millrace_func_records::check_stored(bytes);
}
