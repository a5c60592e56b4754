//! Lists that transactions append to and read: strictly serializable, and each append is there once.
//!
//! The method is Elle's (Kingsbury & Alvaro 2020). Reads tell the order of appends. That order tells the dependencies
//! between writes, reads and overwrites. A circle in these dependencies and in the order that clients saw is a
//! breach. Beyond Elle, appends that no read saw are placed after all that were seen. All of it takes time linear in
//! the history.

use std::collections::HashSet;

use crate::anomaly::{Anomaly, AnomalyKind};
use crate::graph::{Cycle, Edge, Graph, Kind};
use crate::history::History;
use crate::lists::{List, Lists};
use crate::order::add_orders;

const CHECKER: &str = "list_append";

/// Checks the lists of a history.
///
/// # Errors
/// The gravest anomaly found.
pub fn check(history: &History) -> Result<(), Anomaly> {
    history.validate()?;
    let mut lists = Lists::gather(history)?;
    lists.find_orders()?;
    lists.check_lost()?;
    let is_committed = committed(history, &lists);
    let mut graph = Graph::new(history.operations.len());
    for (key, list) in lists.lists.iter().enumerate() {
        add_writes(&mut graph, key, list);
        add_reads(&mut graph, key, list);
        add_unseen(&mut graph, key, list, &is_committed);
    }
    add_orders(&mut graph, history, &|operation| is_committed[operation.id]);
    match graph.find_cycle() {
        None => Ok(()),
        Some(cycle) => Err(explain(history, &lists, &cycle)),
    }
}

/// The operations that took effect: the acknowledged ones, and the unknown ones of which something was read.
fn committed(history: &History, lists: &Lists<'_>) -> Vec<bool> {
    let mut is_committed: Vec<bool> = history.operations.iter().map(|operation| operation.is_ok()).collect();
    lists.lists.iter().flat_map(|list| &list.order).for_each(|&operation| is_committed[operation] = true);
    is_committed
}

fn add_writes(graph: &mut Graph, key: usize, list: &List<'_>) {
    for (position, pair) in list.order.windows(2).enumerate() {
        graph.add(pair[0], pair[1], Kind::WriteWrite, key, position);
    }
}

fn add_reads(graph: &mut Graph, key: usize, list: &List<'_>) {
    for read in &list.reads {
        let seen = read.seen();
        if let Some(last) = seen.checked_sub(1) {
            graph.add(list.order[last], read.operation, Kind::WriteRead, key, last);
        }
        // Whatever follows its own append follows the operation already.
        if let Some(&next) = list.order.get(seen) {
            graph.add(read.operation, next, Kind::ReadWrite, key, seen);
        }
    }
}

/// Appends that took effect and that no read saw come after all seen appends, and after every read. Nobody knows
/// their order among themselves.
fn add_unseen(graph: &mut Graph, key: usize, list: &List<'_>, is_committed: &[bool]) {
    let appends = list.appended.iter().filter_map(|value| list.appends.get(value));
    let unseen = appends.filter(|append| append.position.is_none() && is_committed[append.operation]);
    let mut unseen: Vec<usize> = unseen.map(|append| append.operation).collect();
    unseen.sort_unstable();
    unseen.dedup();
    if unseen.is_empty() {
        return;
    }
    let end = list.order.len();
    if let Some(&last) = list.order.last() {
        unseen.iter().for_each(|&append| graph.add(last, append, Kind::WriteWrite, key, end));
    }
    let waypoint = graph.waypoint();
    unseen.iter().for_each(|&append| graph.add(waypoint, append, Kind::Via, key, end));
    let appenders: HashSet<usize> = unseen.iter().copied().collect();
    // An operation that read the whole and then appended would meet itself behind the waypoint. Two such operations
    // contradict each other already, so two of them with edges of their own are enough.
    let mut both = Vec::new();
    for read in list.reads.iter().filter(|read| read.seen() == end) {
        if !appenders.contains(&read.operation) {
            graph.add(read.operation, waypoint, Kind::ReadWrite, key, end);
        } else if both.len() < 2 && !both.contains(&read.operation) {
            both.push(read.operation);
            unseen.iter().for_each(|&append| graph.add(read.operation, append, Kind::ReadWrite, key, end));
        }
    }
}

fn explain(history: &History, lists: &Lists<'_>, cycle: &Cycle) -> Anomaly {
    let (class, order) = cycle.class();
    let mut what = String::from("each of these comes before the next, and the last before the first:");
    for edge in &cycle.edges {
        what.push_str(&format!("\n    T{} before T{}: {}", edge.from, edge.to, reason(lists, edge)));
    }
    let operations = cycle.edges.iter().map(|edge| &history.operations[edge.from as usize]);
    Anomaly::new(CHECKER, AnomalyKind::Cycle(class, order), what).with(operations)
}

fn reason(lists: &Lists<'_>, edge: &Edge) -> String {
    let Some(list) = lists.lists.get(edge.key as usize) else {
        return String::new();
    };
    let name = list.name;
    let at = |position: u32| {
        list.appended
            .iter()
            .find(|value| list.appends.get(*value).is_some_and(|append| append.position == Some(position as usize)))
    };
    let shown = |position: u32| at(position).map_or("one that no read saw".to_owned(), |value| value.to_string());
    match edge.kind {
        Kind::WriteWrite => match at(edge.position + 1) {
            Some(next) => format!("it appended {} to {name}, and then came {next}", shown(edge.position)),
            None => format!("it appended to {name} what was read, the other what no read saw"),
        },
        Kind::WriteRead => format!("it appended {} to {name}, which was read", shown(edge.position)),
        Kind::ReadWrite => format!("it read {name} without {}, which was appended", shown(edge.position)),
        Kind::Process => "the same client asked it before".to_owned(),
        Kind::Realtime | Kind::Via => "it had ended when the other began".to_owned(),
    }
}
