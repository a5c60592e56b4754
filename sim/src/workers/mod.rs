//! Simulated workers: what runs the handlers of an app whose code is not in the store.
//!
//! The server's end is the shipped code: the engine of workers, the codec, and where frames go both ways the line. The worker's
//! end is a script that runs from its beginning over what the server has sent (`run`, `host`). Between them lies a connection
//! on which things go wrong: it ends at any frame, or in the middle of one. A worker says nothing for a while, or answers too
//! late. Frames come twice, or after those of other attempts. Requests find nobody, and answers are lost.

mod bugs;
mod connection;
mod document;
mod host;
mod requests;
mod run;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use bytes::Bytes;
use millrace_base::{Error, ErrorCode};
use millrace_format::worker::{AttemptToken, ServerFrame};
use millrace_func::{App, Schedule, WORKER_FILE, WorkerSlot, WorkerTurn};
use millrace_func_remote::{ASKED_EVERY_MS, RemoteEngine, SILENCE_MS, Said};
use millrace_shard::OffloadTicket;

use crate::bugs::PlantedBug;
use crate::happened::{Happened, Thing};
use crate::random::Rng;
use bugs::{About, Bugs};
use connection::Connection;
pub use document::Way;
use run::{Process, server_frames};

/// Workers that dial in, if nothing goes wrong.
const CONNECTIONS: usize = 2;

/// What the workers of a run are like.
#[derive(Clone, Debug)]
pub struct WorkerPlan {
    pub way: Way,
    /// Frames frames so far, over all starts of the node.
    pub frames: Rc<Cell<u64>>,
    /// No faults but a connection that is lost with this frame, once.
    pub lose_at: Option<u64>,
}

impl WorkerPlan {
    /// Takes note of a frame on its way. Says whether its connection is lost with it.
    fn carry(&self) -> bool {
        self.frames.set(self.frames.get() + 1);
        self.lose_at == Some(self.frames.get())
    }
}

/// A turn of a worker that a core waits for.
struct Exchange {
    core: usize,
    ticket: OffloadTicket,
    content: Bytes,
    is_request: bool,
    deadline_ms: u64,
    /// Nothing comes of it before its time is over.
    is_stalled: bool,
}

/// A turn that has come for a core, or that never will.
pub type Turn = (usize, OffloadTicket, Result<Bytes, Error>);

/// The workers of a node, and the way to them. See the module's documentation.
pub struct Workers {
    plan: WorkerPlan,
    process: Process,
    /// What engines have given up since.
    given_up: Rc<RefCell<Vec<AttemptToken>>>,
    exchanges: BTreeMap<AttemptToken, Exchange>,
    turns: VecDeque<Turn>,
    connections: Vec<Connection>,
    bugs: Bugs,
    pub happened: Happened,
}

fn failed(code: ErrorCode, what: &str) -> Error {
    Error::new(code, format!("the simulated worker: {what}"))
}

impl Workers {
    #[must_use]
    pub fn new(plan: WorkerPlan, bug: Option<PlantedBug>, now_ms: u64) -> Self {
        let count = if plan.way == Way::DialIn { CONNECTIONS } else { 0 };
        Self {
            plan,
            process: Process::new(),
            given_up: Rc::default(),
            exchanges: BTreeMap::new(),
            turns: VecDeque::new(),
            connections: (0..count).map(|_| Connection::open(now_ms)).collect(),
            bugs: Bugs::new(bug),
            happened: Happened::default(),
        }
    }

    /// The engine of one core.
    #[must_use]
    pub fn engine(&self) -> RemoteEngine {
        let given_up = Rc::clone(&self.given_up);
        RemoteEngine::new(move |_, attempt| given_up.borrow_mut().push(attempt), |_| Some(WorkerSlot::default()))
    }

    /// The same app, whose handlers run in these workers.
    #[must_use]
    pub fn app(&self, mut app: App, schedules: &[Schedule]) -> App {
        let document = document::document(self.plan.way, schedules).to_json();
        app.files.insert(WORKER_FILE.into(), document);
        app
    }

    /// A core sends frames of an attempt.
    pub fn begin(&mut self, core: usize, ticket: OffloadTicket, turn: WorkerTurn, now_ms: u64) {
        let WorkerTurn { attempt, content, start_bytes, is_request, timeout_ms, .. } = turn;
        if start_bytes > 0
            && let Some((_, ServerFrame::Start(start))) = server_frames(&content).into_iter().next()
        {
            self.bugs.begins(attempt, About::new(&start));
        }
        if !is_request && let Err(error) = self.begin_on_a_line(attempt, &content, start_bytes > 0, now_ms) {
            self.bugs.voided(attempt);
            self.turns.push_back((core, ticket, Err(error)));
            return;
        }
        let deadline_ms = now_ms + timeout_ms;
        let exchange = Exchange { core, ticket, content, is_request, deadline_ms, is_stalled: false };
        let before = self.exchanges.insert(attempt, exchange);
        assert!(before.is_none(), "an attempt has two turns under way");
    }

    fn begin_on_a_line(
        &mut self,
        attempt: AttemptToken,
        content: &Bytes,
        is_first: bool,
        now_ms: u64,
    ) -> Result<(), Error> {
        if is_first && self.plan.way == Way::Stream {
            self.connections.push(Connection::stream(now_ms));
        }
        let open = self.connections.iter_mut().filter(|connection| connection.line.is_open());
        let found = if is_first {
            open.min_by_key(|connection| connection.line.load())
        } else {
            open.into_iter().find(|connection| connection.line.has(attempt))
        };
        let nobody = || failed(ErrorCode::WorkerUnavailable, "nobody is connected");
        found.ok_or_else(nobody)?.begin(attempt, content, is_first, now_ms)
    }

    /// Engines wait no more for what they have given up.
    pub fn hear_given_up(&mut self) {
        let given_up = std::mem::take(&mut *self.given_up.borrow_mut());
        for attempt in given_up {
            if self.give_up(attempt) {
                self.happened.note(Thing::AttemptGivenUp);
            }
            self.end(attempt, Err(failed(ErrorCode::WorkerFailed, "the attempt was given up")));
            self.bugs.voided(attempt);
        }
    }

    /// Nobody waits for an attempt any more. Says whether a connection had it.
    fn give_up(&mut self, attempt: AttemptToken) -> bool {
        let mut connections = self.connections.iter_mut();
        let Some(found) = connections.find_map(|one| one.line.cancel(attempt).then_some(one)) else { return false };
        if self.plan.way == Way::Stream {
            found.line.end("it was reset");
        }
        true
    }

    /// The next turn for a core.
    pub fn next_turn(&mut self) -> Option<Turn> {
        self.turns.pop_front()
    }

    fn end(&mut self, attempt: AttemptToken, result: Result<Bytes, Error>) {
        let Some(Exchange { core, ticket, .. }) = self.exchanges.remove(&attempt) else { return };
        let result = match result {
            Ok(turn) => Ok(self.bugs.turn(attempt, turn)),
            Err(error) => {
                self.bugs.voided(attempt);
                Err(error)
            }
        };
        self.turns.push_back((core, ticket, result));
    }

    /// Hands on what was said on all connections.
    fn hear(&mut self) {
        for index in 0..self.connections.len() {
            self.connections[index].carry_away();
            while let Some(said) = self.connections[index].line.next_said() {
                if let Said::Turn(attempt, result) = said {
                    self.end(attempt, result);
                }
            }
        }
    }

    /// One thing happens on the way to workers. Says whether there was anything to do.
    pub fn go_on(&mut self, rng: &mut Rng, now_ms: u64, is_calm: bool) -> bool {
        let is_calm = is_calm || self.plan.lose_at.is_some();
        let has_gone_on = match self.plan.way {
            Way::RequestReply => self.answer_one(rng, is_calm),
            Way::DialIn => self.carry_some(rng, now_ms, is_calm),
            Way::Stream => {
                let has_answered = (is_calm || rng.chance(1, 3)) && self.answer_one(rng, is_calm);
                self.carry_some(rng, now_ms, is_calm) || has_answered
            }
        };
        self.hear();
        has_gone_on || !self.turns.is_empty()
    }

    /// Time has passed.
    pub fn pass_time(&mut self, now_ms: u64) {
        for index in 0..self.connections.len() {
            let looks_after = self.connections[index].line.is_awaited() && !self.bugs.has(PlantedBug::SilenceIsIgnored);
            if self.connections[index].pass_time(now_ms, looks_after) {
                self.happened.note(Thing::WorkerFellSilent);
            }
        }
        self.hear();
        let is_late = |(_, exchange): &(&AttemptToken, &Exchange)| exchange.deadline_ms <= now_ms;
        let late: Vec<AttemptToken> = self.exchanges.iter().filter(is_late).map(|(attempt, _)| *attempt).collect();
        for attempt in late {
            self.happened.note(Thing::WorkerTooLate);
            self.give_up(attempt);
            self.end(attempt, Err(failed(ErrorCode::WorkerTimeout, "not ended in time")));
        }
        self.hear();
    }

    /// Nobody waits for a worker that has said nothing for too long.
    ///
    /// # Errors
    /// Somebody does.
    pub fn check(&self, now_ms: u64) -> Result<(), String> {
        let awaited = |connection: &&Connection| connection.line.is_awaited();
        let silent_ms = |connection: &Connection| now_ms.saturating_sub(connection.heard_ms);
        match self.connections.iter().filter(awaited).map(silent_ms).max() {
            Some(silent_ms) if silent_ms > SILENCE_MS + ASKED_EVERY_MS => {
                Err(format!("a worker has said nothing for {silent_ms} ms, and its attempts are not voided"))
            }
            _ => Ok(()),
        }
    }

    /// Whether no core waits for a worker.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.exchanges.is_empty() && self.turns.is_empty()
    }

    /// Attempts that the server knows of.
    #[must_use]
    pub fn attempts(&self) -> usize {
        self.exchanges.len() + self.connections.iter().map(|connection| connection.line.load()).sum::<usize>()
    }
}
