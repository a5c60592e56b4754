//! Which versions of apps nobody needs any more: workflows were the last to run in them.
//!
//! A version is needed while a core has it loaded: a replaced one stays loaded for as long as anything runs in it. Nothing can
//! begin in a version that no core has, so what is forgotten here is missed by nobody who runs. In a cluster all nodes
//! have loaded what any node needs. There a version is needed while something runs in it.
//!
//! A workflow that has ended could come back in a crash, though, if its end was not durable: so the log is waited for.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use millrace_base::Name;
use millrace_driver::{CoreVersions, ShardLog};
use tokio::sync::{MutexGuard, oneshot};

use crate::core::{DeployState, NodeMessage, Shared};

/// Between two looks whether the log is durable, and how often that is looked at: what is left over goes with the next version.
const PAUSE: Duration = Duration::from_millis(500);
const LOOKS: usize = 60;

/// What all cores need.
pub(crate) struct Needed {
    pub versions: BTreeSet<(Name, u64)>,
    /// The shards that this is said of, as they were then.
    pub logs: Vec<ShardLog>,
}

async fn ask(shared: &Shared) -> Option<CoreVersions> {
    let mut all = CoreVersions::default();
    for core in 0..shared.cores.len() {
        let (done, answer) = oneshot::channel();
        shared.send(core, NodeMessage::Versions { done });
        let CoreVersions { needed, logs } = answer.await.ok()??;
        all.needed.extend(needed);
        all.logs.extend(logs);
    }
    Some(all)
}

/// What is needed, once the end of what needs the other versions no more is durable. `None` where that is not known yet, or
/// does not come about. No version is loaded while the guard is there.
pub(crate) async fn needed(shared: &Shared) -> Option<(Needed, MutexGuard<'_, DeployState>)> {
    let before = {
        let _no_other_version = shared.deploying.lock().await;
        ask(shared).await?
    };
    for _ in 0..LOOKS {
        tokio::time::sleep(PAUSE).await;
        // What is kept for a version that is just being loaded must not go.
        let no_other_version = shared.deploying.lock().await;
        let now = ask(shared).await?;
        let openings = |logs: &[ShardLog]| logs.iter().map(|log| (log.shard, log.incarnation)).collect::<Vec<_>>();
        if openings(&before.logs) != openings(&now.logs) {
            return None; // Shards came or went: what those need was not asked before.
        }
        if before.logs.iter().zip(&now.logs).all(|(before, now)| now.durable >= before.appended) {
            let versions = before.needed.union(&now.needed).cloned().collect();
            return Some((Needed { versions, logs: now.logs }, no_other_version));
        }
    }
    None
}

/// Deletes the files of versions that nobody needs. To be called when a core has unloaded one.
pub(crate) async fn forget(shared: Arc<Shared>) {
    let Some((needed, _no_other_version)) = needed(&shared).await else { return };
    let apps = shared.apps.clone();
    let needed: BTreeSet<String> =
        needed.versions.iter().map(|(name, version)| format!("{name}-{version:016x}")).collect();
    let forgotten = tokio::task::spawn_blocking(move || apps.forget_versions(|file| needed.contains(file))).await;
    if let Ok(Err(error)) = forgotten {
        tracing::warn!(%error, "versions of apps that nobody needs could not be deleted");
    }
}
