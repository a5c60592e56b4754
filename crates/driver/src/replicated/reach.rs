//! Who cannot be reached: other nodes whose links are down, and shards of this core whose replicas do not answer.
//!
//! Silence is counted in this core's own running time. A core that was held up has heard nobody meanwhile, and that says
//! nothing about the others.

use std::collections::{BTreeMap, BTreeSet};

use millrace_base::{Error, ErrorCode, ShardId, limits};
use millrace_replica::NodeId;
use millrace_shard::Token;

use crate::core::Core;
use crate::platform::Platform;
use crate::replicated::seat::Seat;

const MS: u64 = 1_000_000;

/// Of the time between two looks, so much counts at most. Looks are 50 ms apart.
const LOOK_NS: u64 = 100 * MS;

/// After so much silence of a node or a majority, what it has in hand is answered.
const GIVEN_UP_NS: u64 = limits::UNREACHED_MS * MS;

/// After a link has been down for so long, what goes to that node takes another way.
const DETOUR_NS: u64 = limits::DETOUR_MS * MS;

/// Who says something by detour does not hear this node for so long. By then this node's link to it is down as well, or it has
/// said something else by detour.
const DEAF_NS: u64 = limits::UNREACHED_MS * MS;

/// Entries that nothing has been committed of for so long may wait for ever: a replica that answers may lack what comes
/// before them, or its disk may stand still. A disk that is merely slow takes less.
const UNCOMMITTED_NS: u64 = 5_000 * MS;

/// After so much silence, what comes does not even wait.
const HOPELESS_NS: u64 = limits::ARRIVAL_MS * MS;

/// See the module's documentation.
#[derive(Default)]
pub(crate) struct Reach {
    looked_ns: u64,
    /// Nodes whose links are down, and for how long.
    unlinked: BTreeMap<NodeId, u64>,
    /// Nodes that do not hear this one, as what comes from them by detour shows, and for how long that counts.
    deaf: BTreeMap<NodeId, u64>,
    /// Nodes of which this core's shards know that the way to them is another one.
    by_detour: BTreeSet<NodeId>,
    /// When a request was given up last.
    gave_up_ns: Option<u64>,
    /// Shards that are open here and hear no majority of their replicas, and for how long.
    cut_off: BTreeMap<ShardId, u64>,
}

impl Reach {
    /// For how long a link has been down, if it is.
    pub(crate) fn unlinked_ns(&self, node: NodeId) -> Option<u64> {
        self.unlinked.get(&node).copied()
    }

    /// Whether what is said to a node goes by another one.
    pub(crate) fn is_by_detour(&self, node: NodeId) -> bool {
        self.unlinked.get(&node).is_some_and(|silent_ns| *silent_ns >= DETOUR_NS) || self.deaf.contains_key(&node)
    }

    /// Whether a node may be heard directly.
    pub(crate) fn is_linked(&self, node: NodeId) -> bool {
        !self.unlinked.contains_key(&node)
    }

    /// Something has come from a node by detour: it does not hear this one.
    pub(crate) fn is_deaf(&mut self, node: NodeId) {
        self.deaf.insert(node, DEAF_NS);
    }

    /// Whether some node is reached by another one.
    pub(crate) fn has_detours(&self) -> bool {
        !self.by_detour.is_empty()
    }

    /// Notes which nodes are reached by others now. Says whether there is one more.
    pub(crate) fn note_detours(&mut self) -> bool {
        let known = std::mem::take(&mut self.by_detour);
        let nodes: BTreeSet<NodeId> = self.unlinked.keys().chain(self.deaf.keys()).copied().collect();
        self.by_detour = nodes.into_iter().filter(|node| self.is_by_detour(*node)).collect();
        !self.by_detour.is_subset(&known)
    }

    /// For how long a shard has heard no majority, if that is long.
    pub(crate) fn cut_off_ns(&self, shard: ShardId) -> Option<u64> {
        self.cut_off.get(&shard).copied()
    }

    pub(crate) fn forget(&mut self, shard: ShardId) {
        self.cut_off.remove(&shard);
    }
}

/// Until when a request that came at `since_ns` waits for somebody who has been silent for so long.
pub(crate) fn waits_until_ns(since_ns: u64, silent_ns: u64) -> u64 {
    if silent_ns >= HOPELESS_NS { since_ns } else { since_ns.saturating_add(HOPELESS_NS) }
}

impl Seat {
    /// Time has passed. Says whether entries of this owner have waited for too long until enough replicas have them.
    pub(super) fn is_stuck(&mut self, passed_ns: u64) -> bool {
        let (committed, last) = (self.replica.log().committed(), self.replica.log().last().lsn);
        let waits = committed == self.uncommitted.0 && committed < last;
        let waited_ns = if waits { self.uncommitted.1.saturating_add(passed_ns) } else { 0 };
        self.uncommitted = (committed, waited_ns);
        waited_ns >= UNCOMMITTED_NS
    }
}

impl<P: Platform> Core<P> {
    /// The link to another node is up: what waited for it goes on.
    pub fn peer_linked(&mut self, node: NodeId) {
        let Some(replicated) = &mut self.replicated else { return };
        replicated.guide.meet(node);
        if replicated.reach.unlinked.remove(&node).is_some() {
            self.arrivals_again(None);
        }
    }

    /// The link to another node is down. What comes for its shards waits a while; what it has in hand is awaited a while.
    pub fn peer_unlinked(&mut self, node: NodeId) {
        if let Some(replicated) = &mut self.replicated {
            replicated.guide.meet(node);
            replicated.reach.unlinked.entry(node).or_insert(0);
        }
    }

    /// A majority of a shard's replicas has answered this owner.
    pub(crate) fn heard_majority(&mut self, shard: ShardId) {
        let Some(replicated) = &mut self.replicated else { return };
        if let Some(seat) = replicated.seats.get_mut(&shard) {
            seat.silent_ns = 0;
        }
        replicated.reach.forget(shard);
    }

    /// Time has passed: answers those who wait for somebody who has been silent for too long.
    pub(crate) fn look_who_is_silent(&mut self) {
        let now_ns = self.platform.monotonic_ns();
        let Some(replicated) = &mut self.replicated else { return };
        let passed_ns = now_ns.saturating_sub(replicated.reach.looked_ns).min(LOOK_NS);
        replicated.reach.looked_ns = now_ns;
        replicated.reach.deaf.retain(|_, left_ns| {
            *left_ns = left_ns.saturating_sub(passed_ns);
            *left_ns > 0
        });
        let mut nodes = Vec::new();
        for (node, silent_ns) in &mut replicated.reach.unlinked {
            *silent_ns = silent_ns.saturating_add(passed_ns);
            if *silent_ns >= GIVEN_UP_NS {
                nodes.push(*node);
            }
        }
        let (mut shards, mut stuck) = (BTreeSet::new(), BTreeSet::new());
        for (shard, seat) in &mut replicated.seats {
            // A replica by itself is its own majority.
            let asks_others = seat.serving.is_some() && seat.replica.log().set().majority() > 1;
            seat.silent_ns = if asks_others { seat.silent_ns.saturating_add(passed_ns) } else { 0 };
            if asks_others && seat.is_stuck(passed_ns) {
                stuck.insert(*shard);
            }
            if seat.silent_ns >= GIVEN_UP_NS {
                replicated.reach.cut_off.insert(*shard, seat.silent_ns);
                shards.insert(*shard);
            }
        }
        let held: Vec<Token> = nodes.into_iter().flat_map(|node| self.pending.unanswered_by_node(node)).collect();
        self.give_up_requests(held, "the node that has the request cannot be reached");
        if !shards.is_empty() {
            let held = self.pending.unanswered_by_any(&shards);
            self.give_up_requests(held, "the node cannot reach a majority of the nodes");
        }
        if !stuck.is_empty() {
            let held = self.pending.unanswered_by_any(&stuck);
            self.give_up_requests(held, "too few nodes take what the shard writes");
        }
    }

    /// Answers requests of which nobody knows what became. If they are answered later, nobody waits for that.
    pub(crate) fn give_up_requests(&mut self, held: Vec<Token>, why: &str) {
        let now_ns = self.platform.monotonic_ns();
        if let Some(replicated) = self.replicated.as_mut().filter(|_| !held.is_empty()) {
            replicated.reach.gave_up_ns = Some(now_ns);
        }
        for token in held {
            self.pending.give_up(token);
            let message = format!("{why}; the call may or may not take effect, repeat it with its Idempotency-Key");
            self.answer(token, Err(Error::new(ErrorCode::ResultUnknown, message)));
        }
    }
}

impl<P: Platform> Core<P> {
    /// Whether a request that was given up may still run somewhere.
    pub(crate) fn has_given_up_lately(&self) -> bool {
        let gave_up_ns = self.replicated.as_ref().and_then(|replicated| replicated.reach.gave_up_ns);
        let until_ns = |gave_up_ns: u64| gave_up_ns.saturating_add((limits::CALL_WAIT_MS + 1_000) * MS);
        gave_up_ns.is_some_and(|gave_up_ns| self.platform.monotonic_ns() < until_ns(gave_up_ns))
    }
}

/// A request did not run, as nobody could be reached.
pub(crate) fn unreached() -> Error {
    let message = "the nodes that are needed for this cannot be reached from here; nothing happened: try again after \
                   the time in Retry-After, or at another node";
    Error::new(ErrorCode::Overloaded, message)
}
