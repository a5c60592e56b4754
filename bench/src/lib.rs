//! Programs that measure Millrace beside its rivals, and what they share.
//!
//! Promises: two things are compared only in the same run on the same machine, in alternation;
//! every reply is checked; what was lost is published beside what was won. No figure here is a
//! timed test: nothing in CI passes or fails by one.

pub mod arguments;
pub mod cells;
pub mod contest;
pub mod extra;
pub mod fsync;
pub mod graph;
pub mod load;
pub mod machine;
pub mod plot;
pub mod publish;
pub mod records;
pub mod server;
pub mod small;
pub mod table;
pub mod transactions;

/// What stops a comparison, for a person.
pub type Outcome<T> = Result<T, String>;
