//! Guidance: which node owns which shard, in which epoch, and which apps are deployed. Pure data and pure decisions.
//!
//! The meta shard holds a [`Guidance`]. Every node reads it there. The owner of the meta shard runs a [`Leader`], which hears the
//! [`Status`] of all nodes and decides what the next guidance is. `docs/internals/guidance.md` has the rules.
//!
//! Promises: the same inputs give the same guidance; each change of a shard's owner, and each start of a node, gives the shard an
//! epoch that it never had before; a guidance never names an owner that does not hold the shard's log. Must not do I/O, read
//! clocks, draw randomness, or be async; must not know how nodes talk.

mod document;
mod handing;
mod leader;
mod membership;
mod placing;
mod status;
mod versions;

pub use document::{
    AppEntry, BODIES_LEVEL, CALLERS_LEVEL, COPIES_LEVEL, DIALLED_LEVEL, EXPECTED_LEVEL, FEATURE_LEVEL, Guidance,
    GuidanceError, KEPT_BODIES_LEVEL, KeptApp, NextApp, NodeEntry, STOPPED_LEVEL, STREAMS_LEVEL, ShardPlacement,
    UNREADABLE_LEVEL, WORKER_SIGNATURES_LEVEL, first_replicas,
};
pub use leader::{Audience, Leader, Timing};
pub use membership::{Refused, is_rack};
pub use placing::{MetaStep, meta_step};
pub use status::{DIALLED_VERSIONS, Dialled, Held, Obstacle, Opened, Status, Unneeded};

#[cfg(test)]
mod leader_tests;
#[cfg(test)]
mod placing_tests;
