//! Bounds on what is read from a node or a place.

/// Bytes of a chunk. Small enough that a file which grows costs little again, large enough that a terabyte has a quarter of
/// a million.
pub(crate) const CHUNK_BYTES: usize = 4 << 20;

/// Bytes of a snapshot or an archive's list. A file costs some 150 bytes, a chunk 70.
pub(crate) const DOCUMENT_BYTES: u64 = 1 << 30;

/// Bytes of a file's path.
pub(crate) const PATH_BYTES: usize = 255;

/// Bytes of the sentence with which a node breaks an archive off.
pub(crate) const REASON_BYTES: u64 = 4 << 10;
