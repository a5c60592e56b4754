//! Workflows that wait for the result of another one.
//!
//! The result of a workflow changes only when somebody restarts it, so asking for it changes nothing, and may be done
//! again. Whoever waits asks the other workflow's shard, and goes on asking with growing pauses. That shard answers when
//! the result is durable: at once if it is, or when the workflow ends, if it remembers who has asked. So a question or an
//! answer that gets lost in a crash costs time only. The answer becomes a row of the journal like every result.

use bytes::Bytes;
use millrace_base::{Error, ErrorCode, Lsn, ShardId, TransactionId, UnixMillis};
use millrace_format::ResultState;

use super::workflow::Work;
use super::{WorkflowContext, Workflows, unknown_workflow};
use crate::peer::{AwaitedResult, PeerBody, ResultQuestion};
use crate::request::{InvocationId, Sequence};
use crate::results::{Waiter, invocation_field};

/// The first pause before a workflow asks again, and the longest.
const FIRST_PAUSE_MS: u64 = 50;
const LONGEST_PAUSE_MS: u64 = 60_000;

/// The first pause doubled so often is over the longest one.
const LONGEST_SHIFT: u32 = 11;

/// The result that an operation waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Awaited {
    pub of: InvocationId,
    /// How long it waits.
    pub until: Option<UnixMillis>,
    /// If nobody has started the workflow by then, there is none.
    pub known_by: UnixMillis,
}

/// What is known of a workflow that somebody waits for.
enum Found {
    Ended(Result<Bytes, Error>),
    /// It has yet to end.
    Open,
    /// Somebody may start it yet.
    MayCome,
}

impl Workflows {
    /// Asks how another workflow has ended, and says when to ask again.
    pub(super) fn ask_result(
        &mut self,
        (id, operation): (Sequence, u32),
        awaited: Awaited,
        context: &mut WorkflowContext<'_, '_>,
    ) {
        let Some(workflow) = self.live.get_mut(&id) else { return };
        let Some(open) = workflow.open.get_mut(&operation) else { return };
        open.attempts += 1;
        let pause_ms = (FIRST_PAUSE_MS << (open.attempts - 1).min(LONGEST_SHIFT)).min(LONGEST_PAUSE_MS);
        let again = context.world.now.plus(pause_ms);
        self.timers.insert((again, id, operation));
        self.timers.extend(awaited.until.map(|until| (until, id, operation)));
        let app = workflow.record.app.as_str().into();
        let question = ResultQuestion { of: awaited.of.sequence, app, asker: id, operation };
        let own = context.rows.shard();
        if awaited.of.shard == own {
            return self.result_wanted(own, question, context);
        }
        self.tell(awaited.of.shard, PeerBody::AwaitResult(question), Lsn::ZERO, context);
    }

    fn tell(&self, to: ShardId, body: PeerBody, depends_on: Lsn, context: &mut WorkflowContext<'_, '_>) {
        let (own, incarnation) = (context.rows.shard(), context.rows.options().incarnation);
        let about = TransactionId { coordinator: own, incarnation, number: 0 };
        let message = context.rows.about(about, body);
        context.context().tell(to, message, depends_on);
    }

    /// Somebody wants to know how a workflow of this shard ends.
    pub(crate) fn result_wanted(
        &mut self,
        from: ShardId,
        question: ResultQuestion,
        context: &mut WorkflowContext<'_, '_>,
    ) {
        let ResultQuestion { of, app, asker, operation } = question;
        let waiter = (from, asker, operation);
        match self.found(of, Some(&app), context) {
            Ok(Found::Ended(result)) => self.tell_result(of, waiter, Some(result), context),
            Ok(Found::Open) => context.books.results.wait_for(of, waiter),
            Ok(Found::MayCome) => self.tell_result(of, waiter, None, context),
            Err(error) => tracing::error!(%error, "the outcome of a workflow cannot be read: it is asked for again"),
        }
    }

    /// Tells those that waited for workflows which have ended.
    pub(super) fn tell_awaited(&mut self, context: &mut WorkflowContext<'_, '_>) {
        while let Some((of, waiters)) = context.books.results.next_awaited() {
            // What cannot be read now is asked for again.
            let Ok(Found::Ended(result)) = self.found(of, None, context) else { continue };
            for waiter in waiters {
                self.tell_result(of, waiter, Some(result.clone()), context);
            }
        }
    }

    fn tell_result(
        &mut self,
        of: Sequence,
        (shard, asker, operation): Waiter,
        result: Option<Result<Bytes, Error>>,
        context: &mut WorkflowContext<'_, '_>,
    ) {
        let awaited = AwaitedResult { of, asker, operation, result };
        let own = context.rows.shard();
        if shard == own {
            return self.awaited_came(own, awaited, context);
        }
        let depends_on = context.books.results.lsn(context.rows);
        self.tell(shard, PeerBody::AwaitedResult(awaited), depends_on, context);
    }

    /// What is known of a workflow; of one of another app than `app`, that there is none.
    fn found(
        &mut self,
        of: Sequence,
        app: Option<&str>,
        context: &mut WorkflowContext<'_, '_>,
    ) -> Result<Found, Error> {
        let WorkflowContext { rows, books, world } = context;
        let unknown = || match of.may_be_early() {
            true => Found::MayCome,
            false => Found::Ended(Err(unknown_workflow())),
        };
        let Some(kept) = books.results.get(&invocation_field(of), rows)? else {
            return Ok(unknown());
        };
        let own_app = match books.journals.record(of, rows)? {
            Some(record) => Some(record.app),
            None => books.start_message(of, rows)?.map(|message| message.app),
        };
        if own_app.is_none() || app.is_some_and(|app| own_app.as_deref() != Some(app)) {
            return Ok(Found::Ended(Err(unknown_workflow())));
        }
        Ok(match kept.result {
            ResultState::Pending => Found::Open,
            _ if kept.expires <= world.now => unknown(),
            ResultState::Value(output) => Found::Ended(Ok(output)),
            ResultState::Error(error) => Found::Ended(Err(error)),
            ResultState::Reply { .. } | ResultState::Sent(..) => Found::Ended(Err(unknown_workflow())),
        })
    }

    /// An answer has come, perhaps not for the first time.
    pub(crate) fn awaited_came(&mut self, from: ShardId, answer: AwaitedResult, context: &mut WorkflowContext<'_, '_>) {
        let AwaitedResult { of, asker, operation, result } = answer;
        let of = InvocationId { shard: from, sequence: of };
        let Some(open) = self.live.get(&asker).and_then(|workflow| workflow.open.get(&operation)) else {
            return; // It has its answer already, or has ended.
        };
        let Work::Result(awaited) = &open.work else { return };
        if awaited.of != of {
            return; // It was asked by another run.
        }
        let result = match result {
            Some(result) => result.map_err(|error| as_awaited(&open.name, error)),
            None if awaited.known_by <= context.world.now => Err(unknown_workflow()),
            None => return,
        };
        self.operation_ended(asker, operation, result, Vec::new(), context);
    }
}

/// The error of another workflow, as the code is given it that waited. What says how a workflow itself stands says nothing
/// of how that one stands.
fn as_awaited(name: &str, error: Error) -> Error {
    let code = match error.code {
        ErrorCode::Cancelled => ErrorCode::WorkflowEnded,
        ErrorCode::Diverged => ErrorCode::FunctionFailed,
        code if code.is_lost_attempt() => ErrorCode::FunctionFailed,
        code => code,
    };
    let message = match code {
        ErrorCode::Aborted => error.message,
        _ => format!("the workflow {name} failed: {}", error.message),
    };
    Error { code, message, detail: error.detail }
}
