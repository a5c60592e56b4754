//! The files of built-in apps, and what follows from their replacement.
//!
//! A built-in app differs from users' apps. Nobody deploys it under its name, or reaches its services by the paths of services.
//! Its handlers are all private. Only a caller who has seen its present version replaces it.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use bytes::Bytes;
use millrace_api::{AppFile, Permission, Principal, RECORDS_APP, SHARD_SERVICE, SWEEP_HANDLER, SystemApp, is_built_in};
use millrace_base::{Error, ErrorCode, Name, ShardId};
use millrace_driver::{Call, Enqueue, Request};
use millrace_func::{App, HandlerId};
use millrace_shard::Invoke;

use crate::apps::{app_from_files, version_of};
use crate::backend::{CoreHandle, info};
use crate::cluster;
use crate::core::Shared;
use crate::deploy;
use crate::records::are_there;

/// How long to wait before shards that could not take a sweep are asked again: twice as long each time, up
/// to the longest.
const FIRST_RETRY_MS: u64 = 500;
const LONGEST_RETRY_MS: u64 = 30_000;

/// What tells a sweep that nothing of the version before runs any more.
const ALONE: &[u8] = br#"{"alone":true}"#;

/// How often it is looked whether nothing is under way, and the pause between: no longer than sweeps wait by
/// themselves.
const QUIET_ATTEMPTS: usize = 200;
const QUIET_PAUSE: Duration = Duration::from_millis(50);

/// Refuses to deploy or remove the built-in app as if it were a user's.
pub(crate) fn refuse_system_name(app: &str) -> Result<(), Error> {
    if is_built_in(app) {
        let message = format!("the app {app:?} is built in: give yours another name");
        return Err(Error::new(ErrorCode::AppRefused, message));
    }
    Ok(())
}

fn as_system_app(app: &App) -> SystemApp {
    let file = |(path, content): (&String, &Vec<u8>)| AppFile { path: path.clone(), content: content.clone() };
    SystemApp { version: version_of(app), files: Arc::new(app.files.iter().map(file).collect()) }
}

/// The built-in apps as they are kept.
pub(crate) fn system_apps(kept: &[App]) -> RwLock<BTreeMap<String, SystemApp>> {
    let found = kept.iter().find(|app| app.name.as_str() == RECORDS_APP);
    let app = found.map(as_system_app).unwrap_or_default();
    RwLock::new(BTreeMap::from([(RECORDS_APP.to_owned(), app)]))
}

fn current(shared: &Shared, app: &str) -> Result<SystemApp, Error> {
    let apps = shared.system_apps.read().unwrap_or_else(PoisonError::into_inner);
    let unknown = || Error::new(ErrorCode::UnknownApp, format!("no app {app:?} is built in"));
    apps.get(app).cloned().ok_or_else(unknown)
}

/// A built-in app has been replaced on this node.
pub(crate) fn note_replaced(shared: &Shared, app: &App) {
    let mut apps = shared.system_apps.write().unwrap_or_else(PoisonError::into_inner);
    apps.insert(app.name.to_string(), as_system_app(app));
}

pub(crate) fn replaced_meanwhile(app: &str) -> Error {
    Error::new(ErrorCode::PreconditionFailed, format!("the app {app:?} has been replaced meanwhile"))
}

/// What `Deployments::system_app` gives.
pub(crate) fn system_app(shared: &Shared, principal: &Principal, app: &str) -> Result<SystemApp, Error> {
    if !principal.may_read_something_of(app) && !principal.may(Permission::Deploy) {
        return Err(Error::new(ErrorCode::Forbidden, format!("this needs the role deploy or call:{app}/*")));
    }
    current(shared, app)
}

/// Replaces a built-in app if its version still is `expected`, and has its types swept whose definition
/// has changed. Gives its new version.
///
/// Runs as a task of its own: a caller that goes away leaves no app half replaced or unswept.
pub(crate) async fn replace(node: &CoreHandle, app: &str, expected: u64, files: Vec<AppFile>) -> Result<u64, Error> {
    let shared = node.shared();
    current(&shared, app)?;
    let app = app_from_files(app, files)?;
    let node = node.clone();
    let task = tokio::task::spawn_local(async move {
        if let Some(cluster) = &shared.cluster {
            return cluster::replace(&node, cluster, app, expected).await;
        }
        let mut state = shared.deploying.lock().await;
        let present = current(&shared, app.name.as_str())?.version;
        if present != expected {
            return Err(replaced_meanwhile(app.name.as_str()));
        }
        let version = version_of(&app);
        let prepared = deploy::prepare(&shared, &mut state, app).await?;
        let app = prepared.app();
        if let Err(error) = empty(&node, &prepared).await {
            deploy::discard(&shared, &prepared);
            return Err(error);
        }
        let sweeps = deploy::complete(&shared, &mut state, prepared).await?.sweeps;
        note_replaced(&shared, &app);
        // All cores serve the new version by now: no shard is swept in the one before.
        tokio::task::spawn_local(async move {
            sweep_services(&node, &sweeps).await;
            hasten(&node, version, &sweeps).await;
        });
        Ok(version)
    });
    task.await.unwrap_or_else(|_| Err(deploy::stopping()))
}

/// Sees to it that types which go are without records, unless by force, and stay so: whoever looked before
/// may have looked too early. From here on nobody writes records of theirs, and what had begun to is seen. Nothing of
/// this is on the disk: a crash leaves the type, or, once the new version is kept, takes it away.
async fn empty(node: &CoreHandle, prepared: &deploy::Prepared) -> Result<(), Error> {
    refuse_if_used(node, &deploy::close(&node.shared(), prepared).await?).await
}

/// Refuses to let types go that have records.
pub(crate) async fn refuse_if_used(node: &CoreHandle, types: &[Name]) -> Result<(), Error> {
    for name in types {
        if are_there(node, name.as_str()).await? {
            let message = format!("the type {:?} has records: delete them first, or force it", name.as_str());
            return Err(Error::new(ErrorCode::TypeInUse, message));
        }
    }
    Ok(())
}

pub(crate) fn find_sweep(node: &CoreHandle, service: &str) -> Result<HandlerId, Error> {
    node.core().borrow().programs.catalog.find(RECORDS_APP, service, SWEEP_HANDLER)
}

pub(crate) async fn sweep_service<R: Request<Reply: 'static>>(
    node: &CoreHandle,
    service: &str,
    request: impl Fn(ShardId, Invoke) -> R,
    input: &'static [u8],
) -> Result<(), Error> {
    let mut begun = Vec::new();
    for (shard, key) in (0u16..).map(ShardId).zip(node.shared().shard_keys.iter()) {
        let invoke = {
            let handler = find_sweep(node, service)?;
            let mut core = node.core().borrow_mut();
            let info = info(&mut core, None);
            Invoke { info, handler, key: key.as_slice().into(), input: Bytes::from_static(input) }
        };
        begun.push(node.begin(request(shard, invoke)));
    }
    let mut result = Ok(());
    for begun in begun {
        // What one shard cannot do is no reason to keep the others from it.
        result = match begun.reply().await {
            Ok(_) => result,
            Err(error) => result.and(Err(error)),
        };
    }
    result
}

/// Begins the sweeps of services in the background, again and again until every shard has taken its message.
/// One that is there twice is no harm: the later overtakes the earlier one.
pub(crate) async fn sweep_services(node: &CoreHandle, services: &[Name]) {
    let send = |shard, invoke| Enqueue { shard, invoke, delay_ms: 0 };
    for service in services {
        let mut wait_ms = FIRST_RETRY_MS;
        while let Err(error) = sweep_service(node, service.as_str(), send, b"").await {
            let is_gone = find_sweep(node, service.as_str()).is_err();
            // The next start begins them anyway.
            let is_hopeless = matches!(error.code, ErrorCode::ShardStopped | ErrorCode::ShuttingDown);
            if is_gone || is_hopeless {
                break;
            }
            tracing::warn!(%error, service = service.as_str(), "records are not brought to their definition yet");
            tokio::time::sleep(Duration::from_millis(wait_ms)).await;
            wait_ms = (wait_ms * 2).min(LONGEST_RETRY_MS);
        }
    }
}

/// Sweeps wait until no transaction can run any more that began in the version before. On a node with little
/// to do that is known sooner: then they are told so, by calls that all end before another version serves.
async fn hasten(node: &CoreHandle, version: u64, services: &[Name]) {
    let shared = node.shared();
    for _ in 0..QUIET_ATTEMPTS {
        if services.is_empty() {
            return;
        }
        {
            let _no_other_version = shared.deploying.lock().await;
            if current(&shared, RECORDS_APP).map(|app| app.version) != Ok(version) {
                return;
            }
            if deploy::is_quiet(&shared).await {
                for service in services {
                    // What it cannot hasten goes on in its time.
                    let call = |shard, invoke| Call { shard, invoke };
                    let _ = sweep_service(node, service.as_str(), call, ALONE).await;
                }
                return;
            }
        }
        tokio::time::sleep(QUIET_PAUSE).await;
    }
}

/// After a start: a crash may have come between the replacement of a definition and the sweeps that
/// follow from it.
pub(crate) async fn sweep_everything(node: CoreHandle) {
    let services: Vec<Name> = {
        let core = node.core().borrow();
        let catalog = &core.programs.catalog;
        let records = catalog.apps().find(|(name, _)| name.as_str() == RECORDS_APP);
        let loaded = records.and_then(|(_, program)| catalog.program(program));
        let names = loaded.iter().flat_map(|loaded| &loaded.services).map(|service| &service.name);
        names.filter(|name| name.as_str().ends_with(SHARD_SERVICE)).cloned().collect()
    };
    sweep_services(&node, &services).await;
}
