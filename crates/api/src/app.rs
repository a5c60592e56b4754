//! Apps as operators see them.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

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
    /// A fingerprint of its files: the same for the same app on every node and after every restart.
    #[serde(with = "fingerprint_text")]
    pub version: u64,
    /// Its services, in the order of their names.
    pub services: Vec<ServiceInfo>,
}

/// One version of an app, and what runs in it. Nothing new begins in one that is not deployed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct AppVersion {
    /// The fingerprint of its files.
    #[serde(with = "fingerprint_text")]
    pub version: u64,
    /// Whether it is the one that takes calls.
    pub is_deployed: bool,
    /// The URL of its workers, where the server dials them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker_url: Option<String>,
    /// Workflows that began in it and have not ended. They stay with it.
    pub workflows: u64,
    /// Whether there may be more than that, as there are too many to count them all.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub has_more_workflows: bool,
    /// Transactions and routes under way in it at the node that answers.
    pub transactions: u64,
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

/// What a deployment did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deployed {
    /// The app as it is now.
    pub app: AppInfo,
    /// Whether no app of its name was there.
    pub is_new: bool,
    /// Services of it that other apps have as well. From now on their callers have to name an app.
    pub shared_services: Vec<SharedService>,
}

/// A service that several apps have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedService {
    /// Its name.
    pub service: String,
    /// The apps, at least two.
    pub apps: Vec<String>,
}

/// Sixteen hexadecimal digits: numbers of 64 bits do not survive every reader of JSON.
mod fingerprint_text {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(version: &u64, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{version:016x}"))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
        let text = String::deserialize(deserializer)?;
        u64::from_str_radix(&text, 16).map_err(D::Error::custom)
    }
}

/// One service of an app.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct ServiceInfo {
    /// The service's name: its file's name without the ending.
    pub name: String,
    /// Its handlers, in the order of their names.
    pub handlers: Vec<HandlerInfo>,
    /// Its routes, in the order they are written.
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

/// The JSON schemas of a handler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandlerSchemas {
    /// The service's name.
    pub service: String,
    /// The handler's name.
    pub handler: String,
    /// What it may do.
    pub kind: HandlerKind,
    /// Of its input, if it says so.
    pub input: Option<Value>,
    /// Of its output, if it says so.
    pub output: Option<Value>,
}

/// The schemas of an app's handlers, as far as the caller may see them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppSchemas {
    /// The app's name.
    pub app: String,
    /// Of handlers that have some.
    pub handlers: Vec<HandlerSchemas>,
    /// Services that other apps have, too: a path to one of them has to name the app.
    pub shared_services: Vec<String>,
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

/// One route of a service. A front says where the routes of a service are.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct RouteInfo {
    /// The method, upper case.
    pub method: String,
    /// The path below the service, starting with `/`.
    pub path: String,
}

/// How requests to workers are signed without a secret that both ends have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WorkerSignature {
    /// With a private key of the server. Workers know the public one.
    Ed25519,
}

/// Where the workers of an app are. [`std::fmt::Debug`] leaves the secret out.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkerRegistration {
    /// The URL of one, or of what stands before them. `None`: those that dial in.
    #[serde(default)]
    pub worker: Option<String>,
    /// The secret that requests to them are signed with.
    #[serde(default)]
    pub secret: Option<String>,
    /// How they are signed without a secret.
    #[serde(default)]
    pub signature: Option<WorkerSignature>,
    /// The app's `millrace.toml`.
    #[serde(default)]
    pub settings: Option<String>,
}

impl std::fmt::Debug for WorkerRegistration {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("WorkerRegistration").field("worker", &self.worker).finish_non_exhaustive()
    }
}
