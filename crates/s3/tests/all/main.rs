//! Tests of the pure half of the S3 front.

mod checksums;
mod chunks;
mod forms;
mod signatures;
mod version_2;
