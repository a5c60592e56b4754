//! What requests put into the inbox: sends, and dead letters that are tried again.

use std::collections::BTreeSet;

use millrace_base::{EntityKey, Error, ErrorCode, IdempotencyKey, Lsn, Name, limits};
use millrace_format::{MessageRecord, ResultState, Write};
use millrace_func::HandlerKind;

use super::{Bookkeeping, invocation_of};
use crate::context::{Context, Rows, read_only};
use crate::inbox::inbox_field;
use crate::outgoing::shard_of_record;
use crate::request::{InvocationId, Invoke, Sequence};
use crate::typed_reply::ReplyTo;
use crate::world::World;

/// Dead letters that are in memory at once while many are tried again.
const PAGE: usize = 100;

/// What a request sends to.
pub(crate) struct SendTarget<'a> {
    pub entity: EntityKey,
    pub kind: HandlerKind,
    /// App, service and handler.
    pub names: (&'a Name, &'a Name, &'a Name),
}

impl Bookkeeping {
    /// Accepts a front's send: into the inbox, with a pending result somebody can ask for.
    pub(crate) fn accept_send(
        &mut self,
        to: ReplyTo<InvocationId>,
        (invoke, delay_ms): (&Invoke, u64),
        target: &SendTarget<'_>,
        context: &mut Context<'_>,
    ) {
        let (app, service, handler) = target.names;
        // What is sent later is another request than what is sent now.
        let verb = if delay_ms == 0 { "send".to_owned() } else { format!("send {delay_ms}") };
        let names = self.results.names();
        let key = invoke.info.idempotency_key.as_ref().map(IdempotencyKey::as_str);
        let key = key.map(|key| names.of_call(&target.entity, handler.as_str(), &invoke.input, key, verb.as_bytes()));
        if let Some(key) = &key
            && let Some(result) = self.results.kept_reply(key, context.now, context.rows)
        {
            let depends_on = self.results.lsn(context.rows);
            return context.reply(to.token(), result, depends_on);
        }
        let due = context.now.plus(delay_ms);
        let record = MessageRecord {
            keeps_invocation_result: true,
            invocation: None,
            chosen_id: None,
            is_signal: false,
            was_set_aside: false,
            attempts: 0,
            due,
            app: app.to_string(),
            service: service.to_string(),
            handler: handler.to_string(),
            key: invoke.key.to_vec(),
            input: invoke.input.clone(),
        };
        let sequence = Sequence { lsn: context.rows.next_lsn(), index: 0 };
        let field = inbox_field(due, sequence);
        let mut writes = vec![
            self.inbox.write(&field, &record),
            self.results.keep_pending(sequence, app.as_str(), service.as_str()),
        ];
        if target.kind == HandlerKind::Workflow {
            writes.push(self.starts.write(sequence, &field));
        }
        if let Some(key) = key {
            writes.push(self.results.keep(key, ResultState::Sent(sequence.lsn, sequence.index), context.now));
        }
        let lsn = context.append(writes);
        context.answer(to, Ok(InvocationId { shard: context.rows.shard(), sequence }), lsn);
    }

    /// Drops a dead letter or a message that failed and waits, or has it tried again from its first attempt.
    ///
    /// # Errors
    /// `unknown-invocation` when there is none at `field`; `read-only`.
    pub(crate) fn end_dead_letter(
        &mut self,
        field: &[u8],
        is_retried: bool,
        rows: &mut Rows,
        world: &mut World<'_>,
    ) -> Result<Lsn, Error> {
        let dead_letter = match self.dead_letters.get(field, rows) {
            Err(error) if error.code == ErrorCode::UnknownInvocation => {
                let place = Sequence::decode(field).ok_or_else(|| error.clone())?;
                return self.end_failing(place, is_retried, &mut rows.context(world))?.ok_or(error);
            }
            found => found?,
        };
        if world.is_read_only {
            return Err(read_only());
        }
        if is_retried {
            self.check_start_again(&dead_letter.message, world.now, rows)?;
        }
        let mut writes = vec![self.dead_letters.deletion(field)];
        if is_retried {
            let mut message = dead_letter.message;
            if let Some(program) = world.catalog.current(&message.app) {
                message.input = world.engine.begun_again(program, &message.service, message.input);
            }
            (message.attempts, message.due, message.was_set_aside) = (0, world.now, true);
            if let Some(id) = Sequence::decode(field).filter(|_| message.keeps_invocation_result) {
                // Whoever sent it knows it by the place it had.
                message.invocation.get_or_insert((rows.shard(), id.lsn, id.index));
            }
            let sequence = Sequence { lsn: rows.next_lsn(), index: 0 };
            let to = shard_of_record(&message, rows.options().shard_count);
            if to == rows.shard() {
                let field = inbox_field(message.due, sequence);
                writes.push(self.inbox.write(&field, &message));
                self.add_start_again(&field, &message, &mut writes, world);
            } else {
                // A compensation waits where its workflow is.
                writes.push(self.outbox.write(to, sequence, &message));
            }
        }
        Ok(rows.context(world).append(writes))
    }

    /// Dead letters of apps that want it are tried again, as other versions of these are deployed.
    pub(crate) fn retry_deployed(&mut self, deployed: &BTreeSet<Name>, rows: &mut Rows, world: &mut World<'_>) {
        let mut after: Option<Box<[u8]>> = None;
        for _ in 0..limits::RESUMED_ON_DEPLOY / PAGE {
            let Ok(page) = self.dead_letters.page(after.as_deref(), PAGE, rows) else {
                return; // They wait for the next deployment, or for somebody.
            };
            after = page.items.last().map(|(field, _)| field.clone());
            for (field, dead_letter) in page.items {
                if deployed.iter().any(|app| app.as_str() == dead_letter.message.app)
                    && let Err(error) = self.end_dead_letter(&field, true, rows, world)
                {
                    tracing::warn!(%error, "a dead letter does not go on after a deployment");
                }
            }
            if !page.has_more {
                return;
            }
        }
    }

    /// A dead letter goes back to the inbox. If it starts a workflow, that is to begin as before.
    fn add_start_again(&mut self, field: &[u8], message: &MessageRecord, writes: &mut Vec<Write>, world: &World<'_>) {
        let handler = world.catalog.find(&message.app, &message.service, &message.handler);
        let is_start = handler.is_ok_and(|handler| world.catalog.kind(handler) == HandlerKind::Workflow);
        if is_start && !message.is_signal {
            let id = invocation_of(field, message);
            writes.push(self.starts.write(id, field));
            writes.push(self.journals.ended_deletion(id));
            writes.push(self.results.keep_pending(id, &message.app, &message.service));
        }
    }
}
