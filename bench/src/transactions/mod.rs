//! Transactions measured: beside each other and beside rivals (`contests`), under overload (`hot`),
//! as workflows (`workflow`), and as latency against throughput in all configurations (`matrix`).
//!
//! Promises: as the crate's; besides, after each run the state is audited, so that a figure of a
//! run that lost or doubled anything is not told.

pub mod contests;
pub mod document;
pub mod hot;
pub mod matrix;
pub mod page;
pub mod workflow;
pub mod workload;
