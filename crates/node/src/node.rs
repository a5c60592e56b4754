//! Starting and stopping a node: the data directory, recovery, the threads.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use millrace_api::RECORDS_APP;
use millrace_base::{Error, ErrorCode, ShardId, shard_keys};
use millrace_driver::{CoreOptions, CoreParts, FlushPolicy, Placement, READ_AHEAD, ShardMail, first_nonce};
use millrace_func::{App, Engine};
use millrace_io::{Random, RealClock, RealDisk, RealRandom};
use millrace_log::{Committer, Environment, LogError, RecoverError, Recovered, Segments, Writer, WriterOptions};
use millrace_manifest::ManifestError;
use millrace_shard::{ResultNames, Shard, ShardOptions};
use millrace_store::{Store, StoreError};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{Barrier, watch};

use crate::apps::{AppStore, version_of};
use crate::backend::CoreHandle;
use crate::built_in_apps::{self, refuse_system_name, system_apps};
use crate::core::{
    Core, CorePlatform, DeployState, NodeMessage, Shared, activate, handle, load, miss, run_messages, run_pump,
    run_ticks,
};
use crate::directory::{DataDirectory, DirectoryError};
use crate::entropy::KeyedEntropy;
use crate::flusher::{self, Flusher};
use crate::metrics::NodeMetrics;
use crate::objects;
use crate::options::{Durability, NodeOptions, Outside};
use crate::recovery::recover;

/// What runs on each core above the node: given the core's handle and a signal to drain, it
/// returns when it has drained.
pub type Fronts = Arc<dyn Fn(CoreHandle, watch::Receiver<bool>) -> Pin<Box<dyn Future<Output = ()>>> + Send + Sync>;

/// Makes one core's engine, on that core's thread, for a node with so many shards.
pub type EngineMaker = Arc<dyn Fn(u16) -> Box<dyn Engine> + Send + Sync>;

/// Slow work (password hashes) runs on so many threads per core: more would take the cores' time.
const OFFLOAD_THREADS: usize = 1;

/// Native stack of a core's thread: what an app may allow its functions, and room for the rest.
const CORE_STACK_BYTES: usize = 4 << 20;

/// Share of the memory budget that the checkpoint may use for its own caches.
pub(crate) const CHECKPOINT_CACHE_SHARE: usize = 8;

/// Why a node did not start.
#[derive(Debug)]
pub enum StartError {
    /// The data directory cannot be used.
    Directory(DirectoryError),
    /// The checkpoint is not the one that the manifest knows.
    Manifest(ManifestError),
    /// The log cannot be recovered; the message names file, offset and what to do.
    Recover(RecoverError),
    /// The checkpoint cannot be read.
    Store(StoreError),
    /// The log cannot be written.
    Log(LogError),
    /// An app cannot be loaded.
    App(String, Error),
    /// The operating system refused something.
    Io(io::Error),
}

impl fmt::Display for StartError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartError::Directory(error) => error.fmt(formatter),
            StartError::Manifest(error) => error.fmt(formatter),
            StartError::Recover(error) => error.fmt(formatter),
            StartError::Store(error) => write!(formatter, "the checkpoint cannot be opened: {error}"),
            StartError::Log(error) => error.fmt(formatter),
            StartError::App(app, error) => write!(formatter, "app {app}: {}", error.message),
            StartError::Io(error) => error.fmt(formatter),
        }
    }
}

impl std::error::Error for StartError {}

/// A running node. Dropping it without [`Node::stop`] leaves its threads running.
pub struct Node {
    shared: Arc<Shared>,
    drain: watch::Sender<bool>,
    cores: Vec<JoinHandle<Result<(), StartError>>>,
    flusher: JoinHandle<()>,
    body_threads: Vec<JoinHandle<()>>,
    directory: DataDirectory,
}

/// What a core hears from other threads.
struct Inputs {
    messages: UnboundedReceiver<NodeMessage>,
    mail: UnboundedReceiver<ShardMail>,
}

/// A core's ends of the channels to it: those that say something, and those that hear it.
fn channels() -> ((UnboundedSender<NodeMessage>, UnboundedSender<ShardMail>), Inputs) {
    let ((sender, messages), (mail_sender, mail)) = (unbounded_channel(), unbounded_channel());
    ((sender, mail_sender), Inputs { messages, mail })
}

/// A version that only workflows still run in. Only their cores load it, as while the node ran: what all cores together
/// hold of replaced versions has a bound, and each that loads it takes a share.
struct Pinned {
    app: App,
    /// The shards of the workflows.
    shards: BTreeSet<ShardId>,
}

impl Pinned {
    fn is_needed_by(&self, core: &Core) -> bool {
        self.shards.iter().any(|shard| core.placement().core_of(*shard) == core.index())
    }
}

/// One core's share of what recovery produced, on its way to the core's thread.
struct CoreSeed {
    index: usize,
    shared: Arc<Shared>,
    shards: Vec<Option<Shard>>,
    inputs: Inputs,
    entropy: KeyedEntropy,
    engine: EngineMaker,
    log: Option<(Environment, Segments, WriterOptions)>,
    apps: Arc<Vec<App>>,
    /// Versions that only workflows still run in.
    pinned: Arc<Vec<Pinned>>,
    fronts: Fronts,
    drain: watch::Receiver<bool>,
    drained: Arc<Barrier>,
    /// Says to begin serving, without the apps that some core could not load; its end says not to.
    go: mpsc::Receiver<Arc<Missing>>,
}

/// Why apps are not served though they are deployed, by deployment.
type Missing = BTreeMap<u32, Error>;

impl Node {
    /// Opens the data directory, recovers, loads `apps` (and those deployed earlier) on every
    /// core and starts `fronts` there. Serves when this returns.
    ///
    /// # Errors
    /// [`StartError`]; nothing is left running then.
    ///
    /// # Panics
    /// When `options.cores` is zero, or `metrics` was made for another number of cores.
    pub fn start(
        options: NodeOptions,
        apps: Vec<App>,
        engine: EngineMaker,
        outside: impl Into<Outside>,
        fronts: Fronts,
        metrics: NodeMetrics,
    ) -> Result<Self, StartError> {
        let directory = DataDirectory::open(&options.data, options.shards).map_err(StartError::Directory)?;
        Self::start_in(directory, options, apps, engine, outside, fronts, metrics)
    }

    /// As [`Node::start`] in a data directory that is open already, for what must be read from it before.
    ///
    /// # Errors
    /// [`StartError`]; nothing is left running then.
    ///
    /// # Panics
    /// As [`Node::start`].
    pub fn start_in(
        mut directory: DataDirectory,
        options: NodeOptions,
        apps: Vec<App>,
        engine: EngineMaker,
        outside: impl Into<Outside>,
        fronts: Fronts,
        metrics: NodeMetrics,
    ) -> Result<Self, StartError> {
        assert!(options.cores > 0 && metrics.cores.len() == options.cores, "every core has its numbers");
        let kept = AppStore::open(directory.path(), directory.manifest().clone()).map_err(StartError::Io)?;
        let apps = all_apps(&kept, apps)?;
        let (bodies, body_threads) = objects::open_bodies(&options).map_err(StartError::Io)?;
        let (mut stores, checkpoint, recovered) = recover(&options, &mut directory)?;
        let pinned = pinned_apps(&kept, &apps, &mut stores)?;
        let (flusher_handle, flusher) = Flusher::new();
        let ((senders, mail), inputs): ((Vec<_>, Vec<_>), Vec<_>) = (0..options.cores).map(|_| channels()).unzip();
        let shared = Arc::new(Shared {
            placement: Arc::new(Placement::in_turn(directory.shard_count(), options.cores)),
            clock: Arc::new(RealClock),
            cores: senders,
            mail,
            flusher: flusher_handle,
            checkpoint,
            segments: recovered.segments.clone(),
            checkpointed: stores.iter().map(|store| AtomicU64::new(store.checkpoint_lsn().0)).collect(),
            apps: kept,
            system_apps: system_apps(&apps),
            shard_keys: shard_keys(directory.shard_count()),
            outside: outside.into(),
            bodies,
            is_log_closed: recovered.unclosed.is_empty(),
            deploying: tokio::sync::Mutex::new(DeployState::after_start(&apps, pinned.len())),
            is_serving: AtomicBool::new(false),
            is_stopping: AtomicBool::new(false),
            read_only_cores: AtomicUsize::new(0),
            stopped_shards: AtomicUsize::new(0),
            handlers: metrics.handlers,
            metrics: metrics.cores,
            options,
        });
        let flusher = flusher.start(Arc::clone(&shared)).map_err(StartError::Io)?;
        let (drain, drained) = (watch::Sender::new(false), Arc::new(Barrier::new(shared.cores.len())));
        let log = log_of(&shared, &recovered);
        let mut shards = shards_of(&shared, stores, directory.result_names())?;
        let entropy = KeyedEntropy::open(&directory, &RealRandom).map_err(StartError::Io)?;
        let (starters, starts): (Vec<_>, Vec<_>) = (0..inputs.len()).map(|_| mpsc::channel()).unzip();
        let seeds = inputs.into_iter().zip(starts).enumerate().map(|(index, (inputs, go))| CoreSeed {
            go,
            index,
            shared: Arc::clone(&shared),
            shards: std::mem::take(&mut shards[index]),
            inputs,
            entropy: entropy.clone(),
            engine: Arc::clone(&engine),
            log: log.clone().map(|log| log_of_core(log, index)),
            apps: Arc::clone(&apps),
            pinned: Arc::clone(&pinned),
            fronts: Arc::clone(&fronts),
            drain: drain.subscribe(),
            drained: Arc::clone(&drained),
        });
        match start_cores(seeds, starters) {
            Ok(cores) => Ok(Self { shared, drain, cores, flusher, body_threads, directory }.announced()),
            Err(error) => {
                flusher::stop(&shared.flusher, flusher);
                Err(error)
            }
        }
    }

    fn announced(self) -> Self {
        self.shared.flusher.truncate_log();
        if let Err(error) = self.directory.write_pid() {
            // A full disk must not keep a node from serving what it has.
            tracing::warn!(%error, "the pid file could not be written");
        }
        self.shared.is_serving.store(true, Ordering::Relaxed);
        self
    }

    /// How many shards the data directory has.
    #[must_use]
    pub fn shard_count(&self) -> u16 {
        self.shared.shard_count()
    }

    /// Deploys or replaces an app on all cores; may be called from any thread.
    ///
    /// # Errors
    /// `app-refused`; the version that served goes on then.
    pub async fn deploy(&self, app: App) -> Result<u64, Error> {
        refuse_system_name(app.name.as_str())?;
        crate::deploy::deploy(&self.shared, app).await
    }

    /// Stops: fronts drain, what was accepted is made durable, threads end.
    ///
    /// # Errors
    /// The first thing that went wrong; the rest was stopped all the same.
    pub fn stop(self) -> Result<(), StartError> {
        self.shared.is_stopping.store(true, Ordering::Relaxed);
        self.drain.send_replace(true);
        let mut result = Ok(());
        for core in self.cores {
            let ended =
                core.join().unwrap_or_else(|_| Err(StartError::Io(io::Error::other("a core's thread panicked"))));
            result = result.and(ended);
        }
        flusher::stop(&self.shared.flusher, self.flusher);
        if let Some(bodies) = &self.shared.bodies {
            bodies.stop(self.body_threads);
        }
        result
    }
}

/// The apps kept in the data directory, those given on the command line taking precedence.
fn all_apps(kept: &AppStore, given: Vec<App>) -> Result<Arc<Vec<App>>, StartError> {
    let mut apps = kept.load().map_err(|error| StartError::App("in the data directory".to_owned(), error))?;
    for app in given {
        refuse_system_name(app.name.as_str()).map_err(|error| StartError::App(app.name.to_string(), error))?;
        let deployed = apps.iter().position(|kept| kept.name == app.name).map(|index| apps.swap_remove(index));
        if deployed.is_some_and(|deployed| version_of(&deployed) != version_of(&app)) {
            tracing::warn!(
                app = app.name.as_str(),
                "the app's folder is served, and not what was deployed under its name; that stays in the data directory"
            );
        }
        apps.push(app);
    }
    objects::refuse_users_own(&apps)?;
    apps.push(objects::objects_app()?);
    apps.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(Arc::new(apps))
}

/// The versions that workflows began in and that are not those served now. Versions that nobody
/// needs are forgotten.
fn pinned_apps(kept: &AppStore, apps: &[App], stores: &mut [Store]) -> Result<Arc<Vec<Pinned>>, StartError> {
    let mut needed: BTreeMap<(String, u64), BTreeSet<ShardId>> = BTreeMap::new();
    for (shard, store) in (0u16..).map(ShardId).zip(stores) {
        for version in millrace_shard::workflow_versions(store).map_err(StartError::Store)? {
            needed.entry(version).or_default().insert(shard);
        }
    }
    let served: BTreeSet<(String, u64)> = apps.iter().map(|app| (app.name.to_string(), version_of(app))).collect();
    let is_needed = |file: &str| needed.keys().any(|(name, version)| format!("{name}-{version:016x}") == file);
    if let Err(error) = kept.forget_versions(is_needed) {
        tracing::warn!(%error, "versions of apps that nobody needs could not be deleted");
    }
    let mut pinned = Vec::new();
    for ((name, version), shards) in needed.into_iter().filter(|(version, _)| !served.contains(version)) {
        match kept.version(&name, version) {
            Ok(app) => pinned.push(Pinned { app, shards }),
            // Its workflows go on in the present version, or say where that differs.
            Err(error) => tracing::error!(app = name, %error, "a version that workflows began in is gone"),
        }
    }
    Ok(Arc::new(pinned))
}

fn log_of(shared: &Shared, recovered: &Recovered) -> Option<(Environment, Segments, WriterOptions)> {
    let durability = match shared.options.durability {
        Durability::Fsync => millrace_log::Durability::Fsync,
        Durability::Os => millrace_log::Durability::Os,
        Durability::None => return None,
    };
    let options = WriterOptions { run: recovered.next_run, durability, ..WriterOptions::default() };
    let disk = Arc::new(RealDisk::new(&shared.options.data));
    let environment = Environment { disk, clock: Arc::clone(&shared.clock), random: Arc::new(RealRandom) };
    Some((environment, recovered.segments.clone(), options))
}

/// The same log, written by one core.
fn log_of_core(
    (environment, segments, options): (Environment, Segments, WriterOptions),
    core: usize,
) -> (Environment, Segments, WriterOptions) {
    (environment, segments, WriterOptions { core: core as u64, ..options })
}

/// Spreads the shards over the cores: for each core, its shards by number.
fn shards_of(
    shared: &Shared,
    stores: Vec<Store>,
    result_names: ResultNames,
) -> Result<Vec<Vec<Option<Shard>>>, StartError> {
    let placement = &shared.placement;
    let mut cores: Vec<Vec<Option<Shard>>> =
        (0..placement.core_count()).map(|_| placement.shards().map(|_| None).collect()).collect();
    for (shard, store) in placement.shards().zip(stores) {
        let core = placement.core_of(shard);
        let options = ShardOptions {
            log_mates: Arc::new(placement.shards_of(core).collect()),
            shard,
            shard_count: placement.shard_count(),
            retention_ms: shared.options.retention_ms,
            result_names,
            incarnation: RealRandom.next_u64(),
            hold_ms: None,
            is_durable_at_once: shared.options.durability == Durability::None,
        };
        let shard_state = Shard::new(options, store).map_err(StartError::Store)?;
        cores[core][usize::from(shard.0)] = Some(shard_state);
    }
    Ok(cores)
}

/// Starts the cores' threads, waits until each is ready and lets them serve. If one is not ready,
/// none serves and all have ended when this returns.
fn start_cores(
    seeds: impl Iterator<Item = CoreSeed>,
    starters: Vec<mpsc::Sender<Arc<Missing>>>,
) -> Result<Vec<JoinHandle<Result<(), StartError>>>, StartError> {
    let (ready, answers) = mpsc::channel::<Result<Missing, StartError>>();
    let mut threads = Vec::new();
    let mut result = Ok(Missing::new());
    for seed in seeds {
        let ready = ready.clone();
        let builder = std::thread::Builder::new().name(format!("core-{}", seed.index)).stack_size(CORE_STACK_BYTES);
        match builder.spawn(move || run_core(seed, &ready)) {
            Ok(thread) => threads.push(thread),
            Err(error) => result = Err(StartError::Io(error)),
        }
    }
    drop(ready);
    for _ in 0..threads.len() {
        let answer =
            answers.recv().unwrap_or_else(|_| Err(StartError::Io(io::Error::other("a core's thread panicked"))));
        result = result.and_then(|mut missing| {
            missing.extend(answer?);
            Ok(missing)
        });
    }
    match result {
        Ok(missing) => {
            let missing = Arc::new(missing);
            for starter in &starters {
                // A core that is not there any more has reported why.
                let _ = starter.send(Arc::clone(&missing));
            }
            Ok(threads)
        }
        Err(error) => {
            drop(starters);
            for thread in threads {
                drop(thread.join());
            }
            Err(error)
        }
    }
}

fn core_options(index: usize, shared: &Shared) -> CoreOptions {
    // The checkpoint's caches are part of what the operator allows.
    let share = shared.options.memory_bytes / shared.cores.len();
    CoreOptions {
        index,
        placement: Arc::clone(&shared.placement),
        queue_ms: shared.options.queue_ms,
        memory_bytes: share - share / CHECKPOINT_CACHE_SHARE,
        read_ahead: READ_AHEAD,
        flush: FlushPolicy::default(),
        has_log: shared.options.durability != Durability::None,
        first_nonce: first_nonce(0, index),
    }
}

/// A core's whole life.
fn run_core(seed: CoreSeed, ready: &mpsc::Sender<Result<Missing, StartError>>) -> Result<(), StartError> {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = match runtime.enable_all().max_blocking_threads(OFFLOAD_THREADS + 1).build() {
        Ok(runtime) => runtime,
        Err(error) => {
            let _ = ready.send(Err(StartError::Io(error)));
            return Ok(());
        }
    };
    let CoreSeed { index, shared, shards, inputs, entropy, engine, log, apps, pinned, fronts, drain, drained, go } =
        seed;
    let mut core = Core::new(CoreParts {
        options: core_options(index, &shared),
        shards,
        engine: engine(shared.shard_count()),
        entropy: Box::new(entropy),
        metrics: Arc::clone(&shared.metrics[index]),
        platform: CorePlatform::new(index, shared),
    });
    let prepared = prepare_core(&mut core, log, &apps, &pinned);
    let is_prepared = prepared.is_ok();
    // The starter waits for this; it is only gone if it panicked.
    let _ = ready.send(prepared);
    match go.recv() {
        Ok(missing) if is_prepared => activate_apps(&mut core, &apps, &pinned, &missing),
        _ => return Ok(()),
    }
    let core = Rc::new(RefCell::new(core));
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, async {
        let pump = tokio::task::spawn_local(run_pump(Rc::clone(&core)));
        if index == 0 {
            let node = CoreHandle::new(Rc::clone(&core));
            tokio::task::spawn_local(built_in_apps::sweep_everything(node.clone()));
            if let Some(bodies) = node.shared().bodies.clone() {
                tokio::task::spawn_local(objects::look_after(node, bodies));
            }
        }
        let inbox = tokio::task::spawn_local(run_messages(Rc::clone(&core), inputs.messages, handle));
        let mail = tokio::task::spawn_local(run_messages(Rc::clone(&core), inputs.mail, Core::handle_mail));
        let ticks = tokio::task::spawn_local(run_ticks(Rc::clone(&core)));
        let serve = async {
            fronts(CoreHandle::new(Rc::clone(&core)), drain).await;
            // Other cores' requests are still answered until all have drained.
            drained.wait().await;
        };
        // None of the four ends by itself. A core without one of them would accept requests and
        // never answer: better no process at all, whose log a restart recovers.
        let ended = tokio::select! {
            () = serve => None,
            _ = pump => Some("pump"),
            _ = inbox => Some("inbox"),
            _ = mail => Some("mail"),
            _ = ticks => Some("ticks"),
        };
        if let Some(task) = ended {
            tracing::error!(
                core = index,
                task,
                "a task of the core panicked; the process ends so that a restart can recover"
            );
            std::process::abort();
        }
        core.borrow_mut().commit();
    });
    let closed = close_core(&core);
    drop(local);
    runtime.shutdown_background();
    closed
}

/// Opens the core's log stream and loads the apps. Gives those that could not be loaded and need not be there.
fn prepare_core(
    core: &mut Core,
    log: Option<(Environment, Segments, WriterOptions)>,
    apps: &[App],
    pinned: &[Pinned],
) -> Result<Missing, StartError> {
    if let Some((environment, segments, options)) = log {
        let writer = Writer::open(environment, segments, options).map_err(StartError::Log)?;
        let (shared, index) = (Arc::clone(&core.platform.shared), core.index());
        let report = Box::new(move |news| {
            shared.send(index, NodeMessage::Committed(news));
        });
        core.platform.committer = Some(Committer::start(writer, report).map_err(StartError::Io)?);
    }
    // Deployments of a running node are numbered after these.
    let mut missing = Missing::new();
    let pinned = pinned.iter().map(|pinned| (&pinned.app, pinned.is_needed_by(core)));
    let all: Vec<(&App, bool)> = apps.iter().map(|app| (app, true)).chain(pinned).collect();
    for (deployment, (app, _)) in (1u32..).zip(all).filter(|(_, (_, is_needed))| *is_needed) {
        match load(core, deployment, app) {
            Ok(()) => {}
            Err(error) if may_be_missing(app, &error) => {
                missing.insert(deployment, error);
            }
            Err(error) => return Err(StartError::App(app.name.to_string(), error)),
        }
    }
    // Before any core serves: a client may ask one core for the metrics of all.
    core.measure();
    Ok(missing)
}

/// Whether the node is better started without an app than not at all. Who names an app on the command line is there to mend
/// it, records without their types are none, and what is not the app's fault would be so with others too.
fn may_be_missing(app: &App, error: &Error) -> bool {
    app.is_kept && app.name.as_str() != RECORDS_APP && error.code != ErrorCode::Internal
}

/// Serves the apps that all cores have loaded.
fn activate_apps(core: &mut Core, apps: &[App], pinned: &[Pinned], missing: &Missing) {
    for (deployment, app) in (1u32..).zip(apps.iter().chain(pinned.iter().map(|pinned| &pinned.app))) {
        let is_served = deployment as usize <= apps.len();
        if let Some(error) = missing.get(&deployment) {
            miss(core, deployment, app, is_served, error);
        } else if is_served {
            activate(core, deployment);
        }
    }
    core.retire_pinned(apps.len());
}

/// Makes durable what is not, and ends the log stream.
fn close_core(core: &Rc<RefCell<Core>>) -> Result<(), StartError> {
    let mut core = core.borrow_mut();
    match core.platform.committer.take() {
        Some(committer) => {
            committer.submit(core.take_batch());
            committer.close().map_err(StartError::Log)
        }
        None => {
            let shared = Arc::clone(&core.platform.shared);
            // A chunk still with the flusher is older than what is written here.
            shared.flusher.sync();
            core.flush_everything(|shard, chunk| shared.checkpoint.write(shard, chunk)).map_err(StartError::Store)
        }
    }
}
