//! `millrace cluster join`, `drain` and `remove`: nodes come and go while the cluster runs.

use std::path::Path;
use std::time::{Duration, Instant};

use millrace_access::{AgreedKeys, KeyFile};
use millrace_base::ErrorCode;
use millrace_client::Client;
use millrace_node::FEATURE_LEVEL;
use millrace_peers::{ClusterId, fingerprint_of_file};
use serde_json::Value;

use super::directory::MemberEntry;
use super::make::{check_authority, make_joining};
use super::status::{holds, owns};
use super::{DrainArgs, JoinArgs, RemoveArgs};
use crate::Failure;
use crate::calls::{NodeError, block_on, client};
use crate::settings::KEY_FILE;

/// How often a node that drains is looked at.
const LOOK: Duration = Duration::from_millis(250);

/// Makes the directory of one more node.
///
/// # Errors
/// A sentence that says what to change.
pub(super) fn join(args: &JoinArgs) -> Result<(), Failure> {
    if args.data.join("cluster.json").exists() {
        return Err(format!("{}: it is a node's directory already: give another", args.data.display()).into());
    }
    check_authority(&args.authority)?;
    let client = client(&args.node)?;
    let keys = keys_of(&client)?;
    let guidance = block_on(client.guidance())?;
    check_is_of(&args.authority, &guidance, &args.node.url)?;
    check_is_new_enough(&guidance)?;
    let added = block_on(client.add_node(&args.http, &args.peer, args.rack.as_deref()))?;
    let wrong = || Failure::from(format!("the node at {} does not answer as a cluster's node does", args.node.url));
    let number = |name: &str| added[name].as_u64().and_then(|number| u16::try_from(number).ok());
    let id = added["cluster"].as_str().and_then(ClusterId::parse).ok_or_else(wrong)?;
    let (node, shards) = (number("node").ok_or_else(wrong)?, number("shards").ok_or_else(wrong)?);
    let guidance = block_on(client.guidance())?;
    let known = members_of(&guidance).into_iter();
    let (http, peer, s3) = (args.http.clone(), args.peer.clone(), args.s3.clone());
    let own = MemberEntry { node, http, peer, s3, rack: args.rack.clone() };
    let mut members: Vec<MemberEntry> = known.filter(|member| member.node != node).chain([own]).collect();
    members.sort_by_key(|member| member.node);
    make_joining(&args.data, &args.authority, (id, node, shards), members)?;
    // As `init` does: the node asks for keys from its first request on.
    if let Some(keys) = keys {
        keys.save(&args.data.join(KEY_FILE))?;
    }
    println!("{}", args.data.display());
    eprintln!("node {node}: carry the directory to its machine, and start `millrace serve --cluster-data DIR` there");
    Ok(())
}

/// The nodes that a guidance names, ascending.
pub(super) fn members_of(guidance: &Value) -> Vec<MemberEntry> {
    let text = |entry: &Value, name: &str| entry[name].as_str().unwrap_or_default().to_owned();
    let entry = |(number, entry): (&String, &Value)| {
        let (http, peer) = (text(entry, "http"), text(entry, "peer"));
        Some(MemberEntry { node: number.parse().ok()?, http, peer, s3: None, rack: None })
    };
    let mut members: Vec<MemberEntry> = guidance["nodes"].as_object().into_iter().flatten().filter_map(entry).collect();
    members.sort_by_key(|member| member.node);
    members
}

/// Refuses an authority that the cluster's nodes do not trust, before they hear of a node.
pub(super) fn check_is_of(authority: &Path, guidance: &Value, url: &str) -> Result<(), Failure> {
    let own = fingerprint_of_file(&authority.join("authority.pem"))?;
    // A node of an earlier version does not say whom it trusts.
    match guidance["authority"].as_str() {
        Some(trusted) if trusted != own => Err(format!(
            "foreign authority: {} is not that of the cluster at {url}, whose nodes would refuse the new one; nothing \
             happened: give the directory `authority` that was made with that cluster",
            authority.display()
        )
        .into()),
        _ => Ok(()),
    }
}

/// Refuses a node of this version where the others use more than it knows.
fn check_is_new_enough(guidance: &Value) -> Result<(), Failure> {
    let used = guidance["feature_level"].as_u64().unwrap_or_default();
    if used <= u64::from(FEATURE_LEVEL) {
        return Ok(());
    }
    Err(format!(
        "too old: the cluster uses feature level {used}, and this version of millrace knows {FEATURE_LEVEL}; nothing \
         happened: use the version of the other nodes"
    )
    .into())
}

/// The API keys of a cluster, if it has some and they are not in files that its nodes were given by name.
fn keys_of(client: &Client) -> Result<Option<KeyFile>, Failure> {
    match block_on(client.cluster_keys()) {
        Ok(agreed) => {
            let AgreedKeys { keys, .. } = serde_json::from_value(agreed)?;
            Ok((keys != KeyFile::default()).then_some(keys))
        }
        Err(error) if NodeError::code(&error) == Some(ErrorCode::UnknownRoute.as_str()) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Has what a node holds moved to others, and waits until it is.
///
/// # Errors
/// What the cluster answered, or that it takes too long.
pub(super) fn drain(args: &DrainArgs) -> Result<(), Failure> {
    let client = client(&args.at)?;
    if args.undo {
        return block_on(client.drain_node(args.number, false));
    }
    block_on(client.drain_node(args.number, true))?;
    wait_until_drained(&client, args.number, Duration::from_secs(args.wait_s))
}

/// Takes a node out that has drained, or that is dead.
///
/// # Errors
/// What the cluster answered, or that it takes too long.
pub(super) fn remove(args: &RemoveArgs) -> Result<(), Failure> {
    let client = client(&args.at)?;
    let wait = Duration::from_secs(args.wait_s);
    let until = Instant::now() + wait;
    let guidance = block_on(client.guidance())?;
    let entry = &guidance["nodes"][args.number.to_string()];
    if guidance["has_majority"] == false {
        return Err(no_majority(&guidance));
    }
    let has_begun = entry["incarnation"].as_u64().unwrap_or(0) > 0;
    if has_begun && entry["is_alive"] == false {
        block_on(client.drain_node(args.number, true))?;
        wait_until_drained(&client, args.number, wait)?;
    }
    loop {
        match block_on(client.remove_node(args.number)) {
            // What it held in the guidance's own shard moves last.
            Err(error) if error.to_string().contains("overloaded") && Instant::now() < until => {
                check_majority(&client)?;
                std::thread::sleep(LOOK);
            }
            result => return result,
        }
    }
}

/// Nothing moves without a majority, and nobody can say when there is one.
fn check_majority(client: &Client) -> Result<(), Failure> {
    match block_on(client.guidance()) {
        Ok(guidance) if guidance["has_majority"] == false => Err(no_majority(&guidance)),
        _ => Ok(()),
    }
}

fn no_majority(guidance: &Value) -> Failure {
    let node = &guidance["node"];
    format!(
        "no majority: node {node} does not hear a majority of the nodes, without which no node can come or go; start more of \
         them, and repeat the command"
    )
    .into()
}

fn wait_until_drained(client: &Client, node: u16, wait: Duration) -> Result<(), Failure> {
    let until = Instant::now() + wait;
    let (mut told, mut stuck) = ((usize::MAX, usize::MAX), Vec::new());
    loop {
        // The node that is asked may be about to lose its leader.
        if let Ok(guidance) = block_on(client.guidance()) {
            let left = (holds(&guidance, node), owns(&guidance, node));
            if left == (0, 0) {
                return Ok(());
            }
            if guidance["has_majority"] == false {
                return Err(no_majority(&guidance));
            }
            if left < told {
                eprintln!("node {node} still holds {} shards, and owns {}", left.0, left.1);
                told = left;
            }
            let now_stuck = unreadable(&guidance, node);
            if now_stuck != stuck {
                stuck = now_stuck;
                if !stuck.is_empty() {
                    eprintln!("{}", stuck_because(&stuck));
                }
            }
        }
        if Instant::now() >= until {
            let why = if stuck.is_empty() { String::new() } else { format!("\n{}", stuck_because(&stuck)) };
            return Err(format!(
                "node {node} still holds shards after {} s; it goes on: look again later{why}",
                wait.as_secs()
            )
            .into());
        }
        std::thread::sleep(LOOK);
    }
}

/// The shards of a node that stay there, as no node can read some content of theirs.
fn unreadable(guidance: &Value, node: u16) -> Vec<u64> {
    let shards = guidance["unreadable_shards"].as_array().into_iter().flatten().filter_map(Value::as_u64);
    let is_held = |shard: &u64| {
        let place = usize::try_from(*shard).map_or(&Value::Null, |shard| &guidance["shards"][shard]);
        place["replicas"].as_array().is_some_and(|nodes| nodes.contains(&node.into()))
    };
    shards.filter(is_held).collect()
}

fn stuck_because(shards: &[u64]) -> String {
    let shards: Vec<String> = shards.iter().map(u64::to_string).collect();
    format!(
        "shards {} stay: no living node can read a content of an object in them, which the log of a node names. Start nodes that \
         are down: one of them may have it. Only if none has, delete the object or upload it again",
        shards.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_that_a_drain_waits_for_in_vain_are_named() {
        let guidance = serde_json::json!({
            "unreadable_shards": [0, 2],
            "shards": [{ "replicas": [1, 2] }, { "replicas": [2, 3] }, { "replicas": [1, 3] }],
        });
        assert_eq!([1, 2, 3].map(|node| unreadable(&guidance, node)), [vec![0, 2], vec![0], vec![2]]);
        assert_eq!(unreadable(&serde_json::json!({}), 1), Vec::<u64>::new());
        assert!(stuck_because(&[0, 2]).starts_with("shards 0, 2 stay: "));
    }

    #[test]
    fn a_cluster_that_uses_more_than_this_version_knows_gets_no_node_of_it() {
        let of_level = |level: u32| serde_json::json!({ "feature_level": level });
        assert!(check_is_new_enough(&serde_json::json!({})).is_ok(), "a node of an earlier version does not say");
        assert!(check_is_new_enough(&of_level(FEATURE_LEVEL)).is_ok());
        let refused = check_is_new_enough(&of_level(FEATURE_LEVEL + 1)).expect_err("it is too old").to_string();
        assert!(refused.contains("too old"), "{refused}");
    }
}
