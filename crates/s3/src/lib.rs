//! The S3 front.
//!
//! What is here so far is its pure half: signatures, framed bodies and checksums. It has no clock and no I/O.
//!
//! Promises: everything that a stranger sends is bounded, and what is refused gets the code that S3 documents.
//! Must not know shards, storage or functions.

pub mod checksum;
pub mod chunked;
pub mod error;
pub mod post_form;
pub mod signature;
