//! The size of a request's future.

use super::*;
use crate::handle::at_once::AtOnce;

fn output_size<'a, F: Future>(_: impl Fn(&'a Session<AtOnce>, &'a mut Request<RequestBody>) -> F) -> usize {
    size_of::<F>()
}

/// hyper moves the future of every request into place, so its size is paid for each time; and whoever waits keeps it.
#[test]
fn a_requests_future_is_small() {
    let (whole, beginning) = (output_size(handle::<AtOnce>), output_size(run::<AtOnce>));
    assert!(whole <= 640 && beginning <= 1024, "{whole} and {beginning} bytes");
}
