//! Workflows whose ids callers chose: each starts once, however often it is asked for.
//!
//! The id alone says in which shard the workflow is, and under which place. So whoever starts it comes here, and finds
//! what stands under that place already.

use millrace_base::{Error, ErrorCode, UnixMillis};
use millrace_format::{MessageRecord, ResultState, WorkflowRecord, Write};
use millrace_func::{Catalog, HandlerKind};

use super::{Bookkeeping, invocation_of};
use crate::checks::check_request;
use crate::context::{Context, Rows, read_only};
use crate::inbox::inbox_field;
use crate::outgoing::shard_of_record;
use crate::question::StartWorkflow;
use crate::request::{InvocationId, Sequence};
use crate::results::invocation_field;
use crate::typed_reply::ReplyTo;

/// What stands under an id when somebody starts a workflow with it.
enum Taken {
    Free,
    /// A workflow whose result has expired, and whose rows are still there.
    Expired,
    /// The workflow that is to be started.
    Same,
    Other,
}

fn is_same(record: &WorkflowRecord, message: &MessageRecord) -> bool {
    let of_record = (&record.app, &record.service, &record.handler, &record.key, &record.input);
    of_record == (&message.app, &message.service, &message.handler, &message.key, &message.input)
}

fn id_is_taken(id: &str) -> Error {
    let message = format!(
        "another workflow has the id {id:?}, with another app, handler, key or input: choose another id, or wait until the \
         outcome of that one expires"
    );
    Error::new(ErrorCode::IdempotencyMismatch, message)
}

impl Bookkeeping {
    /// Messages to this shard go straight to its inbox, others to the outbox; either way in the
    /// next entry, which `writes` will be.
    pub(crate) fn add_messages(
        &mut self,
        records: Vec<MessageRecord>,
        writes: &mut Vec<Write>,
        now: UnixMillis,
        rows: &mut Rows,
    ) {
        let lsn = rows.next_lsn();
        let mut chosen: Vec<MessageRecord> = Vec::new();
        for (index, record) in (0u16..).zip(records) {
            let to = shard_of_record(&record, rows.options().shard_count);
            let place = Sequence { lsn, index };
            if to != rows.shard() {
                writes.push(self.outbox.write(to, place, &record));
                continue;
            }
            // The rows of this entry are not there yet.
            let is_of_entry = |earlier: &&MessageRecord| earlier.chosen_id == record.chosen_id;
            match chosen.iter().find(is_of_entry) {
                Some(earlier) if is_same(&super::record_of(earlier.clone()), &record) => {}
                Some(_) => writes.push(self.set_taken_aside(place, &record, rows)),
                None => self.take_in(place, &record, writes, now, rows),
            }
            if record.chosen_id.is_some() {
                chosen.push(record);
            }
        }
    }

    /// A message comes into the inbox, in the next entry, which `writes` will be. If it starts a workflow under an id that
    /// a caller chose, it comes in unless that has been started.
    pub(super) fn take_in(
        &mut self,
        place: Sequence,
        record: &MessageRecord,
        writes: &mut Vec<Write>,
        now: UnixMillis,
        rows: &mut Rows,
    ) {
        match self.taken(record, now, rows) {
            Ok(Taken::Same) => return,
            Ok(Taken::Other) => return writes.push(self.set_taken_aside(place, record, rows)),
            Err(error) => {
                let invocation = InvocationId { shard: rows.shard(), sequence: place };
                return writes.push(self.set_aside((invocation, place), record, &error, "the start of a workflow"));
            }
            Ok(Taken::Expired) => self.journals.add_deletions(invocation_of(&[], record), writes, rows),
            Ok(Taken::Free) => {}
        }
        let field = inbox_field(record.due, place);
        writes.push(self.inbox.write(&field, record));
        self.add_start(&field, record, writes);
    }

    fn set_taken_aside(&mut self, place: Sequence, record: &MessageRecord, rows: &Rows) -> Write {
        let error = id_is_taken(record.chosen_id.as_deref().unwrap_or_default());
        let invocation = InvocationId { shard: rows.shard(), sequence: place };
        self.set_aside((invocation, place), record, &error, "the start of a workflow")
    }

    /// A message that another handler sent comes into the inbox: if it starts a workflow, that is
    /// there from now on.
    fn add_start(&mut self, field: &[u8], message: &MessageRecord, writes: &mut Vec<Write>) {
        if message.invocation.is_some() && !message.is_signal {
            let id = invocation_of(field, message);
            writes.push(self.starts.write(id, field));
            writes.push(self.results.keep_pending(id, &message.app, &message.service));
        }
    }

    /// What stands under the id that the message's sender chose.
    fn taken(&mut self, message: &MessageRecord, now: UnixMillis, rows: &mut Rows) -> Result<Taken, Error> {
        if message.chosen_id.is_none() {
            return Ok(Taken::Free);
        }
        let id = invocation_of(&[], message);
        let Some(kept) = self.results.get(&invocation_field(id), rows)? else {
            return Ok(Taken::Free);
        };
        if kept.result != ResultState::Pending && kept.expires <= now {
            return Ok(Taken::Expired);
        }
        let record = match self.journals.record(id, rows)? {
            Some(record) => Some(record),
            None => self.start_record(id, rows)?.map(|(record, _)| record),
        };
        Ok(if record.is_some_and(|record| is_same(&record, message)) { Taken::Same } else { Taken::Other })
    }

    /// Whether a message that was set aside may be taken in again: what it starts may have been started since.
    ///
    /// # Errors
    /// `idempotency-mismatch` if it has been, or if its id is another workflow's.
    pub(super) fn check_start_again(
        &mut self,
        message: &MessageRecord,
        now: UnixMillis,
        rows: &mut Rows,
    ) -> Result<(), Error> {
        let id = invocation_of(&[], message);
        match self.taken(message, now, rows)? {
            Taken::Free | Taken::Expired => Ok(()),
            // It is the one that never began, and is listed as ended.
            Taken::Same if self.starts.field(id).is_none() && self.journals.live(id, rows)?.is_none() => Ok(()),
            Taken::Same | Taken::Other => Err(id_is_taken(message.chosen_id.as_deref().unwrap_or_default())),
        }
    }

    /// Somebody starts a workflow under an id of their choice. It is answered once the workflow is durable.
    pub(crate) fn start_workflow(
        &mut self,
        to: ReplyTo<InvocationId>,
        start: StartWorkflow,
        catalog: &Catalog,
        context: &mut Context<'_>,
    ) {
        match self.start(start, catalog, context) {
            Ok(id) => {
                let depends_on = self.results.lsn(context.rows);
                context.answer(to, Ok(id), depends_on);
            }
            Err(error) => context.answer(to, Err(error), millrace_base::Lsn::ZERO),
        }
    }

    fn start(
        &mut self,
        start: StartWorkflow,
        catalog: &Catalog,
        context: &mut Context<'_>,
    ) -> Result<InvocationId, Error> {
        let handler = catalog.find(&start.app, &start.service, &start.handler)?;
        if catalog.kind(handler) != HandlerKind::Workflow {
            let message = "only a workflow has an id that its caller chooses: leave out the id";
            return Err(Error::new(ErrorCode::BadRequest, message));
        }
        let unknown = || Error::new(ErrorCode::UnknownHandler, "the handler's app version is gone");
        let loaded = catalog.program(handler.program).ok_or_else(unknown)?;
        check_request(&start.key, &start.input, &loaded.limits)?;
        let id = InvocationId::chosen(&start.id, context.rows.options().shard_count)?;
        let record = MessageRecord {
            keeps_invocation_result: true,
            invocation: Some((id.shard, id.sequence.lsn, id.sequence.index)),
            chosen_id: Some(start.id.into()),
            is_signal: false,
            was_set_aside: false,
            attempts: 0,
            due: context.now.plus(start.delay_ms),
            app: start.app.into(),
            service: start.service.into(),
            handler: start.handler.into(),
            key: start.key.into(),
            input: start.input,
        };
        match self.taken(&record, context.now, context.rows)? {
            Taken::Same => return Ok(id),
            Taken::Other => return Err(id_is_taken(record.chosen_id.as_deref().unwrap_or_default())),
            Taken::Free | Taken::Expired if context.is_read_only => return Err(read_only()),
            Taken::Free | Taken::Expired => {}
        }
        let place = Sequence { lsn: context.rows.next_lsn(), index: 0 };
        let mut writes = Vec::new();
        self.take_in(place, &record, &mut writes, context.now, context.rows);
        context.append(writes);
        Ok(id)
    }
}
