//! The graph of dependencies between operations, and cycles in it.
//!
//! Nodes are operations, and *waypoints*: stations that let one edge stand for many (all
//! that ended before, to all that began after). A path through waypoints counts as the one
//! edge that entered them.
//!
//! Cycles are found as in Elle (Kingsbury & Alvaro 2020): strongly connected components (Tarjan
//! 1972) of the graph restricted to some kinds of edges, then the shortest cycle in them by
//! breadth-first search, the gravest kind first.

use std::collections::VecDeque;

use crate::anomaly::{CycleClass, Order};

/// Why one operation comes before another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// It wrote what the other overwrote.
    WriteWrite,
    /// It wrote what the other read.
    WriteRead,
    /// It read what the other overwrote.
    ReadWrite,
    /// The same client asked it before.
    Process,
    /// It ended before the other began.
    Realtime,
    /// Out of a waypoint.
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

/// An edge, with the key and the position in it that it comes from, for the explanation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Edge {
    pub from: u32,
    pub to: u32,
    pub kind: Kind,
    pub key: u32,
    pub position: u32,
}

/// Edges collected before they are searched.
pub(crate) struct Graph {
    operations: usize,
    nodes: usize,
    edges: Vec<Edge>,
}

/// A shortest cycle: its edges between operations, in order; the last leads to the first's origin.
#[derive(Debug)]
pub(crate) struct Cycle {
    pub edges: Vec<Edge>,
}

impl Cycle {
    /// Its name, from what it is made of.
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
    /// No edges between this many operations.
    pub fn new(operations: usize) -> Self {
        Self { operations, nodes: operations, edges: Vec::new() }
    }

    /// A new waypoint.
    pub fn waypoint(&mut self) -> usize {
        self.nodes += 1;
        self.nodes - 1
    }

    /// Adds an edge that the data shows; one from an operation to itself says nothing.
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

/// Edges looked at before the search contents itself with what it has: about a second. Only
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
        // The usual answer, at the price of one pass.
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
            // One read of what was overwritten closes the circle, then any number of them.
            let cycle = self.shortest_of(WW | WR | VIA | order, RW);
            let cycle = cycle.or_else(|| self.shortest_of(WW | WR | RW | VIA | order, RW));
            if cycle.is_some() {
                return cycle;
            }
        }
        None
    }

    /// The shortest cycle of edges in `kinds`, with one edge in `closing` first, if not empty.
    fn shortest_of(&mut self, kinds: u8, closing: u8) -> Option<Cycle> {
        let mut components = self.components(kinds | closing);
        components.sort_by_key(Vec::len);
        let mut component_of = vec![UNSEEN; self.distance.len()];
        for (index, component) in components.iter().enumerate() {
            component.iter().for_each(|&node| component_of[node as usize] = index as u32);
        }
        // Time alone makes no circle, so each has an edge that data shows.
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
                // Two edges are the least there is.
                if longest < 2 {
                    return best.map(|edges| Cycle { edges });
                }
                if let Some(edges) = self.close(edge, kinds, longest, &component_of) {
                    best = Some(edges);
                }
            }
            // Out of budget, go on only until there is something to show.
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

    /// The way just found, waypoints left out.
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
        // Tarjan without recursion: each frame is a node and its next edge.
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
