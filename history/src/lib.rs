//! The history checker: what clients asked, what they were told, and whether any server that keeps
//! its promises could have answered so.
//!
//! A [`History`] is recorded by a simulation (with its own times) or, through a [`Recorder`], by
//! the threads of a black-box test; [`verdict`] runs every checker that the history gives something to look at.
//! One property a file: [`list_append`], [`register`], [`bank`], [`counters`], [`set_equal`],
//! [`locks`].
//!
//! Promises: a history that a strictly serializable, exactly-once server can produce is never
//! rejected; what is rejected is shown with the operations that prove it; what is too much work to
//! decide is an error of its own and never a pass. The same history gives the same answer.
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
pub use operation::{Found, Key, Operation, Outcome, Step, Time, Value};
pub use recorder::{Call, Client, Recorder};
