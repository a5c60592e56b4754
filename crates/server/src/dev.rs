//! `millrace dev`: a node that prints each call, and loads an app again when its files change. Services in Python run in a
//! worker beside it, which does the same for them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use millrace_api::AppFile;
use millrace_node::{Node, read_folder};

use crate::Failure;
use crate::cli::DevArgs;
use crate::python_worker::PythonWorker;
use crate::settings::Settings;
use crate::{logging, serve};

/// Interval between two looks at the folders. Polling works on every file system, also on one shared
/// into a container.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Runs a node for development until Ctrl-C.
///
/// # Errors
/// A sentence that says what to change.
pub(crate) fn run(args: &DevArgs) -> Result<(), Failure> {
    let mut settings = Settings::of(&args.serve)?;
    // The worker in Python prints its own.
    settings.node.prints_calls = !settings.apps.is_empty();
    if settings.apps.is_empty() && args.python.is_none() {
        return Err("dev needs a file with services in Python, or at least one --app DIR to watch".into());
    }
    if let Some(file) = args.python.as_ref().filter(|file| !file.is_file()) {
        return Err(format!("{}: there is no such file", file.display()).into());
    }
    let _logs = logging::start(&settings.log, settings.log_json)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut signals = serve::StopSignals::new(&runtime)?;
    if let Some(missing) = settings.apps.iter().find(|folder| !folder.is_dir()) {
        return Err(format!("--app {}: there is no such folder", missing.display()).into());
    }
    let Some(node) = start(&settings, &runtime, &mut signals)? else { return Ok(()) };
    serve::greet(&settings, &node);
    if !settings.apps.is_empty() {
        println!("  watching {} app folders; save a file to load it again", settings.apps.len());
    }
    let has_tls = settings.front.tls.is_some();
    let start = |file: &PathBuf| PythonWorker::start(file, settings.http, has_tls);
    let mut worker = args.python.as_ref().map(start).transpose()?;
    let result = runtime.block_on(async {
        tokio::select! {
            () = signals.wait() => Ok(()),
            () = watch(&settings.apps, &node) => Ok(()),
            failure = ended(worker.as_mut()) => Err(failure),
        }
    });
    // Before the node, whose last requests it would wait for.
    drop(worker);
    node.stop()?;
    result
}

/// Why the worker ended. Without one, never ready.
async fn ended(worker: Option<&mut PythonWorker>) -> Failure {
    match worker {
        Some(worker) => worker.ended().await,
        None => std::future::pending().await,
    }
}

/// Starts the node. It waits while an app is broken, because its author is editing it. `None` after Ctrl-C.
fn start(
    settings: &Settings,
    runtime: &tokio::runtime::Runtime,
    signals: &mut serve::StopSignals,
) -> Result<Option<Node>, Failure> {
    loop {
        let known = snapshots(&settings.apps);
        let error = match serve::start(settings) {
            Ok(node) => return Ok(Some(node)),
            Err(error) if serve::is_of_an_app(&error) => error,
            Err(error) => return Err(error),
        };
        println!("{error}\n  nothing is served yet; save a file to try again");
        let is_stopped = runtime.block_on(async {
            tokio::select! {
                () = signals.wait() => true,
                () = changed(&settings.apps, &known) => false,
            }
        });
        if is_stopped {
            return Ok(None);
        }
    }
}

async fn changed(folders: &[PathBuf], known: &[Snapshot]) {
    while snapshots(folders) == known {
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Path, size and time of every file. If they change, the folder has changed.
type Snapshot = BTreeMap<String, (u64, Option<SystemTime>)>;

fn snapshot(folder: &Path) -> Snapshot {
    let mut snapshot = Snapshot::new();
    for AppFile { path, content } in read_folder(folder).unwrap_or_default() {
        let modified = std::fs::metadata(folder.join(&path)).and_then(|metadata| metadata.modified()).ok();
        snapshot.insert(path, (content.len() as u64, modified));
    }
    snapshot
}

fn snapshots(folders: &[PathBuf]) -> Vec<Snapshot> {
    folders.iter().map(|folder| snapshot(folder)).collect()
}

async fn watch(folders: &[PathBuf], node: &Node) {
    let mut known = snapshots(folders);
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        for (folder, known) in folders.iter().zip(&mut known) {
            let now = snapshot(folder);
            if now == *known {
                continue;
            }
            *known = now;
            match serve::load_app(folder) {
                Ok(app) => {
                    let name = app.name.to_string();
                    match node.deploy(app).await {
                        Ok(version) => println!("loaded {name} again (version {version})"),
                        Err(error) => println!("{name} is not loaded, the old version goes on: {}", error.message),
                    }
                }
                Err(error) => println!("{error}; the old version goes on"),
            }
        }
    }
}
