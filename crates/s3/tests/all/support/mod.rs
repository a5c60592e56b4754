//! What the tests of the front share: a store in memory, a server on a socket, and a client that signs.

mod client;
mod memory;

pub use client::{Client, Reply};
pub use memory::{Memory, People};

use std::net::SocketAddr;
use std::sync::Arc;

use millrace_s3::front::Options;

/// Serves a store in memory on a thread of its own. Gone with the test's process.
pub fn serve(options: Options) -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound");
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let serving = millrace_s3::listener::serve(
            listener,
            Memory::default(),
            People,
            Arc::new(options),
            std::future::pending(),
        );
        tokio::task::LocalSet::new().block_on(&runtime, serving).expect("served");
    });
    address
}
