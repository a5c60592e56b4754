//! Cycles are found: the shortest of the gravest kind first. Waypoints do not count.

use super::*;

fn cycle(operations: usize, edges: &[(usize, usize, Kind)]) -> Option<(Vec<u32>, (CycleClass, Order))> {
    let mut graph = Graph::new(operations);
    edges.iter().for_each(|&(from, to, kind)| graph.add(from, to, kind, 0, 0));
    let cycle = graph.find_cycle()?;
    Some((cycle.edges.iter().map(|edge| edge.from).collect(), cycle.class()))
}

use Kind::{Process, ReadWrite, Realtime, WriteRead, WriteWrite};

#[test]
fn no_circle_no_cycle() {
    assert_eq!(cycle(3, &[(0, 1, WriteWrite), (1, 2, WriteRead), (0, 2, ReadWrite)]), None);
    assert_eq!(cycle(1, &[(0, 0, WriteWrite)]), None);
}

#[test]
fn each_class_has_its_name() {
    for (there, back, class, order) in [
        (WriteWrite, WriteWrite, CycleClass::G0, Order::Data),
        (WriteWrite, WriteRead, CycleClass::G1c, Order::Data),
        (ReadWrite, WriteRead, CycleClass::GSingle, Order::Data),
        (ReadWrite, ReadWrite, CycleClass::G2, Order::Data),
        (WriteWrite, Process, CycleClass::G0, Order::Process),
        (WriteRead, Realtime, CycleClass::G1c, Order::Realtime),
        (ReadWrite, Realtime, CycleClass::GSingle, Order::Realtime),
    ] {
        let found = cycle(2, &[(0, 1, there), (1, 0, back)]).expect("a cycle");
        assert_eq!(found.1, (class, order), "{there:?} {back:?}");
        assert_eq!(found.0.len(), 2);
    }
}

#[test]
fn the_gravest_wins_over_the_shortest() {
    // 0 ⇄ 1 is write skew; 2 → 3 → 4 → 2 is a circle of writes.
    let edges = [(0, 1, ReadWrite), (1, 0, ReadWrite), (2, 3, WriteWrite), (3, 4, WriteWrite), (4, 2, WriteWrite)];
    let (nodes, class) = cycle(5, &edges).expect("a cycle");
    assert_eq!((nodes.len(), class), (3, (CycleClass::G0, Order::Data)));
}

#[test]
fn the_shortest_of_a_kind_is_shown() {
    let mut edges: Vec<(usize, usize, Kind)> = (0..9).map(|node| (node, node + 1, WriteWrite)).collect();
    edges.push((9, 0, WriteRead));
    edges.push((5, 4, WriteRead));
    let (nodes, class) = cycle(10, &edges).expect("a cycle");
    assert_eq!((nodes, class.0), (vec![4, 5], CycleClass::G1c));
}

#[test]
fn data_comes_before_time() {
    let edges = [(0, 1, ReadWrite), (1, 0, Realtime), (2, 3, ReadWrite), (3, 4, WriteRead), (4, 2, WriteRead)];
    let (nodes, class) = cycle(5, &edges).expect("a cycle");
    assert_eq!((nodes.len(), class), (3, (CycleClass::GSingle, Order::Data)));
}

#[test]
fn waypoints_cost_nothing_and_are_not_shown() {
    let mut graph = Graph::new(2);
    let (first, second) = (graph.waypoint(), graph.waypoint());
    graph.add(0, first, Kind::Realtime, 0, 0);
    graph.add(first, second, Kind::Via, 0, 0);
    graph.add(second, 1, Kind::Via, 0, 0);
    graph.add(1, 0, Kind::WriteRead, 7, 3);
    let cycle = graph.find_cycle().expect("a cycle");
    let shown: Vec<(u32, u32, Kind)> = cycle.edges.iter().map(|edge| (edge.from, edge.to, edge.kind)).collect();
    assert_eq!(shown, [(1, 0, Kind::WriteRead), (0, 1, Kind::Realtime)]);
    assert_eq!(cycle.class(), (CycleClass::G1c, Order::Realtime));
}

#[test]
fn a_deep_graph_does_not_exhaust_the_stack() {
    let count = 300_000;
    let mut graph = Graph::new(count);
    (1..count).for_each(|node| graph.add(node - 1, node, Kind::WriteWrite, 0, 0));
    graph.add(count - 1, 0, Kind::WriteWrite, 0, 0);
    assert_eq!(graph.find_cycle().map(|cycle| cycle.edges.len()), Some(count));
}
