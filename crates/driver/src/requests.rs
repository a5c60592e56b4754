//! Requests on their way to a shard. A request runs at once, queues while the core is busy, or passes to the core that
//! owns the shard. It is refused when the wait would be too long.
//!
//! Whoever drives the core hands over what is ready, then looks for new input. Such a round is kept short. Once it has
//! lasted [`ROUND_NS`], further requests queue. The end of the round runs them in slices of the same length, and between two
//! slices the driver looks for new input. When many queue, connections that ask first leave their request unread, and are
//! called when it can run. So a request's wait is known when the next one comes. A request that would wait longer than
//! `queue_ms` is refused at the cost of parsing it.

use millrace_base::{Error, ErrorCode, ShardId, UnixMillis, limits};
use millrace_func::{Answer, HandlerId, HandlerKind};
use millrace_shard::{Input, PeerMessage, Reply, ReplyTo, Token};

use crate::core::{Core, broke};
use crate::message::{CoreAddress, CoreMessage, Job};
use crate::outputs::Event;
use crate::platform::{DriverBug, Platform};
use crate::queue::{Arrival, Queued, ROUND_NS};
use crate::replicated::Way;
use crate::typed_request::{Request, typed};

/// Events of the core's shards that are followed at once. A transaction over three shards takes some 20. One that has ended
/// before the next request begins makes nobody wait, and gives way to nobody. At some 10 µs each, so many take about as long
/// as a round. Functions that use more CPU time end it sooner.
const FOLLOWED: usize = 256;

/// A query that may be answered without a transaction.
#[derive(Clone, Copy, Debug)]
pub struct FastRead<'a> {
    /// What to run.
    pub handler: HandlerId,
    /// The shard of the key.
    pub shard: ShardId,
    /// The entity's key.
    pub key: &'a [u8],
    /// JSON text.
    pub input: &'a [u8],
}

/// What becomes of a request at once.
#[must_use = "it has the reply, or what the reply is fetched with"]
#[derive(Debug)]
pub enum Submitted<R, T> {
    /// It has ended.
    Answered(Result<R, Error>),
    /// It goes on. Its reply is fetched with this, or given up.
    Pending(T),
}

impl<P: Platform> Core<P> {
    /// A request has come: reads the clock for it. The first request of a round begins the round.
    pub fn enter(&mut self) -> Arrival {
        let now_ns = self.begin_round();
        Arrival { now_ns, called_since_ns: self.queue.take_called_since_ns() }
    }

    /// The wall clock is read once a round: a request's time is at most a round old.
    pub(crate) fn begin_round(&mut self) -> u64 {
        let now_ns = self.platform.monotonic_ns();
        if self.queue.begin_round(now_ns) {
            self.read_clock();
            self.platform.wake();
        }
        now_ns
    }

    /// Starts a request that [`Core::enter`] was called for.
    pub fn request<R: Request>(&mut self, request: R, arrival: Arrival) -> Submitted<R::Reply, ReplyTo<R::Reply>> {
        match self.submit(request.into_job(), arrival) {
            Submitted::Answered(result) => Submitted::Answered(result.and_then(typed)),
            Submitted::Pending(token) => Submitted::Pending(ReplyTo::of(token)),
        }
    }

    /// As [`Core::request`], for whoever keeps replies of all kinds together, as the simulator does.
    pub fn submit(&mut self, job: Job, arrival: Arrival) -> Submitted<Reply, Token> {
        let is_elsewhere = self.is_elsewhere(&job);
        let owner = job.shard().map_or(self.options.index, |shard| self.options.placement.core_of(shard));
        let is_own = !is_elsewhere && owner == self.options.index;
        if is_own && let Some(refusal) = self.refusal(&job, arrival) {
            return Submitted::Answered(Err(refusal));
        }
        let token = self.pending.local();
        if is_elsewhere {
            self.dispatch(job.shard(), job, token, arrival.since_ns());
        } else if is_own {
            self.admit(job, token, arrival);
        } else {
            self.pass_on(owner, token, job, arrival.since_ns());
        }
        self.pending.fetch(token).map_or(Submitted::Pending(token), Submitted::Answered)
    }

    /// Whether a cluster's shard, for which a request has come, cannot take it on this core.
    fn is_elsewhere(&self, job: &Job) -> bool {
        self.is_replicated() && job.shard().is_some_and(|shard| !self.takes_requests(shard))
    }

    /// Answers a query without an idempotency key at once, where its shard is of this core, can do so, and nobody waits
    /// before it. `None`: it has to be submitted.
    pub fn fast_read(&mut self, read: FastRead<'_>, arrival: Arrival) -> Option<Result<Answer, Error>> {
        let FastRead { handler, shard, key, input } = read;
        let is_replicated = self.is_replicated();
        if is_replicated && !matches!(self.way_to(shard), Way::Open) {
            return None;
        }
        if !self.queue.has_turn(arrival) || self.options.placement.core_of(shard) != self.options.index {
            return None;
        }
        let asked = self.with_world(Some(shard), |shard, world| shard?.fast_read(handler, key, input, world));
        let result = match asked {
            Ok(answer) => answer?,
            Err(reason) => {
                self.stop_shard(shard, &reason);
                Err(broke())
            }
        };
        if is_replicated && !self.may_answer(shard) {
            return None;
        }
        if let Err(error) = &result {
            self.metrics.count_error(error.code);
        }
        Some(result)
    }

    /// Runs a request, if nobody came before it, whenever it has come.
    pub(crate) fn run_in_turn(&mut self, job: Job, token: Token) {
        let now_ns = self.begin_round();
        self.admit(job, token, Arrival { now_ns, called_since_ns: Some(now_ns) });
    }

    /// Passes a request to the core that owns its shard. It keeps its age.
    pub(crate) fn pass_on(&mut self, owner: usize, token: Token, job: Job, since_ns: u64) {
        self.metrics.passed_on.increment();
        let request = CoreMessage::Request { from: self.address(), token, job, since_ns };
        if !self.platform.send(owner, request) {
            self.answer(token, Err(Error::new(ErrorCode::ShuttingDown, "the node is stopping")));
        }
    }

    /// Takes a request that another core has passed on, as one that this core has called itself.
    pub(crate) fn accept(&mut self, from: CoreAddress, asked: Token, mut job: Job, since_ns: u64) {
        let is_other = from.node != self.address().node;
        let since_ns = if is_other { self.platform.monotonic_ns().saturating_sub(since_ns) } else { since_ns };
        self.set_times(&mut job, since_ns, is_other);
        // This core may have unloaded it meanwhile.
        if job.program().is_some_and(|program| self.programs.catalog.program(program).is_none()) {
            if is_other {
                // Or its node has just started, and does not know what is deployed.
                let waited_ns = self.platform.monotonic_ns().saturating_sub(since_ns);
                return self.send_to(from, CoreMessage::NotHere { token: asked, job, since_ns: waited_ns });
            }
            return self.refuse(from, asked, gone());
        }
        if self.is_elsewhere(&job) {
            return self.accept_elsewhere(from, asked, job, since_ns);
        }
        let arrival = Arrival { now_ns: self.begin_round(), called_since_ns: Some(since_ns) };
        if let Some(refusal) = self.refusal(&job, arrival) {
            return self.refuse(from, asked, refusal);
        }
        let token = self.pending.remote(from, asked);
        self.admit(job, token, arrival);
    }

    /// A request has come that waits since then. Another machine's clocks are others: it gets the times of this one.
    pub(crate) fn set_times(&self, job: &mut Job, since_ns: u64, is_of_other_machine: bool) {
        let Some(info) = job.info_mut() else { return };
        if is_of_other_machine {
            let waited_ms = self.platform.monotonic_ns().saturating_sub(since_ns) / 1_000_000;
            info.time = UnixMillis(self.platform.now_ms().saturating_sub(waited_ms));
        }
        // A request that came as bytes has none.
        if is_of_other_machine || info.began_ms == 0 {
            info.began_ms = since_ns / 1_000_000;
        }
    }

    fn refuse(&mut self, asker: CoreAddress, token: Token, error: Error) {
        self.send_to(asker, CoreMessage::Reply { token, result: Err(error) });
    }

    /// Why a request is not taken, if it is not.
    fn refusal(&self, job: &Job, arrival: Arrival) -> Option<Error> {
        if self.is_behind() && self.may_write(job) {
            self.metrics.shed.increment();
            let message = "changes come faster than the disk takes them: try again after the time in Retry-After";
            return Some(Error::new(ErrorCode::Overloaded, message));
        }
        let oldest_ns = self.queue.oldest_ns(arrival.since_ns());
        let is_late = self.queue.is_late(oldest_ns, arrival.now_ns) || self.queue.is_full();
        is_late.then(|| self.shed())
    }

    /// Runs a request, or lets it wait for its turn.
    fn admit(&mut self, job: Job, token: Token, arrival: Arrival) {
        if self.queue.has_turn(arrival) {
            return self.run(job, token);
        }
        self.queue.push(Queued { since_ns: arrival.since_ns(), job, token });
        self.platform.wake();
    }

    /// Whether too much of what was written waits in memory, for the log or for the checkpoint.
    fn is_behind(&self) -> bool {
        self.is_memory_low || self.batch.payload_bytes() > limits::BATCH_BYTES
    }

    /// The same for messages and workflows, which wait sooner. They have time, and leave the rest to requests.
    pub(crate) fn messages_wait(&self) -> bool {
        self.is_memory_half_dirty || self.batch.payload_bytes() > limits::BATCH_BYTES / 2
    }

    pub(crate) fn shed(&self) -> Error {
        self.metrics.shed.increment();
        let message = "requests already wait too long on this node: try again after the time in Retry-After";
        Error::new(ErrorCode::Overloaded, message)
    }

    fn may_write(&self, job: &Job) -> bool {
        match job {
            Job::Invoke(_, invoke) => self.programs.catalog.kind(invoke.handler) == HandlerKind::Transaction,
            Job::Send { .. } | Job::Route(_) => true,
            Job::Ask { question, .. } => question.may_write(),
        }
    }

    /// Runs queued requests for one slice. Says whether some are left.
    pub(crate) fn run_queue(&mut self) -> bool {
        if self.queue.is_empty() {
            return false;
        }
        self.read_clock();
        let began_ns = self.platform.monotonic_ns();
        while let Some(Queued { since_ns, job, token }) = self.queue.pop() {
            // It came when the queue was shorter, but its turn came too late.
            if self.queue.is_late(since_ns, began_ns) {
                let refusal = self.shed();
                self.answer(token, Err(refusal));
                if !self.platform.has_planted(DriverBug::RunRefusedRequest) {
                    continue;
                }
            }
            if self.pending.is_abandoned(token) {
                let gone = Error::new(ErrorCode::Overloaded, "the caller went away before its turn came");
                self.answer(token, Err(gone));
                continue;
            }
            self.run(job, token);
            if self.platform.monotonic_ns() - began_ns >= ROUND_NS {
                break;
            }
        }
        !self.queue.is_empty()
    }

    /// Runs a request now.
    fn run(&mut self, job: Job, token: Token) {
        // The shard may have moved while the request waited.
        if self.is_elsewhere(&job) {
            let now_ns = self.platform.monotonic_ns();
            return self.dispatch(job.shard(), job, token, now_ns);
        }
        if let Some(shard) = job.shard()
            && !self.begins_in(shard, token)
        {
            return;
        }
        match job {
            Job::Invoke(shard, invoke) => self.give(shard, Input::Invoke(ReplyTo::of(token), invoke)),
            Job::Send { shard, invoke, delay_ms } => {
                self.give(shard, Input::Send(ReplyTo::of(token), invoke, delay_ms));
            }
            Job::Ask { shard, question } => self.give(shard, Input::Ask(token, question)),
            Job::Route(call) => self.run_route(ReplyTo::of(token), call),
        }
        self.handle_events();
    }

    /// A shard gets a request. Says whether it can: a shard that was dropped answers nothing any more.
    pub(crate) fn begins_in(&mut self, shard: ShardId, token: Token) -> bool {
        self.pending.give_to(token, shard);
        let is_there = self.shard_mut(shard).is_some();
        if !is_there {
            self.answer(token, Err(Error::new(ErrorCode::ShardStopped, "the shard stopped: an invariant of it broke")));
        }
        is_there
    }

    /// Does what shards asked for while they were borrowed, and what that leads to.
    ///
    /// Ends after [`FOLLOWED`] events, or once functions have used as much CPU time as a round may take. The rest waits
    /// for the next round: shards that send to each other would otherwise keep the core for ever.
    pub(crate) fn handle_events(&mut self) {
        let began_ns = self.turns_ns;
        for _ in 0..FOLLOWED {
            let Some(event) = self.events.pop_front() else {
                break;
            };
            self.handle_event(event);
            if self.turns_ns.wrapping_sub(began_ns) >= ROUND_NS {
                break;
            }
        }
        if !self.events.is_empty() || !self.mail.is_empty() || (self.has_unwritten() && !self.is_committing) {
            self.platform.wake();
        }
    }

    fn handle_event(&mut self, event: Event) {
        match event {
            Event::Peer { to, message } => self.send_peer(to, message),
            Event::Offload(ticket, work) => self.offload(ticket, work),
            Event::Fetch(ticket, request) => self.fetch(ticket, request),
            Event::Exchange(ticket, turn) => self.exchange(ticket, turn),
            Event::Offloaded(ticket, result) => self.resume(ticket, result),
        }
    }

    /// The same, however far it leads, until the round has lasted long enough.
    pub(crate) fn handle_events_until(&mut self, until_ns: u64) {
        self.handle_events();
        while !self.events.is_empty() && self.platform.monotonic_ns() < until_ns {
            self.handle_events();
        }
    }

    /// Takes what a shard says about a transaction to the other shard.
    fn send_peer(&mut self, to: ShardId, message: PeerMessage) {
        if self.is_replicated() {
            return self.send_peer_in_cluster(to, message);
        }
        let owner = self.options.placement.core_of(to);
        if owner == self.options.index {
            return self.give(to, Input::Peer(message));
        }
        self.platform.send(owner, CoreMessage::Peer { to, message });
    }

    /// Another core's shard says something about a transaction to one of this core's.
    pub(crate) fn accept_peer(&mut self, to: ShardId, message: PeerMessage) {
        if self.is_replicated() {
            return self.accept_peer_of_cluster(to, message);
        }
        self.give(to, Input::Peer(message));
    }

    /// Answers a request that no shard will answer.
    pub(crate) fn answer(&mut self, token: Token, result: Result<Reply, Error>) {
        if let Err(error) = &result {
            self.metrics.count_error(error.code);
        }
        self.hand_over(token, result);
    }

    /// Hands a reply to whoever waits for it, here or on another core.
    pub(crate) fn hand_over(&mut self, token: Token, result: Result<Reply, Error>) {
        if let Some(forward) = self.pending.reply(token, result) {
            let reply = CoreMessage::Reply { token: forward.token, result: forward.result };
            self.send_to(forward.to, reply);
        }
    }
}

fn gone() -> Error {
    Error::new(ErrorCode::UnknownApp, "the app was replaced while the request was on its way; try again")
}
