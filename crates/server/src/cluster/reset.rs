//! `millrace cluster reset`: empties a node's directory, so that its node gets everything from the others.

use std::path::Path;

use millrace_node::{DataDirectory, DirectoryError, KnownCluster, Member, StartError, known_cluster};

use super::directory::{ClusterFile, MemberEntry};
use super::nodes::{check_is_of, members_of};
use super::{ResetArgs, options};
use crate::Failure;
use crate::calls::{block_on, client};
use crate::cli::NodeArgs;

/// Which nodes there are, and how many shards would be lost.
struct Others {
    nodes: Vec<MemberEntry>,
    last_copies: usize,
}

/// Empties a node's directory.
///
/// # Errors
/// A sentence that says what to change.
pub(super) fn run(args: &ResetArgs) -> Result<(), Failure> {
    let path = &args.directory;
    // Else it might be the only copy of somebody's data.
    let mut file = ClusterFile::read(path)?;
    let others = match &args.url {
        Some(url) => Some(asked(args, url, file.number())?),
        None => read(path)?,
    };
    if let Some(Others { nodes, last_copies }) = others {
        if last_copies > 0 {
            return Err(format!(
                "{}: nothing was changed, as {last_copies} shards would be lost with this node: the other nodes that hold \
                 them are no majority. Have others join, wait until `millrace cluster status` shows each shard on three \
                 nodes, and repeat the command",
                path.display()
            )
            .into());
        }
        if file.meet(nodes) {
            // A node that runs reads it at its next start. So it must not run: the data may go on without it.
            if DataDirectory::is_in_use(path) {
                return Err(StartError::Directory(DirectoryError::InUse(path.clone())).into());
            }
            file.replace(path)?;
        }
    }
    DataDirectory::empty(path)?;
    println!("{} is empty: its node gets everything from the others once it is started", path.display());
    Ok(())
}

/// What a node that runs says.
fn asked(args: &ResetArgs, url: &str, own: u16) -> Result<Others, Failure> {
    let node = NodeArgs { url: url.to_owned(), ca: args.ca.clone(), api_key: args.api_key.clone() };
    let guidance = block_on(client(&node)?.guidance())?;
    check_is_of(&args.directory.join("tls"), &guidance, url)?;
    let nodes = members_of(&guidance);
    if !nodes.iter().any(|member| member.node == own) {
        return Err(format!(
            "{}: node {own} is none of the cluster at {url} any more; nothing was changed: have a new node join instead",
            args.directory.display()
        )
        .into());
    }
    let is_last = |place: &&serde_json::Value| {
        let replicas = place["replicas"].as_array().map(Vec::as_slice).unwrap_or_default();
        replicas.len() <= 2 && replicas.iter().any(|node| *node == own)
    };
    let last_copies = guidance["shards"].as_array().into_iter().flatten().filter(is_last).count();
    Ok(Others { nodes, last_copies })
}

/// What the directory's own data says. Damaged data says nothing: then the node asks those that it was made with.
fn read(path: &Path) -> Result<Option<Others>, Failure> {
    match known_cluster(path, options(path)?.options) {
        Ok(known) => Ok(known.map(|KnownCluster { nodes, last_copies }| Others {
            nodes: nodes.into_iter().map(entry).collect(),
            last_copies: last_copies.len(),
        })),
        Err(StartError::Directory(error @ DirectoryError::InUse(_))) => Err(error.into()),
        Err(error) => {
            eprintln!(
                "its data cannot be read ({error}), so the node will ask those that it was made with. If nodes have joined or \
                 were removed since, repeat the command with --url and the address of one that runs"
            );
            Ok(None)
        }
    }
}

fn entry(member: Member) -> MemberEntry {
    let rack = Some(member.rack).filter(|rack| !rack.is_empty());
    MemberEntry { node: member.node.0, http: member.http, peer: member.peer, s3: None, rack }
}
