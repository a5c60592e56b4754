//! The apps loaded on this core, and the numbers under which all cores know them.

use std::collections::BTreeMap;
use std::sync::Arc;

use millrace_api::{RECORDS_APP, RESERVED_SERVICES};
use millrace_base::{Error, ErrorCode, Name};
use millrace_func::{App, Catalog, HandlerId, HandlerKind, Loaded, Program, RouteId, Service};

use crate::apps::version_of;
use crate::core::Core;
use crate::deploy::shared_names;
use crate::metrics::HandlerMetric;
use crate::versions;

/// How long a replaced program stays loaded at the least: requests that name it may still be on
/// their way between cores.
const RETIRED_MS: u64 = 10_000;

/// Deployments are numbered for the whole node, programs by each core's engine for itself.
#[derive(Default)]
pub(crate) struct Programs {
    pub catalog: Catalog,
    by_deployment: BTreeMap<u32, Program>,
    by_program: BTreeMap<Program, u32>,
    /// Each program's numbers: by service, handlers first, then routes.
    numbers: BTreeMap<Program, Vec<Vec<Arc<HandlerMetric>>>>,
    /// Replaced programs, each with the time from which it may be unloaded.
    retired: Vec<(Program, u64)>,
}

impl Programs {
    /// The number of the deployment that `program` is here, in the shape of a program.
    pub(crate) fn deployment_of(&self, program: Program) -> Option<Program> {
        self.by_program.get(&program).copied().map(Program)
    }

    /// What a deployment is loaded as on this core.
    pub(crate) fn program_of(&self, deployment: Program) -> Option<Program> {
        self.by_deployment.get(&deployment.0).copied()
    }

    /// The numbers of a handler.
    pub(crate) fn handler_metric(&self, id: HandlerId) -> Option<&Arc<HandlerMetric>> {
        self.numbers.get(&id.program)?.get(usize::from(id.service))?.get(usize::from(id.handler))
    }

    /// The numbers of a route.
    pub(crate) fn route_metric(&self, id: RouteId) -> Option<&Arc<HandlerMetric>> {
        let handlers = self.catalog.program(id.program)?.services.get(usize::from(id.service))?.handlers.len();
        let index = handlers + usize::from(id.route);
        self.numbers.get(&id.program)?.get(usize::from(id.service))?.get(index)
    }

    fn forget(&mut self, program: Program) {
        if let Some(deployment) = self.by_program.remove(&program) {
            self.by_deployment.remove(&deployment);
        }
        self.numbers.remove(&program);
        self.catalog.remove(program);
    }
}

impl Core {
    /// Loads an app under a deployment's number, without sending requests to it.
    ///
    /// # Errors
    /// `app-refused`, from the engine.
    pub(crate) fn load(&mut self, deployment: u32, app: &App) -> Result<(), Error> {
        let program = self.engine.load(app)?;
        let services = self.engine.services(program);
        let is_built_in = app.name.as_str() == RECORDS_APP;
        // The services of the built-in app are reached by other paths.
        if !is_built_in && let Err(error) = self.refuse_reserved_names(app, &services) {
            self.engine.unload(program);
            return Err(error);
        }
        let version = version_of(app);
        let is_workflow = |(_, kind): &(Name, HandlerKind)| *kind == HandlerKind::Workflow;
        // What a workflow runs in has to be there until it ends, whatever is deployed meanwhile.
        if self.index == 0 && !is_built_in && services.iter().any(|service| service.handlers.iter().any(is_workflow)) {
            self.shared.apps.keep_version(app, version).map_err(|error| {
                self.engine.unload(program);
                Error::new(ErrorCode::Internal, format!("the app could not be kept on disk: {error}"))
            })?;
        }
        self.programs.numbers.insert(program, self.numbers_of(&app.name, &services));
        let (limits, fetch, records) = (app.limits.clone(), app.fetch.clone(), app.records.clone());
        let loaded = Loaded { app: app.name.clone(), version, limits, fetch, records, services };
        self.programs.catalog.add(program, loaded);
        self.programs.by_deployment.insert(deployment, program);
        self.programs.by_program.insert(program, deployment);
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

    /// Closes the services that go with what a loaded app replaces, and gives their names.
    pub(crate) fn close(&mut self, deployment: u32) -> Vec<Name> {
        let program = self.programs.by_deployment.get(&deployment);
        program.map_or_else(Vec::new, |program| self.engine.close(*program))
    }

    /// Sends new requests to a loaded app. Gives the services whose state has to be brought to another
    /// definition than the program before had.
    pub(crate) fn activate(&mut self, deployment: u32) -> Vec<Name> {
        let Some(program) = self.programs.by_deployment.get(&deployment).copied() else {
            return Vec::new();
        };
        let replaced = self.programs.catalog.activate(program);
        let before: BTreeMap<Name, u64> =
            replaced.map_or_else(Vec::new, |replaced| self.engine.sweeps(replaced)).into_iter().collect();
        self.retire(replaced);
        self.tell_of_shared_names(program);
        let sweeps = self.engine.sweeps(program).into_iter();
        sweeps.filter(|(service, to)| before.get(service) != Some(to)).map(|(service, _)| service).collect()
    }

    fn tell_of_shared_names(&self, program: Program) {
        if self.index > 0 {
            return;
        }
        let catalog = &self.programs.catalog;
        let Some(loaded) = catalog.program(program) else { return };
        for (service, what) in shared_names(catalog, loaded) {
            tracing::warn!(app = loaded.app.as_str(), service = service.as_str(), "{what}");
        }
    }

    /// Forgets an app that was loaded in vain.
    pub(crate) fn discard(&mut self, deployment: u32) {
        if let Some(program) = self.programs.by_deployment.get(&deployment).copied() {
            self.engine.reopen(program);
            self.engine.unload(program);
            self.programs.forget(program);
        }
    }

    /// Goes without an app that is deployed, or without a version that workflows run in, as some core could not load it.
    pub(crate) fn miss(&mut self, deployment: u32, app: &App, is_served: bool, error: &Error) {
        self.discard(deployment);
        let (name, version) = (app.name.as_str(), version_of(app));
        self.programs.catalog.add_missing_version(app.name.clone(), version);
        if is_served {
            self.programs.catalog.add_missing(app.name.clone(), error.message.clone());
        }
        if self.index > 0 {
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

    /// Versions that only workflows run in go when those have ended, as replaced ones do. The first
    /// `served` deployments are not among them.
    pub(crate) fn retire_pinned(&mut self, served: usize) {
        let pinned: Vec<Program> = self
            .programs
            .by_deployment
            .iter()
            .filter(|(deployment, _)| **deployment as usize > served)
            .map(|(_, program)| *program)
            .collect();
        for program in pinned {
            self.retire(Some(program));
        }
    }

    /// Sends no more requests to an app. Says whether it was there.
    pub(crate) fn remove(&mut self, app: &str) -> bool {
        let removed = self.programs.catalog.deactivate(app);
        self.retire(removed);
        self.programs.catalog.remove_missing(app) || removed.is_some()
    }

    fn retire(&mut self, program: Option<Program>) {
        if let Some(program) = program {
            let from_ms = self.monotonic_ms() + RETIRED_MS;
            self.programs.retired.push((program, from_ms));
        }
    }

    /// Unloads replaced programs that nothing runs in any more.
    pub(crate) fn unload_retired(&mut self) {
        let now_ms = self.monotonic_ms();
        let (kept, unloaded): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.programs.retired).into_iter().partition(|(program, from)| {
                *from > now_ms
                    || self.unbound.values().any(|(unbound, _)| unbound.program() == *program)
                    || self.shards.iter().flatten().any(|shard| shard.needs_program(*program))
            });
        self.programs.retired = kept;
        if unloaded.is_empty() {
            return;
        }
        for (program, _) in unloaded {
            self.engine.unload(program);
            self.programs.forget(program);
        }
        self.forget_unused();
    }

    /// A program was unloaded: what was kept for its sake, and that no other needs, goes.
    pub(crate) fn forget_unused(&self) {
        self.shared.handlers.forget_unused();
        tokio::task::spawn_local(versions::forget(Arc::clone(&self.shared)));
    }
}
