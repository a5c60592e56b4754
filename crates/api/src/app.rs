//! Apps as operators see them.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// One source file of an app to deploy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppFile {
    /// Path inside the app's folder, `/` between parts, never absolute and without `..`.
    pub path: String,
    /// The file's bytes.
    pub content: Vec<u8>,
}

/// A deployed app.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct AppInfo {
    /// The app's name.
    pub name: String,
    /// Counts deployments of this app, from 1.
    pub version: u64,
    /// Its services, in the order of their names.
    pub services: Vec<ServiceInfo>,
}

/// A built-in app as it is now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SystemApp {
    /// Tells it from what it was and will be: a fingerprint of its files, the same after a restart.
    /// 0 when it has never been made.
    pub version: u64,
    /// Its files, in the order of their paths.
    pub files: Arc<Vec<AppFile>>,
}

/// One service of an app.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct ServiceInfo {
    /// The service's name: its file's name without the ending.
    pub name: String,
    /// Its handlers, in the order of their names.
    pub handlers: Vec<HandlerInfo>,
    /// Its HTTP routes, in the order they are written.
    pub routes: Vec<RouteInfo>,
}

/// One handler of a service.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct HandlerInfo {
    /// The handler's name.
    pub name: String,
    /// What it may do.
    pub kind: HandlerKind,
}

/// What a handler may do.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum HandlerKind {
    /// Reads and writes.
    Transaction,
    /// Reads only.
    Query,
    /// Runs for long, in steps that are transactions of their own.
    Workflow,
}

/// One HTTP route of a service, mounted at `/{service}{path}`.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct RouteInfo {
    /// The HTTP method, upper case.
    pub method: String,
    /// The path below the service, starting with `/`.
    pub path: String,
}
