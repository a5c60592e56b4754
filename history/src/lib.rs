//! The history checker: what clients asked, what they were told, and whether any correct server could have answered
//! so.
//!
//! A simulation records a [`History`] with its own times. The threads of a black-box test record one through a
//! [`Recorder`]. [`verdict`] runs every checker that the history gives something to look at. There is one property a
//! file: [`list_append`], [`register`], [`bank`], [`counters`], [`set_equal`], [`locks`].
//!
//! Promises: a history that a strictly serializable, exactly-once server can produce is never rejected. A rejected
//! history is shown with the operations that prove it. If deciding is too much work, that is an error of its own and
//! never a pass. The same history gives the same answer.
//!
//! Must not know the server: neither its crates nor its protocols.

mod anomaly;
pub mod bank;
mod bank_plan;
mod check;
pub mod counters;
mod graph;
mod history;
mod lines;
pub mod list_append;
mod lists;
pub mod locks;
mod operation;
mod order;
mod recorder;
pub mod register;
mod search;
pub mod set_equal;

pub use anomaly::{Anomaly, AnomalyKind, CycleClass, Order};
pub use check::{Verdict, verdict};
pub use history::{Fact, History, OperationId};
pub use lines::LineError;
pub use operation::{Access, Found, Key, Operation, Outcome, Time, Value};
pub use recorder::{Call, Client, Recorder};
