//! What a rig does with workflows and dead letters.

use bytes::Bytes;
use millrace_api::Intervention;
use millrace_base::{EntityKey, ShardId, Value, limits};
use millrace_format::{FailureRecord, JournalRow, ResultState, StepKind};
use millrace_shard::question::{Intervene, ListWorkflows, Signal, StartWorkflow};
use millrace_shard::{FoundInvocation, InvocationId, Listed as Page, ListedWorkflow, Token, TypedReply, WorkflowView};
use serde_json::Value as Json;

use crate::rig::{APP, Rig};
use crate::script::Script;

/// What a row of a journal says that does not depend on when it was made.
pub type Written = (StepKind, u32, String, Result<Bytes, String>);

/// A workflow in a list.
pub type Listed = (InvocationId, bool, ResultState);

impl Rig {
    /// Starts a workflow and lets it run for as long as it needs nobody else.
    pub fn flow(&mut self, key: &str, script: Script) -> InvocationId {
        let token = self.send(("note", key, "flow"), script, 0, None);
        self.make_durable();
        self.sent(token)
    }

    /// Starts a workflow under an id, as a front does.
    ///
    /// # Panics
    /// When nobody may choose the id.
    pub fn start_as(&mut self, id: &str, key: &str, script: &Script) -> Token {
        let input = Bytes::from(script.json());
        let start = StartWorkflow {
            id: id.into(),
            app: APP.into(),
            service: "note".into(),
            handler: "flow".into(),
            key: key.as_bytes().into(),
            input,
            delay_ms: 0,
        };
        self.ask(self.chosen(id).shard, start)
    }

    /// The workflow of an id that a caller chose.
    ///
    /// # Panics
    /// When nobody may choose the id.
    #[must_use]
    pub fn chosen(&self, id: &str) -> InvocationId {
        InvocationId::chosen(id, self.options.shard_count).expect("anybody may choose it")
    }

    /// Sends a signal from outside.
    pub fn signal(&mut self, id: InvocationId, name: &str, payload: &str, idempotency_key: Option<&str>) -> Token {
        let key = match self.checked(idempotency_key) {
            Ok(key) => key,
            Err(token) => return token,
        };
        let payload = Bytes::from(payload.to_owned());
        let asked = Signal { sequence: id.sequence, name: name.into(), payload, idempotency_key: key };
        self.ask(id.shard, asked)
    }

    /// Wants a workflow cancelled.
    pub fn cancel(&mut self, id: InvocationId) -> Token {
        self.intervene(id, Intervention::Cancel)
    }

    /// Has what failed of a workflow tried again.
    pub fn resume(&mut self, id: InvocationId) -> Token {
        self.intervene(id, Intervention::Resume)
    }

    /// Ends a workflow at once.
    pub fn kill(&mut self, id: InvocationId) -> Token {
        self.intervene(id, Intervention::Kill)
    }

    /// Has a workflow begin again, from the step `from` or from its beginning.
    pub fn restart(&mut self, id: InvocationId, from: Option<&str>, on_newest: bool) -> Token {
        self.intervene(id, Intervention::Restart { from: from.map(Into::into), on_newest })
    }

    fn intervene(&mut self, id: InvocationId, intervention: Intervention) -> Token {
        self.ask(id.shard, Intervene { sequence: id.sequence, intervention })
    }

    /// What of a workflow failed and has not ended.
    ///
    /// # Panics
    /// When the workflow is unknown.
    pub fn failures(&mut self, id: InvocationId) -> Vec<FailureRecord> {
        self.look_at(id).2
    }

    /// What became of an invocation.
    ///
    /// # Panics
    /// When it is unknown.
    pub fn invocation_result(&mut self, id: InvocationId) -> ResultState {
        self.look_at(id).0
    }

    /// What is known of a workflow.
    ///
    /// # Panics
    /// When it is unknown, or none.
    pub fn view(&mut self, id: InvocationId) -> WorkflowView {
        self.look_at(id).1.expect("it is a workflow")
    }

    fn look_at(&mut self, id: InvocationId) -> (ResultState, Option<WorkflowView>, Vec<FailureRecord>) {
        let token = self.invocation(id);
        self.make_durable();
        let found = self.reply(token).cloned().and_then(Result::ok).and_then(FoundInvocation::from_reply);
        let FoundInvocation { result, workflow, failures } =
            found.unwrap_or_else(|| panic!("{id} has {:?}", self.reply(token)));
        (result.result, workflow.map(|workflow| *workflow), failures)
    }

    /// The workflows of one shard: the id of each, whether it has begun, and what became of it.
    ///
    /// # Panics
    /// When they are not told.
    pub fn listed(&mut self, shard: u16, page: usize, is_live_only: bool) -> Vec<Listed> {
        let (mut all, mut after) = (Vec::new(), None);
        loop {
            let token = self.ask(ShardId(shard), ListWorkflows { after, limit: page, is_live_only });
            self.make_durable();
            let page = self.reply(token).cloned().and_then(Result::ok).and_then(Page::<ListedWorkflow>::from_reply);
            let Some(Page { items: rows, has_more }) = page else {
                panic!("{:?} is no list", self.reply(token));
            };
            let size_bytes: usize = rows.iter().map(ListedWorkflow::size_bytes).sum();
            assert!(size_bytes <= 2 * limits::PAGE_BYTES, "{size_bytes} bytes are in memory at once");
            after = rows.last().map(|row| (row.record.has_ended, row.id));
            let name = |sequence| InvocationId { shard: ShardId(shard), sequence };
            all.extend(rows.into_iter().map(|row| (name(row.id), row.due.is_none(), row.invocation_result.result)));
            if !has_more {
                return all;
            }
        }
    }

    /// What failed of each workflow of a shard, as a list shows it.
    ///
    /// # Panics
    /// When the list is not told.
    pub fn listed_failures(&mut self, shard: u16) -> Vec<(InvocationId, Vec<FailureRecord>)> {
        let shard = ShardId(shard);
        let token = self.ask(shard, ListWorkflows { after: None, limit: 100, is_live_only: false });
        self.make_durable();
        let page = self.reply(token).cloned().and_then(Result::ok).and_then(Page::<ListedWorkflow>::from_reply);
        let of = |row: ListedWorkflow| (InvocationId { shard, sequence: row.id }, row.failures);
        page.expect("a list").items.into_iter().map(of).collect()
    }

    /// A workflow's output.
    ///
    /// # Panics
    /// When it has not ended well.
    pub fn output(&mut self, id: InvocationId) -> Json {
        match self.invocation_result(id) {
            ResultState::Value(output) => serde_json::from_slice(&output).expect("outputs are JSON"),
            other => panic!("{id} has {other:?}"),
        }
    }

    /// A workflow's journal.
    pub fn noted(&mut self, id: InvocationId) -> Vec<Written> {
        let noted =
            |row: JournalRow| (row.kind, row.operation, row.name, row.result.map_err(|error| error.to_string()));
        self.view(id).journal.into_iter().map(noted).collect()
    }

    /// The rows of a bookkeeping entity in one shard.
    pub fn rows(&mut self, shard: u16, entity: &'static str) -> Vec<(Box<[u8]>, Value)> {
        let entity = EntityKey::internal(entity, b"");
        let store = self.core.shards.get_mut(&ShardId(shard)).expect("there").store();
        store.scan_fields(&entity, b"", None, 100_000).expect("memory")
    }

    /// Dead letters of one shard, as it counts them.
    pub fn dead_letters(&mut self, shard: u16) -> usize {
        self.core.with(ShardId(shard), |shard, _| shard.figures().dead_letters)
    }

    /// Results that shards keep for workflows of others.
    pub fn kept_results(&mut self) -> usize {
        let is_kept = |row: &(Box<[u8]>, Value)| row.0.first() == Some(&b's');
        (0..self.options.shard_count)
            .map(|shard| self.rows(shard, "outcome").iter().filter(|row| is_kept(row)).count())
            .sum()
    }

    /// Asserts that nothing is left of workflows but what is kept of those that have ended.
    ///
    /// # Panics
    /// When something is.
    pub fn assert_no_leftovers(&mut self) {
        self.settle();
        for entity in ["pending", "workflow", "failure", "failing", "signal", "inbox", "outbox", "prepared", "decision"]
        {
            assert_eq!(self.bookkeeping_rows(entity), 0, "{entity}");
        }
        assert_eq!(self.kept_results(), 0, "results kept for workflows that have noted them");
        self.assert_at_rest();
    }
}
