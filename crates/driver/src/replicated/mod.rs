//! Shards whose logs a quorum of nodes keeps: this core's replicas of them, and what is done about what the replicas say.
//!
//! A shard of this core that the node owns makes entries as every shard does. They go to its replica instead of the batch; the
//! replica sends them to the other nodes and has them written here. The shard hears that an entry is durable when a majority
//! has it and this node has it. Of a shard that another node owns, the replica takes the entries, and the core applies to
//! the shard's state what is committed. `docs/internals/driver.md` has the rules.

mod arrivals;
mod detour;
mod gate;
mod guide;
mod handing;
mod holders;
mod proposing;
mod reach;
mod routing;
mod seat;
mod still;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use millrace_base::{Lsn, ShardId};
use millrace_format::Entry;
use millrace_log::Batch;
use millrace_replica::{Command, EntryId, Epoch, Event, LogEntry, Message, NodeId, Replica, RoleName, ShardLog, Write};
use millrace_shard::{Input, Shard, ShardClock, ShardOptions};
use millrace_store::Store;

use crate::core::Core;
use crate::platform::{DriverBug, Platform};
use arrivals::Arrivals;
use gate::Gate;
pub(crate) use gate::Said;
pub(crate) use guide::{Guide, Whereabouts};
use handing::Handing;
use reach::Reach;
pub(crate) use routing::Way;
pub(crate) use seat::Seat;
pub use seat::{Hosted, apply_entry};
pub use still::Standing;

/// The number of a node that stands alone. Nodes of a cluster count from 1.
pub const ALONE: NodeId = NodeId(0);

/// A core's part of a cluster.
pub(crate) struct Replicated {
    pub guide: Guide,
    pub seats: BTreeMap<ShardId, Seat>,
    pub arrivals: Arrivals,
    pub reach: Reach,
    /// Shards that broke here. They are served no more, until they are opened here again.
    pub stopped: BTreeSet<ShardId>,
    pub writes: Writes,
    /// Shards that other nodes are to have.
    pub handing: BTreeMap<ShardId, Handing>,
    /// Until when the entries of shards wait before their replicas.
    pub still_until_ns: Option<u64>,
}

/// The last write of each replica in the two batches of a core.
#[derive(Default)]
pub(crate) struct Writes {
    filling: BTreeMap<ShardId, u64>,
    in_flight: BTreeMap<ShardId, u64>,
}

impl Writes {
    fn note(&mut self, shard: ShardId, number: u64) {
        let before = self.filling.insert(shard, number);
        // Else the last one would never be told that it is durable, and the log would have them in the wrong order.
        assert!(before.is_none_or(|before| before < number), "writes of shard {} are out of order", shard.0);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.filling.is_empty()
    }

    /// The replica is another one: its writes are numbered anew.
    fn forget(&mut self, shard: ShardId) {
        self.filling.remove(&shard);
        self.in_flight.remove(&shard);
    }

    /// The batch goes to the log.
    pub(crate) fn begin_commit(&mut self) {
        self.in_flight = std::mem::take(&mut self.filling);
    }
}

impl Replicated {
    pub(crate) fn new(me: NodeId) -> Self {
        Self {
            guide: Guide::new(me),
            seats: BTreeMap::new(),
            arrivals: Arrivals::default(),
            reach: Reach::default(),
            stopped: BTreeSet::new(),
            writes: Writes::default(),
            handing: BTreeMap::new(),
            still_until_ns: None,
        }
    }
}

impl Replicated {
    /// The states that no shard runs over.
    pub(crate) fn stores(&mut self) -> impl Iterator<Item = &mut Store> {
        self.seats.values_mut().filter_map(|seat| seat.store.as_mut())
    }

    /// Whether nothing waits here for another node.
    pub(crate) fn is_idle(&self) -> bool {
        let is_idle = |seat: &Seat| seat.gate.is_empty() && seat.held.as_ref().is_none_or(still::Held::is_empty);
        self.arrivals.is_empty() && self.seats.values().all(is_idle)
    }

    /// Whose they are.
    pub(crate) fn stored(&self) -> impl Iterator<Item = ShardId> {
        self.seats.iter().filter(|(_, seat)| seat.store.is_some()).map(|(shard, _)| *shard)
    }

    pub(crate) fn store(&mut self, shard: ShardId) -> Option<&mut Store> {
        self.seats.get_mut(&shard)?.store.as_mut()
    }
}

/// What a shard's entry becomes: a write of its replica.
pub(crate) fn submit<P: Platform>(
    (seat, writes): (&mut Seat, &mut Writes),
    entry: &Entry<'_>,
    (platform, batch): (&mut P, Option<&mut Batch>),
) {
    let mut bytes = Vec::new();
    entry.encode(&mut bytes);
    if let Some(held) = &mut seat.held {
        return held.push_back((entry.lsn, bytes.into()));
    }
    let now_ns = platform.monotonic_ns();
    let mut commands = std::mem::take(&mut seat.commands);
    seat.replica.submit(now_ns, entry.lsn, bytes.into(), &mut commands);
    let Some(batch) = batch else {
        seat.commands = commands;
        return;
    };
    for command in commands.drain(..) {
        match command {
            Command::Write { number, write } => {
                platform.write_replica(batch, entry.shard, &write);
                writes.note(entry.shard, number);
                seat.note_write(&write);
            }
            other => seat.commands.push(other),
        }
    }
}

impl<P: Platform> Core<P> {
    fn seat(&mut self, shard: ShardId) -> Option<&mut Seat> {
        self.replicated.as_mut()?.seats.get_mut(&shard)
    }

    /// The replica of a shard that this core hosts, to look at it.
    #[must_use]
    pub fn replica(&self, shard: ShardId) -> Option<&Replica> {
        self.replicated.as_ref()?.seats.get(&shard).map(|seat| &seat.replica)
    }

    /// The state of a shard that this core hosts and that is not open here.
    pub fn hosted_store(&mut self, shard: ShardId) -> Option<&mut Store> {
        self.seat(shard)?.store.as_mut()
    }

    /// The epoch in which a shard is open here, if it is.
    #[must_use]
    pub fn serving(&self, shard: ShardId) -> Option<Epoch> {
        self.replicated.as_ref()?.seats.get(&shard).filter(|_| !self.has_stopped(shard))?.serving
    }

    /// Whether a shard or its replica broke here, and was not opened again since.
    #[must_use]
    pub fn has_stopped(&self, shard: ShardId) -> bool {
        self.replicated.as_ref().is_some_and(|replicated| replicated.stopped.contains(&shard))
    }

    /// A shard broke here: another node should own it.
    pub(crate) fn note_stopped(&mut self, shard: ShardId) {
        if let Some(replicated) = &mut self.replicated {
            replicated.stopped.insert(shard);
        }
    }

    /// Takes a replica that recovery has found, or that is new.
    ///
    /// # Panics
    /// When the node stands alone.
    pub fn host(&mut self, hosted: Hosted) {
        let shard = hosted.shard;
        let mut seat = Seat::new(hosted);
        seat.applies_uncommitted = self.platform.has_planted(DriverBug::ApplyUncommitted);
        let role = seat.role;
        self.replicated.as_mut().expect("a node of a cluster").seats.insert(shard, seat);
        self.write_base(shard);
        self.platform.role_changed(shard, role.0, role.1);
        self.follow_up(shard);
    }

    /// A segment of this core's log began: what older segments say of the replicas beside their entries is written once more,
    /// so that these segments may go.
    pub fn segment_began(&mut self) {
        let shards: Vec<ShardId> =
            self.replicated.iter().flat_map(|replicated| replicated.seats.keys().copied()).collect();
        for shard in shards {
            self.write_base(shard);
        }
    }

    fn write_base(&mut self, shard: ShardId) {
        if let Some(seat) = self.replicated.as_ref().and_then(|replicated| replicated.seats.get(&shard)) {
            self.platform.write_base(&mut self.batch, shard, &seat.replica);
        }
    }

    /// A replica of another node says something.
    pub fn receive(&mut self, shard: ShardId, from: NodeId, message: Message) {
        let Some(seat) = self.seat(shard) else { return };
        if seat.is_installing && matches!(message, Message::Append { .. } | Message::Entries { .. }) {
            return;
        }
        self.drive(shard, |seat, now_ns, out| match (&mut seat.nomination, message) {
            (Some(nomination), Message::PreVoteReply { epoch, is_granted }) => {
                nomination.replied(now_ns, from, epoch, is_granted, &mut seat.replica, out);
            }
            (_, message) => seat.replica.handle(now_ns, Event::Received { from, message }, out),
        });
    }

    /// Entries that `Platform::read_log` was asked for. None: they could not be read, and are asked for again.
    pub fn log_read(&mut self, shard: ShardId, to: NodeId, after: EntryId, entries: Vec<LogEntry>) {
        self.drive(shard, |seat, now_ns, out| {
            seat.replica.handle(now_ns, Event::LogRead { to, after, entries }, out);
        });
    }

    /// A snapshot was carried to a replica, all but its last message.
    pub(crate) fn snapshot_shipped(&mut self, shard: ShardId, to: NodeId, at: Lsn) {
        self.drive(shard, |seat, now_ns, out| {
            seat.replica.handle(now_ns, Event::SnapshotShipped { to, at }, out);
        });
    }

    /// A snapshot could not be carried.
    pub(crate) fn snapshot_failed(&mut self, shard: ShardId, to: NodeId) {
        self.drive(shard, |seat, now_ns, out| {
            seat.replica.handle(now_ns, Event::SnapshotFailed { to }, out);
        });
    }

    /// Whether a snapshot at `at` is to be installed over the rows of a shard. Then its state is gone until
    /// [`Core::snapshot_installed`].
    pub(crate) fn begin_install(&mut self, shard: ShardId, at: Lsn) -> bool {
        let Some(seat) = self.seat(shard) else { return false };
        if seat.serving.is_some() || seat.to_open.is_some() || at <= seat.replica.log().committed() {
            return false;
        }
        seat.is_installing = true;
        seat.store = None;
        self.upkeep.forget(shard);
        true
    }

    /// A snapshot is in the checkpoint, durably, and `store` was opened from that. `message` is the one that it ends with.
    pub(crate) fn snapshot_installed(&mut self, shard: ShardId, from: NodeId, message: Message, store: Store) {
        let Some(seat) = self.seat(shard) else { return };
        seat.is_installing = false;
        seat.store = Some(store);
        self.receive(shard, from, message);
    }

    /// A snapshot has not come whole, and what the replica had is gone. `store` is empty: the replica begins as one that has
    /// lost everything, in this process under `nonce`.
    pub fn install_failed(&mut self, shard: ShardId, store: Store, nonce: u64) {
        let now_ns = self.platform.monotonic_ns();
        let Some(replicated) = &mut self.replicated else { return };
        let Some(seat) = replicated.seats.get_mut(&shard).filter(|seat| seat.is_installing) else { return };
        let write = seat.begin_empty(store, now_ns, nonce);
        replicated.writes.forget(shard);
        self.platform.write_replica(&mut self.batch, shard, &write);
        self.write_base(shard);
        self.platform.wake();
        self.follow_up(shard);
    }

    /// A shard that was given up could not be opened again. That is as well while a snapshot comes.
    pub fn reopen_failed(&mut self, shard: ShardId, reason: &str) {
        if self.seat(shard).is_some_and(|seat| seat.is_installing) {
            return self.drive(shard, |seat, now_ns, out| seat.replica.handle(now_ns, Event::Reopened, out));
        }
        self.stop_replica(shard, reason);
    }

    /// A shard that was given up was opened again from its checkpoint and its log, up to what `Platform::reopen` was told.
    pub fn reopened(&mut self, shard: ShardId, store: Store) {
        let Some(seat) = self.seat(shard) else { return };
        // A snapshot has come meanwhile: it is newer.
        let follows = seat.store.is_some() || seat.is_installing || seat.take_store(store);
        if !follows {
            return self.stop_replica(shard, "a shard was reopened at another entry than its log goes on at");
        }
        self.drive(shard, |seat, now_ns, out| seat.replica.handle(now_ns, Event::Reopened, out));
    }

    /// Whether what a shard has read just now may be told at once.
    pub(crate) fn may_answer(&mut self, shard: ShardId) -> bool {
        self.holds_lease(shard) || self.platform.has_planted(DriverBug::ReplyWithoutLease)
    }

    /// Whether this node surely owns the shard now, so that what its rows say is the newest.
    pub fn holds_lease(&mut self, shard: ShardId) -> bool {
        let now_ns = self.platform.monotonic_ns();
        let leaves = |seat: &Seat| {
            seat.replica.may_leave(now_ns, Lsn::ZERO, seat.replica.read_proof()) == millrace_replica::Leaving::Now
        };
        self.seat(shard).is_some_and(|seat| seat.serving.is_some() && leaves(seat))
    }

    /// Runs a replica, obeys its commands, and does what follows from its new state.
    fn drive(&mut self, shard: ShardId, run: impl FnOnce(&mut Seat, u64, &mut Vec<Command>)) {
        let now_ns = self.platform.monotonic_ns();
        let Some(seat) = self.seat(shard) else { return };
        let mut commands = std::mem::take(&mut seat.commands);
        run(seat, now_ns, &mut commands);
        for command in commands.drain(..) {
            self.obey(shard, command);
        }
        if let Some(seat) = self.seat(shard).filter(|seat| seat.commands.is_empty()) {
            seat.commands = commands;
        }
        self.follow_up(shard);
    }

    fn obey(&mut self, shard: ShardId, command: Command) {
        match command {
            Command::Send { to, message } => self.platform.send_replica(to, shard, message),
            Command::Write { number, write } => self.write(shard, number, &write),
            // `follow_up` looks at what is committed and confirmed.
            Command::Committed { .. } => self.tell_committed(shard),
            Command::Confirmed { .. } => self.heard_majority(shard),
            Command::Serve { epoch, last } => {
                self.heard_majority(shard);
                if let Some(seat) = self.seat(shard) {
                    seat.to_open = Some((epoch, last));
                }
            }
            Command::GiveUp { epoch } => self.depose(shard, epoch),
            Command::Released { epoch } => self.hear_let_go(shard, epoch),
            Command::ReadLog { to, after, bytes } => {
                self.metrics.catch_ups.increment();
                self.platform.read_log(shard, to, after, bytes);
            }
            Command::ShipSnapshot { to, at_least } => {
                self.upkeep.want(shard, at_least);
                self.platform.ship_snapshot(shard, to, at_least);
            }
            Command::CaughtUp { learner } => self.platform.caught_up(shard, learner),
            Command::EpochTaken { promised } => self.platform.epoch_taken(shard, promised),
            Command::AppointInstead { best } => self.platform.appoint_instead(shard, best),
            Command::Whole => {
                self.platform.whole(shard);
                self.write_base(shard);
            }
            Command::Broken { reason } => self.stop_replica(shard, reason),
        }
    }

    /// Others follow the shard that no functions run on. They hear what is committed now, and not with the next heartbeat.
    fn tell_committed(&mut self, shard: ShardId) {
        if self.seat(shard).is_some_and(|seat| seat.options.is_none() && seat.serving.is_some()) {
            self.drive(shard, |seat, now_ns, out| seat.replica.confirm(now_ns, out));
        }
    }

    fn write(&mut self, shard: ShardId, number: u64, write: &Write) {
        self.platform.write_replica(&mut self.batch, shard, write);
        if let Some(replicated) = &mut self.replicated {
            replicated.writes.note(shard, number);
            if let Some(seat) = replicated.seats.get_mut(&shard) {
                seat.note_write(write);
            }
        }
        self.platform.wake();
    }

    /// This node owns a shard no more. What it has in memory may never be.
    fn depose(&mut self, shard: ShardId, _epoch: Epoch) {
        let keeps_memory = self.platform.has_planted(DriverBug::KeepMemory);
        let Some(seat) = self.seat(shard) else { return };
        seat.gate = Gate::default();
        // Whoever owns the shard next has not heard of it.
        seat.held.iter_mut().for_each(still::Held::clear);
        seat.to_open = None;
        seat.silent_ns = 0;
        let last = seat.replica.log().last().lsn;
        let settled = seat.replica.log().committed().min(seat.replica.log().durable());
        let was_open = seat.serving.take().is_some() && seat.store.is_none();
        if let Some(replicated) = &mut self.replicated {
            replicated.reach.forget(shard);
            replicated.handing.remove(&shard);
        }
        if !was_open {
            // No shard has run over the state: it holds nothing but what is committed.
            return self.drive(shard, |seat, now_ns, out| seat.replica.handle(now_ns, Event::Reopened, out));
        }
        self.metrics.shards_given_up.increment();
        self.give_up_shard(shard);
        self.platform.reopen(shard, if keeps_memory { last } else { settled });
    }

    /// A replica contradicts itself: it takes part no more, and neither does the shard.
    pub fn stop_replica(&mut self, shard: ShardId, reason: &str) {
        let seat = self.replicated.as_mut().and_then(|replicated| replicated.seats.remove(&shard));
        self.note_stopped(shard);
        if seat.is_some_and(|seat| seat.serving.is_some()) && self.shard_mut(shard).is_some() {
            return self.stop_shard(shard, reason);
        }
        tracing::error!(shard = shard.0, reason, "the replica of the shard is stopped until a restart");
        self.count_stopped(Some(reason));
    }

    /// Does what follows from what is committed, durable and confirmed by now.
    fn follow_up(&mut self, shard: ShardId) {
        let skips_quorum = self.platform.has_planted(DriverBug::DurableBeforeQuorum);
        let Some(seat) = self.seat(shard) else { return };
        match seat.apply() {
            Ok(Some(lsn)) if seat.options.is_none() => self.platform.applied(shard, lsn),
            Ok(_) => {}
            Err(error) => return self.stop_replica(shard, &error.to_string()),
        }
        let Some(seat) = self.seat(shard) else { return };
        if seat.serving.is_some() && seat.store.is_none() {
            let durable = if skips_quorum { seat.replica.log().durable() } else { seat.settled() };
            let is_news = self.shard_mut(shard).is_some_and(|shard| shard.durable_lsn() < durable);
            if is_news {
                self.give(shard, Input::Durable(durable));
                self.handle_events();
            }
        }
        self.open_if_due(shard);
        self.let_out(shard);
        self.note_role(shard);
    }

    fn note_role(&mut self, shard: ShardId) {
        let Some(seat) = self.seat(shard) else { return };
        let role = (seat.replica.role(), seat.replica.promised().epoch);
        let is_open = role.0 != RoleName::Owner || seat.serving.is_some();
        if seat.role != role && is_open {
            seat.role = role;
            self.platform.role_changed(shard, role.0, role.1);
        }
    }

    /// Opens a shard that this node owns, once its state reflects everything up to the epoch's first entry.
    fn open_if_due(&mut self, shard: ShardId) {
        let Some(seat) = self.seat(shard) else { return };
        let is_due = |(_, last): &mut (Epoch, Lsn)| seat.store.as_ref().is_some_and(|store| store.lsn() >= *last);
        let Some((epoch, _)) = seat.to_open.take_if(is_due) else { return };
        seat.serving = Some(epoch);
        let was_handed = seat.handed == Some(epoch);
        let Some(options) = seat.options.clone() else {
            // All entries of earlier owners are in the state.
            seat.clock = seat.store.as_ref().map(|store| ShardClock::after(store.time()));
            return;
        };
        // A flush that is under way goes on.
        let Some(store) = seat.store.take() else { return };
        match Shard::new(ShardOptions { incarnation: epoch.0, ..options }, store) {
            Ok(mut opened) => {
                if was_handed {
                    opened.inherits_nothing();
                }
                if let Some(replicated) = &mut self.replicated {
                    replicated.stopped.remove(&shard);
                }
                self.metrics.shards_opened.increment();
                self.take_shard(opened);
                self.announce(shard, epoch);
                self.arrivals_again(Some(shard));
            }
            Err(error) => self.stop_replica(shard, &error.to_string()),
        }
    }

    /// Lets out what the shard has said and what may leave by now, and asks for a round if something may not.
    pub(crate) fn let_out(&mut self, shard: ShardId) {
        let mut has_said = false;
        loop {
            let now_ns = self.platform.monotonic_ns();
            let Some(seat) = self.seat(shard) else { return };
            let Some(said) = seat.gate.next(&seat.replica, now_ns) else { break };
            self.says(said);
            has_said = true;
        }
        if has_said {
            self.look_whether_due(shard);
        }
        let takes_round = self.seat(shard).is_some_and(|seat| seat.gate.takes_round());
        if takes_round {
            self.drive(shard, |seat, now_ns, out| seat.replica.confirm(now_ns, out));
        }
    }

    /// After an input of a shard: what its replica has said beside writes, and what it could not say at once.
    pub(crate) fn after_input(&mut self, shard: ShardId) {
        let has_more = |seat: &mut Seat| !seat.commands.is_empty() || seat.gate.wants_round();
        if self.seat(shard).is_some_and(has_more) {
            self.drive(shard, |_, _, _| {});
        }
        self.look_whether_due(shard);
    }

    /// The round ends: what was submitted leaves.
    pub(crate) fn end_replicas_round(&mut self) {
        let Some(replicated) = &self.replicated else { return };
        let shards: Vec<ShardId> = replicated.writes.filling.keys().copied().collect();
        for shard in shards {
            self.drive(shard, |seat, now_ns, out| seat.replica.end_round(now_ns, out));
        }
    }

    /// The batch is durable.
    pub(crate) fn replicas_written(&mut self) {
        let Some(replicated) = &mut self.replicated else { return };
        for (shard, number) in std::mem::take(&mut replicated.writes.in_flight) {
            self.drive(shard, |seat, now_ns, out| seat.replica.written(now_ns, number, out));
        }
    }

    /// Time has passed.
    pub(crate) fn tick_replicas(&mut self) {
        let Some(replicated) = &self.replicated else { return };
        let shards: Vec<ShardId> = replicated.seats.keys().copied().collect();
        for shard in shards {
            let random = self.entropy.draw(self.next_nonce, u32::from(shard.0));
            self.drive(shard, |seat, now_ns, out| {
                seat.replica.handle(now_ns, Event::Tick, out);
                if let Some(nomination) = &mut seat.nomination {
                    nomination.tick(now_ns, random, &mut seat.replica, out);
                }
            });
        }
        self.look_whether_still();
        self.look_who_is_silent();
        self.take_detours();
        self.appoint();
        self.change_holders();
        self.hand_on();
        self.arrivals_again(None);
    }

    /// The log of a shard holds entries up to `lsn` no more: a checkpoint does. Gives up to where the replica has let go of
    /// them; what is after that must stay readable.
    pub fn trimmed(&mut self, shard: ShardId, lsn: Lsn) -> Lsn {
        self.seat(shard).map_or(lsn, |seat| seat.replica.trim(lsn))
    }

    /// A shard has stopped: what it could not say yet it never will.
    pub(crate) fn close_gate(&mut self, shard: ShardId) {
        if let Some(seat) = self.seat(shard) {
            seat.gate.clear();
        }
    }

    /// The log has failed: nothing that the replicas say could be kept.
    pub(crate) fn stop_replicas(&mut self) {
        if let Some(replicated) = &mut self.replicated {
            replicated.seats.clear();
        }
    }
}
