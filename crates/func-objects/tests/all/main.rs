//! Tests of the crate's promises, from outside.

mod apps;
mod engine;
mod lifecycle;
mod lists;
mod notifications;
mod slices;
mod world;
