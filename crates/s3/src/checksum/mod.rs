//! Checksums of objects: computed as bytes come, combined from those of parts, and read from headers.
//!
//! Promises: a text that cannot be a checksum of its algorithm is refused. [`hasher`] depends on [`algorithm`] only.

pub mod algorithm;
pub mod combine;
pub mod hasher;
pub mod header;

pub use algorithm::{ChecksumAlgorithm, ChecksumSet};
pub use combine::{composite, full_object};
pub use hasher::{Digests, Hasher};
