//! Apps on one core: what the node adds to loading them. Names that are the server's own, versions that workflows keep, and
//! numbers by handler.

use std::sync::Arc;

use millrace_api::{RESERVED_SERVICES, SharedService, is_built_in};
use millrace_base::{Error, ErrorCode, Name};
use millrace_func::{App, Concurrency, HandlerId, HandlerKind, Program, RouteId, Service, WORKER_FILE, WorkerDocument};

use crate::apps::version_of;
use crate::core::{Core, CorePlatform};
use crate::deploy::shared_services;
use crate::metrics::HandlerMetric;

/// The numbers of a handler.
pub(crate) fn handler_metric(core: &Core, id: HandlerId) -> Option<&Arc<HandlerMetric>> {
    core.platform.numbers.get(&id.program)?.get(usize::from(id.service))?.get(usize::from(id.handler))
}

/// The numbers of a route.
pub(crate) fn route_metric(core: &Core, id: RouteId) -> Option<&Arc<HandlerMetric>> {
    let handlers = core.programs.catalog.program(id.program)?.services.get(usize::from(id.service))?.handlers.len();
    let index = handlers + usize::from(id.route);
    core.platform.numbers.get(&id.program)?.get(usize::from(id.service))?.get(index)
}

/// Loads an app under a deployment's number, without sending requests to it.
///
/// # Errors
/// `app-refused`, from the engine or for the names of its services; `internal` when it cannot be kept.
pub(crate) fn load(core: &mut Core, deployment: u32, app: &App) -> Result<(), Error> {
    let version = version_of(app);
    core.load(deployment, (app, version), |platform, program, services| platform.take_up(program, app, services))
}

impl CorePlatform {
    fn take_up(&mut self, program: Program, app: &App, services: &[Service]) -> Result<(), Error> {
        let is_built_in = is_built_in(app.name.as_str());
        // The services of the built-in app are reached by other paths.
        if !is_built_in {
            self.refuse_reserved_names(app, services)?;
            refuse_misleading_routes(app, services)?;
        }
        let is_workflow = |(_, kind): &(Name, HandlerKind)| *kind == HandlerKind::Workflow;
        // What a workflow runs in has to be there until it ends, whatever is deployed meanwhile.
        if self.index == 0 && !is_built_in && services.iter().any(|service| service.handlers.iter().any(is_workflow)) {
            self.shared.apps.keep_version(app, version_of(app)).map_err(|error| {
                Error::new(ErrorCode::Internal, format!("the app could not be kept on disk: {error}"))
            })?;
        }
        if let Some(file) = app.files.get(WORKER_FILE)
            && let Ok(document) = WorkerDocument::from_json(file)
            && let Ok(concurrency) = Concurrency::of_document(&document, &app.workers)
        {
            self.shared.outside.workers.serve(program, app.name.as_str(), &document, concurrency);
        }
        let numbers = self.numbers_of(&app.name, services);
        self.numbers.insert(program, numbers);
        Ok(())
    }

    fn refuse_reserved_names(&self, app: &App, services: &[Service]) -> Result<(), Error> {
        let reserved = services.iter().find(|service| RESERVED_SERVICES.contains(&service.name.as_str()));
        let Some(Service { name, .. }) = reserved else {
            return Ok(());
        };
        if !app.is_kept {
            let message = format!("{name}: paths of the server's own begin with this name; choose another");
            return Err(Error::new(ErrorCode::AppRefused, message));
        }
        if self.index == 0 {
            let (app, service) = (app.name.as_str(), name.as_str());
            tracing::warn!(
                app,
                service,
                "paths of the server's own begin with this service's name; its routes are out of reach"
            );
        }
        Ok(())
    }

    fn numbers_of(&self, app: &Name, services: &[Service]) -> Vec<Vec<Arc<HandlerMetric>>> {
        let (core, cores) = (self.index, self.shared.cores.len());
        let of = |service: &Service, name: String| {
            self.shared.handlers.of(core, cores, [app.to_string(), service.name.to_string(), name])
        };
        let of_service = |service: &Service| {
            let handlers = service.handlers.iter().map(|(name, _)| name.to_string());
            let routes = service.routes.iter().map(|route| format!("{} {}", route.method, route.path));
            handlers.chain(routes).map(|name| of(service, name)).collect()
        };
        services.iter().map(of_service).collect()
    }
}

/// Refuses routes that look like patterns and would match one path alone. Those that an earlier release took stay as they are.
fn refuse_misleading_routes(app: &App, services: &[Service]) -> Result<(), Error> {
    let mut routes = services.iter().flat_map(|service| service.routes.iter().map(move |route| (&service.name, route)));
    let misleading = routes.find_map(|(name, route)| route.misleading_part().map(|part| (name, route, part)));
    let Some((name, route, part)) = misleading.filter(|_| !app.is_kept) else {
        return Ok(());
    };
    let message = format!(
        "{name}: the route \"{} {}\" would match the text {part:?} alone: a part of a path is either text or :name, which \
         matches any one part, as in \"GET /users/:id\"",
        route.method, route.path
    );
    Err(Error::new(ErrorCode::AppRefused, message))
}

/// Sends new requests to a loaded app. Gives the services whose state has to be brought to another definition than the
/// program before had.
pub(crate) fn activate(core: &mut Core, deployment: u32) -> Vec<Name> {
    let sweeps = core.activate(deployment);
    if core.index() == 0
        && let Some(loaded) = core.programs.loaded(deployment)
    {
        for SharedService { service, apps } in shared_services(&core.programs.catalog, loaded) {
            let apps = apps.join(", ");
            tracing::warn!(app = loaded.app.as_str(), service, apps, "from now on calls have to name an app");
        }
    }
    sweeps
}

/// Goes without an app that is deployed, or without a version that workflows run in: some core could not load it.
pub(crate) fn miss(core: &mut Core, deployment: u32, app: &App, is_served: bool, error: &Error) {
    if let Some(program) = core.discard(deployment) {
        core.platform.numbers.remove(&program);
    }
    let (name, version) = (app.name.as_str(), version_of(app));
    core.programs.catalog.add_missing_version(app.name.clone(), version);
    if is_served {
        core.programs.catalog.add_missing(app.name.clone(), error.message.clone());
    }
    if core.index() > 0 {
        return;
    }
    let (content, reason) = (format_args!("{version:016x}"), error.message.as_str());
    if is_served {
        tracing::error!(
            app = name,
            version = %content,
            reason,
            "the app could not be loaded and is not served; its state stays, and its workflows wait: restart, deploy it \
             again, or remove it (DELETE /apps/{name})"
        );
    } else {
        tracing::error!(
            app = name,
            version = %content,
            reason,
            "a version that workflows began in could not be loaded, and they wait: restart, or cancel them, or delete \
             the version from <data>/app-versions and restart to have them go on in the version deployed now"
        );
    }
}
