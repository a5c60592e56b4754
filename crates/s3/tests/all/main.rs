//! Tests of the S3 front: its pure half by itself, and all of it by sockets.

mod checksums;
mod chunks;
mod forms;
mod front;
mod posts;
mod signatures;
mod support;
mod version_2;
