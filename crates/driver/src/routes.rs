//! Routes that have no shard yet, and work that routes and shards await beside the core.

use bytes::Bytes;
use millrace_base::{Error, ErrorCode, ShardId, limits};
use millrace_func::{FetchRequest, Offload, RouteReply, WorkerTurn};
use millrace_shard::{Input, OffloadTicket, ReplyTo, RouteCall, UnplacedRoute, UnplacedStep};

use crate::core::Core;
use crate::message::Job;
use crate::outputs::{Event, too_much_work};
use crate::platform::Platform;

impl<P: Platform> Core<P> {
    pub(crate) fn run_route(&mut self, to: ReplyTo<RouteReply>, call: RouteCall) {
        let shard_count = self.options.placement.shard_count();
        let step = self.with_world(None, |_, world| UnplacedRoute::start(to, call, shard_count, world));
        match step {
            Ok(step) => self.route_stepped(step, None),
            Err(reason) => {
                tracing::error!(reason, "running a route broke an invariant");
                self.answer(to.token(), Err(Error::new(ErrorCode::Internal, "the route could not be run")));
            }
        }
    }

    /// `deadline_ms` is that of a route which has waited before: the limit is on all its waiting.
    fn route_stepped(&mut self, step: UnplacedStep, deadline_ms: Option<u64>) {
        match step {
            UnplacedStep::Done(token, result) => self.answer(token, result),
            UnplacedStep::Waiting(unplaced) => {
                let deadline_ms = deadline_ms.unwrap_or_else(|| self.monotonic_ms() + unplaced.wait_ms());
                self.unplaced.insert(unplaced.nonce(), (unplaced, deadline_ms));
            }
            UnplacedStep::Coordinator(unplaced, shard) => {
                let owner = self.options.placement.core_of(shard);
                if self.is_replicated() && !self.takes_requests(shard) {
                    return self.route_goes_on(unplaced, shard);
                }
                if owner == self.options.index {
                    let Some(unplaced) = self.with_time_of(unplaced, shard) else { return };
                    return self.adopt(unplaced, shard);
                }
                let call = self.with_world(None, |_, world| unplaced.cancel(world));
                if let Ok(Some((to, call))) = call {
                    // A request that was itself passed on to here keeps its way back: its pending reply is forwarded.
                    let now_ns = self.platform.monotonic_ns();
                    self.pass_on(owner, to.token(), Job::Route(call), now_ns);
                }
            }
        }
    }

    /// A route began by the clock of this machine, which is behind what its shard has used: it begins again, by the shard's.
    /// `None`: it does. What work outside has given it is kept, as on the way to another core.
    fn with_time_of(&mut self, unplaced: UnplacedRoute, shard: ShardId) -> Option<UnplacedRoute> {
        let (began, began_ms) = (unplaced.time(), unplaced.began_ms());
        let asked = self.with_world(Some(shard), |shard, _| shard.map(|shard| shard.time_of(began, began_ms)));
        let Some(time) = asked.ok()?.filter(|time| *time > began) else { return Some(unplaced) };
        if let Ok(Some((to, mut call))) = self.with_world(None, |_, world| unplaced.cancel(world)) {
            call.info.time = time;
            self.run_route(to, call);
        }
        None
    }

    /// A route goes on in a shard of this core.
    fn adopt(&mut self, unplaced: UnplacedRoute, shard: ShardId) {
        if !self.begins_in(shard, unplaced.token()) {
            let _ = self.with_world(None, |_, world| unplaced.cancel(world));
            return;
        }
        if unplaced.awaits_offload() {
            self.adopted.insert(unplaced.nonce(), shard);
        }
        self.give(shard, Input::Adopt(unplaced));
    }

    /// A route's first call is for a shard that is not open here: it begins again where that is.
    fn route_goes_on(&mut self, unplaced: UnplacedRoute, shard: ShardId) {
        let call = self.with_world(None, |_, world| unplaced.cancel(world));
        if let Ok(Some((to, call))) = call {
            let now_ns = self.platform.monotonic_ns();
            self.dispatch(Some(shard), Job::Route(call), to.token(), now_ns);
        }
    }

    pub(crate) fn offload(&mut self, ticket: OffloadTicket, work: Offload) {
        let own = self.open_offloads - self.open_exchanges - self.password_checks.joined();
        let is_full = own >= limits::OFFLOADS;
        self.open_offloads += 1;
        if self.password_checks.join(ticket, &work) {
            return;
        }
        if is_full {
            self.events.push_back(Event::Offloaded(ticket, Err(too_much_work())));
        } else {
            self.password_checks.begin(ticket, &work);
            self.platform.offload(ticket, work);
        }
    }

    /// Sends a request to a server outside.
    pub(crate) fn fetch(&mut self, ticket: OffloadTicket, request: FetchRequest) {
        self.open_offloads += 1;
        self.platform.fetch(ticket, request);
    }

    /// Sends frames to a worker.
    pub(crate) fn exchange(&mut self, ticket: OffloadTicket, turn: WorkerTurn) {
        self.open_offloads += 1;
        self.open_exchanges += 1;
        self.platform.exchange(ticket, turn);
    }

    /// A worker has had its turn, or the attempt is lost.
    pub fn exchanged(&mut self, ticket: OffloadTicket, result: Result<Bytes, Error>) {
        self.open_exchanges -= 1;
        self.offloaded(ticket, result);
    }

    /// Offloaded work has ended.
    pub fn offloaded(&mut self, ticket: OffloadTicket, result: Result<Bytes, Error>) {
        self.read_clock();
        for joined in self.password_checks.end(&ticket) {
            self.events.push_back(Event::Offloaded(joined, result.clone()));
        }
        self.resume(ticket, result);
        self.handle_events();
    }

    /// Resumes whoever awaits offloaded work that has ended.
    pub(crate) fn resume(&mut self, ticket: OffloadTicket, result: Result<Bytes, Error>) {
        self.open_offloads -= 1;
        // A route that lost a race begins again under its nonce: the ticket tells which attempt it is of.
        let is_waiting = self.unplaced.get(&ticket.nonce).is_some_and(|(unplaced, _)| unplaced.awaits(&ticket));
        if is_waiting && let Some(unplaced) = self.unplaced.remove(&ticket.nonce) {
            self.resume_unplaced(unplaced, ticket, result);
        } else if let Some(shard) = ticket.shard.or(self.adopted.get(&ticket.nonce).copied()) {
            self.give(shard, Input::Complete(ticket, result));
        }
        // What has been asked for in this very turn is among the events yet.
        if self.open_offloads == 0 && self.events.is_empty() {
            self.adopted.clear();
        }
    }

    fn resume_unplaced(
        &mut self,
        (unplaced, deadline_ms): (UnplacedRoute, u64),
        ticket: OffloadTicket,
        result: Result<Bytes, Error>,
    ) {
        let token = unplaced.token();
        match self.with_world(None, |_, world| unplaced.complete(ticket.activation, ticket.operation, result, world)) {
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
        let is_late = |(_, (_, deadline_ms)): &(&u64, &(UnplacedRoute, u64))| *deadline_ms <= now_ms;
        let late: Vec<u64> = self.unplaced.iter().filter(is_late).map(|(nonce, _)| *nonce).collect();
        for nonce in late {
            if let Some((unplaced, _)) = self.unplaced.remove(&nonce) {
                let token = unplaced.token();
                let _ = self.with_world(None, |_, world| unplaced.cancel(world));
                let message = "the call waited too long for what it awaits; nothing took effect";
                self.answer(token, Err(Error::new(ErrorCode::WaitLimit, message)));
            }
        }
    }
}
