//! The network between nodes. Messages of replicas and mail get lost, doubled, late and out of order. All other messages come
//! in order and once, while both processes live, and wait while the link is cut.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

use millrace_base::ShardId;
use millrace_driver::{CoreMessage, Destination, Frame, ShardMail, SnapshotPart};
use millrace_replica::{Message, NodeId};

use crate::random::Rng;

/// What may get lost.
#[derive(Clone)]
pub enum Loose {
    Replica(ShardId, Message),
    Mail(Vec<u8>),
    /// About the transfer of a shard's rows.
    Snapshot(ShardId, u64, SnapshotPart),
}

/// Something on its way.
struct InTransit<T> {
    due_ns: u64,
    what: T,
}

/// From one node to another.
#[derive(Default)]
struct Lane {
    loose: Vec<InTransit<Loose>>,
    /// Each with the process that has sent it.
    firm: VecDeque<InTransit<(u64, Destination, Vec<u8>)>>,
    /// The sender's and the receiver's process between which the firm messages go.
    session: (u64, u64),
}

/// How the network behaves.
#[derive(Clone, Copy, Debug, Default)]
pub struct Weather {
    /// Of a hundred loose messages.
    pub lost: u64,
    pub doubled: u64,
    /// The longest delay.
    pub late_ns: u64,
}

struct Inner {
    lanes: BTreeMap<(NodeId, NodeId), Lane>,
    cut: BTreeSet<(NodeId, NodeId)>,
    weather: Weather,
    /// What one node says to another takes so much longer at most, until then.
    late: BTreeMap<(NodeId, NodeId), (u64, u64)>,
    rng: Rng,
    now_ns: u64,
    /// How many of the next loose messages from one node to another are lost, whatever the weather.
    to_lose: BTreeMap<(NodeId, NodeId), u64>,
    lost: u64,
    lost_alone: u64,
    doubled: u64,
}

impl Inner {
    fn due_ns(&mut self, from: NodeId, to: NodeId, late_ns: u64) -> u64 {
        let is_late = |(_, until_ns): &&(u64, u64)| self.now_ns < *until_ns;
        let late_ns = late_ns + self.late.get(&(from, to)).filter(is_late).map_or(0, |(late_ns, _)| *late_ns);
        self.now_ns + self.rng.below(late_ns + 1)
    }
}

/// See the module's documentation.
#[derive(Clone)]
pub struct Links(Rc<RefCell<Inner>>);

impl Links {
    #[must_use]
    pub fn new(nodes: &[NodeId], rng: Rng) -> Self {
        let pairs = nodes.iter().flat_map(|from| nodes.iter().map(move |to| (*from, *to)));
        Self(Rc::new(RefCell::new(Inner {
            lanes: pairs.filter(|(from, to)| from != to).map(|pair| (pair, Lane::default())).collect(),
            cut: BTreeSet::new(),
            weather: Weather::default(),
            late: BTreeMap::new(),
            rng,
            now_ns: 0,
            to_lose: BTreeMap::new(),
            lost: 0,
            lost_alone: 0,
            doubled: 0,
        })))
    }

    pub fn set_now(&self, now_ns: u64) {
        self.0.borrow_mut().now_ns = now_ns;
    }

    pub fn set_weather(&self, weather: Weather) {
        self.0.borrow_mut().weather = weather;
    }

    /// What one node says to another takes so much longer at most, until then.
    pub fn slow_down(&self, lane: (NodeId, NodeId), late_ns: u64, until_ns: u64) {
        self.0.borrow_mut().late.insert(lane, (late_ns, until_ns));
    }

    /// So many of the next loose messages from one node to another are lost, while the link stands.
    pub fn lose(&self, lane: (NodeId, NodeId), count: u64) {
        self.0.borrow_mut().to_lose.insert(lane, count);
    }

    /// What was to be lost arrives.
    pub fn lose_no_more(&self) {
        self.0.borrow_mut().to_lose.clear();
    }

    pub fn cut(&self, from: NodeId, to: NodeId) {
        self.0.borrow_mut().cut.insert((from, to));
    }

    pub fn heal(&self) {
        self.0.borrow_mut().cut.clear();
    }

    /// All nodes are equally quick.
    pub fn no_one_is_slow(&self) {
        self.0.borrow_mut().late.clear();
    }

    /// Whether so many nodes hear each other that this one is among a majority.
    #[must_use]
    pub fn hears_most(&self, node: NodeId, nodes: &[NodeId]) -> bool {
        let inner = self.0.borrow();
        let hears = |other: &&NodeId| {
            **other == node || !(inner.cut.contains(&(node, **other)) || inner.cut.contains(&(**other, node)))
        };
        nodes.iter().filter(hears).count() > nodes.len() / 2
    }

    /// The other nodes, and whether a connection to each of them could live.
    #[must_use]
    pub fn others(&self, node: NodeId) -> Vec<(NodeId, bool)> {
        let inner = self.0.borrow();
        let others = inner.lanes.keys().filter(|(from, _)| *from == node);
        others.map(|&(_, to)| (to, !inner.cut.contains(&(node, to)) && !inner.cut.contains(&(to, node)))).collect()
    }

    fn send_loose(&self, from: NodeId, to: NodeId, loose: Loose) {
        let inner = &mut *self.0.borrow_mut();
        let Weather { lost, doubled, late_ns } = inner.weather;
        let is_cut = inner.cut.contains(&(from, to));
        let to_lose = inner.to_lose.get_mut(&(from, to)).filter(|left| **left > 0 && !is_cut);
        let copies = if let Some(left) = to_lose {
            *left -= 1;
            inner.lost_alone += 1;
            0
        } else if inner.rng.below(100) < lost {
            inner.lost += 1;
            0
        } else if inner.rng.below(100) < doubled {
            inner.doubled += 1;
            2
        } else {
            1
        };
        for _ in 0..copies {
            let due_ns = inner.due_ns(from, to, late_ns);
            if let Some(lane) = inner.lanes.get_mut(&(from, to)) {
                lane.loose.push(InTransit { due_ns, what: loose.clone() });
            }
        }
    }

    pub fn send_replica(&self, from: NodeId, to: NodeId, shard: ShardId, message: Message) {
        self.send_loose(from, to, Loose::Replica(shard, message));
    }

    pub fn send_mail(&self, from: NodeId, to: NodeId, mail: ShardMail) {
        self.send_loose(from, to, Loose::Mail(Frame::Mail(mail).encode()));
    }

    pub fn send_part(&self, from: NodeId, to: NodeId, (shard, transfer): (ShardId, u64), part: SnapshotPart) {
        self.send_loose(from, to, Loose::Snapshot(shard, transfer, part));
    }

    pub fn send(&self, (from, process): (NodeId, u64), to: NodeId, destination: Destination, message: CoreMessage) {
        let inner = &mut *self.0.borrow_mut();
        let due_ns = inner.due_ns(from, to, inner.weather.late_ns);
        if let Some(lane) = inner.lanes.get_mut(&(from, to)) {
            lane.firm.push_back(InTransit { due_ns, what: (process, destination, Frame::Message(message).encode()) });
        }
    }

    /// Takes what is due for a node, of each sender. `process` tells the number of a node's process, or 0 while it is down.
    #[must_use]
    pub fn receive(&self, to: NodeId, process: &BTreeMap<NodeId, u64>) -> Vec<(NodeId, Received)> {
        let Inner { lanes, cut, now_ns, rng, .. } = &mut *self.0.borrow_mut();
        let mut received = Vec::new();
        for ((from, _), lane) in lanes.iter_mut().filter(|((_, receiver), _)| *receiver == to) {
            if cut.contains(&(*from, to)) {
                lane.loose.clear();
                continue;
            }
            let mut at = 0;
            while at < lane.loose.len() {
                if lane.loose[at].due_ns <= *now_ns {
                    received.push((*from, Received::Loose(lane.loose.swap_remove(at).what)));
                } else {
                    at += 1;
                }
            }
            // Those of a process that has ended come until the next one is heard of, and that one's only then.
            if lane.session.1 != process[&to] {
                continue;
            }
            let most = rng.index(6);
            let session = lane.session.0;
            let comes = |one: &InTransit<(u64, Destination, Vec<u8>)>| one.due_ns <= *now_ns && one.what.0 == session;
            while received.len() < most + 32 && lane.firm.front().is_some_and(comes) {
                let Some(InTransit { what: (_, destination, bytes), .. }) = lane.firm.pop_front() else { break };
                received.push((*from, Received::Firm(destination, bytes)));
            }
        }
        received
    }

    /// Two nodes that hear each other find out that a process of theirs is a new one. What was on its way is gone. Says so.
    pub fn greet(&self, (one, first): (NodeId, u64), (two, second): (NodeId, u64)) -> Option<(bool, bool)> {
        let Inner { lanes, cut, .. } = &mut *self.0.borrow_mut();
        let known = lanes[&(one, two)].session;
        if known == (first, second) || cut.contains(&(one, two)) || cut.contains(&(two, one)) {
            return None;
        }
        // Who has known the other's earlier process hears that it is gone, and so is all that was sent to it.
        let hears = [known.0 == first && known.1 != second, known.1 == second && known.0 != first];
        let sides = [((one, two), (first, second), hears[0]), ((two, one), (second, first), hears[1])];
        for (pair, session, is_lost) in sides {
            if let Some(lane) = lanes.get_mut(&pair) {
                lane.firm.retain(|one| one.what.0 == session.0 && !is_lost);
                lane.session = session;
            }
        }
        Some((hears[1], hears[0]))
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.borrow().lanes.values().all(|lane| lane.firm.is_empty())
    }

    /// How many messages were lost by the weather, how many alone, and how many came twice.
    #[must_use]
    pub fn fates(&self) -> (u64, u64, u64) {
        let inner = self.0.borrow();
        (inner.lost, inner.lost_alone, inner.doubled)
    }
}

/// What comes to a node.
pub enum Received {
    Loose(Loose),
    Firm(Destination, Vec<u8>),
}
