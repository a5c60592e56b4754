//! The engine that runs operations on records: types, their triggers, indexes, changes, and the sweeps that bring
//! stored records to new settings.
//!
//! [`RecordsEngine`] runs the app `records` and no other. It gives the triggers to another engine, as an app.
//! `docs/internals/records.md` says how records lie in entities.
//!
//! Promises: index rows and changes always agree with the records, because they are written in the same transaction.
//! Reading one record takes one turn and no more memory than its reply. Nothing that a stranger sends makes anything
//! here panic or run without a bound. Must not know HTTP or touch the store.

mod apply;
mod cache;
mod change;
mod change_cursor;
mod changes;
mod check;
mod effects;
mod engine;
mod expire;
mod find;
mod get_many;
mod last_rows;
mod merge;
mod migrate;
mod page_cursor;
mod plan;
mod program;
mod progress;
mod read;
mod rows;
mod scan;
mod stored;
mod sweep;
mod triggers;
mod turn;
mod values;
mod wire;
mod write;

#[doc(hidden)]
pub use check::{check_cursors, check_stored};
pub use engine::{RecordsEngine, shard_keys};
pub use program::shard_service;
