//! `millrace serve`: builds a node from settings and runs it until it is told to stop.

use std::net::TcpListener;
use std::path::Path;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

use millrace_access::Users;
use millrace_api::RECORDS_APP;
use millrace_api::objects::OBJECTS_APP;
use millrace_base::limits;
use millrace_fetch::HttpFetcher;
use millrace_func::{App, Engines, WORKER_FILE, Workers};
use millrace_func_js::{Clocks, JsEngine, Watchdog};
use millrace_func_objects::ObjectsEngine;
use millrace_func_records::RecordsEngine;
use millrace_func_remote::RemoteEngine;
use millrace_http::{Entrance, Front, Starting};
use millrace_io::{Clock, RealClock, thread_cpu_ns};
use millrace_node::{
    CoreHandle, DataDirectory, EngineMaker, Fronts, Node, NodeMetrics, Outside, StartError, app_from_folder,
};
use millrace_s3::metrics::Registered;
use millrace_s3::null_store::NullStore;
use millrace_workers::{HttpWorkers, SigningKeys};
use prometheus_client::registry::Registry;
use rustix::process::{Resource, getrlimit, setrlimit};
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

use crate::Failure;
use crate::cli::ServeArgs;
use crate::keys;
use crate::logging;
use crate::overdue;
use crate::s3_users::S3Users;
use crate::settings::Settings;
use crate::users;

/// Runs a node until SIGTERM or Ctrl-C.
///
/// # Errors
/// A sentence that says what to change.
pub(crate) fn run(args: &ServeArgs) -> Result<(), Failure> {
    let settings = Settings::of(args)?;
    let _logs = logging::start(&settings.log, settings.log_json)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut signals = StopSignals::new(&runtime)?;
    let node = start(&settings)?;
    greet(&settings, &node);
    runtime.block_on(signals.wait());
    tracing::info!("stopping: finishing what has begun; once more to stop at once");
    signals.exit_at_the_next(runtime)?;
    node.stop()?;
    tracing::info!("stopped");
    Ok(())
}

/// Loads the apps, binds the address and starts the node.
///
/// # Errors
/// A sentence that says what to change.
pub(crate) fn start(settings: &Settings) -> Result<Node, Failure> {
    let mut front = settings.front.clone();
    // Both fronts take connections.
    let listeners_of_node = settings.node.cores.max(1) * if settings.s3.is_some() { 2 } else { 1 };
    let for_connections = connections_within(raise_descriptor_limit()) / listeners_of_node;
    front.limits.connections = front.limits.connections.min(for_connections.max(1));
    let apps = load_apps(&settings.apps)?;
    let metrics = NodeMetrics::new(settings.node.cores);
    let mut registry = Registry::default();
    registry.register_collector(Box::new(metrics.clone()));
    let watchdog = Arc::<Watchdog>::default();
    overdue::watch(&watchdog, &mut registry)?;
    if settings.s3.is_some() {
        registry.register_collector(Box::new(Registered(Arc::clone(&settings.s3_front.metrics))));
    }
    let front = Front::new(front, registry)?;
    let sockets = Sockets::bind(settings, &front)?;
    let starting = Arc::new(sockets.answer_while_starting(&front)?);
    let options = settings.node.clone();
    let directory = DataDirectory::open(&options.data, options.shards).map_err(StartError::Directory)?;
    let workers = HttpWorkers::new(HttpFetcher::new(&worker_connections()), worker_keys(&directory)?);
    let of_engines = workers.clone();
    let lifecycle_day_ms = settings.s3_lifecycle_day_ms;
    let engine: EngineMaker = Arc::new(move |shard_count| {
        let (given_up, slots) = (of_engines.clone(), of_engines.clone());
        let remote = RemoteEngine::new(
            move |program, attempt| given_up.cancel(program, attempt),
            move |root| slots.try_enter(root.program, root.service),
        );
        let functions = Rc::new(JsEngine::watched(clocks(), &watchdog, overdue::this_thread()));
        let records = RecordsEngine::new(Rc::clone(&functions), shard_count);
        let objects = ObjectsEngine::with_day(lifecycle_day_ms);
        let engines = Engines::new(functions).with(RECORDS_APP, records).with(OBJECTS_APP, objects);
        Box::new(engines.with_file(WORKER_FILE, remote))
    });
    let fetcher = Arc::new(HttpFetcher::new(&millrace_fetch::Options::default()));
    let outside = Outside { fetcher, workers: Arc::new(workers) };
    let tables = options.cluster.as_ref().map(|cluster| Arc::clone(&cluster.tables));
    let users = users::open(&directory, tables.as_ref())?;
    // A file that was named is the operator's own, on each node.
    if let Some(tables) = tables.filter(|_| !settings.are_keys_named) {
        keys::agree(&tables, &front, &settings.key_file)?;
    }
    front.manage_users(Arc::clone(&users));
    let Sockets { http, s3 } = sockets;
    let s3 = s3.map(|listeners| s3_listeners(listeners, settings, &users, &front));
    let fronts = fronts(http, front, s3, Arc::clone(&starting));
    let started = Node::start_in(directory, options, apps, engine, outside, fronts, metrics);
    // A start that failed must leave the addresses free, whoever still has the fronts.
    starting.end();
    Ok(started?)
}

/// What requests to workers are signed with.
fn worker_keys(directory: &DataDirectory) -> Result<SigningKeys, Failure> {
    let secret = DataDirectory::secret(directory.path(), directory.manifest());
    Ok(SigningKeys::derived_from(secret.map_err(|error| format!("the data directory's secret: {error}"))?))
}

/// What the node listens at. There is one socket for each core.
struct Sockets {
    http: Vec<TcpListener>,
    s3: Option<Vec<TcpListener>>,
}

impl Sockets {
    /// Binds the addresses, before anything is read that takes long: a taken one is found at once.
    ///
    /// # Errors
    /// A sentence that says what to change.
    fn bind(settings: &Settings, front: &Front) -> Result<Self, Failure> {
        millrace_http::check_listener(settings.http, front.has_keys()).map_err(|error| {
            let file = shell_word(&settings.key_file);
            format!(
                "{error}: make one with `millrace keys --keys {file} add --role admin NAME`, or listen on 127.0.0.1:{}",
                settings.http.port()
            )
        })?;
        let cores = settings.node.cores;
        let http = millrace_http::bind_all(settings.http, cores)
            .map_err(|error| format!("{error} (--http, or PORT= with make run)"))?;
        let s3 = settings.s3.map(|address| millrace_http::bind_all(address, cores)).transpose();
        Ok(Self { http, s3: s3.map_err(|error| format!("{error} (--s3)"))? })
    }

    /// Whoever connects from now on hears that the node is starting.
    ///
    /// # Errors
    /// When no thread can be started.
    fn answer_while_starting(&self, front: &Front) -> Result<Starting, Failure> {
        let mut entrances =
            vec![Entrance { listeners: &self.http, tls: front.tls_http1(), reply: millrace_http::starting_reply() }];
        if let Some(listeners) = &self.s3 {
            let reply = millrace_s3::listener::STARTING.to_vec();
            entrances.push(Entrance { listeners, tls: front.tls_http1(), reply });
        }
        Ok(Starting::begin(entrances)?)
    }
}

/// Connections to workers: each attempt under way has one, and idle ones are kept longer than those to strangers.
fn worker_connections() -> millrace_fetch::Options {
    millrace_fetch::Options {
        connections: limits::WORKER_CONNECTIONS,
        stream_connections: limits::WORKER_STREAM_CONNECTIONS,
        idle_per_host: limits::WORKER_CONNECTIONS,
        offers_http2: true,
        ..millrace_fetch::Options::default()
    }
}

/// A path in a form that a shell reads as one word.
fn shell_word(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@%".contains(c);
    if text.chars().all(is_plain) { text } else { format!("'{}'", text.replace('\'', "'\\''")) }
}

fn clocks() -> Clocks {
    Clocks { monotonic_ns: || RealClock.monotonic_ns(), thread_cpu_ns }
}

fn load_apps(folders: &[std::path::PathBuf]) -> Result<Vec<App>, Failure> {
    let mut apps: Vec<App> = Vec::new();
    for folder in folders {
        let app = load_app(folder)?;
        if apps.iter().any(|known| known.name == app.name) {
            return Err(format!("--app {}: another app is named {} as well", folder.display(), app.name).into());
        }
        apps.push(app);
    }
    Ok(apps)
}

/// What is wrong with an app's folder.
#[derive(Debug)]
struct BrokenApp(String);

impl std::fmt::Display for BrokenApp {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for BrokenApp {}

/// Whether the node did not start because of a broken app, which its author can mend.
pub(crate) fn is_of_an_app(error: &Failure) -> bool {
    error.is::<BrokenApp>() || matches!(error.downcast_ref(), Some(StartError::App(..)))
}

/// Reads one app's folder.
///
/// # Errors
/// A sentence naming the folder.
pub(crate) fn load_app(folder: &Path) -> Result<App, Failure> {
    app_from_folder(folder).map_err(|error| BrokenApp(format!("--app {}: {}", folder.display(), error.message)).into())
}

/// What the S3 fronts of all cores need.
struct S3Listeners {
    listeners: Vec<TcpListener>,
    options: Arc<millrace_s3::front::Options>,
    users: Arc<Users>,
}

fn s3_listeners(
    listeners: Vec<TcpListener>,
    settings: &Settings,
    users: &Arc<Users>,
    front: &Arc<Front>,
) -> S3Listeners {
    let connections = settings.s3_front.connections.min(front.options().limits.connections);
    let options = millrace_s3::front::Options { tls: front.tls_http1(), connections, ..settings.s3_front.clone() };
    S3Listeners { listeners, options: Arc::new(options), users: Arc::clone(users) }
}

/// Hands each core its own listener.
struct Listeners(Mutex<Vec<Option<TcpListener>>>);

impl Listeners {
    fn new(listeners: Vec<TcpListener>) -> Self {
        Self(Mutex::new(listeners.into_iter().map(Some).collect()))
    }

    fn take(&self, core: usize) -> Option<TcpListener> {
        let mut listeners = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        listeners.get_mut(core).and_then(Option::take)
    }
}

/// Ready when the node drains.
async fn stopped(mut drain: watch::Receiver<bool>) {
    // The sender lives as long as the node. If it is gone, the node stops as well.
    let _ = drain.wait_for(|is_draining| *is_draining).await;
}

/// One HTTP front per core, and one of S3 if that is listened for, each with a listener of its own. They take the listeners
/// over from what answers while the node starts.
fn fronts(listeners: Vec<TcpListener>, front: Arc<Front>, s3: Option<S3Listeners>, starting: Arc<Starting>) -> Fronts {
    let listeners = Listeners::new(listeners);
    let s3 = s3.map(|s3| (Listeners::new(s3.listeners), s3.options, s3.users));
    let null_store = NullStore::default();
    Arc::new(move |handle: CoreHandle, drain: watch::Receiver<bool>| {
        starting.end();
        let listener = listeners.take(handle.index());
        let (front, null_store) = (Arc::clone(&front), null_store.clone());
        let s3 = s3.as_ref().and_then(|(listeners, options, users)| {
            Some((listeners.take(handle.index())?, Arc::clone(options), S3Users::new(users.view(), handle.clone())))
        });
        Box::pin(async move {
            let http = async {
                let Some(listener) = listener else { return };
                if let Err(error) = millrace_http::serve(listener, handle.clone(), front, stopped(drain.clone())).await
                {
                    tracing::error!(%error, "the HTTP front failed");
                }
            };
            let objects = async {
                let Some((listener, options, users)) = s3 else { return };
                let stopped = stopped(drain.clone());
                let served = if options.is_null_store {
                    millrace_s3::listener::serve(listener, null_store, users, options, stopped).await
                } else {
                    millrace_s3::listener::serve(listener, handle.clone(), users, options, stopped).await
                };
                if let Err(error) = served {
                    tracing::error!(%error, "the S3 front failed");
                }
            };
            tokio::join!(http, objects);
        })
    })
}

/// Raises the soft limit of open files to the hard one, and returns it. Each connection is an open file.
fn raise_descriptor_limit() -> u64 {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::warn!(%error, "the limit of open files stays as it is");
    }
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Descriptors that no connection gets: more than a large state has files.
const FILES: u64 = 1024;

/// The number of descriptors that connections may use. The others are for files and for fetches of functions. Without a
/// free descriptor the log cannot open its next segment, so a crowd of silent clients would stop all writes.
fn connections_within(descriptors: u64) -> usize {
    usize::try_from(descriptors - (descriptors / 4).min(FILES)).unwrap_or(usize::MAX)
}

/// SIGTERM and Ctrl-C. The process listens before the node serves, so no signal can end a serving node without
/// draining.
pub(crate) struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
}

impl StopSignals {
    /// Begins to listen.
    ///
    /// # Errors
    /// When signals cannot be listened for.
    pub(crate) fn new(runtime: &Runtime) -> Result<Self, Failure> {
        let _inside = runtime.enter();
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    /// Returns when the process is told to stop.
    pub(crate) async fn wait(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }

    /// Ends the process without draining when it is told to stop again.
    ///
    /// # Errors
    /// When no thread can be started to listen.
    pub(crate) fn exit_at_the_next(mut self, runtime: Runtime) -> Result<(), Failure> {
        std::thread::Builder::new().name("second-signal".to_owned()).spawn(move || {
            runtime.block_on(self.wait());
            std::process::exit(1);
        })?;
        Ok(())
    }
}

/// Tells a person where the node is and what to try.
pub(crate) fn greet(settings: &Settings, node: &Node) {
    let scheme = if settings.front.tls.is_some() { "https" } else { "http" };
    let base = format!("{scheme}://{}", settings.http);
    tracing::info!(
        address = %settings.http,
        cores = settings.node.cores,
        shards = node.shard_count(),
        data = %settings.node.data.display(),
        "millrace {} serves", env!("CARGO_PKG_VERSION")
    );
    println!("Millrace serves at {base}  (data in {})", settings.node.data.display());
    if let Some(address) = settings.s3.filter(|_| settings.s3_front.is_null_store) {
        let what = "NULL STORE: anybody may do anything, content is thrown away, zeros come back";
        tracing::warn!(%address, "S3 is served by the {what}");
        println!("  S3        {scheme}://{address}  {what}");
    } else if let Some(address) = settings.s3 {
        println!("  S3        {scheme}://{address}  (users: millrace s3 user add NAME)");
    }
    if let Some(clock) = &settings.node.test_clock {
        let what = "TEST CLOCK: whoever administers the node moves its time, which stays in its data";
        tracing::warn!(ahead_ms = clock.ahead_ms(), "{what}");
        println!("  {what}");
    }
    println!("  apps      {base}/apps      api  {base}/openapi.json      metrics  {base}/metrics");
    for line in suggestions(&base, &settings.apps) {
        println!("  {line}");
    }
}

/// Three lines to try, for the bundled examples that are there.
fn suggestions(base: &str, apps: &[std::path::PathBuf]) -> Vec<String> {
    let has = |name: &str| apps.iter().any(|folder| folder.file_name().is_some_and(|last| last == name));
    let mut lines = Vec::new();
    if has("counter") {
        lines.push(format!("curl -d 1 {base}/call/counter/visits/add"));
    }
    if has("login") {
        let body = r#"{"username":"ada","password":"correct horse"}"#;
        lines.push(format!("curl -d '{body}' {base}/user/register"));
        lines.push(format!("curl -u 'ada:correct horse' {base}/user/login"));
    }
    if lines.is_empty() {
        lines.push(format!("curl {base}/healthz"));
    } else {
        lines.insert(0, "try:".to_owned());
    }
    lines
}
