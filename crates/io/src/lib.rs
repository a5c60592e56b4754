//! The outside world as traits: disk, network, clock, randomness. The real implementations are here, too.
//!
//! Everything above reads files, time and random numbers through these traits, so that a simulated world can take their
//! place. The simulated one tears and loses unsynced writes, flips bits, fills up, fails an fsync, or stops the clock.
//! So there are no memory maps and no file positions here, and callers sync directories themselves.
//!
//! Must not know keys, entries or what any file is for.

mod clock;
mod direct;
mod disk;
mod held_disk;
mod net;
mod random;
mod real_disk;

pub use clock::{Clock, RealClock, TestClock, thread_cpu_ns};
pub use disk::{DirectoryEntry, Disk, DiskFile, is_out_of_space, read_exactly_at};
pub use held_disk::{DiskHold, HeldDisk};
pub use net::Net;
pub use random::{Random, RealRandom};
pub use real_disk::RealDisk;
