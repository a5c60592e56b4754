//! What a shard gives out, put where it goes.

use std::collections::VecDeque;

use bytes::Bytes;
use millrace_base::{Error, ErrorCode, ShardId};
use millrace_format::Entry;
use millrace_func::{FetchRequest, LogLevel, Offload, WorkerTurn};
use millrace_log::Batch;
use millrace_shard::{Delivery, OffloadTicket, Outputs, PeerMessage, Reply, Sequence, Token};
use millrace_store::{ColdRead, ColdRows};

use crate::cold_reads::ColdReads;
use crate::message::{CoreMessage, Destination, ShardMail};
use crate::metrics::CoreMetrics;
use crate::pending::{Forward, PendingReplies};
use crate::placement::Placement;
use crate::platform::{DriverBug, Platform};
use crate::replicated::{ALONE, Guide, Said, Seat, Whereabouts, Writes, submit};
use crate::upkeep::Upkeep;

/// What cannot be done while a shard is still being borrowed.
pub(crate) enum Event {
    Peer { to: ShardId, message: PeerMessage },
    Offload(OffloadTicket, Offload),
    Fetch(OffloadTicket, FetchRequest),
    Exchange(OffloadTicket, WorkerTurn),
    Offloaded(OffloadTicket, Result<Bytes, Error>),
}

/// What a core of a cluster looks at beside.
pub(crate) struct ClusterOutputs<'a> {
    pub guide: &'a Guide,
    /// That of the shard whose input this is, if the core hosts one.
    pub seat: Option<&'a mut Seat>,
    pub writes: &'a mut Writes,
}

pub(crate) struct CoreOutputs<'a, P: Platform> {
    /// `None` for a node that stands alone.
    pub cluster: Option<ClusterOutputs<'a>>,
    /// `None` without a log.
    pub batch: Option<&'a mut Batch>,
    pub pending: &'a mut PendingReplies<P::Waiter>,
    pub events: &'a mut VecDeque<Event>,
    pub mail: &'a mut VecDeque<ShardMail>,
    pub upkeep: &'a mut Upkeep,
    pub cold_reads: &'a mut ColdReads,
    pub core: usize,
    pub placement: &'a Placement,
    pub platform: &'a mut P,
    pub metrics: &'a CoreMetrics,
}

impl<P: Platform> CoreOutputs<'_, P> {
    /// Mail that gets lost is sent again, and mail for a core that is gone is not needed any more: nobody waits for it.
    fn post(&mut self, mail: ShardMail) {
        if let Some(cluster) = &self.cluster
            && let Whereabouts::There(node) = cluster.guide.whereabouts(mail.shard())
        {
            return self.platform.send_node_mail(node, mail);
        }
        let owner = self.placement.core_of(mail.shard());
        if owner == self.core {
            self.mail.push_back(mail);
        } else {
            self.platform.send(owner, mail);
        }
    }

    fn mail(&mut self, mail: ShardMail) {
        if self.cluster.is_some() { self.say(Said::Mail(mail)) } else { self.post(mail) }
    }

    /// In a cluster: what the shard says leaves if it may, or waits.
    fn say(&mut self, said: Said) {
        let now_ns = self.platform.monotonic_ns();
        let skips_lease = self.platform.has_planted(DriverBug::ReplyWithoutLease);
        let seat = self.cluster.as_mut().and_then(|cluster| cluster.seat.as_deref_mut()).filter(|_| !skips_lease);
        let leaves = match seat {
            Some(seat) => seat.gate.pass(&seat.replica, now_ns, said),
            None => Some(said),
        };
        match leaves {
            Some(Said::Reply(token, result)) => self.hand_over(token, result),
            Some(Said::Mail(mail)) => self.post(mail),
            Some(Said::Peer(to, message)) => self.events.push_back(Event::Peer { to, message }),
            None => {}
        }
    }

    fn hand_over(&mut self, token: Token, result: Result<Reply, Error>) {
        if let Err(error) = &result {
            self.metrics.count_error(error.code);
        }
        if let Some(Forward { to, token, result }) = self.pending.reply(token, result) {
            let reply = CoreMessage::Reply { token, result };
            let node = self.cluster.as_ref().map_or(ALONE, |cluster| cluster.guide.me());
            if to.node == node {
                self.platform.send(to.core, reply);
            } else {
                self.platform.send_node(to.node, Destination::Core(to.core), reply);
            }
        }
    }
}

impl<P: Platform> Outputs for CoreOutputs<'_, P> {
    fn append(&mut self, entry: &Entry<'_>) {
        self.metrics.entries.increment();
        if let Some(ClusterOutputs { seat: Some(seat), writes, .. }) = &mut self.cluster {
            return submit((seat, writes), entry, (self.platform, self.batch.as_deref_mut()));
        }
        if let Some(batch) = &mut self.batch {
            self.platform.append(batch, entry);
        }
    }

    fn reply(&mut self, token: Token, result: Result<Reply, Error>) {
        if self.cluster.is_some() {
            return self.say(Said::Reply(token, result));
        }
        self.hand_over(token, result);
    }

    fn deliver(&mut self, to: ShardId, delivery: Delivery) {
        self.mail(ShardMail::Message { to, delivery });
    }

    fn acknowledge(&mut self, to: ShardId, from: ShardId, sequence: Sequence) {
        self.mail(ShardMail::Arrived { to, from, sequence });
    }

    fn offload(&mut self, ticket: OffloadTicket, work: Offload) {
        self.events.push_back(Event::Offload(ticket, work));
    }

    fn fetch(&mut self, ticket: OffloadTicket, request: FetchRequest) {
        self.events.push_back(Event::Fetch(ticket, request));
    }

    fn read_rows(&mut self, read: ColdRead) -> Option<ColdRows> {
        self.cold_reads.read(read, self.platform)
    }

    fn exchange(&mut self, ticket: OffloadTicket, turn: WorkerTurn) {
        self.events.push_back(Event::Exchange(ticket, turn));
    }

    fn goes_on(&mut self, shard: ShardId) {
        self.upkeep.note_due(shard);
        self.platform.wake();
    }

    fn release_body(&mut self, shard: ShardId, number: u64) {
        self.platform.release_body(shard, number);
    }

    fn peer(&mut self, to: ShardId, message: PeerMessage) {
        if self.cluster.is_some() {
            return self.say(Said::Peer(to, message));
        }
        self.events.push_back(Event::Peer { to, message });
    }

    fn log(&mut self, app: &str, service: &str, level: LogLevel, line: &str) {
        match level {
            LogLevel::Debug => tracing::debug!(target: "function", app, service, "{line}"),
            LogLevel::Info => tracing::info!(target: "function", app, service, "{line}"),
            LogLevel::Warn => tracing::warn!(target: "function", app, service, "{line}"),
            LogLevel::Error => tracing::error!(target: "function", app, service, "{line}"),
        }
    }
}

/// The answer to work that a full pool cannot take.
pub(crate) fn too_much_work() -> Error {
    Error::new(ErrorCode::Overloaded, "too many password hashes wait already")
}
