//! Operations that are not called often: sends, state, workflows, deployments, health, pages.

use std::borrow::Cow;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use millrace_api::{
    AppInfo, AppVersion, CallRequest, Calls, Deployments, Intervention, Permission, Principal, SendRequest, Serving,
    SharedService, StateFields, StateRequest,
};
use millrace_base::{Error, ErrorCode};
use serde::Serialize;

use super::headers::may_see_more;
use super::refusals::unknown_route;
use super::{Input, Reply, Session};
use crate::auth::{Otherwise, caller, key_of};
use crate::backend::Backend;
use crate::connection::DialledWorker;
use crate::operations::{Kind, Operation, Parameter};
use crate::{archive, body, buckets, cluster_keys, events, manage, nodes, path, records, reply, test_clock, users};

pub(super) async fn cold_dispatch<B: Backend>(
    session: &Session<B>,
    who: &Principal,
    row: &Operation,
    input: Input<'_>,
) -> Reply {
    let backend = &*session.backend;
    match row.kind {
        Kind::Records(operation) => records::operate(session, who, operation, input).await,
        Kind::Send => send(session, who, input).await,
        Kind::Invocation => manage::invocation(session, who, input).await,
        Kind::Invocations => manage::invocations(backend, who, input.query()).await,
        Kind::Cancel => manage::intervene(backend, who, input, Intervention::Cancel).await,
        Kind::Kill => manage::intervene(backend, who, input, Intervention::Kill).await,
        Kind::Resume => manage::intervene(backend, who, input, Intervention::Resume).await,
        Kind::Restart => {
            let (from, on_newest) = path::restart(input.query())?;
            manage::intervene(backend, who, input, Intervention::Restart { from, on_newest }).await
        }
        Kind::Signal => manage::signal(session, who, input).await,
        Kind::DeadLetters => manage::dead_letters(backend, who, input.query()).await,
        Kind::RetryDeadLetter => manage::retry_dead_letter(backend, who, input).await,
        Kind::DropDeadLetter => manage::drop_dead_letter(backend, who, input).await,
        Kind::Schedules => manage::schedules(backend, who, input.query()).await,
        Kind::Apps => apps(backend, who, input.uri.query()).await,
        Kind::Deploy => deploy(session, who, input).await,
        Kind::WorkerKey => {
            let public_key = backend.worker_key(who, &input.name(Parameter::App)?)?;
            reply::json_value(StatusCode::OK, &serde_json::json!({ "signature": "ed25519", "public_key": public_key }))
        }
        Kind::ConnectWorker => connect_worker(session, who, &input),
        Kind::RemoveApp => {
            backend.remove_app(who, &input.name(Parameter::App)?).await?;
            Ok(reply::empty(StatusCode::NO_CONTENT))
        }
        Kind::Metrics => metrics_text(session, who),
        Kind::Cluster => guidance(backend),
        Kind::AddNode | Kind::DrainNode | Kind::KeepNode | Kind::RemoveNode => {
            nodes::change(session, who, row.kind, input).await
        }
        Kind::ClusterKeys | Kind::ReplaceClusterKeys => cluster_keys::manage(session, who, row.kind, input).await,
        Kind::Backup => events::backup(&session.state, backend.backup(who).await?),
        Kind::AdvanceClock => test_clock::advance(session, who, input).await,
        kind if buckets::manages(kind) => buckets::manage(session, who, kind, input).await,
        kind if users::manages(kind) => users::manage(session, who, kind, input).await,
        _ => Err(unknown_route(input.uri.path())),
    }
}

/// Who owns which shard: JSON.
fn guidance(backend: &impl Serving) -> Reply {
    let Some(guidance) = backend.guidance() else {
        return Err(Error::new(ErrorCode::UnknownRoute, "this node is by itself: it is in no cluster"));
    };
    Ok(reply::json(HeaderMap::new(), guidance?))
}

/// The app as lists show it, and what is to be said of this deployment alone.
#[derive(Serialize)]
struct DeployedReply<'a> {
    #[serde(flatten)]
    app: &'a AppInfo,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    warnings: &'a [String],
}

/// An app of which the versions were asked for.
#[derive(Serialize)]
struct AppReply<'a> {
    #[serde(flatten)]
    app: &'a AppInfo,
    versions: Vec<AppVersion>,
}

/// `GET /apps`: of one app also its versions.
async fn apps(backend: &impl Deployments, who: &Principal, query: Option<&str>) -> Reply {
    let all = backend.apps(who).await?;
    let Some(name) = path::name_parameter(query, "app")? else {
        return reply::json_value(StatusCode::OK, &all);
    };
    let versions = backend.app_versions(who, &name).await?;
    // One that was removed is listed for as long as workflows run in it.
    let removed = AppInfo { name: name.to_string(), version: 0, services: Vec::new() };
    let app = all.iter().find(|app| app.name == name).unwrap_or(&removed);
    reply::json_value(StatusCode::OK, &[AppReply { app, versions }])
}

/// What callers of a service have to do now that several apps have one of its name.
fn warning(shared: &SharedService) -> String {
    let SharedService { service, apps } = shared;
    let (all, first) = (apps.join(", "), apps.first().map_or("", String::as_str));
    format!(
        "from now on calls have to name an app, as in /apps/{first}/…: the apps {all} all have a service {service:?}"
    )
}

async fn deploy<B: Deployments>(session: &Session<B>, who: &Principal, input: Input<'_>) -> Reply {
    // Asked here too, so that nobody without the right makes the server read megabytes.
    if !who.may(Permission::Deploy) {
        return Err(Error::new(ErrorCode::Forbidden, "deploying needs the role deploy"));
    }
    let app = input.name(Parameter::App)?;
    if let Err(error) = millrace_base::Name::new(&app) {
        return Err(Error::new(ErrorCode::BadRequest, error.to_string()));
    }
    let state = &session.state;
    let limit_bytes = state.local.front.options.limits.archive_bytes;
    let body = body::collect(input.request.body_mut(), state, limit_bytes).await?;
    let deployed = if is_json(input.request.headers()) {
        let registration = serde_json::from_slice(&body).map_err(|error| {
            Error::new(ErrorCode::BadRequest, format!("the body does not tell of a worker: {error}"))
        })?;
        session.backend.deploy_worker(who, &app, registration).await?
    } else {
        let files = archive::read(&body)?;
        drop(body);
        session.backend.deploy(who, &app, files).await?
    };
    let status = if deployed.is_new { StatusCode::CREATED } else { StatusCode::OK };
    let warnings: Vec<String> = deployed.shared_services.iter().map(warning).collect();
    reply::json_value(status, &DeployedReply { app: &deployed.app, warnings: &warnings })
}

/// The protocol that a worker changes to.
const WORKER_PROTOCOL: &str = "millrace-worker";

/// Its versions, as `millrace-func` has them. A test with a worker that dials in fails if one is missing.
const WORKER_VERSIONS: [&str; 5] = ["1", "2", "3", "4", "5"];

/// Workers read the beginning: it has them dial again with an older version.
const OTHER_VERSION: &str = "this server speaks versions 1 to 5: send one of them as `millrace-worker-protocol`";

/// A worker dials in: behind the reply the connection is its.
fn connect_worker<B: Deployments>(session: &Session<B>, who: &Principal, input: &Input<'_>) -> Reply {
    let header = |name| input.request.headers().get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    let bad = |message: &str| Err(Error::new(ErrorCode::BadRequest, message));
    if !header("upgrade").is_some_and(|value| value.eq_ignore_ascii_case(WORKER_PROTOCOL)) || session.state.is_http2() {
        return bad("a worker dials in over HTTP/1.1 with `connection: upgrade` and `upgrade: millrace-worker`");
    }
    if !header("millrace-worker-protocol").is_some_and(|version| WORKER_VERSIONS.contains(&version)) {
        return bad(OTHER_VERSION);
    }
    let Some(app) = header("millrace-app").filter(|app| millrace_base::Name::is_valid(app)) else {
        return bad("the header `millrace-app` names the app that the worker serves");
    };
    let line = session.backend.connect_worker(who, app)?;
    let token = key_of(&session.state.local.access, input.request.headers(), Otherwise::Refused)?;
    let token = token.map(Cow::into_owned);
    session.state.becomes(DialledWorker { line, app: app.to_owned(), token });
    let mut reply = reply::empty(StatusCode::SWITCHING_PROTOCOLS);
    reply.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    reply.headers_mut().insert(header::UPGRADE, HeaderValue::from_static(WORKER_PROTOCOL));
    Ok(reply)
}

/// Whether a body is said to be JSON.
fn is_json(headers: &HeaderMap) -> bool {
    let value = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    value.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case("application/json")
}

fn metrics_text<B>(session: &Session<B>, who: &Principal) -> Reply {
    const TEXT: HeaderValue = HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");
    if !who.may(Permission::Admin) {
        return Err(Error::new(ErrorCode::Forbidden, "metrics need the role admin"));
    }
    let text = session.state.local.front.metrics_text();
    let text = text.map_err(|_| Error::new(ErrorCode::Internal, "the metrics cannot be written"))?;
    Ok(reply::with_type(HeaderMap::new(), StatusCode::OK, TEXT, text.into()))
}

/// What `GET /` answers: clients of the Schema Registry look only whether it is an object, people look for more.
const ROOT: &str = r#"{"openapi":"/openapi.json","health":"/healthz"}"#;

/// Whoever may see handlers of workers finds them in it.
fn openapi<B: Deployments>(session: &Session<B>, input: &Input<'_>) -> Bytes {
    let local = &session.state.local;
    // It is public: a key that is not known here opens nothing, and closes nothing either.
    let caller = caller(&local.access, input.request.headers(), Otherwise::Ignored);
    let caller = caller.ok().filter(|_| may_see_more(local, input));
    let apps = caller.map(|caller| session.backend.handler_schemas(&caller.principal)).unwrap_or_default();
    match apps.is_empty() {
        true => local.front.openapi(),
        false => Bytes::from(crate::openapi::document_with(&apps).to_string()),
    }
}

pub(super) fn public<B: Serving + Deployments>(session: &Session<B>, kind: Kind, input: &Input<'_>) -> Reply {
    const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
    const MARKDOWN: HeaderValue = HeaderValue::from_static("text/markdown; charset=utf-8");
    let text = |kind, text: &'static str| {
        reply::with_type(HeaderMap::new(), StatusCode::OK, kind, Bytes::from_static(text.as_bytes()))
    };
    match kind {
        Kind::Records(millrace_records::Operation::RegistryRoot) => Ok(text(millrace_records::REGISTRY_MEDIA, ROOT)),
        Kind::Records(_) => Ok(text(TEXT, "pong")),
        Kind::OpenApi => Ok(reply::json(HeaderMap::new(), openapi(session, input))),
        Kind::ErrorPage => {
            let code = input.capture(Parameter::Code);
            let known = ErrorCode::parse(code).ok_or_else(|| unknown_route(input.uri.path()))?;
            Ok(text(MARKDOWN, crate::error_page(known)))
        }
        _ => {
            let health = session.backend.health();
            if !health.is_serving {
                return Err(Error::new(ErrorCode::ShuttingDown, "the node does not serve: it is starting or stopping"));
            }
            match health.hindrance.filter(|_| kind == Kind::Readyz) {
                Some(hindrance) => Err(hindrance.error()),
                None if health.has_test_clock => Ok(text(TEXT, "ok, with a clock that tests move\n")),
                None => Ok(text(TEXT, "ok\n")),
            }
        }
    }
}

async fn send<B: Calls>(session: &Session<B>, who: &Principal, mut input: Input<'_>) -> Reply {
    let (app, service, handler) = (input.app()?, input.name(Parameter::Service)?, input.name(Parameter::Handler)?);
    let key = path::decode_key(input.capture(Parameter::Key))?;
    let delay_ms = path::delay_ms(input.query())?;
    let id = path::chosen_id(input.query())?;
    let body = input.body(&session.state).await?;
    let idempotency_key = input.idempotency_key()?;
    let call = CallRequest {
        app: app.as_deref(),
        service: &service,
        key: &key,
        handler: &handler,
        input: body,
        idempotency_key,
    };
    reply::accepted(&session.backend.send(who, SendRequest { call, delay_ms, id: id.as_deref() }).await?)
}

pub(super) async fn state<B: Calls>(session: &Session<B>, who: &Principal, mut input: Input<'_>) -> Reply {
    let (app, service) = (input.app()?, input.name(Parameter::Service)?);
    let key = path::decode_key(input.capture(Parameter::Key))?;
    let fields = match input.captures.get(Parameter::Field) {
        Some(field) => StateFields::One(path::decode_field(field)?.into()),
        None => path::state_fields(input.query())?,
    };
    let request = StateRequest { app: app.as_deref(), service: &service, key: &key, fields };
    let found = session.backend.state(who, request).await?;
    Ok(reply::state(input.take_headers(), found))
}
