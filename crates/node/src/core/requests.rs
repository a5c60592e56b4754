//! Requests on their way to a shard: run at once, queued while the core is busy, passed to the
//! core that owns the shard, or refused when the wait would be too long.
//!
//! The runtime polls every connection that has something to read, then looks for new input. Such
//! a round is kept short: once it has lasted [`ROUND_NS`], further requests queue, and the pump
//! runs them in slices of the same length between which the runtime looks for new input. When many
//! queue, connections that ask first leave what comes unread, and are called when it can run. A
//! request's wait is thus known when the next one comes, and whoever would wait longer than
//! `queue_ms` is refused at the cost of parsing it.

use std::task::{Context, Poll};

use millrace_api::Admission;
use millrace_base::{Error, ErrorCode, ShardId, limits};
use millrace_func::{Answer, HandlerKind, Program};
use millrace_shard::{PeerMessage, RouteCall, Token, Unbound, UnboundStep};

use crate::core::outputs::{Event, too_much_work};
use crate::core::queue::{Queued, ROUND_NS};
use crate::core::{Carried, Core, CoreMessage, Job, broke};
use crate::records::Operation;

/// Events of the core's shards that are followed at once. A transaction over three shards takes some 20; one that has come to
/// its end before the next request begins keeps nobody waiting, and nobody has to give way to it. At some 10 µs each they
/// take about as long as a round.
const FOLLOWED: usize = 256;

impl Core {
    /// Starts a request that [`Core::enter`] was called for; its reply will be under the token.
    pub(crate) fn submit(&mut self, job: Job, now_ns: u64) -> Token {
        let token = self.slots.local();
        let owner = job.shard().map_or(self.index, |shard| self.shared.core_of(shard));
        let called_since_ns = self.queue.take_called_since_ns();
        if owner == self.index {
            self.admit(job, token, called_since_ns, now_ns);
        } else {
            self.pass_on(owner, token, job, called_since_ns.unwrap_or(now_ns));
        }
        token
    }

    /// Waits until a request that has come should be read.
    pub(crate) fn poll_admission(&mut self, admission: &mut Option<Admission>, context: &Context<'_>) -> Poll<()> {
        let polled = self.queue.poll_admission(admission, context, || self.shared.clock.monotonic_ns());
        if polled.is_pending() {
            self.pump.notify_one();
        }
        polled
    }

    /// Answers a query without an idempotency key at once, where its shard is of this core, can do so,
    /// and nobody waits before it. `None`: it has to be submitted.
    pub(crate) fn read_at_once(
        &mut self,
        Operation { handler, shard, key, input }: &Operation<'_>,
        now_ns: u64,
    ) -> Option<Result<Answer, Error>> {
        let shard = *shard;
        let has_turn = self.queue.has_turn(self.queue.is_called(), now_ns);
        if !has_turn || self.shared.core_of(shard) != self.index {
            return None;
        }
        let asked = self.with_world(Some(shard), |shard, world| shard?.read_at_once(*handler, key, input, world));
        let result = match asked {
            Ok(answer) => answer?,
            Err(reason) => {
                self.stop_shard(shard, &reason);
                Err(broke())
            }
        };
        if let Err(error) = &result {
            self.metrics.count_error(error.code);
        }
        Some(result)
    }

    /// Passes a request to the core that owns its shard. It keeps its age.
    pub(crate) fn pass_on(&mut self, owner: usize, token: Token, mut job: Job, since_ns: u64) {
        if let Some(program) = job.program() {
            match self.programs.deployment_of(*program) {
                Some(deployment) => *program = deployment,
                None => return self.answer(token, Err(gone())),
            }
        }
        self.metrics.passed_on.increment();
        if !self.shared.send(owner, CoreMessage::Request { from: self.index, token, job, since_ns }) {
            self.answer(token, Err(Error::new(ErrorCode::ShuttingDown, "the node is stopping")));
        }
    }

    /// Takes a request that another core has passed on, as one that it has called itself.
    pub(crate) fn accept(&mut self, from: usize, remote: Token, mut job: Job, since_ns: u64) {
        let token = self.slots.remote(from, remote);
        if let Some(program) = job.program() {
            match self.programs.program_of(*program) {
                Some(own) => *program = own,
                None => return self.answer(token, Err(gone())),
            }
        }
        let now_ns = self.enter();
        self.admit(job, token, Some(since_ns), now_ns);
    }

    /// Reads the clock for a request; the first of a round begins it. The wall clock is read once
    /// a round: a request's time is at most a round old.
    pub(crate) fn enter(&mut self) -> u64 {
        let now_ns = self.shared.clock.monotonic_ns();
        if self.queue.begin_round(now_ns) {
            self.read_clock();
            self.pump.notify_one();
        }
        now_ns
    }

    fn admit(&mut self, mut job: Job, token: Token, called_since_ns: Option<u64>, now_ns: u64) {
        job.set_token(token);
        if self.is_behind() && self.may_write(&job) {
            self.metrics.shed.increment();
            let message = "changes come faster than the disk takes them: try again after the time in Retry-After";
            return self.answer(token, Err(Error::new(ErrorCode::Overloaded, message)));
        }
        let since_ns = called_since_ns.unwrap_or(now_ns);
        if self.queue.is_late(self.queue.oldest_ns(since_ns), now_ns) || self.queue.is_full() {
            return self.shed(token);
        }
        if self.queue.has_turn(called_since_ns.is_some(), now_ns) {
            return self.run(job, token);
        }
        self.queue.push(Queued { since_ns, job, token });
        self.pump.notify_one();
    }

    /// Whether what was written waits in memory, too much of it: for the log, or for the checkpoint.
    fn is_behind(&self) -> bool {
        self.is_memory_low || self.batch.payload_bytes() > limits::BATCH_BYTES
    }

    /// The same for messages and workflows, which wait sooner: for them there is time, and what they leave is for requests.
    pub(crate) fn messages_wait(&self) -> bool {
        self.is_memory_half_dirty || self.batch.payload_bytes() > limits::BATCH_BYTES / 2
    }

    fn shed(&mut self, token: Token) {
        self.metrics.shed.increment();
        let message = "requests already wait too long on this node: try again after the time in Retry-After";
        self.answer(token, Err(Error::new(ErrorCode::Overloaded, message)));
    }

    fn may_write(&self, job: &Job) -> bool {
        match job {
            Job::Invoke(_, invoke) => self.programs.catalog.kind(invoke.handler) == HandlerKind::Transaction,
            Job::Send { .. } | Job::Route(_) => true,
            Job::Ask { may_write, .. } => *may_write,
        }
    }

    /// Runs queued requests for one slice. Says whether some are left.
    pub(crate) fn run_queue(&mut self) -> bool {
        if self.queue.is_empty() {
            return false;
        }
        self.read_clock();
        let began_ns = self.shared.clock.monotonic_ns();
        while let Some(Queued { since_ns, job, token }) = self.queue.pop() {
            // Those that came when the queue was shorter but whose turn came too late.
            if self.queue.is_late(since_ns, began_ns) {
                self.shed(token);
                continue;
            }
            if self.slots.is_abandoned(token) {
                let gone = Error::new(ErrorCode::Overloaded, "the caller went away before its turn came");
                self.answer(token, Err(gone));
                continue;
            }
            self.run(job, token);
            if self.shared.clock.monotonic_ns() - began_ns >= ROUND_NS {
                break;
            }
        }
        !self.queue.is_empty()
    }

    fn run(&mut self, job: Job, token: Token) {
        if let Some(shard) = job.shard()
            && !self.begins_in(shard, token)
        {
            return;
        }
        match job {
            Job::Invoke(shard, invoke) => {
                self.with_shard(shard, |shard, world| shard.invoke(invoke, world));
            }
            Job::Send { shard, invoke, delay_ms } => {
                self.with_shard(shard, |shard, world| shard.send(invoke, delay_ms, world));
            }
            Job::Ask { shard, token, question, .. } => {
                self.with_shard(shard, |shard, world| question(shard, token, world));
            }
            Job::Route(call) => self.run_route(call),
        }
        self.handle_events();
    }

    /// A shard gets a request. Says whether it can: one that was dropped answers nothing any more.
    fn begins_in(&mut self, shard: ShardId, token: Token) -> bool {
        self.slots.give_to(token, shard);
        let is_there = self.shards[usize::from(shard.0)].is_some();
        if !is_there {
            self.answer(token, Err(Error::new(ErrorCode::ShardStopped, "the shard stopped: an invariant of it broke")));
        }
        is_there
    }

    fn run_route(&mut self, call: RouteCall) {
        let token = call.info.token;
        let shard_count = self.shared.shard_count;
        let step = self.with_world(None, |_, world| Unbound::start(call, shard_count, world));
        match step {
            Ok(step) => self.route_stepped(step, None),
            Err(reason) => {
                tracing::error!(reason, "running a route broke an invariant");
                self.answer(token, Err(Error::new(ErrorCode::Internal, "the route could not be run")));
            }
        }
    }

    /// `deadline_ms` is that of a route which has waited before: the limit is on all its waiting.
    fn route_stepped(&mut self, step: UnboundStep, deadline_ms: Option<u64>) {
        match step {
            UnboundStep::Done(token, result) => self.answer(token, result),
            UnboundStep::Waiting(unbound) => {
                let deadline_ms = deadline_ms.unwrap_or_else(|| self.monotonic_ms() + unbound.wait_ms());
                self.unbound.insert(unbound.nonce(), (unbound, deadline_ms));
            }
            UnboundStep::Home(unbound, shard) => {
                let owner = self.shared.core_of(shard);
                if owner == self.index {
                    if !self.begins_in(shard, unbound.token()) {
                        let _ = self.with_world(None, |_, world| unbound.cancel(world));
                        return;
                    }
                    if unbound.awaits_offload() {
                        self.adopted.insert(unbound.nonce(), shard);
                    }
                    self.with_shard(shard, |shard, world| shard.adopt(unbound, world));
                    return;
                }
                let call = self.with_world(None, |_, world| unbound.cancel(world));
                if let Ok(Some(call)) = call {
                    // A request that was itself passed on to here keeps its way back: its slot
                    // forwards the reply.
                    let now_ns = self.shared.clock.monotonic_ns();
                    self.pass_on(owner, call.info.token, Job::Route(call), now_ns);
                }
            }
        }
    }

    /// Does what shards asked for while they were borrowed, and what that leads to, up to [`FOLLOWED`]
    /// events. The rest waits for the next round: shards that send to each other would otherwise
    /// keep the core for ever.
    pub(crate) fn handle_events(&mut self) {
        for _ in 0..FOLLOWED {
            let Some(event) = self.events.pop_front() else {
                break;
            };
            self.handle_event(event);
        }
        if !self.events.is_empty() || !self.carried.is_empty() || (!self.batch.is_empty() && !self.is_committing) {
            self.pump.notify_one();
        }
    }

    fn handle_event(&mut self, event: Event) {
        match event {
            Event::Peer { to, message } => self.carry_peer(to, message),
            Event::Offload(ticket, work) => self.offload(ticket, work),
            Event::Fetch(ticket, request) => self.fetch(ticket, request),
        }
    }

    /// The same, however far it leads, until the round has lasted long enough.
    pub(crate) fn handle_events_until(&mut self, until_ns: u64) {
        self.handle_events();
        while !self.events.is_empty() && self.shared.clock.monotonic_ns() < until_ns {
            self.handle_events();
        }
    }

    /// Takes a message to the shard of this core that it is for, or word that it has arrived to its sender.
    pub(crate) fn carry(&mut self, carried: Carried) {
        match carried {
            Carried::Message { to, delivery } => {
                self.with_shard(to, |shard, world| shard.deliver(delivery, world));
            }
            Carried::Arrived { to, from, sequence } => {
                self.with_shard(to, |shard, world| shard.acknowledged(from, sequence, world));
            }
        }
    }

    /// Carries between this core's shards until the round has lasted long enough.
    pub(crate) fn carry_until(&mut self, until_ns: u64) {
        while let Some(carried) = self.carried.pop_front() {
            self.carry(carried);
            self.handle_events();
            if self.shared.clock.monotonic_ns() >= until_ns {
                break;
            }
        }
    }

    /// Takes what a shard says about a transaction to the other shard.
    fn carry_peer(&mut self, to: ShardId, mut message: PeerMessage) {
        let owner = self.shared.core_of(to);
        if owner == self.index {
            return self.with_shard(to, |shard, world| shard.peer(message, world));
        }
        for program in message.programs() {
            *program = self.programs.deployment_of(*program).unwrap_or(NO_PROGRAM);
        }
        self.shared.send(owner, CoreMessage::Peer { to, message });
    }

    /// Another core's shard says something about a transaction to one of this core's.
    pub(crate) fn accept_peer(&mut self, to: ShardId, mut message: PeerMessage) {
        for program in message.programs() {
            *program = self.programs.program_of(*program).unwrap_or(NO_PROGRAM);
        }
        self.with_shard(to, |shard, world| shard.peer(message, world));
    }

    fn offload(&mut self, ticket: millrace_shard::OffloadTicket, work: millrace_func::Offload) {
        let (shared, core) = (std::sync::Arc::clone(&self.shared), self.index);
        let begun = self.open_offloads - self.password_checks.joined();
        self.open_offloads += 1;
        if self.password_checks.join(ticket, &work) {
            return;
        }
        if begun >= limits::OFFLOADS {
            shared.send(core, CoreMessage::Offloaded { ticket, result: Err(too_much_work()) });
            return;
        }
        self.password_checks.begin(ticket, &work);
        // The runtime's blocking threads; their number is bounded where the runtime is built.
        tokio::task::spawn_blocking(move || {
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work.run()));
            let result =
                result.unwrap_or_else(|_| Err(Error::new(ErrorCode::Internal, "the hash could not be computed")));
            shared.send(core, CoreMessage::Offloaded { ticket, result });
        });
    }

    /// Sends a request to a server outside. It is given up when the core ends.
    fn fetch(&mut self, ticket: millrace_shard::OffloadTicket, request: millrace_func::FetchRequest) {
        let (shared, core) = (std::sync::Arc::clone(&self.shared), self.index);
        self.open_offloads += 1;
        let fetching = shared.fetcher.fetch(request);
        tokio::task::spawn_local(async move {
            let result = fetching.await.map(|response| response.to_json());
            shared.send(core, CoreMessage::Offloaded { ticket, result });
        });
    }

    /// Offloaded work has ended: resumes whoever awaits it.
    pub(crate) fn offloaded(&mut self, ticket: millrace_shard::OffloadTicket, result: Result<bytes::Bytes, Error>) {
        self.open_offloads -= 1;
        for joined in self.password_checks.end(&ticket) {
            self.shared.send(self.index, CoreMessage::Offloaded { ticket: joined, result: result.clone() });
        }
        self.read_clock();
        // A route that lost a race begins again under its nonce: the ticket tells which run it is of.
        let waiting = self.unbound.get(&ticket.nonce).is_some_and(|(unbound, _)| unbound.awaits(&ticket));
        if waiting && let Some(unbound) = self.unbound.remove(&ticket.nonce) {
            self.complete_unbound(unbound, ticket, result);
        } else if let Some(shard) = ticket.shard.or(self.adopted.get(&ticket.nonce).copied()) {
            self.with_shard(shard, |shard, world| shard.complete(ticket, result, world));
        }
        if self.open_offloads == 0 {
            self.adopted.clear();
        }
        self.handle_events();
    }

    fn complete_unbound(
        &mut self,
        (unbound, deadline_ms): (Unbound, u64),
        ticket: millrace_shard::OffloadTicket,
        result: Result<bytes::Bytes, Error>,
    ) {
        let token = unbound.token();
        match self.with_world(None, |_, world| unbound.complete(ticket.frame, ticket.operation, result, world)) {
            Ok(step) => self.route_stepped(step, Some(deadline_ms)),
            Err(reason) => {
                tracing::error!(reason, "going on with a route broke an invariant");
                self.answer(token, Err(Error::new(ErrorCode::Internal, "the route could not be run")));
            }
        }
    }

    /// Gives up routes that have waited too long before their first call.
    pub(crate) fn give_up_late_routes(&mut self) {
        let now_ms = self.monotonic_ms();
        let late: Vec<u64> = self
            .unbound
            .iter()
            .filter(|(_, (_, deadline_ms))| *deadline_ms <= now_ms)
            .map(|(nonce, _)| *nonce)
            .collect();
        for nonce in late {
            if let Some((unbound, _)) = self.unbound.remove(&nonce) {
                let token = unbound.token();
                let _ = self.with_world(None, |_, world| unbound.cancel(world));
                let message = "the call waited too long for what it awaits; nothing took effect";
                self.answer(token, Err(Error::new(ErrorCode::WaitLimit, message)));
            }
        }
    }

    /// Answers a request that no shard will answer.
    pub(crate) fn answer(&mut self, token: Token, result: Result<millrace_shard::Reply, Error>) {
        if let Err(error) = &result {
            self.metrics.count_error(error.code);
        }
        if let Some(forward) = self.slots.reply(token, result) {
            self.shared.send(forward.core, CoreMessage::Reply { token: forward.token, result: forward.result });
        }
    }
}

/// Stands for a program that one of two cores has unloaded meanwhile: the shard finds none of that
/// number and refuses the call.
const NO_PROGRAM: Program = Program(u32::MAX);

fn gone() -> Error {
    Error::new(ErrorCode::UnknownApp, "the app was replaced while the request was on its way; try again")
}
