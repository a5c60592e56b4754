//! The guidance as one document: what the meta shard holds, and what `GET /cluster` shows.

use std::collections::BTreeMap;
use std::fmt;

use millrace_base::limits;
use serde::{Deserialize, Serialize};

/// The format that this build writes, and the only one that it reads.
const FORMAT: u32 = 1;

/// What this build knows. It is one more in each version that does what earlier ones would not understand: in logs, between
/// nodes, or in the guidance. A node uses it only once the cluster's level is as high. It counts from 0, which is left out of what
/// is written.
pub const FEATURE_LEVEL: u32 = 8;

/// From this level on nodes know racks.
pub(crate) const RACKS_LEVEL: u32 = 1;

/// From this level on nodes load versions that are kept, and say which they do not need.
pub(crate) const KEPT_LEVEL: u32 = 2;

/// From this level on nodes say which shards broke.
pub const STOPPED_LEVEL: u32 = 3;

/// From this level on nodes understand calls that tell their callers.
pub const CALLERS_LEVEL: u32 = 3;

/// From this level on nodes that stand still for a backup keep bodies of objects that nothing refers to any more.
pub const KEPT_BODIES_LEVEL: u32 = 4;

/// From this level on nodes say which workers have dialled in.
pub const DIALLED_LEVEL: u32 = 4;

/// From this level on nodes say whether they have all bodies of objects, and logs move only to nodes that do.
pub const BODIES_LEVEL: u32 = 5;

/// From this level on nodes exchange turns with workers on streams.
pub const STREAMS_LEVEL: u32 = 6;

/// From this level on a deployment may say which content of the app it rests on.
pub const EXPECTED_LEVEL: u32 = 7;

/// From this level on a node has all bodies but those that it names: bodies that no node can read.
pub const UNREADABLE_LEVEL: u32 = 7;

/// From this level on nodes sign requests to workers with Ed25519, if the app asks for it.
pub const WORKER_SIGNATURES_LEVEL: u32 = 8;

/// From this level on nodes copy what they have for a backup that another node takes.
pub const COPIES_LEVEL: u32 = 8;

/// What a cluster agrees on. It holds no secret.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Guidance {
    /// The version of this document's format.
    pub format: u32,
    /// One more with each change.
    pub epoch: u64,
    /// The nodes, by id.
    pub nodes: BTreeMap<u16, NodeEntry>,
    /// The shards, by number.
    pub shards: Vec<ShardPlacement>,
    /// The apps that are deployed, by name.
    pub apps: BTreeMap<String, AppEntry>,
    /// Versions of apps that do not serve any more, and that workflows may still run in, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<KeptApp>,
    /// The number of the last deployment. Each deployment has its own, equal on all nodes.
    pub last_deployment: u32,
    /// The versions of the tables that the meta shard holds, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tables: BTreeMap<String, u64>,
    /// How many nodes hold each shard's log, if there are so many. 0: all that the cluster began with.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub replicas: u16,
    /// The highest number of a node that is not there any more. No node gets such a number again.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub last_removed: u16,
    /// What the cluster may use: all its nodes know it. It never goes down.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub feature_level: u32,
}

/// Whether a number is left out of what is written.
pub(crate) fn is_zero<T: Default + PartialEq>(number: &T) -> bool {
    *number == T::default()
}

/// One node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeEntry {
    /// Where it serves clients: host and port.
    pub http: String,
    /// Where it hears other nodes: host and port.
    pub peer: String,
    /// Whether the leader hears it.
    pub is_alive: bool,
    /// Whether its shards are to be moved away.
    pub is_draining: bool,
    /// Which start of the node this is about. Another one has lost its memory.
    pub incarnation: u64,
    /// The [`FEATURE_LEVEL`] of its program, as it has said last.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub feature_level: u32,
    /// What fails together with it. Empty: nothing else does. Guidance names racks from [`FEATURE_LEVEL`] 1 on.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub rack: String,
}

/// Where a shard is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShardPlacement {
    /// The epoch in which the owner owns it.
    pub epoch: u64,
    /// The node that owns it.
    pub owner: u16,
    /// The node that the owner is to hand it to. It owns the shard in the next epoch, which is nobody else's. 0: none.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub next: u16,
    /// The nodes that hold its log and count, ascending: what its owner has said last.
    pub replicas: Vec<u16>,
    /// Where in its log they were agreed on.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub agreed: u64,
    /// The nodes that are to hold its log, ascending; none while those that hold it are.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub wanted: Vec<u16>,
}

impl ShardPlacement {
    /// The node that owns the shard, or is about to.
    #[must_use]
    pub fn heir(&self) -> u16 {
        if self.next == 0 { self.owner } else { self.next }
    }

    /// A node owns the shard in an epoch that no node was ever given.
    pub(crate) fn appoint(&mut self, owner: u16) {
        self.epoch += 1 + u64::from(self.next != 0);
        (self.owner, self.next) = (owner, 0);
    }

    /// The owner has handed the shard on.
    pub(crate) fn handed_on(&mut self) {
        self.epoch += 1;
        (self.owner, self.next) = (self.next, 0);
    }

    /// The nodes that are to hold the log.
    #[must_use]
    pub fn holders(&self) -> &[u16] {
        if self.wanted.is_empty() { &self.replicas } else { &self.wanted }
    }

    /// Whether a node holds the log or is to hold it.
    #[must_use]
    pub fn concerns(&self, node: u16) -> bool {
        self.replicas.contains(&node) || self.wanted.contains(&node)
    }

    /// Whether the shard broke at two of the nodes that hold its log, or at more: no other one is to own it.
    pub fn is_quarantined(&self, broke_at: impl Fn(u16) -> bool) -> bool {
        self.replicas.iter().filter(|node| broke_at(**node)).count() >= 2
    }
}

/// One app that is deployed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AppEntry {
    /// The number of the deployment.
    pub deployment: u32,
    /// The fingerprint of its files, as 16 hexadecimal digits. The meta shard holds the files under it.
    pub content: String,
    /// How often it was deployed.
    pub version: u64,
    /// What all nodes load meanwhile, and what may serve next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<NextApp>,
}

/// What may replace an app: loaded, and not serving.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NextApp {
    /// The number that the deployment will have.
    pub deployment: u32,
    /// As that of [`AppEntry`].
    pub content: String,
}

/// A version of an app that all nodes have loaded, and that does not serve.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeptApp {
    /// The app's name.
    pub app: String,
    /// The number of the deployment.
    pub deployment: u32,
    /// As that of [`AppEntry`].
    pub content: String,
}

/// Why bytes are no guidance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuidanceError(String);

impl fmt::Display for GuidanceError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "the guidance cannot be read: {}", self.0)
    }
}

impl std::error::Error for GuidanceError {}

impl GuidanceError {
    pub(crate) fn of(error: &serde_json::Error) -> Self {
        Self(error.to_string())
    }
}

impl Guidance {
    /// The first guidance of a cluster: `shard_count` shards, each on `replicas` of `nodes`, without owners.
    ///
    /// # Panics
    /// Without nodes.
    #[must_use]
    pub fn first(nodes: BTreeMap<u16, NodeEntry>, shard_count: u16, replicas: u16) -> Self {
        assert!(!nodes.is_empty(), "a cluster has nodes");
        let numbers: Vec<u16> = nodes.keys().copied().collect();
        let place =
            |shard| ShardPlacement { replicas: first_replicas(&numbers, replicas, shard), ..ShardPlacement::default() };
        let shards = (0..shard_count).map(place).collect();
        // A node that does not know racks could not read it.
        let feature_level = if nodes.values().any(|entry| !entry.rack.is_empty()) { RACKS_LEVEL } else { 0 };
        Self { format: FORMAT, epoch: 0, nodes, shards, replicas, feature_level, ..Self::default() }
    }

    /// The bytes that the meta shard holds: JSON.
    ///
    /// # Panics
    /// Never: numbers, texts and lists are always JSON.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("a guidance is numbers, texts and lists")
    }

    /// Reads what [`Guidance::encode`] has written.
    ///
    /// # Errors
    /// [`GuidanceError`] for another format, and for a document that contradicts itself.
    pub fn decode(bytes: &[u8]) -> Result<Self, GuidanceError> {
        let guidance: Self = serde_json::from_slice(bytes).map_err(|error| GuidanceError::of(&error))?;
        let wrong = |what: &str| Err(GuidanceError(what.to_owned()));
        if guidance.format != FORMAT {
            return Err(GuidanceError(format!("format {}, and this build knows {FORMAT}", guidance.format)));
        }
        if guidance.shards.len() > usize::from(limits::SHARDS) {
            return wrong("more shards than there may be");
        }
        let is_sound = |place: &ShardPlacement| {
            let is_list = |nodes: &[u16]| {
                nodes.is_sorted_by(|a, b| a < b)
                    && nodes.len() <= limits::REPLICAS
                    && nodes.iter().all(|node| guidance.nodes.contains_key(node))
            };
            is_list(&place.replicas)
                && is_list(&place.wanted)
                && [place.owner, place.next].iter().all(|node| *node == 0 || place.replicas.contains(node))
        };
        if !guidance.shards.iter().all(is_sound) {
            return wrong("a shard whose owner or replicas are not nodes, or not in order");
        }
        Ok(guidance)
    }

    /// How many shards a node owns, or is about to.
    #[must_use]
    pub fn owned_by(&self, node: u16) -> usize {
        self.shards.iter().filter(|place| place.heir() == node).count()
    }

    /// How many shards' logs a node holds, or is to hold.
    #[must_use]
    pub fn held_by(&self, node: u16) -> usize {
        self.shards.iter().filter(|place| place.holders().contains(&node)).count()
    }

    /// How many nodes are to hold each shard's log.
    #[must_use]
    pub fn replica_count(&self) -> usize {
        if self.replicas == 0 { limits::REPLICAS } else { usize::from(self.replicas) }
    }

    /// Whether a node that knows so much may take part: it knows all that the cluster may use.
    #[must_use]
    pub fn admits_level(&self, feature_level: u32) -> bool {
        feature_level >= self.feature_level
    }

    /// Raises the level to what all nodes know that have ever begun, those included that are away.
    pub(crate) fn raise_level(&mut self) {
        let begun = self.nodes.values().filter(|entry| entry.incarnation > 0);
        let lowest = begun.map(|entry| entry.feature_level).min().unwrap_or_default();
        self.feature_level = self.feature_level.max(lowest);
    }

    /// Whether a node is there, and hears others.
    #[must_use]
    pub fn is_alive(&self, node: u16) -> bool {
        self.nodes.get(&node).is_some_and(|entry| entry.is_alive)
    }
}

/// The nodes that hold a shard's log from its beginning: `count` of `nodes`, or all for 0. They are spread evenly, and those
/// that a node shares its shards with are others for each round of shards.
///
/// # Panics
/// Without nodes.
#[must_use]
pub fn first_replicas(nodes: &[u16], count: u16, shard: u16) -> Vec<u16> {
    assert!(!nodes.is_empty(), "a cluster has nodes");
    let most = if count == 0 { limits::REPLICAS } else { usize::from(count).min(limits::REPLICAS) };
    let (first, round) = (usize::from(shard) % nodes.len(), usize::from(shard) / nodes.len());
    let others = nodes.len() - 1;
    let other = |step: usize| nodes[(first + 1 + (round + step) % others) % nodes.len()];
    let mut chosen: Vec<u16> = (0..others.min(most - 1)).map(other).chain([nodes[first]]).collect();
    chosen.sort_unstable();
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guidance() -> Guidance {
        let entry = |id: u16| {
            let http = format!("127.0.0.1:{}", 8080 + id);
            let peer = format!("127.0.0.1:{}", 7000 + id);
            let incarnation = u64::from(id) << 40;
            (id, NodeEntry { http, peer, is_alive: id != 2, incarnation, ..NodeEntry::default() })
        };
        let mut guidance = Guidance::first([1, 2].map(entry).into(), 2, 0);
        guidance.epoch = 7;
        guidance.shards[1] = ShardPlacement { epoch: 3, owner: 1, replicas: vec![1, 2], ..ShardPlacement::default() };
        let app = AppEntry { deployment: 5, content: "00ff00ff00ff00ff".to_owned(), version: 2, next: None };
        guidance.apps.insert("bank".to_owned(), app);
        guidance.last_deployment = 5;
        guidance
    }

    #[test]
    fn the_document_is_the_golden_one() {
        let golden = concat!(
            r#"{"format":1,"epoch":7,"nodes":{"#,
            r#""1":{"http":"127.0.0.1:8081","peer":"127.0.0.1:7001","is_alive":true,"is_draining":false,"#,
            r#""incarnation":1099511627776},"#,
            r#""2":{"http":"127.0.0.1:8082","peer":"127.0.0.1:7002","is_alive":false,"is_draining":false,"#,
            r#""incarnation":2199023255552}},"#,
            r#""shards":[{"epoch":0,"owner":0,"replicas":[1,2]},{"epoch":3,"owner":1,"replicas":[1,2]}],"#,
            r#""apps":{"bank":{"deployment":5,"content":"00ff00ff00ff00ff","version":2}},"last_deployment":5}"#
        );
        assert_eq!(String::from_utf8(guidance().encode()).as_deref(), Ok(golden));
        assert_eq!(Guidance::decode(golden.as_bytes()), Ok(guidance()));
    }

    #[test]
    fn what_moves_is_in_the_document() {
        let mut moving = guidance();
        moving.replicas = 3;
        moving.shards[1] = ShardPlacement { agreed: 9, wanted: vec![1], ..moving.shards[1].clone() };
        moving.feature_level = 7;
        let bytes = String::from_utf8(moving.encode()).expect("text");
        assert!(bytes.contains(r#""replicas":[1,2],"agreed":9,"wanted":[1]}"#), "{bytes}");
        assert!(bytes.ends_with(r#""last_deployment":5,"replicas":3,"feature_level":7}"#), "{bytes}");
        assert_eq!(Guidance::decode(bytes.as_bytes()), Ok(moving));
    }

    #[test]
    fn versions_that_are_kept_are_in_the_document() {
        let mut guidance = guidance();
        guidance.keep_from_start(KeptApp { app: "bank".to_owned(), deployment: 4, content: "0f".to_owned() });
        let text = String::from_utf8(guidance.encode()).expect("text");
        let kept = r#""kept":[{"app":"bank","deployment":4,"content":"0f"}],"last_deployment":5,"feature_level":2}"#;
        assert!(text.ends_with(kept), "{text}");
        assert_eq!(Guidance::decode(text.as_bytes()), Ok(guidance));
    }

    #[test]
    fn the_first_replicas_are_spread_evenly_over_nodes_and_pairs() {
        for count in [3, 5] {
            for nodes in 3..=9u16 {
                let numbers: Vec<u16> = (1..=nodes).collect();
                let (mut held, mut pairs) = (BTreeMap::<u16, u32>::new(), BTreeMap::<(u16, u16), u32>::new());
                for shard in 0..nodes * (nodes - 1) {
                    let chosen = first_replicas(&numbers, count, shard);
                    assert!(chosen.is_sorted_by(|a, b| a < b), "{chosen:?}");
                    assert_eq!(chosen.len(), usize::from(count.min(nodes)));
                    for one in &chosen {
                        *held.entry(*one).or_default() += 1;
                        let others = chosen.iter().filter(|other| *other > one);
                        others.for_each(|other| *pairs.entry((*one, *other)).or_default() += 1);
                    }
                }
                assert!(held.values().all(|times| *times == held[&1]), "{nodes} nodes: {held:?}");
                assert_eq!(pairs.len(), usize::from(nodes * (nodes - 1) / 2), "each two share some shard");
            }
        }
        assert_eq!(first_replicas(&[2, 4, 6, 8], 0, 5), [2, 4, 6, 8]);
    }

    #[test]
    fn what_may_replace_an_app_and_tables_are_parts_of_it() {
        let mut guidance = guidance();
        let next = NextApp { deployment: 6, content: "11".to_owned() };
        guidance.apps.get_mut("bank").expect("deployed").next = Some(next);
        let text = String::from_utf8(guidance.encode()).expect("text");
        assert!(text.contains(r#""version":2,"next":{"deployment":6,"content":"11"}}"#), "{text}");
        guidance.tables.insert("users".to_owned(), 3);
        let text = String::from_utf8(guidance.encode()).expect("text");
        assert!(text.ends_with(r#""last_deployment":5,"tables":{"users":3}}"#), "{text}");
        assert_eq!(Guidance::decode(text.as_bytes()), Ok(guidance));
    }

    #[test]
    fn what_contradicts_itself_is_refused() {
        let changed = |change: fn(&mut Guidance)| {
            let mut guidance = guidance();
            change(&mut guidance);
            Guidance::decode(&guidance.encode())
        };
        assert!(changed(|_| ()).is_ok());
        assert!(changed(|guidance| guidance.format = 2).is_err());
        assert!(changed(|guidance| guidance.shards[1].owner = 3).is_err());
        assert!(changed(|guidance| guidance.shards[1].replicas = vec![2, 1]).is_err());
        assert!(changed(|guidance| guidance.shards[1].replicas = vec![1, 9]).is_err());
        assert!(changed(|guidance| guidance.shards[1].wanted = vec![1, 9]).is_err());
        assert!(Guidance::decode(b"{}").is_err() && Guidance::decode(b"").is_err());
    }
}
