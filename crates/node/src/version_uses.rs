//! What still runs in each version of an app, so that whoever runs the workers of a replaced one knows when to stop them.

use std::collections::BTreeMap;
use std::sync::Arc;

use millrace_api::{AppVersion, Permission, Principal};
use millrace_base::{Error, ErrorCode, ShardId, limits};
use millrace_driver::question::ListWorkflows;
use millrace_shard::Listed;
use tokio::sync::oneshot;

use crate::backend::{CoreHandle, catalog};
use crate::core::NodeMessage;
use crate::deploy;

/// Workflows looked at for one answer. Beyond that it says that there are more.
const LOOKED_AT: u64 = 200_000;

/// The versions of an app: the deployed one first, then those that something still runs in or that are still loaded.
///
/// # Errors
/// `unknown-app`; those of a shard that cannot be asked.
pub(crate) async fn list(node: &CoreHandle, principal: &Principal, app: &str) -> Result<Vec<AppVersion>, Error> {
    principal.require(Permission::Deploy)?;
    let mut versions = loaded(node, app)?;
    count_workflows(node, app, &mut versions).await?;
    count_transactions(node, app, &mut versions).await?;
    let mut versions: Vec<AppVersion> = versions.into_values().collect();
    if versions.is_empty() {
        return Err(Error::new(ErrorCode::UnknownApp, format!("no app {app:?} is deployed, and nothing runs in one")));
    }
    versions.sort_by_key(|version| !version.is_deployed);
    Ok(versions)
}

type Versions = BTreeMap<u64, AppVersion>;

fn of(versions: &mut Versions, version: u64) -> &mut AppVersion {
    versions.entry(version).or_insert_with(|| AppVersion { version, ..AppVersion::default() })
}

fn loaded(node: &CoreHandle, app: &str) -> Result<Versions, Error> {
    let core = node.core().borrow();
    let catalog = catalog(&core)?;
    let mut versions = Versions::new();
    for (_, loaded) in catalog.versions_of(app) {
        of(&mut versions, loaded.version).worker_url.clone_from(&loaded.worker_url);
    }
    if let Some(deployed) = deploy::current(catalog, app) {
        of(&mut versions, deployed.version).is_deployed = true;
    }
    Ok(versions)
}

/// Workflows that have begun keep the version that they began in.
async fn count_workflows(node: &CoreHandle, app: &str, versions: &mut Versions) -> Result<(), Error> {
    let mut looked_at = 0;
    for shard in (0..node.shard_count()).map(ShardId) {
        let mut after = None;
        loop {
            let asked = ListWorkflows { after, limit: limits::MOST_PAGE_ITEMS, is_live_only: true };
            let Listed { items, has_more } = node.ask(shard, asked).await?;
            looked_at += items.len() as u64;
            after = items.last().map(|row| (row.record.has_ended, row.id));
            // One that has yet to begin begins in the version that is deployed then.
            for row in items.iter().filter(|row| row.due.is_none() && row.record.app == app) {
                of(versions, row.record.version).workflows += 1;
            }
            // A page of rows that cannot be read gives nothing to go on from.
            if looked_at >= LOOKED_AT || has_more && after.is_none() {
                versions.values_mut().for_each(|version| version.has_more_workflows = true);
                return Ok(());
            }
            if !has_more {
                break;
            }
        }
    }
    Ok(())
}

async fn count_transactions(node: &CoreHandle, app: &str, versions: &mut Versions) -> Result<(), Error> {
    let (shared, app) = (node.shared(), Arc::<str>::from(app));
    for core in 0..shared.cores.len() {
        let (done, answer) = oneshot::channel();
        shared.send(core, NodeMessage::TransactionsByVersion { app: Arc::clone(&app), done });
        for (version, count) in answer.await.map_err(|_| deploy::stopping())? {
            of(versions, version).transactions += count as u64;
        }
    }
    Ok(())
}
