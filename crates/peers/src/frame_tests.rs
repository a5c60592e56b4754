//! Frames and hellos have the bytes of the golden file, and nothing else decodes.

use super::*;

const GOLDEN: &str = include_str!("../tests/golden/frames.txt");

const CLUSTER: ClusterId = ClusterId([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]);

fn frames() -> Vec<(&'static str, Frame<'static>)> {
    vec![
        ("beat", Frame::Beat { received: 7 }),
        ("replica", Frame::Replica(b"abc")),
        ("core", Frame::Core { number: 8, body: b"abc" }),
        ("mail", Frame::Mail(b"abc")),
        ("empty", Frame::Mail(b"")),
    ]
}

fn encoded(frame: &Frame<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame.encode(&mut bytes);
    bytes
}

fn hello() -> Hello {
    Hello {
        versions: (1, 2),
        cluster: CLUSTER,
        from: NodeId(3),
        to: NodeId(4),
        incarnation: 5,
        connection: 6,
        known: 7,
        received: 8,
    }
}

#[test]
fn frames_and_hellos_have_the_documented_bytes() {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let mut lines: String = frames().iter().map(|(name, frame)| format!("{name} {}\n", hex(&encoded(frame)))).collect();
    lines.push_str(&format!("hello {}\n", hex(&hello().encode())));
    lines.extend(Refusal::ALL.iter().map(|refusal| format!("{refusal:?} {:02x}\n", refusal.byte())));
    assert_eq!(lines, GOLDEN, "the file would be:\n{lines}");
}

#[test]
fn a_frame_decodes_to_what_was_encoded_and_a_cut_one_waits_for_more() {
    for (name, frame) in frames() {
        let mut bytes = encoded(&frame);
        let length = bytes.len();
        bytes.extend_from_slice(b"behind it");
        assert_eq!(Frame::decode(&bytes), Ok(Some((frame, length))), "{name}");
        for cut in 0..length {
            assert_eq!(Frame::decode(&bytes[..cut]), Ok(None), "{name}, the first {cut} bytes");
        }
    }
}

#[test]
fn a_changed_bit_is_never_another_frame() {
    for (name, frame) in frames() {
        let bytes = encoded(&frame);
        for bit in 0..bytes.len() * 8 {
            let mut changed = bytes.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            // A longer length waits for more, which never fits the checksum.
            changed.resize(bytes.len() + 300, 0);
            let decoded = Frame::decode(&changed);
            assert!(!matches!(decoded, Ok(Some(_))), "{name}, bit {bit}: {decoded:?}");
        }
    }
}

#[test]
fn a_huge_frame_is_refused_before_its_body_comes() {
    let mut bytes = encoded(&Frame::Mail(b""));
    let most = u32::try_from(limits::PEER_MESSAGE_BYTES).expect("fits");
    bytes[..4].copy_from_slice(&(most + 1).to_le_bytes());
    assert_eq!(Frame::decode(&bytes), Err(FrameError::TooLarge(most + 1)));
    bytes[..4].copy_from_slice(&most.to_le_bytes());
    assert_eq!(Frame::decode(&bytes), Ok(None));
}

#[test]
fn lanes_and_numbers_that_do_not_fit_are_refused() {
    let rewritten = |frame: &Frame<'_>, lane: u8, number: u64| {
        let mut bytes = encoded(frame);
        bytes[8] = lane;
        bytes[9..17].copy_from_slice(&number.to_le_bytes());
        let checksum = crc_fast::crc32_iscsi(&bytes[8..]).to_le_bytes();
        bytes[4..8].copy_from_slice(&checksum);
        bytes
    };
    let mail = Frame::Mail(b"abc");
    assert_eq!(Frame::decode(&rewritten(&mail, 4, 0)), Err(FrameError::UnknownLane(4)));
    for (lane, number) in [(0, 1), (1, 1), (3, 1)] {
        assert_eq!(Frame::decode(&rewritten(&mail, lane, number)), Err(FrameError::Malformed), "{lane} {number}");
    }
}

#[test]
fn a_hello_decodes_to_what_was_encoded_and_a_changed_one_is_none() {
    let bytes = hello().encode();
    assert_eq!(Hello::decode(&bytes), Some(hello()));
    for bit in 0..bytes.len() * 8 {
        let mut changed = bytes;
        changed[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(Hello::decode(&changed), None, "bit {bit}");
    }
}

#[test]
fn every_refusal_has_a_byte_of_its_own() {
    for refusal in Refusal::ALL {
        assert_eq!(Refusal::of_byte(refusal.byte()), Some(*refusal));
        assert!(!refusal.to_string().is_empty());
    }
    let known = (0..=u8::MAX).filter(|byte| Refusal::of_byte(*byte).is_some()).count();
    assert_eq!((known, Refusal::of_byte(0)), (Refusal::ALL.len(), None));
}
