//! The integration tests of this crate: one program, which compiles and links once, with a module for each subject.

mod common;
mod crash;
mod decoding;
mod failing;
mod model;
mod rot;
mod threads;
