//! The built-in app of records: operations on its entities, and its files as the registry of types.
//!
//! What differs from users' apps: nobody deploys it under its name or reaches its services by the
//! paths of services, its handlers are all private, and it is replaced only by who has seen its
//! present version.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use bytes::Bytes;
use millrace_api::{
    AppFile, Permission, Principal, RECORDS_APP, RecordOperation, RecordReply, RecordRequest, SHARD_SERVICE,
    SWEEP_HANDLER, SystemApp, is_built_in,
};
use millrace_base::{Error, ErrorCode, Name, ShardId, shard_of_key};
use millrace_driver::{Arrival, FastRead, Job, Question, unexpected};
use millrace_func::{App, Base64Alphabet, HandlerId, base64_encode};
use millrace_shard::{Invoke, Reply, Token};

use crate::apps::{app_from_files, version_of};
use crate::backend::{CoreHandle, authorise, info};
use crate::core::{Core, Shared};
use crate::deploy;

/// How long to wait before shards that could not take a sweep are asked again: twice as long each time, up
/// to the longest.
const FIRST_RETRY_MS: u64 = 500;
const LONGEST_RETRY_MS: u64 = 30_000;

/// What tells a sweep that nothing of the version before runs any more.
const ALONE: &[u8] = br#"{"alone":true}"#;

/// How often it is looked whether nothing is under way, and the pause between: no longer than sweeps wait by
/// themselves.
const QUIET_ATTEMPTS: usize = 200;
const QUIET_PAUSE: Duration = Duration::from_millis(50);

/// Refuses to deploy or remove the built-in app as if it were a user's.
pub(crate) fn refuse_system_name(app: &str) -> Result<(), Error> {
    if is_built_in(app) {
        let message = format!("the app {app:?} is built in: give yours another name");
        return Err(Error::new(ErrorCode::AppRefused, message));
    }
    Ok(())
}

/// Refuses to reach the built-in app by the paths of services.
pub(crate) fn refuse_records(app: Option<&str>) -> Result<(), Error> {
    if let Some(app) = app.filter(|app| is_built_in(app)) {
        let message = match app {
            RECORDS_APP => {
                "the app \"records\" is built in: its records are reached at /records/{type}/{id}".to_owned()
            }
            _ => format!("the app {app:?} is built in and has other ways to be reached"),
        };
        return Err(Error::new(ErrorCode::UnknownApp, message));
    }
    Ok(())
}

fn unknown_type(name: &str) -> Error {
    Error::new(ErrorCode::UnknownType, format!("there is no type of records named {name:?}"))
}

/// An operation on its way to its shard.
pub(crate) struct Operation<'a> {
    pub handler: HandlerId,
    pub shard: ShardId,
    pub key: Cow<'a, [u8]>,
    pub input: Bytes,
}

impl Operation<'_> {
    pub(crate) fn as_fast_read(&self) -> FastRead<'_> {
        FastRead { handler: self.handler, shard: self.shard, key: &self.key, input: &self.input }
    }
}

/// Finds the handler of an operation, and checks that the principal may use the type.
pub(crate) fn find<'a>(
    core: &Core,
    principal: &Principal,
    request: &RecordRequest<'a>,
) -> Result<Operation<'a>, Error> {
    let type_name = request.type_name;
    let is_read = !matches!(request.operation, RecordOperation::Write(_));
    authorise(principal, (RECORDS_APP, type_name), is_read)?;
    let found = core.programs.catalog.record_handler(type_name, request.operation.handler());
    let handler = found.ok_or_else(|| unknown_type(type_name))?;
    let key = match request.id {
        _ if request.operation.is_about_type() => own_key(core),
        Some(id) => Cow::Borrowed(id),
        None => return Err(Error::new(ErrorCode::BadRequest, "this operation needs the id of a record")),
    };
    let shard = shard_of_key(&key, core.placement().shard_count());
    Ok(Operation { handler, shard, key, input: request.operation.to_bytes() })
}

/// Begins an operation: what came of it if it ended at once, or the token to wait under.
pub(crate) fn begin(
    core: &mut Core,
    operation: Operation<'_>,
    idempotency_key: Option<&str>,
    arrival: Arrival,
) -> Result<Result<Result<Reply, Error>, Token>, Error> {
    let Operation { handler, shard, key, input } = operation;
    let info = info(core, idempotency_key)?;
    let invoke = Invoke { info, handler, key: key.into(), input };
    Ok(core.submit(Job::Invoke(shard, invoke), arrival))
}

/// A key that is placed on this core, if it has a shard: an operation about a type can run anywhere.
fn own_key(core: &Core) -> Cow<'static, [u8]> {
    let keys = &core.platform.shared.shard_keys;
    let own = core.placement().shards_of(core.index()).next().and_then(|shard| keys.get(usize::from(shard.0)));
    own.or(keys.first()).map_or(Cow::Borrowed(b"0"), |key| Cow::Owned(key.clone()))
}

/// An operation in one line.
pub(crate) fn shown(request: &RecordRequest<'_>) -> String {
    let id = String::from_utf8_lossy(request.id.unwrap_or_default());
    format!("records {}/{id} {}", request.type_name, request.operation.handler())
}

fn as_system_app(app: &App) -> SystemApp {
    let file = |(path, content): (&String, &Vec<u8>)| AppFile { path: path.clone(), content: content.clone() };
    SystemApp { version: version_of(app), files: Arc::new(app.files.iter().map(file).collect()) }
}

/// The built-in apps as they are kept.
pub(crate) fn system_apps(kept: &[App]) -> RwLock<BTreeMap<String, SystemApp>> {
    let found = kept.iter().find(|app| app.name.as_str() == RECORDS_APP);
    let app = found.map(as_system_app).unwrap_or_default();
    RwLock::new(BTreeMap::from([(RECORDS_APP.to_owned(), app)]))
}

fn current(shared: &Shared, app: &str) -> Result<SystemApp, Error> {
    let apps = shared.system_apps.read().unwrap_or_else(PoisonError::into_inner);
    let unknown = || Error::new(ErrorCode::UnknownApp, format!("no app {app:?} is built in"));
    apps.get(app).cloned().ok_or_else(unknown)
}

/// What `Backend::system_app` gives.
pub(crate) fn system_app(shared: &Shared, principal: &Principal, app: &str) -> Result<SystemApp, Error> {
    if !principal.may_read_something_of(app) && !principal.may(Permission::Deploy) {
        return Err(Error::new(ErrorCode::Forbidden, format!("this needs the role deploy or call:{app}/*")));
    }
    current(shared, app)
}

/// Replaces a built-in app if its version still is `expected`, and has its types swept whose definition
/// has changed. Gives its new version.
///
/// Runs as a task of its own: a caller that goes away leaves no app half replaced or unswept.
pub(crate) async fn replace(node: &CoreHandle, app: &str, expected: u64, files: Vec<AppFile>) -> Result<u64, Error> {
    let shared = node.shared();
    current(&shared, app)?;
    let app = app_from_files(app, files)?;
    let node = node.clone();
    let task = tokio::task::spawn_local(async move {
        let mut state = shared.deploying.lock().await;
        let present = current(&shared, app.name.as_str())?.version;
        if present != expected {
            let message = format!("the app {:?} has been replaced meanwhile", app.name.as_str());
            return Err(Error::new(ErrorCode::PreconditionFailed, message));
        }
        let (name, replaced) = (app.name.to_string(), as_system_app(&app));
        let version = replaced.version;
        let prepared = deploy::prepare(&shared, &mut state, app).await?;
        if let Err(error) = empty(&node, &prepared).await {
            deploy::discard(&shared, &prepared);
            return Err(error);
        }
        let sweeps = deploy::complete(&shared, &mut state, prepared).await?.sweeps;
        shared.system_apps.write().unwrap_or_else(PoisonError::into_inner).insert(name, replaced);
        // All cores serve the new version by now: no shard is swept in the one before.
        tokio::task::spawn_local(async move {
            sweep_services(&node, &sweeps).await;
            hasten(&node, version, &sweeps).await;
        });
        Ok(version)
    });
    task.await.unwrap_or_else(|_| Err(deploy::stopping()))
}

/// Sees to it that types which go are without records, unless by force, and stay so: whoever looked before
/// may have looked too early. From here on nobody writes records of theirs, and what had begun to is seen. Nothing of
/// this is on the disk: a crash leaves the type, or, once the new version is kept, takes it away.
async fn empty(node: &CoreHandle, prepared: &deploy::Prepared) -> Result<(), Error> {
    for name in deploy::close(&node.shared(), prepared).await? {
        if are_there(node, name.as_str()).await? {
            let message = format!("the type {:?} has records: delete them first, or force it", name.as_str());
            return Err(Error::new(ErrorCode::TypeInUse, message));
        }
    }
    Ok(())
}

/// Has every shard go over its records of a type, as messages that survive a crash.
pub(crate) async fn sweep(node: &CoreHandle, type_name: &str) -> Result<(), Error> {
    let service = format!("{type_name}{SHARD_SERVICE}");
    if find_sweep(node, &service).is_err() {
        return Err(unknown_type(type_name));
    }
    sweep_service(node, &service, |shard, invoke| Job::Send { shard, invoke, delay_ms: 0 }, b"").await
}

fn find_sweep(node: &CoreHandle, service: &str) -> Result<HandlerId, Error> {
    node.core().borrow().programs.catalog.find(RECORDS_APP, service, SWEEP_HANDLER)
}

async fn sweep_service(
    node: &CoreHandle,
    service: &str,
    job: impl Fn(ShardId, Invoke) -> Job,
    input: &'static [u8],
) -> Result<(), Error> {
    let mut begun = Vec::new();
    for (shard, key) in (0u16..).map(ShardId).zip(node.shared().shard_keys.iter()) {
        let invoke = {
            let handler = find_sweep(node, service)?;
            let mut core = node.core().borrow_mut();
            let info = info(&mut core, None)?;
            Invoke { info, handler, key: key.as_slice().into(), input: Bytes::from_static(input) }
        };
        begun.push(node.begin(job(shard, invoke)));
    }
    let mut result = Ok(());
    for begun in begun {
        // What one shard cannot do is no reason to keep the others from it.
        result = match begun.reply().await {
            Ok(_) => result,
            Err(error) => result.and(Err(error)),
        };
    }
    result
}

/// Begins the sweeps of services in the background, again and again until every shard has taken its message.
/// One that is there twice is no harm: the later overtakes the earlier one.
async fn sweep_services(node: &CoreHandle, services: &[Name]) {
    let send = |shard, invoke| Job::Send { shard, invoke, delay_ms: 0 };
    for service in services {
        let mut wait_ms = FIRST_RETRY_MS;
        while let Err(error) = sweep_service(node, service.as_str(), send, b"").await {
            let is_gone = find_sweep(node, service.as_str()).is_err();
            // The next start begins them anyway.
            let is_hopeless = matches!(error.code, ErrorCode::ShardStopped | ErrorCode::ShuttingDown);
            if is_gone || is_hopeless {
                break;
            }
            tracing::warn!(%error, service = service.as_str(), "records are not brought to their definition yet");
            tokio::time::sleep(Duration::from_millis(wait_ms)).await;
            wait_ms = (wait_ms * 2).min(LONGEST_RETRY_MS);
        }
    }
}

/// Sweeps wait until no transaction can run any more that began in the version before. On a node with little
/// to do that is known sooner: then they are told so, by calls that all end before another version serves.
async fn hasten(node: &CoreHandle, version: u64, services: &[Name]) {
    let shared = node.shared();
    for _ in 0..QUIET_ATTEMPTS {
        if services.is_empty() {
            return;
        }
        {
            let _no_other_version = shared.deploying.lock().await;
            if current(&shared, RECORDS_APP).map(|app| app.version) != Ok(version) {
                return;
            }
            if deploy::is_quiet(&shared).await {
                for service in services {
                    // What it cannot hasten goes on in its time.
                    let _ = sweep_service(node, service.as_str(), Job::Invoke, ALONE).await;
                }
                return;
            }
        }
        tokio::time::sleep(QUIET_PAUSE).await;
    }
}

/// After a start: a crash may have come between the replacement of a definition and the sweeps that
/// follow from it.
pub(crate) async fn sweep_everything(node: CoreHandle) {
    let services: Vec<Name> = {
        let core = node.core().borrow();
        let catalog = &core.programs.catalog;
        let records = catalog.apps().find(|(name, _)| name.as_str() == RECORDS_APP);
        let loaded = records.and_then(|(_, program)| catalog.program(program));
        let names = loaded.iter().flat_map(|loaded| &loaded.services).map(|service| &service.name);
        names.filter(|name| name.as_str().ends_with(SHARD_SERVICE)).cloned().collect()
    };
    sweep_services(&node, &services).await;
}

/// Whether any shard has a record of a type.
pub(crate) async fn are_there(node: &CoreHandle, type_name: &str) -> Result<bool, Error> {
    for shard in (0..node.shard_count()).map(ShardId) {
        let question = Question::HasEntities { app: RECORDS_APP.into(), service: type_name.into() };
        match node.ask(shard, question).await? {
            Reply::Value(answer) if &answer[..] == b"true" => return Ok(true),
            Reply::Value(_) => {}
            _ => return Err(unexpected()),
        }
    }
    Ok(false)
}

fn is_json(text: &[u8]) -> bool {
    serde_json::from_slice::<serde::de::IgnoredAny>(text).is_ok()
}

/// For people: what a call of a record was given or gave is no JSON text.
pub(crate) fn input_as_json(bytes: Bytes) -> Bytes {
    if bytes.is_empty() || is_json(&bytes) {
        return bytes;
    }
    Bytes::from(serde_json::json!({ "base64": base64_encode(&bytes, Base64Alphabet::Standard) }).to_string())
}

/// The same for a reply, whose body is JSON unless it was asked for in another form.
pub(crate) fn reply_as_json(bytes: Bytes) -> Bytes {
    if is_json(&bytes) {
        return bytes;
    }
    match RecordReply::from_bytes(bytes.clone()) {
        Ok(reply) if is_json(&reply.body) => reply.body,
        Ok(reply) if reply.body.is_empty() => {
            Bytes::from(serde_json::json!({ "matched": reply.matched, "created": reply.created }).to_string())
        }
        _ => input_as_json(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_see_json_whatever_was_kept() {
        let shown = |bytes: Bytes| String::from_utf8(reply_as_json(bytes).to_vec()).expect("text");
        let reply = |body: &'static [u8]| {
            RecordReply { matched: 2, body: Bytes::from_static(body), ..RecordReply::default() }.to_bytes()
        };
        assert_eq!(shown(Bytes::from_static(b"[1]")), "[1]");
        assert_eq!(shown(reply(b"{\"a\":1}")), "{\"a\":1}");
        assert_eq!(shown(reply(b"")), r#"{"created":false,"matched":2}"#);
        assert_eq!(shown(Bytes::from_static(b"\xff\x00")), r#"{"base64":"/wA="}"#);
        assert_eq!(input_as_json(Bytes::new()), Bytes::new());
    }
}
