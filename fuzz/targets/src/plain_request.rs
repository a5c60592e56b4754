//! Requests that are read without hyper. The end of a request depends neither on what follows nor on the pieces in
//! which it came.

pub(crate) fn run(bytes: &[u8]) {
    millrace_http::check_plain(bytes);
}
