//! What a shard gives out, put where it goes.

use std::collections::VecDeque;

use bytes::Bytes;
use millrace_base::{Error, ErrorCode, ShardId};
use millrace_format::Entry;
use millrace_func::{FetchRequest, LogLevel, Offload, WorkerTurn};
use millrace_log::Batch;
use millrace_shard::{Delivery, OffloadTicket, Outputs, PeerMessage, Reply, Sequence, Token};

use crate::message::{CoreMessage, ShardMail};
use crate::metrics::CoreMetrics;
use crate::pending::PendingReplies;
use crate::placement::Placement;
use crate::platform::Platform;
use crate::upkeep::Upkeep;

/// What cannot be done while a shard is still being borrowed.
pub(crate) enum Event {
    Peer { to: ShardId, message: PeerMessage },
    Offload(OffloadTicket, Offload),
    Fetch(OffloadTicket, FetchRequest),
    Exchange(OffloadTicket, WorkerTurn),
    Offloaded(OffloadTicket, Result<Bytes, Error>),
}

pub(crate) struct CoreOutputs<'a, P: Platform> {
    /// `None` without a log.
    pub batch: Option<&'a mut Batch>,
    pub pending: &'a mut PendingReplies<P::Waiter>,
    pub events: &'a mut VecDeque<Event>,
    pub mail: &'a mut VecDeque<ShardMail>,
    pub upkeep: &'a mut Upkeep,
    pub core: usize,
    pub placement: &'a Placement,
    pub platform: &'a mut P,
    pub metrics: &'a CoreMetrics,
}

impl<P: Platform> CoreOutputs<'_, P> {
    /// Mail that gets lost is sent again, and mail for a core that is gone is not needed any more: nobody waits for it.
    fn post(&mut self, mail: ShardMail) {
        let owner = self.placement.core_of(mail.shard());
        if owner == self.core {
            self.mail.push_back(mail);
        } else {
            self.platform.send(owner, mail);
        }
    }
}

impl<P: Platform> Outputs for CoreOutputs<'_, P> {
    fn append(&mut self, entry: &Entry<'_>) {
        self.metrics.entries.increment();
        if let Some(batch) = &mut self.batch {
            self.platform.append(batch, entry);
        }
    }

    fn reply(&mut self, token: Token, result: Result<Reply, Error>) {
        if let Err(error) = &result {
            self.metrics.count_error(error.code);
        }
        if let Some(forward) = self.pending.reply(token, result) {
            self.platform.send(forward.core, CoreMessage::Reply { token: forward.token, result: forward.result });
        }
    }

    fn deliver(&mut self, to: ShardId, delivery: Delivery) {
        self.post(ShardMail::Message { to, delivery });
    }

    fn acknowledge(&mut self, to: ShardId, from: ShardId, sequence: Sequence) {
        self.post(ShardMail::Arrived { to, from, sequence });
    }

    fn offload(&mut self, ticket: OffloadTicket, work: Offload) {
        self.events.push_back(Event::Offload(ticket, work));
    }

    fn fetch(&mut self, ticket: OffloadTicket, request: FetchRequest) {
        self.events.push_back(Event::Fetch(ticket, request));
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
