//! The guidance as `GET /cluster` shows it: what the cluster has agreed on, and whom this node hears.

use bytes::Bytes;
use millrace_base::{Error, ErrorCode};
use millrace_peers::fingerprint;
use millrace_replica::NodeId;
use serde_json::{Value, json};

use super::Cluster;

impl Cluster {
    /// JSON: the guidance, with `node`, `leader`, `feature_level`, `authority`, `has_majority`, `is_majority_lost`, `lost_shards`,
    /// `quarantined_shards`, `unreadable_shards`, and for each node `is_heard`, `feature_level`, `has_lost_data` and `stopped_shards`.
    ///
    /// # Errors
    /// `overloaded` before this node follows the cluster: what it knows may be old. `node-removed`.
    pub(crate) fn view(&self, now_ns: u64) -> Result<Bytes, Error> {
        // What a node knows while a majority is lost helps whoever mends that.
        if self.is_removed() || !self.is_guided() {
            self.check_guided()?;
        }
        let failed = |_| Error::new(ErrorCode::Internal, "the guidance cannot be shown");
        let guidance = self.guidance();
        let mut shown = serde_json::to_value(&*guidance).map_err(failed)?;
        shown["node"] = json!(self.me().0);
        shown["leader"] = json!(self.leader().map(|leader| leader.0));
        shown["feature_level"] = json!(guidance.feature_level);
        shown["authority"] = json!(fingerprint(&self.options.identity.authority));
        shown["has_majority"] = json!(self.hears_majority(now_ns));
        shown["is_majority_lost"] = json!(self.is_guidance_lost());
        shown["lost_shards"] = json!(self.lost_shards());
        shown["quarantined_shards"] = json!(self.quarantined_shards());
        shown["unreadable_shards"] = json!(self.unreadable_shards());
        for (node, entry) in shown["nodes"].as_object_mut().into_iter().flatten() {
            let node = NodeId(node.parse().unwrap_or_default());
            if let Value::Object(entry) = entry {
                entry.insert("is_heard".to_owned(), Value::Bool(self.hears(node, now_ns)));
                let level = guidance.nodes.get(&node.0).map_or(0, |entry| entry.feature_level);
                entry.insert("feature_level".to_owned(), json!(level));
                entry.insert("has_lost_data".to_owned(), Value::Bool(self.has_lost_guidance(node)));
                entry.insert("stopped_shards".to_owned(), json!(self.stopped_at(node)));
            }
        }
        serde_json::to_vec(&shown).map(Bytes::from).map_err(failed)
    }
}
