//! Messages and workflows of a cluster: what somebody does to workflows, when all have ended, and what the state must be then.

use std::collections::BTreeMap;

use millrace_base::{EntityKey, Error, ShardId};
use millrace_driver::Job;
use millrace_replica::NodeId;
use millrace_shard::{Reply, Token};
use millrace_store::Store;

use super::node::{Nodes, store_of};
use super::world::{Checked, World};
use crate::checks::{States, View, check_operations};
use crate::disturb::{WorkflowQuestion, disturb};
use crate::ledger::{Kind, Known};

/// Somebody does something to a workflow once in so many steps, and has one restarted as often.
const DISTURBED_EVERY: u64 = 150;

/// The state of every shard as its owner has it.
struct OfOwners<'a> {
    nodes: &'a mut Nodes,
    owners: BTreeMap<ShardId, NodeId>,
}

impl States for OfOwners<'_> {
    fn store(&mut self, shard: ShardId) -> &mut Store {
        let owner = self.nodes.get_mut(&self.owners[&shard]).expect("an owner is a node");
        store_of(owner.core_of(shard).expect("it runs"), shard).expect("it holds the shard")
    }
}

impl World {
    fn of_owners(&mut self) -> OfOwners<'_> {
        let owners = self.owners();
        OfOwners { nodes: &mut self.nodes, owners }
    }

    fn owners(&self) -> BTreeMap<ShardId, NodeId> {
        (0..self.shared.shard_count).map(ShardId).map(|shard| (shard, self.oracle.owner(shard))).collect()
    }

    /// Now and then somebody does something to a workflow.
    pub(super) fn disturb_workflows(&mut self) {
        let shard_count = self.shared.shard_count;
        if self.flows.chance(1, DISTURBED_EVERY)
            && let Some(asked) = disturb(&self.ledger, &mut self.flows, shard_count)
        {
            self.counts.note("workflow disturbed", 1);
            self.ask_aside(asked);
        }
        if self.flows.chance(1, DISTURBED_EVERY) {
            let id = self.ids[self.flows.index(self.ids.len())];
            // What nobody is asked for is certain not to happen.
            if self.nodes[&id].process.is_none() {
                return;
            }
            if let Some(asked) = self.restarts.restart(&mut self.ledger, &mut self.flows, shard_count) {
                self.ask(id, asked);
            }
        }
    }

    fn ask_aside(&mut self, asked: WorkflowQuestion) {
        let id = self.ids[self.flows.index(self.ids.len())];
        self.ask(id, asked);
    }

    fn ask(&mut self, id: NodeId, WorkflowQuestion { token, of, question, what }: WorkflowQuestion) {
        let core = self.flows.index(2);
        if let Some(node) = self.nodes.get_mut(&id) {
            node.request(core, token, |_| Job::Ask { shard: of.shard, question });
        }
        self.note(|| format!("{what}, at node {id}"));
    }

    /// Somebody is answered who did something to a workflow.
    pub(super) fn told_aside(&mut self, token: Token, result: &Result<Reply, Error>) {
        let Some(told) = self.restarts.told(&mut self.ledger, token, result) else { return };
        self.counts.note("workflow restarted", u64::from(told.is_certain));
        self.note(|| format!("the restart for op{} is answered {result:?}", told.operation));
    }

    /// Messages that have not arrived and workflows that have not ended, by the states of owners.
    pub(super) fn under_way(&mut self) -> Vec<(&'static str, usize)> {
        let owners = self.owners();
        let mut rows = |name: &'static str| {
            let entity = EntityKey::internal(name, b"");
            let mut count = |(shard, owner): (&ShardId, &NodeId)| {
                let core = self.nodes.get_mut(owner).and_then(|node| node.core_of(*shard));
                let store = core.and_then(|core| store_of(core, *shard));
                store.map_or(0, |store| {
                    store.scan_fields(&entity, b"", None, usize::MAX).expect("memory does not fail").len()
                })
            };
            (name, owners.iter().map(&mut count).sum())
        };
        vec![rows("outbox"), rows("inbox"), rows("workflow")]
    }

    /// What clients asked for took effect as it should, by the states of owners.
    pub(super) fn check_operations(&mut self) -> Checked {
        let done = |kind: fn(&Kind) -> bool| {
            let is_done = |known: &Known| matches!(known, Known::Done(_));
            let operations = self.ledger.operations.iter();
            operations.filter(|operation| kind(&operation.kind) && is_done(&operation.known)).count() as u64
        };
        let messages = done(|kind| matches!(kind, Kind::Message { .. } | Kind::Send { .. }));
        let workflows = done(|kind| matches!(kind, Kind::Saga { .. } | Kind::Again { .. }));
        self.counts.note("message sent", messages);
        self.counts.note("workflow started", workflows);
        let (ledger, shard_count) = (std::mem::take(&mut self.ledger), self.shared.shard_count);
        let checked = check_operations(&mut View::new(&ledger, &mut self.of_owners(), shard_count, true));
        self.ledger = ledger;
        checked
    }
}
