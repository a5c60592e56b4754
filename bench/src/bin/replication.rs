//! Measures a cluster of three nodes beside one node and beside etcd, and publishes the results, lost comparisons included.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use millrace_bench::Outcome;
use millrace_bench::arguments::{check_chosen, exit_code};
use millrace_bench::cells::Rounds;
use millrace_bench::contest::ContestResult;
use millrace_bench::machine::{Machine, load_average, output};
use millrace_bench::pages::{REPLICATION, write_raw};
use millrace_bench::replication::contests::{Part, parts};
use millrace_bench::replication::nodes::Setup;
use millrace_bench::replication::places::Places;
use millrace_bench::replication::{failover, ids, round};
use millrace_bench::rows;
use millrace_bench::summary::{Circumstances, Suite};

#[derive(Parser)]
#[command(about = "Measure a cluster of three nodes beside one node and beside etcd, and publish the outcome")]
struct Arguments {
    /// The server's binary.
    #[arg(long, default_value = "target/release/millrace")]
    millrace: PathBuf,
    /// The binary of etcd. Without it, nothing is measured beside etcd.
    #[arg(long, default_value = "bench/rivals/etcd/etcd")]
    etcd: PathBuf,
    /// The load generator of etcd.
    #[arg(long, default_value = "bench/rivals/etcd/etcd-load")]
    etcd_load: PathBuf,
    #[arg(long, default_value = "examples")]
    examples: PathBuf,
    #[arg(long, default_value = "bench/apps")]
    apps: PathBuf,
    /// Where servers keep their data, on the disk to measure.
    #[arg(long, default_value = "target")]
    data: PathBuf,
    /// Where medians, page and plot go. Results of cells that are not measured stay as they are.
    #[arg(long, default_value = "docs/benchmarks")]
    results: PathBuf,
    /// Where raw results go, as JSON.
    #[arg(long, default_value = "target/bench")]
    raw: PathBuf,
    /// What to measure; everything without it.
    #[arg(long, value_delimiter = ',')]
    part: Vec<String>,
    /// Only the comparisons with these ids.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Seconds measured per side and round.
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// How often a node is killed.
    #[arg(long, default_value_t = 10)]
    kills: usize,
    /// The commit of the server, where there is no checkout.
    #[arg(long)]
    commit: Option<String>,
    /// The first port of the servers. Each start takes the next ones.
    #[arg(long, default_value_t = 27_000)]
    port: u16,
}

fn main() -> ExitCode {
    exit_code(&measure(&Arguments::parse()))
}

fn measure(arguments: &Arguments) -> Outcome<()> {
    let Arguments { part: names, only, rounds, seconds, .. } = arguments;
    let setup = setup(arguments)?;
    let all = parts(setup.places.each());
    check_chosen(names, all.iter().map(|part| part.name).chain([failover::ID]))?;
    let cells = ids();
    check_chosen(only, cells.iter().map(String::as_str))?;
    eprintln!("{}", setup.places.text());
    let circumstances = circumstances(arguments);
    let mut suite = Suite::new("replication", &circumstances, "fsync; in `write-os-*`, os");
    suite.facts.push(("places".to_owned(), setup.places.text()));
    let length = Duration::from_secs_f64(seconds.clamp(0.2, 3600.0));
    let rounds = Rounds { count: (*rounds).max(1), duration: length, warm_up: length.min(Duration::from_millis(500)) };
    let is_chosen = |all: &[String], name: &str| all.is_empty() || all.iter().any(|chosen| chosen == name);
    for part in all.into_iter().filter(|part| is_chosen(names, part.name)) {
        let results = round::run(&chosen(part, only), &setup, &rounds);
        publish(arguments, &circumstances, &suite, &results)?;
    }
    if is_chosen(names, failover::ID) && is_chosen(only, failover::ID) {
        let result = failover::measure(&setup, arguments.kills);
        publish(arguments, &circumstances, &suite, &[result])?;
    }
    Ok(())
}

/// After each part, so that a run that ends early has results.
fn publish(
    arguments: &Arguments,
    circumstances: &Circumstances,
    suite: &Suite,
    results: &[ContestResult],
) -> Outcome<()> {
    for result in results {
        write_raw(&arguments.raw, &format!("replication-{}", result.id), &(circumstances, result))?;
        for judgement in &result.judgements {
            let verdict = if judgement.is_met { "met" } else { "lost" };
            println!("{}: {} (aim {}, {verdict})", judgement.title, judgement.measured, judgement.aim);
        }
        result.remarks.iter().for_each(|remark| println!("{}: {remark}", result.id));
    }
    let rows = results.iter().flat_map(rows::of_contest).collect();
    REPLICATION.publish(&arguments.results, suite.clone(), rows)
}

fn setup(arguments: &Arguments) -> Outcome<Setup> {
    let absolute = |path: &Path| std::path::absolute(path).map_err(|error| format!("{}: {error}", path.display()));
    Ok(Setup {
        millrace: absolute(&arguments.millrace)?,
        etcd: absolute(&arguments.etcd)?,
        etcd_load: absolute(&arguments.etcd_load)?,
        examples: absolute(&arguments.examples)?,
        apps: absolute(&arguments.apps)?,
        data: absolute(&arguments.data)?,
        places: Places::here()?,
        next_port: Cell::new(arguments.port),
    })
}

fn circumstances(arguments: &Arguments) -> Circumstances {
    let Arguments { part, only, rounds, seconds, kills, commit, etcd, .. } = arguments;
    let mut machine = Machine::here();
    if let Some(commit) = commit {
        machine.commit.clone_from(commit);
        machine.is_modified = false;
    }
    let list = |flag: &str, names: &[String]| match names {
        [] => String::new(),
        names => format!("--{flag} {} ", names.join(",")),
    };
    let chosen = format!("{}{}", list("part", part), list("only", only));
    Circumstances {
        command: format!(
            "make bench-replication BENCH=\"{chosen}--rounds {rounds} --seconds {seconds} --kills {kills}\""
        ),
        machine,
        rounds: (*rounds).max(1),
        seconds: *seconds,
        rivals: vec![output(&etcd.to_string_lossy(), &["--version"]).replace("etcd Version:", "etcd")],
        load_before: load_average(),
    }
}

/// The part with only the comparisons that were chosen.
fn chosen(mut part: Part, only: &[String]) -> Part {
    if only.is_empty() {
        return part;
    }
    let is_chosen = |cell: &str| only.iter().any(|id| id == cell);
    part.comparisons.retain(|comparison| is_chosen(comparison.id));
    part.stands.iter_mut().for_each(|stand| stand.tasks.retain(|task| is_chosen(task.cell)));
    part
}
