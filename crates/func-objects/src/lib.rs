//! What the built-in app `objects` decides: who may do what, what a list shows, what vanishes when, what cannot be
//! deleted.
//!
//! Promises: the same inputs give the same decision, at any time and on any node. Nothing that a stranger sends makes
//! anything here panic or run without a bound. Must not know HTTP, XML or the store.

pub mod acl;
pub mod actions;
pub mod authorise;
pub mod conditions;
pub mod context;
pub mod cors;
mod glob;
pub mod lifecycle;
pub mod limits;
pub mod listing;
pub mod lock;
pub mod policy;
pub mod stored;
pub mod tagging;
pub mod versions;
