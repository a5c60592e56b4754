//! The guidance as `GET /cluster` shows it: what the cluster has agreed on, and whom this node hears.

use bytes::Bytes;
use millrace_base::{Error, ErrorCode};
use millrace_peers::fingerprint;
use millrace_replica::NodeId;
use serde_json::{Value, json};

use super::Cluster;

impl Cluster {
    /// JSON: the guidance, with `node`, `leader`, `authority`, `has_majority`, and for each node `is_heard`.
    ///
    /// # Errors
    /// `overloaded` before this node follows the cluster: what it knows may be old. `node-removed`.
    pub(crate) fn view(&self, now_ns: u64) -> Result<Bytes, Error> {
        self.check_guided()?;
        let failed = |_| Error::new(ErrorCode::Internal, "the guidance cannot be shown");
        let mut shown = serde_json::to_value(&*self.guidance()).map_err(failed)?;
        shown["node"] = json!(self.me().0);
        shown["leader"] = json!(self.leader().map(|leader| leader.0));
        shown["authority"] = json!(fingerprint(&self.options.identity.authority));
        shown["has_majority"] = json!(self.hears_majority(now_ns));
        for (node, entry) in shown["nodes"].as_object_mut().into_iter().flatten() {
            let is_heard = node.parse().is_ok_and(|node| self.hears(NodeId(node), now_ns));
            if let Value::Object(entry) = entry {
                entry.insert("is_heard".to_owned(), Value::Bool(is_heard));
            }
        }
        serde_json::to_vec(&shown).map(Bytes::from).map_err(failed)
    }
}
