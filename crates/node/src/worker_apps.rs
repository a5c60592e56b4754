//! Apps whose handlers run in workers: from where a worker is to the files of its app.

use std::future::poll_fn;
use std::sync::Arc;

use millrace_api::{AppFile, Permission, Principal, SharedWorkerLine, WorkerRegistration};
use millrace_base::{Error, ErrorCode};
use millrace_func::{Discovery, WORKER_FILE, WorkerAddress, WorkerDocument, WorkerDoor, WorkerMode};

use crate::apps::{CONFIGURATION, app_from_files, version_of};
use crate::backend::CoreHandle;
use crate::core::Shared;
use crate::deploy;

/// Asks a worker what it serves, and makes the files of its app.
///
/// # Errors
/// `app-refused` when it cannot be reached, or serves nothing that can be deployed.
pub(crate) async fn files_of(shared: &Shared, registration: WorkerRegistration) -> Result<Vec<AppFile>, Error> {
    let WorkerRegistration { worker, secret, settings } = registration;
    let address = WorkerAddress::Url(worker.trim_end_matches('/').to_owned());
    address.check(secret.as_deref())?;
    let refused = |message: String| Error::new(ErrorCode::AppRefused, message);
    let found = shared.outside.workers.discover(&address, secret.as_deref()).await;
    let found = found.map_err(|error| refused(format!("the worker does not say what it serves: {}", error.message)))?;
    let discovery = Discovery::from_json(&found).map_err(refused)?;
    if discovery.mode == WorkerMode::Stream {
        let message =
            "this server does not dial workers of the mode \"stream\" yet: use \"request-reply\", or have them dial in";
        return Err(Error::new(ErrorCode::NotYetSupported, message));
    }
    Ok(files(&WorkerDocument { address, secret, discovery }, settings))
}

/// The files of an app of workers.
pub(crate) fn files(document: &WorkerDocument, settings: Option<String>) -> Vec<AppFile> {
    let worker = AppFile { path: WORKER_FILE.to_owned(), content: document.to_json() };
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

/// Deploys what a worker that has dialled in serves, unless that is deployed already.
async fn take_up(
    node: &CoreHandle,
    shared: &Arc<Shared>,
    app: &str,
    door: &Arc<dyn WorkerDoor>,
) -> Result<String, Error> {
    let hello = poll_fn(|context| door.poll_hello(context)).await?;
    let refused = |message: String| Error::new(ErrorCode::AppRefused, message);
    let discovery = Discovery::from_json(&hello).map_err(refused)?;
    let document = WorkerDocument { address: WorkerAddress::DialIn, secret: None, discovery };
    let found = app_from_files(app, files(&document, None))?;
    let version = version_of(&found);
    // It serves before the app does, so that nobody finds the app without a worker.
    shared.outside.workers.serve_by(app, &document, door);
    let is_deployed = {
        let core = node.core().borrow();
        deploy::current(&core.programs.catalog, app).is_some_and(|loaded| loaded.version == version)
    };
    if !is_deployed {
        deploy::deploy(shared, found).await?;
    }
    Ok(format!("{app}-{version:016x}"))
}
