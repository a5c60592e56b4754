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

use crate::message::{CoreMessage, ShardMail};
use wire::{Reader, Wire, wire_enum};

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
            1..=3 => Frame::Message(CoreMessage::get(&mut reader)?),
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
});
wire_enum!(ShardMail {
    4 => Message { to, delivery },
    5 => Arrived { to, from, sequence },
});
