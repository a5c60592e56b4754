//! Tests of the crate's promises, from outside.

mod engine;
mod lists;
mod world;
