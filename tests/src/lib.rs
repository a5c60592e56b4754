//! The harness of the black-box tests: the built binary in a process of its own, on a free port,
//! with a data directory that goes away with it, and plain HTTP over `std` sockets, so that the
//! tests depend on none of the server's own libraries.

mod http;
mod server;

pub use http::{Connection, Reply, basic};
pub use server::{Server, ServerOptions, binary, repository, wait_until};
