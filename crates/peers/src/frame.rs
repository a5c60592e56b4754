//! Bytes of a link. The tables are in `docs/internals/peers.md`.
//!
//! Promises: what is encoded decodes to the same; each frame has one encoding; any bytes decode to a frame, an error, or
//! "more is needed", and cost no memory beyond themselves.

use std::fmt;

use millrace_base::limits;
use millrace_replica::NodeId;

use crate::ids::ClusterId;

/// Which messages a message is in order with, and what becomes of it when the link breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lane {
    /// Messages between replicas. They are lost with the connection, and the oldest are dropped when too many wait.
    Replica,
    /// Messages between cores: in order, once, and sent again on the next connection while both processes live.
    Core,
    /// Mail between shards, statuses, parts of snapshots. It is lost with the connection.
    Mail,
}

impl Lane {
    /// Every lane, in the order in which they are written.
    pub const ALL: [Lane; 3] = [Lane::Replica, Lane::Core, Lane::Mail];

    fn number(self) -> u8 {
        match self {
            Lane::Replica => 1,
            Lane::Core => 2,
            Lane::Mail => 3,
        }
    }
}

/// Bytes before a frame's body.
pub const FRAME_HEADER_BYTES: usize = 17;

/// One frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    /// A heartbeat. It acknowledges core messages up to this number.
    Beat {
        /// The number of the last core message that has arrived.
        received: u64,
    },
    /// A message between replicas.
    Replica(&'a [u8]),
    /// A message between cores.
    Core {
        /// From 1, without gaps, while both processes live.
        number: u64,
        /// The message.
        body: &'a [u8],
    },
    /// A message of the mail's lane.
    Mail(&'a [u8]),
}

/// Why bytes are no frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameError {
    /// The length is over the limit.
    TooLarge(u32),
    /// There is no such lane.
    UnknownLane(u8),
    /// The checksum is another one.
    Checksum,
    /// A heartbeat with a body, or a number where none belongs.
    Malformed,
}

impl fmt::Display for FrameError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FrameError::TooLarge(bytes) => {
                write!(formatter, "a frame of {bytes} bytes is over the limit of {}", limits::PEER_MESSAGE_BYTES)
            }
            FrameError::UnknownLane(lane) => write!(formatter, "a frame of lane {lane}, which there is not"),
            FrameError::Checksum => formatter.write_str("a frame whose checksum does not fit"),
            FrameError::Malformed => formatter.write_str("a frame with a body or number that its lane does not have"),
        }
    }
}

impl std::error::Error for FrameError {}

impl<'a> Frame<'a> {
    /// Appends the frame's bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let (lane, number, body): (u8, u64, &[u8]) = match *self {
            Frame::Beat { received } => (0, received, &[]),
            Frame::Replica(body) => (Lane::Replica.number(), 0, body),
            Frame::Core { number, body } => (Lane::Core.number(), number, body),
            Frame::Mail(body) => (Lane::Mail.number(), 0, body),
        };
        let length = u32::try_from(body.len()).unwrap_or(u32::MAX);
        out.extend_from_slice(&length.to_le_bytes());
        let at = out.len();
        out.extend_from_slice(&[0; 4]);
        out.push(lane);
        out.extend_from_slice(&number.to_le_bytes());
        out.extend_from_slice(body);
        let checksum = crc_fast::crc32_iscsi(&out[at + 4..]);
        out[at..at + 4].copy_from_slice(&checksum.to_le_bytes());
    }

    /// The first frame of `bytes` and its length; `None` if more bytes are needed.
    ///
    /// # Errors
    /// [`FrameError`]: nothing behind it can be read either.
    pub fn decode(bytes: &'a [u8]) -> Result<Option<(Self, usize)>, FrameError> {
        let Some((header, rest)) = bytes.split_first_chunk::<FRAME_HEADER_BYTES>() else { return Ok(None) };
        let [l0, l1, l2, l3, c0, c1, c2, c3, lane, number @ ..] = *header;
        let (length, number) = (u32::from_le_bytes([l0, l1, l2, l3]), u64::from_le_bytes(number));
        let body_bytes = length as usize;
        if body_bytes > limits::PEER_MESSAGE_BYTES {
            return Err(FrameError::TooLarge(length));
        }
        if lane > Lane::Mail.number() {
            return Err(FrameError::UnknownLane(lane));
        }
        let Some(body) = rest.get(..body_bytes) else { return Ok(None) };
        let frame_bytes = FRAME_HEADER_BYTES + body_bytes;
        if crc_fast::crc32_iscsi(&bytes[8..frame_bytes]) != u32::from_le_bytes([c0, c1, c2, c3]) {
            return Err(FrameError::Checksum);
        }
        let frame = match (lane, number) {
            (0, received) if body.is_empty() => Frame::Beat { received },
            (1, 0) => Frame::Replica(body),
            (2, number) => Frame::Core { number, body },
            (3, 0) => Frame::Mail(body),
            _ => return Err(FrameError::Malformed),
        };
        Ok(Some((frame, frame_bytes)))
    }
}

/// The protocol versions that this program speaks.
pub const VERSIONS: (u16, u16) = (1, 1);

/// Bytes of a [`Hello`].
pub const HELLO_BYTES: usize = 64;

const MAGIC: [u8; 4] = *b"MRPL";

/// The first word of each side on a new connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The lowest and the highest version of the protocol that the sender speaks.
    pub versions: (u16, u16),
    /// The cluster.
    pub cluster: ClusterId,
    /// The sender.
    pub from: NodeId,
    /// Whom the sender means.
    pub to: NodeId,
    /// Names the sender's process. A later process of the same node has a higher one.
    pub incarnation: u64,
    /// Counts the connections that the dialling process makes to this node. The answer repeats it.
    pub connection: u64,
    /// The process of the receiver that the sender knows; 0 for none.
    pub known: u64,
    /// The number of the last core message that has arrived from that process.
    pub received: u64,
}

impl Hello {
    /// The bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; HELLO_BYTES] {
        let mut out = Vec::with_capacity(HELLO_BYTES);
        out.extend_from_slice(&MAGIC);
        for number in [self.versions.0, self.versions.1] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out.extend_from_slice(&self.cluster.0);
        for node in [self.from, self.to] {
            out.extend_from_slice(&node.0.to_le_bytes());
        }
        for number in [self.incarnation, self.connection, self.known, self.received] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out.extend_from_slice(&crc_fast::crc32_iscsi(&out).to_le_bytes());
        let mut bytes = [0; HELLO_BYTES];
        bytes.copy_from_slice(&out);
        bytes
    }

    /// Reads a hello; `None` for what is none.
    #[must_use]
    pub fn decode(bytes: &[u8; HELLO_BYTES]) -> Option<Self> {
        let (content, checksum) = bytes.split_at(HELLO_BYTES - 4);
        if content[..4] != MAGIC || crc_fast::crc32_iscsi(content).to_le_bytes() != checksum {
            return None;
        }
        let u16_at = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let u64_at = |at: usize| {
            let mut number = [0; 8];
            number.copy_from_slice(&bytes[at..at + 8]);
            u64::from_le_bytes(number)
        };
        let mut cluster = [0; 16];
        cluster.copy_from_slice(&bytes[8..24]);
        Some(Self {
            versions: (u16_at(4), u16_at(6)),
            cluster: ClusterId(cluster),
            from: NodeId(u16_at(24)),
            to: NodeId(u16_at(26)),
            incarnation: u64_at(28),
            connection: u64_at(36),
            known: u64_at(44),
            received: u64_at(52),
        })
    }
}

macro_rules! refusals {
    ($($(#[$doc:meta])* $name:ident = $number:literal: $text:literal,)*) => {
        /// Why a node refuses a connection. It says so in one byte, to those that have a certificate of the cluster.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Refusal { $($(#[$doc])* $name,)* }

        impl Refusal {
            /// Every refusal.
            pub const ALL: &[Refusal] = &[$(Refusal::$name,)*];

            /// The byte; never 0, which is a welcome.
            #[must_use]
            pub fn byte(self) -> u8 {
                match self { $(Refusal::$name => $number,)* }
            }

            /// The refusal of this byte.
            #[must_use]
            pub fn of_byte(byte: u8) -> Option<Self> {
                match byte { $($number => Some(Refusal::$name),)* _ => None }
            }
        }

        impl fmt::Display for Refusal {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str(match self { $(Refusal::$name => $text,)* })
            }
        }
    };
}

refusals! {
    /// The hello names another cluster.
    OtherCluster = 1: "it belongs to another cluster",
    /// The hello is for another node.
    OtherNode = 2: "it looks for another node at this address",
    /// The hello comes from a node that is none of the peers.
    UnknownNode = 3: "it is no peer of this node",
    /// The certificate is for another node than the hello says.
    Certificate = 4: "its certificate is for another node",
    /// No version is spoken by both.
    Version = 5: "it speaks no version of the protocol that this node speaks",
    /// A later process of that node has been here.
    OldIncarnation = 6: "a later process of that node has connected already",
    /// A later connection of that process has been here.
    OldConnection = 7: "a later connection of that process has been made already",
    /// The numbers of core messages contradict what was said before.
    Numbers = 8: "its count of messages contradicts what it said before",
    /// It was a node of the cluster, and is none any more.
    Removed = 9: "it was removed from the cluster",
}

#[cfg(test)]
#[path = "frame_tests.rs"]
mod tests;
