//! Measures functions beside their rivals and publishes the results, lost comparisons included.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use millrace_bench::Outcome;
use millrace_bench::arguments::{Surroundings, exit_code};
use millrace_bench::cells::{Cell, CellResult, Rounds, function_cells, rival_cells};
use millrace_bench::extra::{ExtraResult, Size, extras};
use millrace_bench::load::load_cells;
use millrace_bench::machine::{Machine, load_average, output};
use millrace_bench::pages::{FUNCTIONS, write_raw};
use millrace_bench::rows::{of_cell, of_extra};
use millrace_bench::server::store_program;
use millrace_bench::summary::{Circumstances, Row, Suite, Summary};

#[derive(Parser)]
#[command(about = "Measure functions beside their rivals, in alternation, and publish the outcome")]
struct Arguments {
    #[command(flatten)]
    surroundings: Surroundings,
    /// The bare responder's binary; beside this one by default.
    #[arg(long)]
    limit: Option<PathBuf>,
    /// The folder of apps that exist for measuring only.
    #[arg(long, default_value = "bench/apps")]
    apps: PathBuf,
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Seconds measured per side and round.
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// Entities for the measurements of start-up and memory.
    #[arg(long, default_value_t = 1_000_000)]
    entities: usize,
    /// Only the comparisons with these ids.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Only the rivals, without Millrace; publishes nothing.
    #[arg(long)]
    rivals: bool,
}

fn main() -> ExitCode {
    exit_code(&measure(&Arguments::parse()))
}

fn measure(arguments: &Arguments) -> Outcome<()> {
    let beside = std::env::current_exe().map_err(|error| error.to_string())?.with_file_name("limit");
    let setup = arguments.surroundings.setup(arguments.limit.clone().unwrap_or(beside), Some(&arguments.apps))?;
    let (machine, load_before) = (Machine::here(), load_average());
    if machine.cores < 2 {
        return Err("two CPUs are needed: one for the server, one for the load".to_owned());
    }
    let rounds = Rounds {
        count: arguments.rounds.max(1),
        duration: Duration::from_secs(arguments.seconds.max(1)),
        warm_up: Duration::from_secs(1),
    };
    let is_wanted = |id: &str| arguments.only.is_empty() || arguments.only.iter().any(|only| only == id);
    let cells = if arguments.rivals { rival_cells() } else { function_cells() };
    let run = |cell: &Cell| cell.run(&setup, &rounds);
    let cells: Vec<CellResult> = cells.iter().filter(|cell| is_wanted(cell.id)).map(run).collect();
    let load_cells = load_cells();
    let load_cells = load_cells.iter().filter(|cell| !arguments.rivals && is_wanted(cell.id));
    let cells: Vec<CellResult> = cells.into_iter().chain(load_cells.map(|cell| cell.run(&setup, &rounds))).collect();
    let size = Size { entities: arguments.entities, rounds };
    let extras = extras();
    let extras = extras.iter().filter(|extra| !arguments.rivals && is_wanted(extra.id));
    let extras: Vec<ExtraResult> = extras.map(|extra| extra.run(&setup, &size)).collect();
    let rows: Vec<Row> = cells.iter().flat_map(of_cell).chain(extras.iter().map(of_extra)).collect();
    if arguments.rivals {
        print!("{}", Summary { suites: Vec::new(), rows }.csv()?);
        return Ok(());
    }
    let circumstances = Circumstances {
        command: command(arguments),
        machine,
        rounds: rounds.count,
        seconds: rounds.duration.as_secs_f64(),
        rivals: rivals(),
        load_before,
    };
    let Surroundings { results, raw, .. } = &arguments.surroundings;
    write_raw(raw, "functions", &(&circumstances, &cells, &extras))?;
    FUNCTIONS.publish(results, Suite::new("functions", &circumstances, "fsync, unless the side says otherwise"), rows)
}

/// The command to repeat the run, without the paths of this machine.
fn command(arguments: &Arguments) -> String {
    let Arguments { rounds, seconds, entities, .. } = arguments;
    let only = if arguments.only.is_empty() { String::new() } else { format!(" --only {}", arguments.only.join(",")) };
    format!("make bench BENCH=\"--rounds {rounds} --seconds {seconds} --entities {entities}{only}\"")
}

fn rivals() -> Vec<String> {
    let node = format!("Node.js {}", output("node", &["--version"]));
    // "Redis server v=7.0.15 sha=… malloc=…": the first three words are enough.
    let store = output(store_program(), &["--version"]);
    let all = [store.split(' ').take(3).collect::<Vec<_>>().join(" "), node, "Express 5".to_owned()];
    // What is not installed was not beside it.
    all.into_iter().filter(|rival| !rival.is_empty()).collect()
}
