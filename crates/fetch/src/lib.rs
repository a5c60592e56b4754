//! HTTP requests of functions to servers outside: [`millrace_func::Fetcher`] over HTTP/1.1 and TLS.
//!
//! Read in this order: `request` (what is sent, and what is not), `fetcher` (one exchange, from
//! waiting for a turn to the last byte), `connect` (name, socket, TLS), `pool` (idle connections).
//!
//! Promises:
//! - It connects to what [`millrace_func::FetchTarget`] reads in the URL, which is what the app's policy
//!   judged. A redirect is an answer like any other; no proxy is taken from the environment.
//! - Whatever a server sends, or does not send, an exchange ends by its time limit, holds no more
//!   than its size limits, and ends in a response or an error.
//! - Connections, idle ones included, are bounded over all cores; who has to wait for a turn waits
//!   within the time limit.
//! - A request is sent at most once: again only when nothing of it was sent, on a kept
//!   connection that the server had closed. A dropped future closes its connection.
//! - A connection stays on the runtime that opened it, so a busy core delays its own fetches only.
//!
//! Must not know apps, policies, retries or journals: who may fetch what, and how often, is
//! decided before.

mod connect;
mod fetcher;
mod options;
mod pool;
mod request;
mod response;
mod tls;

pub use fetcher::HttpFetcher;
pub use options::{Options, Roots};
