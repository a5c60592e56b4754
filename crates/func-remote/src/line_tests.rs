//! The line on its own: attempts stay apart, and what is void or silent changes nothing.

use bytes::Bytes;
use millrace_base::{ByteBudget, ErrorCode};
use millrace_format::worker::{FrameHeader, FrameValue, ServerFrame, WorkerFrame, set_stream};

use super::{ASKED_EVERY_MS, Line, SILENCE_MS, Said};

const ONE: [u8; 16] = [1; 16];
const TWO: [u8; 16] = [2; 16];

fn frame(stream: u32, frame: &WorkerFrame) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame.encode(&mut bytes);
    set_stream(&mut bytes, 0, stream);
    bytes
}

fn output(stream: u32, json: &'static str) -> Vec<u8> {
    frame(stream, &WorkerFrame::Output(FrameValue::Json(Bytes::from_static(json.as_bytes()))))
}

fn suspend(stream: u32) -> Vec<u8> {
    frame(stream, &WorkerFrame::Suspend { operations: vec![1] })
}

fn content() -> Bytes {
    let mut bytes = Vec::new();
    ServerFrame::Ping.encode(&mut bytes);
    bytes.into()
}

/// A line whose worker has said HELLO.
fn line() -> Line {
    let mut line = Line::default();
    let hello = WorkerFrame::Hello { discovery: Bytes::from_static(b"{}") };
    line.receive(&frame(0, &hello), 0).expect("HELLO");
    assert_eq!(line.next_said(), Some(Said::Hello(Ok(Bytes::from_static(b"{}")))));
    line
}

fn code(said: Option<Said>) -> Option<ErrorCode> {
    match said? {
        Said::Turn(_, result) | Said::Hello(result) => result.err().map(|error| error.code),
    }
}

#[test]
fn each_attempt_has_a_stream_and_its_turns_come_whole() {
    let mut line = line();
    line.begin(ONE, &content(), true, 0).expect("it begins");
    line.begin(TWO, &content(), true, 0).expect("it begins");
    let streams = [1, 2].map(|_| {
        let sent = line.next_to_send().expect("frames");
        FrameHeader::read(&sent).expect("a frame").expect("whole").stream
    });
    assert_eq!(streams, [1, 2]);
    let log = frame(1, &WorkerFrame::Log { level: 1, line: "x".into() });
    line.receive(&log, 1).expect("a frame");
    assert_eq!(line.next_said(), None, "the turn has not ended");
    line.receive(&output(2, "2"), 1).expect("a frame");
    assert_eq!(line.next_said(), Some(Said::Turn(TWO, Ok(output(2, "2").into()))));
    let end = suspend(1);
    line.receive(&end[..5], 1).expect("a part of a frame");
    assert_eq!(line.next_said(), None);
    line.receive(&end[5..], 1).expect("the rest");
    assert_eq!(line.next_said(), Some(Said::Turn(ONE, Ok([log, end].concat().into()))));
    assert!(line.has(ONE) && !line.has(TWO), "one goes on, the other has ended");
}

#[test]
fn frames_of_an_attempt_that_was_given_up_or_has_ended_change_nothing() {
    let mut line = line();
    line.begin(ONE, &content(), true, 0).expect("it begins");
    assert!(line.cancel(ONE) && !line.cancel(ONE));
    line.begin(TWO, &content(), true, 0).expect("it begins");
    line.receive(&output(1, "1"), 1).expect("a late frame is no mistake");
    assert_eq!(line.next_said(), None);
    line.receive(&output(2, "2"), 1).expect("a frame");
    assert_eq!(line.next_said(), Some(Said::Turn(TWO, Ok(output(2, "2").into()))));
    line.receive(&output(2, "2"), 1).expect("a frame that comes twice is none either");
    assert_eq!((line.next_said(), line.is_open()), (None, true));
}

#[test]
fn a_worker_that_says_nothing_loses_its_attempts() {
    let mut line = line();
    // Silence before the attempt is no silence.
    line.begin(ONE, &content(), true, 10 * SILENCE_MS).expect("it begins");
    line.look_after(11 * SILENCE_MS);
    assert!(line.is_open());
    line.receive(&frame(1, &WorkerFrame::Heartbeat), 11 * SILENCE_MS).expect("a frame");
    line.look_after(12 * SILENCE_MS);
    assert!(line.is_open() && line.next_said().is_none());
    line.look_after(12 * SILENCE_MS + 1);
    assert!(!line.is_open());
    assert_eq!(code(line.next_said()), Some(ErrorCode::WorkerFailed));
    assert!(line.receive(&output(1, "1"), 12 * SILENCE_MS + 2).is_err(), "what comes later does not count");
    assert_eq!(line.next_said(), None);
    assert_eq!(line.begin(TWO, &content(), true, 0).expect_err("it has ended").code, ErrorCode::WorkerUnavailable);
}

#[test]
fn a_worker_of_which_nothing_was_awaited_has_the_whole_time_for_its_next_turn() {
    let mut line = line();
    line.begin(ONE, &content(), true, 0).expect("it begins");
    line.receive(&suspend(1), 1).expect("a frame");
    // The handler sleeps, say. Then it goes on.
    line.begin(ONE, &content(), false, 10 * SILENCE_MS).expect("it goes on");
    line.look_after(10 * SILENCE_MS + ASKED_EVERY_MS);
    assert!(line.is_open(), "it was asked just now");
    line.look_after(11 * SILENCE_MS + 1);
    assert!(!line.is_open());
}

#[test]
fn a_connection_that_ends_loses_what_it_has_whether_or_not_a_part_of_it_came() {
    let mut line = line();
    line.begin(ONE, &content(), true, 0).expect("it begins");
    line.begin(TWO, &content(), true, 0).expect("it begins");
    let set = WorkerFrame::Set { field: Bytes::from_static(b"f"), value: FrameValue::Json(Bytes::from_static(b"1")) };
    line.receive(&frame(1, &set), 1).expect("a frame");
    line.end("it has closed");
    let codes = [line.next_said(), line.next_said()].map(code);
    assert_eq!(codes, [Some(ErrorCode::WorkerFailed); 2]);
    assert_eq!(line.next_said(), None);
}

#[test]
fn a_turn_for_which_there_is_no_room_is_lost_alone() {
    let mut line = line();
    line.count_for(ByteBudget::new(100, 0));
    line.begin(ONE, &content(), true, 0).expect("it begins");
    line.begin(TWO, &content(), true, 0).expect("it begins");
    let set = |stream| {
        let value = FrameValue::Json(Bytes::from_static(&[b'1'; 50]));
        frame(stream, &WorkerFrame::Set { field: Bytes::from_static(b"f"), value })
    };
    line.receive(&set(1), 1).expect("a frame");
    line.receive(&set(2), 1).expect("a frame");
    assert_eq!(code(line.next_said()), Some(ErrorCode::WorkerFailed));
    assert!(line.is_open() && line.has(ONE) && !line.has(TWO));
    line.receive(&output(1, "1"), 2).expect("a frame");
    assert!(matches!(line.next_said(), Some(Said::Turn(ONE, Ok(_)))));
    line.begin(TWO, &content(), true, 0).expect("it begins anew");
    line.receive(&set(3), 3).expect("a frame");
    assert_eq!(line.next_said(), None, "there is room again");
}

#[test]
fn what_is_no_frame_ends_the_connection() {
    for bytes in [vec![0xFF; 12], output(0, "1")] {
        let mut line = line();
        line.begin(ONE, &content(), true, 0).expect("it begins");
        assert!(line.receive(&bytes, 1).is_err());
        assert_eq!((code(line.next_said()), line.is_open()), (Some(ErrorCode::WorkerFailed), false));
    }
    let mut line = Line::default();
    assert!(line.receive(&output(1, "1"), 0).is_err(), "HELLO comes first");
    assert_eq!(code(line.next_said()), Some(ErrorCode::WorkerFailed));
}

#[test]
fn a_line_of_one_attempt_has_no_numbers_and_needs_no_hello() {
    let mut line = Line::of_one("the worker at a".to_owned());
    line.begin(ONE, &content(), true, 0).expect("it begins");
    assert_eq!(line.next_to_send(), Some(content()), "its frames are sent as they are");
    line.receive(&[suspend(0), output(0, "1")].concat(), 1).expect("frames");
    assert_eq!(line.next_said(), Some(Said::Turn(ONE, Ok(suspend(0).into()))));
    assert_eq!(line.next_said(), None, "a turn that is not awaited is none");
    let mut line = Line::of_one("the worker at a".to_owned());
    line.begin(ONE, &content(), true, 0).expect("it begins");
    line.receive(&output(0, "1"), 1).expect("a frame");
    assert_eq!(line.next_said(), Some(Said::Turn(ONE, Ok(output(0, "1").into()))));
    assert_eq!((line.load(), line.is_open()), (0, true));
    assert!(line.receive(&output(0, "2"), 2).is_err(), "a second end is of no attempt");
    let mut line = Line::of_one("the worker at a".to_owned());
    line.begin(ONE, &content(), true, 0).expect("it begins");
    line.end("it is lost");
    let Some(Said::Turn(_, Err(error))) = line.next_said() else { panic!("the attempt is lost") };
    assert_eq!(error.message, "the worker at a: it is lost");
}

#[test]
fn frames_that_come_in_part_on_lines_of_one_attempt_count_together() {
    let budget = ByteBudget::new(1000, 100);
    let mut lines: Vec<Line> = (0..2).map(|_| Line::of_one("the worker at a".to_owned())).collect();
    for line in &mut lines {
        line.count_for(budget.clone());
        line.begin(ONE, &content(), true, 0).expect("it begins");
    }
    let text = Bytes::from(format!("\"{}\"", "x".repeat(5000)));
    let large = frame(0, &WorkerFrame::Output(FrameValue::Json(text)));
    lines[0].receive(&large[..900], 1).expect("a part of a frame");
    assert!(lines[1].receive(&large[..900], 1).is_err(), "there is no room for both");
    assert_eq!(code(lines[1].next_said()), Some(ErrorCode::WorkerFailed));
    drop(lines);
    let mut line = Line::of_one("the worker at a".to_owned());
    line.count_for(budget);
    line.begin(ONE, &content(), true, 0).expect("it begins");
    line.receive(&large[..900], 1).expect("the room is there again");
}

#[test]
fn a_turn_that_comes_before_it_is_awaited_is_said_when_it_is() {
    let mut line = line();
    line.begin(ONE, &content(), true, 0).expect("it begins");
    line.next_to_send().expect("frames");
    line.receive(&[suspend(1), suspend(1), output(1, "1")].concat(), 1).expect("three turns");
    for turn in [suspend(1), suspend(1), output(1, "1")] {
        assert_eq!(line.next_said(), Some(Said::Turn(ONE, Ok(turn.into()))));
        assert_eq!(line.next_said(), None, "nobody waits for the next one yet");
        if line.has(ONE) {
            line.begin(ONE, &Bytes::new(), false, 2).expect("it goes on");
            assert_eq!(line.next_to_send(), None, "there is nothing to send");
        }
    }
    assert!(!line.has(ONE), "it has ended");
}

#[test]
fn turns_that_nobody_awaits_count_for_the_budget() {
    let mut line = line();
    line.count_for(ByteBudget::new(1 << 20, 64 << 10));
    line.begin(ONE, &content(), true, 0).expect("it begins");
    let log = frame(1, &WorkerFrame::Log { level: 1, line: "x".repeat(60 << 10) });
    let turn = [log, suspend(1)].concat();
    let kept = (0..100).take_while(|_| {
        line.receive(&turn, 1).expect("a turn");
        line.has(ONE)
    });
    assert_eq!(kept.count(), 19, "the first is awaited, and 18 have 1 MiB and 64 KiB");
    assert!(matches!(line.next_said(), Some(Said::Turn(ONE, Ok(_)))));
    line.begin(TWO, &content(), true, 0).expect("the line goes on");
}

#[test]
fn a_worker_that_drains_gets_only_what_its_attempts_wait_for() {
    let mut line = line();
    line.ready("bank-1");
    line.begin(ONE, &content(), true, 0).expect("it begins");
    while line.next_to_send().is_some() {}
    line.receive(&frame(0, &WorkerFrame::Drain), 1).expect("a frame");
    assert!(line.is_draining() && line.is_open());
    let mut ready = Vec::new();
    ServerFrame::Ready("bank-1".to_owned()).encode(&mut ready);
    assert_eq!(line.next_to_send().as_deref(), Some(&ready[..]), "it hears that this has arrived");

    // A call of the attempt comes back to this worker.
    line.begin(TWO, &content(), true, 2).expect("it begins");
    line.receive(&output(2, "1"), 3).expect("a frame");
    assert!(matches!(line.next_said(), Some(Said::Turn(TWO, Ok(_)))));
    line.receive(&output(1, "2"), 4).expect("a frame");
    assert!(matches!(line.next_said(), Some(Said::Turn(ONE, Ok(_)))));
    let late = line.begin(TWO, &content(), true, 5).expect_err("it is about to go");
    assert_eq!(late.code, ErrorCode::WorkerUnavailable, "it is not one that was lost");
}

#[test]
fn draining_is_the_connections_and_no_attempts() {
    let mut dialled = line();
    dialled.begin(ONE, &content(), true, 0).expect("it begins");
    dialled.receive(&frame(1, &WorkerFrame::Drain), 1).expect("it is a frame of the attempt");
    assert!(!dialled.is_draining());
    let mut stream = Line::of_one("the worker".to_owned());
    stream.begin(ONE, &content(), true, 0).expect("it begins");
    stream.receive(&frame(0, &WorkerFrame::Drain), 1).expect("it is a frame of the attempt");
    assert!(!stream.is_draining());
}
