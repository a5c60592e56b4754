//! An app's sources and what an engine found in them.

use std::collections::BTreeMap;

use millrace_api::HandlerKind;
use millrace_base::{Error, ErrorCode, Name};

use crate::{FetchPolicy, Grants, Limits, RetrySettings, WorkerSettings};

/// An app to load: its files and what they may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct App {
    /// The app's name.
    pub name: Name,
    /// Path inside the app's folder → content. Every `.ts`, `.mts`, `.js` or `.mjs` file at the
    /// top, except `*.d.ts` and names starting with `_`, is a service; files in folders are
    /// modules to import.
    pub files: BTreeMap<String, Vec<u8>>,
    /// What its functions may use.
    pub limits: Limits,
    /// Which servers outside they may reach.
    pub fetch: FetchPolicy,
    /// What it allows of built-in apps.
    pub grants: Grants,
    /// How much of it runs on workers at once.
    pub workers: WorkerSettings,
    /// How what fails of it is tried again.
    pub retry: RetrySettings,
    /// Whether it was deployed before this start of the node. A name that an earlier release took, and this one
    /// refuses, must not stop the node from starting. Nor must an app that takes a little longer to load this time.
    pub is_kept: bool,
}

impl App {
    /// An app without files, with the limits and permissions of one that says nothing of them.
    #[must_use]
    pub fn new(name: Name) -> Self {
        Self {
            name,
            files: BTreeMap::new(),
            limits: Limits::default(),
            fetch: FetchPolicy::default(),
            grants: Grants::default(),
            workers: WorkerSettings::default(),
            retry: RetrySettings::default(),
            is_kept: false,
        }
    }
}

/// A service as loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// Its file's name without the ending.
    pub name: Name,
    /// Name and kind of each handler; a [`crate::HandlerId`] indexes this.
    pub handlers: Handlers,
    /// Its routes, in source order; a [`crate::RouteId`] indexes this.
    pub routes: Vec<Route>,
    /// What it wants to be run again and again.
    pub schedules: Vec<Schedule>,
}

impl Service {
    /// What is said of a name that none of its handlers has: mostly it is misspelt, and the right one among those named.
    #[must_use]
    pub fn no_handler(&self, name: &str) -> Error {
        /// More would be no help to a reader.
        const NAMED: usize = 16;
        // A stranger chose it.
        let name: String = name.chars().take(64).collect();
        let public = self.handlers.iter().map(|(name, _)| name.as_str()).filter(|name| !name.starts_with('_'));
        let mut known: Vec<&str> = public.take(NAMED + 1).collect();
        if known.len() > NAMED {
            known[NAMED] = "…";
        }
        let has = if known.is_empty() { String::new() } else { format!(": it has {}", known.join(", ")) };
        Error::new(
            ErrorCode::UnknownHandler,
            format!("the service {:?} has no handler {name:?}{has}", self.name.as_str()),
        )
    }
}

/// A call that a service declares to be made again and again:
/// `export const schedules = { name: { cron, key, handler, input } }`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// Its name, unique within the service.
    pub name: Name,
    /// Five fields as in crontab(5), in UTC; checked by the engine with [`crate::Cron::parse`].
    pub cron: String,
    /// The entity's key.
    pub key: Vec<u8>,
    /// The handler, of the same service.
    pub handler: Name,
    /// JSON text.
    pub input: bytes::Bytes,
}

/// The handlers of a service, in source order.
pub type Handlers = Vec<(Name, HandlerKind)>;

/// One route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// Upper-case method.
    pub method: String,
    /// The path below the service: `/` then literal parts or `:name` parts that match one part.
    pub path: String,
}

impl Route {
    /// A part of the path that is a pattern to other servers, and here would match itself alone.
    #[must_use]
    pub fn misleading_part(&self) -> Option<&str> {
        self.path.split('/').find(|part| part.contains(['*', '{', '<', '[']))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_that_looks_like_another_servers_pattern_is_misleading() {
        let misleading = |path: &str| {
            let route = Route { method: "GET".to_owned(), path: path.to_owned() };
            route.misleading_part().map(str::to_owned)
        };
        for path in ["/", "/f/:name", "/f/:a/:b", "/a(b)/%2A/v1.0/~me"] {
            assert_eq!(misleading(path), None, "{path}");
        }
        for (path, part) in
            [("/f/*", "*"), ("/f/*.png/x", "*.png"), ("/f/{id}", "{id}"), ("/<id>", "<id>"), ("/[id]", "[id]")]
        {
            assert_eq!(misleading(path).as_deref(), Some(part), "{path}");
        }
    }
}
