//! What a transaction or a workflow sends: messages, and signals to workflows.

use bytes::Bytes;
use millrace_base::{Error, ErrorCode, ShardId, UnixMillis, shard_of_key};
use millrace_format::MessageRecord;
use millrace_func::{HandlerKind, Message};

use crate::checks::refused;
use crate::request::{InvocationId, Sequence};
use crate::world::World;

/// Something that leaves if its sender commits.
pub(crate) enum Outgoing {
    /// A message; with the id of the workflow it starts, if it starts one.
    Message(Message, Option<InvocationId>),
    /// A signal.
    Signal { to: InvocationId, name: String, payload: Bytes },
}

impl Outgoing {
    /// The shard it is for.
    pub(crate) fn shard(&self, shard_count: u16) -> ShardId {
        match self {
            Outgoing::Message(_, Some(workflow)) => workflow.shard,
            Outgoing::Message(message, None) => shard_of_key(&message.key, shard_count),
            Outgoing::Signal { to, .. } => to.shard,
        }
    }

    /// How it is stored; `None` when the app version that sends it is gone. `app` is the sender's.
    pub(crate) fn record(&self, app: &str, world: &World<'_>) -> Option<MessageRecord> {
        match self {
            Outgoing::Message(message, workflow) => {
                let (app, service, handler) = world.catalog.names(message.handler)?;
                let workflow = workflow.map(|id| (id.shard, id.sequence.lsn, id.sequence.index));
                Some(MessageRecord {
                    keeps_invocation_result: false,
                    invocation: workflow,
                    chosen_id: message.id.clone(),
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
        chosen_id: None,
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
    InvocationId::parse(invocation, shard_count)
        .ok_or_else(|| Error::new(ErrorCode::UnknownInvocation, format!("{invocation:?} is no invocation's id")))
}

/// The id of a workflow that a message starts.
pub(crate) enum Started {
    /// Its sender chose it.
    Chosen(InvocationId),
    /// It is drawn, and the workflow is in this shard.
    Drawn(ShardId),
}

impl Started {
    pub(crate) fn id(self, draw: impl FnOnce() -> Sequence) -> InvocationId {
        match self {
            Started::Chosen(id) => id,
            Started::Drawn(shard) => InvocationId { shard, sequence: draw() },
        }
    }
}

/// What a message starts; `None` if it is not for a workflow.
///
/// # Errors
/// When the sender chose an id that nobody may choose, or for what is not a workflow.
pub(crate) fn started_workflow(
    message: &Message,
    shard_count: u16,
    world: &World<'_>,
) -> Result<Option<Started>, Error> {
    let is_workflow = world.catalog.kind(message.handler) == HandlerKind::Workflow;
    match &message.id {
        Some(_) if !is_workflow => Err(refused("only a workflow has an id that its caller chooses")),
        Some(id) => InvocationId::chosen(id, shard_count).map(|id| Some(Started::Chosen(id))),
        None => Ok(is_workflow.then(|| Started::Drawn(shard_of_key(&message.key, shard_count)))),
    }
}

/// The id of a workflow that is started, as its sender is told.
pub(crate) fn told_id(message: &Message, workflow: Option<InvocationId>) -> Option<String> {
    message.id.clone().or_else(|| workflow.map(|id| id.to_string()))
}
