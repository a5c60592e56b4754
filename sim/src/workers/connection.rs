//! A worker that has dialled in, or a stream: the server's line, the worker's attempts, and what is on its way between them.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use millrace_base::Error;
use millrace_format::worker::{AttemptToken, FrameHeader, ServerFrame, WorkerFrame, ends_turn, set_stream};
use millrace_func_remote::{ASKED_EVERY_MS, Line, Said};

use super::run::{Process, Received, encoded, server_frames};
use super::{CONNECTIONS, Way, Workers};
use crate::bugs::PlantedBug;
use crate::happened::Thing;
use crate::random::Rng;

/// An attempt as the worker has it.
struct Run {
    received: Received,
    /// Frames sent, but for SUSPEND.
    sent: usize,
}

pub(super) struct Connection {
    pub line: Line,
    /// What the server has written at once.
    to_worker: VecDeque<Bytes>,
    /// Frame by frame.
    to_server: VecDeque<Vec<u8>>,
    /// Frames that let others pass. All of a stream that come after one of these are among them.
    late: VecDeque<Vec<u8>>,
    runs: BTreeMap<u32, Run>,
    /// Which attempt a stream is of.
    pub attempts: BTreeMap<u32, AttemptToken>,
    stalled_until_ms: u64,
    asked_ms: u64,
    pub heard_ms: u64,
}

fn header(frame: &[u8]) -> FrameHeader {
    FrameHeader::read(frame).ok().flatten().expect("a whole frame")
}

impl Connection {
    /// A worker dials in, and is told that it serves.
    pub(super) fn open(now_ms: u64) -> Self {
        let mut line = Line::default();
        let hello = encoded(&WorkerFrame::Hello { discovery: Bytes::from_static(b"{}") });
        line.receive(&hello, now_ms).expect("HELLO is taken");
        assert!(matches!(line.next_said(), Some(Said::Hello(Ok(_)))), "HELLO is heard");
        line.ready("1");
        Self::over(line, now_ms)
    }

    /// A stream for one attempt.
    pub(super) fn stream(now_ms: u64) -> Self {
        Self::over(Line::of_one("the simulated worker".to_owned()), now_ms)
    }

    fn over(line: Line, now_ms: u64) -> Self {
        Self {
            line,
            to_worker: VecDeque::new(),
            to_server: VecDeque::new(),
            late: VecDeque::new(),
            runs: BTreeMap::new(),
            attempts: BTreeMap::new(),
            stalled_until_ms: 0,
            asked_ms: now_ms,
            heard_ms: now_ms,
        }
    }

    pub(super) fn begin(
        &mut self,
        attempt: AttemptToken,
        content: &Bytes,
        is_first: bool,
        now_ms: u64,
    ) -> Result<(), Error> {
        if !self.line.is_awaited() {
            self.heard_ms = now_ms;
        }
        self.line.begin(attempt, content, is_first, now_ms)?;
        self.carry_away();
        if let Some(sent) = self.to_worker.back().filter(|_| is_first) {
            self.attempts.insert(header(sent).stream, attempt);
        }
        Ok(())
    }

    /// What the server has written is on its way.
    pub(super) fn carry_away(&mut self) {
        while let Some(bytes) = self.line.next_to_send() {
            self.to_worker.push_back(bytes);
        }
    }

    /// Says whether the line has ended for the worker's silence.
    pub(super) fn pass_time(&mut self, now_ms: u64, looks_after: bool) -> bool {
        if !self.line.is_open() {
            return false;
        }
        if self.stalled_until_ms <= now_ms {
            // From a thread of its own, whatever the handlers do.
            let heartbeat = encoded(&WorkerFrame::Heartbeat);
            self.receive(&heartbeat, now_ms);
        }
        if looks_after && now_ms >= self.asked_ms + ASKED_EVERY_MS {
            self.asked_ms = now_ms;
            self.line.look_after(now_ms);
            self.carry_away();
        }
        !self.line.is_open()
    }

    fn receive(&mut self, bytes: &[u8], now_ms: u64) {
        if self.line.is_open() {
            self.heard_ms = now_ms;
        }
        // What breaks the protocol ends the line.
        let _ = self.line.receive(bytes, now_ms);
    }

    /// The worker takes what the server has written at once, and does what follows of it.
    fn worker_goes_on(&mut self, process: &Process) -> bool {
        let Some(bytes) = self.to_worker.pop_front() else { return false };
        let mut on_turn = None;
        for (stream, frame) in server_frames(&bytes) {
            match frame {
                ServerFrame::Start(start) => {
                    let received = Received { start: *start, inputs: Vec::new() };
                    self.runs.insert(stream, Run { received, sent: 0 });
                    on_turn = Some(stream);
                }
                ServerFrame::Cancel(_) => drop(self.runs.remove(&stream)),
                ServerFrame::Ping => self.to_server.push_back(encoded(&WorkerFrame::Heartbeat)),
                ServerFrame::Ready(_) => {}
                input @ (ServerFrame::Result { .. } | ServerFrame::Fields { .. }) => {
                    if let Some(run) = self.runs.get_mut(&stream) {
                        run.received.inputs.push(input);
                        on_turn = Some(stream);
                    }
                }
            }
        }
        if let Some(stream) = on_turn {
            self.take_turn(stream, process);
        }
        true
    }

    fn take_turn(&mut self, stream: u32, process: &Process) {
        let Some(run) = self.runs.get_mut(&stream) else { return };
        let frames = process.run(&run.received);
        for frame in frames.iter().skip(run.sent) {
            let mut bytes = encoded(frame);
            set_stream(&mut bytes, 0, stream);
            self.to_server.push_back(bytes);
        }
        match frames.last() {
            Some(WorkerFrame::Suspend { .. }) => run.sent = frames.len() - 1,
            _ => drop(self.runs.remove(&stream)),
        }
    }

    /// The next frame for the server. One may let others pass, but not those of its own stream.
    fn next_frame(&mut self, rng: &mut Rng, is_calm: bool) -> Option<Vec<u8>> {
        if !self.late.is_empty() && (is_calm || self.to_server.is_empty() || rng.chance(1, 12)) {
            return self.late.pop_front();
        }
        let frame = self.to_server.pop_front()?;
        let is_behind = self.late.iter().any(|late| header(late).stream == header(&frame).stream);
        if is_behind || (!is_calm && rng.chance(1, 20)) {
            self.late.push_back(frame);
            return None;
        }
        Some(frame)
    }
}

impl Workers {
    /// Something is carried on one of the connections, in one direction.
    pub(super) fn carry_some(&mut self, rng: &mut Rng, now_ms: u64, is_calm: bool) -> bool {
        let are_streams = self.plan.way == Way::Stream;
        // A stream ends with its attempt.
        self.connections.retain(|one| one.line.is_open() && !(are_streams && one.line.load() == 0));
        if !are_streams && self.connections.len() < CONNECTIONS && (is_calm || rng.chance(1, 6)) {
            self.connections.push(Connection::open(now_ms));
        }
        if is_calm {
            self.connections.iter_mut().for_each(|connection| connection.stalled_until_ms = 0);
            let count = self.connections.len();
            return (0..count).filter(|index| self.carry(*index, rng, now_ms, true)).count() > 0;
        }
        if self.connections.is_empty() {
            return false;
        }
        let index = rng.index(self.connections.len());
        self.carry(index, rng, now_ms, false)
    }

    fn carry(&mut self, index: usize, rng: &mut Rng, now_ms: u64, is_calm: bool) -> bool {
        let connection = &mut self.connections[index];
        if !is_calm && rng.chance(1, 80) {
            connection.stalled_until_ms = now_ms + (100 << rng.below(8));
        }
        if connection.stalled_until_ms > now_ms {
            return false;
        }
        if (is_calm || rng.chance(1, 3)) && !connection.to_worker.is_empty() {
            if self.plan.carry() {
                return self.cut(index, &[], (true, now_ms));
            }
            return connection.worker_goes_on(&self.process);
        }
        let Some(frame) = connection.next_frame(rng, is_calm) else { return !connection.late.is_empty() };
        if self.plan.carry() || (!is_calm && rng.chance(1, 100)) {
            let part = rng.index(frame.len());
            let takes_all = is_calm || rng.chance(1, 2);
            return self.cut(index, &frame[..part], (takes_all, now_ms));
        }
        let is_doubled = !is_calm && rng.chance(1, 30);
        self.give_server(index, &frame, is_doubled, now_ms);
        true
    }

    /// The connection is lost with a frame of which a part has come. All streams may be on the same, or this one is reset.
    fn cut(&mut self, index: usize, part: &[u8], (takes_all, now_ms): (bool, u64)) -> bool {
        self.happened.note(Thing::WorkerLost);
        let are_streams = self.plan.way == Way::Stream;
        self.connections[index].receive(part, now_ms);
        for (other, connection) in self.connections.iter_mut().enumerate() {
            if other == index || are_streams && takes_all {
                connection.line.end("its connection has closed");
            }
        }
        true
    }

    fn give_server(&mut self, index: usize, frame: &[u8], is_doubled: bool, now_ms: u64) {
        let (kind, stream) = (header(frame).kind, header(frame).stream);
        let attempt = self.connections[index].attempts.get(&stream).copied();
        let is_void = attempt.is_some_and(|attempt| !self.connections[index].line.has(attempt));
        if is_void {
            self.happened.note(Thing::WorkerFrameVoid);
        }
        if let Some(attempt) = attempt.filter(|_| is_void && self.bugs.has(PlantedBug::OldAttemptIsAnswer)) {
            return self.give_to_another(attempt, frame, now_ms);
        }
        if let Some(attempt) = attempt.filter(|_| !is_void) {
            self.bugs.saw(attempt, frame);
        }
        self.connections[index].receive(frame, now_ms);
        if is_doubled {
            self.happened.note(Thing::WorkerFrameDoubled);
            self.connections[index].receive(frame, now_ms);
            if let Some(attempt) = attempt.filter(|_| ends_turn(kind)) {
                self.bugs.doubled(attempt);
            }
        }
    }

    /// A frame of an attempt that was voided counts for the attempt that was made instead, as a bug.
    fn give_to_another(&mut self, void: AttemptToken, frame: &[u8], now_ms: u64) {
        let others = self.exchanges.keys().filter(|other| self.bugs.is_the_same(void, **other));
        for other in others {
            for connection in &mut self.connections {
                let is_it = |(_, attempt): &(&u32, &AttemptToken)| *attempt == other;
                if let Some(stream) = connection.attempts.iter().find(is_it).map(|(stream, _)| *stream) {
                    let mut frame = frame.to_vec();
                    set_stream(&mut frame, 0, stream);
                    connection.receive(&frame, now_ms);
                }
            }
        }
    }
}
