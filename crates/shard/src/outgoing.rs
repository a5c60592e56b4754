//! What a transaction or a workflow sends: messages, and signals to workflows.

use bytes::Bytes;
use millrace_base::{Error, ErrorCode, ShardId, UnixMillis, shard_of_key};
use millrace_format::MessageRecord;
use millrace_func::Message;

use crate::request::{InvocationId, Sequence};
use crate::world::World;

/// Something that leaves if its sender commits.
pub(crate) enum Outgoing {
    /// A message; with the id of the workflow it starts, if it starts one.
    Message(Message, Option<Sequence>),
    /// A signal.
    Signal { to: InvocationId, name: String, payload: Bytes },
}

impl Outgoing {
    /// The shard it is for.
    pub(crate) fn shard(&self, shard_count: u16) -> ShardId {
        match self {
            Outgoing::Message(message, _) => shard_of_key(&message.key, shard_count),
            Outgoing::Signal { to, .. } => to.shard,
        }
    }

    /// How it is stored; `None` when the app version that sends it is gone. `app` is the sender's.
    pub(crate) fn record(&self, app: &str, shard_count: u16, world: &World<'_>) -> Option<MessageRecord> {
        match self {
            Outgoing::Message(message, workflow) => {
                let (app, service, handler) = world.catalog.names(message.handler)?;
                let shard = self.shard(shard_count);
                Some(MessageRecord {
                    keeps_invocation_result: false,
                    invocation: workflow.map(|sequence| (shard, sequence.lsn, sequence.index)),
                    is_signal: false,
                    was_set_aside: false,
                    attempts: 0,
                    due: world.now.plus(message.delay_ms),
                    app: app.to_string(),
                    service: service.to_string(),
                    handler: handler.to_string(),
                    key: message.key.clone(),
                    input: message.input.clone(),
                })
            }
            Outgoing::Signal { to, name, payload } => Some(signal_record(app, *to, name, payload, world.now)),
        }
    }
}

fn signal_record(app: &str, to: InvocationId, name: &str, payload: &Bytes, due: UnixMillis) -> MessageRecord {
    MessageRecord {
        keeps_invocation_result: false,
        invocation: Some((to.shard, to.sequence.lsn, to.sequence.index)),
        is_signal: true,
        was_set_aside: false,
        attempts: 0,
        due,
        app: app.to_owned(),
        service: String::new(),
        handler: name.to_owned(),
        key: Vec::new(),
        input: payload.clone(),
    }
}

/// The shard that a stored message is for.
pub(crate) fn shard_of_record(record: &MessageRecord, shard_count: u16) -> ShardId {
    match record.invocation {
        Some((shard, ..)) => shard,
        None => shard_of_key(&record.key, shard_count),
    }
}

/// The workflow that a signal is for.
pub(crate) fn signal_target(invocation: &str, shard_count: u16) -> Result<InvocationId, Error> {
    let parsed = InvocationId::parse(invocation).filter(|id| id.shard.0 < shard_count);
    parsed.ok_or_else(|| Error::new(ErrorCode::UnknownInvocation, format!("{invocation:?} is no invocation's id")))
}
