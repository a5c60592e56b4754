//! The engine that runs operations on records: types, their triggers, indexes, changes, and the
//! sweeps that bring what is stored to new settings.
//!
//! [`RecordsEngine`] wraps the engine it is given. It loads the app `records` itself, giving the wrapped
//! engine the triggers as an app, and passes all other apps through at no cost. How records lie in
//! entities is in `docs/internals/records.md`.
//!
//! Promises: index rows and changes always agree with the records, because they are written in the same
//! transaction; reading one record takes one turn and no more memory than its reply; nothing a
//! stranger sends makes anything here panic or run without a bound. Must not know HTTP or touch the
//! store.

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
