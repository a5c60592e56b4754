//! Three nodes of etcd, and its load generator (`bench/rivals/etcd`).

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use millrace_loadgen::Report;
use tempfile::TempDir;

use super::nodes::{Process, Setup};
use super::places::{NODES, on};
use super::workload::{KEYS, VALUE_BYTES};
use crate::cells::Rounds;
use crate::{Outcome, small};

const START: Duration = Duration::from_secs(60);

/// Connections over which all clients go. gRPC carries many requests on one.
const CONNECTIONS: usize = 64;

/// A running cluster of etcd.
#[derive(Debug)]
pub struct Etcd {
    processes: Vec<Process>,
    endpoints: Vec<String>,
    // Dropped after the processes that write to it.
    _folder: TempDir,
}

impl Etcd {
    /// Starts three nodes with empty data.
    ///
    /// # Errors
    /// If they do not come up.
    pub fn start(setup: &Setup) -> Outcome<Self> {
        for program in [&setup.etcd, &setup.etcd_load] {
            if !program.is_file() {
                return Err(format!("there is no {}; run bench/rivals/etcd/install.sh", program.display()));
            }
        }
        let folder = setup.folder()?;
        let clients: Vec<_> = (0..NODES).map(|_| setup.address()).collect();
        let peers: Vec<String> = (0..NODES).map(|_| format!("http://{}", setup.address())).collect();
        let members = peers.iter().enumerate().map(|(index, peer)| format!("n{index}={peer}"));
        let members = members.collect::<Vec<_>>().join(",");
        let mut processes = Vec::new();
        for (index, (client, peer)) in clients.iter().zip(&peers).enumerate() {
            let data = folder.path().join(format!("n{index}"));
            let (name, data, client) = (format!("n{index}"), data.to_string_lossy(), format!("http://{client}"));
            let arguments = [
                ["--name", name.as_str()],
                ["--data-dir", &data],
                ["--listen-client-urls", &client],
                ["--advertise-client-urls", &client],
                ["--listen-peer-urls", peer],
                ["--initial-advertise-peer-urls", peer],
                ["--initial-cluster", &members],
                ["--initial-cluster-state", "new"],
                ["--log-level", "error"],
                // Room for a long run; the default of 2 GiB would end it.
                ["--quota-backend-bytes", "8589934592"],
            ];
            let cpus = &setup.places.nodes[index];
            let log = folder.path().join(format!("n{index}.log"));
            processes.push(Process::start(&setup.etcd, arguments.as_flattened(), &[], cpus, &log)?);
        }
        let endpoints = clients.iter().map(ToString::to_string).collect();
        let mut etcd = Self { processes, endpoints, _folder: folder };
        for address in clients {
            let deadline = Instant::now() + START;
            while !small::http(address, "GET", "/health", "").is_ok_and(|reply| reply.1.contains("true")) {
                if Instant::now() > deadline || etcd.processes.iter_mut().any(Process::has_ended) {
                    return Err("etcd does not serve".to_owned());
                }
                std::thread::sleep(Duration::from_millis(50));
            }
        }
        Ok(etcd)
    }

    /// Writes from many clients. Connections are spread over the nodes.
    ///
    /// # Errors
    /// If the load generator fails.
    pub fn load(&self, setup: &Setup, rounds: &Rounds, clients: usize) -> Outcome<Report> {
        let pids: Vec<String> = self.processes.iter().map(|process| process.pid().to_string()).collect();
        let mut command = Command::new(&setup.etcd_load);
        command.args(["--endpoints", &self.endpoints.join(","), "--pids", &pids.join(",")]);
        command.args(["--clients", &clients.to_string(), "--connections", &CONNECTIONS.to_string()]);
        command.args(["--keys", &KEYS.to_string(), "--size", &VALUE_BYTES.to_string()]);
        command.args(["--seconds", &rounds.duration.as_secs_f64().to_string()]);
        command.args(["--warm-up", &rounds.warm_up.as_secs_f64().to_string()]);
        command.stdin(Stdio::null());
        let done = on(&setup.places.load, || command.output())?;
        let done = done.map_err(|error| format!("cannot run {}: {error}", setup.etcd_load.display()))?;
        if !done.status.success() {
            return Err(format!("the load generator failed: {}", String::from_utf8_lossy(&done.stderr).trim()));
        }
        serde_json::from_slice(&done.stdout).map_err(|error| format!("the load generator printed no report: {error}"))
    }

    /// Stops all nodes and deletes their data.
    ///
    /// # Errors
    /// If one does not end in time.
    pub fn stop(mut self) -> Outcome<()> {
        self.processes.iter().for_each(Process::ask_to_end);
        self.processes.iter_mut().try_for_each(Process::wait)
    }
}
