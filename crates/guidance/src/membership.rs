//! Which nodes there are: they come, they are told to go, and they are gone.

use std::fmt;

use millrace_base::limits;

use crate::document::{Guidance, NodeEntry, RACKS_LEVEL};

/// Nodes that hold each shard in a cluster that grows from one in which all did.
const USUAL_REPLICAS: u16 = 3;

/// The highest number of a node.
const LAST_NODE: u16 = 255;

/// Bytes of a rack's name.
const RACK_BYTES: usize = 64;

/// Whether a text may name a rack.
#[must_use]
pub fn is_rack(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
    (1..=RACK_BYTES).contains(&name.len()) && name.bytes().all(is_plain)
}

/// Why nodes do not change so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// There are as many nodes as there may be, now or ever.
    Full,
    /// Another node has one of the addresses.
    AddressTaken(u16),
    /// Some node does not know racks.
    RacksUnknown,
    /// A rack has a name like that of an app, or none.
    RackName,
    /// There is no such node.
    Unknown(u16),
    /// Too few nodes would stay: so many have to.
    TooFew(usize),
    /// It is not told to go.
    Stays(u16),
    /// It still holds so many logs.
    Holds(u16, usize),
}

impl fmt::Display for Refused {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::Full => formatter.write_str("the cluster takes no more nodes"),
            Refused::AddressTaken(node) => write!(formatter, "node {node} has this address: give another"),
            Refused::RacksUnknown => {
                formatter.write_str("some node's version knows no racks: install this one on all nodes first")
            }
            Refused::RackName => {
                write!(formatter, "a rack's name is 1 to {RACK_BYTES} letters, digits, `.`, `-` and `_`")
            }
            Refused::Unknown(node) => write!(formatter, "the cluster has no node {node}"),
            Refused::TooFew(most) => {
                write!(formatter, "{most} nodes have to stay, so that each shard has its replicas: add a node first")
            }
            Refused::Stays(node) => write!(formatter, "node {node} holds shards: drain it first"),
            Refused::Holds(node, logs) => {
                write!(formatter, "node {node} still holds {logs} shards: wait until it has drained")
            }
        }
    }
}

impl Guidance {
    /// Takes a node that has yet to be started. Gives its number. One that waits at these addresses already keeps its number.
    ///
    /// # Errors
    /// [`Refused`]
    pub fn add_node(&mut self, http: &str, peer: &str, rack: &str) -> Result<u16, Refused> {
        if !rack.is_empty() && !is_rack(rack) {
            return Err(Refused::RackName);
        }
        if !rack.is_empty() && self.feature_level < RACKS_LEVEL {
            return Err(Refused::RacksUnknown);
        }
        let has_address = |(_, entry): &(&u16, &NodeEntry)| entry.http == http || entry.peer == peer;
        if let Some((node, entry)) = self.nodes.iter().find(has_address) {
            let is_same = entry.incarnation == 0 && entry.http == http && entry.peer == peer && entry.rack == rack;
            return if is_same { Ok(*node) } else { Err(Refused::AddressTaken(*node)) };
        }
        let last = self.nodes.keys().copied().max().unwrap_or(0).max(self.last_removed);
        if self.nodes.len() >= limits::CLUSTER_NODES || last >= LAST_NODE {
            return Err(Refused::Full);
        }
        if self.replicas == 0 {
            self.replicas = USUAL_REPLICAS;
        }
        let (http, peer, rack) = (http.to_owned(), peer.to_owned(), rack.to_owned());
        let entry = NodeEntry { http, peer, rack, ..NodeEntry::default() };
        self.nodes.insert(last + 1, entry);
        Ok(last + 1)
    }

    /// Tells a node to go, or to stay.
    ///
    /// # Errors
    /// [`Refused`]
    pub fn drain_node(&mut self, node: u16, is_draining: bool) -> Result<(), Refused> {
        let least = if self.replicas == 0 { usize::from(USUAL_REPLICAS) } else { usize::from(self.replicas) };
        let stays =
            |(other, entry): &(&u16, &NodeEntry)| **other != node && !entry.is_draining && entry.incarnation > 0;
        let staying = self.nodes.iter().filter(stays).count();
        let entry = self.nodes.get_mut(&node).ok_or(Refused::Unknown(node))?;
        if is_draining && entry.incarnation > 0 && staying < least {
            return Err(Refused::TooFew(least));
        }
        entry.is_draining = is_draining;
        Ok(())
    }

    /// Takes a node out that holds nothing any more.
    ///
    /// # Errors
    /// [`Refused`]
    pub fn remove_node(&mut self, node: u16) -> Result<(), Refused> {
        let entry = self.nodes.get(&node).ok_or(Refused::Unknown(node))?;
        if !entry.is_draining && entry.incarnation > 0 {
            return Err(Refused::Stays(node));
        }
        let held = self.shards.iter().filter(|place| place.concerns(node) || place.owner == node).count();
        if held > 0 {
            return Err(Refused::Holds(node, held));
        }
        self.nodes.remove(&node);
        self.last_removed = self.last_removed.max(node);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn guidance(nodes: u16) -> Guidance {
        let entry = |node: u16| NodeEntry {
            http: format!("h{node}"),
            peer: format!("p{node}"),
            is_alive: true,
            incarnation: 1,
            ..NodeEntry::default()
        };
        let entries: BTreeMap<u16, NodeEntry> = (1..=nodes).map(|node| (node, entry(node))).collect();
        Guidance::first(entries, 4, 3)
    }

    #[test]
    fn a_node_that_comes_gets_a_number_that_no_node_ever_had() {
        let mut guidance = guidance(3);
        assert_eq!(guidance.add_node("h4", "p4", ""), Ok(4));
        assert_eq!(guidance.add_node("h4", "p4", ""), Ok(4), "it may be asked twice");
        assert_eq!(guidance.add_node("h4", "p5", ""), Err(Refused::AddressTaken(4)));
        assert_eq!(guidance.add_node("h9", "p1", ""), Err(Refused::AddressTaken(1)));
        assert_eq!(guidance.remove_node(4), Ok(()), "it has never begun");
        assert_eq!(guidance.add_node("h4", "p4", ""), Ok(5));
        assert_eq!(Guidance::decode(&guidance.encode()), Ok(guidance));
    }

    #[test]
    fn a_node_goes_once_it_holds_nothing_and_enough_stay() {
        let mut guidance = guidance(4);
        assert_eq!(guidance.remove_node(4), Err(Refused::Stays(4)));
        assert_eq!(guidance.drain_node(9, true), Err(Refused::Unknown(9)));
        assert_eq!(guidance.drain_node(4, true), Ok(()));
        assert_eq!(guidance.drain_node(3, true), Err(Refused::TooFew(3)));
        assert!(matches!(guidance.remove_node(4), Err(Refused::Holds(4, _))));
        for place in &mut guidance.shards {
            place.replicas = vec![1, 2, 3];
        }
        assert_eq!(guidance.remove_node(4), Ok(()));
        assert_eq!(guidance.drain_node(1, false), Ok(()));
    }
}
