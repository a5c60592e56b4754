//! Tests of the crate's promises, from outside.

mod engine;
mod lifecycle;
mod lists;
mod notifications;
mod world;
