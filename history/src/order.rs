//! The order that clients saw, as edges: an operation that ended before another began comes first.
//!
//! Edges for all pairs would be too many. One waypoint stands for each instant between ends and begins. Operations
//! that ended before it lead into it, operations that begin after it follow it, and each waypoint leads to the next.
//! So the number of edges is linear in the number of operations, whatever the concurrency. Elle reaches the same
//! reachability by reducing the order transitively.
//!
//! Operations that touch in one instant count as concurrent. That cannot reject a sound history.

use std::collections::BTreeMap;

use crate::graph::{Graph, Kind};
use crate::history::History;
use crate::operation::{Operation, Time};

/// Adds process and real-time edges among the operations that `is_in` the graph.
pub(crate) fn add_orders(graph: &mut Graph, history: &History, is_in: &dyn Fn(&Operation) -> bool) {
    add_process(graph, history, is_in);
    add_realtime(graph, history, is_in);
}

/// Adds edges from each reply of a client to its next question. Nothing follows an unknown operation: it may take
/// effect at any later time.
fn add_process(graph: &mut Graph, history: &History, is_in: &dyn Fn(&Operation) -> bool) {
    let mut last: BTreeMap<u64, (usize, Time)> = BTreeMap::new();
    for operation in history.operations.iter().filter(|operation| is_in(operation)) {
        if let Some(&(before, end)) = last.get(&operation.process)
            && end < operation.begin
        {
            graph.add(before, operation.id, Kind::Process, 0, 0);
        }
        if let Some(end) = operation.effect_by() {
            last.insert(operation.process, (operation.id, end));
        }
    }
}

fn add_realtime(graph: &mut Graph, history: &History, is_in: &dyn Fn(&Operation) -> bool) {
    // At one instant, begins come before ends.
    let mut events: Vec<(Time, bool, usize)> = Vec::new();
    for operation in history.operations.iter().filter(|operation| is_in(operation)) {
        events.push((operation.begin, false, operation.id));
        events.extend(operation.effect_by().map(|end| (end, true, operation.id)));
    }
    events.sort_unstable();
    let mut ended: Option<usize> = None;
    let mut is_open = false;
    for (_, is_end, id) in events {
        if is_end {
            // Ends without a begin between them share a waypoint.
            let waypoint = match ended {
                Some(waypoint) if is_open => waypoint,
                before => {
                    let waypoint = graph.waypoint();
                    if let Some(before) = before {
                        graph.add(before, waypoint, Kind::Via, 0, 0);
                    }
                    waypoint
                }
            };
            graph.add(id, waypoint, Kind::Realtime, 0, 0);
            ended = Some(waypoint);
            is_open = true;
        } else {
            if let Some(waypoint) = ended {
                graph.add(waypoint, id, Kind::Via, 0, 0);
            }
            is_open = false;
        }
    }
}
