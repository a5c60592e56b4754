//! Arguments of every program that starts servers and loads them.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;

use crate::Outcome;
use crate::server::Setup;

/// Paths, and the CPUs of servers and load generator.
#[derive(Args, Clone, Debug)]
pub struct Surroundings {
    /// The server's binary.
    #[arg(long, default_value = "target/release/millrace")]
    millrace: PathBuf,
    #[arg(long, default_value = "examples")]
    examples: PathBuf,
    /// The folder of the rivals.
    #[arg(long, default_value = "bench/rivals")]
    pub rivals_folder: PathBuf,
    /// Where servers keep their data, on the disk to measure.
    #[arg(long, default_value = "target")]
    data: PathBuf,
    /// Where medians, pages and plots go. Results of cells that are not measured stay as they are.
    #[arg(long, default_value = "docs/benchmarks")]
    pub results: PathBuf,
    /// Where raw results go, as JSON.
    #[arg(long, default_value = "target/bench")]
    pub raw: PathBuf,
    /// The server's CPUs, as taskset takes them.
    #[arg(long, default_value = "0")]
    server_cpus: String,
    /// The load generator's CPUs.
    #[arg(long, value_delimiter = ',', default_value = "1")]
    load_cpus: Vec<usize>,
}

impl Surroundings {
    /// The same with absolute paths, for servers with other working folders. `limit` is the bare responder, `apps` the
    /// folder of apps that are not examples, if the program needs them.
    ///
    /// # Errors
    /// A path that cannot be made absolute.
    pub fn setup(&self, limit: PathBuf, apps: Option<&Path>) -> Outcome<Setup> {
        let absolute = |path: &Path| std::path::absolute(path).map_err(|error| format!("{}: {error}", path.display()));
        Ok(Setup {
            millrace: absolute(&self.millrace)?,
            limit,
            examples: absolute(&self.examples)?,
            apps: apps.map(absolute).transpose()?.unwrap_or_default(),
            rivals: absolute(&self.rivals_folder)?,
            data: absolute(&self.data)?,
            server_cpus: self.server_cpus.clone(),
            load_cpus: self.load_cpus.clone(),
        })
    }
}

/// Whether all comparisons that were chosen are there.
///
/// # Errors
/// One that is not, and the ids of those that are.
pub fn check_chosen<'a>(chosen: &[String], ids: impl Iterator<Item = &'a str>) -> Outcome<()> {
    let ids: Vec<&str> = ids.collect();
    match chosen.iter().find(|chosen| !ids.contains(&chosen.as_str())) {
        Some(unknown) => Err(format!("there is no comparison {unknown:?}; there are {}", ids.join(", "))),
        None => Ok(()),
    }
}

/// The exit code. An error goes to standard error.
#[must_use]
pub fn exit_code(outcome: &Outcome<()>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}
