//! Nothing outside the node, for tests whose handlers do not depend on it.

use millrace_base::{Error, ErrorCode};
use millrace_func::{FetchRequest, Fetcher, Fetching};

pub struct NoFetcher;

impl Fetcher for NoFetcher {
    fn fetch(&self, _: FetchRequest) -> Fetching {
        Box::pin(async { Err(Error::new(ErrorCode::FetchFailed, "there is nothing outside")) })
    }
}
