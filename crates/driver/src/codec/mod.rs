//! Frames as bytes, for peers on other machines and for the simulator. The table is in `docs/internals/format.md`.
//!
//! Promises: what is encoded decodes to the same; decoding any bytes gives a frame or an error, never panics, and allocates
//! no more than the bytes justify.

mod questions;
mod records;
mod requests;
mod transactions;
mod wire;

use millrace_format::DecodeError;
use millrace_replica::{Epoch, NodeId};

use crate::message::{CoreAddress, CoreMessage, ShardMail};
use wire::{Reader, Wire, wire_enum, wire_newtype};

/// Version 2 is that of shards that fail alone: incarnations, how long votes hold, commits asked back. Version 1 was never
/// spoken between processes, so nobody has to understand it. A change from now on is a new version, and a node goes on
/// reading the one before: two versions of the program run beside each other while a cluster is upgraded.
const VERSION: u8 = 2;

/// All that one core sends to another.
#[derive(Clone)]
pub enum Frame {
    /// What somebody waits for.
    Message(CoreMessage),
    /// Mail between shards.
    Mail(ShardMail),
}

impl Frame {
    /// The frame as bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        match self {
            Frame::Message(message) => message.put(&mut out),
            Frame::Mail(mail) => mail.put(&mut out),
        }
        out
    }

    /// Reads a frame.
    ///
    /// # Errors
    /// [`DecodeError`] for bytes that are not exactly one frame of a known version.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        match u8::get(&mut reader)? {
            VERSION => {}
            other => return Err(DecodeError::Version(other)),
        }
        // The kinds of messages and of mail are numbered together.
        let frame = match reader.peek()? {
            1..=3 | 6..=9 => Frame::Message(CoreMessage::get(&mut reader)?),
            _ => Frame::Mail(ShardMail::get(&mut reader)?),
        };
        reader.end()?;
        Ok(frame)
    }
}

wire_enum!(CoreMessage {
    1 => Request { from, token, job, since_ns },
    2 => Reply { token, result },
    3 => Peer { to, message },
    6 => NotHere { token, job, since_ns },
    7 => Opened { shard, epoch, owner },
    8 => Detour { node, nodes_left, to, message },
    9 => OpenedDetour { node, shard, epoch, owner },
});
wire_enum!(ShardMail {
    4 => Message { to, delivery },
    5 => Arrived { to, from, sequence },
});
wire_newtype!(NodeId(u16), Epoch(u64));

/// Eight bytes: the core in the lower two, then the node in two, then nothing. So a core of a node that stands alone is its
/// number.
impl Wire for CoreAddress {
    fn put(&self, out: &mut Vec<u8>) {
        let core = u16::try_from(self.core).expect("a node has 1 to 65,536 cores");
        (u64::from(self.node.0) << 16 | u64::from(core)).put(out);
    }

    fn get(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let [core, node, 0, 0] = [0, 16, 32, 48].map({
            let packed = u64::get(reader)?;
            move |shift| (packed >> shift) as u16
        }) else {
            return Err(DecodeError::Length);
        };
        Ok(Self { node: NodeId(node), core: usize::from(core) })
    }
}
