//! Deployments: the apps that a node serves, users' and built in.

use std::future::Future;

use crate::{
    AppFile, AppInfo, AppSchemas, AppVersion, Deployed, Error, ErrorCode, Principal, SharedWorkerLine, SystemApp,
    WorkerRegistration,
};

/// Which apps there are. A backend without built-in apps need not say so.
pub trait Deployments: Clone + 'static {
    /// Deploys or replaces an app, on all cores or not at all.
    fn deploy(
        &self,
        principal: &Principal,
        app: &str,
        files: Vec<AppFile>,
    ) -> impl Future<Output = Result<Deployed, Error>>;

    /// Deploys or replaces an app whose handlers run in workers, after asking one of them what it serves.
    fn deploy_worker(
        &self,
        _principal: &Principal,
        _app: &str,
        _registration: WorkerRegistration,
    ) -> impl Future<Output = Result<Deployed, Error>> {
        async { Err(Error::new(ErrorCode::NotYetSupported, "this server has no way to workers")) }
    }

    /// The public key that workers of this app verify requests with, which the server signs with the private one: 64 hex
    /// digits. The app need not be there yet.
    ///
    /// # Errors
    /// `forbidden`; `app-refused` for a name that no app may have.
    fn worker_key(&self, _principal: &Principal, _app: &str) -> Result<String, Error> {
        Err(Error::new(ErrorCode::NotYetSupported, "this server has no way to workers"))
    }

    /// A worker of an app has dialled in. What it serves becomes the app, as by [`Deployments::deploy_worker`], once it has
    /// said so.
    ///
    /// # Errors
    /// `forbidden`; `app-refused` for a name that no app may have.
    fn connect_worker(&self, _principal: &Principal, _app: &str) -> Result<SharedWorkerLine, Error> {
        Err(Error::new(ErrorCode::NotYetSupported, "this server has no way to workers"))
    }

    /// Removes an app; its state stays and comes back with the app.
    fn remove_app(&self, principal: &Principal, app: &str) -> impl Future<Output = Result<(), Error>>;

    /// The deployed apps, by name.
    fn apps(&self, principal: &Principal) -> impl Future<Output = Result<Vec<AppInfo>, Error>>;

    /// The versions of an app, and what runs in each.
    fn app_versions(&self, _principal: &Principal, _app: &str) -> impl Future<Output = Result<Vec<AppVersion>, Error>> {
        async { Err(Error::new(ErrorCode::NotYetSupported, "this server does not count what runs in a version")) }
    }

    /// The schemas of handlers that the principal may call or read, or of all for whoever may deploy.
    fn handler_schemas(&self, _principal: &Principal) -> Vec<AppSchemas> {
        Vec::new()
    }

    /// A built-in app's files, for whoever may call something of it or deploy apps.
    fn system_app(&self, _principal: &Principal, app: &str) -> impl Future<Output = Result<SystemApp, Error>> {
        let error = unknown_app(app);
        async move { Err(error) }
    }

    /// Replaces a built-in app's files on all cores or on none, if its version still is
    /// `expected_version`; gives the new version. `precondition-failed` says that somebody else has
    /// replaced it meanwhile.
    fn replace_system_app(
        &self,
        _principal: &Principal,
        app: &str,
        _expected_version: u64,
        _files: Vec<AppFile>,
    ) -> impl Future<Output = Result<u64, Error>> {
        let error = unknown_app(app);
        async move { Err(error) }
    }
}

fn unknown_app(name: &str) -> Error {
    Error::new(ErrorCode::UnknownApp, format!("no app {name:?} is built in"))
}
