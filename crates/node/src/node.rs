//! Starting and stopping a node: the data directory, recovery, the threads.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use millrace_base::{Error, Lsn, ShardId, shard_keys};
use millrace_driver::{Hosted, Placement, ShardMail};
use millrace_func::{App, Engine};
use millrace_io::{Clock, Disk, Random, RealClock, RealRandom};
use millrace_log::{Environment, LogError, LogReader, RecoverError, RecoveredReplica, Segments, WriterOptions};
use millrace_manifest::ManifestError;
use millrace_shard::{ResultNames, Shard, ShardOptions};
use millrace_store::{Store, StoreError};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::sync::{Barrier, watch};

use crate::apps::{AppStore, version_of};
use crate::backend::CoreHandle;
use crate::built_in_apps::{apps_without_files, refuse_system_name, refuse_users_own, system_apps};
use crate::cluster::{self, Cluster};
use crate::core::{DeployState, NodeMessage, Shared};
use crate::core_thread::{CoreSeed, Inputs, Missing, Pinned, run_core};
use crate::directory::{DataDirectory, DirectoryError};
use crate::entropy::KeyedEntropy;
use crate::flusher::{self, Flusher};
use crate::metrics::NodeMetrics;
use crate::objects;
use crate::options::{Durability, NodeOptions, Outside};
use crate::readers::Readers;
use crate::recovery::{Recovery, recover};

/// What runs on each core above the node: given the core's handle and a signal to drain, it
/// returns when it has drained.
pub type Fronts = Arc<dyn Fn(CoreHandle, watch::Receiver<bool>) -> Pin<Box<dyn Future<Output = ()>>> + Send + Sync>;

/// Makes one core's engine, on that core's thread, for a node with so many shards.
pub type EngineMaker = Arc<dyn Fn(u16) -> Box<dyn Engine> + Send + Sync>;

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

/// A core's ends of the channels to it: those that say something, and those that hear it.
fn channels() -> ((UnboundedSender<NodeMessage>, UnboundedSender<ShardMail>), Inputs) {
    let ((sender, messages), (mail_sender, mail)) = (unbounded_channel(), unbounded_channel());
    ((sender, mail_sender), Inputs { messages, mail })
}

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
        directory: DataDirectory,
        options: NodeOptions,
        apps: Vec<App>,
        engine: EngineMaker,
        outside: impl Into<Outside>,
        fronts: Fronts,
        metrics: NodeMetrics,
    ) -> Result<Self, StartError> {
        assert!(options.cores > 0 && metrics.cores.len() == options.cores, "every core has its numbers");
        Found::open(directory, options, apps)?.start((engine, outside.into()), fronts, metrics)
    }

    /// In a cluster: links this node to the others. Then it serves.
    fn linked(self) -> Result<Self, StartError> {
        match self.shared.cluster.as_ref().map_or(Ok(()), |cluster| cluster::link(&self.shared, cluster)) {
            Ok(()) => Ok(self.announced()),
            Err(error) => {
                // What goes wrong now says nothing more.
                let _ = self.stop();
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
        if let Some(cluster) = &self.shared.cluster {
            cluster.leave(&self.shared);
        }
        self.shared.is_stopping.store(true, Ordering::Relaxed);
        self.drain.send_replace(true);
        let mut result = Ok(());
        for core in self.cores {
            let ended =
                core.join().unwrap_or_else(|_| Err(StartError::Io(io::Error::other("a core's thread panicked"))));
            result = result.and(ended);
        }
        if let Some(cluster) = &self.shared.cluster {
            cluster.disconnect();
        }
        self.shared.readers.stop();
        flusher::stop(&self.shared.flusher, self.flusher);
        if let Some(bodies) = &self.shared.bodies {
            bodies.stop(self.body_threads);
        }
        result
    }
}

/// How long a shard holds what it has promised other shards, though it fails and is opened elsewhere.
const HOLD_MS: u64 = 300;

/// What a shard is told that several nodes keep.
fn replicated_shard(shared: &Shared, result_names: ResultNames) -> ShardOptions {
    ShardOptions {
        // It is set for each shard.
        log_mates: Arc::default(),
        shard: ShardId(0),
        shard_count: shared.placement.shard_count(),
        retention_ms: shared.options.retention_ms,
        result_names,
        incarnation: 0,
        hold_ms: Some(HOLD_MS),
        is_durable_at_once: false,
    }
}

/// This node's part of a cluster, if it is in one. This start is counted.
fn cluster_of(options: &NodeOptions) -> Result<Option<Arc<Cluster>>, StartError> {
    let Some(of_cluster) = options.cluster.clone() else { return Ok(None) };
    let incarnation = cluster::next_incarnation(&options.data, &RealClock).map_err(StartError::Io)?;
    let is_emptied = DataDirectory::is_emptied(&options.data);
    Ok(Some(Arc::new(Cluster::new(of_cluster, incarnation, is_emptied))))
}

/// In a cluster: the replicas of all shards, over their states.
fn hosted_of(
    shared: &Shared,
    stores: &mut Vec<Store>,
    (found, given_up): (BTreeMap<ShardId, RecoveredReplica>, &BTreeSet<ShardId>),
    result_names: ResultNames,
) -> Result<Vec<Hosted>, StartError> {
    let Some(cluster) = &shared.cluster else { return Ok(Vec::new()) };
    let options = replicated_shard(shared, result_names);
    let found = (std::mem::take(stores), found, given_up);
    let hosted = cluster::hosted(cluster, found, &options, (&RealClock, &RealRandom))?;
    for Hosted { shard, replica, .. } in &hosted {
        shared.note_emptied(*shard, !replica.is_whole() && replica.log().last().lsn == Lsn::ZERO);
    }
    Ok(hosted)
}

/// In a cluster that keeps objects: what carries their bodies to other nodes.
fn carrier_of(
    bodies: Option<&Arc<objects::BodyStore>>,
    cluster: Option<&Arc<Cluster>>,
) -> Option<Arc<cluster::Carrier>> {
    bodies.zip(cluster).map(|(bodies, cluster)| cluster::Carrier::new(bodies, cluster, Arc::new(RealClock)))
}

/// The apps of a node whose others are in the meta shard.
fn built_in_apps_only() -> Result<Arc<Vec<App>>, StartError> {
    Ok(Arc::new(apps_without_files()?))
}

/// What a start has found in the data directory.
struct Found {
    directory: DataDirectory,
    options: NodeOptions,
    cluster: Option<Arc<Cluster>>,
    kept: AppStore,
    apps: Arc<Vec<App>>,
    pinned: Arc<Vec<Pinned>>,
    bodies: Option<Arc<objects::BodyStore>>,
    body_threads: Vec<JoinHandle<()>>,
    recovery: Recovery,
}

impl Found {
    fn open(mut directory: DataDirectory, options: NodeOptions, apps: Vec<App>) -> Result<Self, StartError> {
        crate::backup::remove_leftovers(directory.path()).map_err(StartError::Io)?;
        let kept = AppStore::open(directory.path(), directory.manifest().clone()).map_err(StartError::Io)?;
        let cluster = cluster_of(&options)?;
        // In a cluster the meta shard holds the apps.
        let apps = if cluster.is_some() { built_in_apps_only()? } else { all_apps(&kept, apps)? };
        let (bodies, body_threads) = objects::open_bodies(&options, &directory).map_err(StartError::Io)?;
        let mut recovery = recover(&options, &mut directory)?;
        let pinned = if cluster.is_some() { Arc::default() } else { pinned_apps(&kept, &apps, &mut recovery.stores)? };
        Ok(Self { directory, options, cluster, kept, apps, pinned, bodies, body_threads, recovery })
    }

    fn start(
        self,
        (engine, outside): (EngineMaker, Outside),
        fronts: Fronts,
        metrics: NodeMetrics,
    ) -> Result<Node, StartError> {
        let Self { directory, options, cluster, kept, apps, pinned, bodies, body_threads, recovery } = self;
        let Recovery { mut stores, checkpoint, next_run, segments, replicas, given_up, is_log_closed } = recovery;
        let ((cores, mail), inputs): ((Vec<_>, Vec<_>), Vec<_>) = (0..options.cores).map(|_| channels()).unzip();
        let (flusher_handle, flusher) = Flusher::new();
        let shared = Arc::new(Shared {
            placement: Arc::new(Placement::in_turn(directory.shard_count(), options.cores)),
            clock: clock_of(&options),
            cores,
            mail,
            flusher: flusher_handle,
            checkpoint,
            readers: Readers::start(options.cores).map_err(StartError::Io)?,
            log_reader: LogReader::new(segments.clone()),
            segments,
            emptied: stores.iter().map(|_| AtomicBool::new(false)).collect(),
            checkpointed: stores.iter().map(|store| AtomicU64::new(store.checkpoint_lsn().0)).collect(),
            apps: kept,
            system_apps: system_apps(&apps),
            shard_keys: shard_keys(directory.shard_count()),
            outside,
            cluster: cluster.clone(),
            carrier: carrier_of(bodies.as_ref(), cluster.as_ref()),
            bodies,
            is_log_closed,
            deploying: tokio::sync::Mutex::new(DeployState::after_start(&apps, pinned.len())),
            dialling: tokio::sync::Mutex::new(()),
            is_backing_up: AtomicBool::new(false),
            is_serving: AtomicBool::new(false),
            is_stopping: AtomicBool::new(false),
            read_only_cores: AtomicUsize::new(0),
            stopped_shards: AtomicUsize::new(0),
            handlers: metrics.handlers,
            metrics: metrics.cores,
            replication: metrics.replication,
            options,
        });
        let flusher = flusher.start(Arc::clone(&shared)).map_err(StartError::Io)?;
        let log = log_of(&shared, directory.disk(""), next_run);
        let (drain, drained) = (watch::Sender::new(false), Arc::new(Barrier::new(shared.cores.len())));
        let mut hosted = hosted_of(&shared, &mut stores, (replicas, &given_up), directory.result_names())?;
        let mut shards = shards_of(&shared, stores, directory.result_names())?;
        let entropy = KeyedEntropy::open(&directory, &RealRandom).map_err(StartError::Io)?;
        let (starters, starts): (Vec<_>, Vec<_>) = inputs.iter().map(|_| mpsc::channel()).unzip();
        let seeds = inputs.into_iter().zip(starts).enumerate().map(|(index, (inputs, go))| CoreSeed {
            go,
            index,
            shared: Arc::clone(&shared),
            shards: std::mem::take(&mut shards[index]),
            hosted: hosted.extract_if(.., |hosted| shared.core_of(hosted.shard) == index).collect(),
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
            Ok(cores) => Node { shared, drain, cores, flusher, body_threads, directory }.linked(),
            Err(error) => Err(stopped(&shared, flusher, error)),
        }
    }
}

fn clock_of(options: &NodeOptions) -> Arc<dyn Clock> {
    match &options.test_clock {
        Some(clock) => Arc::clone(clock) as Arc<dyn Clock>,
        None => Arc::new(RealClock),
    }
}

/// Ends the flusher of a node that could not start.
fn stopped(shared: &Shared, flusher: JoinHandle<()>, error: StartError) -> StartError {
    shared.readers.stop();
    flusher::stop(&shared.flusher, flusher);
    error
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
    refuse_users_own(&apps)?;
    apps.extend(apps_without_files()?);
    apps.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(Arc::new(apps))
}

/// The versions that workflows began in and that are not those served now. Versions that nobody
/// needs are forgotten.
pub(crate) fn pinned_apps(kept: &AppStore, apps: &[App], stores: &mut [Store]) -> Result<Arc<Vec<Pinned>>, StartError> {
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

fn log_of(shared: &Shared, disk: Arc<dyn Disk>, run: u64) -> Option<(Environment, Segments, WriterOptions)> {
    let durability = match shared.options.durability {
        Durability::Fsync => millrace_log::Durability::Fsync,
        Durability::Os => millrace_log::Durability::Os,
        Durability::None => return None,
    };
    let is_replicated = shared.cluster.is_some();
    let options = WriterOptions { run, durability, is_replicated, ..WriterOptions::default() };
    let environment = Environment { disk, clock: Arc::clone(&shared.clock), random: Arc::new(RealRandom) };
    Some((environment, shared.segments.clone(), options))
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
