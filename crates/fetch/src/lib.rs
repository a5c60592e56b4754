//! HTTP requests to servers outside: [`millrace_func::Fetcher`] over HTTP/1.1 and TLS. To workers it speaks HTTP/2 too.
//!
//! Read in this order: `request` (what is sent, and what is not), `fetcher` (one exchange, from its turn to the last
//! byte), `connect` (name, socket, TLS). Then `pool` (idle connections) and `shares` (connections over HTTP/2).
//! `duplex` and `outgoing` are for exchanges in both directions at once. `frames` ends connections of servers that flood.
//!
//! Promises:
//! - It connects to what [`millrace_func::FetchTarget`] reads in the URL, which is what the app's policy judged. A
//!   redirect is an answer like any other. It takes no proxy from the environment.
//! - Whatever a server sends, or does not send, an exchange ends by its time limit, with a response or an error. It
//!   holds no more than its size limits.
//! - Connections, idle ones included, are bounded over all cores. An exchange that has to wait for a turn waits within
//!   its time limit.
//! - A request is sent at most once. It is sent again only if nothing of it was sent, on a kept connection that the
//!   server had closed. A dropped future closes its connection; over HTTP/2 it resets its stream.
//! - A connection stays on the runtime that opened it, so a busy core delays its own fetches only.
//!
//! Must not know apps, policies, retries or journals. The caller has decided before which app may fetch what, and how
//! often.

mod connect;
mod duplex;
mod fetcher;
mod frames;
mod options;
mod outgoing;
mod pool;
mod request;
mod response;
mod shares;
mod tls;

pub use connect::NO_STREAM_CONNECTION;
pub use duplex::Duplex;
pub use fetcher::{Failure, HttpFetcher};
pub use options::{Options, Roots};
pub use response::NO_ROOM;
