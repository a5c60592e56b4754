//! The harness of the black-box tests. It runs the built binary in a process of its own, on a free port. The data
//! directory goes away with the process. The client is plain HTTP over `std` sockets, so the tests depend on no
//! library of the server.

mod app;
mod clock;
mod command;
pub mod crash;
mod disk;
mod events;
mod foreground;
mod http;
mod load;
pub mod machine;
mod measure;
mod needs;
mod outside;
mod preloaded;
mod server;
pub mod worker;

pub use app::{Entry, TestApp, tar};
pub use clock::MovedClock;
pub use command::{Output, millrace};
pub use disk::WatchedDisk;
pub use events::{Event, EventStream};
pub use foreground::{Foreground, interrupt};
pub use http::{Connection, Reply, assert_problem, basic, until_taken};
pub use load::{Client, Load, Random, Shared, StopOnDrop};
pub use measure::{CpuUse, Latencies, number_from_env};
pub use needs::{has_programs, left_out};
pub use outside::{Answer, Outside, ReceivedRequest};
pub use server::{Server, ServerOptions, binary, free_address, listen, repository, wait_until};
