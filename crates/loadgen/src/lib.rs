//! The load generator behind `millrace bench`. It sends HTTP/1.1 from few threads over many connections, and checks every
//! reply. For comparisons it also speaks RESP and MongoDB's protocol.
//!
//! It shares its machine with the server it measures, so its own cost for each request bounds what it can measure. A
//! thread has one epoll, and a request takes one write and one read. Requests are built before the run, and only their
//! changing parts are filled in. Replies are parsed in place.
//!
//! Promises: every reply is checked against the expectation. In an open loop, latency counts from the time at which a
//! request was due. So a slow server cannot hide requests that it kept waiting (no coordinated omission). No reply makes
//! it panic. It must not depend on any crate of the server.
//!
//! | module | holds |
//! |---|---|
//! | `plan` | the run to do |
//! | `template`, `request` | the requests |
//! | `engine` | the loop of one thread |
//! | `response`, `resp`, `mongo` | the replies |
//! | `run` | all threads and the clock |
//! | `report`, `plot` | the results |
//! | `s3` | the same for S3 servers, with a client of its own |

mod args;
mod bson;
mod codec;
mod connection;
mod engine;
mod expectation;
mod measure;
pub mod mongo;
mod plan;
pub mod plot;
pub mod process;
mod random;
mod report;
mod request;
mod resp;
mod response;
mod run;
pub mod s3;
mod template;
mod zipf;

pub use args::{HttpArgs, LoadArgs, run_http, run_mongo, run_resp};
pub use expectation::Expectation;
pub use plan::{BenchError, Plan, resolve};
pub use random::Random;
pub use report::{ErrorCounts, LatencySummary, Report, SecondRow, ServerUse};
pub use request::{HttpRequest, RequestTemplate};
pub use run::{Progress, run, run_together};
pub use template::{Compiler, Scope, Template, TemplateError};
pub use zipf::Zipf;

/// For fuzzing only: feeds `bytes` to the HTTP reply parser in pieces of `piece` bytes.
/// Returns the number of replies it found before it stopped.
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
