//! The integration tests of this crate: one program, which compiles and links once, with a module for each subject.

mod awaits;
mod built_ins;
mod common;
mod containment;
mod fetch;
mod json;
mod limits;
mod model;
mod records;
mod routes;
mod workflows;
