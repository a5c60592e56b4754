//! Measures objects beside MinIO, versitygw and nginx: all servers run each cell in turn, in one run, and every byte is checked.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use millrace_bench::Outcome;
use millrace_bench::arguments::{Surroundings, exit_code};
use millrace_bench::machine::{Machine, load_average};
use millrace_bench::objects::{FILES, OURS, Run, Side, aims, medians, open, page, parts, table};
use millrace_loadgen::s3::{Report, Row, Settings, run, tell};
use rustix::thread::{CpuSet, sched_setaffinity};
use serde::{Deserialize, Serialize};

#[derive(Parser)]
#[command(about = "Measure objects beside other S3 servers; results go to target/bench/objects.*")]
struct Arguments {
    #[command(flatten)]
    surroundings: Surroundings,
    /// The servers; one that is not installed is left out.
    #[arg(long, value_delimiter = ',', default_value = "millrace,minio,versitygw,nginx")]
    servers: Vec<String>,
    /// What to measure.
    #[arg(long, value_delimiter = ',', default_value = "small,large,beside,list")]
    part: Vec<String>,
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Seconds measured per side and round.
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Objects of each size.
    #[arg(long, default_value_t = 10_000)]
    objects: u64,
    /// Keys that are listed; the aim is for a million.
    #[arg(long, default_value_t = 100_000)]
    listed: u64,
    /// Threads of Millrace.
    #[arg(long, default_value_t = 1)]
    cores: usize,
    /// Durability of Millrace.
    #[arg(long, default_value = "fsync", value_parser = ["fsync", "memory"])]
    durability: String,
    /// Write the page, the medians and the plot to docs/benchmarks.
    #[arg(long)]
    publish: bool,
    /// Measure nothing: write these from the results of the last run, for one that could not end.
    #[arg(long)]
    publish_last: bool,
}

/// What a run leaves for programs.
#[derive(Serialize)]
struct Result<'a> {
    machine: &'a Machine,
    load_before: f64,
    durability: &'a str,
    left_out: &'a [String],
    report: &'a Report,
}

fn main() -> ExitCode {
    exit_code(&measure(&Arguments::parse()))
}

fn measure(arguments: &Arguments) -> Outcome<()> {
    if arguments.publish_last {
        return publish_last(arguments);
    }
    let setup = arguments.surroundings.setup(std::path::PathBuf::new(), None)?;
    let (machine, load_before) = (Machine::here(), load_average());
    bind_to(&setup.load_cpus)?;
    let seconds = arguments.seconds.clamp(0.2, 3600.0);
    let settings = Settings {
        rounds: arguments.rounds.max(1),
        duration: Duration::from_secs_f64(seconds),
        warm_up: Duration::from_secs_f64(seconds.min(1.0)),
        objects: arguments.objects.max(1),
        ..Settings::default()
    };
    let all = parts(&settings, arguments.listed);
    if let Some(unknown) = arguments.part.iter().find(|name| all.iter().all(|part| part.name != name.as_str())) {
        return Err(format!("there is no part {unknown:?}"));
    }
    let durability = if arguments.durability == "memory" { "memory" } else { "fsync" };
    let (mut sides, mut left_out) = (Vec::new(), Vec::new());
    for name in &arguments.servers {
        match open(name, &setup, arguments.cores, durability) {
            Ok(side) => sides.push(side),
            Err(error) => {
                eprintln!("{name} is left out: {error}");
                left_out.push(format!("{name}: {error}"));
            }
        }
    }
    if sides.is_empty() {
        return Err("no server is left to measure".to_owned());
    }
    let targets = |has_files: bool| -> Vec<_> {
        let targets = sides.iter().map(|side| side.target.clone());
        targets.filter(|target| has_files || target.name != FILES).collect()
    };
    let mut report = Report { seed: settings.seed, rows: Vec::new() };
    let earlier = if arguments.publish { rows_of(&arguments.surroundings.raw) } else { Vec::new() };
    for part in all.iter().filter(|part| arguments.part.iter().any(|name| name == part.name)) {
        let of_part = run(&targets(part.has_files), &part.cells, &part.settings, &mut |event| tell(event, true));
        report.rows.extend(of_part.map_err(|error| error.to_string())?.rows);
        // After each part, so that a run that ends early has results.
        let result = Result { machine: &machine, load_before, durability, left_out: &left_out, report: &report };
        write(&arguments.surroundings.raw, &result)?;
    }
    // Results of cells that were not measured stay as they are.
    let measured: Vec<_> = report.rows.iter().map(|row| row.cell).collect();
    report.rows.extend(earlier.into_iter().filter(|row| !measured.contains(&row.cell)));
    let result = Result { machine: &machine, load_before, durability, left_out: &left_out, report: &report };
    write(&arguments.surroundings.raw, &result)?;
    let aims = aims(&report.rows);
    println!("\n{}", table(&aims));
    if arguments.publish {
        let command = format!("make bench-objects BENCH=\"{}\"", told());
        let rounds = (settings.rounds, seconds);
        let run = Run { command, machine: &machine, load_before, durability, rounds };
        publish(&arguments.surroundings.results, &page(&run, &report, &aims), &report)?;
    }
    if left_out.iter().any(|line| line.starts_with(OURS)) {
        println!("{OURS} was left out, so no aim is judged.");
    }
    sides.into_iter().try_for_each(Side::stop)
}

/// The clients run on these CPUs only; servers are started on theirs.
fn bind_to(cpus: &[usize]) -> Outcome<()> {
    let mut set = CpuSet::new();
    cpus.iter().filter(|cpu| **cpu < CpuSet::MAX_CPU).for_each(|cpu| set.set(*cpu));
    sched_setaffinity(None, &set).map_err(|error| format!("cannot run on CPUs {cpus:?}: {error}"))
}

/// What the run before has left.
#[derive(Deserialize)]
struct Kept {
    machine: Machine,
    load_before: f64,
    durability: String,
    report: Report,
}

impl Kept {
    fn read(folder: &Path) -> Outcome<Self> {
        let path = folder.join("objects.json");
        let failed = |error: &dyn std::fmt::Display| format!("cannot read {}: {error}", path.display());
        let text = std::fs::read(&path).map_err(|error| failed(&error))?;
        serde_json::from_slice(&text).map_err(|error| failed(&error))
    }
}

/// The rows of the run before, if there was one.
fn rows_of(folder: &Path) -> Vec<Row> {
    Kept::read(folder).map(|kept| kept.report.rows).unwrap_or_default()
}

fn publish_last(arguments: &Arguments) -> Outcome<()> {
    let Kept { machine, load_before, durability, report } = Kept::read(&arguments.surroundings.raw)?;
    let aims = aims(&report.rows);
    let rounds = report.rows.iter().map(|row| row.round + 1).max().unwrap_or_default();
    let rounds = (rounds, arguments.seconds);
    let command = format!("make bench-objects BENCH=\"{}\"", told());
    let run = Run { command, machine: &machine, load_before, durability: &durability, rounds };
    publish(&arguments.surroundings.results, &page(&run, &report, &aims), &report)
}

/// What was given to `make`, which adds where things are.
fn told() -> String {
    let own: Vec<String> = std::env::args().skip(1).collect();
    let mut told = Vec::new();
    let mut at = 0;
    while at < own.len() {
        if ["--millrace", "--data", "--raw"].contains(&own[at].as_str()) {
            at += 2;
        } else if own[at] == "--publish-last" {
            at += 1;
        } else {
            told.push(own[at].clone());
            at += 1;
        }
    }
    told.join(" ")
}

fn publish(folder: &Path, page: &str, report: &Report) -> Outcome<()> {
    let save = |name: &str, text: &str| {
        let path = folder.join(name);
        std::fs::write(&path, text).map_err(|error| format!("cannot write {}: {error}", path.display()))
    };
    save("objects.md", page)?;
    save("objects.csv", &medians(report))?;
    match report.plots().into_iter().find(|(name, _)| name == "s3-get.svg") {
        Some((_, plot)) => save("plots/objects.svg", &plot),
        None => Ok(()),
    }
}

fn write(folder: &Path, result: &Result<'_>) -> Outcome<()> {
    let failed = |error: std::io::Error| format!("cannot write results to {}: {error}", folder.display());
    std::fs::create_dir_all(folder).map_err(failed)?;
    let json = serde_json::to_string_pretty(result).map_err(|error| error.to_string())?;
    std::fs::write(folder.join("objects.json"), json).map_err(failed)?;
    std::fs::write(folder.join("objects.csv"), result.report.csv()).map_err(failed)?;
    std::fs::write(folder.join("objects.md"), table(&aims(&result.report.rows))).map_err(failed)?;
    for (name, svg) in result.report.plots() {
        std::fs::write(folder.join(name), svg).map_err(failed)?;
    }
    Ok(())
}
