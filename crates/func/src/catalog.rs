//! Which apps are deployed, and what their names mean: the tables every lookup by name goes through.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use millrace_api::{HandlerSchemas, is_built_in};
use millrace_base::{EntityKey, Error, ErrorCode, Name, url};

use crate::{
    App, FetchPolicy, Grants, HandlerId, HandlerKind, Limits, Program, RetryPolicy, RetrySettings, Route, RouteId,
    Service, WORKER_FILE, WorkerAddress, WorkerDocument,
};

/// One loaded app version.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The app's name.
    pub app: Name,
    /// Tells it from other versions of the app: a fingerprint of its files.
    pub version: u64,
    /// Its limits.
    pub limits: Limits,
    /// Which servers outside it may reach.
    pub fetch: FetchPolicy,
    /// What it allows of built-in apps.
    pub grants: Grants,
    /// Whether its handlers run on workers.
    pub is_on_workers: bool,
    /// The URL of its workers, where the server dials them.
    pub worker_url: Option<String>,
    /// Of one whose workers dial in: what they said that they serve.
    pub dialled: Option<Arc<WorkerDocument>>,
    /// What its workers say of inputs and outputs.
    pub schemas: Vec<HandlerSchemas>,
    /// How what fails of it is tried again.
    pub retry: RetrySettings,
    /// Its services, as the engine reported them.
    pub services: Vec<Service>,
}

impl Loaded {
    /// A version of an app with the services that its engine has found in it.
    #[must_use]
    pub fn new(app: &App, version: u64, services: Vec<Service>) -> Self {
        let document = app.files.get(WORKER_FILE).and_then(|file| WorkerDocument::from_json(file).ok());
        Self {
            app: app.name.clone(),
            version,
            limits: app.limits.clone(),
            fetch: app.fetch.clone(),
            grants: app.grants.clone(),
            is_on_workers: app.files.contains_key(WORKER_FILE),
            worker_url: document.as_ref().and_then(|document| match &document.address {
                WorkerAddress::Url(url) => Some(url.clone()),
                WorkerAddress::DialIn => None,
            }),
            dialled: document.as_ref().filter(|document| document.dials_in()).cloned().map(Arc::new),
            schemas: document.map(|document| document.discovery.schemas()).unwrap_or_default(),
            retry: app.retry.clone(),
            services,
        }
    }
}

/// Every loaded program of one core, and which of them new requests go to.
///
/// A program that was replaced stays until it is removed, so that what still runs in it can be
/// finished; lookups by name find current programs only.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    programs: BTreeMap<Program, Loaded>,
    current: BTreeMap<Name, Program>,
    /// Service name → the apps that have it now.
    services: BTreeMap<Name, Vec<(Program, u16)>>,
    /// Services of built-in apps, by app and service: no name without an app leads there.
    built_in: BTreeMap<Name, BTreeMap<Name, (Program, u16)>>,
    /// Apps that are deployed and could not be loaded when the node started, with the reason.
    missing: BTreeMap<Name, String>,
    /// Versions that are kept and could not be loaded then, those of other apps included.
    missing_versions: BTreeSet<(Name, u64)>,
}

/// A route found for a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteMatch {
    /// Which route.
    pub id: RouteId,
    /// Its `:name` parts, decoded.
    pub parameters: Vec<(String, String)>,
}

impl Catalog {
    /// Adds a program without sending requests to it yet.
    pub fn add(&mut self, program: Program, loaded: Loaded) {
        self.programs.insert(program, loaded);
    }

    /// Sends new requests for the program's app to it. Returns the program it replaces.
    pub fn activate(&mut self, program: Program) -> Option<Program> {
        let app = self.programs.get(&program)?.app.clone();
        self.missing.remove(&app);
        let replaced = self.current.insert(app, program);
        self.index_services();
        replaced
    }

    /// Stops sending requests to an app. Returns the program that served it.
    pub fn deactivate(&mut self, app: &str) -> Option<Program> {
        let removed = self.current.remove(app);
        self.index_services();
        removed
    }

    /// An app that is deployed could not be loaded: whoever calls it is told why.
    pub fn add_missing(&mut self, app: Name, reason: String) {
        self.missing.insert(app, reason);
    }

    /// Nobody wants a missing app any more. Says whether it was one.
    pub fn remove_missing(&mut self, app: &str) -> bool {
        self.missing.remove(app).is_some()
    }

    /// A version that is kept could not be loaded.
    pub fn add_missing_version(&mut self, app: Name, version: u64) {
        self.missing_versions.insert((app, version));
    }

    /// Whether a version is kept that could not be loaded: what began in it goes on in no other.
    #[must_use]
    pub fn is_missing(&self, app: &str, version: u64) -> bool {
        !self.missing_versions.is_empty()
            && self.missing_versions.iter().any(|(name, known)| name.as_str() == app && *known == version)
    }

    /// Every version that some other program than these has loaded, or that is kept and could not be loaded.
    pub fn versions_without(&self, programs: &BTreeSet<Program>) -> impl Iterator<Item = (Name, u64)> {
        let others = self.programs.iter().filter(|(program, _)| !programs.contains(program));
        let loaded = others.map(|(_, loaded)| (loaded.app.clone(), loaded.version));
        loaded.chain(self.missing_versions.iter().cloned())
    }

    /// What is said of an app that does not serve.
    fn no_app(&self, app: &str) -> Error {
        let message = match self.missing.get(app) {
            Some(reason) => format!("the app {app:?} could not be loaded when the server started: {reason}"),
            None => format!("no app {app:?} is deployed"),
        };
        Error::new(ErrorCode::UnknownApp, message)
    }

    fn no_service(&self, service: &str) -> Error {
        let missing: Vec<&str> = self.missing.keys().map(Name::as_str).collect();
        let apart = match missing.is_empty() {
            true => String::new(),
            false => {
                format!("; not looked at: {}, which could not be loaded when the server started", missing.join(", "))
            }
        };
        Error::new(ErrorCode::UnknownService, format!("no app has a service {service:?}{apart}"))
    }

    /// Forgets a program that nothing runs in any more.
    pub fn remove(&mut self, program: Program) {
        self.programs.remove(&program);
    }

    fn index_services(&mut self) {
        self.services.clear();
        self.built_in.clear();
        for program in self.current.values() {
            let Some(loaded) = self.programs.get(program) else {
                continue;
            };
            for (index, service) in (0u16..).zip(&loaded.services) {
                if is_built_in(loaded.app.as_str()) {
                    let services = self.built_in.entry(loaded.app.clone()).or_default();
                    services.insert(service.name.clone(), (*program, index));
                } else {
                    self.services.entry(service.name.clone()).or_default().push((*program, index));
                }
            }
        }
    }

    /// The current apps and their programs, by name.
    pub fn apps(&self) -> impl Iterator<Item = (&Name, Program)> {
        self.current.iter().map(|(name, program)| (name, *program))
    }

    /// The program that new requests for an app go to.
    #[must_use]
    pub fn current(&self, app: &str) -> Option<Program> {
        self.current.get(app).copied()
    }

    /// How a handler is tried again: calls of it, messages to it, and its own code if it is a workflow. The current version
    /// of its app says so.
    #[must_use]
    pub fn retry_policy(&self, app: &str, service: &str, handler: &str) -> RetryPolicy {
        let loaded = self.current(app).and_then(|program| self.program(program));
        loaded.map_or_else(RetryPolicy::default, |loaded| loaded.retry.policy(service, handler))
    }

    /// Whether any loaded program runs on workers.
    #[must_use]
    pub fn has_workers(&self) -> bool {
        self.programs.values().any(|loaded| loaded.is_on_workers)
    }

    /// The loaded versions of an app: the one that serves, and those that were replaced.
    pub fn versions_of<'a>(&'a self, app: &'a str) -> impl Iterator<Item = (Program, &'a Loaded)> {
        let of_app = self.programs.iter().filter(move |(_, loaded)| loaded.app.as_str() == app);
        of_app.map(|(program, loaded)| (*program, loaded))
    }

    /// A loaded program.
    #[must_use]
    pub fn program(&self, program: Program) -> Option<&Loaded> {
        self.programs.get(&program)
    }

    /// A service of a built-in app that operations may name: what has `--` in its name, the app keeps for itself.
    fn built_in_service(&self, app: &str, service: &str) -> Option<(Program, u16)> {
        let found = *self.built_in.get(app)?.get(service)?;
        (!has_double_hyphen(service)).then_some(found)
    }

    /// Whether a built-in app has a service `name` for operations, and no user's app has one.
    #[must_use]
    pub fn is_only_built_in(&self, app: &str, name: &str) -> bool {
        self.built_in_service(app, name).is_some() && !self.services.contains_key(name)
    }

    /// The handler that runs an operation of a built-in app; `None` where there is none, whatever the text.
    #[must_use]
    pub fn built_in_handler(&self, app: &str, service: &str, handler: &str) -> Option<HandlerId> {
        let (program, service) = self.built_in_service(app, service)?;
        self.handler_named(program, service, handler)
    }

    fn handler_named(&self, program: Program, service: u16, name: &str) -> Option<HandlerId> {
        let handlers = &self.programs.get(&program)?.services.get(usize::from(service))?.handlers;
        let index = handlers.iter().position(|(known, _)| known.as_str() == name)?;
        Some(HandlerId { program, service, handler: u16::try_from(index).unwrap_or(u16::MAX) })
    }

    /// The service `service` of `app`, or, without an app, of the only app that has one.
    ///
    /// # Errors
    /// `unknown-app`, `unknown-service`, or `ambiguous-service` naming the apps.
    pub fn service(&self, app: Option<&str>, service: &str) -> Result<(Program, u16), Error> {
        if let Some(found) = app.and_then(|app| self.built_in.get(app)?.get(service)) {
            return Ok(*found);
        }
        let found = self.services.get(service).map_or(&[][..], Vec::as_slice);
        if let Some(app) = app {
            let program = self.current.get(app).ok_or_else(|| self.no_app(app))?;
            return found.iter().find(|(owner, _)| owner == program).copied().ok_or_else(|| {
                Error::new(ErrorCode::UnknownService, format!("app {app:?} has no service {service:?}"))
            });
        }
        match found {
            [one] => Ok(*one),
            [] => Err(self.no_service(service)),
            _ => {
                let apps = self.apps_with(service).join(", ");
                let message = format!("the apps {apps} all have a service {service:?}: name one of them");
                Err(Error::new(ErrorCode::AmbiguousService, message))
            }
        }
    }

    /// The apps that have a service of this name, built-in ones left out.
    #[must_use]
    pub fn apps_with(&self, service: &str) -> Vec<&str> {
        let found = self.services.get(service).map_or(&[][..], Vec::as_slice);
        found.iter().filter_map(|(program, _)| self.programs.get(program)).map(|loaded| loaded.app.as_str()).collect()
    }

    /// A handler of a service found by [`Catalog::service`]. Names that start with `_` are
    /// private: they can be called by their own app only.
    ///
    /// # Errors
    /// `unknown-handler`.
    pub fn handler(&self, program: Program, service: u16, handler: &str) -> Result<(HandlerId, HandlerKind), Error> {
        match self.handler_named(program, service, handler) {
            Some(id) if !handler.starts_with('_') => Ok((id, self.kind(id))),
            _ => Err(self.no_handler(program, service, handler)),
        }
    }

    /// Finds a handler by the names a stored message holds, private ones included.
    ///
    /// # Errors
    /// `unknown-app`, `unknown-service` or `unknown-handler`.
    pub fn find(&self, app: &str, service: &str, handler: &str) -> Result<HandlerId, Error> {
        let (program, service_index) = self.service(Some(app), service)?;
        self.handler_named(program, service_index, handler)
            .ok_or_else(|| self.no_handler(program, service_index, handler))
    }

    fn no_handler(&self, program: Program, service: u16, handler: &str) -> Error {
        match self.programs.get(&program).and_then(|loaded| loaded.services.get(usize::from(service))) {
            Some(service) => service.no_handler(handler),
            None => Error::new(ErrorCode::UnknownHandler, "the service is not loaded"),
        }
    }

    /// The handler of that name in one version of an app, whether or not new requests go to it.
    #[must_use]
    pub fn find_version(&self, app: &str, version: u64, service: &str, handler: &str) -> Option<HandlerId> {
        let is_it = |loaded: &Loaded| loaded.app.as_str() == app && loaded.version == version;
        let (program, loaded) = self.programs.iter().find(|(_, loaded)| is_it(loaded))?;
        let service_index = loaded.services.iter().position(|found| found.name.as_str() == service)?;
        let handlers = &loaded.services[service_index].handlers;
        let index = handlers.iter().position(|(name, _)| name.as_str() == handler)?;
        Some(HandlerId {
            program: *program,
            service: u16::try_from(service_index).ok()?,
            handler: u16::try_from(index).ok()?,
        })
    }

    /// What a handler may do. An id that is not loaded counts as a query: it can change nothing.
    #[must_use]
    pub fn kind(&self, id: HandlerId) -> HandlerKind {
        self.handler_row(id).map_or(HandlerKind::Query, |(_, kind)| *kind)
    }

    fn handler_row(&self, id: HandlerId) -> Option<&(Name, HandlerKind)> {
        self.service_row(id)?.handlers.get(usize::from(id.handler))
    }

    fn service_row(&self, id: HandlerId) -> Option<&Service> {
        self.programs.get(&id.program)?.services.get(usize::from(id.service))
    }

    /// A loaded handler's app and service, and what it may do.
    #[must_use]
    pub fn of_handler(&self, id: HandlerId) -> Option<(&Loaded, &Service, HandlerKind)> {
        let loaded = self.programs.get(&id.program)?;
        let service = loaded.services.get(usize::from(id.service))?;
        Some((loaded, service, service.handlers.get(usize::from(id.handler))?.1))
    }

    /// App, service and handler names of a loaded handler.
    #[must_use]
    pub fn names(&self, id: HandlerId) -> Option<(&Name, &Name, &Name)> {
        let loaded = self.programs.get(&id.program)?;
        let service = self.service_row(id)?;
        Some((&loaded.app, &service.name, &self.handler_row(id)?.0))
    }

    /// The entity that a call of `id` with `key` runs on.
    #[must_use]
    pub fn entity(&self, id: HandlerId, key: &[u8]) -> Option<EntityKey> {
        let loaded = self.programs.get(&id.program)?;
        Some(EntityKey::new(&loaded.app, &self.service_row(id)?.name, key))
    }

    /// The route of a service found by [`Catalog::service`] for a method and a path below it.
    /// `HEAD` is answered by a `GET` route where there is no `HEAD` route.
    ///
    /// # Errors
    /// `unknown-route`, or `method-not-allowed` naming the methods the path has.
    pub fn route(&self, program: Program, service: u16, method: &str, path: &str) -> Result<RouteMatch, Error> {
        let routes =
            self.programs.get(&program).and_then(|loaded| loaded.services.get(usize::from(service))).map(|s| &s.routes);
        let routes = routes.map_or(&[][..], Vec::as_slice);
        let find = |wanted: &str| {
            (0u16..).zip(routes).filter(|(_, route)| route.method == wanted).find_map(|(index, route)| {
                let parts = match_path(&route.path, path)?;
                Some((RouteId { program, service, route: index }, parts))
            })
        };
        if let Some((id, parts)) = find(method).or_else(|| find("GET").filter(|_| method == "HEAD")) {
            return Ok(RouteMatch { id, parameters: decoded(&parts)? });
        }
        let allowed: Vec<&str> =
            routes.iter().filter(|route| match_path(&route.path, path).is_some()).map(|route| &*route.method).collect();
        if allowed.is_empty() {
            return Err(Error::new(ErrorCode::UnknownRoute, format!("no route matches {path:?}")));
        }
        let message = format!("{path:?} answers to {}", allowed.join(", "));
        // As JSON, for fronts that have to name the methods.
        let detail = Some(format!("[\"{}\"]", allowed.join("\",\"")));
        Err(Error { code: ErrorCode::MethodNotAllowed, message, detail })
    }

    /// A route as loaded.
    #[must_use]
    pub fn route_row(&self, id: RouteId) -> Option<&Route> {
        self.programs.get(&id.program)?.services.get(usize::from(id.service))?.routes.get(usize::from(id.route))
    }
}

/// Names are short: a plain loop is quicker than a searcher.
fn has_double_hyphen(name: &str) -> bool {
    name.as_bytes().windows(2).any(|pair| pair == b"--")
}

/// # Errors
/// `bad-request` for what is not percent-encoded as it should be, and for what is not text then.
fn decoded(parts: &[(&str, &str)]) -> Result<Vec<(String, String)>, Error> {
    let decoded = |(name, part): &(&str, &str)| Ok(((*name).to_owned(), url::decode_text(part)?.into_owned()));
    parts.iter().map(decoded).collect()
}

/// Matches a route's path, returning its `:name` parts as they are in it: a part is between two slashes, whatever it
/// says when decoded.
fn match_path<'a>(pattern: &'a str, path: &'a str) -> Option<Vec<(&'a str, &'a str)>> {
    if !pattern.contains(':') {
        return (pattern == path).then(Vec::new);
    }
    let mut parameters = Vec::new();
    let mut parts = path.split('/');
    for wanted in pattern.split('/') {
        let part = parts.next()?;
        match wanted.strip_prefix(':') {
            Some(name) if !part.is_empty() => parameters.push((name, part)),
            None if wanted == part => {}
            _ => return None,
        }
    }
    parts.next().is_none().then_some(parameters)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        Name::new(text).expect("a name")
    }

    fn loaded(app: &str, service: &str) -> Loaded {
        let route = |method: &str, path: &str| Route { method: method.into(), path: path.into() };
        let service = Service {
            name: name(service),
            handlers: vec![(name("add"), HandlerKind::Transaction), (name("_fix"), HandlerKind::Transaction)],
            routes: vec![route("GET", "/a/:id"), route("POST", "/a/:id"), route("GET", "/b")],
            schedules: Vec::new(),
        };
        Loaded::new(&App::new(name(app)), 1, vec![service])
    }

    fn catalog(apps: &[(u32, &str, &str)]) -> Catalog {
        let mut catalog = Catalog::default();
        for (program, app, service) in apps {
            catalog.add(Program(*program), loaded(app, service));
            catalog.activate(Program(*program));
        }
        catalog
    }

    #[test]
    fn a_short_name_works_while_only_one_app_has_it() {
        let mut catalog = catalog(&[(1, "one", "counter")]);
        assert_eq!(catalog.service(None, "counter"), Ok((Program(1), 0)));
        catalog.add(Program(2), loaded("two", "counter"));
        catalog.activate(Program(2));
        let error = catalog.service(None, "counter").expect_err("two apps");
        assert_eq!(error.code, ErrorCode::AmbiguousService);
        assert!(error.message.contains("one, two"), "{error}");
        assert_eq!(catalog.service(Some("two"), "counter"), Ok((Program(2), 0)));
        catalog.deactivate("one");
        assert_eq!(catalog.service(None, "counter"), Ok((Program(2), 0)));
        assert_eq!(catalog.service(Some("one"), "counter").expect_err("gone").code, ErrorCode::UnknownApp);
        assert_eq!(catalog.service(Some("two"), "x").expect_err("none").code, ErrorCode::UnknownService);
    }

    #[test]
    fn who_calls_an_app_that_could_not_be_loaded_is_told_so_until_it_is_deployed_or_removed() {
        let mut catalog = catalog(&[(1, "one", "counter")]);
        let said = |catalog: &Catalog| catalog.service(Some("two"), "shop").expect_err("not loaded").message;
        for is_removed in [true, false] {
            catalog.add_missing(name("two"), "a reason".to_owned());
            assert!(said(&catalog).contains("a reason"));
            assert!(catalog.service(None, "shop").expect_err("not known").message.contains("two"));
            assert!(catalog.service(None, "counter").is_ok());
            if is_removed {
                assert!(catalog.remove_missing("two") && !catalog.remove_missing("two"));
            } else {
                catalog.add(Program(2), loaded("two", "shop"));
                catalog.activate(Program(2));
                catalog.deactivate("two");
            }
            assert_eq!(said(&catalog), "no app \"two\" is deployed");
        }
        catalog.add_missing_version(name("two"), 7);
        assert!(catalog.is_missing("two", 7) && !catalog.is_missing("two", 8) && !catalog.is_missing("one", 7));
    }

    #[test]
    fn types_of_records_are_in_nobodys_way() {
        let catalog = catalog(&[(1, "one", "counter"), (2, "records", "counter"), (3, "records", "note")]);
        assert_eq!(catalog.service(None, "counter"), Ok((Program(1), 0)));
        assert_eq!(catalog.service(None, "note").expect_err("no app's").code, ErrorCode::UnknownService);
        assert_eq!(catalog.service(Some("records"), "note"), Ok((Program(3), 0)));
        let replaced = catalog.service(Some("records"), "counter").expect_err("of the version before");
        assert_eq!(replaced.code, ErrorCode::UnknownService);
    }

    #[test]
    fn a_new_version_replaces_the_old_one() {
        let mut catalog = catalog(&[(1, "one", "counter")]);
        catalog.add(Program(2), loaded("one", "counter"));
        assert_eq!(catalog.service(None, "counter"), Ok((Program(1), 0)));
        assert_eq!(catalog.activate(Program(2)), Some(Program(1)));
        assert_eq!(catalog.service(None, "counter"), Ok((Program(2), 0)));
        assert!(catalog.program(Program(1)).is_some(), "what runs in it can be finished");
    }

    #[test]
    fn private_and_unknown_handlers_look_the_same_from_outside() {
        let catalog = catalog(&[(1, "one", "counter")]);
        let private = catalog.handler(Program(1), 0, "_fix").expect_err("private");
        assert_eq!(private.code, ErrorCode::UnknownHandler);
        assert_eq!(catalog.handler(Program(1), 0, "constructor").expect_err("unknown").code, private.code);
        assert!(catalog.find("one", "counter", "_fix").is_ok());
    }

    #[test]
    fn routes_match_whole_parts() {
        let catalog = catalog(&[(1, "one", "counter")]);
        let route = |method: &str, path: &str| catalog.route(Program(1), 0, method, path);
        let found = route("POST", "/a/x%20y").expect("matches");
        assert_eq!((found.id.route, found.parameters), (1, vec![("id".to_owned(), "x y".to_owned())]));
        assert_eq!(route("POST", "/a/x%2Fy").expect("one part").parameters[0].1, "x/y");
        for path in ["/a/%zz", "/a/%ff"] {
            assert_eq!(route("POST", path).expect_err(path).code, ErrorCode::BadRequest);
        }
        assert_eq!(route("HEAD", "/b").expect("as GET").id.route, 2);
        assert_eq!(route("PUT", "/a/1").expect_err("method").message, "\"/a/1\" answers to GET, POST");
        for path in ["/", "/a", "/a/", "/a/1/2", "/bb", ""] {
            assert_eq!(route("GET", path).expect_err(path).code, ErrorCode::UnknownRoute);
        }
    }
}
