//! A simulated world: shards, logs, disks, clocks and clients under one seed.
//!
//! The shipped driver, shard, store, log and formats run here. Simulated are the machine below them and the clients above. A
//! scripted engine stands in for JavaScript. Everything happens on one thread in an order that the seed decides, so a failing
//! seed replays. `docs/internals/simulation.md` tells what is simulated and checked, `docs/internals/determinism.md` what is
//! not under control.
//!
//! Reading order:
//!
//! 1. `script` and `engine`: what handlers do.
//! 2. `core` and `rig`: shards by hand, for tests of shards.
//! 3. `disk`: power cuts.
//! 4. `net` and `platform`: the machine around the shipped driver of a core.
//! 5. `node`: a whole node.
//! 6. `workers`: where handlers run that are not in the store.
//! 7. `world`: clients, faults and time.
//! 8. `happened`: what a run is about.
//! 9. `judge`: what clients saw.
//! 10. `checks`: what the state is.

#![allow(missing_docs, reason = "a test tool: its fields and script operations are named as what they are")]

pub mod bugs;
pub mod checks;
pub mod clock;
pub mod cluster;
pub mod core;
pub mod disk;
mod disturb;
pub mod engine;
mod flow;
pub mod happened;
mod job;
mod judge;
pub mod ledger;
mod lists;
mod named;
pub mod net;
pub mod node;
pub mod platform;
pub mod random;
pub mod reads;
mod records;
pub mod rig;
mod rig_alone;
pub mod rig_flows;
pub mod rig_logs;
pub mod runner;
pub mod script;
pub mod workers;
pub mod workload;
pub mod world;

/// As in the server. A fifth of a run is spent in the allocator, even so.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;
