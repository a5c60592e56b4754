//! The files of built-in apps, and what follows from their replacement.
//!
//! A built-in app differs from users' apps. Nobody deploys it under its name, or reaches its services by the paths of services.
//! Its handlers are all private. Only a caller who has seen its present version replaces it.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use bytes::Bytes;
use millrace_api::{
    AppFile, BUILT_IN_APPS, BuiltInApp, Permission, Principal, SHARD_SERVICE, SWEEP_HANDLER, SystemApp, built_in_app,
    is_built_in,
};
use millrace_base::{Error, ErrorCode, Name, NameError, ShardId};
use millrace_driver::question::HasEntities;
use millrace_driver::{Call, Enqueue, Request};
use millrace_func::{App, HandlerId, Limits};
use millrace_shard::Invoke;

use crate::apps::{app_from_files, version_of};
use crate::backend::{CoreHandle, info};
use crate::cluster;
use crate::core::Shared;
use crate::deploy;
use crate::node::StartError;

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

/// The apps that are always there: they have no files, as their engines are their code.
pub(crate) fn apps_without_files() -> Result<Vec<App>, StartError> {
    let app_of = |app: &BuiltInApp| {
        let broken = |error: NameError| Error::new(ErrorCode::Internal, error.to_string());
        let name = Name::new(app.name).map_err(|error| StartError::App(app.name.to_owned(), broken(error)))?;
        Ok(App { limits: Limits { key_bytes: app.key_bytes, ..Limits::default() }, ..App::new(name) })
    };
    BUILT_IN_APPS.into_iter().filter(|app| app.files.is_none()).map(app_of).collect()
}

/// Refuses a user's own app of a name that is a built-in app's now: it was deployed before that app was there.
pub(crate) fn refuse_users_own(kept: &[App]) -> Result<(), StartError> {
    let is_users_own = |app: &&App| built_in_app(app.name.as_str()).is_some_and(|built_in| built_in.files.is_none());
    let Some(App { name, .. }) = kept.iter().find(is_users_own) else { return Ok(()) };
    let message = format!(
        "the app {:?} that is kept is a user's own, and its name is the built-in app's now: serve it with the program \
         that it was deployed to, deploy it there under another name and remove this one",
        name.as_str()
    );
    Err(StartError::App(name.to_string(), Error::new(ErrorCode::AppRefused, message)))
}

/// Refuses to reach a built-in app by the paths of services.
pub(crate) fn refuse_built_in(app: Option<&str>) -> Result<(), Error> {
    match app.and_then(built_in_app) {
        None => Ok(()),
        Some(BuiltInApp { name, reached, .. }) => {
            Err(Error::new(ErrorCode::UnknownApp, format!("the app {name:?} is built in: {reached}")))
        }
    }
}

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

/// The built-in apps that have files, as they are kept.
pub(crate) fn system_apps(kept: &[App]) -> RwLock<BTreeMap<String, SystemApp>> {
    let as_kept = |built_in: &BuiltInApp| {
        let found = kept.iter().find(|app| app.name.as_str() == built_in.name);
        (built_in.name.to_owned(), found.map(as_system_app).unwrap_or_default())
    };
    RwLock::new(BUILT_IN_APPS.into_iter().filter(|app| app.files.is_some()).map(as_kept).collect())
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

/// Replaces a built-in app if its version still is `expected`, and has its services swept whose definition
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
            hasten(&node, (app.name.as_str(), version), &sweeps).await;
        });
        Ok(version)
    });
    task.await.unwrap_or_else(|_| Err(deploy::stopping()))
}

/// Sees to it that services which go are without entities, unless by force, and stay so: whoever looked before
/// may have looked too early. From here on nobody writes entities of theirs, and what had begun to is seen. Nothing of
/// this is on the disk: a crash leaves the service, or, once the new version is kept, takes it away.
async fn empty(node: &CoreHandle, prepared: &deploy::Prepared) -> Result<(), Error> {
    let going = deploy::close(&node.shared(), prepared).await?;
    refuse_if_used(node, prepared.app().name.as_str(), &going).await
}

/// Refuses to let services of a built-in app go that have entities.
pub(crate) async fn refuse_if_used(node: &CoreHandle, app: &str, services: &[Name]) -> Result<(), Error> {
    let Some(files) = built_in_app(app).and_then(|app| app.files.as_ref()) else { return Ok(()) };
    for service in services {
        if has_entities(node, app, service.as_str()).await? {
            return Err((files.service_in_use)(service.as_str()));
        }
    }
    Ok(())
}

/// Whether any shard has an entity of a service.
pub(crate) async fn has_entities(node: &CoreHandle, app: &str, service: &str) -> Result<bool, Error> {
    for shard in (0..node.shard_count()).map(ShardId) {
        if node.ask(shard, HasEntities { app: app.into(), service: service.into() }).await? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// A service of a built-in app that brings what a shard keeps to the present definition.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Swept {
    pub app: Name,
    pub service: Name,
}

impl Swept {
    /// `None` for what cannot be names.
    pub(crate) fn of(app: &str, service: &str) -> Option<Self> {
        Some(Self { app: Name::new(app).ok()?, service: Name::new(service).ok()? })
    }
}

pub(crate) fn find_sweep(node: &CoreHandle, Swept { app, service }: &Swept) -> Result<HandlerId, Error> {
    node.core().borrow().programs.catalog.find(app.as_str(), service.as_str(), SWEEP_HANDLER)
}

pub(crate) async fn sweep_service<R: Request<Reply: 'static>>(
    node: &CoreHandle,
    service: &Swept,
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
pub(crate) async fn sweep_services(node: &CoreHandle, services: &[Swept]) {
    let send = |shard, invoke| Enqueue { shard, invoke, delay_ms: 0 };
    for service in services {
        let mut wait_ms = FIRST_RETRY_MS;
        while let Err(error) = sweep_service(node, service, send, b"").await {
            let is_gone = find_sweep(node, service).is_err();
            // The next start begins them anyway.
            let is_hopeless = matches!(error.code, ErrorCode::ShardStopped | ErrorCode::ShuttingDown);
            if is_gone || is_hopeless {
                break;
            }
            let (app, service) = (service.app.as_str(), service.service.as_str());
            tracing::warn!(%error, app, service, "what a service keeps is not brought to its definition yet");
            tokio::time::sleep(Duration::from_millis(wait_ms)).await;
            wait_ms = (wait_ms * 2).min(LONGEST_RETRY_MS);
        }
    }
}

/// Sweeps wait until no transaction can run any more that began in the version before. On a node with little
/// to do that is known sooner: then they are told so, by calls that all end before another version serves.
async fn hasten(node: &CoreHandle, (app, version): (&str, u64), services: &[Swept]) {
    let shared = node.shared();
    for _ in 0..QUIET_ATTEMPTS {
        if services.is_empty() {
            return;
        }
        {
            let _no_other_version = shared.deploying.lock().await;
            if current(&shared, app).map(|app| app.version) != Ok(version) {
                return;
            }
            if deploy::is_quiet(&shared).await {
                for service in services {
                    // What it cannot hasten goes on in its time.
                    let call = |shard, invoke| Call { shard, invoke };
                    let _ = sweep_service(node, service, call, ALONE).await;
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
    let services: Vec<Swept> = {
        let core = node.core().borrow();
        let catalog = &core.programs.catalog;
        let built_in = catalog.apps().filter(|(name, _)| is_built_in(name.as_str()));
        let services = built_in.filter_map(|(app, program)| Some((app, &catalog.program(program)?.services)));
        let services = services.flat_map(|(app, services)| services.iter().map(move |service| (app, &service.name)));
        let sweep = services.filter(|(_, service)| service.as_str().ends_with(SHARD_SERVICE));
        sweep.map(|(app, service)| Swept { app: app.clone(), service: service.clone() }).collect()
    };
    sweep_services(&node, &services).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_users_own_app_of_a_name_that_is_taken_now_is_refused_by_name() {
        let taken = apps_without_files().expect("the names are right");
        assert!(!taken.is_empty() && refuse_users_own(&[]).is_ok());
        for app in taken {
            let error = refuse_users_own(&[app]).expect_err("it is taken");
            assert!(error.to_string().contains("built-in app's now"), "{error}");
        }
    }

    #[test]
    fn built_in_apps_say_how_they_are_reached() {
        assert_eq!(refuse_built_in(None), Ok(()));
        assert_eq!(refuse_built_in(Some("shop")), Ok(()));
        for app in BUILT_IN_APPS {
            let error = refuse_built_in(Some(app.name)).expect_err("it is built in");
            assert_eq!(error.code, ErrorCode::UnknownApp);
            assert!(error.message.contains(app.name) && error.message.contains(app.reached), "{error}");
        }
    }
}
