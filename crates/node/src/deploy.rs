//! Deploying an app on all cores or on none.
//!
//! Every core loads the app without using it; only when all have succeeded is it kept on disk
//! and then activated everywhere. A core that refuses it leaves every core as it was.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use millrace_api::{AppInfo, HandlerInfo, RouteInfo, ServiceInfo, SharedService};
use millrace_base::{Error, ErrorCode, Name, limits};
use millrace_func::{App, Catalog, Loaded};
use tokio::sync::oneshot;

use crate::apps::version_of;
use crate::built_in_apps::Swept;
use crate::cluster;
use crate::core::{DeployState, NodeMessage, Shared};

pub(crate) fn stopping() -> Error {
    Error::new(ErrorCode::ShuttingDown, "the node is stopping")
}

/// Loads, keeps and activates an app. Returns how often it was deployed since the start.
///
/// # Errors
/// `app-refused` from whichever core refused it first; `internal` when it cannot be kept.
///
/// Runs as a task of its own: a caller that goes away leaves no app half deployed.
pub(crate) async fn deploy(shared: &Arc<Shared>, app: App) -> Result<u64, Error> {
    deploy_instead(shared, app, None).await
}

/// The same, in a cluster only if the app's content is the expected one until then. A node that stands alone has a lock for that:
/// `dialling` of [`Shared`].
///
/// # Errors
/// As [`deploy`]; `precondition-failed`.
pub(crate) async fn deploy_instead(shared: &Arc<Shared>, app: App, expected: Option<String>) -> Result<u64, Error> {
    let shared = Arc::clone(shared);
    let task = tokio::spawn(async move { deploy_app(&shared, app, expected).await });
    task.await.unwrap_or_else(|_| Err(stopping()))
}

async fn deploy_app(shared: &Arc<Shared>, app: App, expected: Option<String>) -> Result<u64, Error> {
    if let Some(cluster) = &shared.cluster {
        return cluster::deploy(shared, cluster, app, expected).await;
    }
    let mut state = shared.deploying.lock().await;
    let prepared = prepare(shared, &mut state, app).await?;
    complete(shared, &mut state, prepared).await.map(|done| done.version)
}

/// An app that all cores have loaded, and that does not serve yet. To be given to [`complete`] or [`discard`].
pub(crate) struct Prepared {
    deployment: u32,
    app: Arc<App>,
}

impl Prepared {
    pub(crate) fn app(&self) -> Arc<App> {
        Arc::clone(&self.app)
    }
}

/// An app serves on all cores.
pub(crate) struct Done {
    /// How often it was deployed since the start.
    pub version: u64,
    /// Its services that have to be swept now.
    pub sweeps: Vec<Swept>,
}

/// Loads an app on all cores, for whoever has the lock.
pub(crate) async fn prepare(shared: &Arc<Shared>, state: &mut DeployState, app: App) -> Result<Prepared, Error> {
    if shared.is_stopping.load(Ordering::Relaxed) {
        return Err(stopping());
    }
    make_room(shared, state).await?;
    state.last_deployment += 1;
    prepare_numbered(shared, app, state.last_deployment).await
}

/// The same, under a number that somebody else has given.
pub(crate) async fn prepare_numbered(shared: &Arc<Shared>, app: App, deployment: u32) -> Result<Prepared, Error> {
    let prepared = Prepared { deployment, app: Arc::new(app) };
    match load(shared, &prepared).await {
        Ok(()) => Ok(prepared),
        Err(error) => {
            discard(shared, &prepared);
            Err(error)
        }
    }
}

/// Has all cores forget an app that is not to serve.
pub(crate) fn discard(shared: &Shared, prepared: &Prepared) {
    for core in 0..shared.cores.len() {
        shared.send(core, NodeMessage::Discard { deployment: prepared.deployment });
    }
}

/// Keeps and activates an app.
pub(crate) async fn complete(shared: &Arc<Shared>, state: &mut DeployState, prepared: Prepared) -> Result<Done, Error> {
    if let Err(error) = keep(shared, &prepared.app).await {
        discard(shared, &prepared);
        return Err(error);
    }
    let Prepared { deployment, app } = prepared;
    let activate = |done| NodeMessage::Activate { deployment, done };
    let services = ask_cores(shared, activate).await?;
    let sweeps = services.into_iter().map(|service| Swept { app: app.name.clone(), service }).collect();
    let version = state.versions.entry(app.name.to_string()).or_default();
    *version += 1;
    let content = format_args!("{:016x}", version_of(&app));
    tracing::info!(app = app.name.as_str(), version = %content, "deployed");
    tokio::spawn(settle(Arc::clone(shared)));
    Ok(Done { version: *version, sweeps })
}

/// How often it is looked whether what a deployment has replaced can go, and the pause between: ten seconds together, after
/// which the cores let it go by themselves.
const SETTLE_LOOKS: usize = 100;
const SETTLE_PAUSE: Duration = Duration::from_millis(100);

/// How often a deployment looks whether replaced versions have gone.
const ROOM_LOOKS: usize = 20;

/// Has the cores unload what a deployment has replaced as soon as nothing is under way that began before.
async fn settle(shared: Arc<Shared>) {
    for _ in 0..SETTLE_LOOKS {
        {
            // Else a program could be replaced between the question and what is said of it.
            let state = shared.deploying.lock().await;
            if settle_once(&shared, &state).await {
                return;
            }
        }
        tokio::time::sleep(SETTLE_PAUSE).await;
    }
}

async fn settle_once(shared: &Arc<Shared>, state: &DeployState) -> bool {
    let is_quiet = is_quiet(shared).await;
    if is_quiet {
        for core in 0..shared.cores.len() {
            shared.send(core, NodeMessage::Settle { deployment: state.last_deployment + 1 });
        }
    }
    is_quiet
}

/// Waits a little for replaced versions to go, if they hold too much memory.
///
/// # Errors
/// `overloaded` if they do not.
pub(crate) async fn make_room(shared: &Arc<Shared>, state: &DeployState) -> Result<(), Error> {
    for _ in 0..ROOM_LOOKS {
        if replaced_bytes(shared).await? <= limits::REPLACED_VERSIONS_BYTES {
            return Ok(());
        }
        settle_once(shared, state).await;
        tokio::time::sleep(SETTLE_PAUSE).await;
    }
    let message = format!(
        "versions of apps that were replaced still hold more than {} MiB: calls that began in them have not ended, or \
         workflows are pinned to them; wait for those, or cancel them",
        limits::REPLACED_VERSIONS_BYTES >> 20
    );
    Err(Error::new(ErrorCode::Overloaded, message))
}

async fn replaced_bytes(shared: &Shared) -> Result<usize, Error> {
    let mut bytes = 0;
    for core in 0..shared.cores.len() {
        let (done, answer) = oneshot::channel();
        shared.send(core, NodeMessage::ReplacedBytes { done });
        bytes += answer.await.map_err(|_| stopping())?;
    }
    Ok(bytes)
}

/// Closes the services that go with the version before and have to be without entities then, and gives them.
pub(crate) async fn close(shared: &Shared, prepared: &Prepared) -> Result<Vec<Name>, Error> {
    ask_cores(shared, |done| NodeMessage::Close { deployment: prepared.deployment, done }).await
}

/// One core after the other: loading takes a core's time, and a broken app is known after the first.
async fn load(shared: &Shared, prepared: &Prepared) -> Result<(), Error> {
    for core in 0..shared.cores.len() {
        let (done, answer) = oneshot::channel();
        let Prepared { deployment, app } = prepared;
        shared.send(core, NodeMessage::Prepare { deployment: *deployment, app: Arc::clone(app), done });
        answer.await.unwrap_or_else(|_| Err(stopping()))?;
    }
    Ok(())
}

async fn keep(shared: &Arc<Shared>, app: &Arc<App>) -> Result<(), Error> {
    let (apps, app) = (shared.apps.clone(), Arc::clone(app));
    let kept = tokio::task::spawn_blocking(move || apps.keep(&app)).await;
    match kept {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(Error::new(ErrorCode::Internal, format!("the app could not be kept on disk: {error}"))),
        Err(_) => Err(stopping()),
    }
}

/// Asks all cores for services, on which they agree: they had loaded the same apps before.
async fn ask_cores(
    shared: &Shared,
    message: impl Fn(oneshot::Sender<Vec<Name>>) -> NodeMessage,
) -> Result<Vec<Name>, Error> {
    let mut answers = Vec::new();
    for core in 0..shared.cores.len() {
        let (done, answer) = oneshot::channel();
        shared.send(core, message(done));
        answers.push(answer);
    }
    let mut services = Vec::new();
    for answer in answers {
        services = answer.await.map_err(|_| stopping())?;
    }
    Ok(services)
}

/// Whether everything has ended that began before this was asked. Cores are asked one after the other, which
/// is enough: what runs on several is still open where it began until it has ended on all.
pub(crate) async fn is_quiet(shared: &Arc<Shared>) -> bool {
    for core in 0..shared.cores.len() {
        let (done, answer) = oneshot::channel();
        shared.send(core, NodeMessage::IsQuiet { done });
        if answer.await != Ok(true) {
            return false;
        }
    }
    true
}

/// Sends no more requests to an app and forgets it on disk. Its state stays.
///
/// # Errors
/// `unknown-app`; `internal` when the file cannot be removed.
pub(crate) async fn remove(shared: &Arc<Shared>, name: &str) -> Result<(), Error> {
    let unknown = || Error::new(ErrorCode::UnknownApp, format!("no app {name:?} is deployed"));
    // The name becomes a file's name: nothing but a name may get there.
    Name::new(name).map_err(|_| unknown())?;
    if let Some(cluster) = &shared.cluster {
        return cluster::remove(shared, cluster, name).await;
    }
    remove_here(shared, name).await
}

/// The same on this node alone.
pub(crate) async fn remove_here(shared: &Arc<Shared>, name: &str) -> Result<(), Error> {
    let unknown = || Error::new(ErrorCode::UnknownApp, format!("no app {name:?} is deployed"));
    let _one_at_a_time = shared.deploying.lock().await;
    let (apps, owned) = (shared.apps.clone(), name.to_owned());
    let forgotten = tokio::task::spawn_blocking(move || apps.forget(&owned)).await;
    if let Ok(Err(error)) = forgotten {
        return Err(Error::new(ErrorCode::Internal, format!("the app could not be removed from disk: {error}")));
    }
    let mut answers = Vec::new();
    for core in 0..shared.cores.len() {
        let (done, answer) = oneshot::channel();
        shared.send(core, NodeMessage::Remove { app: name.to_owned(), done });
        answers.push(answer);
    }
    let mut was_there = false;
    for answer in answers {
        was_there |= answer.await.map_err(|_| stopping())?;
    }
    if was_there {
        tracing::info!(app = name, "removed");
        tokio::spawn(settle(Arc::clone(shared)));
        return Ok(());
    }
    Err(unknown())
}

/// A loaded app as operators see it.
pub(crate) fn describe(loaded: &Loaded, version: u64) -> AppInfo {
    let mut services: Vec<ServiceInfo> = loaded
        .services
        .iter()
        .map(|service| {
            let handler = |(name, kind): &(Name, _)| HandlerInfo { name: name.to_string(), kind: *kind };
            let mut handlers: Vec<HandlerInfo> = service.handlers.iter().map(handler).collect();
            handlers.sort_by(|a, b| a.name.cmp(&b.name));
            let route =
                |route: &millrace_func::Route| RouteInfo { method: route.method.clone(), path: route.path.clone() };
            ServiceInfo { name: service.name.to_string(), handlers, routes: service.routes.iter().map(route).collect() }
        })
        .collect();
    services.sort_by(|a, b| a.name.cmp(&b.name));
    AppInfo { name: loaded.app.to_string(), version, services }
}

/// Those services of an app that others have as well. Such a service is reached by its app only. Whoever has called it
/// without one, the other app's callers included, has to know.
pub(crate) fn shared_services<'a>(
    catalog: &'a Catalog,
    loaded: &'a Loaded,
) -> impl Iterator<Item = SharedService> + 'a {
    loaded.services.iter().filter_map(|service| {
        let apps: Vec<String> = catalog.apps_with(service.name.as_str()).into_iter().map(str::to_owned).collect();
        (apps.len() > 1).then(|| SharedService { service: service.name.as_str().to_owned(), apps })
    })
}

/// The current version of an app, if it is deployed.
pub(crate) fn current<'a>(catalog: &'a Catalog, name: &str) -> Option<&'a Loaded> {
    let (_, program) = catalog.apps().find(|(app, _)| app.as_str() == name)?;
    catalog.program(program)
}
