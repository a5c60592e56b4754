//! The integration tests of this crate: one program, which compiles and links once, with a module for each subject.

mod common;
mod planted;
mod random;
mod recorder;
mod speed;
