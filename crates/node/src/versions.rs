//! Forgets versions of apps that were kept for workflows and that none needs any more.
//!
//! A version is needed while a core has it loaded: a replaced one stays loaded for as long as anything runs in it. Nothing can
//! begin in a version that no core has, so what is forgotten here is missed by nobody who runs. A workflow that has ended
//! could come back in a crash, though, if its end was not durable: so the log is waited for.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use millrace_driver::CoreVersions;
use tokio::sync::oneshot;

use crate::core::{NodeMessage, Shared};

/// Between two looks whether the log is durable, and how often that is looked at: what is left over goes with the next version.
const PAUSE: Duration = Duration::from_millis(500);
const LOOKS: usize = 60;

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

/// Deletes the files of versions that nobody needs. To be called when a core has unloaded one.
pub(crate) async fn forget(shared: Arc<Shared>) {
    let before = {
        let _no_other_version = shared.deploying.lock().await;
        ask(&shared).await
    };
    let Some(before) = before else { return };
    for _ in 0..LOOKS {
        tokio::time::sleep(PAUSE).await;
        // What is kept for a version that is just being loaded must not go.
        let _no_other_version = shared.deploying.lock().await;
        let Some(now) = ask(&shared).await else { return };
        let is_durable =
            before.logs.iter().zip(&now.logs).all(|((_, appended, _), (_, _, durable))| durable >= appended);
        if !is_durable {
            continue;
        }
        let needed: BTreeSet<String> =
            before.needed.union(&now.needed).map(|(name, version)| format!("{name}-{version:016x}")).collect();
        let apps = shared.apps.clone();
        let forgotten = tokio::task::spawn_blocking(move || apps.forget_versions(|file| needed.contains(file))).await;
        if let Ok(Err(error)) = forgotten {
            tracing::warn!(%error, "versions of apps that nobody needs could not be deleted");
        }
        return;
    }
}
