//! `millrace bench s3`: the command line and its output.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::plan::{Cell, ONE_PUT_BYTES, Operation, Settings, Target, parse_size, size_text};
use super::run::{Event, run};
use crate::args::{finish, parse_duration, say, write_file};
use crate::plan::{BenchError, resolve};
use millrace_signing::Credentials;

/// The text below the flags in `--help`.
const AFTER_HELP: &str = "\
Every combination of --operations, --sizes and --clients is one measurement. Each client has a
connection of its own and sends its next request after the last reply. Every byte that is read
is compared with what was written. The bucket's objects are deleted at the end.

The exit code is 0 if all replies were right, 1 if some were not, 2 if the run could not start.

  millrace bench s3 --url http://127.0.0.1:9000 --preset quick
  millrace bench s3 --url http://127.0.0.1:9000 --sizes 1KB,1MB --clients 1,20 --operations get,put
  millrace bench s3 --url http://127.0.0.1:9000 --preset diary --data 50GB --csv diary.csv";

/// Load an S3 server and check every reply.
#[derive(Args, Clone, Debug)]
#[command(after_help = AFTER_HELP)]
pub struct S3Args {
    /// Where the server is: http://host:port.
    #[arg(long, default_value = "http://127.0.0.1:9000")]
    pub url: String,

    /// The access key.
    #[arg(long, env = "AWS_ACCESS_KEY_ID", value_name = "KEY")]
    pub access_key: String,

    /// The secret key; give it in the environment, where other users do not see it.
    #[arg(long, env = "AWS_SECRET_ACCESS_KEY", value_name = "KEY", hide_env_values = true)]
    pub secret_key: String,

    /// The server's region.
    #[arg(long, env = "AWS_REGION", default_value = "us-east-1")]
    pub region: String,

    /// The bucket; it is made if it is missing.
    #[arg(long, default_value = "millrace-bench")]
    pub bucket: String,

    /// Sizes, clients and operations that belong together; each can be given apart, too.
    #[arg(long, value_enum, default_value = "quick")]
    pub preset: Preset,

    /// What to do.
    #[arg(long, value_enum, value_delimiter = ',')]
    pub operations: Vec<Operation>,

    /// Sizes of objects: 1KB,256KB,16MB.
    #[arg(long, value_delimiter = ',', value_parser = parse_size)]
    pub sizes: Vec<u64>,

    /// Numbers of clients.
    #[arg(long, value_delimiter = ',')]
    pub clients: Vec<usize>,

    /// Clients that write objects of --writer-size meanwhile.
    #[arg(long, default_value_t = 0)]
    pub writers: usize,

    /// What those clients write.
    #[arg(long, default_value = "256MB", value_parser = parse_size)]
    pub writer_size: u64,

    /// How long to measure each.
    #[arg(short, long, default_value = "10s", value_parser = parse_duration)]
    pub duration: Duration,

    /// How long to run before measuring.
    #[arg(long, default_value = "1s", value_parser = parse_duration)]
    pub warm_up: Duration,

    /// Objects of each size, at most.
    #[arg(long, default_value_t = 10_000)]
    pub objects: u64,

    /// Bytes of one size's objects on the server, at most. The preset diary reads five objects that share it.
    #[arg(long, default_value = "1GB", value_parser = parse_size)]
    pub data: u64,

    /// Objects longer than this are written in parts of this size.
    #[arg(long, default_value = "5GB", value_parser = parse_size)]
    pub part_size: u64,

    /// How often to measure each.
    #[arg(long, default_value_t = 1)]
    pub rounds: usize,

    /// Sign requests without the hash of their body.
    #[arg(long)]
    pub unsigned_payload: bool,

    /// After this long without progress a request has failed.
    #[arg(long, default_value = "60s", value_parser = parse_duration)]
    pub timeout: Duration,

    /// Use the same bodies and keys as an earlier run, whose report names its seed.
    #[arg(long)]
    pub seed: Option<u64>,

    /// Leave objects and bucket.
    #[arg(long)]
    pub keep: bool,

    /// Write the results to a file, as JSON.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,

    /// Write the results to a file, as CSV.
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,

    /// Write plots to this folder, as SVG.
    #[arg(long, value_name = "FOLDER")]
    pub plots: Option<PathBuf>,

    /// Say nothing while running.
    #[arg(short, long)]
    pub quiet: bool,
}

/// Sizes, clients and operations that belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Preset {
    /// Small and middle objects, some clients, every operation.
    Quick,
    /// Reads of 1 KB to 256 MB with 1 to 20 clients, and of five objects that have --data together.
    Diary,
}

impl S3Args {
    fn cells(&self) -> Vec<Cell> {
        use Operation::{Delete, Get, List, Mixed, Put};
        let (operations, sizes, clients): (&[Operation], &[u64], &[usize]) = match self.preset {
            Preset::Quick => (&[Put, Get, List, Mixed, Delete], &[1 << 10, 1 << 20], &[1, 20]),
            Preset::Diary => {
                (&[Get], &[1 << 10, 16 << 10, 256 << 10, 1 << 20, 16 << 20, 256 << 20], &[1, 5, 10, 15, 20])
            }
        };
        fn given<'a, T>(own: &'a [T], preset: &'a [T]) -> &'a [T] {
            if own.is_empty() { preset } else { own }
        }
        let mut cells = Vec::new();
        for operation in given(&self.operations, operations) {
            for size in given(&self.sizes, sizes) {
                for clients in given(&self.clients, clients) {
                    let writers = (self.writers > 0).then_some((self.writers, self.writer_size));
                    cells.push(Cell { writers, ..Cell::new(*operation, *size, *clients) });
                }
            }
        }
        if self.preset == Preset::Diary && self.sizes.is_empty() {
            cells.push(Cell::new(Get, self.data / 5, 1));
        }
        cells
    }

    fn settings(&self) -> Result<Settings, BenchError> {
        let refuse = |message: &str| Err(BenchError::Arguments(message.to_owned()));
        let is_letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.');
        if !(3..=63).contains(&self.bucket.len()) || !self.bucket.bytes().all(is_letter) {
            return refuse("a bucket's name has 3 to 63 lower-case letters, digits, dots and hyphens");
        }
        if self.clients.iter().chain([&self.writers]).any(|count| *count > 10_000) || self.clients.contains(&0) {
            return refuse("clients must be from 1 to 10000");
        }
        if self.duration.is_zero() || self.timeout.is_zero() || self.objects == 0 || self.rounds == 0 {
            return refuse("duration, timeout, objects and rounds must be above 0");
        }
        if !(5 << 20..=ONE_PUT_BYTES).contains(&self.part_size) {
            return refuse("parts have 5 MB to 5 GB");
        }
        let defaults = Settings::default();
        Ok(Settings {
            bucket: self.bucket.clone(),
            duration: self.duration,
            warm_up: self.warm_up,
            objects: self.objects,
            data_bytes: self.data,
            timeout: self.timeout,
            seed: self.seed.unwrap_or(defaults.seed),
            signs_bodies: !self.unsigned_payload,
            part_bytes: self.part_size,
            rounds: self.rounds,
            keeps_objects: self.keep,
        })
    }

    fn target(&self) -> Result<Target, BenchError> {
        let refuse = || BenchError::Arguments(format!("{:?} must look like http://host:port", self.url));
        let host = self.url.strip_prefix("http://").ok_or_else(refuse)?.trim_end_matches('/');
        let (name, port) = host.rsplit_once(':').unwrap_or((host, "80"));
        let is_written_well = host.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'/');
        let port = port.parse().ok().filter(|_| is_written_well && !name.is_empty()).ok_or_else(refuse)?;
        let credentials = Credentials {
            access_key: self.access_key.clone(),
            secret_key: self.secret_key.clone(),
            region: self.region.clone(),
        };
        if [&self.access_key, &self.region].iter().any(|text| !text.bytes().all(|byte| byte.is_ascii_graphic())) {
            return Err(BenchError::Arguments("an access key or region has printable ASCII only".to_owned()));
        }
        let address = resolve(name.trim_matches(['[', ']']), port)?;
        Ok(Target { name: host.to_owned(), address, host: host.to_owned(), credentials })
    }
}

/// Runs `millrace bench s3`. Blocks; uses threads of its own.
#[must_use]
pub fn run_s3(args: &S3Args) -> ExitCode {
    finish(run_and_print(args))
}

fn run_and_print(args: &S3Args) -> Result<bool, BenchError> {
    let (settings, target) = (args.settings()?, args.target()?);
    let report = run(&[target], &args.cells(), &settings, &mut |event| tell(event, args.quiet))?;
    if let Some(path) = &args.json {
        let json = serde_json::to_string_pretty(&report).map_err(|error| BenchError::System(error.to_string()))?;
        write_file(path, &json)?;
    }
    if let Some(path) = &args.csv {
        write_file(path, &report.csv())?;
    }
    if let Some(folder) = &args.plots {
        for (name, svg) in report.plots() {
            write_file(&folder.join(name), &svg)?;
        }
    }
    Ok(report.is_clean())
}

/// Prints an event: results to the output, the rest to the error output.
pub fn tell(event: &Event<'_>, is_quiet: bool) {
    let progress = match event {
        Event::Ended(row) => return say(&mut std::io::stdout(), &format!("{}\n", row.line())),
        _ if is_quiet => return,
        Event::Filling(target, size, objects) => {
            format!("{}: writing {objects} objects of {}", target.name, size_text(*size))
        }
        Event::Emptying(target) => format!("{}: deleting the objects", target.name),
        Event::Second(target, cell, right, bytes, errors) => format!(
            "{:<12} {:<14} {:>7} {:>4} clients {right:>8}/s {:>9.2} MB/s  errors {errors}",
            target.name,
            cell.operation.name(),
            size_text(cell.size),
            cell.clients,
            *bytes as f64 / 1e6
        ),
    };
    say(&mut std::io::stderr(), &format!("{progress}\n"));
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        s3: S3Args,
    }

    fn args(line: &[&str]) -> S3Args {
        let keys = ["bench", "--access-key", "k", "--secret-key", "s"];
        Command::try_parse_from(keys.iter().chain(line)).expect("arguments").s3
    }

    #[test]
    fn presets_make_the_cells_and_can_be_narrowed() {
        assert_eq!(args(&[]).cells().len(), 5 * 2 * 2);
        let diary = args(&["--preset", "diary", "--data", "50GB"]).cells();
        assert_eq!(diary.len(), 6 * 5 + 1);
        assert_eq!(diary.last(), Some(&Cell::new(Operation::Get, 10 << 30, 1)));
        let line = ["--sizes", "0,16KB", "--clients", "3", "--operations", "put,list-delimiter", "--writers", "2"];
        let own = args(&line).cells();
        assert_eq!(own.len(), 4);
        assert_eq!(own[0], Cell { writers: Some((2, 256 << 20)), ..Cell::new(Operation::Put, 0, 3) });
    }

    #[test]
    fn what_cannot_run_is_refused() {
        for line in
            [["--bucket", "A/b"], ["--clients", "0"], ["--objects", "0"], ["--part-size", "1MB"], ["--timeout", "0"]]
        {
            assert!(args(&line).settings().is_err(), "{line:?}");
        }
        for url in ["https://127.0.0.1:1", "127.0.0.1:1", "http://", "http://127.0.0.1:x", "http://127.0.0.1:1/path"] {
            assert!(args(&["--url", url]).target().is_err(), "{url}");
        }
        let target = args(&["--url", "http://127.0.0.1:9000/"]).target().expect("a target");
        assert_eq!((target.host.as_str(), target.address.port()), ("127.0.0.1:9000", 9000));
    }
}
