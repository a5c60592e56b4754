//! Workers that have dialled in, as the nodes tell each other of them.

use millrace_base::limits;
use millrace_guidance::{DIALLED_VERSIONS, Dialled, STREAMS_LEVEL, WORKER_SIGNATURES_LEVEL};

use super::{Cluster, locked};
use crate::core::Shared;

/// Versions of workers that are connected to this node.
pub(super) fn here(shared: &Shared) -> Vec<Dialled> {
    let versions = shared.outside.workers.dialled().into_iter().take(DIALLED_VERSIONS);
    versions.map(|(app, version)| Dialled { app, version }).collect()
}

impl Cluster {
    /// Whether all nodes can exchange turns with workers on streams.
    pub(crate) fn knows_streams(&self) -> bool {
        self.guidance().feature_level >= STREAMS_LEVEL
    }

    /// Whether all nodes can sign requests to workers with keys of their own.
    pub(crate) fn knows_worker_signatures(&self) -> bool {
        self.guidance().feature_level >= WORKER_SIGNATURES_LEVEL
    }

    /// The content of an app that is deployed, as this node knows it; none if there is no such app.
    pub(crate) fn content_of(&self, app: &str) -> String {
        self.guidance().apps.get(app).map_or_else(String::new, |entry| entry.content.clone())
    }

    /// Whether a worker of this version is connected to another node that this one hears.
    pub(crate) fn has_dialled_elsewhere(&self, app: &str, version: u64, now_ns: u64) -> bool {
        let others = locked(&self.others);
        let is_late = |heard_ns: u64| now_ns >= heard_ns.saturating_add(limits::UNREACHED_MS * 1_000_000);
        let is_it = |dialled: &Dialled| dialled.app == app && dialled.version == version;
        others.values().any(|other| !is_late(other.heard_ns) && other.dialled.iter().any(is_it))
    }
}
