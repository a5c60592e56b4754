//! Nodes of Millrace: one alone, or a cluster. Each runs on CPUs of its own.

use std::cell::Cell;
use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use millrace_base::shard_of_key;
use millrace_loadgen::process::ProcessUse;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use super::places::{NODES, Places, on};
use crate::transactions::workload::{get, metric};
use crate::{Outcome, small};

const START: Duration = Duration::from_secs(60);
const STOP: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_millis(10);

/// Shards, the default of both kinds of servers.
pub const SHARDS: u16 = 64;

/// Where the programs are, and what they run on.
#[derive(Debug)]
pub struct Setup {
    /// The server's binary.
    pub millrace: PathBuf,
    /// The binary of etcd.
    pub etcd: PathBuf,
    /// Its load generator.
    pub etcd_load: PathBuf,
    /// The folder of example apps.
    pub examples: PathBuf,
    /// The folder of apps for measuring.
    pub apps: PathBuf,
    /// Where data folders are made, on the disk to measure.
    pub data: PathBuf,
    /// The CPUs of nodes and load.
    pub places: Places,
    /// The next port that a server gets. Ports that the kernel gives away by itself would be no good: a node that is
    /// started again needs its own.
    pub next_port: Cell<u16>,
}

impl Setup {
    /// The next address.
    pub fn address(&self) -> SocketAddr {
        let port = self.next_port.get();
        self.next_port.set(port.checked_add(1).unwrap_or(1024));
        SocketAddr::from((Ipv4Addr::LOCALHOST, port))
    }

    /// A folder for the data of a server.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn folder(&self) -> Outcome<TempDir> {
        let folder = tempfile::Builder::new().prefix("millrace-bench-").tempdir_in(&self.data);
        folder.map_err(|error| format!("cannot make a folder in {}: {error}", self.data.display()))
    }

    fn app(&self, name: &str) -> PathBuf {
        let example = self.examples.join(name);
        if example.is_dir() { example } else { self.apps.join(name) }
    }
}

/// A process that ends with this.
#[derive(Debug)]
pub struct Process(Child);

impl Process {
    /// Starts `program` on `cpus`. What it prints goes to `log`.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start(
        program: &Path,
        arguments: &[&str],
        variables: &[(&str, &str)],
        cpus: &[usize],
        log: &Path,
    ) -> Outcome<Self> {
        let failed = |error: std::io::Error| format!("cannot start {}: {error}", program.display());
        let file = File::options().create(true).append(true).open(log).map_err(failed)?;
        let mut command = if has_setpriv() {
            // A server must not outlive the program that measures it.
            let mut command = Command::new("setpriv");
            command.args(["--pdeathsig", "KILL"]).arg(program);
            command
        } else {
            Command::new(program)
        };
        command.args(arguments).envs(variables.iter().copied()).stdin(Stdio::null());
        command.stdout(file.try_clone().map_err(failed)?).stderr(file);
        Ok(Self(on(cpus, || command.spawn())?.map_err(failed)?))
    }

    /// Its id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Whether it has ended by itself.
    pub fn has_ended(&mut self) -> bool {
        !matches!(self.0.try_wait(), Ok(None))
    }

    /// Asks it to end. `wait` waits for it.
    pub fn ask_to_end(&self) {
        if let Some(pid) = i32::try_from(self.0.id()).ok().and_then(Pid::from_raw) {
            // The process may have ended already.
            kill_process(pid, Signal::TERM).ok();
        }
    }

    /// Waits until it has ended.
    ///
    /// # Errors
    /// If it does not end in time.
    pub fn wait(&mut self) -> Outcome<()> {
        let deadline = Instant::now() + STOP;
        while !self.has_ended() {
            if Instant::now() > deadline {
                return Err(format!("the server did not end within {STOP:?}"));
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    /// Kills it, and waits until it is gone.
    pub fn kill(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Small machines for measuring may lack it.
fn has_setpriv() -> bool {
    static HAS: OnceLock<bool> = OnceLock::new();
    *HAS.get_or_init(|| Command::new("setpriv").arg("--version").output().is_ok_and(|output| output.status.success()))
}

/// Nodes to start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Three nodes that hold the same data, or one alone.
    pub is_cluster: bool,
    /// As the flag of this name.
    pub durability: &'static str,
    /// As the flag of this name.
    pub cores: usize,
    /// The app to deploy.
    pub app: &'static str,
}

#[derive(Debug)]
struct Node {
    process: Process,
    address: SocketAddr,
    directory: PathBuf,
}

/// Running nodes.
#[derive(Debug)]
pub struct Nodes {
    nodes: Vec<Node>,
    wanted: Wanted,
    // Dropped after the processes that write to it.
    folder: TempDir,
}

/// Who owns what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guidance {
    /// The owner of each shard, counted from 0.
    pub owners: Vec<usize>,
    /// The node that leads the meta shard.
    pub leader: usize,
}

/// What a node has used and done so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct Effort {
    /// Its CPU time.
    pub cpu_us: f64,
    /// Entries in all batches that it has written to its log.
    pub entries: f64,
    /// These batches.
    pub batches: f64,
}

impl Nodes {
    /// Starts nodes with empty data, waits until all serve, and deploys the app.
    ///
    /// # Errors
    /// If a node does not come up.
    pub fn start(setup: &Setup, wanted: Wanted) -> Outcome<Self> {
        let folder = setup.folder()?;
        let count = if wanted.is_cluster { NODES } else { 1 };
        let addresses: Vec<SocketAddr> = (0..count).map(|_| setup.address()).collect();
        if wanted.is_cluster {
            let peers: Vec<SocketAddr> = (0..count).map(|_| setup.address()).collect();
            let list = |all: &[SocketAddr]| all.iter().map(SocketAddr::to_string).collect::<Vec<_>>().join(",");
            let data = folder.path().to_string_lossy();
            let (http, peer) = (list(&addresses), list(&peers));
            command(setup, &["cluster", "init", "--data", &data, "--http", &http, "--peer", &peer])?;
        }
        let mut nodes = Self { nodes: Vec::new(), wanted, folder };
        for (index, address) in addresses.into_iter().enumerate() {
            let directory = nodes.folder.path().join(format!("n{}", index + 1));
            let process = start_node(setup, wanted, &directory, address, index)?;
            nodes.nodes.push(Node { process, address, directory });
        }
        nodes.wait_until_ready()?;
        let app = setup.app(wanted.app);
        let url = format!("http://{}", nodes.address(0));
        command(setup, &["deploy", &app.to_string_lossy(), "--url", &url])?;
        if wanted.is_cluster {
            nodes.wait_until_spread()?;
        }
        Ok(nodes)
    }

    /// Where a node serves.
    #[must_use]
    pub fn address(&self, index: usize) -> SocketAddr {
        self.nodes[index].address
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.nodes.len()
    }

    /// All processes.
    #[must_use]
    pub fn pids(&self) -> Vec<u32> {
        self.nodes.iter().map(|node| node.process.pid()).collect()
    }

    /// What a node sees.
    ///
    /// # Errors
    /// If it has no guidance, or no leader is known.
    pub fn guidance(&self, index: usize) -> Outcome<Guidance> {
        if !self.wanted.is_cluster {
            return Ok(Guidance { owners: vec![0; usize::from(SHARDS)], leader: 0 });
        }
        let told = get(self.address(index), "/cluster")?;
        let node = |value: &Value| value.as_u64().and_then(|node| usize::try_from(node).ok()?.checked_sub(1));
        let owners = told["shards"].as_array().into_iter().flatten().map(|shard| node(&shard["owner"]));
        let owners: Option<Vec<usize>> = owners.collect();
        match (owners, node(&told["leader"])) {
            (Some(owners), Some(leader)) if !owners.is_empty() => Ok(Guidance { owners, leader }),
            _ => Err(format!("GET /cluster gave no owners or no leader: {told}")),
        }
    }

    /// What a node has used and done so far.
    ///
    /// # Errors
    /// If it does not tell.
    pub fn effort(&self, index: usize) -> Outcome<Effort> {
        let used = ProcessUse::of(self.nodes[index].process.pid())?;
        let address = self.address(index);
        Ok(Effort {
            cpu_us: (used.user_us + used.system_us) as f64,
            entries: metric(address, "millrace_group_size_sum")?,
            batches: metric(address, "millrace_group_size_count")?,
        })
    }

    /// Kills a node, as a power cut of its machine would.
    pub fn kill(&mut self, index: usize) {
        self.nodes[index].process.kill();
    }

    /// Starts a node that was killed, and waits until it takes part.
    ///
    /// # Errors
    /// If it does not come up.
    pub fn start_again(&mut self, setup: &Setup, index: usize) -> Outcome<()> {
        let Node { address, directory, .. } = &self.nodes[index];
        self.nodes[index].process = start_node(setup, self.wanted, directory, *address, index)?;
        self.wait_until_ready()
    }

    fn wait_until_ready(&mut self) -> Outcome<()> {
        let deadline = Instant::now() + START;
        let path = if self.wanted.is_cluster { "/readyz" } else { "/healthz" };
        for node in &mut self.nodes {
            while !small::http(node.address, "GET", path, "").is_ok_and(|reply| reply.0 == 200) {
                if node.process.has_ended() || Instant::now() > deadline {
                    let log = std::fs::read_to_string(log_of(&node.directory)).unwrap_or_default();
                    return Err(format!("a node does not serve: {}", log.lines().last().unwrap_or_default()));
                }
                std::thread::sleep(LOOK);
            }
        }
        Ok(())
    }

    /// Waits until every node owns its share of the shards, as no shard moves any more then.
    ///
    /// # Errors
    /// If that takes a minute.
    pub fn wait_until_spread(&self) -> Outcome<()> {
        let deadline = Instant::now() + START;
        while !self.is_spread() {
            if Instant::now() > deadline {
                return Err("the shards are not spread over the nodes after a minute".to_owned());
            }
            std::thread::sleep(LOOK * 5);
        }
        Ok(())
    }

    fn is_spread(&self) -> bool {
        let all: Vec<Guidance> = (0..self.count()).filter_map(|index| self.guidance(index).ok()).collect();
        let shares = |one: &Guidance| {
            let share = |node| one.owners.iter().filter(|owner| **owner == node).count();
            let shares: Vec<usize> = (0..self.count()).map(share).collect();
            shares.iter().max() <= shares.iter().min().map(|least| least + 1).as_ref()
        };
        all.len() == self.count() && all.iter().all(|one| shares(one) && *one == all[0])
    }

    /// Stops all nodes and deletes their data.
    ///
    /// # Errors
    /// If one does not end in time.
    pub fn stop(mut self) -> Outcome<()> {
        self.nodes.iter().for_each(|node| node.process.ask_to_end());
        self.nodes.iter_mut().try_for_each(|node| node.process.wait())
    }
}

/// `count` keys whose shard is wanted, all with the same first letter.
#[must_use]
pub fn keys(prefix: char, count: usize, is_wanted: impl Fn(usize) -> bool) -> Vec<String> {
    let all = (0..).map(|number| format!("{prefix}{number}"));
    let wanted = |key: &String| is_wanted(usize::from(shard_of_key(key.as_bytes(), SHARDS).0));
    all.take(1_000_000).filter(wanted).take(count).collect()
}

fn start_node(setup: &Setup, wanted: Wanted, directory: &Path, address: SocketAddr, index: usize) -> Outcome<Process> {
    let (data, http, cores) = (directory.to_string_lossy(), address.to_string(), wanted.cores.to_string());
    let place: &[&str] =
        if wanted.is_cluster { &["--cluster-data", &data] } else { &["--data", &data, "--http", &http] };
    let others = ["--cores", cores.as_str(), "--durability", wanted.durability];
    let arguments = [&["serve"], place, &others].concat();
    let cpus = &setup.places.nodes[index];
    Process::start(&setup.millrace, &arguments, &[("MILLRACE_LOG", "warn")], cpus, &log_of(directory))
}

/// Beside the directory: a node alone makes its own.
fn log_of(directory: &Path) -> PathBuf {
    directory.with_extension("log")
}

/// A command of Millrace's.
fn command(setup: &Setup, arguments: &[&str]) -> Outcome<()> {
    let failed = |why: String| format!("`millrace {}` failed: {why}", arguments.join(" "));
    let done = Command::new(&setup.millrace).args(arguments).output().map_err(|error| failed(error.to_string()))?;
    if done.status.success() { Ok(()) } else { Err(failed(String::from_utf8_lossy(&done.stderr).into_owned())) }
}
