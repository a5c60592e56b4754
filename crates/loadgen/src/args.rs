//! `millrace bench http`: the command line and its output.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;

use super::expectation::Expectation;
use super::plan::{BenchError, Plan, resolve};
use super::report::{Report, duration_text};
use super::request::{HttpRequest, RequestTemplate};
use super::run::{Progress, run};

/// The text below the flags in `--help`.
const AFTER_HELP: &str = "\
URL, headers and body may hold parts that change with each request:
  {{uniform:LOW:HIGH}}     a number from LOW up to, not including, HIGH
  {{zipf:COUNT:EXPONENT}}  a number below COUNT, small ones most often
  {{seq}} {{seq:FIRST}}    the request's number
  {{uuid}}                 a random UUID
  {{pick:a,b,c}}           one of the words
  {{base64:TEXT}}          TEXT, which may hold parts, in base64
  {{NAME=PART}} {{$NAME}}  remember a part; use it again in the same request

Every reply is checked. The exit code is 0 if all were right, 1 if some were not, 2 if the
run could not start.

  millrace bench http http://127.0.0.1:8080/user/login -c 100 \\
    -H 'Authorization: Basic {{base64:alice:secret}}' --expect-body ok
  millrace bench http 'http://127.0.0.1:8080/call/counter/k{{zipf:1000000:0.99}}/add' -b 1 -r 20000";

/// Send HTTP requests and measure the replies.
#[derive(Args, Clone, Debug)]
#[command(after_help = AFTER_HELP)]
pub struct HttpArgs {
    /// Where to send to: http://host:port/path?query.
    pub url: String,

    /// The method; GET, or POST if there is a body.
    #[arg(short, long)]
    pub method: Option<String>,

    /// A header, 'Name: value'; may be given several times.
    #[arg(short = 'H', long = "header", value_name = "HEADER")]
    pub headers: Vec<String>,

    /// The body; JSON unless a Content-Type header says otherwise.
    #[arg(short, long, conflicts_with = "body_file")]
    pub body: Option<String>,

    /// Take the body from a file.
    #[arg(long, value_name = "FILE")]
    pub body_file: Option<PathBuf>,

    /// Amount of load, right replies, files for the results.
    #[command(flatten)]
    pub load: LoadArgs,
}

/// Amount of load, right replies, files for the results.
#[derive(Args, Clone, Debug)]
pub struct LoadArgs {
    /// Connections, over all threads.
    #[arg(short, long, default_value_t = 64)]
    pub connections: usize,

    /// Threads; one is enough for most servers on this machine.
    #[arg(short, long, default_value_t = 1)]
    pub threads: usize,

    /// How long to measure: 10s, 500ms, 2m.
    #[arg(short, long, default_value = "10s", value_parser = parse_duration)]
    pub duration: Duration,

    /// How long to run before measuring.
    #[arg(long, default_value = "1s", value_parser = parse_duration)]
    pub warm_up: Duration,

    /// Open loop: send so many requests a second, whatever the server does, and count latency
    /// from when each should have been sent. Without it, each reply triggers the next request.
    #[arg(short, long, value_name = "PER_SECOND")]
    pub rate: Option<f64>,

    /// Requests under way per connection; not every server takes more than one.
    #[arg(long, default_value_t = 1, value_name = "DEPTH")]
    pub pipeline: usize,

    /// After this long without its reply a request has failed.
    #[arg(long, default_value = "10s", value_parser = parse_duration)]
    pub timeout: Duration,

    /// The right statuses, such as 200,201; without it, 200 to 299.
    #[arg(long, value_delimiter = ',', value_name = "STATUS")]
    pub expect_status: Vec<u16>,

    /// The right body.
    #[arg(long, value_name = "TEXT")]
    pub expect_body: Option<String>,

    /// What the right body holds somewhere.
    #[arg(long, value_name = "TEXT")]
    pub expect_body_contains: Option<String>,

    /// Statuses that are counted apart and are no errors, such as 503.
    #[arg(long, value_delimiter = ',', value_name = "STATUS")]
    pub allow_status: Vec<u16>,

    /// A process of the server, whose CPU time is told per request; may be given several times.
    #[arg(long = "server-pid", value_name = "PID")]
    pub server_pids: Vec<u32>,

    /// Write the results to a file, as JSON.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,

    /// Write a line per second to a file, as CSV.
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,

    /// Write the latency's quantiles to a file, as CSV.
    #[arg(long, value_name = "FILE")]
    pub csv_percentiles: Option<PathBuf>,

    /// Send the same random keys as an earlier run, whose report names its seed.
    #[arg(long)]
    pub seed: Option<u64>,

    /// Bind the threads to these CPUs, in turn.
    #[arg(long, value_delimiter = ',', value_name = "CPU")]
    pub cpus: Vec<usize>,

    /// Say nothing while running.
    #[arg(short, long)]
    pub quiet: bool,
}

impl HttpArgs {
    /// The plan these arguments describe.
    ///
    /// # Errors
    /// Names the argument that cannot be used.
    pub fn plan(&self) -> Result<Plan, BenchError> {
        let from_file = match &self.body_file {
            Some(path) => Some(std::fs::read_to_string(path).map_err(|error| {
                BenchError::Arguments(format!("cannot read the body from {}: {error}", path.display()))
            })?),
            None => None,
        };
        let body = self.body.as_deref().or(from_file.as_deref());
        let method = self.method.as_deref().map(str::to_ascii_uppercase);
        let method = method.unwrap_or_else(|| if body.is_some() { "POST" } else { "GET" }.to_owned());
        let request = HttpRequest { method: &method, url: &self.url, headers: &self.headers, body };
        let (request, host, port) = RequestTemplate::http(&request)?;
        let mut plan = Plan::new(&format!("{method} {}", self.url), resolve(&host, port)?, request);
        self.load.apply(&mut plan)?;
        Ok(plan)
    }
}

impl LoadArgs {
    fn apply(&self, plan: &mut Plan) -> Result<(), BenchError> {
        let statuses = self.expect_status.iter().chain(&self.allow_status);
        if let Some(status) = statuses.clone().find(|status| !(200..=999).contains(*status)) {
            return Err(BenchError::Arguments(format!("{status} is not the status of a final reply")));
        }
        plan.connections = self.connections;
        plan.threads = self.threads;
        plan.duration = self.duration;
        plan.warm_up = self.warm_up;
        plan.rate = self.rate;
        plan.pipeline = self.pipeline;
        plan.timeout = self.timeout;
        plan.cpus.clone_from(&self.cpus);
        plan.server_pids.clone_from(&self.server_pids);
        plan.seed = self.seed.unwrap_or(plan.seed);
        plan.expectation = Expectation {
            statuses: self.expect_status.clone(),
            shed: self.allow_status.clone(),
            body: self.expect_body.as_ref().map(|body| body.clone().into_bytes()),
            body_contains: self.expect_body_contains.as_ref().map(|body| body.clone().into_bytes()),
        };
        Ok(())
    }
}

/// `10s`, `500ms`, `2m`, `1.5s`; a bare number counts seconds.
pub(super) fn parse_duration(text: &str) -> Result<Duration, String> {
    let end = text.find(|char: char| !char.is_ascii_digit() && char != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let number: f64 = number.parse().map_err(|_| "write a number and a unit, such as 10s, 500ms or 2m".to_owned())?;
    let seconds = match unit {
        "ms" => number / 1000.0,
        "" | "s" => number,
        "m" => number * 60.0,
        "h" => number * 3600.0,
        _ => return Err(format!("{unit:?} is not a unit; there are ms, s, m, h")),
    };
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}

/// Runs `millrace bench http`. Blocks; uses threads of its own.
#[must_use]
pub fn run_http(args: &HttpArgs) -> ExitCode {
    finish(args.plan().and_then(|plan| run_and_print(&plan, &args.load)))
}

/// As [`run_http`], with a RESP command (its words may hold template parts) at `host:port`.
#[must_use]
pub fn run_resp(address: &str, words: &[String], load: &LoadArgs) -> ExitCode {
    finish(resp_plan(address, words, load).and_then(|plan| run_and_print(&plan, load)))
}

/// As [`run_http`], with a command of MongoDB's protocol (see [`RequestTemplate::mongo`]) at `host:port`.
#[must_use]
pub fn run_mongo(address: &str, command: &str, load: &LoadArgs) -> ExitCode {
    let plan = RequestTemplate::mongo(command).and_then(|request| plan_at(address, command, request, load));
    finish(plan.and_then(|plan| run_and_print(&plan, load)))
}

fn resp_plan(address: &str, words: &[String], load: &LoadArgs) -> Result<Plan, BenchError> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    plan_at(address, &words.join(" "), RequestTemplate::resp(&words)?, load)
}

fn plan_at(address: &str, name: &str, request: RequestTemplate, load: &LoadArgs) -> Result<Plan, BenchError> {
    let refuse = || BenchError::Arguments(format!("{address:?} must look like host:port"));
    let (host, port) = address.rsplit_once(':').ok_or_else(refuse)?;
    let target = resolve(host, port.parse().map_err(|_| refuse())?)?;
    let mut plan = Plan::new(name, target, request);
    load.apply(&mut plan)?;
    Ok(plan)
}

/// Prints progress. If nobody reads it any more, the files still get the results.
pub(super) fn say(to: &mut dyn std::io::Write, text: &str) {
    let _ = to.write_all(text.as_bytes()).and_then(|()| to.flush());
}

pub(super) fn finish(outcome: Result<bool, BenchError>) -> ExitCode {
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            say(&mut std::io::stderr(), &format!("error: {error}\n"));
            ExitCode::from(2)
        }
    }
}

fn run_and_print(plan: &Plan, load: &LoadArgs) -> Result<bool, BenchError> {
    let report = run(plan, &mut |progress| {
        if !load.quiet {
            say(&mut std::io::stderr(), &format!("{}\n", progress_line(progress)));
        }
    })?;
    say(&mut std::io::stdout(), &report.summary());
    write_files(&report, load)?;
    Ok(report.is_clean())
}

fn progress_line(progress: &Progress) -> String {
    let row = &progress.row;
    let part = if progress.is_warm_up { "warm-up" } else { "measured" };
    format!(
        "{part:<8} {:>4} s  {:>9.0}/s  p99 {:>9}  errors {}  shed {}",
        row.second + 1,
        row.rate,
        duration_text(row.p99_us),
        row.errors,
        row.shed
    )
}

fn write_files(report: &Report, load: &LoadArgs) -> Result<(), BenchError> {
    let write = |path: &Option<PathBuf>, text: &dyn Fn() -> String| match path {
        Some(path) => write_file(path, &text()),
        None => Ok(()),
    };
    let json = || serde_json::to_string_pretty(report).unwrap_or_else(|error| format!("{{\"error\": \"{error}\"}}"));
    write(&load.json, &json)?;
    write(&load.csv, &|| report.seconds_csv())?;
    write(&load.csv_percentiles, &|| report.percentiles_csv())
}

pub(super) fn write_file(path: &Path, text: &str) -> Result<(), BenchError> {
    std::fs::write(path, text).map_err(|error| BenchError::System(format!("cannot write {}: {error}", path.display())))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        http: HttpArgs,
    }

    fn plan(line: &[&str]) -> Result<Plan, BenchError> {
        let words = ["bench"].iter().chain(line);
        Command::try_parse_from(words).map_err(|error| BenchError::Arguments(error.to_string()))?.http.plan()
    }

    #[test]
    fn arguments_become_the_plan() {
        let plan = plan(&[
            "http://127.0.0.1:9/x",
            "-c",
            "7",
            "-t",
            "2",
            "-d",
            "500ms",
            "--warm-up",
            "0",
            "-r",
            "1e3",
            "-b",
            "{}",
            "--expect-status",
            "200,201",
            "--allow-status",
            "503",
            "--expect-body",
            "ok",
            "--seed",
            "5",
            "--cpus",
            "0,1",
        ]);
        let plan = plan.unwrap();
        assert_eq!((plan.connections, plan.threads, plan.rate, plan.seed), (7, 2, Some(1000.0), 5));
        assert_eq!((plan.duration, plan.warm_up), (Duration::from_millis(500), Duration::ZERO));
        assert_eq!(plan.expectation.statuses, [200, 201]);
        assert_eq!(plan.expectation.shed, [503]);
        assert_eq!(plan.expectation.body.as_deref(), Some(b"ok".as_slice()));
        assert!(plan.request.fixed().unwrap().starts_with(b"POST /x HTTP/1.1\r\n"));
        assert!(plan.check().is_ok());
    }

    #[test]
    fn what_cannot_be_run_is_refused() {
        for (line, words) in [
            (vec!["ftp://h/"], "plain http"),
            (vec!["http://127.0.0.1:9/", "-d", "5x"], "not a unit"),
            (vec!["http://127.0.0.1:9/", "-d", "s"], "write a number"),
            (vec!["http://127.0.0.1:9/", "--expect-status", "99"], "not the status"),
            (vec!["http://127.0.0.1:9/", "--body-file", "/no/such"], "cannot read the body"),
        ] {
            let error = plan(&line).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
        for line in [["-c", "0"], ["-t", "65"], ["-r", "0"], ["-d", "1ms"], ["--pipeline", "0"], ["--timeout", "0"]] {
            let plan = plan(&[&["http://127.0.0.1:9/"], line.as_slice()].concat()).unwrap();
            assert!(matches!(plan.check(), Err(BenchError::Arguments(_))), "{line:?}");
        }
    }
}
