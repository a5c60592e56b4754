//! A node's directory in a cluster: what `millrace cluster init` makes and `millrace serve --cluster-data` reads.
//!
//! ```text
//! n1/
//!   cluster.json         the cluster, this node, all nodes
//!   tls/node.pem         this node's certificate
//!   tls/node.key         its private key
//!   tls/authority.pem    who signs the nodes' certificates
//!   …                    a data directory
//! ```

use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

use millrace_node::{ClusterOptions, Member, is_of_cluster_backup};
use millrace_peers::{ClusterId, Identity};
use millrace_replica::NodeId;
use serde::{Deserialize, Serialize};

use crate::Failure;

/// The format that this build writes, and the only one that it reads.
const FORMAT: u32 = 1;

const FILE: &str = "cluster.json";

/// `cluster.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ClusterFile {
    format: u32,
    /// 32 hexadecimal digits.
    cluster: String,
    node: u16,
    pub shards: u16,
    /// How many nodes hold each shard from the beginning. 0: all.
    #[serde(default)]
    replicas: u16,
    /// The node came to a cluster that was there: the members are those of that time.
    #[serde(default)]
    has_joined: bool,
    members: Vec<MemberEntry>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct MemberEntry {
    pub node: u16,
    pub http: String,
    pub peer: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub s3: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rack: Option<String>,
}

impl MemberEntry {
    pub(super) fn to_member(&self) -> Member {
        let (http, peer) = (self.http.clone(), self.peer.clone());
        Member { node: NodeId(self.node), http, peer, rack: self.rack.clone().unwrap_or_default() }
    }
}

/// Where a node serves, and what it is started with.
pub(crate) struct NodeSetup {
    pub http: String,
    /// Where it listens for S3, if the cluster keeps objects.
    pub s3: Option<String>,
    pub shards: u16,
    pub options: ClusterOptions,
}

/// What a node's certificate, key and authority are: PEM.
pub(super) struct Credentials {
    pub certificate: String,
    pub key: String,
    pub authority: String,
}

impl ClusterFile {
    pub(super) fn new(
        cluster: ClusterId,
        node: u16,
        (shards, replicas): (u16, u16),
        members: Vec<MemberEntry>,
    ) -> Self {
        Self { format: FORMAT, cluster: cluster.to_string(), node, shards, replicas, has_joined: false, members }
    }

    /// Of a node that comes to a cluster that is there.
    pub(super) fn joined(cluster: ClusterId, node: u16, shards: u16, members: Vec<MemberEntry>) -> Self {
        Self { has_joined: true, ..Self::new(cluster, node, (shards, 0), members) }
    }

    /// Reads a node's directory.
    ///
    /// # Errors
    /// A sentence that names the file.
    pub(super) fn read(directory: &Path) -> Result<Self, Failure> {
        let path = directory.join(FILE);
        let bytes = fs::read(&path).map_err(|error| {
            format!("{}: {error}; `millrace cluster init` makes the directories of a cluster's nodes", path.display())
        })?;
        let file: Self = serde_json::from_slice(&bytes).map_err(|error| format!("{}: {error}", path.display()))?;
        let wrong = |what: &str| Err(Failure::from(format!("{}: {what}", path.display())));
        if file.format != FORMAT {
            return wrong("it is of another version of millrace");
        }
        let is_ordered = file.members.is_sorted_by(|a, b| a.node < b.node);
        if !is_ordered || file.members.iter().any(|member| !(1..=255).contains(&member.node)) {
            return wrong("nodes are numbered from 1 to 255, in order");
        }
        if file.own().is_none() {
            return wrong("the node is not among the members");
        }
        Ok(file)
    }

    /// Takes over which nodes the cluster has now. Of those that were known it keeps how they are reached from here. Whether
    /// that changed anything.
    pub(super) fn meet(&mut self, nodes: Vec<MemberEntry>) -> bool {
        let numbers = |members: &[MemberEntry]| members.iter().map(|member| member.node).collect::<Vec<_>>();
        if numbers(&nodes) == numbers(&self.members) || !nodes.iter().any(|member| member.node == self.node) {
            return false;
        }
        let known = std::mem::take(&mut self.members);
        let same = |new: MemberEntry| known.iter().find(|known| known.node == new.node).cloned().unwrap_or(new);
        self.members = nodes.into_iter().map(same).collect();
        // They are not those that the cluster began with.
        self.has_joined = true;
        true
    }

    /// Replaces the file of a node's directory, durably.
    ///
    /// # Errors
    /// What the file system answers.
    pub(super) fn replace(&self, directory: &Path) -> Result<(), Failure> {
        let (file, new) = (directory.join(FILE), directory.join(format!("{FILE}.new")));
        // Left by a command that was killed.
        let _ = fs::remove_file(&new);
        write_new(&new, &serde_json::to_string_pretty(self)?, 0o644)?;
        let named = |error: std::io::Error| format!("{}: {error}", file.display());
        fs::rename(&new, &file).map_err(named)?;
        fs::File::open(directory).and_then(|folder| folder.sync_all()).map_err(named)?;
        Ok(())
    }

    pub(super) fn number(&self) -> u16 {
        self.node
    }

    pub(super) fn own(&self) -> Option<&MemberEntry> {
        self.members.iter().find(|member| member.node == self.node)
    }

    /// Writes a node's directory, which must not be one yet.
    ///
    /// # Errors
    /// What the file system answers.
    pub(super) fn write(&self, directory: &Path, credentials: &Credentials) -> Result<(), Failure> {
        let tls = directory.join("tls");
        fs::create_dir_all(&tls).map_err(|error| format!("{}: {error}", tls.display()))?;
        write_new(&tls.join("node.pem"), &credentials.certificate, 0o644)?;
        write_new(&tls.join("node.key"), &credentials.key, 0o600)?;
        write_new(&tls.join("authority.pem"), &credentials.authority, 0o644)?;
        // The last one: without it the directory is none.
        write_new(&directory.join(FILE), &serde_json::to_string_pretty(self)?, 0o644)
    }
}

/// Writes a file that must not be there.
///
/// # Errors
/// A sentence that names it.
pub(super) fn write_new(path: &Path, text: &str, mode: u32) -> Result<(), Failure> {
    let named = |error: std::io::Error| format!("{}: {error}", path.display());
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(path).map_err(named)?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(named)?;
    Ok(())
}

/// As [`options`], for a node that is to serve.
///
/// # Errors
/// Also for a directory that was restored from a backup.
pub(crate) fn options_to_serve(directory: &Path) -> Result<NodeSetup, Failure> {
    if is_of_cluster_backup(directory) {
        return Err(format!(
            "{0}: it was restored from a backup, and other nodes may know of later promises of its node: run `millrace cluster \
             rescue {0} --accept-loss` first, which founds the cluster anew with this node",
            directory.display()
        )
        .into());
    }
    options(directory)
}

/// What a node of a cluster is started with.
///
/// # Errors
/// A sentence that names the file that is wrong.
pub(crate) fn options(directory: &Path) -> Result<NodeSetup, Failure> {
    let file = ClusterFile::read(directory)?;
    let tls = directory.join("tls");
    let identity = Identity::read(&tls.join("node.pem"), &tls.join("node.key"), &tls.join("authority.pem"))?;
    let id = ClusterId::parse(&file.cluster).ok_or_else(|| format!("{}: cluster: not 32 hexadecimal digits", FILE))?;
    let (http, s3) = file.own().map(|own| (own.http.clone(), own.s3.clone())).unwrap_or_default();
    let members = file.members.iter().map(MemberEntry::to_member).collect();
    let (node, replicas, has_joined) = (NodeId(file.node), file.replicas, file.has_joined);
    let options = ClusterOptions { id, identity, node, members, has_joined, replicas, tables: Arc::default() };
    Ok(NodeSetup { http, s3, shards: file.shards, options })
}
