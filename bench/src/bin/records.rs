//! Measures typed records beside the bare responder, the durable counter and rivals, by server threads, in memory and
//! alone. It publishes the results, lost comparisons included.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use millrace_bench::Outcome;
use millrace_bench::arguments::{Surroundings, check_chosen, exit_code};
use millrace_bench::cells::Rounds;
use millrace_bench::machine::{Machine, load_average, output};
use millrace_bench::pages::{RECORDS, write_raw};
use millrace_bench::records::contests::contests;
use millrace_bench::records::{memory, micro, scaling};
use millrace_bench::rows;
use millrace_bench::server::Setup;
use millrace_bench::summary::{Circumstances, Row, Suite};
use serde::Serialize;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    Table,
    Scaling,
    Memory,
    Micro,
}

#[derive(Parser)]
#[command(
    about = "Measure typed records beside rivals, by threads, in memory and by themselves, and publish the outcome"
)]
struct Arguments {
    #[command(flatten)]
    surroundings: Surroundings,
    /// The bare responder's binary; beside this one by default.
    #[arg(long)]
    limit: Option<PathBuf>,
    /// The folder of the programs that measure paths and codecs; `examples` beside this one by default.
    #[arg(long)]
    programs: Option<PathBuf>,
    /// What to measure.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "table,scaling,memory,micro")]
    part: Vec<Part>,
    /// Only the comparisons with these ids.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Seconds measured per side and round.
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Records for the measurement of memory.
    #[arg(long, default_value_t = 3_000_000)]
    records: u64,
}

fn main() -> ExitCode {
    exit_code(&measure(&Arguments::parse()))
}

fn measure(arguments: &Arguments) -> Outcome<()> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let limit = arguments.limit.clone().unwrap_or_else(|| program.with_file_name("limit"));
    let setup = arguments.surroundings.setup(limit, None)?;
    let machine = Machine::here();
    if machine.cores < 2 {
        return Err("two CPUs are needed: one for the server, one for the load".to_owned());
    }
    let seconds = arguments.seconds.clamp(0.2, 3600.0);
    let rounds = Rounds {
        count: arguments.rounds.max(1),
        duration: Duration::from_secs_f64(seconds),
        warm_up: Duration::from_secs_f64(seconds.min(1.0)),
    };
    let has = |part| arguments.part.contains(&part);
    if has(Part::Table) {
        measure_table(arguments, &setup, &machine, &rounds)?;
    }
    if has(Part::Micro) {
        let programs = arguments.programs.clone().unwrap_or_else(|| program.with_file_name("examples"));
        let circumstances = circumstances(arguments, "micro", &machine, &rounds);
        let micro = micro::measure(&setup, &programs, rounds.count);
        publish(arguments, ("micro", "none: no server runs"), &circumstances, &micro, micro.rows())?;
    }
    if has(Part::Scaling) {
        let circumstances = circumstances(arguments, "scaling", &machine, &rounds);
        let scaling = scaling::measure(&setup, &rounds, machine.cores);
        publish(arguments, ("scaling", "as the side says"), &circumstances, &scaling, scaling.rows())?;
    }
    if has(Part::Memory) {
        let circumstances = circumstances(arguments, "memory", &machine, &rounds);
        let memory = memory::measure(&setup, arguments.records.max(1));
        publish(arguments, ("memory", "fsync"), &circumstances, &memory, memory.rows())?;
    }
    Ok(())
}

fn publish(
    arguments: &Arguments,
    (part, durability): (&str, &str),
    circumstances: &Circumstances,
    raw: &impl Serialize,
    rows: Vec<Row>,
) -> Outcome<()> {
    let Surroundings { results, raw: folder, .. } = &arguments.surroundings;
    write_raw(folder, &format!("records-{part}"), &(circumstances, raw))?;
    RECORDS.publish(results, Suite::new(part, circumstances, durability), rows)
}

fn circumstances(arguments: &Arguments, part: &str, machine: &Machine, rounds: &Rounds) -> Circumstances {
    let (count, seconds) = (rounds.count, rounds.duration.as_secs_f64());
    let mut command = format!("make bench-records BENCH=\"--part {part}");
    match part {
        "memory" => command.push_str(&format!(" --records {}", arguments.records)),
        "micro" => command.push_str(&format!(" --rounds {count}")),
        _ => command.push_str(&format!(" --rounds {count} --seconds {seconds}")),
    }
    if part == "table" && !arguments.only.is_empty() {
        command.push_str(&format!(" --only {}", arguments.only.join(",")));
    }
    command.push('"');
    Circumstances {
        command,
        machine: machine.clone(),
        rounds: if part == "memory" { 1 } else { count },
        seconds: if matches!(part, "memory" | "micro") { 0.0 } else { seconds },
        rivals: if part == "table" { rivals(&arguments.surroundings.rivals_folder) } else { Vec::new() },
        load_before: load_average(),
    }
}

/// Publishes after each comparison, so that a run that ends early has results.
fn measure_table(arguments: &Arguments, setup: &Setup, machine: &Machine, rounds: &Rounds) -> Outcome<()> {
    let only = &arguments.only;
    let all = contests();
    check_chosen(only, all.iter().map(|contest| contest.id.as_str()))?;
    let circumstances = circumstances(arguments, "table", machine, rounds);
    let suite = Suite::new("comparisons", &circumstances, "fsync");
    let Surroundings { results, raw, .. } = &arguments.surroundings;
    for contest in all.iter().filter(|contest| only.is_empty() || only.contains(&contest.id)) {
        let result = contest.run(setup, rounds);
        write_raw(raw, &format!("records-{}", contest.id), &(&circumstances, &result))?;
        RECORDS.publish(results, suite.clone(), rows::of_contest(&result))?;
    }
    Ok(())
}

fn rivals(folder: &Path) -> Vec<String> {
    let postgres = output("sh", &["-c", "/usr/lib/postgresql/*/bin/postgres --version"]);
    let program = folder.join("mongodb-records/packages/fiftyone/db/bin/mongod");
    // "db version v6.0.5"
    let mongo = output(&program.to_string_lossy(), &["--version"]).replace("db version v", "MongoDB ");
    // "github.com/prest/prest v1.5.5" in the file that pins it
    let modules = std::fs::read_to_string(folder.join("prest-records/go.mod")).unwrap_or_default();
    let prest = modules.lines().find_map(|line| line.strip_prefix("require github.com/prest/prest v"));
    let prest = prest.filter(|_| folder.join("prest-records/prestd").exists());
    let mut all: Vec<String> = prest.map(|version| format!("{postgres} behind pREST {version}")).into_iter().collect();
    all.push(format!("{postgres} behind hyper 1 with tokio-postgres 0.7"));
    all.extend((!mongo.is_empty()).then_some(mongo));
    all
}
