//! What clients of a cluster do: they ask any node, ask again, and look elsewhere at what they have been told.

use millrace_base::{Error, ShardId, UnixMillis, shard_of_key};
use millrace_history::Access;
use millrace_replica::NodeId;
use millrace_shard::{Reply, RequestInfo, Token};

use super::node::Node;
use super::world::{About, Checked, MS, World};
use crate::disturb::ASIDE;
use crate::job::job_of;
use crate::ledger::Kind;
use crate::lists;
use crate::script::Script;
use crate::workload;

/// A client that was told of something so long ago may look elsewhere.
const LOOKED_BEHIND_NS: u64 = 20 * MS;

/// Clients crowd around a shard for so long after guidance has given it to another node.
const CROWDED_NS: u64 = 400 * MS;

impl World {
    pub(super) fn issue(&mut self) {
        self.look_behind();
        self.crowd();
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

    /// Clients crowd around a shard from now on.
    pub(super) fn attract(&mut self, shard: ShardId) {
        self.crowded = Some((shard, self.now_ns() + CROWDED_NS));
    }

    /// Clients read a crowded shard in transactions that write elsewhere. They write to it once it was handed on, and not
    /// before: a request that waits for a lock holds that up. Who was told that such a write is done looks at once at what
    /// those transactions write.
    fn crowd(&mut self) {
        let now_ns = self.now_ns();
        let Some((shard, _)) = self.crowded.filter(|(_, until_ns)| now_ns < *until_ns) else {
            if self.plan.about == About::HandingOn {
                let shard = self.looks.below(u64::from(self.shared.shard_count));
                self.attract(ShardId(u16::try_from(shard).expect("small")));
            }
            return;
        };
        let others = self.others_of(shard);
        if let Some(told_ns) = self.told_of_put.remove(&shard).filter(|told_ns| now_ns - told_ns < LOOKED_BEHIND_NS) {
            self.note(|| format!("a client was told of its write {} us ago", (now_ns - told_ns) / 1_000));
            for other in others {
                let (kind, script) = lists::look(&self.list(other));
                self.counts.note("looked behind a write", 1);
                self.issue_at(other, kind, script);
            }
        } else if self.looks.chance(1, 12) {
            let id = self.ledger.operations.len();
            let count = 1 + self.looks.index(2);
            let put: Vec<String> = others.iter().take(count).rev().map(|shard| self.list(*shard)).collect();
            let looked = self.list(shard);
            let (kind, script) = lists::look_and_put(&mut self.looks, Some(&looked), &put, id);
            self.issue_at(others[0], kind, script);
        }
    }

    /// The other shards, in some order.
    fn others_of(&mut self, shard: ShardId) -> Vec<ShardId> {
        let mut others: Vec<ShardId> = (0..self.shared.shard_count).map(ShardId).filter(|one| *one != shard).collect();
        let count = others.len();
        others.rotate_left(self.looks.index(count));
        others
    }

    fn list(&self, shard: ShardId) -> String {
        lists::list_in(shard, self.shared.shard_count)
    }

    /// A client puts something into the list of a shard.
    pub(super) fn put_into(&mut self, shard: ShardId) {
        let (id, list) = (self.ledger.operations.len(), self.list(shard));
        let (kind, script) = lists::look_and_put(&mut self.looks, None, &[list], id);
        self.issue_at(shard, kind, script);
    }

    /// The client knows who owns the shard.
    fn issue_at(&mut self, shard: ShardId, kind: Kind, script: Script) {
        let id = self.ledger.add(kind, script, None, false);
        self.send(id, self.oracle.owner(shard));
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
        let now_ns = self.now_ns();
        match &self.ledger.operations[id].kind {
            Kind::Add { key } if result.is_ok() => self.last_counted = Some((key.clone(), now_ns)),
            Kind::Steps { root, steps, .. } if result.is_ok() && matches!(steps[..], [Access::Append(..)]) => {
                self.told_of_put.insert(shard_of_key(root.as_bytes(), self.shared.shard_count), now_ns);
            }
            _ => {}
        }
        self.note(|| format!("op{id} is answered {result:?}"));
        Ok(())
    }
}
