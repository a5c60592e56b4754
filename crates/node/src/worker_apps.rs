//! Apps whose handlers run in workers: from where a worker is to the files of its app.

use millrace_api::{AppFile, WorkerRegistration};
use millrace_base::{Error, ErrorCode};
use millrace_func::{Discovery, WORKER_FILE, WorkerAddress, WorkerDocument};

use crate::apps::CONFIGURATION;
use crate::core::Shared;

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
    Ok(files(&WorkerDocument { address, secret, discovery }, settings))
}

/// The files of an app of workers.
pub(crate) fn files(document: &WorkerDocument, settings: Option<String>) -> Vec<AppFile> {
    let worker = AppFile { path: WORKER_FILE.to_owned(), content: document.to_json() };
    let settings = settings.map(|text| AppFile { path: CONFIGURATION.to_owned(), content: text.into_bytes() });
    [worker].into_iter().chain(settings).collect()
}
