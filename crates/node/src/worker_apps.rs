//! Apps whose handlers run in workers: from where a worker is to the files of its app.

use std::cell::Cell;
use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use millrace_api::{AppFile, Permission, Principal, SharedWorkerLine};
use millrace_base::{Error, ErrorCode};
use millrace_func::{
    AppSettings, Concurrency, Discovery, RequestSigning, WORKER_FILE, WorkerAddress, WorkerDocument, WorkerDoor,
    WorkerMode,
};
use tokio::time::{sleep, timeout};

use crate::apps::{CONFIGURATION, app_from_files};
use crate::backend::CoreHandle;
use crate::core::Shared;
use crate::deploy;

/// How long a connection may be a worker's without saying what it serves.
const HELLO: Duration = Duration::from_secs(10);

/// After so long without a worker of the deployed version, one of a replaced version that has dialled in serves.
const ALONE: Duration = Duration::from_secs(10);

/// How often that is looked at.
const LOOK: Duration = Duration::from_millis(500);

/// How often a change to an app of workers that dial in is made anew because another node has made one meanwhile.
const ATTEMPTS: usize = 16;

/// Deploys an app whose workers dial in with other settings. Whichever version it has by then keeps them.
///
/// # Errors
/// `app-refused` when there is no such app, or the settings do not fit it.
pub(crate) async fn give_settings(node: &CoreHandle, app: &str, settings: String) -> Result<(), Error> {
    let with_settings = |dialled: Option<&WorkerDocument>| document_with_settings(app, dialled, &settings).map(Some);
    change_dialled(node, app, with_settings).await
}

fn document_with_settings(
    app: &str,
    dialled: Option<&WorkerDocument>,
    settings: &str,
) -> Result<WorkerDocument, Error> {
    let refused = |message: String| Error::new(ErrorCode::AppRefused, message);
    let dialled = dialled.ok_or_else(|| {
        refused(format!("no worker has dialled in for the app {app:?}: give the worker's URL, or let one dial in"))
    })?;
    let read = AppSettings::from_toml(settings).map_err(|error| refused(error.to_string()))?;
    // Later versions pass over what they do not have.
    Concurrency::new(&dialled.discovery, &read.workers).map_err(refused)?;
    let settings = Some(settings.to_owned()).filter(|text| !text.trim().is_empty());
    Ok(WorkerDocument { settings, ..dialled.clone() })
}

/// Replaces what is deployed of an app whose workers dial in by what `change` makes of it, if that is anything. Another node may
/// replace it at the same time. Then the change is made to what that one has deployed.
async fn change_dialled(
    node: &CoreHandle,
    app: &str,
    change: impl Fn(Option<&WorkerDocument>) -> Result<Option<WorkerDocument>, Error>,
) -> Result<(), Error> {
    let shared = node.shared();
    // On this node one is made after the other.
    let _held = shared.dialling.lock().await;
    for _ in 0..ATTEMPTS {
        // Read before the document, which may be newer: then the change is refused, and made anew.
        let content = shared.cluster.as_ref().map(|cluster| cluster.content_of(app));
        let Some(changed) = change(dialled(node, app).as_deref())? else { return Ok(()) };
        let changed = app_from_files(app, files(&changed, None))?;
        match deploy::deploy_instead(&shared, changed, content).await {
            Err(error) if error.code == ErrorCode::PreconditionFailed => {}
            result => return result.map(drop),
        }
    }
    let message = format!("other nodes replace the app {app:?} again and again: try again");
    Err(Error::new(ErrorCode::Overloaded, message))
}

/// Asks a worker what it serves, and makes the files of its app.
///
/// # Errors
/// `app-refused` when it cannot be reached, or serves nothing that can be deployed.
pub(crate) async fn files_of(
    shared: &Shared,
    app: &str,
    worker: &str,
    (signing, settings): (RequestSigning, Option<String>),
) -> Result<Vec<AppFile>, Error> {
    let address = WorkerAddress::Url(worker.trim_end_matches('/').to_owned());
    address.check(&signing)?;
    let refused = |message: String| Error::new(ErrorCode::AppRefused, message);
    let knows_signatures = shared.cluster.as_ref().is_none_or(|cluster| cluster.knows_worker_signatures());
    if signing.signature.is_some() && !knows_signatures {
        let message = "a node of the cluster has an earlier version, which signs no requests with ed25519: install this \
                       version everywhere first, or deploy the worker with --worker-secret FILE";
        return Err(refused(message.to_owned()));
    }
    let found = shared.outside.workers.discover(app, &address, &signing).await;
    let found = found.map_err(|error| refused(format!("the worker does not say what it serves: {}", error.message)))?;
    let discovery = Discovery::from_json(&found).map_err(refused)?;
    if discovery.mode == WorkerMode::Stream && !address.may_be_http2() {
        let message = "the worker's mode \"stream\" needs HTTP/2: deploy it by a URL with the scheme h2c or https";
        return Err(refused(message.to_owned()));
    }
    if discovery.mode == WorkerMode::Stream && !shared.cluster.as_ref().is_none_or(|cluster| cluster.knows_streams()) {
        let message = "a node of the cluster has an earlier version, which does not know the mode \"stream\": install this \
                       version everywhere first, or give the worker the mode \"request-reply\"";
        return Err(refused(message.to_owned()));
    }
    Ok(files(&WorkerDocument { address, signing, discovery, replaces: Vec::new(), settings: None }, settings))
}

/// The files of an app of workers. The settings of those that dial in are in the document.
fn files(document: &WorkerDocument, settings: Option<String>) -> Vec<AppFile> {
    let worker = AppFile { path: WORKER_FILE.to_owned(), content: document.to_json() };
    let settings = settings.or_else(|| document.settings.clone());
    let settings = settings.map(|text| AppFile { path: CONFIGURATION.to_owned(), content: text.into_bytes() });
    [worker].into_iter().chain(settings).collect()
}

/// Whether somebody may dial in for this app: a key of a worker takes no app away that runs in the server.
///
/// # Errors
/// `forbidden`.
pub(crate) fn check_takes_up(node: &CoreHandle, principal: &Principal, app: &str) -> Result<(), Error> {
    let core = node.core().borrow();
    let is_in_server = deploy::current(&core.programs.catalog, app).is_some_and(|loaded| !loaded.is_on_workers);
    if is_in_server && !principal.may(Permission::Deploy) {
        let message =
            format!("the app {app:?} runs in the server: to let a worker take its place needs the role deploy");
        return Err(Error::new(ErrorCode::Forbidden, message));
    }
    Ok(())
}

/// A worker dials in: once it has said what it serves, that is its app, and it runs it.
pub(crate) fn connect(node: &CoreHandle, app: &str) -> SharedWorkerLine {
    let shared = node.shared();
    let door = shared.outside.workers.dial_in();
    let (node, line, app) = (node.clone(), Arc::clone(&door), app.to_owned());
    tokio::task::spawn_local(async move {
        match take_up(&node, &shared, &app, &door).await {
            Ok(deployment) => door.ready(&deployment),
            Err(error) => door.refuse(error),
        }
    });
    line
}

/// Reads what a worker that has dialled in serves, and finds its place beside other versions of its app.
async fn take_up(
    node: &CoreHandle,
    shared: &Arc<Shared>,
    app: &str,
    door: &Arc<dyn WorkerDoor>,
) -> Result<String, Error> {
    let hello = timeout(HELLO, poll_fn(|context| door.poll_hello(context))).await;
    let late = |_| Error::new(ErrorCode::RequestTimeout, "a worker says what it serves within 10 s of dialling in");
    let hello = hello.map_err(late)??;
    let refused = |message: String| Error::new(ErrorCode::AppRefused, message);
    let discovery = Discovery::from_json(&hello).map_err(refused)?;
    let document = WorkerDocument {
        address: WorkerAddress::DialIn,
        signing: RequestSigning::default(),
        discovery,
        replaces: Vec::new(),
        settings: None,
    };
    let version = document.version();
    // It serves before the app does, so that nobody finds the app without a worker.
    shared.outside.workers.serve_by(app, &document, door);
    if deploy_dialled(node, app, &document, None).await? == Standing::StandsBy {
        tracing::info!(app, "a worker of a replaced version has dialled in: it stands by");
        let (node, shared, door, app) = (node.clone(), Arc::clone(shared), Arc::clone(door), app.to_owned());
        tokio::task::spawn_local(async move { stand_by(&node, &shared, &app, &document, &*door).await });
    }
    Ok(format!("{app}-{version:016x}"))
}

/// What a worker that dials in is to its app.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// Its version is deployed.
    Serves,
    /// It brings a new version.
    Deploys,
    /// Another version has replaced its own. It only serves what began in it, while workers of the other are there.
    StandsBy,
}

fn standing(deployed: Option<&WorkerDocument>, version: u64) -> Standing {
    match deployed {
        Some(deployed) if deployed.version() == version => Standing::Serves,
        Some(deployed) if deployed.replaces.contains(&version) => Standing::StandsBy,
        _ => Standing::Deploys,
    }
}

/// What is deployed of an app whose workers dial in.
fn dialled(node: &CoreHandle, app: &str) -> Option<Arc<WorkerDocument>> {
    let core = node.core().borrow();
    deploy::current(&core.programs.catalog, app).and_then(|loaded| loaded.dialled.clone())
}

/// Deploys a version, unless it serves or another one has replaced it. `alone` is a version that it is deployed instead of all the
/// same. Gives what the version was to its app before.
async fn deploy_dialled(
    node: &CoreHandle,
    app: &str,
    document: &WorkerDocument,
    alone: Option<u64>,
) -> Result<Standing, Error> {
    let found = Cell::new(Standing::Serves);
    let take_place = |before: Option<&WorkerDocument>| {
        let standing = standing(before, document.version());
        found.set(standing);
        let is_alone = before.is_some_and(|before| Some(before.version()) == alone);
        let takes = standing == Standing::Deploys || (standing == Standing::StandsBy && is_alone);
        let replacing = || before.map_or_else(|| document.clone(), |before| document.clone().replacing(before));
        Ok(takes.then(replacing))
    };
    // Most that dial in are of the version that serves: they wait for nobody.
    if take_place(dialled(node, app).as_deref())?.is_some() {
        change_dialled(node, app, take_place).await?;
    }
    Ok(found.get())
}

/// Has a replaced version serve again once no worker of the deployed one has been connected to any node for a while. That is
/// how somebody goes back to it. A restart of the server alone brings no old version back: the workers of the new one dial in
/// again sooner.
async fn stand_by(
    node: &CoreHandle,
    shared: &Arc<Shared>,
    app: &str,
    document: &WorkerDocument,
    door: &dyn WorkerDoor,
) {
    let mut alone = Duration::ZERO;
    while door.is_open() {
        sleep(LOOK).await;
        let Some(deployed) = dialled(node, app) else { return };
        if standing(Some(&deployed), document.version()) != Standing::StandsBy {
            return;
        }
        let version = deployed.version();
        let is_served = shared.outside.workers.has_dialled(app, version) || elsewhere(shared, app, version);
        alone = if is_served { Duration::ZERO } else { alone + LOOK };
        if alone < ALONE {
            continue;
        }
        if let Err(error) = deploy_dialled(node, app, document, Some(version)).await {
            tracing::warn!(app, %error, "a version that was replaced does not serve again");
            return;
        }
        // Else another version has come meanwhile, or it serves.
        alone = Duration::ZERO;
    }
}

/// Whether a worker of this version is connected to another node of the cluster.
fn elsewhere(shared: &Shared, app: &str, version: u64) -> bool {
    let now_ns = shared.clock.monotonic_ns();
    shared.cluster.as_ref().is_some_and(|cluster| cluster.has_dialled_elsewhere(app, version, now_ns))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replaced_version_stands_by_and_a_new_one_is_deployed() {
        let document =
            br#"{"address":"dial-in","discovery":{"protocol":{"min":1,"max":1},"services":[]},"replaces":[1,2]}"#;
        let deployed = WorkerDocument::from_json(document).expect("valid");
        assert_eq!(standing(Some(&deployed), deployed.version()), Standing::Serves);
        assert_eq!(standing(Some(&deployed), 1), Standing::StandsBy);
        assert_eq!(standing(Some(&deployed), 4), Standing::Deploys);
        assert_eq!(standing(None, 1), Standing::Deploys);
    }
}
