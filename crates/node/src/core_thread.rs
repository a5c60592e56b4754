//! One core's thread: what it begins with, its tasks, and its end.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::{Arc, mpsc};

use millrace_api::is_built_in;
use millrace_base::{Error, ErrorCode, ShardId};
use millrace_driver::{CoreOptions, CoreParts, Hosted, READ_AHEAD, ShardMail, first_nonce};
use millrace_func::App;
use millrace_log::{Committer, Environment, Segments, Writer, WriterOptions};
use millrace_shard::Shard;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::{Barrier, watch};

use crate::backend::CoreHandle;
use crate::built_in_apps::{self};
use crate::cluster::{self};
use crate::core::{
    Core, CorePlatform, NodeMessage, Shared, SharedCore, activate, handle, load, miss, run_messages, run_pump,
    run_ticks,
};
use crate::entropy::KeyedEntropy;
use crate::objects;
use crate::options::Durability;

use crate::node::{CHECKPOINT_CACHE_SHARE, EngineMaker, Fronts, StartError};

/// Slow work (password hashes) runs on so many threads per core: more would take the cores' time.
const OFFLOAD_THREADS: usize = 1;

/// A version that only workflows still run in. Only their cores load it, as while the node ran: what all cores together
/// hold of replaced versions has a bound, and each that loads it takes a share.
pub(crate) struct Pinned {
    pub app: App,
    /// The shards of the workflows.
    pub shards: BTreeSet<ShardId>,
}

impl Pinned {
    fn is_needed_by(&self, core: &Core) -> bool {
        self.shards.iter().any(|shard| core.placement().core_of(*shard) == core.index())
    }
}

/// What a core hears from other threads.
pub(crate) struct Inputs {
    pub messages: UnboundedReceiver<NodeMessage>,
    pub mail: UnboundedReceiver<ShardMail>,
}

/// One core's share of what recovery produced, on its way to the core's thread.
pub(crate) struct CoreSeed {
    pub index: usize,
    pub shared: Arc<Shared>,
    pub shards: Vec<Option<Shard>>,
    /// In a cluster: the replicas of the core's shards.
    pub hosted: Vec<Hosted>,
    pub inputs: Inputs,
    pub entropy: KeyedEntropy,
    pub engine: EngineMaker,
    pub log: Option<(Environment, Segments, WriterOptions)>,
    pub apps: Arc<Vec<App>>,
    /// Versions that only workflows still run in.
    pub pinned: Arc<Vec<Pinned>>,
    pub fronts: Fronts,
    pub drain: watch::Receiver<bool>,
    pub drained: Arc<Barrier>,
    /// Says to begin serving, without the apps that some core could not load; its end says not to.
    pub go: mpsc::Receiver<Arc<Missing>>,
}

/// Why apps are not served though they are deployed, by deployment.
pub(crate) type Missing = BTreeMap<u32, Error>;

fn core_options(index: usize, shared: &Shared) -> CoreOptions {
    // The checkpoint's caches are part of what the operator allows.
    let share = shared.options.memory_bytes / shared.cores.len();
    CoreOptions {
        index,
        placement: Arc::clone(&shared.placement),
        queue_ms: shared.options.queue_ms,
        memory_bytes: share - share / CHECKPOINT_CACHE_SHARE,
        read_ahead: READ_AHEAD,
        flush: shared.options.flush,
        has_log: shared.options.durability != Durability::None,
        first_nonce: first_nonce(shared.cluster.as_ref().map_or(0, |cluster| u64::from(cluster.me().0)), index),
    }
}

/// A core's whole life.
pub(crate) fn run_core(seed: CoreSeed, ready: &mpsc::Sender<Result<Missing, StartError>>) -> Result<(), StartError> {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = match runtime.enable_all().max_blocking_threads(OFFLOAD_THREADS + 1).build() {
        Ok(runtime) => runtime,
        Err(error) => {
            let _ = ready.send(Err(StartError::Io(error)));
            return Ok(());
        }
    };
    let CoreSeed {
        index,
        shared,
        shards,
        hosted,
        inputs,
        entropy,
        engine,
        log,
        apps,
        pinned,
        fronts,
        drain,
        drained,
        go,
    } = seed;
    let mut core = Core::new(CoreParts {
        options: core_options(index, &shared),
        shards,
        engine: engine(shared.shard_count()),
        entropy: Box::new(entropy),
        metrics: Arc::clone(&shared.metrics[index]),
        platform: CorePlatform::new(index, shared),
    });
    hosted.into_iter().for_each(|hosted| core.host(hosted));
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
    local.block_on(&runtime, run_tasks(Rc::clone(&core), inputs, fronts, (drain, drained)));
    let closed = close_core(&core);
    drop(local);
    runtime.shutdown_background();
    closed
}

/// Runs a core's tasks until it has drained.
async fn run_tasks(
    core: SharedCore,
    inputs: Inputs,
    fronts: Fronts,
    (drain, drained): (watch::Receiver<bool>, Arc<Barrier>),
) {
    let index = core.borrow().index();
    let pump = tokio::task::spawn_local(run_pump(Rc::clone(&core)));
    if index == 0 {
        run_beside(&core);
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
}

/// Begins what runs once a node, on core 0.
fn run_beside(core: &SharedCore) {
    let node = CoreHandle::new(Rc::clone(core));
    let shared = node.shared();
    tokio::task::spawn_local(built_in_apps::sweep_everything(node.clone()));
    if let Some(cluster) = shared.cluster.clone() {
        tokio::task::spawn_local(cluster::serve_tables(Arc::clone(&shared), Arc::clone(&cluster)));
        tokio::task::spawn_local(cluster::watch_versions(Arc::clone(&shared), Arc::clone(&cluster)));
        tokio::task::spawn_local(cluster::guide(Rc::clone(core), Arc::clone(&shared), cluster));
    }
    if let Some(carrier) = shared.carrier.clone() {
        tokio::task::spawn_local(Arc::clone(&carrier).serve());
        tokio::task::spawn_local(carrier.keep_up());
    }
    if let Some(bodies) = shared.bodies.clone() {
        tokio::task::spawn_local(objects::look_after(node, bodies));
    }
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

/// Whether the node is better started without an app than not at all.
///
/// Not if the app is named on the command line: whoever did that is there to mend it. Not a built-in app, which is none
/// without its files. And not if the fault is not the app's: others would fail too.
fn may_be_missing(app: &App, error: &Error) -> bool {
    app.is_kept && !is_built_in(app.name.as_str()) && error.code != ErrorCode::Internal
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
