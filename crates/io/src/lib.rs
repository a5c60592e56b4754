//! The outside world as traits: disk, network, clock, randomness; and the real ones.
//!
//! Everything above reads files, time and random numbers through these, so that a simulated
//! world can take their place: one that tears and loses unsynced writes, flips bits, fills up,
//! fails an fsync, or stops the clock. That is why there are no memory maps and no file
//! positions here, and why directories are synced by hand.
//!
//! Must not know keys, entries or what any file is for.

mod clock;
mod direct;
mod disk;
mod net;
mod random;
mod real_disk;

pub use clock::{Clock, RealClock, thread_cpu_ns};
pub use disk::{DirectoryEntry, Disk, DiskFile, is_out_of_space, read_exactly_at};
pub use net::Net;
pub use random::{Random, RealRandom};
pub use real_disk::RealDisk;
