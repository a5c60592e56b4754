//! Programs that measure Millrace beside its rivals, and what they share.
//!
//! Promises: two sides are compared only in the same run on the same machine, in alternation. Every reply is checked.
//! Lost comparisons are published beside the others. No figure here is a test: CI never passes or fails by one.

pub mod arguments;
pub mod bars;
pub mod cells;
pub mod contest;
pub mod extra;
pub mod fsync;
pub mod graph;
pub mod load;
pub mod machine;
pub mod objects;
pub mod page;
pub mod pages;
pub mod python;
pub mod records;
pub mod replication;
pub mod rows;
pub mod server;
pub mod small;
pub mod summary;
pub mod transactions;

pub use millrace_loadgen::plot;

/// A result, or the reason for a person why a comparison stopped.
pub type Outcome<T> = Result<T, String>;
