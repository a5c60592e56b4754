//! Replies that leave together.
//!
//! A small reply is not sent in the visit that made it. It is sent at the end of the round, with those of the other
//! connections that were visited. Running requests and sending replies are much code each, more than fits the core's
//! first cache. So changing between them once a round is cheaper than once a request. And a client with many
//! connections is woken once.
//!
//! Promises: none waits for longer than the round, and when the first of them is [`WAIT_NS`] old, no further request is begun
//! before they have left. A connection has one at most, and reads nothing more before it has left; what the client does
//! not take at once stays *unsent*, and its connection sends it. So nothing is held of a client that does not read but
//! one small reply. Must not hold what is large, or a connection's last reply: those are sent where they were made.

use std::os::fd::{BorrowedFd, RawFd};
use std::rc::Rc;

use rustix::io::retry_on_intr;
use rustix::net::{SendFlags, send};

use crate::connection::ConnectionState;

/// A larger reply leaves by itself: sending it costs so much that the way there does not matter.
pub(crate) const REPLY_BYTES: usize = 4 << 10;

/// Replies that make others wait no longer. More of them do not leave cheaper.
const REPLIES: usize = 32;

/// How old the first of them may be when another request begins.
const WAIT_NS: u64 = 500_000;

struct Departure {
    socket: RawFd,
    state: Rc<ConnectionState>,
    length: usize,
}

/// The replies that leave next, in the order they were made.
#[derive(Default)]
pub(crate) struct ReplyBatch {
    bytes: Vec<u8>,
    replies: Vec<Departure>,
    since_ns: u64,
}

impl ReplyBatch {
    /// Adds a reply made at `now_ns`. Says whether it is the first, so that somebody has to see to its leaving; sends all
    /// where they are many.
    ///
    /// # Safety
    /// `socket` is open until [`ReplyBatch::leave`] has been called.
    pub(crate) unsafe fn add(&mut self, socket: RawFd, state: &Rc<ConnectionState>, reply: &[u8], now_ns: u64) -> bool {
        let is_first = self.replies.is_empty();
        if is_first {
            self.since_ns = now_ns;
        }
        self.bytes.extend_from_slice(reply);
        state.departs(true);
        self.replies.push(Departure { socket, state: Rc::clone(state), length: reply.len() });
        if self.replies.len() >= REPLIES {
            self.leave();
        }
        is_first
    }

    /// Sends them if they have waited long enough at `now_ns`.
    #[inline]
    pub(crate) fn leave_in_time(&mut self, now_ns: u64) {
        if !self.replies.is_empty() && now_ns.saturating_sub(self.since_ns) >= WAIT_NS {
            self.leave();
        }
    }

    /// Sends them.
    pub(crate) fn leave(&mut self) {
        let mut begin = 0;
        for reply in self.replies.drain(..) {
            let end = begin + reply.length;
            reply.leave(&self.bytes[begin..end]);
            begin = end;
        }
        self.bytes.clear();
    }
}

impl Departure {
    fn leave(&self, bytes: &[u8]) {
        let state = &self.state;
        state.departs(false);
        // SAFETY: whoever added it has promised that it is open.
        let socket = unsafe { BorrowedFd::borrow_raw(self.socket) };
        match retry_on_intr(|| send(socket, bytes, SendFlags::NOSIGNAL)) {
            Ok(sent) => {
                state.sent(sent);
                if sent < bytes.len() {
                    state.owe(&bytes[sent..]);
                }
            }
            // Where the client is gone, its connection finds out when it tries.
            Err(_) => state.owe(bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;

    use prometheus_client::registry::Registry;

    use super::*;
    use crate::front::Front;
    use crate::local::Local;
    use crate::options::Options;

    fn parts() -> (UnixStream, UnixStream, Rc<ConnectionState>) {
        let (ours, theirs) = UnixStream::pair().expect("sockets");
        theirs.set_nonblocking(true).expect("settable");
        let front = Front::new(Options::default(), Registry::default()).expect("no files to read");
        (ours, theirs, Rc::new(ConnectionState::new(Local::new(front))))
    }

    fn read(socket: &mut UnixStream) -> String {
        let mut bytes = [0; 64];
        let length = socket.read(&mut bytes).unwrap_or_default();
        String::from_utf8_lossy(&bytes[..length]).into_owned()
    }

    #[test]
    fn replies_wait_for_the_round_but_not_for_long_nor_for_many() {
        let (ours, mut theirs, state) = parts();
        let mut reply_batch = ReplyBatch::default();
        // SAFETY: the socket outlives the reply batch.
        let add =
            |reply_batch: &mut ReplyBatch, now_ns| unsafe { reply_batch.add(ours.as_raw_fd(), &state, b"a", now_ns) };
        assert!(add(&mut reply_batch, 1), "somebody has to see to it");
        assert!(!add(&mut reply_batch, 2) && state.is_departing());
        reply_batch.leave_in_time(WAIT_NS);
        assert_eq!(read(&mut theirs), "");
        reply_batch.leave_in_time(1 + WAIT_NS);
        assert_eq!((read(&mut theirs).as_str(), state.is_departing()), ("aa", false));
        for index in 0..REPLIES {
            assert_eq!(read(&mut theirs), "", "after {index}");
            assert_eq!(add(&mut reply_batch, 3), index == 0);
        }
        assert_eq!(read(&mut theirs), "a".repeat(REPLIES));
    }

    #[test]
    fn what_is_not_taken_is_unsent_replies() {
        let (ours, theirs, state) = parts();
        drop(theirs);
        let mut reply_batch = ReplyBatch::default();
        // SAFETY: as above.
        unsafe { reply_batch.add(ours.as_raw_fd(), &state, b"a", 0) };
        reply_batch.leave();
        assert!(state.is_owing() && !state.is_departing());
        assert_eq!(&state.take_unsent_replies()[..], b"a");
    }
}
