//! The node as fronts see it: the traits of `millrace_api` on a core's own thread.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use base64::Engine as _;
use bytes::Bytes;
use millrace_api::{
    Admission, AppFile, AppInfo, AppSchemas, AppVersion, Begun, CallRequest, Calls, DeadLetter, Deployed, Deployments,
    Health, Hindrance, Intervention, Invocation, Invocations, InvocationsRequest, MovedTime, NodeChange, Page,
    Permission, Principal, RouteReply, RouteRequest, Schedule, SchedulesRequest, SendRequest, Serving,
    SharedWorkerLine, StateFields, StateReply, StateRequest, SystemApp, WorkerRegistration, is_built_in, no_test_clock,
};
use millrace_base::{EntityKey, Error, ErrorCode, IdempotencyKey, ShardId, UnixMillis, Value, ValueKind, shard_of_key};
use millrace_driver::question::{ReadState, StartWorkflow};
use millrace_driver::{Arrival, Ask, Call, Enqueue, Request, ShardQuestion, Submitted};
use millrace_func::{Catalog, HandlerId, HandlerKind, Program, RequestSigning};
use millrace_io::{Clock, TestClock};
use millrace_shard::{EntityState, InvocationId, Invoke, ReplyTo, RequestInfo, RouteCall, TypedReply};

use crate::apps::app_from_files;
use crate::built_in_apps::{self, refuse_built_in, refuse_system_name};
use crate::cluster::change_nodes;
use crate::core::{Core, ReplyFuture, Shared, SharedCore, handler_metric, route_metric};
use crate::deploy;
use crate::invocations;
use crate::on_workers::is_on_workers;
use crate::schedules;
use crate::version_uses;
use crate::watch::{CallWatch, prints_calls};
use crate::worker_apps;

/// A handle to the node on one of its cores. Stays on that core's thread.
#[derive(Clone)]
pub struct CoreHandle {
    core: SharedCore,
}

impl CoreHandle {
    pub(crate) fn new(core: SharedCore) -> Self {
        Self { core }
    }

    /// Which core this is, from 0.
    #[must_use]
    pub fn index(&self) -> usize {
        self.core.borrow().index()
    }

    /// Whether this node knows what its cluster has agreed on, or stands alone.
    #[must_use]
    pub fn is_guided(&self) -> bool {
        catalog(&self.core.borrow()).is_ok()
    }

    /// Asks one shard for something, wherever it is.
    ///
    /// # Errors
    /// As for [`catalog`], and those of the question.
    pub(crate) async fn ask<Q: Ask<Reply: 'static>>(&self, shard: ShardId, question: Q) -> Result<Q::Reply, Error> {
        catalog(&self.core.borrow())?;
        self.begin(ShardQuestion { shard, question }).reply().await
    }

    pub(crate) fn shared(&self) -> Arc<Shared> {
        Arc::clone(&self.core.borrow().platform.shared)
    }

    pub(crate) fn core(&self) -> &SharedCore {
        &self.core
    }

    /// Begins a request. It ends once what the request did is durable.
    pub(crate) fn begin<R: Request<Reply: 'static>>(&self, request: R) -> Begun<R::Reply> {
        let mut core = self.core.borrow_mut();
        let arrival = core.enter();
        self.begun(core.request(request, arrival))
    }

    /// Most requests end at once; only what waits pays for a future.
    pub(crate) fn begun<T: TypedReply + 'static>(&self, started: Submitted<T, ReplyTo<T>>) -> Begun<T> {
        match started {
            Submitted::Answered(result) => Begun::Ended(result),
            Submitted::Pending(to) => Begun::waits(ReplyFuture::new(Rc::clone(&self.core), to)),
        }
    }

    pub(crate) fn shard_count(&self) -> u16 {
        self.core.borrow().placement().shard_count()
    }

    /// Whether some deployed service, given by app and name, is as asked.
    pub(crate) fn any_service(&self, is_it: impl Fn(&str, &str) -> bool) -> bool {
        let core = self.core.borrow();
        let catalog = &core.programs.catalog;
        catalog
            .apps()
            .filter_map(|(_, program)| catalog.program(program))
            .any(|loaded| loaded.services.iter().any(|service| is_it(loaded.app.as_str(), service.name.as_str())))
    }

    fn begin_call(&self, principal: &Principal, request: &CallRequest<'_>) -> Result<Begun<Bytes>, Error> {
        let mut core = self.core.borrow_mut();
        let arrival = core.enter();
        let (shard, invoke) = invoke(&mut core, principal, request, false)?;
        let watch = CallWatch {
            metric: handler_metric(&core, invoke.handler).cloned(),
            began_ns: arrival.now_ns,
            shown: prints_calls(&core)
                .then(|| format!("{}/{}/{}", request.service, String::from_utf8_lossy(request.key), request.handler)),
        };
        if is_on_workers(&core, invoke.handler.program) {
            drop(core);
            return Ok(self.call_on_worker(shard, invoke, watch));
        }
        let started = core.request(Call { shard, invoke }, arrival);
        Ok(self.watched(&core, started, watch, Ok))
    }

    fn begin_route(&self, principal: &Principal, request: RouteRequest) -> Result<Begun<RouteReply>, Error> {
        let mut core = self.core.borrow_mut();
        let arrival = core.enter();
        let (watch, call) = route_call(&mut core, principal, request, arrival)?;
        if is_on_workers(&core, call.route.id.program) {
            drop(core);
            return Ok(self.route_on_worker(call, watch));
        }
        let started = core.request(call, arrival);
        Ok(self.watched(&core, started, watch, Ok))
    }
}

/// Finds what a request calls, and checks that the principal may call it.
fn find_handler(
    core: &Core,
    principal: &Principal,
    request: &CallRequest<'_>,
    is_sent: bool,
) -> Result<HandlerId, Error> {
    let catalog = catalog(core)?;
    refuse_built_in(request.app)?;
    let (program, service) = catalog.service(request.app, request.service)?;
    let place = (app_of(core, program), request.service);
    // Who may not even read is not told what handlers there are.
    authorise(principal, place, true).or_else(|_| authorise(principal, place, false))?;
    let (handler, kind) = catalog.handler(program, service, request.handler)?;
    authorise(principal, place, kind == HandlerKind::Query && !is_sent)?;
    Ok(handler)
}

/// What starts a workflow under an id that the caller chose, and the shard of the id.
fn start_workflow(
    core: &Core,
    principal: &Principal,
    request: &SendRequest<'_>,
    id: &str,
) -> Result<(ShardId, StartWorkflow), Error> {
    let SendRequest { call, delay_ms, .. } = request;
    let handler = find_handler(core, principal, call, true)?;
    let shard = InvocationId::chosen(id, core.placement().shard_count())?.shard;
    let input = if call.input.is_empty() { Bytes::from_static(b"null") } else { call.input.clone() };
    let start = StartWorkflow {
        id: id.into(),
        app: app_of(core, handler.program).into(),
        service: call.service.into(),
        handler: call.handler.into(),
        key: call.key.into(),
        input,
        delay_ms: *delay_ms,
    };
    Ok((shard, start))
}

/// Finds the handler a request names, checks that the principal may call it, and makes the call.
fn invoke(
    core: &mut Core,
    principal: &Principal,
    request: &CallRequest<'_>,
    is_sent: bool,
) -> Result<(ShardId, Invoke), Error> {
    let handler = find_handler(core, principal, request, is_sent)?;
    let info = info(core, request.idempotency_key.map(IdempotencyKey::kept));
    let shard = shard_of_key(request.key, core.placement().shard_count());
    Ok((shard, Invoke { info, handler, key: request.key.into(), input: request.input.clone() }))
}

/// Finds the route a request names, checks that the principal may call it, and makes the call.
fn route_call(
    core: &mut Core,
    principal: &Principal,
    request: RouteRequest,
    arrival: Arrival,
) -> Result<(CallWatch, RouteCall), Error> {
    let catalog = catalog(core)?;
    refuse_built_in(request.app.as_deref())?;
    let (program, service) = catalog.service(request.app.as_deref(), &request.service)?;
    authorise(principal, (app_of(core, program), &request.service), false)?;
    let route = catalog.route(program, service, &request.method, &request.path)?;
    let watch = CallWatch {
        metric: route_metric(core, route.id).cloned(),
        began_ns: arrival.now_ns,
        shown: prints_calls(core).then(|| format!("{} /{}{}", request.method, request.service, request.path)),
    };
    let call = RouteCall {
        info: info(core, request.idempotency_key),
        route,
        method: request.method.into(),
        path: request.path.into(),
        query: request.query.unwrap_or_default().into(),
        headers: request.headers,
        body: request.body,
        known: Vec::new(),
        scope: None,
    };
    Ok((watch, call))
}

/// What is deployed. Every request of a front looks here or asks a shard, so nothing is told before it is known.
///
/// # Errors
/// When a node of a cluster does not know yet what is deployed.
pub(crate) fn catalog(core: &Core) -> Result<&Catalog, Error> {
    core.platform.shared.cluster.as_ref().map_or(Ok(()), |cluster| cluster.check_guided())?;
    Ok(&core.programs.catalog)
}

fn app_of(core: &Core, program: Program) -> &str {
    core.programs.catalog.program(program).map_or("", |loaded| loaded.app.as_str())
}

/// Refuses who may not call, or only read where that is all that is asked.
pub(crate) fn authorise(principal: &Principal, (app, service): (&str, &str), is_read: bool) -> Result<(), Error> {
    principal.require(if is_read { Permission::Read { app, service } } else { Permission::Call { app, service } })
}

/// What every request carries.
pub(crate) fn info(core: &mut Core, idempotency_key: Option<IdempotencyKey>) -> RequestInfo {
    let nonce = core.take_nonce();
    let mut info = RequestInfo { time: UnixMillis(0), began_ms: 0, nonce, idempotency_key };
    core.begins_now(&mut info);
    info
}

impl Calls for CoreHandle {
    fn call(&self, principal: &Principal, request: CallRequest<'_>) -> Begun<Bytes> {
        self.begin_call(principal, &request).unwrap_or_else(|error| Begun::Ended(Err(error)))
    }

    async fn send(&self, principal: &Principal, request: SendRequest<'_>) -> Result<String, Error> {
        // A call finds out when it runs; whoever sends has gone by then.
        let input = &request.call.input;
        if !input.is_empty()
            && let Err(error) = serde_json::from_slice::<serde::de::IgnoredAny>(input)
        {
            return Err(Error::new(ErrorCode::InvalidInput, format!("the input is not JSON: {error}")));
        }
        if let Some(id) = request.id {
            let (shard, start) = start_workflow(&self.core.borrow(), principal, &request, id)?;
            return self.ask(shard, start).await.map(|_| id.to_owned());
        }
        let started = {
            let mut core = self.core.borrow_mut();
            let arrival = core.enter();
            let (shard, invoke) = invoke(&mut core, principal, &request.call, true)?;
            core.request(Enqueue { shard, invoke, delay_ms: request.delay_ms }, arrival)
        };
        self.begun(started).reply().await.map(|id| id.to_string())
    }

    fn route(&self, principal: &Principal, request: RouteRequest) -> Begun<RouteReply> {
        self.begin_route(principal, request).unwrap_or_else(|error| Begun::Ended(Err(error)))
    }

    async fn state(&self, principal: &Principal, request: StateRequest<'_>) -> Result<StateReply, Error> {
        let (shard, entity) = {
            let core = self.core.borrow();
            let catalog = catalog(&core)?;
            refuse_built_in(request.app)?;
            let (program, service) = catalog.service(request.app, request.service)?;
            authorise(principal, (app_of(&core, program), request.service), true)?;
            let id = HandlerId { program, service, handler: 0 };
            let entity = catalog.entity(id, request.key);
            let entity = entity.ok_or_else(|| Error::new(ErrorCode::UnknownService, "the service is not loaded"))?;
            (shard_of_key(request.key, core.placement().shard_count()), entity)
        };
        self.read(shard, entity, request.fields).await
    }
}

impl Invocations for CoreHandle {
    async fn invocation(&self, principal: &Principal, id: &str, has_journal: bool) -> Result<Invocation, Error> {
        invocations::read(self, principal, id, has_journal).await
    }

    async fn invocations(
        &self,
        principal: &Principal,
        request: InvocationsRequest<'_>,
    ) -> Result<Page<Invocation>, Error> {
        invocations::list(self, principal, request).await
    }

    async fn intervene(&self, principal: &Principal, id: &str, intervention: Intervention) -> Result<(), Error> {
        invocations::intervene(self, principal, id, intervention).await
    }

    async fn signal(
        &self,
        principal: &Principal,
        id: &str,
        name: &str,
        payload: Bytes,
        idempotency_key: Option<IdempotencyKey<&str>>,
    ) -> Result<(), Error> {
        invocations::signal(self, principal, id, (name, payload), idempotency_key).await
    }

    async fn dead_letters(
        &self,
        principal: &Principal,
        is_waiting: bool,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Page<DeadLetter>, Error> {
        invocations::dead_letters(self, principal, is_waiting, after, limit).await
    }

    async fn retry_dead_letter(&self, principal: &Principal, id: &str) -> Result<(), Error> {
        invocations::end_dead_letter(self, principal, id, true).await
    }

    async fn drop_dead_letter(&self, principal: &Principal, id: &str) -> Result<(), Error> {
        invocations::end_dead_letter(self, principal, id, false).await
    }

    async fn schedules(&self, principal: &Principal, request: SchedulesRequest<'_>) -> Result<Page<Schedule>, Error> {
        schedules::list(self, principal, request).await
    }
}

impl CoreHandle {
    /// What was deployed just now.
    fn deployed(&self, name: &str, is_new: bool) -> Result<Deployed, Error> {
        let core = self.core.borrow();
        let catalog = &core.programs.catalog;
        // Another deployment may have been quicker; then this answers what is so now.
        let removed =
            || Error::new(ErrorCode::UnknownApp, "the app was deployed, and another caller has removed it since");
        let loaded = deploy::current(catalog, name).ok_or_else(removed)?;
        let shared_services = deploy::shared_services(catalog, loaded).collect();
        Ok(Deployed { app: deploy::describe(loaded, loaded.version), is_new, shared_services })
    }
}

impl Deployments for CoreHandle {
    async fn deploy(&self, principal: &Principal, app: &str, files: Vec<AppFile>) -> Result<Deployed, Error> {
        principal.require(Permission::Deploy)?;
        refuse_system_name(app)?;
        let app = app_from_files(app, files)?;
        let name = app.name.clone();
        let is_new = deploy::current(&self.core.borrow().programs.catalog, name.as_str()).is_none();
        let shared = self.shared();
        deploy::deploy(&shared, app).await?;
        self.deployed(name.as_str(), is_new)
    }

    async fn deploy_worker(
        &self,
        principal: &Principal,
        app: &str,
        registration: WorkerRegistration,
    ) -> Result<Deployed, Error> {
        principal.require(Permission::Deploy)?;
        refuse_system_name(app)?;
        let shared = self.shared();
        match registration {
            WorkerRegistration { worker: Some(worker), secret, signature, settings } => {
                let signing = RequestSigning { secret, signature };
                let files = worker_apps::files_of(&shared, app, &worker, (signing, settings)).await?;
                self.deploy(principal, app, files).await
            }
            WorkerRegistration { worker: None, secret: None, signature: None, settings: Some(settings) } => {
                worker_apps::give_settings(self, app, settings).await?;
                self.deployed(app, false)
            }
            WorkerRegistration { worker: None, .. } => {
                let message = "name the worker's URL, or give the settings alone for workers that dial in";
                Err(Error::new(ErrorCode::BadRequest, message))
            }
        }
    }

    fn worker_key(&self, principal: &Principal, app: &str) -> Result<String, Error> {
        principal.require(Permission::Deploy)?;
        refuse_system_name(app)?;
        let no_way = || Error::new(ErrorCode::NotYetSupported, "this node has no way to workers");
        self.shared().outside.workers.public_key(app).ok_or_else(no_way)
    }

    fn connect_worker(&self, principal: &Principal, app: &str) -> Result<SharedWorkerLine, Error> {
        principal.require(Permission::Worker { app })?;
        refuse_system_name(app)?;
        worker_apps::check_takes_up(self, principal, app)?;
        Ok(worker_apps::connect(self, app))
    }

    async fn remove_app(&self, principal: &Principal, app: &str) -> Result<(), Error> {
        principal.require(Permission::Deploy)?;
        refuse_system_name(app)?;
        let shared = self.shared();
        deploy::remove(&shared, app).await
    }

    async fn apps(&self, principal: &Principal) -> Result<Vec<AppInfo>, Error> {
        principal.require(Permission::Deploy)?;
        let core = self.core.borrow();
        let catalog = catalog(&core)?;
        let shown = catalog.apps().filter(|(name, _)| !is_built_in(name.as_str()));
        let loaded = shown.filter_map(|(_, program)| catalog.program(program));
        Ok(loaded.map(|loaded| deploy::describe(loaded, loaded.version)).collect())
    }

    async fn app_versions(&self, principal: &Principal, app: &str) -> Result<Vec<AppVersion>, Error> {
        version_uses::list(self, principal, app).await
    }

    fn handler_schemas(&self, principal: &Principal) -> Vec<AppSchemas> {
        let core = self.core.borrow();
        let Ok(catalog) = catalog(&core) else { return Vec::new() };
        let loaded = catalog.apps().filter_map(|(_, program)| catalog.program(program));
        let visible = loaded.filter_map(|loaded| {
            let app = loaded.app.as_str();
            let sees = |service: &str| {
                let permissions = [Permission::Call { app, service }, Permission::Read { app, service }];
                principal.may(Permission::Deploy) || permissions.into_iter().any(|one| principal.may(one))
            };
            let handlers = loaded.schemas.iter().filter(|one| sees(&one.service));
            let handlers: Vec<_> = handlers.cloned().collect();
            let shared_services = deploy::shared_services(catalog, loaded).map(|shared| shared.service).collect();
            (!handlers.is_empty()).then(|| AppSchemas { app: app.to_owned(), handlers, shared_services })
        });
        visible.collect()
    }

    async fn system_app(&self, principal: &Principal, app: &str) -> Result<SystemApp, Error> {
        catalog(&self.core.borrow())?;
        built_in_apps::system_app(&self.shared(), principal, app)
    }

    async fn replace_system_app(
        &self,
        principal: &Principal,
        app: &str,
        expected_version: u64,
        files: Vec<AppFile>,
    ) -> Result<u64, Error> {
        principal.require(Permission::Deploy)?;
        built_in_apps::replace(self, app, expected_version, files).await
    }
}

impl Serving for CoreHandle {
    fn poll_admission(&self, admission: &mut Option<Admission>, context: &mut Context<'_>) -> Poll<()> {
        if self.core.borrow_mut().is_admitted(admission, context.waker()) { Poll::Ready(()) } else { Poll::Pending }
    }

    fn withdraw(&self, admission: Admission) {
        self.core.borrow_mut().withdraw(&admission);
    }

    fn health(&self) -> Health {
        let core = self.core.borrow();
        let shared = &core.platform.shared;
        let is_serving = shared.is_serving.load(Ordering::Relaxed) && !shared.is_stopping.load(Ordering::Relaxed);
        // A node that nobody has told who owns what answers no request, and one in a minority can do nothing.
        let cluster = shared.cluster.as_ref();
        let now_ns = shared.clock.monotonic_ns();
        let hindrance = if cluster.is_some_and(|cluster| cluster.is_removed()) {
            Some(Hindrance::Removed)
        } else if cluster.is_some_and(|cluster| cluster.too_old().is_some()) {
            Some(Hindrance::TooOld)
        } else if shared.stopped_shards.load(Ordering::Relaxed) > 0 {
            Some(Hindrance::ShardStopped)
        } else if shared.read_only_cores.load(Ordering::Relaxed) > 0 {
            Some(Hindrance::DiskFull)
        } else if cluster.is_some_and(|cluster| cluster.is_guidance_lost()) {
            Some(Hindrance::MajorityLost)
        } else if cluster.is_some_and(|cluster| !cluster.is_guided()) {
            Some(Hindrance::Unguided)
        } else if cluster.is_some_and(|cluster| !cluster.hears_majority(now_ns)) {
            Some(Hindrance::NoMajority)
        } else {
            None
        };
        Health { is_serving, hindrance, has_test_clock: shared.options.test_clock.is_some() }
    }

    fn guidance(&self) -> Option<Result<Bytes, Error>> {
        let core = self.core.borrow();
        let shared = &core.platform.shared;
        Some(shared.cluster.as_ref()?.view(shared.clock.monotonic_ns()))
    }

    async fn change_nodes(&self, principal: &Principal, change: NodeChange) -> Result<Bytes, Error> {
        principal.require(Permission::Admin)?;
        let shared = self.shared();
        match &shared.cluster {
            Some(cluster) => change_nodes(&shared, cluster, change).await,
            None => Err(Error::new(ErrorCode::UnknownRoute, "this node is by itself: it is in no cluster")),
        }
    }

    fn advance_clock(&self, principal: &Principal, by_ms: u64) -> Result<MovedTime, Error> {
        principal.require(Permission::Admin)?;
        let shared = self.shared();
        let clock = shared.options.test_clock.as_ref().ok_or_else(no_test_clock)?;
        let ahead_ms = clock.advance(by_ms).ok_or_else(|| {
            let message = format!("a test clock is at most {} ms ahead", TestClock::LONGEST_MS);
            Error::new(ErrorCode::BadRequest, message)
        })?;
        tracing::warn!(by_ms, ahead_ms, "the test clock was moved");
        Ok(MovedTime { ahead_ms, now_ms: clock.now() })
    }
}

impl CoreHandle {
    async fn read(&self, shard: ShardId, entity: EntityKey, fields: StateFields) -> Result<StateReply, Error> {
        match self.ask(shard, ReadState { entity, fields }).await? {
            EntityState::Fields(fields) => Ok(StateReply::Entity(fields_json(&fields)?)),
            EntityState::Field(value) => {
                let content = Bytes::copy_from_slice(value.content());
                Ok(match value.kind() {
                    ValueKind::Json => StateReply::Json(content),
                    ValueKind::Bytes => StateReply::Binary(content),
                })
            }
        }
    }
}

/// Fields as one JSON object: JSON values as they are, bytes as `{"base64": "…"}`.
fn fields_json(fields: &[(Box<[u8]>, Value)]) -> Result<Bytes, Error> {
    let failed =
        |error: serde_json::Error| Error::new(ErrorCode::Internal, format!("a value cannot be shown: {error}"));
    let mut out = vec![b'{'];
    for (index, (field, value)) in fields.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        serde_json::to_writer(&mut out, &String::from_utf8_lossy(field)).map_err(failed)?;
        out.push(b':');
        match value.kind() {
            ValueKind::Json => out.extend_from_slice(value.content()),
            ValueKind::Bytes => {
                let text = base64::engine::general_purpose::STANDARD.encode(value.content());
                out.extend_from_slice(format!("{{\"base64\":\"{text}\"}}").as_bytes());
            }
        }
    }
    out.push(b'}');
    Ok(out.into())
}
