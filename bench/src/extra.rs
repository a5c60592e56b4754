//! Measurements without a rival: memory per connection and entity, time to be ready, scaling.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use millrace_loadgen::process::ProcessUse;
use millrace_loadgen::{HttpRequest, Plan, Report, RequestTemplate, run};
use serde::{Deserialize, Serialize};

use crate::Outcome;
use crate::cells::{Rounds, Side, Work};
use crate::machine::median;
use crate::server::{Kind, Server, Setup};

/// The result of one measurement.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ExtraResult {
    /// Names it on the command line.
    pub id: String,
    /// Names it in tables.
    pub title: String,
    /// The aim with its unit.
    pub aim: String,
    /// The figure with its unit, or the reason if there is none.
    pub measured: String,
    /// The figure alone.
    pub value: f64,
    /// Its unit.
    #[serde(default)]
    pub unit: String,
    /// Whether it meets the aim.
    pub is_met: bool,
    /// Whether there is a figure.
    pub is_measured: bool,
}

const IDLE_CONNECTIONS: usize = 10_000;

/// A key of the counter: `k` and up to 7 digits; its one field `value`; its value up to 8 bytes.
const ENTITY_BYTES: f64 = 8.0 + 5.0 + 8.0;

const COUNTER: Kind = Kind::Millrace { app: "counter", durability: "fsync", cores: 1 };

/// A measurement by its id.
pub struct Extra {
    /// Names it on the command line.
    pub id: &'static str,
    title: &'static str,
    aim: f64,
    unit: &'static str,
    is_lower_better: bool,
    measure: fn(&Setup, &Size) -> Outcome<f64>,
}

/// The size of the measurements; a trial uses a smaller one.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Entities to fill the server with.
    pub entities: usize,
    /// Number and length of rounds.
    pub rounds: Rounds,
}

/// All of them, in the order they are published.
#[must_use]
pub fn extras() -> Vec<Extra> {
    let extra =
        |id, title, aim, unit, is_lower_better, measure| Extra { id, title, aim, unit, is_lower_better, measure };
    vec![
        extra(
            "memory-connection",
            "memory per idle connection",
            12.0 * 1024.0,
            "bytes",
            true,
            connection_bytes as fn(&Setup, &Size) -> Outcome<f64>,
        ),
        extra("memory-entity", "memory per small entity over its bytes", 200.0, "bytes", true, entity_bytes),
        extra("start-empty", "ready after start, empty", 0.2, "s", true, start_empty),
        extra(
            "start-checkpoint",
            "ready after start, 1 million entities checkpointed",
            2.0,
            "s",
            true,
            start_checkpoint,
        ),
        extra("start-replay", "replay of the log", 400_000.0, "entries/s", false, replay_rate),
        extra("scaling", "throughput of all cores per core over that of one", 0.8, "×", false, scaling),
    ]
}

impl Extra {
    /// Measures; a failure is a result too.
    #[must_use]
    pub fn run(&self, setup: &Setup, size: &Size) -> ExtraResult {
        eprint!("{}: ", self.id);
        let sign = if self.is_lower_better { "≤" } else { "≥" };
        let outcome = (self.measure)(setup, size);
        let (measured, value) = match &outcome {
            Ok(value) => (format!("{} {}", digits(*value), self.unit), *value),
            Err(error) => (format!("not measured: {}", error.replace(['|', '\n'], " ")), 0.0),
        };
        eprintln!("{measured}");
        let is_met = outcome.is_ok() && if self.is_lower_better { value <= self.aim } else { value >= self.aim };
        ExtraResult {
            id: self.id.to_owned(),
            title: self.title.to_owned(),
            aim: format!("{sign} {} {}", digits(self.aim), self.unit),
            measured,
            value,
            unit: self.unit.to_owned(),
            is_met,
            is_measured: outcome.is_ok(),
        }
    }
}

fn digits(value: f64) -> String {
    if value.abs() >= 100.0 { format!("{value:.0}") } else { format!("{value:.3}") }
}

fn resident(server: &Server) -> Outcome<f64> {
    Ok(ProcessUse::of_all(&server.pids())?.resident_bytes as f64)
}

/// After this time without a request, the server has taken the connection's buffers back.
const UNTIL_IDLE: Duration = Duration::from_secs(8);

/// Memory of a connection that sent one request and then stays silent.
fn connection_bytes(setup: &Setup, _size: &Size) -> Outcome<f64> {
    let server = Server::start(&Kind::Millrace { app: "login", durability: "fsync", cores: 1 }, setup)?;
    // This process holds the connections, so it needs their descriptors as well.
    let mut open = Vec::with_capacity(IDLE_CONNECTIONS);
    let failed = |error: std::io::Error| format!("connection: {error}");
    let ask = |open: &mut Vec<TcpStream>| -> Outcome<()> {
        let mut stream = TcpStream::connect(server.address).map_err(failed)?;
        stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").map_err(failed)?;
        let mut reply = [0; 4096];
        let length = stream.read(&mut reply).map_err(failed)?;
        if !reply[..length].starts_with(b"HTTP/1.1 200") {
            return Err("a connection was not served".to_owned());
        }
        open.push(stream);
        Ok(())
    };
    // The first connections fill pools that later connections share.
    for _ in 0..100 {
        ask(&mut open)?;
    }
    std::thread::sleep(UNTIL_IDLE);
    let before = resident(&server)?;
    for _ in 100..IDLE_CONNECTIONS {
        ask(&mut open)?;
    }
    std::thread::sleep(UNTIL_IDLE);
    let after = resident(&server)?;
    drop(open);
    server.stop()?;
    Ok((after - before) / (IDLE_CONNECTIONS - 100) as f64)
}

/// Creates at least `count` counters, each once. Returns their number.
fn fill(server: &Server, setup: &Setup, first: usize, count: usize) -> Outcome<usize> {
    let mut made = 0;
    while made < count {
        let url = format!("http://{}/call/counter/k{{{{seq:{}}}}}/add", server.address, first + made);
        let request = HttpRequest { method: "POST", url: &url, headers: &[], body: Some("1") };
        let (request, ..) = RequestTemplate::http(&request).map_err(|error| error.to_string())?;
        let mut plan = Plan::new(&url, server.address, request);
        plan.connections = 1024;
        plan.warm_up = Duration::ZERO;
        plan.duration = Duration::from_secs(5);
        plan.cpus.clone_from(&setup.load_cpus);
        let report: Report = run(&plan, &mut |_| {}).map_err(|error| error.to_string())?;
        if !report.is_clean() {
            return Err(format!("filling failed: {:?}", report.first_error));
        }
        // Requests answered after the end have created entities as well.
        made += report.requests as usize + plan.connections;
    }
    Ok(made)
}

fn entity_bytes(setup: &Setup, size: &Size) -> Outcome<f64> {
    let server = Server::start(&Kind::Millrace { app: "counter", durability: "none", cores: 1 }, setup)?;
    let start = fill(&server, setup, 0, 1)?;
    let before = resident(&server)?;
    let made = fill(&server, setup, start, size.entities)?;
    let after = resident(&server)?;
    server.stop()?;
    Ok((after - before) / made as f64 - ENTITY_BYTES)
}

fn folder(setup: &Setup) -> Outcome<tempfile::TempDir> {
    tempfile::tempdir_in(&setup.data).map_err(|error| format!("cannot make a data folder: {error}"))
}

fn start_empty(setup: &Setup, size: &Size) -> Outcome<f64> {
    let mut times = Vec::new();
    for _ in 0..size.rounds.count.max(3) {
        let server = Server::start(&COUNTER, setup)?;
        times.push(server.ready_after.as_secs_f64());
        server.stop()?;
    }
    Ok(median(&times))
}

fn start_checkpoint(setup: &Setup, size: &Size) -> Outcome<f64> {
    let folder = folder(setup)?;
    let server = Server::start_in(&COUNTER, setup, folder.path())?;
    fill(&server, setup, 0, size.entities)?;
    // A clean stop leaves everything in the checkpoint.
    server.stop()?;
    let server = Server::start_in(&COUNTER, setup, folder.path())?;
    let time = server.ready_after.as_secs_f64();
    server.stop()?;
    Ok(time)
}

/// A lower bound, because the time includes the whole start. The figure holds only if no checkpoint ran before the
/// kill: checkpointed entries are not replayed.
fn replay_rate(setup: &Setup, size: &Size) -> Outcome<f64> {
    let folder = folder(setup)?;
    let server = Server::start_in(&COUNTER, setup, folder.path())?;
    let made = fill(&server, setup, 0, size.entities)?;
    server.kill();
    let server = Server::start_in(&COUNTER, setup, folder.path())?;
    let time = server.ready_after.as_secs_f64();
    server.stop()?;
    Ok(made as f64 / time)
}

/// Half of the CPUs serve and the other half send, so this needs four CPUs.
fn scaling(setup: &Setup, size: &Size) -> Outcome<f64> {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let cores = cpus / 2;
    if cores < 2 {
        return Err(format!("this machine has {cpus} CPUs; 4 are needed"));
    }
    let wide = Setup { server_cpus: format!("0-{}", cores - 1), load_cpus: (cores..cpus).collect(), ..setup.clone() };
    let mut ratios = Vec::new();
    for round in 0..size.rounds.count {
        let rate = |cores: usize| -> Outcome<f64> {
            let kind = Kind::Millrace { app: "login", durability: "fsync", cores };
            let connections = 100 * cores;
            let side = Side { name: format!("{cores} cores"), kind, work: Work::LoginRoute, connections, in_flight: 1 };
            Ok(side.measure(&wide, &size.rounds, round)?.report.rate)
        };
        ratios.push(rate(cores)? / rate(1)? / cores as f64);
    }
    Ok(median(&ratios))
}
