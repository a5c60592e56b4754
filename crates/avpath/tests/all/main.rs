//! The integration tests of this crate: one program, which compiles and links once, with a module for each subject.

mod language;
mod limits;
mod model;
mod reference;
mod support;
