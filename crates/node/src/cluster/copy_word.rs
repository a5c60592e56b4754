//! What nodes say to each other about copies for a backup that one of them takes, as bytes.
//!
//! ```text
//! 1   hold what a copy needs                                6   it is not wanted any more
//! 2   take the moment: shards and where they are            7   done: 1 byte, the step (1 to 3)
//! 3   get the bodies that you lack: 2 bytes for each node   8   it failed: the reason
//!     that may have them                                    9   a piece of it: 4 bytes number, some bytes; none: the end
//! 4   give a piece of it: 4 bytes number
//! 5   it is still wanted
//! ```
//!
//! Where a shard is takes 18 bytes, as in kind 8 of `wire.rs`. Bytes of a piece have their CRC-32C before them. Numbers are
//! little-endian. Reading any bytes gives a word or nothing, and never panics.

use bytes::Bytes;
use millrace_api::objects::ChecksumAlgorithm;
use millrace_checksum::checksum;
use millrace_driver::Standing;
use millrace_replica::NodeId;

use super::wire::{put_standing, take, take_standing};

/// A step of a copy that the other node answers once it is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum CopyStep {
    Hold = 1,
    Take = 2,
    Complete = 3,
}

/// See the module's documentation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CopyWord {
    Hold,
    /// Once the node has all that these owners have.
    Take(Vec<Standing>),
    Complete(Vec<NodeId>),
    Give(u32),
    Stay,
    Forget,
    Done(CopyStep),
    Failed(String),
    Piece(u32, Bytes),
}

impl CopyWord {
    /// Whether it answers a question.
    pub(crate) fn is_answer(&self) -> bool {
        matches!(self, CopyWord::Done(_) | CopyWord::Failed(_) | CopyWord::Piece(..))
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        match self {
            CopyWord::Hold => out.push(1),
            CopyWord::Take(standing) => {
                out.push(2);
                put_standing(standing, out);
            }
            CopyWord::Complete(nodes) => {
                out.push(3);
                nodes.iter().for_each(|node| out.extend_from_slice(&node.0.to_le_bytes()));
            }
            CopyWord::Give(number) => {
                out.push(4);
                out.extend_from_slice(&number.to_le_bytes());
            }
            CopyWord::Stay => out.push(5),
            CopyWord::Forget => out.push(6),
            CopyWord::Done(step) => out.extend_from_slice(&[7, *step as u8]),
            CopyWord::Failed(reason) => {
                out.push(8);
                out.extend_from_slice(reason.as_bytes());
            }
            CopyWord::Piece(number, bytes) => {
                out.push(9);
                out.extend_from_slice(&number.to_le_bytes());
                out.extend_from_slice(&checksum(ChecksumAlgorithm::Crc32c, bytes));
                out.extend_from_slice(bytes);
            }
        }
    }

    pub(super) fn decode(mut rest: Bytes) -> Option<Self> {
        match take(&mut rest)? {
            [1] if rest.is_empty() => Some(CopyWord::Hold),
            [2] => take_standing(rest).map(CopyWord::Take),
            [3] => {
                let mut nodes = Vec::new();
                while !rest.is_empty() {
                    nodes.push(NodeId(u16::from_le_bytes(take(&mut rest)?)));
                }
                Some(CopyWord::Complete(nodes))
            }
            [4] if rest.len() == 4 => Some(CopyWord::Give(u32::from_le_bytes(take(&mut rest)?))),
            [5] if rest.is_empty() => Some(CopyWord::Stay),
            [6] if rest.is_empty() => Some(CopyWord::Forget),
            [7] if rest.len() == 1 => match take(&mut rest)? {
                [1] => Some(CopyWord::Done(CopyStep::Hold)),
                [2] => Some(CopyWord::Done(CopyStep::Take)),
                [3] => Some(CopyWord::Done(CopyStep::Complete)),
                _ => None,
            },
            [8] => Some(CopyWord::Failed(String::from_utf8_lossy(&rest).into_owned())),
            [9] => {
                let (number, check) = (u32::from_le_bytes(take(&mut rest)?), take::<4>(&mut rest)?);
                (checksum(ChecksumAlgorithm::Crc32c, &rest) == check).then_some(CopyWord::Piece(number, rest))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
pub(super) fn examples() -> Vec<CopyWord> {
    use millrace_base::{Lsn, ShardId};
    use millrace_replica::Epoch;

    let standing = Standing { shard: ShardId(3), epoch: Epoch(1 << 40), last: Lsn(8) };
    vec![
        CopyWord::Hold,
        CopyWord::Take(vec![standing; 2]),
        CopyWord::Complete(vec![NodeId(2), NodeId(5)]),
        CopyWord::Give(7),
        CopyWord::Stay,
        CopyWord::Forget,
        CopyWord::Done(CopyStep::Hold),
        CopyWord::Done(CopyStep::Take),
        CopyWord::Done(CopyStep::Complete),
        CopyWord::Failed("no space".to_owned()),
        CopyWord::Piece(7, Bytes::from_static(b"bytes")),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_come_back_and_a_changed_piece_is_nothing() {
        for word in examples() {
            let mut bytes = Vec::new();
            word.encode(&mut bytes);
            assert_eq!(CopyWord::decode(bytes.clone().into()), Some(word.clone()));
            if matches!(word, CopyWord::Piece(..)) {
                *bytes.last_mut().expect("it has some") ^= 1;
                assert_eq!(CopyWord::decode(bytes.into()), None);
            }
        }
    }
}
