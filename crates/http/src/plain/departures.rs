//! Replies that leave together.
//!
//! A small reply is not sent in the visit that made it, but at the end of the round, with those of the other connections
//! that were visited. Running requests and sending replies are much code each, more than fits the core's first cache, so
//! changing between them once a round is cheaper than once a request; and a client with many connections is woken once.
//!
//! Promises: replies of a connection leave in their order; none waits for longer than the round, or behind a request that
//! took long; what a client does not take at once is *owed* to it, and its connection sends that before anything else.
//! Must not hold what is large, or a connection's last reply: those are sent where they were made.

use std::os::fd::{BorrowedFd, RawFd};
use std::rc::Rc;

use rustix::io::{Errno, retry_on_intr};
use rustix::net::{SendFlags, send};

use crate::connection::{ConnectionState, Order};

/// A larger reply leaves by itself: sending it costs so much that the way there does not matter.
pub(crate) const REPLY_BYTES: usize = 4 << 10;

/// Replies that make others wait no longer. More of them do not leave cheaper.
const REPLIES: usize = 32;

/// The same for requests that ran for so long since the first of them.
const WAIT_NS: u64 = 500_000;

struct Departure {
    socket: RawFd,
    state: Rc<ConnectionState>,
    length: usize,
}

/// The replies that leave next, in the order they were made.
#[derive(Default)]
pub(crate) struct Departures {
    bytes: Vec<u8>,
    replies: Vec<Departure>,
    since_ns: u64,
}

impl Departures {
    /// Adds a reply made at `now_ns`. Says whether it is the first, so that somebody has to see to its leaving; sends all
    /// where the first has waited long enough.
    ///
    /// # Safety
    /// `socket` is open until [`Departures::leave`] has been called.
    pub(crate) unsafe fn add(&mut self, socket: RawFd, state: &Rc<ConnectionState>, reply: &[u8], now_ns: u64) -> bool {
        let is_first = self.replies.is_empty();
        if is_first {
            self.since_ns = now_ns;
        }
        self.bytes.extend_from_slice(reply);
        self.replies.push(Departure { socket, state: Rc::clone(state), length: reply.len() });
        if self.replies.len() >= REPLIES || now_ns.saturating_sub(self.since_ns) >= WAIT_NS {
            self.leave();
            return false;
        }
        is_first
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
        if state.is_owing() {
            return state.owe(bytes);
        }
        // SAFETY: whoever added it has promised that it is open.
        let socket = unsafe { BorrowedFd::borrow_raw(self.socket) };
        match retry_on_intr(|| send(socket, bytes, SendFlags::NOSIGNAL)) {
            Ok(sent) => {
                state.sent(sent);
                if sent < bytes.len() {
                    state.owe(&bytes[sent..]);
                }
            }
            Err(Errno::AGAIN) => state.owe(bytes),
            Err(_) => {
                state.local.metrics.connection_errors.increment();
                state.give(Order::Abort);
            }
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
    fn a_reply_waits_for_the_round_but_not_for_long_nor_for_many() {
        let (ours, mut theirs, state) = parts();
        let mut departures = Departures::default();
        // SAFETY: the socket outlives the departures.
        let mut add =
            |reply: &str, now_ns| unsafe { departures.add(ours.as_raw_fd(), &state, reply.as_bytes(), now_ns) };
        assert!(add("a", 0), "somebody has to see to it");
        assert!(!add("b", WAIT_NS - 1));
        assert_eq!(read(&mut theirs), "");
        assert!(!add("c", WAIT_NS));
        assert_eq!(read(&mut theirs), "abc");
        for index in 0..REPLIES {
            assert_eq!(read(&mut theirs), "", "after {index}");
            assert_eq!(add("d", WAIT_NS), index == 0);
        }
        assert_eq!(read(&mut theirs), "d".repeat(REPLIES));
    }

    #[test]
    fn nothing_overtakes_what_is_owed() {
        let (ours, mut theirs, state) = parts();
        state.owe(b"a");
        let mut departures = Departures::default();
        // SAFETY: as above.
        unsafe { departures.add(ours.as_raw_fd(), &state, b"b", 0) };
        departures.leave();
        assert_eq!((read(&mut theirs).as_str(), &state.take_owed()[..]), ("", &b"ab"[..]));
    }
}
