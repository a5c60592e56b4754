//! Versions of apps that guidance keeps for workflows: what this node needs of them, and what is kept.
//!
//! `docs/internals/guidance.md` says when a version is forgotten, and why that is safe.

use std::sync::Arc;
use std::time::Duration;

use millrace_base::{Error, ErrorCode, limits};
use millrace_format::Write;
use millrace_func::{HandlerKind, Loaded};
use millrace_guidance::{AppEntry, Guidance, KeptApp, Opened, Unneeded};
use millrace_store::Store;

use super::{Cluster, locked, rows};
use crate::core::Shared;
use crate::versions::needed;

/// Between two looks at what is needed.
const LOOK: Duration = Duration::from_secs(1);

/// Tells the others what this node's shards need no more, for as long as the node runs.
pub(crate) async fn watch(shared: Arc<Shared>, cluster: Arc<Cluster>) {
    loop {
        tokio::time::sleep(LOOK).await;
        let kept = cluster.guidance().kept.clone();
        let unneeded = match kept.is_empty() {
            true => Unneeded::default(),
            false => unneeded(&shared, &kept).await,
        };
        let is_news = std::mem::replace(&mut *locked(&cluster.unneeded), unneeded.clone()) != unneeded;
        if is_news {
            cluster.speak_soon();
        }
    }
}

async fn unneeded(shared: &Shared, kept: &[KeptApp]) -> Unneeded {
    let Some((needed, _guard)) = needed(shared).await else { return Unneeded::default() };
    let is_needed = |kept: &&KeptApp| {
        let is_it = |app: &str, version: u64| app == kept.app && format!("{version:016x}") == kept.content;
        needed.versions.iter().any(|(app, version)| is_it(app.as_str(), *version))
    };
    let deployments = kept.iter().filter(|kept| !is_needed(kept)).map(|kept| kept.deployment).collect();
    let shards = needed.logs.iter().map(|log| Opened { shard: log.shard.0, epoch: log.incarnation }).collect();
    Unneeded { deployments, shards }
}

/// The leader's part when an app was replaced or removed: what served is kept if workflows may run in it, else its files go.
/// `loaded` is what this node knows of it.
pub(super) fn replaced(
    next: &mut Guidance,
    (app, before): (&str, &AppEntry),
    loaded: Option<&Loaded>,
    store: Option<&mut Store>,
) -> Vec<Write> {
    let has_workflows = loaded.is_none_or(|loaded| {
        let mut handlers = loaded.services.iter().flat_map(|service| &service.handlers);
        handlers.any(|(_, kind)| *kind == HandlerKind::Workflow)
    });
    if has_workflows {
        next.keep(app, before);
    }
    match store.filter(|_| !next.needs_files(app, &before.content)) {
        Some(store) => rows::deletions_of_app(store, app, &before.content),
        None => Vec::new(),
    }
}

/// Refuses what would have one more version kept than may be.
///
/// # Errors
/// `overloaded`.
pub(super) fn refuse_if_full(present: &Guidance) -> Result<(), Error> {
    if present.kept.len() < limits::KEPT_VERSIONS {
        return Ok(());
    }
    let message = format!(
        "workflows still run in {} versions of apps that were replaced, and no more are kept: wait until some have ended, cancel \
         them, or restart them with --on-newest",
        present.kept.len()
    );
    Err(Error::new(ErrorCode::Overloaded, message))
}

/// The deletions of files that the next guidance needs no more.
pub(super) fn forgotten(present: &Guidance, next: &Guidance, store: Option<&mut Store>) -> Vec<Write> {
    let Some(store) = store else { return Vec::new() };
    let is_gone = |kept: &&KeptApp| !next.needs_files(&kept.app, &kept.content);
    let gone = present.kept.iter().filter(is_gone);
    gone.flat_map(|kept| rows::deletions_of_app(store, &kept.app, &kept.content)).collect()
}
