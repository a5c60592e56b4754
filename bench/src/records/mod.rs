//! Measures typed records: beside the bare responder, the durable counter and rivals (`contests`), by server threads
//! (`scaling`), in memory (`memory`), and paths and codecs alone (`micro`).
//!
//! Promises: those of the crate. After each run that writes, records are read again and compared.

pub mod contests;
pub mod fill;
pub mod memory;
pub mod micro;
pub mod mongo;
pub mod prest;
pub mod scaling;
pub mod workload;

/// The cells of a summary, in the order they are published.
#[must_use]
pub fn ids() -> Vec<String> {
    let parts = [scaling::ID, memory::ID, micro::ID].map(str::to_owned);
    contests::contests().into_iter().map(|contest| contest.id).chain(parts).collect()
}
