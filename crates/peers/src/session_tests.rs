//! A model of two nodes and the connections between them. Connections break at every frame, hellos and answers get lost,
//! processes restart, and old connections are read after a new one was offered.

use std::collections::VecDeque;

use millrace_replica::NodeId;

use super::*;
use crate::frame::VERSIONS;
use crate::ids::ClusterId;

/// Few bytes in each write, so that frames spread over many of them.
const WRITE_BYTES: usize = 40;

/// One process, and what it was given to send and got.
struct Side {
    session: Session,
    /// Queued for the process that the session knows.
    queued: Vec<u64>,
    /// Got from the process that the session knows.
    delivered: Vec<u64>,
}

impl Side {
    fn new(incarnation: u64) -> Self {
        Self { session: Session::new(incarnation), queued: Vec::new(), delivered: Vec::new() }
    }

    fn queue(&mut self, message: u64) {
        let bytes = Bytes::copy_from_slice(&message.to_le_bytes());
        self.session.queue(Lane::Core, bytes).expect("there is room");
        self.queued.push(message);
    }

    fn open(&mut self, hello: &Hello) -> Result<Opened, Refusal> {
        let opened = self.session.open(hello)?;
        if opened == Opened::Restarted {
            (self.queued, self.delivered) = (Vec::new(), Vec::new());
        }
        Ok(opened)
    }
}

/// Side 0 dials side 1.
struct World {
    sides: [Side; 2],
    /// Frames on their way to each side.
    pipes: [VecDeque<Vec<u8>>; 2],
    /// A connection leads to the side; else it has ended there.
    is_linked: bool,
    /// What side 0 has said and side 1 has not heard yet.
    offered: Option<Hello>,
    connections: u64,
    last_message: u64,
    restarts: u64,
}

impl World {
    fn new() -> Self {
        Self {
            sides: [Side::new(1), Side::new(1)],
            pipes: [VecDeque::new(), VecDeque::new()],
            is_linked: false,
            offered: None,
            connections: 0,
            last_message: 0,
            restarts: 0,
        }
    }

    fn hello(&self, side: usize, connection: u64) -> Hello {
        let session = &self.sides[side].session;
        let (known, received) = session.known();
        let (from, to) = (NodeId(1 + side as u16), NodeId(2 - side as u16));
        let (cluster, incarnation) = (ClusterId::default(), session.own);
        Hello { versions: VERSIONS, cluster, from, to, incarnation, connection, known, received }
    }

    fn queue(&mut self, side: usize) {
        self.last_message += 1;
        self.sides[side].queue(self.last_message);
    }

    fn write(&mut self, side: usize) {
        let mut bytes = Vec::new();
        self.sides[side].session.write(&mut bytes, WRITE_BYTES);
        let mut rest = &bytes[..];
        while let Some((_, length)) = Frame::decode(rest).expect("its own frames") {
            if self.is_linked {
                self.pipes[1 - side].push_back(rest[..length].to_vec());
            }
            rest = &rest[length..];
        }
    }

    fn read(&mut self, side: usize) {
        let Some(bytes) = self.pipes[side].pop_front() else { return };
        let (frame, _) = Frame::decode(&bytes).expect("whole").expect("whole");
        let is_new = self.sides[side].session.read(&frame).expect("both keep to the rules");
        if let (true, Frame::Core { body, .. }) = (is_new, frame) {
            let message = u64::from_le_bytes(body.try_into().expect("8 bytes"));
            self.sides[side].delivered.push(message);
        }
        self.check();
    }

    /// The connection ends, and what is on its way is lost. Each side may be told later.
    fn cut(&mut self, told: [bool; 2]) {
        (self.is_linked, self.pipes) = (false, [VecDeque::new(), VecDeque::new()]);
        for (side, _) in self.sides.iter_mut().zip(told).filter(|(_, is_told)| *is_told) {
            side.session.close();
        }
    }

    fn offer(&mut self) {
        self.connections += 1;
        self.offered = Some(self.hello(0, self.connections));
    }

    /// Side 1 hears the hello. Its answer may get lost.
    fn connect(&mut self, is_answered: bool) {
        let Some(hello) = self.offered.take() else { return };
        if self.sides[1].open(&hello).is_err() {
            // The process that said it has gone, and a later one has been here.
            return;
        }
        self.pipes[1].clear();
        self.is_linked = false;
        let answer = self.hello(1, hello.connection);
        let is_heard = is_answered && hello.incarnation == self.sides[0].session.own;
        if is_heard && self.sides[0].open(&answer).is_ok() {
            (self.is_linked, self.pipes) = (true, [VecDeque::new(), VecDeque::new()]);
        }
    }

    fn restart(&mut self, side: usize) {
        self.restarts += 1;
        self.cut([true, true]);
        self.sides[side] = Side::new(1 + self.restarts);
        if side == 0 {
            (self.connections, self.offered) = (0, None);
        }
    }

    /// What came is the beginning of what was sent, while both know each other.
    fn check(&self) {
        for side in [0, 1] {
            let (from, to) = (&self.sides[side], &self.sides[1 - side]);
            if from.session.peer == to.session.own && to.session.peer == from.session.own {
                assert!(from.queued.starts_with(&to.delivered), "{:?} became {:?}", from.queued, to.delivered);
            }
        }
    }

    /// Connects, and lets everything arrive.
    fn settle(&mut self) {
        self.cut([true, true]);
        self.offer();
        self.connect(true);
        assert!(self.is_linked, "two processes that live can always connect");
        for _ in 0..10_000 {
            for side in [0, 1] {
                self.sides[side].session.beat();
                self.write(side);
                self.read(side);
            }
            if self.is_at_rest() {
                break;
            }
        }
        for side in [0, 1] {
            assert_eq!(self.sides[side].queued, self.sides[1 - side].delivered, "from side {side}");
            assert_eq!(self.sides[side].session.core.messages.len(), 0, "side {side} keeps what is acknowledged");
        }
    }

    fn is_at_rest(&self) -> bool {
        let has_all = |side: usize| self.sides[side].queued.len() == self.sides[1 - side].delivered.len();
        let has_told = |side: usize| self.sides[side].session.core.messages.is_empty();
        [0, 1].into_iter().all(|side| has_all(side) && has_told(side))
    }

    fn step(&mut self, random: u64) {
        let side = (random >> 32) as usize & 1;
        let flags = [random >> 33 & 1 == 1, random >> 34 & 1 == 1];
        match random % 100 {
            0..25 => self.queue(side),
            25..50 => self.write(side),
            50..80 => self.read(side),
            80..84 => self.sides[side].session.beat(),
            84..88 => self.cut(flags),
            88..92 => self.offer(),
            92..98 => self.connect(flags[0]),
            _ => self.restart(side),
        }
    }
}

/// The generator SplitMix64: one seed is one run.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

#[test]
fn a_connection_may_break_at_every_frame() {
    for to_1 in 0..12 {
        for to_0 in 0..12 {
            for told in [[false, false], [true, false], [false, true], [true, true]] {
                let mut world = World::new();
                world.offer();
                world.connect(true);
                for message in 0..16 {
                    world.queue(message % 2);
                }
                for round in 0..12 {
                    (0..2).for_each(|side| world.write(side));
                    if round < to_1 {
                        world.read(1);
                    }
                    if round < to_0 {
                        world.read(0);
                    }
                }
                world.cut(told);
                world.queue(0);
                world.queue(1);
                world.settle();
            }
        }
    }
}

#[test]
fn core_messages_arrive_in_order_and_once_whatever_happens_to_connections_and_processes() {
    let (mut delivered, mut restarts) = (0, 0);
    for seed in 0..4_000 {
        let (mut world, mut state) = (World::new(), seed);
        for _ in 0..120 {
            world.step(next(&mut state));
        }
        world.settle();
        delivered += world.sides[0].delivered.len() + world.sides[1].delivered.len();
        restarts += world.restarts;
    }
    assert!(delivered > 20_000 && restarts > 4_000, "the runs say little: {delivered} messages, {restarts} restarts");
}

fn linked() -> World {
    let mut world = World::new();
    world.offer();
    world.connect(true);
    world
}

#[test]
fn an_old_process_an_old_connection_and_wrong_numbers_are_refused_and_change_nothing() {
    let mut world = linked();
    world.queue(1);
    world.write(1);
    world.read(0);
    let hello = world.hello(0, 2);
    let side = &mut world.sides[1].session;
    let refused = [
        (Hello { connection: 1, ..hello }, Refusal::OldConnection),
        (Hello { received: 2, ..hello }, Refusal::Numbers),
        (Hello { incarnation: 0, ..hello }, Refusal::Numbers),
        // A new process cannot have got anything yet.
        (Hello { incarnation: 9, ..hello }, Refusal::Numbers),
    ];
    for (hello, refusal) in refused {
        assert_eq!(side.open(&hello), Err(refusal));
        assert!(side.is_open() && side.known() == (1, 0));
    }
    assert_eq!(side.open(&hello), Ok(Opened::Same));
    let restarted = Hello { incarnation: 2, connection: 1, known: 0, received: 0, ..hello };
    assert_eq!(side.open(&restarted), Ok(Opened::Restarted));
    assert_eq!(side.open(&Hello { connection: 3, ..hello }), Err(Refusal::OldIncarnation));
    // It had acknowledged one message, and says now that it has none.
    let mut world = linked();
    world.queue(1);
    world.write(1);
    world.read(0);
    world.sides[0].session.beat();
    world.write(0);
    world.read(1);
    let forgot = Hello { received: 0, ..world.hello(0, 2) };
    assert_eq!(world.sides[1].session.open(&forgot), Err(Refusal::Numbers));
}

#[test]
fn numbers_that_cannot_be_end_the_connection() {
    let mut session = linked().sides.into_iter().next().expect("two sides").session;
    assert_eq!(session.read(&Frame::Core { number: 2, body: b"" }), Err(Violation::Gap));
    assert_eq!(session.read(&Frame::Beat { received: 1 }), Err(Violation::Acknowledgement));
    assert_eq!(session.read(&Frame::Core { number: 1, body: b"" }), Ok(true));
    assert_eq!(session.read(&Frame::Core { number: 1, body: b"" }), Ok(false), "it came already");
    session.queue(Lane::Core, Bytes::new()).expect("room");
    let mut bytes = Vec::new();
    session.write(&mut bytes, 1 << 20);
    assert_eq!(session.read(&Frame::Beat { received: 1 }), Ok(false));
    assert_eq!(session.read(&Frame::Beat { received: 0 }), Err(Violation::Acknowledgement), "less than before");
}

#[test]
fn queues_are_bounded_and_say_so() {
    let mut session = linked().sides.into_iter().next().expect("two sides").session;
    let large = Bytes::from(vec![0; 16 << 20]);
    let too_large = Bytes::from(vec![0; limits::PEER_MESSAGE_BYTES + 1]);
    assert_eq!(session.queue(Lane::Core, too_large), Err(QueueError::TooLarge));
    for lane in [Lane::Core, Lane::Mail] {
        for _ in 0..4 {
            assert_eq!(session.queue(lane, large.clone()), Ok(()));
        }
        assert_eq!(session.queue(lane, large.clone()), Err(QueueError::Full));
    }
    // Among replicas the newest matters.
    for _ in 0..9 {
        assert_eq!(session.queue(Lane::Replica, large.clone()), Ok(()));
    }
    assert_eq!(session.queue(Lane::Replica, Bytes::from_static(b"newest")), Ok(()));
    assert!(session.replica.bytes <= limits::PEER_QUEUE_BYTES);
    assert_eq!(session.replica.messages.back().map(|message| &message[..]), Some(&b"newest"[..]));
    // Core messages stay when the connection ends, and count until they are acknowledged.
    session.close();
    assert_eq!(session.queue(Lane::Replica, Bytes::new()), Err(QueueError::Down));
    assert_eq!(session.queue(Lane::Mail, Bytes::new()), Err(QueueError::Down));
    assert_eq!(session.queue(Lane::Core, large), Err(QueueError::Full));
    assert_eq!((session.replica.messages.len(), session.mail.messages.len(), session.core.messages.len()), (0, 0, 4));
}

#[test]
fn no_lane_takes_a_whole_write_while_others_wait() {
    let mut session = linked().sides.into_iter().next().expect("two sides").session;
    for lane in Lane::ALL {
        for _ in 0..100 {
            session.queue(lane, Bytes::from(vec![0; 983])).expect("room");
        }
    }
    let mut bytes = Vec::new();
    session.write(&mut bytes, 40_000);
    let mut counts = [0; 3];
    let mut rest = &bytes[..];
    while let Some((frame, length)) = Frame::decode(rest).expect("frames") {
        match frame {
            Frame::Replica(_) => counts[0] += 1,
            Frame::Core { .. } => counts[1] += 1,
            Frame::Mail(_) => counts[2] += 1,
            Frame::Beat { .. } => {}
        }
        rest = &rest[length..];
    }
    assert_eq!(counts, [20, 10, 10]);
}

#[test]
fn what_has_arrived_is_acknowledged_without_a_heartbeat_after_some_messages() {
    let mut world = linked();
    for _ in 0..255 {
        world.queue(0);
    }
    while world.sides[0].session.wants_write() {
        world.write(0);
    }
    while !world.pipes[1].is_empty() {
        world.read(1);
    }
    assert!(!world.sides[1].session.wants_write(), "255 messages wait for the heartbeat");
    world.queue(0);
    world.write(0);
    world.read(1);
    assert!(world.sides[1].session.wants_write());
    world.write(1);
    world.read(0);
    assert!(world.sides[0].session.core.messages.is_empty());
}
