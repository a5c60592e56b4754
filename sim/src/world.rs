//! The simulated world: a node, its machine, clients, time and faults, all from one seed.
//!
//! A run alternates between doing something at random and, after every restart, checking
//! everything. It ends with the faults over. Every repeatable operation is repeated until its fate is known, and every
//! message is delivered. Everything is checked once more, and a client reads everything after another restart. Then
//! what clients saw is judged as a history.

mod alone;
mod workflows;

use std::rc::Rc;
use std::sync::Arc;

use millrace_base::{Error, ShardId, UnixMillis, shard_of_key};
use millrace_log::RecoverError;
use millrace_shard::{Reply, RequestInfo, ResultNames, Shard, Token};
use millrace_store::MemoryCheckpoint;

use crate::bugs::PlantedBug;
use crate::checks::{self, Entries, View, check_all};
use crate::clock::SimClock;
use crate::disk::{Faults, SimDisk};
use crate::disturb::{ASIDE, Restarting};
use crate::happened::{Happened, Thing};
use crate::job::job_of;
use crate::judge::{AtRest, judge};
use crate::ledger::{Kind, Known, Ledger, Operation};
use crate::net::Fate;
use crate::node::{HOUR_MS, Machine, Node, Setup, StartError};
use crate::random::{Rng, SimRandom};
use crate::rig::APP;
use crate::workers::{Way, WorkerPlan};
use crate::workload;

/// Lines of trace kept.
const TRACE_LINES: usize = 400;

/// What a run is made of.
#[derive(Clone, Debug)]
pub struct Plan {
    pub seed: u64,
    pub steps: usize,
    pub bug: Option<PlantedBug>,
    /// Keep a readable trace of every step.
    pub is_traced: bool,
    /// No faults but a power cut at this operation of the disk, once.
    pub crash_at: Option<u64>,
    /// Handlers run in workers.
    pub has_workers: bool,
    /// No faults but a connection to a worker that is lost with this frame, once.
    pub lose_worker_at: Option<u64>,
    /// Only what clients saw is judged, and nobody looks at the state: what would be noticed from
    /// outside?
    pub is_black_box: bool,
}

impl Plan {
    /// A usual run.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            seed,
            steps: 220,
            bug: None,
            is_traced: false,
            crash_at: None,
            has_workers: false,
            lose_worker_at: None,
            is_black_box: false,
        }
    }

    /// A run whose handlers run in workers.
    #[must_use]
    pub fn with_workers(seed: u64) -> Self {
        Self { has_workers: true, ..Self::new(seed) }
    }

    fn workers(&self) -> Option<WorkerPlan> {
        let is_on_workers = self.has_workers || self.bug.is_some_and(PlantedBug::is_of_workers);
        let way = Way::ALL[(self.seed % 3) as usize];
        is_on_workers.then(|| WorkerPlan { way, frames: Rc::default(), lose_at: self.lose_worker_at })
    }
}

/// A run that found something wrong.
#[derive(Clone, Debug)]
pub struct Failure {
    pub what: String,
    pub trace: Vec<String>,
}

/// What a run that found nothing did.
#[derive(Clone, Copy, Debug, Default)]
pub struct Summary {
    pub operations: usize,
    pub acknowledged: usize,
    /// Acknowledged ones in histories that were judged.
    pub judged: usize,
    pub restarts: usize,
    pub disk_operations: u64,
    /// Frames carried between the node and workers.
    pub worker_frames: u64,
    pub happened: Happened,
}

pub struct World {
    plan: Plan,
    rng: Rng,
    machine: Machine,
    clock: Arc<SimClock>,
    node: Option<Node>,
    ledger: Ledger,
    entries: Entries,
    at_rest: AtRest,
    judged: usize,
    starts: u64,
    disk_operations: u64,
    happened: Happened,
    /// How far the clock has been set back by hours: it is put right again.
    behind_ms: u64,
    restarts: Restarting,
    trace: Vec<String>,
    is_calm: bool,
}

type Checked = Result<(), String>;

impl World {
    fn new(plan: Plan) -> Self {
        let mut rng = Rng::new(plan.seed);
        let clock = Arc::new(SimClock::new(1_000_000_000));
        let machine = Machine {
            disk: SimDisk::new(rng.draw()),
            checkpoint: Arc::new(MemoryCheckpoint::new()),
            clock: Arc::clone(&clock) as _,
            random: Arc::new(SimRandom::new(rng.draw())),
            shard_count: 2 + u16::try_from(rng.below(3)).expect("small"),
            result_names: match plan.seed % 4 {
                0 => ResultNames::Plain,
                _ => ResultNames::Hashed([7; 16]),
            },
            workers: plan.workers(),
            bug: plan.bug,
        };
        Self {
            is_calm: plan.crash_at.is_some() || plan.lose_worker_at.is_some(),
            plan,
            rng,
            machine,
            clock,
            node: None,
            ledger: Ledger::default(),
            entries: Entries::default(),
            at_rest: AtRest::default(),
            judged: 0,
            starts: 0,
            disk_operations: 0,
            happened: Happened::default(),
            behind_ms: 0,
            restarts: Restarting::default(),
            trace: Vec::new(),
        }
    }

    /// Runs a whole plan.
    ///
    /// # Errors
    /// What it found wrong, with the trace if the plan asked for one.
    pub fn run(plan: Plan) -> Result<Summary, Failure> {
        let mut world = World::new(plan);
        let result = world.live();
        let trace = std::mem::take(&mut world.trace);
        result.map_err(|what| Failure { what, trace })?;
        let is_done = |operation: &&Operation| matches!(operation.known, Known::Done(_));
        Ok(Summary {
            operations: world.ledger.operations.len(),
            acknowledged: world.ledger.operations.iter().filter(is_done).count(),
            judged: world.judged,
            restarts: usize::try_from(world.starts).unwrap_or(usize::MAX),
            disk_operations: world.disk_operations + world.machine.disk.operations(),
            worker_frames: world.machine.workers.as_ref().map_or(0, |workers| workers.frames.get()),
            happened: world.happened,
        })
    }

    fn note(&mut self, line: impl FnOnce() -> String) {
        if self.plan.is_traced {
            if self.trace.len() >= TRACE_LINES {
                self.trace.remove(0);
            }
            let line = format!("{:>7} ms  {}", self.now().0.saturating_sub(1_000_000_000), line());
            self.trace.push(line);
        }
    }

    fn now(&self) -> UnixMillis {
        UnixMillis(millrace_io::Clock::now(&*self.clock))
    }

    fn live(&mut self) -> Checked {
        self.machine.disk.set_faults(Faults { crash_at: self.plan.crash_at, ..Faults::default() });
        self.restart()?;
        for _ in 0..self.plan.steps {
            self.step()?;
        }
        self.settle()
    }

    fn step(&mut self) -> Checked {
        let cores = self.node.as_ref().map_or(1, Node::cores);
        let core = self.rng.index(cores);
        let shard = ShardId(u16::try_from(self.rng.below(u64::from(self.machine.shard_count))).expect("small"));
        match self.rng.below(100) {
            0..=21 => self.issue(core),
            22..=39 => {
                self.on_node(core, "round ends", |node, rng| {
                    node.read_some(core, rng);
                    node.end_round(core);
                });
                if self.rng.chance(3, 4) {
                    self.on_node(core, "commit ends", |node, _| node.end_commit(core));
                }
            }
            40..=46 => self.on_node(core, "commit ends", |node, _| node.end_commit(core)),
            47 => self.restart_a_workflow(),
            48..=51 => self.on_node(core, "due messages start", |node, rng| {
                node.run_due(core);
                node.read_some(core, rng);
            }),
            // A transaction takes many messages: several at a time, or most would never get far.
            52..=70 => self.on_node(core, "messages are carried", |node, rng| {
                for _ in 0..=rng.index(6) {
                    let (is_lost, is_doubled) = (rng.chance(1, 6), rng.chance(1, 5));
                    node.receive(core, Fate { overtaken_by: rng.index(8), is_lost, is_doubled });
                }
            }),
            71..=75 => self.on_node(core, "work ends", |node, rng| {
                node.finish_offload(core, rng.draw());
                node.read_some(core, rng);
            }),
            76..=79 => self.tick(),
            80..=83 => self.on_node(core, "log job", |node, _| node.run_log_jobs(core)),
            84..=88 => {
                self.on_node(core, "some rounds end", |node, rng| {
                    if node.has(shard) {
                        node.flush_early(shard, 64 << rng.below(6));
                    }
                    for _ in 0..4 {
                        node.end_round(core);
                    }
                });
            }
            89..=93 => self.on_node(core, "chunk is written", |node, _| node.write_chunk(core)),
            94 => self.on_node(core, "covered segments go", |node, _| node.delete_covered()),
            95 => self.on_node(core, "eviction", |node, rng| {
                let bytes = rng.index(4_000);
                if node.has(shard) {
                    node.store(shard).evict(bytes);
                }
            }),
            96 => self.repeat_one(core),
            99 => self.disturb_a_workflow(),
            97 => self.new_faults(),
            98 if self.rng.chance(1, 3) => return self.stop_at_random(),
            _ => self.lose_one(shard)?,
        }
        self.carry_for_workers(core)?;
        self.open_some()?;
        self.after_step()
    }

    /// An attempt takes many frames: several are carried in each step, or most would never get far.
    fn carry_for_workers(&mut self, core: usize) -> Checked {
        if self.machine.workers.is_none() {
            return Ok(());
        }
        let is_calm = self.is_calm;
        self.on_node(core, "frames of workers are carried", |node, rng| {
            for _ in 0..rng.index(12) {
                node.carry_for_workers(rng, is_calm);
            }
        });
        self.node.as_ref().map_or(Ok(()), Node::check_workers)
    }

    /// Does one thing to the node.
    fn on_node(&mut self, core: usize, what: &str, action: impl FnOnce(&mut Node, &mut Rng)) {
        let Some(node) = self.node.as_mut() else { return };
        action(node, &mut self.rng);
        self.note(|| format!("core {core}: {what}"));
    }

    fn after_step(&mut self) -> Checked {
        self.take_output()?;
        if self.machine.disk.has_crashed() {
            self.note(|| "the power went at the planned operation".to_owned());
            self.die(true);
            return self.restart();
        }
        if self.node.as_ref().is_some_and(Node::needs_restart) && self.rng.chance(1, 3) {
            self.note(|| "a shard has stopped; the node is restarted".to_owned());
            let is_power_cut = self.rng.chance(1, 2);
            self.die(is_power_cut);
            return self.restart();
        }
        Ok(())
    }

    fn take_output(&mut self) -> Checked {
        let Some(node) = self.node.as_mut() else { return Ok(()) };
        let output = std::mem::take(&mut node.output);
        self.happened.add(&output.happened);
        for entry in output.entries {
            if !self.plan.is_black_box {
                self.entries.made(entry)?;
            }
        }
        if self.machine.disk.has_crashed() {
            return Ok(());
        }
        for shard in (0..self.machine.shard_count).map(ShardId) {
            if node.has(shard) {
                let lsn = node.durable_lsn(shard);
                self.entries.note_durable(shard, lsn);
            }
        }
        for (token, result) in output.replies {
            if token >= ASIDE {
                self.told_aside(token, &result);
                continue;
            }
            self.replied(token, &result)?;
        }
        Ok(())
    }

    fn replied(&mut self, token: Token, result: &Result<Reply, Error>) -> Checked {
        let id = match self.ledger.replied(token, result) {
            Err(_) if self.plan.is_black_box => return Ok(()),
            replied => replied?,
        };
        self.note(|| format!("op{id} is answered {}", shown(result)));
        let operation = &self.ledger.operations[id];
        let has_mark = operation.has_mark() && !self.plan.is_black_box;
        if result.is_ok() && has_mark && self.rng.chance(1, 8) {
            return self.probe(id);
        }
        Ok(())
    }

    /// Asks what would be left of an acknowledged operation if everything not synced were lost at
    /// this instant.
    fn probe(&mut self, id: usize) -> Checked {
        let machine = Machine { disk: self.machine.disk.durable_copy(1), ..self.machine.clone() };
        let operation = &self.ledger.operations[id];
        let (service, key, _) = operation.target();
        let shard = shard_of_key(key.as_bytes(), machine.shard_count);
        let (mut stores, _, _) = machine.recover_stores().map_err(|error| {
            format!("no reply before it is durable: with op{id} answered, the durable state is refused: {error:?}")
        })?;
        let name = |text: &str| millrace_base::Name::new(text).expect("a name");
        let entity = millrace_base::EntityKey::new(&name(APP), &name(service), key.as_bytes());
        let store = stores.get_mut(&shard).expect("every shard has a store");
        let mark = store.get(&entity, operation.mark().as_bytes()).map_err(|error| error.to_string())?;
        if mark.is_none() {
            return Err(format!("no reply before it is durable: op{id} was answered and is not on disk"));
        }
        Ok(())
    }

    fn issue(&mut self, core: usize) {
        let drawn = self
            .draw_under_an_old_key()
            .unwrap_or_else(|| workload::draw(&mut self.rng, self.machine.shard_count, self.ledger.operations.len()));
        let id = self.ledger.add(drawn.kind, drawn.script, drawn.idempotency_key, drawn.is_route);
        self.send(id, core);
    }

    /// Now and then a request under a key that was used long ago: it is a new one.
    fn draw_under_an_old_key(&mut self) -> Option<workload::Drawn> {
        let now = self.now();
        let is_free = |operation: &&mut Operation| {
            let is_counted = matches!(operation.kind, Kind::Add { .. });
            is_counted && operation.is_expired && !operation.is_key_used_again && !operation.keeps_key(now)
        };
        let id = self.ledger.operations.len();
        let earlier = self.ledger.operations.iter_mut().find(is_free)?;
        let (kind, idempotency_key) = (earlier.kind.clone(), earlier.idempotency_key.clone());
        earlier.is_key_used_again = true;
        self.happened.note(Thing::KeyUsedAgain);
        let script = workload::count(&mut self.rng, id);
        Some(workload::Drawn { kind, script, idempotency_key, is_route: self.rng.chance(1, 5) })
    }

    fn repeat_one(&mut self, core: usize) {
        if self.ledger.operations.is_empty() {
            return;
        }
        let id = self.rng.index(self.ledger.operations.len());
        if self.ledger.operations[id].is_repeatable() {
            self.send(id, core);
        }
    }

    fn send(&mut self, id: usize, core: usize) {
        let now = self.now();
        let Some(node) = self.node.as_mut() else { return };
        let token = self.ledger.sending(id, now);
        let operation = &self.ledger.operations[id];
        let info = RequestInfo {
            time: now,
            began_ms: 0,
            nonce: node.core(core).take_nonce(),
            idempotency_key: operation.kept_key(),
        };
        let job = job_of(operation, info, node.catalog(), self.machine.shard_count);
        node.request(core, token, job);
        let operation = self.ledger.operations[id].clone();
        self.note(|| {
            let key = operation.idempotency_key.as_deref().unwrap_or("none");
            let way = if operation.is_route { "by a route" } else { "called" };
            format!("op{id} is {way}, attempt {}, idempotency key {key}: {:?}", operation.attempts, operation.kind)
        });
    }

    fn tick(&mut self) {
        let milliseconds = 1 << self.rng.below(11);
        self.clock.advance(milliseconds);
        if !self.is_calm && self.rng.chance(1, 16) {
            self.set_clock();
        }
        self.tick_node();
    }

    fn tick_node(&mut self) {
        let now = self.now();
        self.happened.note_many(Thing::KeyExpired, self.ledger.clock_shows(now, UnixMillis(self.clock.latest())));
        self.on_node(0, "tick", |node, _| node.tick());
    }

    /// Somebody sets the clock.
    fn set_clock(&mut self) {
        match self.rng.below(8) {
            0..=2 => {
                self.clock.set_back(1 + self.rng.below(5_000));
                self.happened.note(Thing::ClockBack);
            }
            3..=5 => {
                let at_most_ms = if self.rng.chance(1, 2) { 20_000 } else { 120_000 };
                self.clock.advance(self.rng.below(at_most_ms));
                self.happened.note(Thing::ClockForward);
            }
            6 if self.behind_ms == 0 => {
                self.behind_ms = 1 + self.rng.below(6 * HOUR_MS);
                self.clock.set_back(self.behind_ms);
                self.happened.note(Thing::HoursBack);
            }
            6 => self.put_clock_right(),
            _ => self.pass_hours(),
        }
    }

    fn put_clock_right(&mut self) {
        if self.now().plus(self.behind_ms) <= self.ledger.latest_jump(HOUR_MS / 2) {
            self.clock.set_forward(std::mem::take(&mut self.behind_ms));
        }
    }

    /// Up to two and a half days pass in which nobody hears of anything. They leave room for the clock to be put
    /// right, and for the time that passes otherwise.
    fn pass_hours(&mut self) {
        // Every other time so many that all keys are good for new requests.
        let least_ms = if self.rng.chance(1, 2) { 36 * HOUR_MS } else { 0 };
        let jump_ms = least_ms + self.rng.below(if least_ms > 0 { 24 } else { 48 } * HOUR_MS);
        let at_most = self.ledger.latest_jump(HOUR_MS);
        let shown = self.now().plus(self.behind_ms).0.max(self.clock.latest());
        let at_most_ms = at_most.0.saturating_sub(shown);
        if at_most_ms > 0 {
            self.clock.advance(jump_ms.min(at_most_ms));
            self.happened.note(Thing::HoursForward);
        }
    }

    fn new_faults(&mut self) {
        if self.is_calm {
            return;
        }
        let rng = &mut self.rng;
        let used = self.machine.disk.used_bytes();
        let mut faults = Faults::default();
        match rng.below(8) {
            0..=2 => faults.crash_at = Some(1 + rng.below(60)),
            3 => faults.fail_sync_at = Some(1 + rng.below(8)),
            4..=5 => {
                faults.capacity_bytes = Some(used + rng.below(40 << 10));
                faults.is_copy_on_write = rng.chance(1, 3);
            }
            _ => {}
        }
        self.disk_operations += self.machine.disk.operations();
        self.machine.disk.set_faults(faults.clone());
        self.note(|| format!("from now on: {faults:?}"));
    }

    fn stop_at_random(&mut self) -> Checked {
        if self.is_calm {
            return Ok(());
        }
        if self.rng.chance(1, 3) {
            self.note(|| "the node is stopped cleanly".to_owned());
            self.happened.note(Thing::Stopped);
            // Its last replies are lost on the way.
            if let Some(node) = self.node.take() {
                self.happened.note_many(Thing::StartedAgain, node.started_again());
                for entry in node.close() {
                    if !self.plan.is_black_box {
                        self.entries.made(entry)?;
                    }
                }
            }
        }
        let is_power_cut = self.rng.chance(2, 3);
        self.note(|| if is_power_cut { "the power goes".to_owned() } else { "the process is killed".to_owned() });
        self.die(is_power_cut);
        self.restart()
    }

    fn die(&mut self, is_power_cut: bool) {
        if let Some(node) = self.node.take() {
            self.happened.note_many(Thing::StartedAgain, node.started_again());
        }
        self.ledger.server_died();
        self.disk_operations += self.machine.disk.operations();
        self.happened.note(if is_power_cut { Thing::PowerCut } else { Thing::Killed });
        if is_power_cut {
            self.machine.disk.power_cut();
        } else {
            self.machine.disk.kill();
        }
    }

    /// Starts a node, however often its start is interrupted, and checks what came back.
    fn restart(&mut self) -> Checked {
        for attempt in 0.. {
            if self.starts > 0 && !self.is_calm && attempt < 3 && self.rng.chance(1, 4) {
                let crash_at = Some(1 + self.rng.below(12));
                self.machine.disk.set_faults(Faults { crash_at, ..Faults::default() });
            }
            if self.starts > 0 && !self.is_calm && self.rng.chance(1, 10) {
                self.pass_hours();
            }
            self.starts += 1;
            // Of two draws the higher one: only messages between cores can be lost, doubled or late.
            let mut draw = || 1 + self.rng.index(usize::from(self.machine.shard_count));
            let cores = draw().max(draw());
            let read_ahead = 1 << self.rng.below(5);
            let look_ns = 1_000 << self.rng.below(11);
            let setup = Setup {
                cores,
                read_ahead,
                look_ns,
                flush_after_ms: 1 << self.rng.below(14),
                chunk_bytes: 128 << self.rng.below(8),
                first_nonce: self.starts & 0xFF,
                hold_ms: (!self.is_calm && self.rng.chance(1, 2)).then(|| hold_ms(50 << self.rng.below(6), look_ns)),
            };
            let now = self.now();
            self.happened.note_many(Thing::KeyExpired, self.ledger.clock_shows(now, UnixMillis(self.clock.latest())));
            match Node::start(&self.machine, setup) {
                Ok(node) if !self.machine.disk.has_crashed() => {
                    self.node = Some(node);
                    self.note(|| format!("the node has started on {cores} cores"));
                    return self.check_recovered();
                }
                Err(StartError::Log(RecoverError::Damaged(damage))) if !self.machine.disk.has_crashed() => {
                    return Err(format!("nothing was damaged, yet the log is refused: {damage}"));
                }
                Err(error) if !self.machine.disk.has_crashed() => return Err(format!("no start: {error:?}")),
                _ => {
                    self.note(|| "the power went during the start".to_owned());
                    self.happened.note(Thing::PowerCutAtStart);
                    self.die(true);
                }
            }
        }
        Ok(())
    }

    fn check_recovered(&mut self) -> Checked {
        let Some(node) = self.node.as_mut() else { return Ok(()) };
        if !self.plan.is_black_box {
            self.entries.recovered(node, self.machine.shard_count)?;
        }
        self.take_output()?;
        self.check(false)
    }

    fn check(&mut self, is_final: bool) -> Checked {
        let (Some(node), false) = (self.node.as_mut(), self.plan.is_black_box) else { return Ok(()) };
        let shard_count = self.machine.shard_count;
        check_all(&mut View::new(&self.ledger, node, shard_count, is_final), &self.entries, true)
    }

    /// Checks what must hold at any moment.
    fn check_while_it_runs(&mut self) -> Checked {
        let (Some(node), false) = (self.node.as_mut(), self.plan.is_black_box) else { return Ok(()) };
        let mut view = View::new(&self.ledger, node, self.machine.shard_count, false);
        check_all(&mut view, &self.entries, false)
    }

    fn count_schedules(&mut self) -> Checked {
        for schedule in workload::recurring(self.machine.shard_count) {
            let shard = shard_of_key(schedule.key.as_bytes(), self.machine.shard_count);
            let fired = checks::schedules::fired(&self.entries, &schedule, shard)?;
            self.happened.note_many(Thing::ScheduleCalled, fired.times);
            self.happened.note_many(Thing::ScheduleFolded, fired.folded);
        }
        Ok(())
    }

    /// Nothing is under way: what is still held?
    fn look_for_leftovers(&mut self) {
        if let Some(node) = self.node.as_ref() {
            self.at_rest.left.extend(node.left_at_rest());
        }
    }

    /// Reads everything as a client does, and judges what clients have seen.
    fn judge(&mut self) -> Checked {
        let first = self.ledger.operations.len();
        for (kind, script) in workload::last_looks(&self.ledger, self.machine.shard_count) {
            self.ledger.add(kind, script, None, false);
        }
        let is_answered = |operation: &Operation| matches!(operation.known, Known::Done(_));
        // A planned crash may come between question and answer.
        for _ in 0..2 {
            for id in first..self.ledger.operations.len() {
                if !is_answered(&self.ledger.operations[id]) {
                    self.send(id, 0);
                }
            }
            self.drain()?;
        }
        if let Some(operation) = self.ledger.operations[first..].iter().find(|operation| !is_answered(operation)) {
            return Err(format!("a last look at everything was not answered: {operation:?}"));
        }
        self.look_for_leftovers();
        if let Some(node) = self.node.as_mut() {
            let mut view = View::new(&self.ledger, node, self.machine.shard_count, true);
            self.at_rest.counters = workload::counters(&self.ledger)
                .into_iter()
                .map(|key| (key.clone(), view.number("counter", &key, "n")))
                .collect();
        }
        self.judged = judge(&self.ledger, &self.at_rest, self.machine.shard_count)?;
        Ok(())
    }

    /// Ends the faults, and goes on until nothing is under way and nothing is unknown.
    fn settle(&mut self) -> Checked {
        self.is_calm = true;
        self.disk_operations += self.machine.disk.operations();
        if self.plan.crash_at.is_none() {
            self.machine.disk.set_faults(Faults::default());
        }
        self.note(|| "the faults are over".to_owned());
        self.open_all()?;
        self.count_schedules()?;
        if self.node.as_ref().is_some_and(Node::needs_restart) {
            self.die(false);
            self.restart()?;
        }
        for round in 0..40 {
            for id in 0..self.ledger.operations.len() {
                if self.ledger.is_unsettled(id) {
                    self.send(id, 0);
                    self.after_step()?;
                }
            }
            self.drain()?;
            // After the clock was set back, timers run at half its pace.
            self.clock.advance(if round < 4 { 1_000 } else { 2 * 61_000 });
            self.put_clock_right();
            self.wait_for_late_messages();
            self.tick_node();
            self.after_step()?;
            // A schedule may have been due.
            self.drain()?;
            let is_settled = (0..self.ledger.operations.len()).all(|id| !self.ledger.is_unsettled(id));
            let is_at_rest = |node: &Node| node.is_idle() && node.workflows() == 0;
            if round == 2 {
                (0..2).for_each(|_| self.restart_a_workflow());
            }
            if round == 4 {
                self.look_for_those_who_wait()?;
            }
            if is_settled && round >= 6 && self.node.as_ref().is_some_and(is_at_rest) {
                self.look_for_leftovers();
                self.check(true)?;
                self.die(self.plan.seed.is_multiple_of(2));
                self.restart()?;
                self.check(true)?;
                self.judge()?;
                if self.plan.is_black_box {
                    return Ok(());
                }
                return checks::damage::check(&self.machine, &mut self.rng, &mut self.happened);
            }
        }
        let unsettled = (0..self.ledger.operations.len()).filter(|id| self.ledger.is_unsettled(*id)).count();
        let (is_idle, workflows) =
            self.node.as_ref().map_or((false, Vec::new()), |node| (node.is_idle(), node.waiting_workflows()));
        let left = self.node.as_ref().map(Node::left_at_rest);
        Err(format!(
            "it never comes to rest: {left:?}, idle {is_idle}, {unsettled} operations unsettled, workflows {workflows:?}"
        ))
    }

    /// A delayed message on its way to another shard while the clock was set back comes later by that.
    fn wait_for_late_messages(&mut self) {
        let due = self.node.as_ref().and_then(|node| node.shards().filter_map(Shard::next_due).max());
        if let Some(due) = due.filter(|_| self.happened.times(Thing::HoursBack) > 0) {
            self.clock.advance(due.0.saturating_sub(self.now().0));
        }
    }

    fn drain(&mut self) -> Checked {
        // The committer tries a full disk again by itself, a few times a second.
        if let Some(node) = self.node.as_mut() {
            (0..node.cores()).for_each(|core| node.run_log_jobs(core));
            self.after_step()?;
        }
        for round in 0..2_000 {
            let Some(node) = self.node.as_mut() else { return Ok(()) };
            if node.has_workers() {
                // Attempts that were lost begin again after a while.
                self.clock.advance(5);
                node.tick();
                while node.carry_for_workers(&mut self.rng, true) {}
            }
            let has_due = (0..node.cores()).map(|core| node.run_due(core)).filter(|has_due| *has_due).count() > 0;
            // An attempt that was lost is made again after a while.
            let may_begin_again = round < 600 && node.may_begin_again();
            if node.is_idle() && !has_due && !may_begin_again {
                // What was due may have answered somebody.
                return self.after_step();
            }
            for core in 0..node.cores() {
                node.run_log_jobs(core);
                node.end_round(core);
                node.end_commit(core);
                node.write_chunk(core);
                while node.finish_offload(core, 0) {}
                node.read_all(core);
                while node.receive(core, Fate::default()) {}
                if self.machine.disk.has_crashed() {
                    break;
                }
            }
            self.after_step()?;
        }
        Err("work never ends".to_owned())
    }
}

/// How long votes hold. A lease outlasts a round of votes, in which all cores together look at the clock some 50 times:
/// votes that always lapse before the last one is heard are asked for again and again.
fn hold_ms(drawn_ms: u64, look_ns: u64) -> u64 {
    drawn_ms.max(500 * look_ns / 1_000_000)
}

/// Runs a plan and returns its trace, whatever it finds; also up to a broken assertion.
#[must_use]
pub fn trace(plan: Plan) -> Vec<String> {
    let mut world = World::new(Plan { is_traced: true, ..plan });
    // The trace is only read afterwards, whatever state the world was left in.
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| world.live()));
    if let Ok(Err(what)) = result {
        world.trace.push(what);
    }
    world.trace
}

fn shown(result: &Result<Reply, Error>) -> String {
    match result {
        Ok(Reply::Value(bytes)) => String::from_utf8_lossy(bytes).into_owned(),
        Ok(Reply::Route(reply)) => String::from_utf8_lossy(&reply.body).into_owned(),
        Ok(other) => format!("{other:?}"),
        Err(error) => error.to_string(),
    }
}
