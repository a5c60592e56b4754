//! Cursors of pages and of changes: refused with a reason, or the place that they are written for.

pub(crate) fn run(bytes: &[u8]) {
    millrace_func_records::check_cursors(bytes);
}
