//! What servers and workers tell each other: frames, as `docs/internals/worker-protocol.md` has them.
//!
//! Promises: decoding any bytes gives one frame or an error, never panics, and allocates no more than the bytes are. What
//! is encoded here is read back as it was. Must not know what a frame leads to.

mod error;
mod from_worker;
mod header;
mod payload;
#[cfg(test)]
mod tests;
mod to_worker;
mod turn;

pub use error::WorkerFrameError;
pub use from_worker::{FailureFrame, TargetFrame, WorkerFrame};
pub use header::{FrameHeader, WORKER_FRAME_HEADER_BYTES, set_stream};
pub use payload::{FrameError, FrameResult, FrameValue};
pub use to_worker::{AttemptKind, AttemptToken, ServerFrame, StartFrame, set_seen};
pub use turn::{TurnReader, drains, ends_turn, is_heartbeat, suspends};
