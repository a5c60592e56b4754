//! How many frames that carry no request and no content a peer of HTTP/2 may send.

use crate::limits::{HTTP2_FRAMES, HTTP2_FRAMES_PER_SECOND};

/// What a request allows. Clients give its stream a priority, a window, and sometimes an early end. Servers answer with headers,
/// an end and windows.
const FRAMES_PER_REQUEST: u64 = 16;

/// Bytes sent that allow a frame: clients open the window again as they read, some for each packet.
const BYTES_PER_FRAME: u64 = 256;

/// Frames that can be saved up: the windows of many large replies, opened at the same moment.
const MOST_FRAMES: u64 = 100 * HTTP2_FRAMES;

/// Frames that are still allowed.
#[derive(Debug)]
pub struct Http2FrameBudget {
    frames: u64,
    /// Bytes sent that have not bought a frame yet.
    sent_bytes: u64,
    /// Until when time has been counted.
    counted_ms: u64,
}

impl Http2FrameBudget {
    /// That of a connection which begins now.
    #[must_use]
    pub fn new(now_ms: u64) -> Self {
        Self { frames: HTTP2_FRAMES, sent_bytes: 0, counted_ms: now_ms }
    }

    /// Allows more frames, up to as many as can be saved up.
    pub fn earn(&mut self, frames: u64) {
        self.frames = self.frames.saturating_add(frames).min(MOST_FRAMES);
    }

    /// A request begins.
    pub fn request_begins(&mut self) {
        self.earn(FRAMES_PER_REQUEST);
    }

    /// So many bytes were sent to the peer.
    pub fn sent(&mut self, bytes: usize) {
        self.sent_bytes += bytes as u64;
        self.earn(self.sent_bytes / BYTES_PER_FRAME);
        self.sent_bytes %= BYTES_PER_FRAME;
    }

    /// Time allows more.
    pub fn time_is(&mut self, now_ms: u64) {
        let seconds = now_ms.saturating_sub(self.counted_ms) / 1000;
        self.counted_ms += seconds * 1000;
        self.earn(seconds.saturating_mul(HTTP2_FRAMES_PER_SECOND));
    }

    /// Takes one; false where none is left.
    #[must_use]
    pub fn spend(&mut self) -> bool {
        let is_left = self.frames > 0;
        self.frames = self.frames.saturating_sub(1);
        is_left
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left(budget: &mut Http2FrameBudget) -> u64 {
        let mut count = 0;
        while budget.spend() {
            count += 1;
        }
        count
    }

    #[test]
    fn time_requests_and_bytes_allow_frames() {
        let mut budget = Http2FrameBudget::new(500);
        assert_eq!(left(&mut budget), HTTP2_FRAMES);
        budget.time_is(1_499);
        assert_eq!(left(&mut budget), 0);
        budget.time_is(3_500);
        assert_eq!(left(&mut budget), 3 * HTTP2_FRAMES_PER_SECOND);
        budget.request_begins();
        assert_eq!(left(&mut budget), FRAMES_PER_REQUEST);
        (0..4).for_each(|_| budget.sent(128));
        assert_eq!(left(&mut budget), 2);
        budget.sent(usize::MAX >> 1);
        assert_eq!(left(&mut budget), MOST_FRAMES, "no more can be saved up");
    }
}
