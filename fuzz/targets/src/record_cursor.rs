//! Cursors of pages and of changes. A cursor is refused with a reason, or means the place that it was written for.

pub(crate) fn run(bytes: &[u8]) {
    millrace_func_records::check_cursors(bytes);
}
