//! Where what comes for a shard goes, on this node and on others.

use millrace_base::{Error, ErrorCode, ShardId, limits};
use millrace_replica::{Epoch, NodeId, ShardLog};
use millrace_shard::{Input, PeerBody, PeerMessage, ReplyTo, Token};

use super::arrivals::{Arrived, What};
use super::reach::{unreached, waits_until_ns};
use super::{Said, Whereabouts};
use crate::core::Core;
use crate::message::{CoreAddress, CoreMessage, Destination, Job, ShardMail};
use crate::outputs::Event;
use crate::platform::{DriverBug, Platform};

/// What is for a shard, and whether it can have it.
pub(crate) enum Way {
    /// The shard is open on this core.
    Open,
    /// Another core of this node has it.
    Core(usize),
    /// It is on its way to this core, or nobody knows where it is.
    Waits,
    /// Another node has it.
    Node(NodeId),
}

impl<P: Platform> Core<P> {
    /// Whether this core is one of a cluster.
    pub(crate) fn is_replicated(&self) -> bool {
        self.replicated.is_some()
    }

    /// This core.
    pub(crate) fn address(&self) -> CoreAddress {
        let node = self.replicated.as_ref().map_or(super::ALONE, |replicated| replicated.guide.me());
        CoreAddress { node, core: self.options.index }
    }

    pub(crate) fn way_to(&self, shard: ShardId) -> Way {
        let place = self.replicated.as_ref().map(|replicated| replicated.guide.whereabouts(shard));
        let core = self.options.placement.core_of(shard);
        match place {
            Some(Whereabouts::There(node)) => Way::Node(node),
            Some(Whereabouts::Unknown) => Way::Waits,
            Some(Whereabouts::Here) | None if core != self.options.index => Way::Core(core),
            Some(Whereabouts::Here) if !self.has_shard(shard) => Way::Waits,
            Some(Whereabouts::Here) | None => Way::Open,
        }
    }

    /// For how long the shard has heard no majority, if it is open here and that is long: it takes no requests then.
    pub(crate) fn cut_off_ns(&self, shard: ShardId) -> Option<u64> {
        self.replicated.as_ref()?.reach.cut_off_ns(shard)
    }

    /// Whether a shard is open here and may take requests.
    pub(crate) fn takes_requests(&self, shard: ShardId) -> bool {
        matches!(self.way_to(shard), Way::Open) && self.cut_off_ns(shard).is_none() && !self.is_handing_on(shard)
    }

    fn has_shard(&self, shard: ShardId) -> bool {
        self.shards.get(usize::from(shard.0)).is_some_and(Option::is_some)
    }

    /// Guidance has decided who owns a shard and who is to have it next, and which nodes hold its log.
    pub fn guided(
        &mut self,
        shard: ShardId,
        (owner, heir): (NodeId, Option<NodeId>),
        epoch: Epoch,
        replicas: &[NodeId],
    ) {
        let Some(replicated) = &mut self.replicated else { return };
        if replicated.guide.hear(shard, owner, epoch, Some(replicas)) {
            self.hear_heir(shard, epoch, heir);
            self.appoint();
            self.arrivals_again(Some(shard));
        }
    }

    /// The replicas of shards that this node is to own hear that, again and again.
    pub(crate) fn appoint(&mut self) {
        let Some(replicated) = &self.replicated else { return };
        for (shard, epoch) in replicated.guide.own() {
            if self.replica(shard).is_some_and(|replica| !replica.is_serving() || replica.promised().epoch != epoch) {
                self.drive(shard, |seat, now_ns, out| seat.replica.fence(now_ns, epoch, out));
            }
        }
    }

    /// A shard was opened here. Everybody who talked to an earlier opening of it hears that.
    pub(crate) fn announce(&mut self, shard: ShardId, epoch: Epoch) {
        let Some(replicated) = &self.replicated else { return };
        let owner = replicated.guide.me();
        let opened = || CoreMessage::Opened { shard, epoch, owner };
        for node in replicated.guide.others() {
            self.platform.send_node(node, Destination::Every, opened());
            self.announce_by_detour(node, shard);
        }
        for core in (0..self.options.placement.core_count()).filter(|core| *core != self.options.index) {
            self.platform.send(core, opened());
        }
        self.hear_opened(shard, epoch, owner);
    }

    /// A shard was opened, here or elsewhere. Only then an earlier opening of it can decide nothing any more.
    pub(crate) fn hear_opened(&mut self, shard: ShardId, epoch: Epoch, owner: NodeId) {
        let is_untold = self.platform.has_planted(DriverBug::OpeningUntold);
        let Some(replicated) = &mut self.replicated else { return };
        if replicated.guide.hear(shard, owner, epoch, None) {
            self.arrivals_again(Some(shard));
        }
        let Some(replicated) = &mut self.replicated else { return };
        if replicated.guide.hear_opened(shard, epoch) && !is_untold {
            self.peer_opened(shard, epoch.0);
        }
    }

    /// The process of another node is a new one: nothing that was sent to the old one is there any more, and nothing that it
    /// has asked is awaited.
    pub fn peer_restarted(&mut self, node: NodeId) {
        self.pending.forget_asker(node);
        self.peer_lost(node);
        // What it was to pass on is lost.
        self.detours_again();
    }

    /// Another node is dead, by guidance. If it lives after all, what it has asked is answered.
    pub fn peer_lost(&mut self, node: NodeId) {
        let held = self.pending.unanswered_by_node(node);
        self.give_up_requests(held, "the node that had the request is gone");
    }

    /// Takes a request to its shard, or on to where that is. Its token is known here.
    pub(crate) fn dispatch(&mut self, shard: Option<ShardId>, job: Job, token: Token, since_ns: u64) {
        match shard.map_or(Way::Open, |shard| self.way_to(shard)) {
            Way::Open if shard.is_some_and(|shard| self.is_handing_on(shard)) => {
                if self.platform.has_planted(DriverBug::RunHandedOn) {
                    self.run_handed_on(&job);
                }
                let until_ns = since_ns.saturating_add(limits::ARRIVAL_MS * 1_000_000);
                self.arrive(Arrived { shard, until_ns, what: What::Request { job, token, since_ns } });
            }
            Way::Open => match shard.and_then(|shard| self.cut_off_ns(shard)) {
                Some(silent_ns) => self.wait_for_silent(shard, job, token, (since_ns, silent_ns)),
                None => self.run_in_turn(job, token),
            },
            Way::Core(core) => self.pass_on(core, token, job, since_ns),
            Way::Node(node) => self.pass_to_node(node, shard, job, token, since_ns),
            Way::Waits => {
                let until_ns = since_ns.saturating_add(limits::ARRIVAL_MS * 1_000_000);
                self.arrive(Arrived { shard, until_ns, what: What::Request { job, token, since_ns } });
            }
        }
    }

    /// Passes a request to another node. One that another core has passed on to here goes back instead: that one knows more.
    fn pass_to_node(&mut self, node: NodeId, shard: Option<ShardId>, job: Job, token: Token, since_ns: u64) {
        let now_ns = self.platform.monotonic_ns();
        if let Some((asker, asked)) = self.pending.give_back(token) {
            let is_other = asker.node != self.address().node;
            let since_ns = if is_other { now_ns.saturating_sub(since_ns) } else { since_ns };
            if self.platform.has_planted(DriverBug::RunNotHere) {
                let ran = self.pending.local();
                self.pending.abandon(ran);
                self.run_in_turn(job.clone(), ran);
            }
            return self.send_to(asker, CoreMessage::NotHere { token: asked, job, since_ns });
        }
        let unlinked_ns = self.replicated.as_ref().and_then(|replicated| replicated.reach.unlinked_ns(node));
        if let Some(silent_ns) = unlinked_ns {
            return self.wait_for_silent(shard, job, token, (since_ns, silent_ns));
        }
        self.metrics.passed_on.increment();
        self.pending.give_to_node(token, node);
        let (from, waited_ns) = (self.address(), now_ns.saturating_sub(since_ns));
        let to = shard.map_or(Destination::Core(0), Destination::Shard);
        let request = CoreMessage::Request { from, token, job, since_ns: waited_ns };
        if !self.platform.send_node(node, to, request) {
            self.answer(token, Err(Error::new(ErrorCode::ShuttingDown, "the node is stopping")));
        }
    }

    /// A planted bug: a call that the next owner is to run runs here. Nobody hears of that.
    fn run_handed_on(&mut self, job: &Job) {
        if let Job::Invoke(shard, invoke) = job {
            let ran = self.pending.local();
            self.pending.abandon(ran);
            self.give(*shard, Input::Invoke(ReplyTo::of(ran), invoke.clone()));
        }
    }

    /// A request waits for a node or a majority that has been silent for so long. It did not run.
    fn wait_for_silent(&mut self, shard: Option<ShardId>, job: Job, token: Token, (since_ns, silent_ns): (u64, u64)) {
        let until_ns = waits_until_ns(since_ns, silent_ns);
        if until_ns <= self.platform.monotonic_ns() {
            return self.answer(token, Err(unreached()));
        }
        self.arrive(Arrived { shard, until_ns, what: What::Request { job, token, since_ns } });
    }

    /// Takes a request that another core has passed on and whose shard is not open here.
    pub(crate) fn accept_elsewhere(&mut self, from: CoreAddress, asked: Token, job: Job, since_ns: u64) {
        let token = self.pending.remote(from, asked);
        self.dispatch(job.shard(), job, token, since_ns);
    }

    /// A request that was passed on comes back: it did not run. It is sent again when this core knows more, or some time has
    /// passed.
    pub(crate) fn come_back(&mut self, token: Token, mut job: Job, since_ns: u64) {
        if !self.pending.is_open(token) {
            return;
        }
        // The clock of another node is another one: from there it is a duration.
        let is_other = self.pending.is_with_other_node(token);
        let since_ns = if is_other { self.platform.monotonic_ns().saturating_sub(since_ns) } else { since_ns };
        self.set_times(&mut job, since_ns, is_other);
        self.pending.give_to_nobody(token);
        let until_ns = since_ns.saturating_add(limits::ARRIVAL_MS * 1_000_000);
        self.arrive(Arrived { shard: job.shard(), until_ns, what: What::Request { job, token, since_ns } });
    }

    fn arrive(&mut self, arrived: Arrived) {
        let Some(replicated) = &mut self.replicated else { return };
        if let Some(Arrived { what: What::Request { token, .. }, .. }) = replicated.arrivals.push(arrived) {
            self.answer(token, Err(super::proposing::not_here()));
        }
    }

    /// Looks again at what waits for a shard, or at everything.
    pub(crate) fn arrivals_again(&mut self, shard: Option<ShardId>) {
        let Some(replicated) = self.replicated.as_mut().filter(|replicated| !replicated.arrivals.is_empty()) else {
            return;
        };
        let taken = replicated.arrivals.take(shard);
        let now_ns = self.platform.monotonic_ns();
        for Arrived { shard, until_ns, what } in taken {
            let is_late = until_ns <= now_ns;
            match what {
                What::Request { token, .. } if is_late || self.pending.is_abandoned(token) => {
                    self.answer(token, Err(super::proposing::not_here()));
                }
                What::Request { job, token, since_ns } => self.dispatch(shard, job, token, since_ns),
                What::Peer(message) => {
                    if let Some(to) = shard {
                        self.peer_arrives((to, message), until_ns);
                    }
                }
                What::Said(message) => {
                    if let Some(to) = shard {
                        self.peer_leaves((to, message), until_ns);
                    }
                }
                What::Mail(mail) if !is_late => self.mail_arrives(mail, until_ns),
                What::Mail(_) => {}
            }
        }
        self.platform.wake();
    }

    fn arrival_ends_ns(&self) -> u64 {
        self.platform.monotonic_ns().saturating_add(limits::ARRIVAL_MS * 1_000_000)
    }

    /// Another core's shard says something to one that should be of this core.
    pub(crate) fn accept_peer_of_cluster(&mut self, to: ShardId, message: PeerMessage) {
        self.peer_arrives((to, message), self.arrival_ends_ns());
    }

    /// What is for a shard elsewhere is dropped: who has sent it hears when that shard is opened there. What comes from an
    /// opening that was not heard of waits for that news: the answer would go to where the shard was.
    fn peer_arrives(&mut self, (to, message): (ShardId, PeerMessage), until_ns: u64) {
        let is_late = until_ns <= self.platform.monotonic_ns();
        match self.way_to(to) {
            Way::Open if is_late || !self.is_ahead(&message) => self.give(to, Input::Peer(message)),
            Way::Waits if is_late => {}
            Way::Open | Way::Waits => self.arrive(Arrived { shard: Some(to), until_ns, what: What::Peer(message) }),
            Way::Core(core) => drop(self.platform.send(core, CoreMessage::Peer { to, message })),
            Way::Node(_) => {}
        }
    }

    /// Whether a message has overtaken the news that the shard that says it was opened.
    fn is_ahead(&self, message: &PeerMessage) -> bool {
        let incarnation = match &message.body {
            _ if message.from == message.transaction.coordinator => message.transaction.incarnation,
            PeerBody::ToCoordinator(_, said) => said.incarnation,
            _ => return false,
        };
        let guide = self.replicated.as_ref().map(|replicated| &replicated.guide);
        guide.is_some_and(|guide| guide.is_behind(message.from, incarnation))
    }

    /// A shard of this core says something to another shard.
    pub(crate) fn send_peer_in_cluster(&mut self, to: ShardId, message: PeerMessage) {
        self.peer_leaves((to, message), self.arrival_ends_ns());
    }

    /// What is for a shard that nobody knows waits for news of it. It must not be lost: the other shard, opened before, would
    /// wait for it.
    fn peer_leaves(&mut self, (to, message): (ShardId, PeerMessage), until_ns: u64) {
        match self.way_to(to) {
            Way::Node(node) => self.send_peer_to_node(node, (to, message), limits::DETOUR_NODES),
            // Then it hears once that shard is opened.
            Way::Waits if until_ns <= self.platform.monotonic_ns() => {}
            Way::Waits if self.platform.has_planted(DriverBug::ForgetForUnknown) => {}
            Way::Waits => self.arrive(Arrived { shard: Some(to), until_ns, what: What::Said(message) }),
            Way::Open | Way::Core(_) => self.peer_arrives((to, message), until_ns),
        }
    }

    /// Mail for a shard that should be of this core.
    pub(crate) fn accept_mail_of_cluster(&mut self, mail: ShardMail) {
        self.mail_arrives(mail, self.arrival_ends_ns());
    }

    /// Mail is sent again until it has arrived.
    fn mail_arrives(&mut self, mail: ShardMail, until_ns: u64) {
        let to = mail.shard();
        match self.way_to(to) {
            Way::Open => self.hand_mail(mail),
            Way::Waits => self.arrive(Arrived { shard: Some(to), until_ns, what: What::Mail(mail) }),
            Way::Core(core) => drop(self.platform.send(core, mail)),
            Way::Node(_) => {}
        }
    }

    /// Takes what a shard has said to where it goes.
    pub(crate) fn says(&mut self, said: Said) {
        match said {
            Said::Reply(token, result) => self.answer(token, result),
            Said::Peer(to, message) => self.events.push_back(Event::Peer { to, message }),
            Said::Mail(mail) => match self.way_to(mail.shard()) {
                Way::Node(node) => self.platform.send_node_mail(node, mail),
                Way::Core(core) => drop(self.platform.send(core, mail)),
                Way::Open | Way::Waits => self.mail.push_back(mail),
            },
        }
    }

    /// Sends a message to a core of this node or another.
    pub(crate) fn send_to(&mut self, to: CoreAddress, message: CoreMessage) {
        if to.node == self.address().node {
            self.platform.send(to.core, message);
        } else {
            self.platform.send_node(to.node, Destination::Core(to.core), message);
        }
    }
}
