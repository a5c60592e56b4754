//! The integration tests of this crate: one program, which compiles and links once, with a module for each subject.

mod common;
mod evolution;
mod json;
mod meaning;
mod oracle;
mod order;
mod resolution;
mod schemas;
mod values;
