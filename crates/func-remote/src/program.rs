//! A loaded app: what its workers said that they serve, checked.

use std::collections::BTreeSet;

use millrace_api::objects::app_id;
use millrace_base::{ByteBudget, Error, ErrorCode, Name, limits};
use millrace_format::worker::AttemptKind;
use millrace_func::{
    App, Concurrency, Cron, Discovery, HandlerId, HandlerKind, Program, Route, Schedule, Service, WORKER_FILE,
    WorkerAddress, WorkerDocument, WorkerHandler, WorkerMode, WorkerSchedule, WorkerService,
};

/// Schedules of one service, as in services of JavaScript.
const SCHEDULES: usize = 100;

/// Bytes of a route's path, as long as any that a client sends.
const ROUTE_BYTES: usize = 1024;

/// A loaded app of workers.
pub(crate) struct RemoteProgram {
    pub document: WorkerDocument,
    pub services: Vec<Service>,
    /// Who its handlers are where they ask for objects.
    pub app_id: String,
    /// What may be large, of calls.
    pub output_bytes: usize,
    pub pending_operations: usize,
    /// What attempts on its workers have been told counts for it, until they end.
    pub told: ByteBudget,
}

fn refused(message: impl Into<String>) -> Error {
    Error::new(ErrorCode::AppRefused, message)
}

impl RemoteProgram {
    /// Reads an app.
    ///
    /// # Errors
    /// `app-refused`, with the place.
    pub(crate) fn load(app: &App) -> Result<Self, Error> {
        let file = app.files.get(WORKER_FILE).ok_or_else(|| refused(format!("the app has no {WORKER_FILE}")))?;
        let document = WorkerDocument::from_json(file).map_err(refused)?;
        document.address.check(&document.signing)?;
        let services = services_of(&document.discovery, app.limits.input_bytes)?;
        Concurrency::of_document(&document, &app.workers).map_err(refused)?;
        let (output_bytes, pending_operations) = (app.limits.output_bytes, app.limits.pending_operations);
        let told = ByteBudget::new(limits::WORKER_ATTEMPTS_BYTES, limits::WORKER_UNCOUNTED_BYTES);
        Ok(Self { document, services, app_id: app_id(app.name.as_str()), output_bytes, pending_operations, told })
    }

    /// Whether each turn is a request of its own, which has all results so far. A workflow's always is where the server
    /// dials: it may sleep for days, and holds no stream meanwhile.
    pub(crate) fn is_request_reply(&self, kind: AttemptKind) -> bool {
        let is_dialled = matches!(self.document.address, WorkerAddress::Url(_));
        is_dialled && (kind == AttemptKind::Workflow || self.document.discovery.mode == WorkerMode::RequestReply)
    }

    /// The service as the worker described it.
    pub(crate) fn service(&self, service: u16) -> Option<&WorkerService> {
        self.document.discovery.services.get(usize::from(service))
    }

    /// The handler as the worker described it.
    pub(crate) fn handler(&self, id: HandlerId) -> Option<&WorkerHandler> {
        self.service(id.service)?.handlers.get(usize::from(id.handler))
    }

    /// The handler of that name.
    ///
    /// # Errors
    /// `unknown-service`, `unknown-handler`.
    pub(crate) fn find(&self, program: Program, service: &str, handler: &str) -> Result<HandlerId, Error> {
        let unknown =
            || Error::new(ErrorCode::UnknownService, format!("the app has no service {:?}", shortened(service)));
        let services = (0u16..).zip(&self.services);
        let (index, found) =
            services.into_iter().find(|(_, known)| known.name.as_str() == service).ok_or_else(unknown)?;
        let handlers = (0u16..).zip(&found.handlers);
        let place = handlers.into_iter().find(|(_, (name, _))| name.as_str() == handler);
        let (handler, _) = place.ok_or_else(|| found.no_handler(handler))?;
        Ok(HandlerId { program, service: index, handler })
    }
}

fn shortened(text: &str) -> String {
    text.chars().take(64).collect()
}

fn services_of(discovery: &Discovery, input_bytes: usize) -> Result<Vec<Service>, Error> {
    if discovery.services.is_empty() {
        return Err(refused("the worker has no services"));
    }
    if discovery.services.len() > limits::APP_FILES {
        return Err(refused(format!("the worker has more than {} services", limits::APP_FILES)));
    }
    let mut names = BTreeSet::new();
    let mut services = Vec::with_capacity(discovery.services.len());
    for service in &discovery.services {
        let found = service_of(service, input_bytes)
            .map_err(|what| refused(format!("service {:?}: {what}", shortened(&service.name))))?;
        if !names.insert(found.name.clone()) {
            return Err(refused(format!("the worker has two services {:?}", found.name.as_str())));
        }
        services.push(found);
    }
    Ok(services)
}

fn name_of(text: &str) -> Result<Name, String> {
    Name::new(text).map_err(|error| error.to_string())
}

fn service_of(service: &WorkerService, input_bytes: usize) -> Result<Service, String> {
    if service.whole_up_to_bytes > limits::WORKER_FIELDS_BYTES as u64 {
        return Err(format!("whole_up_to_bytes is over {}", limits::WORKER_FIELDS_BYTES));
    }
    if let Some(field) = service.fields.iter().find(|field| field.len() > limits::FIELD_BYTES) {
        return Err(format!("the field {:?} has too long a name", shortened(field)));
    }
    if service.handlers.len() > usize::from(u16::MAX) || service.routes.len() > usize::from(u16::MAX) {
        return Err("it has too many handlers or routes".to_owned());
    }
    let mut handlers: Vec<(Name, HandlerKind)> = Vec::with_capacity(service.handlers.len());
    let mut names = BTreeSet::new();
    for handler in &service.handlers {
        let what = |error: String| format!("handler {:?}: {error}", shortened(&handler.name));
        let name = name_of(&handler.name).map_err(what)?;
        check_timeout(handler.timeout_ms).map_err(what)?;
        if !names.insert(name.clone()) {
            return Err(what("there are two of this name".to_owned()));
        }
        handlers.push((name, handler.kind.into()));
    }
    let routes = service.routes.iter().map(|route| {
        let what = |error: String| format!("route {:?}: {error}", shortened(&route.path));
        check_route(&route.method, &route.path).and_then(|()| check_timeout(route.timeout_ms)).map_err(what)?;
        Ok(Route { method: route.method.clone(), path: route.path.clone() })
    });
    let routes = routes.collect::<Result<_, String>>()?;
    if service.schedules.len() > SCHEDULES {
        return Err(format!("it has more than {SCHEDULES} schedules"));
    }
    let schedule = |schedule: &WorkerSchedule| {
        schedule_of(schedule, &handlers, input_bytes)
            .map_err(|error| format!("schedule {:?}: {error}", shortened(&schedule.name)))
    };
    let schedules = service.schedules.iter().map(schedule).collect::<Result<_, String>>()?;
    Ok(Service { name: name_of(&service.name)?, handlers, routes, schedules })
}

fn check_timeout(timeout_ms: u64) -> Result<(), String> {
    let longest = limits::WORKER_LONGEST_DEADLINE_MS;
    if (1..=longest).contains(&timeout_ms) { Ok(()) } else { Err(format!("timeout_ms is not between 1 and {longest}")) }
}

fn check_route(method: &str, path: &str) -> Result<(), String> {
    let is_method = !method.is_empty() && method.len() <= 32 && method.bytes().all(|byte| byte.is_ascii_uppercase());
    if !is_method {
        return Err("the method is not a word in upper case".to_owned());
    }
    let is_path =
        path.starts_with('/') && path.len() <= ROUTE_BYTES && path.bytes().all(|byte| byte.is_ascii_graphic());
    let is_named = path.split('/').all(|part| part != ":");
    if is_path && is_named && !path.contains(['?', '#']) {
        return Ok(());
    }
    Err("a path begins with a slash, and has names behind colons and no query".to_owned())
}

fn schedule_of(
    schedule: &WorkerSchedule,
    handlers: &[(Name, HandlerKind)],
    input_bytes: usize,
) -> Result<Schedule, String> {
    Cron::parse(&schedule.cron).map_err(|what| format!("the cron {:?} cannot be used: {what}", schedule.cron))?;
    let (name, handler) = (name_of(&schedule.name)?, name_of(&schedule.handler)?);
    if !handlers.iter().any(|(known, _)| *known == handler) {
        return Err(format!("the service has no handler {:?}", handler.as_str()));
    }
    let input = schedule.input.to_string();
    if input.len() > input_bytes || schedule.key.len() > limits::KEY_BYTES {
        return Err("its key or input is too large".to_owned());
    }
    Ok(Schedule {
        name,
        cron: schedule.cron.clone(),
        key: schedule.key.clone().into_bytes(),
        handler,
        input: input.into(),
    })
}
