//! The load generator: HTTP/1.1 (and, for comparisons, RESP and MongoDB's protocol) from few threads over many
//! connections, checking every reply.
//!
//! It shares its machine with the server it measures, so its own cost per request decides what
//! can be measured at all: one epoll per thread, one write and one read per request, requests
//! built before the run with only their changing parts filled in, replies parsed in place.
//!
//! Promises: every reply is checked against the expectation; in open loop latency counts from
//! the moment a request was meant to be sent, so a slow server cannot hide the requests it kept
//! waiting (no coordinated omission); nothing a server answers makes it panic.
//!
//! Reading order: [`Plan`] (what to run), `template` and `request` (what to send), `engine`
//! (the loop of one thread), `response`, `resp` and `mongo` (what comes back), `run` (all threads and the
//! clock), `report` (what is told).

mod args;
mod bson;
mod codec;
mod connection;
mod engine;
mod expectation;
mod measure;
pub mod mongo;
mod plan;
pub mod process;
mod random;
mod report;
mod request;
mod resp;
mod response;
mod run;
mod template;
mod zipf;

pub use args::{HttpArgs, LoadArgs, run_http, run_mongo, run_resp};
pub use expectation::Expectation;
pub use plan::{BenchError, Plan, resolve};
pub use random::Random;
pub use report::{ErrorCounts, LatencySummary, Report, SecondRow, ServerUse};
pub use request::{HttpRequest, RequestTemplate};
pub use run::{Progress, run};
pub use template::{Compiler, Scope, Template, TemplateError};
pub use zipf::Zipf;

/// For fuzzing only: feeds `bytes` to the HTTP reply parser in pieces of `piece` bytes.
/// Answers how many replies it found before it stopped.
#[doc(hidden)]
#[must_use]
pub fn fuzz_replies(bytes: &[u8], piece: usize) -> usize {
    let mut parser = response::ResponseParser::new(false, true);
    let mut cache = response::HeadCache::default();
    let mut found = 0;
    for part in bytes.chunks(piece.max(1)) {
        let mut rest = part;
        while !rest.is_empty() {
            match parser.feed(rest, &mut cache) {
                Ok((used, reply)) => {
                    found += usize::from(reply.is_some());
                    rest = &rest[used..];
                }
                Err(_) => return found,
            }
        }
    }
    found
}
