//! The integration tests of this crate: one program, which compiles and links once, with a module for each subject.

mod committer;
mod common;
mod damage;
mod golden;
mod hold;
mod manifest;
mod replicas;
mod writing;
