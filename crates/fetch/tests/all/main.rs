//! The integration tests of this crate: one program, which compiles and links once, with a module for each subject.

mod answers;
mod connections;
mod duplex;
mod floods;
mod goaway;
mod hostile;
mod http2;
mod support;
mod tls;
