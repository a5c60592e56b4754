//! The integration tests of this crate: one program, which compiles and links once, with a module for each subject.

mod disk_full;
mod model;
mod snapshot;
