//! What a worker costs that does nothing, and how soon a new one answers.

use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::cells::Rounds;
use crate::contest::{ContestResult, Judgement};
use crate::server::{Kind, PythonSide, Server, Setup, free_address};
use crate::{Outcome, small};

/// Names it on the command line.
pub const ID: &str = "idle";

/// Deployments whose memory is measured together, so that pages that are taken anyway do not count.
const DEPLOYMENTS: usize = 500;
const MEMORY_KB: f64 = 100.0;
const START_S: f64 = 1.0;
const PATIENCE: Duration = Duration::from_secs(30);

/// All rounds.
#[must_use]
pub fn measure(setup: &Setup, rounds: &Rounds) -> ContestResult {
    let mut problem = None;
    let mut each = |what: &dyn Fn(&Setup) -> Outcome<f64>| -> Vec<f64> {
        let results = (0..rounds.count).map(|_| what(setup)).collect::<Outcome<Vec<f64>>>();
        results.unwrap_or_else(|error| {
            eprintln!("{ID}: {error}");
            problem = Some(error);
            Vec::new()
        })
    };
    let (memory, start) = (each(&memory_kb), each(&start_s));
    let judge = |title: &str, bound: f64, unit: &str, values: Vec<f64>| {
        let mut judgement =
            Judgement::new(title, format!("≤ {bound} {unit}"), unit, values, |middle| middle <= bound);
        judgement.is_measured = !judgement.values.is_empty();
        judgement
    };
    ContestResult {
        id: ID.to_owned(),
        judgements: vec![
            judge("memory of the server for an idle service in a worker", MEMORY_KB, "KB", memory),
            judge("start of a worker until its first answer", START_S, "s", start),
        ],
        runs: Vec::new(),
        figures: Vec::new(),
        remarks: problem.into_iter().collect(),
    }
}

/// Memory of the server for one more deployment, by many of the same worker under other names.
fn memory_kb(setup: &Setup) -> Outcome<f64> {
    let kind = PythonSide { side: "millrace", app: "counter", processes: 1, counted: "node", durability: "none" };
    let server = Server::start(&Kind::Python(kind), setup)?;
    let node = server.pids().first().copied().ok_or("the server has no process")?;
    let worker = Worker::start(setup)?;
    let deploy = |number: usize| worker.deploy(server.address, &format!("idle{number}"));
    deploy(0)?;
    let before = resident_kb(node)?;
    (1..=DEPLOYMENTS).try_for_each(deploy)?;
    let after = resident_kb(node)?;
    server.stop()?;
    Ok((after - before) / DEPLOYMENTS as f64)
}

/// From the start of a worker's process to the answer of a call that waits for it.
fn start_s(setup: &Setup) -> Outcome<f64> {
    let kind = PythonSide { side: "millrace", app: "counter", processes: 1, counted: "node", durability: "none" };
    let server = Server::start(&Kind::Python(kind), setup)?;
    let begun = Instant::now();
    let worker = Worker::start(setup)?;
    worker.deploy(server.address, "counter")?;
    let (status, reply) = small::http(server.address, "POST", "/call/counter/visits/add", "1")?;
    let took = begun.elapsed();
    server.stop()?;
    if status == 200 { Ok(took.as_secs_f64()) } else { Err(format!("the call gave {status}: {reply}")) }
}

fn resident_kb(process: u32) -> Outcome<f64> {
    let status = std::fs::read_to_string(Path::new("/proc").join(process.to_string()).join("status"));
    let status = status.map_err(|error| error.to_string())?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok()).ok_or("no VmRSS".to_owned())
}

/// A worker under uvicorn.
struct Worker {
    child: Child,
    address: SocketAddr,
}

impl Worker {
    fn start(setup: &Setup) -> Outcome<Self> {
        let folder = setup.rivals.join("python");
        let address = free_address()?;
        let sdk = setup.rivals.join("../../sdk/python/src");
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "taskset", "-c", &setup.server_cpus]);
        command.arg(folder.join("environment/bin/uvicorn")).args(["counter:app", "--log-level", "error"]);
        command.args(["--port", &address.port().to_string()]);
        command.env("PYTHONPATH", std::env::join_paths([sdk, folder]).map_err(|error| error.to_string())?);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().map_err(|error| error.to_string())?;
        let worker = Self { child, address };
        let end = Instant::now() + PATIENCE;
        while TcpStream::connect((Ipv4Addr::LOCALHOST, address.port())).is_err() {
            if Instant::now() > end {
                return Err("the worker does not listen".to_owned());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(worker)
    }

    fn deploy(&self, node: SocketAddr, app: &str) -> Outcome<()> {
        let body = format!(r#"{{"worker":"http://{}"}}"#, self.address);
        let (status, reply) = small::http(node, "PUT", &format!("/apps/{app}"), &body)?;
        if status < 300 { Ok(()) } else { Err(format!("deploying gave {status}: {reply}")) }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
