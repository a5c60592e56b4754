//! The bytes of messages between replicas are those of the golden file, and nothing else decodes.

use millrace_base::ShardId;
use proptest::prelude::*;

use super::*;

const GOLDEN: &str = include_str!("../tests/golden/messages.txt");

fn id(epoch: u64, lsn: u64) -> EntryId {
    EntryId::new(Epoch(epoch), Lsn(lsn))
}

/// One message of each kind, and those whose parts may be absent.
fn messages() -> Vec<(&'static str, Message)> {
    let (epoch, round) = (Epoch(5), 7);
    let set = ReplicaSet::of([NodeId(1), NodeId(2), NodeId(3)]);
    let entries = vec![
        LogEntry { id: id(4, 3), kind: EntryKind::Data, bytes: Bytes::from_static(b"abc") },
        LogEntry { id: id(5, 4), kind: EntryKind::EpochStart, bytes: Bytes::new() },
    ];
    let promised = Promised { epoch, to: NodeId(2) };
    let append =
        |entries| Message::Append { epoch, round, asks_lease: true, committed: Lsn(2), prev: id(4, 2), entries };
    vec![
        ("append", append(entries.clone())),
        ("heartbeat", append(Vec::new())),
        ("ack", Message::Ack { epoch, round, durable: Lsn(4) }),
        ("lacks", Message::Lacks { epoch, round, have: id(4, 1) }),
        ("refusal", Message::Refusal { promised }),
        ("promise-request", Message::PromiseRequest { epoch }),
        ("promise", Message::Promise { epoch, last: id(4, 3), set_lsn: Lsn(1), set: set.clone() }),
        ("fetch", Message::Fetch { epoch, after: id(4, 2) }),
        ("entries", Message::Entries { epoch, prev: id(4, 2), entries }),
        ("trimmed", Message::Trimmed { epoch }),
        ("snapshot", Message::Snapshot { epoch, round, at: id(4, 9), set_lsn: Lsn(1), set: set.clone() }),
        ("pre-vote", Message::PreVote { epoch }),
        ("pre-vote-reply", Message::PreVoteReply { epoch, is_granted: true }),
        ("resync", Message::Resync { nonce: 11 }),
        ("resync-answer", Message::ResyncAnswer { nonce: 11, promised, owner_last: None, set: set.clone() }),
        ("resync-answer-owner", Message::ResyncAnswer { nonce: 11, promised, owner_last: Some(id(5, 4)), set }),
    ]
}

fn encoded(message: &Message) -> Bytes {
    let mut bytes = Vec::new();
    message.encode(ShardId(9), &mut bytes);
    Bytes::from(bytes)
}

#[test]
fn messages_have_the_documented_bytes() {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let lines: String =
        messages().iter().map(|(name, message)| format!("{name} {}\n", hex(&encoded(message)))).collect();
    assert_eq!(lines, GOLDEN, "the file would be:\n{lines}");
}

#[test]
fn what_is_encoded_decodes_to_the_same_and_what_is_cut_or_longer_is_refused() {
    for (name, message) in messages() {
        let bytes = encoded(&message);
        assert_eq!(Message::decode(&bytes), Ok((ShardId(9), message)), "{name}");
        for length in 0..bytes.len() {
            assert!(Message::decode(&bytes.slice(..length)).is_err(), "{name}, the first {length} bytes");
        }
        let longer = [&bytes[..], &[0]].concat();
        assert!(Message::decode(&Bytes::from(longer)).is_err(), "{name} and one more byte");
    }
    let newer = [&[2], &encoded(&messages()[0].1)[1..]].concat();
    assert_eq!(Message::decode(&Bytes::from(newer)), Err(DecodeError::Version(2)));
}

proptest! {
    #[test]
    fn any_bytes_decode_to_a_message_of_these_bytes_or_to_an_error(
        which in 0..messages().len(),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let mut bytes = encoded(&messages()[which].1).to_vec();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        if let Ok((shard, message)) = Message::decode(&Bytes::from(bytes.clone())) {
            let mut again = Vec::new();
            message.encode(shard, &mut again);
            prop_assert_eq!(again, bytes);
        }
    }
}
