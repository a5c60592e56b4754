//! What clients of a cluster do: they ask any node, ask again, and look elsewhere at what they have been told.

use millrace_base::{Error, ShardId, UnixMillis};
use millrace_replica::NodeId;
use millrace_shard::{Reply, RequestInfo, Token};

use super::node::Node;
use super::world::{Checked, MS, World};
use crate::disturb::ASIDE;
use crate::job::job_of;
use crate::ledger::Kind;
use crate::script::Script;
use crate::workload;

/// A client that was told of a count so long ago may read it elsewhere.
const LOOKED_BEHIND_NS: u64 = 20 * MS;

impl World {
    pub(super) fn issue(&mut self) {
        self.look_behind();
        if !self.rng.chance(1, 8) {
            return;
        }
        if !self.ledger.operations.is_empty() && self.rng.chance(1, 5) {
            let id = self.rng.index(self.ledger.operations.len());
            if self.ledger.operations[id].is_repeatable() {
                let node = self.any_node();
                return self.send(id, node);
            }
        }
        let id = self.ledger.operations.len();
        let drawn = workload::draw(&mut self.rng, self.shared.shard_count, id);
        self.ledger.add(drawn.kind, drawn.script, drawn.idempotency_key, drawn.is_route);
        let node = self.any_node();
        self.send(id, node);
    }

    pub(super) fn send(&mut self, id: usize, to: NodeId) {
        let shard_count = self.shared.shard_count;
        let Some(node) = self.nodes.get_mut(&to).filter(|node| node.process.is_some()) else { return };
        let token = self.ledger.sending(id, node.now());
        self.sent_ns.insert(token, self.shared.now.get());
        let operation = &self.ledger.operations[id];
        let core = self.rng.index(2);
        node.request(core, token, |core| {
            let (nonce, idempotency_key) = (core.take_nonce(), operation.kept_key());
            let mut info = RequestInfo { time: UnixMillis(0), began_ms: 0, nonce, idempotency_key };
            core.begins_now(&mut info);
            job_of(operation, info, &core.programs.catalog, shard_count)
        });
        let operation = operation.clone();
        self.note(|| {
            format!("op{id} comes to node {to}, attempt {}, {token:?}: {:?}", operation.attempts, operation.kind)
        });
    }

    /// While two nodes take themselves for the owner of a shard, clients count at the later owner, and then read at the
    /// earlier one: it must not answer what it knew.
    fn look_behind(&mut self) {
        for shard in (0..self.shared.shard_count).map(ShardId) {
            let serving = |node: &mut Node| Some((node.serving(shard)?, node.id));
            let mut owners: Vec<_> = self.nodes.values_mut().filter_map(serving).collect();
            owners.sort_unstable();
            let [(_, earlier), .., (_, later)] = owners[..] else { continue };
            self.counts.note("two owners", 1);
            let key = workload::counter_in(shard, self.shared.shard_count);
            let told = self.last_counted.as_ref().filter(|(told, _)| *told == key);
            if told.is_some_and(|(_, told_ns)| self.now_ns() - told_ns < LOOKED_BEHIND_NS) {
                let id = self.ledger.add(Kind::Read { key }, Script::new().get("n"), None, false);
                self.counts.note("count read at an earlier owner", 1);
                self.send(id, earlier);
            } else if self.looks.chance(1, 3) {
                let script = Script::new().add(&format!("op{}", self.ledger.operations.len()), 1).add("n", 1);
                let id = self.ledger.add(Kind::Add { key }, script, None, false);
                self.send(id, later);
            }
        }
    }

    pub(super) fn replied(&mut self, token: Token, result: &Result<Reply, Error>) -> Checked {
        if token >= ASIDE {
            self.told_aside(token, result);
            return Ok(());
        }
        let id = self.ledger.replied(token, result)?;
        let sent_ns = self.sent_ns.remove(&token);
        sent_ns.filter(|_| result.is_ok()).into_iter().for_each(|sent_ns| self.note_wait(sent_ns));
        let what = match result {
            Ok(_) => "answered",
            Err(_) => "answered with an error",
        };
        self.counts.note(what, 1);
        if let (Ok(_), Kind::Add { key }) = (result, &self.ledger.operations[id].kind) {
            self.last_counted = Some((key.clone(), self.shared.now.get()));
        }
        self.note(|| format!("op{id} is answered {result:?}"));
        Ok(())
    }
}
