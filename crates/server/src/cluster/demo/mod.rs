//! `millrace cluster demo`: a cluster on this machine, one process for each node.

mod figures;
mod load;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use millrace_client::{Client, ClientOptions};
use millrace_node::DataDirectory;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::DemoArgs;
use super::make::{Addresses, make};
use crate::Failure;
use crate::calls::block_on;
use crate::serve::StopSignals;

/// How long the nodes may take until all of them serve.
const READY: Duration = Duration::from_secs(60);

/// How long a node may take to stop.
const STOPPED: Duration = Duration::from_secs(20);

const LOOK: Duration = Duration::from_millis(50);

/// One node's process, and its addresses.
struct Running {
    child: Child,
    directory: PathBuf,
    addresses: Addresses,
}

impl Running {
    fn url(&self) -> String {
        format!("http://{}", self.addresses.http)
    }

    fn shown(&self, node: usize) -> Value {
        let Addresses { http, peer, s3, .. } = &self.addresses;
        let mut shown =
            json!({ "node": node, "http": http, "peer": peer, "data": self.directory, "pid": self.child.id() });
        if let Some(s3) = s3 {
            shown["s3"] = json!(s3);
        }
        shown
    }
}

/// The processes, which end with this.
struct Nodes(Vec<Running>);

impl Drop for Nodes {
    fn drop(&mut self) {
        for running in &mut self.0 {
            // One that has ended is only waited for.
            let _ = running.child.kill();
            let _ = running.child.wait();
        }
    }
}

/// Runs a cluster until it is told to stop.
///
/// # Errors
/// A sentence that says what to change.
pub(super) fn run(args: &DemoArgs) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut signals = StopSignals::new(&runtime)?;
    let members = addresses(args)?;
    if !args.data.join("n1").exists() {
        make(&args.data, &members, (args.shards, args.replicas))?;
    }
    let mut nodes = Nodes(Vec::new());
    for (index, addresses) in members.into_iter().enumerate() {
        let directory = args.data.join(format!("n{}", index + 1));
        let child = start(&directory, args.cores)?;
        nodes.0.push(Running { child, directory, addresses });
    }
    wait_until_ready(&mut nodes)?;
    for app in &args.app {
        deploy(&nodes.0[0], app)?;
    }
    if args.load.is_some() {
        load::install(&nodes, &args.data)?;
    }
    let shown = nodes.0.iter().enumerate().map(|(index, running)| running.shown(index + 1));
    println!("{}", json!({ "nodes": shown.collect::<Vec<_>>() }));
    let outcome = runtime.block_on(async {
        let Some(length) = args.load.map(Duration::from_secs) else {
            signals.wait().await;
            return Ok(());
        };
        tokio::select! {
            outcome = load::run(&mut nodes, &args.data, length, args.cores) => outcome,
            () = signals.wait() => Ok(()),
        }
    });
    stop(&mut nodes);
    let directories: Vec<PathBuf> = nodes.0.iter().map(|running| running.directory.clone()).collect();
    drop(nodes);
    if !args.keep {
        clear(&args.data, &directories)?;
    }
    outcome
}

/// Removes the data of all nodes. Where a node runs that somebody has brought back since, its data stays.
fn clear(data: &Path, directories: &[PathBuf]) -> Result<(), Failure> {
    let (used, unused): (Vec<&PathBuf>, Vec<&PathBuf>) =
        directories.iter().partition(|directory| DataDirectory::is_in_use(directory));
    let remove = |path: &Path| std::fs::remove_dir_all(path).map_err(|error| format!("{}: {error}", path.display()));
    if used.is_empty() {
        return Ok(remove(data)?);
    }
    for directory in unused {
        remove(directory)?;
    }
    for directory in used {
        eprintln!(
            "{}: another command has started this node, and it still runs: its data stays. Stop the node, then remove {}",
            directory.display(),
            data.display()
        );
    }
    Ok(())
}

/// Where each node serves and hears the others.
fn addresses(args: &DemoArgs) -> Result<Vec<Addresses>, Failure> {
    let at = |base: u16, index: u16| {
        let port = base
            .checked_add(index)
            .ok_or("the ports end at 65535: give a lower --http-base, --peer-base or --s3-base")?;
        Ok::<_, Failure>(format!("127.0.0.1:{port}"))
    };
    let of = |index| {
        let s3 = args.s3_base.map(|base| at(base, index)).transpose()?;
        Ok(Addresses { http: at(args.http_base, index)?, peer: at(args.peer_base, index)?, s3, rack: None })
    };
    (0..args.nodes).map(of).collect()
}

fn start(directory: &Path, cores: usize) -> Result<Child, Failure> {
    let log = directory.join("log.txt");
    let file = File::create(&log).map_err(|error| format!("{}: {error}", log.display()))?;
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("serve").arg("--cluster-data").arg(directory).arg("--cores").arg(cores.to_string());
    // Settings of this process are not those of the nodes.
    for variable in
        ["MILLRACE_DATA", "MILLRACE_HTTP", "MILLRACE_APP", "MILLRACE_CONFIG", "MILLRACE_SHARDS", "MILLRACE_S3"]
    {
        command.env_remove(variable);
    }
    Ok(command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file).spawn()?)
}

fn wait_until_ready(nodes: &mut Nodes) -> Result<(), Failure> {
    let until = Instant::now() + READY;
    for running in &mut nodes.0 {
        let log = running.directory.join("log.txt");
        loop {
            if let Some(status) = running.child.try_wait()? {
                return Err(format!(
                    "the node at {} has ended ({status}): see {}",
                    running.addresses.http,
                    log.display()
                )
                .into());
            }
            let options = ClientOptions { timeout: LOOK * 10, ..ClientOptions::default() };
            let client = Client::new(&running.url(), options)?;
            if block_on(client.is_ready()).unwrap_or(false) {
                break;
            }
            if Instant::now() > until {
                return Err(
                    format!("the node at {} does not serve: see {}", running.addresses.http, log.display()).into()
                );
            }
            std::thread::sleep(LOOK);
        }
    }
    Ok(())
}

fn deploy(running: &Running, folder: &Path) -> Result<(), Failure> {
    let folder = folder.canonicalize().map_err(|error| format!("{}: {error}", folder.display()))?;
    let name = folder.file_name().and_then(|name| name.to_str()).ok_or("the app's folder has no name")?;
    let client = Client::new(&running.url(), ClientOptions::default())?;
    block_on(client.deploy(name, &folder)).map(drop)
}

/// Has all nodes stop, and waits for them. One that does not is killed later.
fn stop(nodes: &mut Nodes) {
    for running in &nodes.0 {
        if let Some(pid) = i32::try_from(running.child.id()).ok().and_then(Pid::from_raw) {
            // One that has ended already is what is wanted.
            let _ = kill_process(pid, Signal::TERM);
        }
    }
    let until = Instant::now() + STOPPED;
    for running in &mut nodes.0 {
        while Instant::now() < until && matches!(running.child.try_wait(), Ok(None)) {
            std::thread::sleep(LOOK);
        }
    }
}
