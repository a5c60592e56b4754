//! The engine whose handlers run elsewhere: in workers, which are processes of users.
//!
//! [`RemoteEngine`] runs the apps that have a file `_worker.json`. It makes frames of what a handler needs, and calls of
//! [`millrace_func::Host`] of what the worker answers. `docs/internals/worker-protocol.md` has the frames.
//!
//! Promises: an attempt takes effect as a whole or not at all: the frames of a turn are read before the first one counts.
//! Whatever a worker answers, no more comes of it than an error in its own app. What a voided attempt says changes nothing.
//!
//! [`Line`] is the server's end of a connection that a worker has made. Must not do I/O: others carry frames, and tell the
//! time.

mod act;
mod attempt;
mod engine;
mod fetch;
mod line;
mod objects;
mod operations;
mod program;
mod reply;
mod retry;
mod start;

pub use engine::RemoteEngine;
pub use line::{ASKED_EVERY_MS, Line, NO_ROOM, SILENCE_MS, Said};
