//! The integration tests of this crate: one program, which compiles and links once, with a module for each subject.

mod broken_shard;
mod cluster;
mod cut_link;
mod metrics;
mod outside;
mod records;
