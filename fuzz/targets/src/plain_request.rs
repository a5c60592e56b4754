//! Requests read without hyper: where one ends does not depend on what comes behind, or in which pieces it came.

pub(crate) fn run(bytes: &[u8]) {
    millrace_http::check_plain(bytes);
}
