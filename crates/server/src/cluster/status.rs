//! `millrace cluster status`: the guidance, for people.

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

fn render(guidance: &Value) -> String {
    let shards = guidance["shards"].as_array().cloned().unwrap_or_default();
    let mut text = format!("guidance {}, {} shards\n", guidance["epoch"], shards.len());
    if guidance["has_majority"] == false {
        let node = &guidance["node"];
        text.push_str(&format!("node {node} does not hear a majority of the nodes: what follows may be old\n"));
    }
    text.push_str("node  state      owns  holds  http\n");
    for (id, node) in guidance["nodes"].as_object().into_iter().flatten() {
        let number = id.parse::<u64>().ok();
        let owns = shards.iter().filter(|place| number.is_some() && place["owner"].as_u64() == number).count();
        let lists = |place: &&Value| {
            place["replicas"].as_array().is_some_and(|nodes| nodes.iter().any(|node| node.as_u64() == number))
        };
        let holds = shards.iter().filter(|place| number.is_some() && lists(place)).count();
        let state = match (node["is_alive"].as_bool(), node["is_draining"].as_bool()) {
            (Some(true), _) if node["is_heard"] == false => "not heard",
            (Some(true), Some(true)) => "draining",
            (Some(true), _) => "alive",
            _ => "dead",
        };
        let http = printable(node["http"].as_str().unwrap_or_default());
        text.push_str(&format!("{:<4}  {state:<9}  {owns:>4}  {holds:>5}  {http}\n", printable(id)));
    }
    text
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
        guidance["has_majority"] = false.into();
        guidance["nodes"]["3"]["is_heard"] = false.into();
        let expected = "guidance 7, 3 shards\n\
                        node 1 does not hear a majority of the nodes: what follows may be old\n\
                        node  state      owns  holds  http\n\
                        1     alive         2      3  127.0.0.1:8080\n\
                        2     dead          1      2  127.0.0.1:8081\n\
                        3     not heard     0      2  127.0.0.1:8082\n";
        assert_eq!(render(&guidance), expected);
    }
}
