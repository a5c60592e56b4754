//! The parts that keep rows about messages and invocations, and what takes rows of several of them
//! in one entry.
//!
//! This is a table of parts, as the shard is: each part keeps its state to itself. `messages.rs`
//! follows a message from its arrival to its end, `failing.rs` has those that failed and wait, `starting.rs` the workflows
//! whose ids callers chose.

mod failing;
mod messages;
mod requests;
mod starting;

use millrace_base::{Error, ErrorCode, UnixMillis, limits};
use millrace_format::{DeadLetterRecord, MessageRecord, WorkflowRecord, Write};
use millrace_func::Catalog;
use millrace_store::StoreError;

use crate::context::{Context, Rows};
use crate::dead_letters::DeadLetters;
use crate::failures::{FailureRows, Failures};
use crate::inbox::{Inbox, sequence_of};
use crate::journals::Journals;
use crate::outbox::Outbox;
use crate::request::{InvocationId, Sequence, dead_letter_id};
use crate::results::Results;
use crate::schedules::Schedules;
use crate::signals::Signals;
use crate::starts::Starts;
pub(crate) use requests::SendTarget;

/// The parts that keep rows about messages and invocations.
pub(crate) struct Bookkeeping {
    pub inbox: Inbox,
    pub outbox: Outbox,
    pub dead_letters: DeadLetters,
    pub results: Results,
    pub schedules: Schedules,
    pub signals: Signals,
    pub starts: Starts,
    pub journals: Journals,
    pub failed: FailureRows,
    pub failures: Failures,
}

/// The id of what a message starts, or is for.
pub(crate) fn invocation_of(field: &[u8], message: &MessageRecord) -> Sequence {
    let own = message.invocation.map(|(_, lsn, index)| Sequence { lsn, index });
    own.or_else(|| sequence_of(field)).unwrap_or_default()
}

impl Bookkeeping {
    /// Takes over what an earlier run of the shard left.
    ///
    /// # Errors
    /// [`StoreError`] when rows cannot be read.
    pub(crate) fn recover(rows: &mut Rows) -> Result<Self, StoreError> {
        let options = rows.options();
        let results = Results::new(options.result_names, options.retention_ms);
        Ok(Self {
            inbox: Inbox::new(),
            outbox: Outbox::new(),
            dead_letters: DeadLetters::recover(rows)?,
            results,
            schedules: Schedules::new(),
            signals: Signals::new(),
            starts: Starts::recover(rows)?,
            journals: Journals::new(),
            failed: FailureRows::recover(rows)?,
            failures: Failures::default(),
        })
    }

    /// Sets a message aside that failed for good, and says so. `what` it is, and of which invocation;
    /// its place is the dead letter's. The write must be made.
    pub(crate) fn set_aside(
        &mut self,
        (invocation, place): (InvocationId, Sequence),
        message: &MessageRecord,
        error: &Error,
        what: &'static str,
    ) -> Write {
        let MessageRecord { app, service, handler, attempts, .. } = message;
        let key = String::from_utf8_lossy(&message.key);
        let (key, dead_letter) = (&*key, dead_letter_id(invocation.shard, &place.encode()));
        tracing::error!(
            dead_letter, %invocation, app, service, key, handler, attempts, %error,
            "{what} failed for good and went to the dead letters"
        );
        let dead_letter = DeadLetterRecord::encode(error, message);
        self.dead_letters.write(&place.encode(), &dead_letter)
    }

    /// Deletes some of the expired results, and what belongs to those of workflows.
    pub(crate) fn collect_results(&mut self, context: &mut Context<'_>) {
        let mut writes = Vec::new();
        let mut expired = self.results.expired(context).into_iter();
        // The journals of workflows may fill an entry: the rest comes with the next one.
        while writes.len() < limits::WRITES_PER_CALL {
            let Some(field) = expired.next() else { break };
            if let Some(id) = field.strip_prefix(b"i").and_then(Sequence::decode) {
                self.journals.add_deletions(id, &mut writes, context.rows);
            }
            writes.push(self.results.deletion(field));
        }
        self.results.leave_over(expired);
        context.append_any(writes);
    }

    /// Puts messages of schedules that are due into the inbox, and takes over what deployments have changed.
    pub(crate) fn run_schedules(&mut self, catalog: &Catalog, context: &mut Context<'_>) {
        let (mut writes, messages) = self.schedules.run(catalog, context);
        self.add_messages(messages, &mut writes, context.now, context.rows);
        context.append_any(writes);
    }
}

/// What a workflow will be, as far as its message says.
pub(crate) fn record_of(message: MessageRecord) -> WorkflowRecord {
    WorkflowRecord {
        has_ended: false,
        is_cancelled: false,
        began: UnixMillis(0),
        chosen_id: message.chosen_id,
        runs: Vec::new(),
        version: 0,
        app: message.app,
        service: message.service,
        handler: message.handler,
        key: message.key,
        input: message.input,
    }
}

/// Nothing of it is there to be changed yet.
pub(crate) fn not_begun() -> Error {
    Error::new(ErrorCode::Overloaded, "this invocation has not begun yet: try again")
}
