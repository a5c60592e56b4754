//! The graph of dependencies between operations, and cycles in it.
//!
//! Nodes are operations and *waypoints*. A waypoint lets one edge stand for many: from everything that ended before
//! it to everything that began after it. A path through waypoints counts as the one edge that entered them.
//!
//! Cycles are found as in Elle (Kingsbury & Alvaro 2020). The graph is restricted to some kinds of edges, the gravest
//! kind first. Tarjan's algorithm (1972) finds its strongly connected components. A breadth-first search finds the
//! shortest cycle in them.

use std::collections::VecDeque;

use crate::anomaly::{CycleClass, Order};

/// The reason why one operation comes before another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The first wrote what the second overwrote.
    WriteWrite,
    /// The first wrote what the second read.
    WriteRead,
    /// The first read what the second overwrote.
    ReadWrite,
    /// The same client asked the first before the second.
    Process,
    /// The first ended before the second began.
    Realtime,
    /// The edge leads out of a waypoint.
    Via,
}

impl Kind {
    const fn bit(self) -> u8 {
        1 << self as u8
    }
}

const WW: u8 = Kind::WriteWrite.bit();
const WR: u8 = Kind::WriteRead.bit();
const RW: u8 = Kind::ReadWrite.bit();
const PROCESS: u8 = Kind::Process.bit();
const REALTIME: u8 = Kind::Realtime.bit();
const VIA: u8 = Kind::Via.bit();

/// An edge with the key and position that it comes from, for the explanation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Edge {
    pub from: u32,
    pub to: u32,
    pub kind: Kind,
    pub key: u32,
    pub position: u32,
}

/// Edges that are collected before the search.
pub(crate) struct Graph {
    operations: usize,
    nodes: usize,
    edges: Vec<Edge>,
}

/// A shortest cycle: its edges between operations, in order. The last edge leads to the origin of the first.
#[derive(Debug)]
pub(crate) struct Cycle {
    pub edges: Vec<Edge>,
}

impl Cycle {
    /// The cycle's name, from the kinds of its edges.
    pub fn class(&self) -> (CycleClass, Order) {
        let count = |kind| self.edges.iter().filter(|edge| edge.kind == kind).count();
        let class = match (count(Kind::ReadWrite), count(Kind::WriteRead)) {
            (0, 0) => CycleClass::G0,
            (0, _) => CycleClass::G1c,
            (1, _) => CycleClass::GSingle,
            _ => CycleClass::G2,
        };
        let order = match (count(Kind::Realtime), count(Kind::Process)) {
            (0, 0) => Order::Data,
            (0, _) => Order::Process,
            _ => Order::Realtime,
        };
        (class, order)
    }
}

impl Graph {
    /// A graph of this many operations, without edges.
    pub fn new(operations: usize) -> Self {
        Self { operations, nodes: operations, edges: Vec::new() }
    }

    /// Makes a new waypoint.
    pub fn waypoint(&mut self) -> usize {
        self.nodes += 1;
        self.nodes - 1
    }

    /// Adds an edge that the data shows. An edge from an operation to itself says nothing.
    pub fn add(&mut self, from: usize, to: usize, kind: Kind, key: usize, position: usize) {
        if from != to {
            let narrow = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
            let (from, to, key, position) = (narrow(from), narrow(to), narrow(key), narrow(position));
            self.edges.push(Edge { from, to, kind, key, position });
        }
    }

    /// The cycle that shows the gravest breach, if there is any cycle at all.
    pub fn find_cycle(self) -> Option<Cycle> {
        Search::new(self).find()
    }
}

/// The number of edges that the search looks at before it accepts the best cycle so far: about a second. Only
/// histories that are broken already come near it.
const BUDGET: usize = 40_000_000;

const UNSEEN: u32 = u32::MAX;

/// Edges sorted by origin, and room for searching.
struct Search {
    operations: usize,
    starts: Vec<u32>,
    edges: Vec<Edge>,
    distance: Vec<u32>,
    parent: Vec<u32>,
    touched: Vec<u32>,
    budget: usize,
}

impl Search {
    fn new(graph: Graph) -> Self {
        let Graph { operations, nodes, mut edges } = graph;
        edges.sort_by_key(|edge| edge.from);
        let mut starts = vec![0u32; nodes + 1];
        for edge in &edges {
            starts[edge.from as usize + 1] += 1;
        }
        for node in 0..nodes {
            starts[node + 1] += starts[node];
        }
        let (distance, parent) = (vec![UNSEEN; nodes], vec![UNSEEN; nodes]);
        Self { operations, starts, edges, distance, parent, touched: Vec::new(), budget: BUDGET }
    }

    fn find(mut self) -> Option<Cycle> {
        // This is the usual answer, at the price of one pass.
        if self.components(u8::MAX).is_empty() {
            return None;
        }
        for order in [0, PROCESS, PROCESS | REALTIME] {
            if self.components(WW | WR | RW | VIA | order).is_empty() {
                continue;
            }
            for kinds in [WW, WW | WR] {
                let cycle = self.shortest_of(kinds | VIA | order, 0);
                if cycle.is_some() {
                    return cycle;
                }
            }
            // One read of an overwritten value closes the circle. Then any number of them is allowed.
            let cycle = self.shortest_of(WW | WR | VIA | order, RW);
            let cycle = cycle.or_else(|| self.shortest_of(WW | WR | RW | VIA | order, RW));
            if cycle.is_some() {
                return cycle;
            }
        }
        None
    }

    /// The shortest cycle of edges in `kinds`. If `closing` is not empty, the cycle begins with an edge in `closing`.
    fn shortest_of(&mut self, kinds: u8, closing: u8) -> Option<Cycle> {
        let mut components = self.components(kinds | closing);
        components.sort_by_key(Vec::len);
        let mut component_of = vec![UNSEEN; self.distance.len()];
        for (index, component) in components.iter().enumerate() {
            component.iter().for_each(|&node| component_of[node as usize] = index as u32);
        }
        // Time alone makes no circle, so each cycle has an edge that data shows.
        let first_kinds = if closing == 0 { kinds & (WW | WR) } else { closing };
        let mut best: Option<Vec<Edge>> = None;
        let operations = self.operations;
        for node in components.iter().flatten().copied().filter(|&node| (node as usize) < operations) {
            for index in self.edges_of(node) {
                let edge = self.edges[index];
                if edge.kind.bit() & first_kinds == 0 || component_of[edge.to as usize] != component_of[node as usize] {
                    continue;
                }
                let longest = best.as_ref().map_or(u32::MAX - 1, |edges| edges.len() as u32 - 1);
                // No cycle is shorter than two edges.
                if longest < 2 {
                    return best.map(|edges| Cycle { edges });
                }
                if let Some(edges) = self.close(edge, kinds, longest, &component_of) {
                    best = Some(edges);
                }
            }
            // Out of budget: go on only until there is something to show.
            if self.budget == 0 && best.is_some() {
                break;
            }
        }
        best.map(|edges| Cycle { edges })
    }

    /// The shortest way from the end of `first` back to its origin, as a cycle of at most
    /// `longest` edges.
    fn close(&mut self, first: Edge, kinds: u8, longest: u32, component_of: &[u32]) -> Option<Vec<Edge>> {
        let component = component_of[first.from as usize];
        let mut queue = VecDeque::from([first.to]);
        self.distance[first.to as usize] = 1;
        self.touched.push(first.to);
        let mut is_closed = false;
        while let Some(node) = queue.pop_front() {
            if node == first.from {
                is_closed = true;
                break;
            }
            let distance = self.distance[node as usize];
            for index in self.edges_of(node) {
                self.budget = self.budget.saturating_sub(1);
                let edge = self.edges[index];
                // Leaving a waypoint costs nothing: the edge that led into it was counted.
                let next = distance + u32::from(edge.kind != Kind::Via);
                let to = edge.to as usize;
                if edge.kind.bit() & kinds == 0 || component_of[to] != component || next > longest {
                    continue;
                }
                if next < self.distance[to] {
                    if self.distance[to] == UNSEEN {
                        self.touched.push(edge.to);
                    }
                    self.distance[to] = next;
                    self.parent[to] = index as u32;
                    if edge.kind == Kind::Via { queue.push_front(edge.to) } else { queue.push_back(edge.to) }
                }
            }
        }
        let cycle = is_closed.then(|| self.collapse(first));
        for node in self.touched.drain(..) {
            self.distance[node as usize] = UNSEEN;
            self.parent[node as usize] = UNSEEN;
        }
        cycle
    }

    /// The way just found, without waypoints.
    fn collapse(&self, first: Edge) -> Vec<Edge> {
        let mut way = Vec::new();
        let mut node = first.from;
        while node != first.to {
            let edge = self.edges[self.parent[node as usize] as usize];
            way.push(edge);
            node = edge.from;
        }
        way.push(first);
        way.reverse();
        let mut edges: Vec<Edge> = Vec::new();
        for edge in way {
            match edges.last_mut() {
                Some(last) if edge.kind == Kind::Via => last.to = edge.to,
                _ => edges.push(edge),
            }
        }
        edges
    }

    fn edges_of(&self, node: u32) -> std::ops::Range<usize> {
        self.starts[node as usize] as usize..self.starts[node as usize + 1] as usize
    }

    /// Strongly connected components of more than one node, over edges in `kinds`.
    fn components(&self, kinds: u8) -> Vec<Vec<u32>> {
        let nodes = self.distance.len();
        let mut index_of = vec![UNSEEN; nodes];
        let mut low = vec![0u32; nodes];
        let mut is_on_stack = vec![false; nodes];
        let (mut stack, mut components) = (Vec::new(), Vec::new());
        // Tarjan's algorithm without recursion: each entry of the stack is a node and its next edge.
        let mut frames: Vec<(u32, usize)> = Vec::new();
        let mut next_index = 0;
        for root in 0..nodes as u32 {
            if index_of[root as usize] != UNSEEN {
                continue;
            }
            frames.push((root, self.starts[root as usize] as usize));
            while let Some((node, at)) = frames.pop() {
                let here = node as usize;
                if index_of[here] == UNSEEN {
                    index_of[here] = next_index;
                    low[here] = next_index;
                    next_index += 1;
                    stack.push(node);
                    is_on_stack[here] = true;
                }
                let mut descend = None;
                for index in at..self.starts[here + 1] as usize {
                    let edge = self.edges[index];
                    let to = edge.to as usize;
                    if edge.kind.bit() & kinds == 0 {
                        continue;
                    }
                    if index_of[to] == UNSEEN {
                        descend = Some((index, edge.to));
                        break;
                    }
                    if is_on_stack[to] {
                        low[here] = low[here].min(low[to]);
                    }
                }
                if let Some((index, to)) = descend {
                    // The same edge is looked at again on the way back, and then takes over `low`.
                    frames.push((node, index));
                    frames.push((to, self.starts[to as usize] as usize));
                } else if low[here] == index_of[here] {
                    let depth = stack.iter().rposition(|&other| other == node).unwrap_or(0);
                    let component = stack.split_off(depth);
                    component.iter().for_each(|&member| is_on_stack[member as usize] = false);
                    if component.len() > 1 {
                        components.push(component);
                    }
                }
            }
        }
        components
    }
}

#[cfg(test)]
#[path = "graph_tests.rs"]
mod tests;
