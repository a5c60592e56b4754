//! What a shard gives out, put where it goes.

use std::collections::VecDeque;
use std::sync::Arc;

use millrace_base::{Error, ErrorCode, ShardId};
use millrace_format::Entry;
use millrace_func::{FetchRequest, LogLevel, Offload};
use millrace_log::Batch;
use millrace_shard::{Delivery, OffloadTicket, Outputs, PeerMessage, Reply, Sequence, Token};

use crate::core::slots::Slots;
use crate::core::{Carried, CoreMessage, Shared};
use crate::metrics::CoreMetrics;

/// What cannot be done while the shard is still being borrowed.
pub(crate) enum Event {
    Peer { to: ShardId, message: PeerMessage },
    Offload(OffloadTicket, Offload),
    Fetch(OffloadTicket, FetchRequest),
}

pub(crate) struct CoreOutputs<'a> {
    /// `None` without a log.
    pub batch: Option<&'a mut Batch>,
    pub slots: &'a mut Slots,
    pub events: &'a mut VecDeque<Event>,
    pub carried: &'a mut VecDeque<Carried>,
    pub core: usize,
    pub shared: &'a Arc<Shared>,
    pub metrics: &'a CoreMetrics,
}

impl CoreOutputs<'_> {
    fn carry(&mut self, carried: Carried) {
        let owner = self.shared.core_of(carried.shard());
        if owner == self.core {
            self.carried.push_back(carried);
        } else {
            self.shared.carry(owner, carried);
        }
    }
}

impl Outputs for CoreOutputs<'_> {
    fn append(&mut self, entry: &Entry<'_>) {
        self.metrics.entries.increment();
        if let Some(batch) = &mut self.batch {
            batch.push(entry);
        }
    }

    fn reply(&mut self, token: Token, result: Result<Reply, Error>) {
        if let Err(error) = &result {
            self.metrics.count_error(error.code);
        }
        if let Some(forward) = self.slots.reply(token, result) {
            self.shared.send(forward.core, CoreMessage::Reply { token: forward.token, result: forward.result });
        }
    }

    fn deliver(&mut self, to: ShardId, delivery: Delivery) {
        self.carry(Carried::Message { to, delivery });
    }

    fn acknowledge(&mut self, to: ShardId, from: ShardId, sequence: Sequence) {
        self.carry(Carried::Arrived { to, from, sequence });
    }

    fn offload(&mut self, ticket: OffloadTicket, work: Offload) {
        self.events.push_back(Event::Offload(ticket, work));
    }

    fn fetch(&mut self, ticket: OffloadTicket, request: FetchRequest) {
        self.events.push_back(Event::Fetch(ticket, request));
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
