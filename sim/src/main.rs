//! `millrace-sim`: runs the simulator over many seeds, or replays one with a trace.

use std::process::ExitCode;

use clap::Parser;
use millrace_io::{Clock, RealClock};
use millrace_sim::bugs::PlantedBug;
use millrace_sim::runner;
use millrace_sim::world::Plan;

/// Runs a simulated node under faults, one run a seed, and checks that it keeps its promises.
#[derive(Parser)]
#[command(about, long_about = None)]
struct Arguments {
    /// How many seeds to run.
    #[arg(long, default_value_t = 1_000)]
    seeds: u64,
    /// The first seed; with one seed to run, its trace is printed whatever it finds.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Steps of each run.
    #[arg(long, default_value_t = 220)]
    steps: usize,
    /// Plants a bug, by name; `list` prints the names.
    #[arg(long)]
    planted_bug: Option<String>,
    /// Has handlers run in workers.
    #[arg(long)]
    workers: bool,
    /// Judges only what clients saw, and does not look at the state.
    #[arg(long)]
    black_box: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let bug = match arguments.planted_bug.as_deref() {
        None => None,
        Some(name) => match PlantedBug::parse(name) {
            Some(bug) => Some(bug),
            None => {
                for bug in PlantedBug::ALL {
                    println!("{}", bug.name());
                }
                return if name == "list" { ExitCode::SUCCESS } else { ExitCode::FAILURE };
            }
        },
    };
    let plan = |seed| Plan {
        steps: arguments.steps,
        bug,
        has_workers: arguments.workers,
        is_black_box: arguments.black_box,
        ..Plan::new(seed)
    };
    let clock = RealClock;
    let begin_ns = clock.monotonic_ns();
    let mut totals = runner::Totals::default();
    let found = runner::run(arguments.seed, arguments.seeds, &plan, &mut totals);
    let elapsed_ms = ((clock.monotonic_ns() - begin_ns) / 1_000_000).max(1);
    println!("{totals}; {} seeds a minute", totals.seeds * 60_000 / elapsed_ms);
    println!("{}", totals.happened);
    println!("seeds with each: {}", totals.runs_with);
    let Some(failing) = found else {
        if arguments.seeds == 1 {
            println!("{}", runner::trace(plan(arguments.seed)));
        }
        return ExitCode::SUCCESS;
    };
    println!("seed {} fails: {}", failing.seed, failing.what);
    println!("{}", runner::trace(plan(failing.seed)));
    println!("seed {} fails: {}", failing.seed, failing.what);
    println!("replay with --seeds 1 --seed {} --steps {}", failing.seed, arguments.steps);
    ExitCode::FAILURE
}
