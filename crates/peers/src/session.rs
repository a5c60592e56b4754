//! What two processes remember of each other while both live, over all of their connections: numbers of core messages,
//! what has to be sent again, what waits. It does no I/O and reads no clock.
//!
//! Promises: core messages arrive in the order in which they were queued, each once, none left out, while both processes
//! live; a new process begins at 1 and gets nothing that was queued for the one before it; memory is bounded.

use std::collections::VecDeque;
use std::fmt;

use bytes::Bytes;
use millrace_base::limits;

use crate::frame::{FRAME_HEADER_BYTES, Frame, Hello, Lane, Refusal};

/// So many core messages, or bytes of them, are acknowledged at once. Fewer wait for the next heartbeat, or for
/// something else to be sent.
const ACKNOWLEDGED_TOGETHER: (u64, usize) = (256, 1 << 20);

/// Whose process has connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opened {
    /// No process of that node has connected before.
    First,
    /// The process that was connected before.
    Same,
    /// Another process. What the one before had not acknowledged is gone.
    Restarted,
}

/// Why a message cannot be queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueError {
    /// It has more than [`limits::PEER_MESSAGE_BYTES`].
    TooLarge,
    /// The link is down, and the lane does not wait for the next connection.
    Down,
    /// Too much waits already.
    Full,
}

impl fmt::Display for QueueError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            QueueError::TooLarge => "the message is over the limit of messages between nodes",
            QueueError::Down => "there is no connection to the node",
            QueueError::Full => "too many messages wait for the node",
        })
    }
}

impl std::error::Error for QueueError {}

/// The peer counts in another way than it can. The connection ends; the next one begins with what both know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Violation {
    /// A core message is missing.
    Gap,
    /// What was never sent is acknowledged, or less than before.
    Acknowledgement,
}

impl fmt::Display for Violation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Violation::Gap => "a core message is missing before one that came",
            Violation::Acknowledgement => "core messages are acknowledged that were not sent, or fewer than before",
        })
    }
}

impl std::error::Error for Violation {}

/// Messages of one lane that wait.
#[derive(Debug, Default)]
struct Queue {
    messages: VecDeque<Bytes>,
    bytes: usize,
}

impl Queue {
    fn is_full_with(&self, bytes: usize) -> bool {
        self.bytes + bytes > limits::PEER_QUEUE_BYTES || self.messages.len() >= limits::PEER_QUEUE_MESSAGES
    }

    fn push(&mut self, message: Bytes) {
        self.bytes += message.len();
        self.messages.push_back(message);
    }

    fn pop(&mut self) -> Option<Bytes> {
        let message = self.messages.pop_front()?;
        self.bytes -= message.len();
        Some(message)
    }
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Session {
    own: u64,
    /// The peer's process; 0 before the first hello.
    peer: u64,
    /// The last connection that the peer's process has made.
    connection: u64,
    is_open: bool,
    /// Core messages that are not acknowledged. The first has the number `acknowledged + 1`.
    core: Queue,
    acknowledged: u64,
    /// So many of `core` have been written to this connection.
    written: usize,
    replica: Queue,
    mail: Queue,
    /// The number of the last core message that has arrived.
    received: u64,
    /// The peer has been told of so many.
    told: u64,
    /// Bytes of the core messages that it has not been told of.
    untold_bytes: usize,
    /// A heartbeat is due.
    beats: bool,
}

impl Session {
    /// The session of process `own` with a node that it has not heard yet.
    ///
    /// # Panics
    /// If `own` is 0, which means "no process".
    #[must_use]
    pub fn new(own: u64) -> Self {
        assert!(own != 0, "an incarnation is a number from 1");
        Self {
            own,
            peer: 0,
            connection: 0,
            is_open: false,
            core: Queue::default(),
            acknowledged: 0,
            written: 0,
            replica: Queue::default(),
            mail: Queue::default(),
            received: 0,
            told: 0,
            untold_bytes: 0,
            beats: false,
        }
    }

    /// What the own hello says of the peer: its process and the number of the last core message that has arrived.
    #[must_use]
    pub fn known(&self) -> (u64, u64) {
        (self.peer, self.received)
    }

    /// The last connection that the peer has made, or that was made to it.
    #[must_use]
    pub fn connection(&self) -> u64 {
        self.connection
    }

    /// Whether a connection is open.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.is_open
    }

    /// Whether [`Session::open`] would take this hello.
    ///
    /// # Errors
    /// Why not.
    pub fn check(&self, hello: &Hello) -> Result<Opened, Refusal> {
        let opened = match hello.incarnation {
            0 => return Err(Refusal::Numbers),
            incarnation if incarnation < self.peer => return Err(Refusal::OldIncarnation),
            incarnation if incarnation == self.peer => Opened::Same,
            _ if self.peer == 0 => Opened::First,
            _ => Opened::Restarted,
        };
        if opened == Opened::Same && hello.connection <= self.connection {
            return Err(Refusal::OldConnection);
        }
        let has = if hello.known == self.own { hello.received } else { 0 };
        let fits = match opened {
            Opened::Restarted => has == 0,
            Opened::First | Opened::Same => {
                has >= self.acknowledged && has - self.acknowledged <= self.core.messages.len() as u64
            }
        };
        if fits { Ok(opened) } else { Err(Refusal::Numbers) }
    }

    /// A new connection begins with this hello of the peer. A connection before it counts as closed.
    ///
    /// # Errors
    /// Why it is refused. Nothing has changed then.
    pub fn open(&mut self, hello: &Hello) -> Result<Opened, Refusal> {
        let opened = self.check(hello)?;
        self.close();
        if opened == Opened::Restarted {
            (self.core, self.acknowledged, self.received) = (Queue::default(), 0, 0);
        }
        if hello.known == self.own {
            self.acknowledge(hello.received);
        }
        (self.peer, self.connection, self.is_open) = (hello.incarnation, hello.connection, true);
        (self.told, self.untold_bytes) = (self.received, 0);
        Ok(opened)
    }

    /// The connection has ended. Core messages stay.
    pub fn close(&mut self) {
        (self.replica, self.mail) = (Queue::default(), Queue::default());
        (self.is_open, self.written, self.beats) = (false, 0, false);
    }

    /// Lets a message wait until it is written.
    ///
    /// # Errors
    /// [`QueueError`]; the message is dropped. A full lane of replicas drops its oldest messages instead.
    pub fn queue(&mut self, lane: Lane, message: Bytes) -> Result<(), QueueError> {
        if message.len() > limits::PEER_MESSAGE_BYTES {
            return Err(QueueError::TooLarge);
        }
        if !self.is_open && lane != Lane::Core {
            return Err(QueueError::Down);
        }
        let queue = match lane {
            Lane::Replica => &mut self.replica,
            Lane::Core => &mut self.core,
            Lane::Mail => &mut self.mail,
        };
        while queue.is_full_with(message.len()) {
            if lane != Lane::Replica {
                return Err(QueueError::Full);
            }
            queue.pop();
        }
        queue.push(message);
        Ok(())
    }

    /// The next write holds a heartbeat.
    pub fn beat(&mut self) {
        self.beats = self.is_open;
    }

    /// Whether there is something to write now.
    #[must_use]
    pub fn wants_write(&self) -> bool {
        let (messages, bytes) = ACKNOWLEDGED_TOGETHER;
        self.is_open && (self.has_messages() || self.beats || self.untold() >= messages || self.untold_bytes >= bytes)
    }

    /// Appends frames until `out` has about `bytes`; one message may be larger. Replicas come first, but no lane takes all
    /// while others wait.
    pub fn write(&mut self, out: &mut Vec<u8>, bytes: usize) {
        if !self.wants_write() {
            return;
        }
        if self.beats || self.untold() > 0 {
            Frame::Beat { received: self.received }.encode(out);
            (self.beats, self.told, self.untold_bytes) = (false, self.received, 0);
        }
        let from = out.len();
        let is_below = |out: &Vec<u8>, share: usize| out.len() - from < share;
        for replica_share in [bytes / 2, bytes] {
            while is_below(out, replica_share)
                && let Some(message) = self.replica.pop()
            {
                Frame::Replica(&message).encode(out);
            }
            let core_share = replica_share + (bytes - replica_share) / 2;
            while is_below(out, core_share)
                && let Some(message) = self.core.messages.get(self.written)
            {
                self.written += 1;
                Frame::Core { number: self.acknowledged + self.written as u64, body: message }.encode(out);
            }
            while is_below(out, bytes)
                && let Some(message) = self.mail.pop()
            {
                Frame::Mail(&message).encode(out);
            }
        }
    }

    /// A frame has come. Says whether its message is new, and so to be delivered.
    ///
    /// # Errors
    /// [`Violation`]: the connection must end.
    pub fn read(&mut self, frame: &Frame<'_>) -> Result<bool, Violation> {
        match *frame {
            Frame::Beat { received } => {
                if received < self.acknowledged || received > self.acknowledged + self.written as u64 {
                    return Err(Violation::Acknowledgement);
                }
                self.acknowledge(received);
                Ok(false)
            }
            Frame::Core { number, body } if number == self.received + 1 => {
                self.received = number;
                self.untold_bytes += body.len() + FRAME_HEADER_BYTES;
                Ok(true)
            }
            // It came over an earlier connection, too late to be told.
            Frame::Core { number, .. } if number <= self.received => Ok(false),
            Frame::Core { .. } => Err(Violation::Gap),
            Frame::Replica(_) | Frame::Mail(_) => Ok(true),
        }
    }

    fn has_messages(&self) -> bool {
        let core = self.core.messages.len() > self.written;
        core || !self.replica.messages.is_empty() || !self.mail.messages.is_empty()
    }

    /// Core messages that have arrived and that the peer has not been told of.
    fn untold(&self) -> u64 {
        self.received - self.told
    }

    fn acknowledge(&mut self, received: u64) {
        while self.acknowledged < received && self.core.pop().is_some() {
            self.acknowledged += 1;
            self.written = self.written.saturating_sub(1);
        }
    }
}
