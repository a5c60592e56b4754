//! The load generator beside wrk, in alternation, on the bare responder: how much load each can
//! make on one CPU, and what a request costs it.

use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::Duration;

use clap::Parser;
use millrace_bench::Outcome;
use millrace_bench::machine::{Machine, median, output};
use millrace_bench::server::{Kind, Server, Setup};

#[derive(Parser)]
#[command(about = "Compare the load generator with wrk")]
struct Arguments {
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    #[arg(long, default_value_t = 4)]
    seconds: u64,
    #[arg(long, default_value_t = 100)]
    connections: usize,
    /// The responder's CPU and the generator's.
    #[arg(long, default_value = "0")]
    server_cpus: String,
    #[arg(long, default_value_t = 1)]
    load_cpu: usize,
}

/// Requests a second, µs of the generator's CPU a request, the server's, p99 in µs.
type Figures = [f64; 4];

fn main() -> ExitCode {
    match compare(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

fn compare(arguments: &Arguments) -> Outcome<()> {
    let beside = std::env::current_exe().map_err(|error| error.to_string())?;
    let setup = Setup {
        millrace: PathBuf::new(),
        limit: beside.with_file_name("limit"),
        examples: PathBuf::new(),
        apps: PathBuf::new(),
        rivals: PathBuf::new(),
        data: std::env::temp_dir(),
        server_cpus: arguments.server_cpus.clone(),
        load_cpus: vec![arguments.load_cpu],
    };
    let server = Server::start(&Kind::Limit, &setup)?;
    let url = format!("http://{}/user/login", server.address);
    let load = beside.with_file_name("load").to_string_lossy().into_owned();
    let (connections, seconds) = (arguments.connections.to_string(), format!("{}s", arguments.seconds));
    let wrk = ["wrk", "-t1", "-c", &connections, "-d", &seconds, "--latency", &url];
    let ours = [
        load.as_str(),
        "http",
        &url,
        "-c",
        &connections,
        "-d",
        &seconds,
        "--warm-up",
        "0",
        "-q",
        "--expect-status",
        "200",
        "--expect-body",
        "ok",
    ];
    let sides: [(&str, &[&str]); 2] = [("wrk", &wrk), ("millrace bench", &ours)];
    let mut figures: [Vec<Figures>; 2] = [Vec::new(), Vec::new()];
    for round in 0..arguments.rounds {
        for index in [round % 2, (round + 1) % 2] {
            let measured = run(sides[index].1, arguments, server.pids()[0])?;
            eprintln!("{} {}: {measured:.2?}", round + 1, sides[index].0);
            figures[index].push(measured);
        }
    }
    server.stop()?;
    let machine = Machine::here();
    println!(
        "{}, {} cores, Linux {}; {connections} connections; {}",
        machine.cpu,
        machine.cores,
        machine.kernel,
        output("wrk", &["-v"])
    );
    for (index, (name, _)) in sides.iter().enumerate() {
        let middle = |figure: usize| median(&figures[index].iter().map(|each| each[figure]).collect::<Vec<_>>());
        let [rate, own, server, p99] = [0, 1, 2, 3].map(middle);
        println!("{name:<15} {rate:>8.0}/s  own CPU {own:.2} µs  server CPU {server:.2} µs  p99 {p99:.0} µs");
    }
    Ok(())
}

fn run(words: &[&str], arguments: &Arguments, server: u32) -> Outcome<Figures> {
    let before = (child_cpu_us()?, process_cpu_us(server)?);
    let cpu = arguments.load_cpu.to_string();
    let output = Command::new("taskset").args(["-c", &cpu]).args(words).output();
    let output = output.map_err(|error| format!("cannot run {}: {error}", words[0]))?;
    let after = (child_cpu_us()?, process_cpu_us(server)?);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() || text.contains("Non-2xx") || text.contains("Socket errors") {
        return Err(format!("{} failed: {text}{}", words[0], String::from_utf8_lossy(&output.stderr)));
    }
    let unknown = || format!("cannot read what {} printed: {text}", words[0]);
    let requests = requests_of(&text).ok_or_else(unknown)?;
    let per_request = |from: u64, to: u64| to.saturating_sub(from) as f64 / requests;
    let seconds = Duration::from_secs(arguments.seconds).as_secs_f64();
    let p99 = p99_of(&text).ok_or_else(unknown)?;
    Ok([requests / seconds, per_request(before.0, after.0), per_request(before.1, after.1), p99])
}

/// "  412377 requests in 4.00s, …" of wrk, "requests     412377 in 4 s, …" of ours.
fn requests_of(text: &str) -> Option<f64> {
    let line = text.lines().find(|line| line.contains("requests in ") || line.starts_with("requests "))?;
    line.split_whitespace().find_map(|word| word.parse().ok())
}

/// "     99%    7.80ms" of wrk, "… p99 8.40 ms …" of ours.
fn p99_of(text: &str) -> Option<f64> {
    let after = |mark: &str| text.split_once(mark).map(|(_, rest)| rest.trim_start());
    let rest = after("99% ").or_else(|| after("p99 "))?;
    let end = rest.find(|char: char| !char.is_ascii_digit() && char != '.')?;
    let number: f64 = rest[..end].parse().ok()?;
    match rest[end..].trim_start() {
        unit if unit.starts_with("ms") => Some(number * 1000.0),
        unit if unit.starts_with('s') => Some(number * 1e6),
        _ => Some(number),
    }
}

/// CPU time of all children that have ended; `/proc` counts it in steps of 10 ms.
fn child_cpu_us() -> Outcome<u64> {
    cpu_us("/proc/self/stat", 13)
}

fn process_cpu_us(pid: u32) -> Outcome<u64> {
    cpu_us(&format!("/proc/{pid}/stat"), 11)
}

/// The sum of two fields, counted after the process's name.
fn cpu_us(path: &str, first: usize) -> Outcome<u64> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
    let fields = text.rsplit_once(") ").map(|(_, rest)| rest.split_ascii_whitespace().skip(first).take(2));
    let ticks: Option<u64> = fields.and_then(|fields| fields.map(|field| field.parse::<u64>().ok()).sum());
    ticks.map(|ticks| ticks * 10_000).ok_or_else(|| format!("{path} has an unknown form"))
}
