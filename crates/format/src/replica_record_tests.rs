//! The bytes of each record, and that nothing else is one.

use proptest::prelude::*;

use super::*;

const SHARD: ShardId = ShardId(0x0201);

fn records() -> [(ReplicaRecord<'static>, &'static [u8]); 7] {
    let base = |is_whole| ReplicaRecord::Base {
        promised_epoch: 3,
        promised_node: 4,
        base_epoch: 2,
        base_lsn: Lsn(1),
        set_lsn: Lsn(6),
        set: b"set",
        committed: Lsn(5),
        is_whole,
    };
    [
        (
            ReplicaRecord::Entry { epoch: 8, lsn: Lsn(7), kind: ReplicaEntryKind::ReplicaSet, bytes: b"xy" },
            b"\x02\x01\x01\x02\x07\0\0\0\0\0\0\0\x08\0\0\0\0\0\0\0\x02xy",
        ),
        (ReplicaRecord::Promise { epoch: 8, node: 0x0102 }, b"\x02\x02\x01\x02\x08\0\0\0\0\0\0\0\x02\x01"),
        (ReplicaRecord::CommitNote { lsn: Lsn(7) }, b"\x02\x03\x01\x02\x07\0\0\0\0\0\0\0"),
        (ReplicaRecord::Cut { after: Lsn(7) }, b"\x02\x04\x01\x02\x07\0\0\0\0\0\0\0"),
        (
            ReplicaRecord::Reset { at_epoch: 8, at_lsn: Lsn(7), set_lsn: Lsn(6), set: b"set" },
            b"\x02\x05\x01\x02\x07\0\0\0\0\0\0\0\x08\0\0\0\0\0\0\0\x06\0\0\0\0\0\0\0set",
        ),
        (
            base(true),
            b"\x02\x06\x01\x02\x01\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0\x04\0\
              \x05\0\0\0\0\0\0\0\0\x06\0\0\0\0\0\0\0set",
        ),
        (
            base(false),
            b"\x02\x06\x01\x02\x01\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0\x04\0\
              \x05\0\0\0\0\0\0\0\x01\x06\0\0\0\0\0\0\0set",
        ),
    ]
}

#[test]
fn the_format_is_the_documented_one() {
    for (record, golden) in records() {
        let mut bytes = Vec::new();
        record.encode(SHARD, &mut bytes);
        assert_eq!(bytes, golden, "{record:?}");
        assert_eq!(ReplicaRecord::decode(golden), Ok((SHARD, record)));
        let variable = match record {
            ReplicaRecord::Entry { bytes, .. } => bytes.len(),
            ReplicaRecord::Reset { set, .. } | ReplicaRecord::Base { set, .. } => set.len(),
            _ => 0,
        };
        for cut in 0..golden.len() - variable {
            assert_eq!(ReplicaRecord::decode(&golden[..cut]), Err(DecodeError::Length), "{record:?} {cut}");
        }
    }
}

#[test]
fn a_head_says_what_the_body_is() {
    let head = |kind, lsn| Ok(BodyHead { shard: SHARD, kind, lsn: Lsn(lsn) });
    let expected = [
        head(BodyKind::ReplicaEntry, 7),
        head(BodyKind::ReplicaState, 0),
        head(BodyKind::ReplicaState, 0),
        head(BodyKind::ReplicaState, 0),
        head(BodyKind::ReplicaState, 0),
        head(BodyKind::ReplicaBase, 1),
        head(BodyKind::ReplicaBase, 1),
    ];
    assert_eq!(records().map(|(_, bytes)| body_head(bytes)), expected);
    assert_eq!(body_head(b"\x01\0\x01\x02\x09\0\0\0\0\0\0\0"), head(BodyKind::WriteSet, 9));
}

#[test]
fn a_later_version_or_kind_is_told_from_damage() {
    for read in [|bytes: &[u8]| ReplicaRecord::decode(bytes).map(|_| ()), |bytes: &[u8]| body_head(bytes).map(|_| ())] {
        assert_eq!(read(&[3; 40]), Err(DecodeError::Version(3)));
        assert_eq!(read(&[2, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]), Err(DecodeError::Kind(7)));
    }
    let mut entry = records()[0].1.to_vec();
    entry[20] = 3;
    assert_eq!(ReplicaRecord::decode(&entry), Err(DecodeError::Kind(3)));
    let mut base = records()[6].1.to_vec();
    base[38] = 3;
    assert_eq!(ReplicaRecord::decode(&base), Err(DecodeError::Kind(3)));
}

proptest! {
    #[test]
    fn any_bytes_decode_or_fail(mut bytes in proptest::collection::vec(any::<u8>(), 0..80), code in 0u8..8) {
        if let [version, kind, ..] = &mut bytes[..] {
            (*version, *kind) = (2, code);
        }
        let head = body_head(&bytes);
        if let Ok((shard, record)) = ReplicaRecord::decode(&bytes) {
            let mut again = Vec::new();
            record.encode(shard, &mut again);
            prop_assert_eq!(again, bytes);
            prop_assert_eq!(head.map(|head| head.shard), Ok(shard));
        }
    }
}
