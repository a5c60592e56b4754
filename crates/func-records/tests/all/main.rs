//! The integration tests of this crate: one program, which compiles and links once, with a module for each subject.

mod bounds;
mod common;
mod deleted;
mod effects;
mod find;
mod indexes;
mod migration;
mod model;
mod operations;
mod patch;
