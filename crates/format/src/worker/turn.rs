//! The frames of one turn.

use bytes::Bytes;
use crc_fast::{CrcAlgorithm, Digest};

use super::from_worker::{DRAIN, FAILURE, HEARTBEAT, OUTPUT, RESUMED, SUSPEND};
use super::{FrameHeader, WORKER_FRAME_HEADER_BYTES, WorkerFrame, WorkerFrameError};

/// Whether a frame of this type ends a turn.
#[must_use]
pub fn ends_turn(kind: u8) -> bool {
    matches!(kind, OUTPUT | FAILURE | SUSPEND)
}

/// Whether a frame of this type says that its attempt goes on with another turn.
#[must_use]
pub fn suspends(kind: u8) -> bool {
    kind == SUSPEND
}

/// Whether a frame of this type says no more than that its sender is there.
#[must_use]
pub fn is_heartbeat(kind: u8) -> bool {
    kind == HEARTBEAT
}

/// Whether a frame of this type says that its connection gets no more attempts.
#[must_use]
pub fn drains(kind: u8) -> bool {
    kind == DRAIN
}

/// Reads a turn frame by frame. It keeps the number of frames and the checksum over them that RESUMED speaks of.
#[derive(Clone, Debug)]
pub struct TurnReader {
    frames: u32,
    digest: Digest,
    is_first: bool,
    has_ended: bool,
    rest: Bytes,
}

impl TurnReader {
    /// Reads `turn`, the first of an attempt.
    #[must_use]
    pub fn new(turn: Bytes) -> Self {
        Self {
            frames: 0,
            digest: Digest::new(CrcAlgorithm::Crc32IsoHdlc),
            is_first: true,
            has_ended: false,
            rest: turn,
        }
    }

    /// Goes on with the next turn of the same attempt.
    pub fn next_turn(&mut self, turn: Bytes) {
        (self.rest, self.is_first, self.has_ended) = (turn, true, false);
    }

    /// How many frames the attempt has sent, but for HEARTBEAT, RESUMED and SUSPEND.
    #[must_use]
    pub fn frames(&self) -> u32 {
        self.frames
    }

    /// The CRC-32 of their bytes, as in zlib.
    #[must_use]
    pub fn checksum(&self) -> u32 {
        u32::try_from(self.digest.finalize()).unwrap_or_default()
    }

    /// The next frame. `None`: the turn has ended, as it should.
    ///
    /// # Errors
    /// What comes is no frame, or stands where it may not.
    pub fn next_frame(&mut self) -> Result<Option<WorkerFrame>, WorkerFrameError> {
        loop {
            if self.rest.is_empty() {
                return if self.has_ended { Ok(None) } else { Err(WorkerFrameError::Length) };
            }
            let header = FrameHeader::read(&self.rest)?.ok_or(WorkerFrameError::Length)?;
            if header.frame_bytes() > self.rest.len() {
                return Err(WorkerFrameError::Length);
            }
            let whole = self.rest.split_to(header.frame_bytes());
            let frame = WorkerFrame::decode(header, whole.slice(WORKER_FRAME_HEADER_BYTES..))?;
            if header.kind == HEARTBEAT {
                continue;
            }
            if self.has_ended {
                return Err(WorkerFrameError::Place(header.kind));
            }
            self.note(header, &whole)?;
            return Ok(Some(frame));
        }
    }

    fn note(&mut self, header: FrameHeader, whole: &Bytes) -> Result<(), WorkerFrameError> {
        let was_first = std::mem::replace(&mut self.is_first, false);
        if header.kind == RESUMED {
            // It speaks of all before it, so nothing of its turn comes before it.
            return if was_first { Ok(()) } else { Err(WorkerFrameError::Place(RESUMED)) };
        }
        self.has_ended = ends_turn(header.kind);
        if header.kind != SUSPEND {
            // Whoever runs an attempt again has all results at once, and cannot know where it waited.
            self.frames = self.frames.saturating_add(1);
            self.digest.update(whole);
        }
        Ok(())
    }
}
