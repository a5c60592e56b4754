//! What nodes say to each other about bodies of objects, as bytes.
//!
//! ```text
//! 1   hold it: 8 bytes length, owner, its first bytes       6   its bytes: 8 bytes length, owner, some bytes
//! 2   read it: 8 bytes offset, 4 bytes how many             7   names: 1 if there are more, and 10 for each: shard 2, number 8
//! 3   list those behind this one                            8   it is durable here
//! 4   an entry refers to it                                 9   it is on its way to here
//! 5   nothing refers to it                                  10  it is not here
//! ```
//!
//! An owner is 2 bytes length and the owner. Bytes of a body have their CRC-32C before them. Numbers are little-endian. Reading
//! any bytes gives a word or nothing, and never panics.

use bytes::Bytes;
use millrace_api::objects::ChecksumAlgorithm;
use millrace_base::ShardId;
use millrace_blobs::BodyName;
use millrace_checksum::checksum;

use super::wire::take;

/// See the module's documentation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BodyWord {
    Hold { length: u64, owner: Bytes, first: Bytes },
    Read { offset: u64, bytes: u32 },
    List,
    Settled,
    Free,
    Data { length: u64, owner: Bytes, bytes: Bytes },
    Names { has_more: bool, names: Vec<BodyName> },
    Held,
    Coming,
    Lacks,
}

impl BodyWord {
    /// Whether it answers a question.
    pub(super) fn is_answer(&self) -> bool {
        use BodyWord::{Coming, Data, Held, Lacks, Names};
        matches!(self, Data { .. } | Names { .. } | Held | Coming | Lacks)
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        match self {
            BodyWord::Hold { length, owner, first } => put_bytes(1, *length, (owner, first), out),
            BodyWord::Read { offset, bytes } => {
                out.push(2);
                out.extend_from_slice(&offset.to_le_bytes());
                out.extend_from_slice(&bytes.to_le_bytes());
            }
            BodyWord::List => out.push(3),
            BodyWord::Settled => out.push(4),
            BodyWord::Free => out.push(5),
            BodyWord::Data { length, owner, bytes } => put_bytes(6, *length, (owner, bytes), out),
            BodyWord::Names { has_more, names } => {
                out.extend_from_slice(&[7, u8::from(*has_more)]);
                for BodyName { shard, number } in names {
                    out.extend_from_slice(&shard.0.to_le_bytes());
                    out.extend_from_slice(&number.to_le_bytes());
                }
            }
            BodyWord::Held => out.push(8),
            BodyWord::Coming => out.push(9),
            BodyWord::Lacks => out.push(10),
        }
    }

    pub(super) fn decode(mut rest: Bytes) -> Option<Self> {
        match take(&mut rest)? {
            [1] => take_bytes(rest).map(|(length, owner, first)| BodyWord::Hold { length, owner, first }),
            [2] if rest.len() == 12 => {
                let (offset, bytes) = (u64::from_le_bytes(take(&mut rest)?), u32::from_le_bytes(take(&mut rest)?));
                Some(BodyWord::Read { offset, bytes })
            }
            [6] => take_bytes(rest).map(|(length, owner, bytes)| BodyWord::Data { length, owner, bytes }),
            [7] => {
                let [has_more] = take(&mut rest)?;
                let mut names = Vec::with_capacity(rest.len() / 10);
                while !rest.is_empty() {
                    let shard = ShardId(u16::from_le_bytes(take(&mut rest)?));
                    names.push(BodyName { shard, number: u64::from_le_bytes(take(&mut rest)?) });
                }
                (has_more <= 1).then_some(BodyWord::Names { has_more: has_more == 1, names })
            }
            [kind] if rest.is_empty() => match kind {
                3 => Some(BodyWord::List),
                4 => Some(BodyWord::Settled),
                5 => Some(BodyWord::Free),
                8 => Some(BodyWord::Held),
                9 => Some(BodyWord::Coming),
                10 => Some(BodyWord::Lacks),
                _ => None,
            },
            _ => None,
        }
    }
}

fn put_bytes(kind: u8, length: u64, (owner, bytes): (&Bytes, &Bytes), out: &mut Vec<u8>) {
    out.push(kind);
    out.extend_from_slice(&length.to_le_bytes());
    // Owners are far shorter: the store refuses others.
    let owner_bytes = u16::try_from(owner.len()).unwrap_or(0);
    out.extend_from_slice(&owner_bytes.to_le_bytes());
    out.extend_from_slice(&owner[..usize::from(owner_bytes)]);
    out.extend_from_slice(&checksum(ChecksumAlgorithm::Crc32c, bytes));
    out.extend_from_slice(bytes);
}

fn take_bytes(mut rest: Bytes) -> Option<(u64, Bytes, Bytes)> {
    let length = u64::from_le_bytes(take(&mut rest)?);
    let owner_bytes = usize::from(u16::from_le_bytes(take(&mut rest)?));
    if rest.len() < owner_bytes {
        return None;
    }
    let owner = rest.split_to(owner_bytes);
    let check = take::<4>(&mut rest)?;
    (checksum(ChecksumAlgorithm::Crc32c, &rest) == check).then_some((length, owner, rest))
}

#[cfg(test)]
pub(super) fn examples() -> Vec<BodyWord> {
    let (owner, bytes) = (Bytes::from_static(b"owner"), Bytes::from_static(b"bytes"));
    let name = BodyName { shard: ShardId(3), number: 1 << 40 };
    vec![
        BodyWord::Hold { length: 9, owner: owner.clone(), first: bytes.clone() },
        BodyWord::Read { offset: 512, bytes: 7 },
        BodyWord::List,
        BodyWord::Settled,
        BodyWord::Free,
        BodyWord::Data { length: 9, owner, bytes },
        BodyWord::Names { has_more: true, names: vec![name] },
        BodyWord::Held,
        BodyWord::Coming,
        BodyWord::Lacks,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_were_changed_on_their_way_are_nothing() {
        for word in examples() {
            let mut bytes = Vec::new();
            word.encode(&mut bytes);
            assert_eq!(BodyWord::decode(bytes.clone().into()), Some(word.clone()));
            if matches!(word, BodyWord::Hold { .. } | BodyWord::Data { .. }) {
                *bytes.last_mut().expect("it has some") ^= 1;
                assert_eq!(BodyWord::decode(bytes.into()), None);
            }
        }
    }
}
