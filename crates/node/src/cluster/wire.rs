//! What nodes say to each other, as bytes: one byte that says what it is, then that.
//!
//! ```text
//! kind  behind it
//! 1     a replica's message (replication.md)
//! 2     2 bytes: the core it is for, FFFF for that of its shard, FFFE for all; a frame between cores (format.md)
//! 3     a status: JSON (guidance.md)
//! 4     a change of the guidance: 8 bytes number, 1 byte kind, 2 bytes length of a name, the name, then
//!       1 deploy: a tar | 2 remove | 3 drain | 4 stay | 5 prepare: the content now, as a name, and a tar
//!       6 take: 4 bytes deployment | 7 give up: the same | 8 a table: 8 bytes version before, and its bytes
//!       9 add a node: where it hears others | 10 remove a node
//!       11 add a node: where it hears others, as a name, and its rack
//!       12 deploy instead: the content now, as a name, and a tar
//!       A node's name is its number, and where it serves in kinds 9 and 11.
//! 5     the answer: 8 bytes number, then 1 and 8 bytes, or 0 and an error: 2 bytes length, code, message
//! 6     about a snapshot: 2 bytes shard, 8 bytes transfer, then
//!       1 and 8 bytes LSN: offered | 2 and 4 bytes number: that part is wanted | 3: refused
//!       4, 4 bytes number, 4 bytes CRC-32C of the rest, a chunk of rows (format of `millrace_store`) | 5 and 4 bytes number: the end
//! 7     about a body of an object: 2 bytes shard, 8 bytes number, 8 bytes question (0: none), then what `body_word.rs` says
//! 8     about standing still: 8 bytes number, then 1: stand still | 2 and for each shard 2 bytes number, 8 bytes epoch,
//!       8 bytes last LSN: it does | 3: it does not | 4: go on
//! 9     about a copy for a backup: 8 bytes number, then what `copy_word.rs` says
//! ```
//!
//! Numbers are little-endian. Reading any bytes gives a word or nothing, and never panics.

use bytes::Bytes;
use millrace_api::objects::ChecksumAlgorithm;
use millrace_base::{Error, ErrorCode, Lsn, ShardId};
use millrace_blobs::BodyName;
use millrace_checksum::checksum;
use millrace_driver::{Destination, Frame, SnapshotPart, Standing};
use millrace_guidance::Status;
use millrace_replica::{Epoch, Message, NodeId};

use super::{BodyWord, Change, CopyWord, StillWord};

const REPLICA: u8 = 1;
const FRAME: u8 = 2;
const STATUS: u8 = 3;
const CHANGE: u8 = 4;
const ANSWER: u8 = 5;
const SNAPSHOT: u8 = 6;
const BODY: u8 = 7;
const STILL: u8 = 8;
const COPY: u8 = 9;

const OF_SHARD: u16 = u16::MAX;
const EVERY: u16 = u16::MAX - 1;

/// One thing that a node says to another.
pub(crate) enum Word {
    Replica(ShardId, Message),
    Frame(For, Frame),
    Status(Status),
    Change(u64, Change),
    Answer(u64, Result<u64, Error>),
    /// About a snapshot of a shard, and which transfer of it.
    Snapshot(ShardId, u64, SnapshotPart),
    /// About a body, and to which question it belongs.
    Body(BodyName, u64, BodyWord),
    /// About standing still for a backup, and for which.
    Still(u64, StillWord),
    /// About a copy of what a node has, and for which backup.
    Copy(u64, CopyWord),
}

fn encode_part(part: &SnapshotPart, out: &mut Vec<u8>) {
    match part {
        SnapshotPart::Offer { at } => {
            out.push(1);
            out.extend_from_slice(&at.0.to_le_bytes());
        }
        SnapshotPart::Wanted { number } => {
            out.push(2);
            out.extend_from_slice(&number.to_le_bytes());
        }
        SnapshotPart::Refused => out.push(3),
        SnapshotPart::Rows { number, rows } => {
            out.push(4);
            out.extend_from_slice(&number.to_le_bytes());
            out.extend_from_slice(&checksum(ChecksumAlgorithm::Crc32c, rows));
            out.extend_from_slice(rows);
        }
        SnapshotPart::End { number } => {
            out.push(5);
            out.extend_from_slice(&number.to_le_bytes());
        }
    }
}

fn decode_part(mut rest: Bytes) -> Option<SnapshotPart> {
    match take(&mut rest)? {
        [1] if rest.len() == 8 => Some(SnapshotPart::Offer { at: Lsn(u64::from_le_bytes(take(&mut rest)?)) }),
        [2] if rest.len() == 4 => Some(SnapshotPart::Wanted { number: u32::from_le_bytes(take(&mut rest)?) }),
        [3] if rest.is_empty() => Some(SnapshotPart::Refused),
        [4] => {
            let (number, check) = (u32::from_le_bytes(take(&mut rest)?), take::<4>(&mut rest)?);
            (checksum(ChecksumAlgorithm::Crc32c, &rest) == check).then_some(SnapshotPart::Rows { number, rows: rest })
        }
        [5] if rest.len() == 4 => Some(SnapshotPart::End { number: u32::from_le_bytes(take(&mut rest)?) }),
        _ => None,
    }
}

/// For which cores of a node a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum For {
    /// That of the shard it is about.
    Shard,
    /// That one.
    Core(u16),
    Every,
}

impl From<Destination> for For {
    fn from(destination: Destination) -> Self {
        match destination {
            Destination::Shard(_) => For::Shard,
            // A node has no so many cores that its last ones would be taken for something else.
            Destination::Core(core) => u16::try_from(core).map_or(For::Shard, For::Core),
            Destination::Every => For::Every,
        }
    }
}

impl Word {
    pub(crate) fn encode(&self) -> Bytes {
        let mut out = Vec::new();
        match self {
            Word::Replica(shard, message) => {
                out.push(REPLICA);
                message.encode(*shard, &mut out);
            }
            Word::Frame(core, frame) => {
                out.push(FRAME);
                let core = match core {
                    For::Shard => OF_SHARD,
                    For::Every => EVERY,
                    For::Core(core) => *core,
                };
                out.extend_from_slice(&core.to_le_bytes());
                out.extend_from_slice(&frame.encode());
            }
            Word::Status(status) => {
                out.push(STATUS);
                out.extend_from_slice(&status.encode());
            }
            Word::Change(number, change) => {
                out.push(CHANGE);
                out.extend_from_slice(&number.to_le_bytes());
                put_change(change, &mut out);
            }
            Word::Snapshot(shard, transfer, part) => {
                out.push(SNAPSHOT);
                out.extend_from_slice(&shard.0.to_le_bytes());
                out.extend_from_slice(&transfer.to_le_bytes());
                encode_part(part, &mut out);
            }
            Word::Body(BodyName { shard, number }, question, word) => {
                out.push(BODY);
                out.extend_from_slice(&shard.0.to_le_bytes());
                out.extend_from_slice(&number.to_le_bytes());
                out.extend_from_slice(&question.to_le_bytes());
                word.encode(&mut out);
            }
            Word::Still(number, word) => {
                out.push(STILL);
                out.extend_from_slice(&number.to_le_bytes());
                put_still(word, &mut out);
            }
            Word::Copy(number, word) => {
                out.push(COPY);
                out.extend_from_slice(&number.to_le_bytes());
                word.encode(&mut out);
            }
            Word::Answer(number, result) => {
                out.push(ANSWER);
                out.extend_from_slice(&number.to_le_bytes());
                match result {
                    Ok(value) => {
                        out.push(1);
                        out.extend_from_slice(&value.to_le_bytes());
                    }
                    Err(error) => {
                        out.push(0);
                        put_name(error.code.as_str(), &mut out);
                        out.extend_from_slice(error.message.as_bytes());
                    }
                }
            }
        }
        out.into()
    }

    /// `None` for bytes that are no word of a known kind.
    pub(crate) fn decode(bytes: &Bytes) -> Option<Self> {
        let (&kind, _) = bytes.split_first()?;
        let mut rest = bytes.slice(1..);
        match kind {
            REPLICA => Message::decode(&rest).ok().map(|(shard, message)| Word::Replica(shard, message)),
            FRAME => {
                let core = match u16::from_le_bytes(take(&mut rest)?) {
                    OF_SHARD => For::Shard,
                    EVERY => For::Every,
                    core => For::Core(core),
                };
                Frame::decode(&rest).ok().map(|frame| Word::Frame(core, frame))
            }
            STATUS => Status::decode(&rest).ok().map(Word::Status),
            CHANGE => {
                let number = u64::from_le_bytes(take(&mut rest)?);
                take_change(rest).map(|change| Word::Change(number, change))
            }
            ANSWER => {
                let number = u64::from_le_bytes(take(&mut rest)?);
                take_result(rest).map(|result| Word::Answer(number, result))
            }
            SNAPSHOT => {
                let (shard, transfer) =
                    (ShardId(u16::from_le_bytes(take(&mut rest)?)), u64::from_le_bytes(take(&mut rest)?));
                decode_part(rest).map(|part| Word::Snapshot(shard, transfer, part))
            }
            BODY => {
                let shard = ShardId(u16::from_le_bytes(take(&mut rest)?));
                let name = BodyName { shard, number: u64::from_le_bytes(take(&mut rest)?) };
                let question = u64::from_le_bytes(take(&mut rest)?);
                BodyWord::decode(rest).map(|word| Word::Body(name, question, word))
            }
            STILL => {
                let number = u64::from_le_bytes(take(&mut rest)?);
                take_still(rest).map(|word| Word::Still(number, word))
            }
            COPY => {
                let number = u64::from_le_bytes(take(&mut rest)?);
                CopyWord::decode(rest).map(|word| Word::Copy(number, word))
            }
            _ => None,
        }
    }
}

fn put_still(word: &StillWord, out: &mut Vec<u8>) {
    match word {
        StillWord::Stand => out.push(1),
        StillWord::Standing(standing) => {
            out.push(2);
            put_standing(standing, out);
        }
        StillWord::Busy => out.push(3),
        StillWord::GoOn => out.push(4),
    }
}

fn take_still(mut rest: Bytes) -> Option<StillWord> {
    match take(&mut rest)? {
        [1] if rest.is_empty() => Some(StillWord::Stand),
        [2] => take_standing(rest).map(StillWord::Standing),
        [3] if rest.is_empty() => Some(StillWord::Busy),
        [4] if rest.is_empty() => Some(StillWord::GoOn),
        _ => None,
    }
}

pub(super) fn put_standing(standing: &[Standing], out: &mut Vec<u8>) {
    for Standing { shard, epoch, last } in standing {
        out.extend_from_slice(&shard.0.to_le_bytes());
        out.extend_from_slice(&epoch.0.to_le_bytes());
        out.extend_from_slice(&last.0.to_le_bytes());
    }
}

pub(super) fn take_standing(mut rest: Bytes) -> Option<Vec<Standing>> {
    let mut standing = Vec::new();
    while !rest.is_empty() {
        let shard = ShardId(u16::from_le_bytes(take(&mut rest)?));
        let epoch = Epoch(u64::from_le_bytes(take(&mut rest)?));
        standing.push(Standing { shard, epoch, last: Lsn(u64::from_le_bytes(take(&mut rest)?)) });
    }
    Some(standing)
}

fn put_name(name: &str, out: &mut Vec<u8>) {
    let length = u16::try_from(name.len()).unwrap_or(0);
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(&name.as_bytes()[..usize::from(length)]);
}

fn put_change(change: &Change, out: &mut Vec<u8>) {
    let (kind, name) = match change {
        // Nodes of an earlier version understand the first.
        Change::Deploy { app, expected, .. } => (if expected.is_none() { 1 } else { 12 }, app.clone()),
        Change::Remove { app } => (2, app.clone()),
        Change::Drain { node, is_draining } => (if *is_draining { 3 } else { 4 }, node.to_string()),
        Change::Prepare { app, .. } => (5, app.clone()),
        Change::Settle { app, is_taken, .. } => (if *is_taken { 6 } else { 7 }, app.clone()),
        Change::Table { name, .. } => (8, name.clone()),
        // Nodes that know no racks understand the first.
        Change::AddNode { http, rack, .. } => (if rack.is_empty() { 9 } else { 11 }, http.clone()),
        Change::RemoveNode { node } => (10, node.to_string()),
    };
    out.push(kind);
    put_name(&name, out);
    match change {
        Change::Deploy { expected: None, tar, .. } => out.extend_from_slice(tar),
        Change::Deploy { expected: Some(expected), tar, .. } | Change::Prepare { expected, tar, .. } => {
            put_name(expected, out);
            out.extend_from_slice(tar);
        }
        Change::Settle { deployment, .. } => out.extend_from_slice(&deployment.to_le_bytes()),
        Change::Table { before, bytes, .. } => {
            out.extend_from_slice(&before.to_le_bytes());
            out.extend_from_slice(bytes);
        }
        Change::AddNode { peer, rack, .. } if rack.is_empty() => out.extend_from_slice(peer.as_bytes()),
        Change::AddNode { peer, rack, .. } => {
            put_name(peer, out);
            out.extend_from_slice(rack.as_bytes());
        }
        Change::Remove { .. } | Change::Drain { .. } | Change::RemoveNode { .. } => {}
    }
}

pub(super) fn take<const N: usize>(rest: &mut Bytes) -> Option<[u8; N]> {
    let taken = *rest.first_chunk::<N>()?;
    *rest = rest.slice(N..);
    Some(taken)
}

fn take_name(rest: &mut Bytes) -> Option<String> {
    let length = usize::from(u16::from_le_bytes(take(rest)?));
    let name = std::str::from_utf8(rest.get(..length)?).ok()?.to_owned();
    *rest = rest.slice(length..);
    Some(name)
}

fn text(bytes: &[u8]) -> Option<String> {
    Some(std::str::from_utf8(bytes).ok()?.to_owned())
}

fn take_change(mut rest: Bytes) -> Option<Change> {
    let [kind] = take(&mut rest)?;
    let name = take_name(&mut rest)?;
    match kind {
        1 => Some(Change::Deploy { app: name, expected: None, tar: rest }),
        12 => take_name(&mut rest).map(|expected| Change::Deploy { app: name, expected: Some(expected), tar: rest }),
        2 if rest.is_empty() => Some(Change::Remove { app: name }),
        3 | 4 if rest.is_empty() => Some(Change::Drain { node: NodeId(name.parse().ok()?), is_draining: kind == 3 }),
        5 => take_name(&mut rest).map(|expected| Change::Prepare { app: name, expected, tar: rest }),
        6 | 7 if rest.len() == 4 => {
            let deployment = u32::from_le_bytes(take(&mut rest)?);
            Some(Change::Settle { app: name, deployment, is_taken: kind == 6 })
        }
        8 => {
            let before = u64::from_le_bytes(take(&mut rest)?);
            Some(Change::Table { name, before, bytes: rest })
        }
        9 => Some(Change::AddNode { http: name, peer: text(&rest)?, rack: String::new() }),
        11 => take_name(&mut rest).and_then(|peer| Some(Change::AddNode { http: name, peer, rack: text(&rest)? })),
        10 if rest.is_empty() => Some(Change::RemoveNode { node: NodeId(name.parse().ok()?) }),
        _ => None,
    }
}

fn take_result(mut rest: Bytes) -> Option<Result<u64, Error>> {
    match take(&mut rest)? {
        [1] if rest.len() == 8 => Some(Ok(u64::from_le_bytes(take(&mut rest)?))),
        [0] => {
            let code = ErrorCode::parse(&take_name(&mut rest)?).unwrap_or(ErrorCode::Internal);
            Some(Err(Error::new(code, String::from_utf8_lossy(&rest).into_owned())))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use millrace_driver::CoreMessage;
    use millrace_shard::Token;

    use super::*;

    fn added(rack: &str) -> Change {
        Change::AddNode { http: "10.0.0.1:80".to_owned(), peer: "10.0.0.1:70".to_owned(), rack: rack.to_owned() }
    }

    fn deployed_instead(of: &str) -> Change {
        Change::Deploy { app: "bank".to_owned(), expected: Some(of.to_owned()), tar: Bytes::from_static(b"tar") }
    }

    #[test]
    fn what_is_deployed_instead_of_a_content_is_the_golden_bytes() {
        let golden = b"\x04\x01\0\0\0\0\0\0\0\x0c\x04\0bank\x04\x0000fftar";
        assert_eq!(&Word::Change(1, deployed_instead("00ff")).encode()[..], golden);
    }

    fn words() -> Vec<Word> {
        let reply = CoreMessage::Reply { token: Token(7), result: Err(Error::new(ErrorCode::Aborted, "no")) };
        let tar = Bytes::from_static(b"tar");
        let name = BodyName { shard: ShardId(3), number: 7 << 56 };
        let bodies = super::super::body_word::examples().into_iter().map(|word| Word::Body(name, 5, word));
        let mut words: Vec<Word> = bodies.collect();
        words.extend(super::super::copy_word::examples().into_iter().map(|word| Word::Copy(7, word)));
        words.extend([
            Word::Replica(ShardId(3), Message::Resync { nonce: 9 }),
            Word::Frame(For::Core(2), Frame::Message(reply.clone())),
            Word::Frame(For::Every, Frame::Message(reply.clone())),
            Word::Frame(For::Shard, Frame::Message(reply)),
            Word::Status(Status { incarnation: 5, guidance_epoch: 6, ..Status::default() }),
            Word::Change(1, Change::Deploy { app: "bank".to_owned(), expected: None, tar: tar.clone() }),
            Word::Change(1, deployed_instead("00ff")),
            Word::Change(1, deployed_instead("")),
            Word::Change(1, Change::Table { name: "users".to_owned(), before: 3, bytes: tar.clone() }),
            Word::Change(1, Change::Prepare { app: "bank".to_owned(), expected: "00ff".to_owned(), tar }),
            Word::Change(1, Change::Settle { app: "bank".to_owned(), deployment: 7, is_taken: true }),
            Word::Change(1, Change::Settle { app: "bank".to_owned(), deployment: 7, is_taken: false }),
            Word::Change(2, Change::Remove { app: "bank".to_owned() }),
            Word::Change(3, Change::Drain { node: NodeId(2), is_draining: true }),
            Word::Change(4, Change::Drain { node: NodeId(2), is_draining: false }),
            Word::Change(5, added("")),
            Word::Change(5, added("east")),
            Word::Change(6, Change::RemoveNode { node: NodeId(2) }),
            Word::Answer(5, Ok(9)),
            Word::Answer(6, Err(Error::new(ErrorCode::AppRefused, "a.ts: no"))),
            Word::Still(7, StillWord::Stand),
            Word::Still(
                7,
                StillWord::Standing(vec![Standing { shard: ShardId(3), epoch: Epoch(1 << 40), last: Lsn(8) }; 2]),
            ),
            Word::Still(7, StillWord::Busy),
            Word::Still(7, StillWord::GoOn),
            Word::Snapshot(ShardId(3), 7, SnapshotPart::Offer { at: Lsn(8) }),
            Word::Snapshot(ShardId(3), 7, SnapshotPart::Wanted { number: 2 }),
            Word::Snapshot(ShardId(3), 7, SnapshotPart::Refused),
            Word::Snapshot(ShardId(3), 7, SnapshotPart::Rows { number: 2, rows: Bytes::from_static(b"rows") }),
            Word::Snapshot(ShardId(3), 7, SnapshotPart::End { number: 3 }),
        ]);
        words
    }

    #[test]
    fn what_is_said_is_understood() {
        for word in words() {
            let bytes = word.encode();
            let again = Word::decode(&bytes).expect("a word");
            assert_eq!(again.encode(), bytes);
        }
    }

    #[test]
    fn rows_that_were_changed_on_their_way_are_nothing() {
        let word = Word::Snapshot(ShardId(3), 7, SnapshotPart::Rows { number: 2, rows: Bytes::from_static(b"rows") });
        let mut bytes = word.encode().to_vec();
        *bytes.last_mut().expect("it has some") ^= 1;
        assert!(Word::decode(&bytes.into()).is_none());
    }

    #[test]
    fn anything_else_is_nothing() {
        for word in words() {
            let bytes = word.encode();
            for cut in 0..bytes.len() {
                // What is cut may be a shorter word, such as one with a shorter tar; it never panics.
                let _ = Word::decode(&bytes.slice(..cut));
            }
        }
        for bytes in [
            &b""[..],
            b"\0",
            b"\x06abc",
            b"\x02\xff\xff\x09",
            b"\x04\0\0\0\0\0\0\0\0\x05\0\0",
            b"\x04\0\0\0\0\0\0\0\0\x06\0\0\x01",
        ] {
            assert!(Word::decode(&Bytes::copy_from_slice(bytes)).is_none(), "{bytes:?}");
        }
    }
}
