//! Measures transactions beside each other and beside rivals, and publishes the results, lost comparisons included.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use millrace_bench::Outcome;
use millrace_bench::arguments::{Surroundings, check_chosen, exit_code};
use millrace_bench::cells::Rounds;
use millrace_bench::machine::{Machine, load_average, output};
use millrace_bench::pages::{TRANSACTIONS, write_raw};
use millrace_bench::rows;
use millrace_bench::server::Setup;
use millrace_bench::summary::{Circumstances, Suite};
use millrace_bench::transactions::matrix::{APPS, CONFIGURATIONS, Times};
use millrace_bench::transactions::workload::Workload;
use millrace_bench::transactions::{comparisons, matrix};

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    Table,
    Matrix,
}

#[derive(Parser)]
#[command(about = "Measure transactions beside each other and beside rivals, and publish the outcome")]
struct Arguments {
    #[command(flatten)]
    surroundings: Surroundings,
    #[arg(long, default_value = "bench/apps")]
    apps: PathBuf,
    /// What to measure.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "table,matrix")]
    part: Vec<Part>,
    /// Only the comparisons with these ids.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Seconds measured per side and round of a comparison.
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Seconds measured per rate of the matrix.
    #[arg(long, default_value_t = 1.2)]
    matrix_seconds: f64,
}

fn main() -> ExitCode {
    exit_code(&measure(&Arguments::parse()))
}

fn measure(arguments: &Arguments) -> Outcome<()> {
    let setup = arguments.surroundings.setup(PathBuf::new(), Some(&arguments.apps))?;
    let machine = Machine::here();
    if machine.cores < 2 {
        return Err("two CPUs are needed: one for the server, one for the load".to_owned());
    }
    if arguments.part.contains(&Part::Table) {
        measure_table(arguments, &setup, &machine)?;
    }
    if arguments.part.contains(&Part::Matrix) {
        measure_matrix(arguments, &setup, &machine)?;
    }
    Ok(())
}

/// Publishes after each comparison, so that a run that ends early has results.
fn measure_table(arguments: &Arguments, setup: &Setup, machine: &Machine) -> Outcome<()> {
    let Arguments { rounds, seconds, only, .. } = arguments;
    let all = comparisons();
    check_chosen(only, all.iter().map(|(id, _)| id.as_str()))?;
    let chosen = if only.is_empty() { String::new() } else { format!(" --only {}", only.join(",")) };
    let circumstances = Circumstances {
        command: format!(
            "make bench-transactions BENCH=\"--part table --rounds {rounds} --seconds {seconds}{chosen}\""
        ),
        machine: machine.clone(),
        rounds: (*rounds).max(1),
        seconds: *seconds,
        rivals: rivals(),
        load_before: load_average(),
    };
    let rounds = Rounds {
        count: (*rounds).max(1),
        duration: Duration::from_secs_f64(seconds.clamp(0.2, 3600.0)),
        warm_up: Duration::from_secs(1).min(Duration::from_secs_f64(seconds.clamp(0.2, 3600.0))),
    };
    let suite = Suite::new("comparisons", &circumstances, "fsync; in `guarantees-*`, os and none");
    let surroundings = &arguments.surroundings;
    for (id, measure) in all.iter().filter(|(id, _)| only.is_empty() || only.contains(id)) {
        let result = measure(setup, &rounds);
        write_raw(&surroundings.raw, &format!("transactions-{id}"), &(&circumstances, &result))?;
        TRANSACTIONS.publish(&surroundings.results, suite.clone(), rows::of_contest(&result))?;
    }
    Ok(())
}

fn measure_matrix(arguments: &Arguments, setup: &Setup, machine: &Machine) -> Outcome<()> {
    let seconds = arguments.matrix_seconds.clamp(0.2, 3600.0);
    let times = Times {
        duration: Duration::from_secs_f64(seconds),
        warm_up: Duration::from_secs_f64((seconds / 4.0).clamp(0.1, 2.0)),
    };
    let circumstances = Circumstances {
        command: format!("make bench-transactions BENCH=\"--part matrix --matrix-seconds {seconds}\""),
        machine: machine.clone(),
        rounds: 0,
        seconds,
        rivals: Vec::new(),
        load_before: load_average(),
    };
    let suite = Suite::new("matrix", &circumstances, "as the side says");
    for app in APPS {
        let cells: Vec<_> = CONFIGURATIONS.iter().map(|one| matrix::measure(app, one, setup, times)).collect();
        let name = format!("transactions-matrix-{}", Workload::new(app, false).folder());
        write_raw(&arguments.surroundings.raw, &name, &(&circumstances, &cells))?;
        let rows = cells.iter().flat_map(matrix::rows).collect();
        TRANSACTIONS.publish(&arguments.surroundings.results, suite.clone(), rows)?;
    }
    Ok(())
}

fn rivals() -> Vec<String> {
    vec![
        "Restate 1.7 with its TypeScript SDK 1.17 on Node.js 24".to_owned(),
        "Express 5 with pg 8 on Node.js 24".to_owned(),
        output("sh", &["-c", "/usr/lib/postgresql/*/bin/postgres --version"]),
    ]
}
