//! What frames and turns promise whatever bytes come.

use bytes::Bytes;
use proptest::prelude::*;

use super::*;

fn read(bytes: &[u8]) -> (FrameHeader, Bytes) {
    let header = FrameHeader::read(bytes).expect("a header").expect("a whole header");
    assert_eq!(header.frame_bytes(), bytes.len());
    (header, Bytes::copy_from_slice(&bytes[WORKER_FRAME_HEADER_BYTES..]))
}

fn of_worker(frame: &WorkerFrame) -> Vec<u8> {
    let mut out = Vec::new();
    frame.encode(&mut out);
    out
}

fn set(field: &'static [u8]) -> WorkerFrame {
    WorkerFrame::Set { field: Bytes::from_static(field), value: FrameValue::Json(Bytes::from_static(b"1")) }
}

fn turn(frames: &[WorkerFrame]) -> Bytes {
    frames.iter().flat_map(of_worker).collect::<Vec<u8>>().into()
}

fn output() -> WorkerFrame {
    WorkerFrame::Output(FrameValue::Json(Bytes::from_static(b"null")))
}

#[test]
fn what_a_turn_may_not_hold_is_refused() {
    let all = |bytes: Bytes| {
        let mut reader = TurnReader::new(bytes);
        let mut frames = Vec::new();
        while let Some(frame) = reader.next_frame()? {
            frames.push(frame);
        }
        Ok((frames, reader.frames()))
    };
    let beat = WorkerFrame::Heartbeat;
    let resumed = WorkerFrame::Resumed { frames: 0, checksum: 0 };
    let fine = turn(&[beat.clone(), resumed.clone(), set(b"a"), beat, output()]);
    assert_eq!(all(fine), Ok((vec![resumed.clone(), set(b"a"), output()], 2)));
    assert_eq!(all(Bytes::new()), Err(WorkerFrameError::Length));
    assert_eq!(all(turn(&[set(b"a")])), Err(WorkerFrameError::Length), "a turn has an end");
    assert_eq!(all(turn(&[output(), set(b"a")])), Err(WorkerFrameError::Place(0x22)), "nothing comes behind it");
    assert_eq!(all(turn(&[set(b"a"), resumed])), Err(WorkerFrameError::Place(0x34)), "it is the first of a turn");
    let cut = turn(&[set(b"a"), output()]);
    for length in 0..cut.len() {
        assert_eq!(all(cut.slice(..length)), Err(WorkerFrameError::Length), "{length} bytes");
    }
}

#[test]
fn the_checksum_goes_over_all_turns_as_in_zlib() {
    let mut reader = TurnReader::new(turn(&[set(b"a"), WorkerFrame::Suspend { operations: vec![1] }]));
    while reader.next_frame().expect("a frame").is_some() {}
    reader.next_turn(turn(&[WorkerFrame::Resumed { frames: 1, checksum: reader.checksum() }, output()]));
    while reader.next_frame().expect("a frame").is_some() {}
    let all = turn(&[set(b"a"), output()]);
    let checksum = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32IsoHdlc, &all);
    assert_eq!((reader.frames(), u64::from(reader.checksum())), (2, checksum));
}

#[test]
fn a_start_is_sent_again_with_what_changed() {
    let start = StartFrame {
        attempt: [7; 16],
        kind: AttemptKind::Query,
        deadline_ms: 10,
        seen: 0,
        service: "s".into(),
        handler: "h".into(),
        key: Bytes::from_static(b"k"),
        invocation: String::new(),
        now_ms: 1,
        seed: [1; 16],
        input: Bytes::new(),
        is_whole: true,
        has_declared: false,
        fields: vec![],
    };
    let mut bytes = Vec::new();
    ServerFrame::Start(Box::new(start.clone())).encode(&mut bytes);
    set_seen(&mut bytes, 9, 300);
    set_stream(&mut bytes, 0, 5);
    let (header, payload) = read(&bytes);
    assert_eq!(header.stream, 5);
    let changed = StartFrame { seen: 9, deadline_ms: 300, ..start };
    assert_eq!(ServerFrame::decode(header, payload), Ok(ServerFrame::Start(Box::new(changed))));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn no_bytes_make_a_decoder_panic(kind in any::<u8>(), flags in 0u8..4, payload in proptest::collection::vec(any::<u8>(), 0..64)) {
        let header = FrameHeader { payload_bytes: payload.len() as u32, kind, flags, stream: 0 };
        let _ = ServerFrame::decode(header, Bytes::from(payload.clone()));
        if let Ok(frame) = WorkerFrame::decode(header, Bytes::from(payload.clone())) {
            prop_assert_eq!(&of_worker(&frame)[WORKER_FRAME_HEADER_BYTES..], &payload[..], "there is one form of each frame");
        }
        let mut reader = TurnReader::new(Bytes::from(payload));
        while let Ok(Some(_)) = reader.next_frame() {}
    }
}
