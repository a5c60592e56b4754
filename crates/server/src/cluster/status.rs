//! `millrace cluster status`: the guidance, for people. `millrace cluster guidance`: the same, for programs.

use serde_json::Value;

use crate::Failure;
use crate::calls::{block_on, client};
use crate::cli::NodeArgs;
use crate::table::printable;

/// Prints the nodes of a cluster and what they own.
///
/// # Errors
/// What the node answered, or why it could not be asked.
pub(super) fn show(node: &NodeArgs) -> Result<(), Failure> {
    let client = client(node)?;
    let guidance = block_on(client.guidance())?;
    print!("{}", render(&guidance));
    Ok(())
}

/// Prints the guidance that a node follows.
///
/// # Errors
/// As [`show`].
pub(super) fn print(node: &NodeArgs) -> Result<(), Failure> {
    let client = client(node)?;
    println!("{:#}", block_on(client.guidance())?);
    Ok(())
}

fn render(guidance: &Value) -> String {
    let mut text = format!("guidance {}, {} shards\n", guidance["epoch"], shards(guidance).count());
    if guidance["has_majority"] == false {
        let node = &guidance["node"];
        text.push_str(&format!("node {node} does not hear a majority of the nodes: what follows may be old\n"));
    }
    if guidance["is_majority_lost"] == true {
        text.push_str("a majority of the nodes has lost its data: see `millrace cluster rescue --help`\n");
    }
    for (name, what) in [
        ("lost_shards", "lost by a majority of the nodes that held them"),
        ("quarantined_shards", "broke at two nodes, and goes to no third one"),
        ("unreadable_shards", "have a content that no living node can read, and stay on their nodes"),
    ] {
        let shards: Vec<String> = guidance[name].as_array().into_iter().flatten().map(Value::to_string).collect();
        if !shards.is_empty() {
            text.push_str(&format!("{what}: shards {}\n", shards.join(", ")));
        }
    }
    let nodes = guidance["nodes"].as_object();
    let has_racks = nodes.into_iter().flatten().any(|(_, entry)| entry["rack"].is_string());
    text.push_str(if has_racks {
        "node  state      owns  holds  rack      http\n"
    } else {
        "node  state      owns  holds  http\n"
    });
    for (id, entry) in nodes.into_iter().flatten() {
        let Ok(node) = id.parse::<u16>() else { continue };
        let (owns, holds) = (owns(guidance, node), holds(guidance, node));
        let state = state(entry, owns + holds);
        let http = printable(entry["http"].as_str().unwrap_or_default());
        let rack = printable(entry["rack"].as_str().unwrap_or("-"));
        let rack = if has_racks { format!("{rack:<8}  ") } else { String::new() };
        text.push_str(&format!("{node:<4}  {state:<9}  {owns:>4}  {holds:>5}  {rack}{http}\n"));
    }
    text
}

/// What a node is, that holds or owns so many shards.
fn state(entry: &Value, left: usize) -> &'static str {
    let is = |name: &str| entry[name].as_bool().unwrap_or_default();
    match (is("is_alive"), is("is_draining")) {
        (false, _) if entry["incarnation"] == 0 => "joining",
        (false, _) => "dead",
        (true, _) if !is("is_heard") => "not heard",
        (true, _) if is("has_lost_data") => "lost data",
        (true, true) if left > 0 => "draining",
        (true, true) => "drained",
        (true, false) => "alive",
    }
}

fn shards(guidance: &Value) -> impl Iterator<Item = &Value> {
    guidance["shards"].as_array().into_iter().flatten()
}

/// How many shards a node owns.
pub(super) fn owns(guidance: &Value, node: u16) -> usize {
    shards(guidance).filter(|place| place["owner"] == node).count()
}

/// How many shards a node holds, or is to hold.
pub(super) fn holds(guidance: &Value, node: u16) -> usize {
    let lists = |place: &Value, name: &str| place[name].as_array().is_some_and(|nodes| nodes.contains(&node.into()));
    shards(guidance).filter(|place| lists(place, "replicas") || lists(place, "wanted")).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_shown_with_what_they_own() {
        let mut guidance = serde_json::json!({
            "epoch": 7,
            "node": 1,
            "has_majority": true,
            "nodes": {
                "1": { "http": "127.0.0.1:8080", "is_alive": true, "is_draining": false, "is_heard": true },
                "2": { "http": "127.0.0.1:8081", "is_alive": false, "is_draining": false, "is_heard": false },
                "3": { "http": "127.0.0.1:8082", "is_alive": true, "is_draining": false, "is_heard": true },
            },
            "shards": [
                { "owner": 1, "replicas": [1, 2] },
                { "owner": 1, "replicas": [1, 3] },
                { "owner": 2, "replicas": [1, 2, 3] },
            ],
        });
        let expected = "guidance 7, 3 shards\n\
                        node  state      owns  holds  http\n\
                        1     alive         2      3  127.0.0.1:8080\n\
                        2     dead          1      2  127.0.0.1:8081\n\
                        3     alive         0      2  127.0.0.1:8082\n";
        assert_eq!(render(&guidance), expected);
        let none = serde_json::json!([]);
        let entry = |alive: bool, draining: bool, incarnation: u64| serde_json::json!({ "is_alive": alive, "is_draining": draining, "incarnation": incarnation, "is_heard": alive });
        let states = [entry(false, false, 0), entry(true, true, 1), entry(false, true, 1)];
        assert_eq!(states.map(|entry| state(&entry, 1)), ["joining", "draining", "dead"]);
        assert_eq!(state(&entry(true, true, 1), 0), "drained");
        assert_eq!(holds(&serde_json::json!({ "shards": [{ "replicas": none, "wanted": [4] }] }), 4), 1);
        guidance["unreadable_shards"] = serde_json::json!([1, 2]);
        let shown = render(&guidance);
        assert!(
            shown.contains("\nhave a content that no living node can read, and stay on their nodes: shards 1, 2\n"),
            "{shown}"
        );
        guidance["unreadable_shards"] = serde_json::json!([]);
        guidance["has_majority"] = false.into();
        guidance["nodes"]["3"]["is_heard"] = false.into();
        let expected = "guidance 7, 3 shards\n\
                        node 1 does not hear a majority of the nodes: what follows may be old\n\
                        node  state      owns  holds  http\n\
                        1     alive         2      3  127.0.0.1:8080\n\
                        2     dead          1      2  127.0.0.1:8081\n\
                        3     not heard     0      2  127.0.0.1:8082\n";
        assert_eq!(render(&guidance), expected);
        guidance["nodes"]["2"]["rack"] = "east".into();
        let shown = render(&guidance);
        assert!(shown.contains("owns  holds  rack      http\n1     alive         2      3  -         127"), "{shown}");
        assert!(shown.contains("2     dead          1      2  east      127"), "{shown}");
    }
}
