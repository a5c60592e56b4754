//! Measures handlers in Python processes beside rivals, and publishes the results, lost comparisons included.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use millrace_bench::Outcome;
use millrace_bench::arguments::{Surroundings, exit_code};
use millrace_bench::cells::Rounds;
use millrace_bench::machine::{Machine, load_average, output};
use millrace_bench::pages::{PYTHON, write_raw};
use millrace_bench::python::comparisons;
use millrace_bench::rows;
use millrace_bench::summary::{Circumstances, Suite};

#[derive(Parser)]
#[command(about = "Measure handlers in Python processes beside rivals, and publish the outcome")]
struct Arguments {
    #[command(flatten)]
    surroundings: Surroundings,
    /// Only the comparisons with these ids.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Seconds measured per side and round.
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
}

fn main() -> ExitCode {
    exit_code(&measure(&Arguments::parse()))
}

/// Publishes after each comparison, so that a run that ends early has results.
fn measure(arguments: &Arguments) -> Outcome<()> {
    let Arguments { surroundings, only, rounds, seconds } = arguments;
    let setup = surroundings.setup(PathBuf::new(), None)?;
    let machine = Machine::here();
    if machine.cores < 2 {
        return Err("two CPUs are needed: one for the server, one for the load".to_owned());
    }
    let all = comparisons();
    let order: Vec<String> = all.iter().map(|(id, _)| id.clone()).collect();
    if let Some(unknown) = only.iter().find(|id| !order.contains(id)) {
        return Err(format!("there is no comparison {unknown:?}; there are {}", order.join(", ")));
    }
    let chosen = if only.is_empty() { String::new() } else { format!(" --only {}", only.join(",")) };
    let circumstances = Circumstances {
        command: format!("make bench-python BENCH=\"--rounds {rounds} --seconds {seconds}{chosen}\""),
        machine,
        rounds: (*rounds).max(1),
        seconds: *seconds,
        rivals: rivals(&surroundings.rivals_folder),
        load_before: load_average(),
    };
    let duration = Duration::from_secs_f64(seconds.clamp(0.2, 3600.0));
    let rounds = Rounds { count: circumstances.rounds, duration, warm_up: duration.min(Duration::from_secs(1)) };
    let suite = Suite::new("comparisons", &circumstances, "fsync; in `guarantees-*`, as the side says");
    for (id, measure) in all.iter().filter(|(id, _)| only.is_empty() || only.contains(id)) {
        let result = measure(&setup, &rounds);
        write_raw(&surroundings.raw, &format!("python-{id}"), &(&circumstances, &result))?;
        PYTHON.publish(&surroundings.results, suite.clone(), rows::of_contest(&result))?;
    }
    Ok(())
}

fn rivals(folder: &Path) -> Vec<String> {
    let wanted = std::fs::read_to_string(folder.join("python/requirements.txt")).unwrap_or_default();
    let version = |name: &str| {
        let pinned = wanted.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix("=="));
        pinned.unwrap_or_default().to_owned()
    };
    vec![
        format!("Restate 1.7 with its Python SDK {} under Hypercorn {}", version("restate-sdk"), version("Hypercorn")),
        format!("DBOS {} and asyncpg {} behind FastAPI {}", version("dbos"), version("asyncpg"), version("fastapi")),
        output("sh", &["-c", "/usr/lib/postgresql/*/bin/postgres --version"]),
        output("sh", &["-c", "valkey-server --version 2>/dev/null || redis-server --version"]),
        format!("uvicorn {} on {}", version("uvicorn"), output("python3", &["--version"])),
    ]
}
