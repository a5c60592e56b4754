//! What a node says of itself to all others, some ten times a second.

use serde::{Deserialize, Serialize};

use crate::document::{GuidanceError, is_zero};

/// One node's word.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Status {
    /// Which start of the node says this.
    pub incarnation: u64,
    /// The [`crate::FEATURE_LEVEL`] of its program.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub feature_level: u32,
    /// The guidance that it follows.
    pub guidance_epoch: u64,
    /// The last deployment that it has loaded, or refused.
    pub last_deployment: u32,
    /// Whether its logs lack little of what their owners have committed. Only such a node is given shards for balance.
    pub is_caught_up: bool,
    /// Appointments that it cannot follow, or not yet.
    pub obstacles: Vec<Obstacle>,
    /// Shards that it serves and whose logs other nodes hold than guidance says.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub held: Vec<Held>,
    /// Shards that it serves in a later epoch than guidance says: they were handed to it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub opened: Vec<Opened>,
    /// The last guidance of which this node knew that all nodes follow it, at some moment at which nothing was under way here.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub quiet_epoch: u64,
    /// A guidance that all nodes followed when this node began to look for bodies of objects. Since then it has all bodies that
    /// were there by then, of all shards that this guidance has it hold. 0: it has not said.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub bodies_epoch: u64,
    /// Shards of which it lacks bodies all the same, ascending: the nodes that have such a body cannot read it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<u16>,
    /// Its replica of the guidance has lost what it knew, and asks the others.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_resyncing: bool,
    /// Shards whose replicas here have lost what they knew, and ask the others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resyncing: Vec<u16>,
    /// Shards that broke here, ascending: somebody else should own them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stopped: Vec<u16>,
    /// Versions of workers that have dialled in at this node and are connected: [`DIALLED_VERSIONS`] at most.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dialled: Vec<Dialled>,
    /// What its shards need no more of the versions that are kept.
    #[serde(default, skip_serializing_if = "Unneeded::is_empty")]
    pub unneeded: Unneeded,
    /// It is about to stop, or its disk is full: others should own its shards.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_leaving: bool,
}

/// Versions of apps that a node's shards need no more. That is so for good: nothing begins in them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Unneeded {
    /// The versions, by their deployments.
    pub deployments: Vec<u32>,
    /// The shards that this is said of.
    pub shards: Vec<Opened>,
}

impl Unneeded {
    fn is_empty(&self) -> bool {
        self.deployments.is_empty()
    }
}

/// How many versions of workers a node tells the others of. They count as not connected beyond that.
pub const DIALLED_VERSIONS: usize = 256;

/// A version of an app's workers that dial in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dialled {
    /// The app.
    pub app: String,
    /// What tells its workers from others of the app.
    pub version: u64,
}

/// A shard that a node serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Opened {
    /// The shard.
    pub shard: u16,
    /// In which epoch.
    pub epoch: u64,
}

/// Who holds the log of a shard, as its owner knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Held {
    /// The shard.
    pub shard: u16,
    /// The owner's epoch.
    pub epoch: u64,
    /// Where in the log that was agreed on. It is committed.
    pub agreed: u64,
    /// The nodes that count, ascending.
    pub replicas: Vec<u16>,
}

/// Why a node does not serve a shard that it was appointed to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Obstacle {
    /// The shard.
    pub shard: u16,
    /// The epoch of the appointment.
    pub epoch: u64,
    /// A higher epoch that a replica has promised; else 0.
    pub promised: u64,
    /// A node that has entries which this one cannot get any more; else 0.
    pub best: u16,
}

impl Status {
    /// The bytes of a message: JSON.
    ///
    /// # Panics
    /// Never: numbers and lists are always JSON.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("a status is numbers and lists")
    }

    /// Reads a message.
    ///
    /// # Errors
    /// [`GuidanceError`] for anything else.
    pub fn decode(bytes: &[u8]) -> Result<Self, GuidanceError> {
        serde_json::from_slice(bytes).map_err(|error| GuidanceError::of(&error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nodes refuse what they do not know, so a field that is empty is not said.
    #[test]
    fn versions_of_workers_are_said_where_there_are_any() {
        let mut status = Status::default();
        assert!(!String::from_utf8_lossy(&status.encode()).contains("dialled"));
        status.dialled = vec![Dialled { app: "bank".to_owned(), version: u64::MAX }];
        assert_eq!(Status::decode(&status.encode()), Ok(status));
    }

    #[test]
    fn what_a_node_has_of_bodies_is_said_once_it_is_known() {
        let golden = concat!(
            r#"{"incarnation":0,"guidance_epoch":9,"last_deployment":0,"is_caught_up":false,"obstacles":[],"#,
            r#""bodies_epoch":7}"#
        );
        let mut status = Status { guidance_epoch: 9, bodies_epoch: 7, ..Status::default() };
        assert_eq!(String::from_utf8(status.encode()).as_deref(), Ok(golden));
        assert_eq!(Status::decode(golden.as_bytes()), Ok(status.clone()));
        status.bodies_epoch = 0;
        assert!(!String::from_utf8_lossy(&status.encode()).contains("bodies"));
    }

    #[test]
    fn shards_with_bodies_that_nobody_can_read_are_said() {
        let golden = concat!(
            r#"{"incarnation":0,"guidance_epoch":9,"last_deployment":0,"is_caught_up":false,"obstacles":[],"#,
            r#""bodies_epoch":7,"unreadable":[3,5]}"#
        );
        let status = Status { guidance_epoch: 9, bodies_epoch: 7, unreadable: vec![3, 5], ..Status::default() };
        assert_eq!(String::from_utf8(status.encode()).as_deref(), Ok(golden));
        assert_eq!(Status::decode(golden.as_bytes()), Ok(status));
    }
}
