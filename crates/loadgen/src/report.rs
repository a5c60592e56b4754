//! The report of a run: a document for programs (JSON), a table (CSV) and a summary for a person.

use std::fmt::Write as _;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use super::measure::Slice;
use super::plan::Plan;
use super::process::ProcessUse;

/// The quantiles of the percentile table.
const QUANTILES: [f64; 12] = [0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999, 0.9999, 0.99999, 1.0];

/// Failed requests by the kind of failure.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorCounts {
    /// Connections that could not be made.
    pub connect: u64,
    /// Requests whose connection was reset.
    pub reset: u64,
    /// Requests whose connection the server closed without answering them.
    pub closed: u64,
    /// Requests without a reply in time.
    pub timeout: u64,
    /// Replies that the protocol does not allow.
    pub malformed: u64,
    /// Replies with a wrong status.
    pub status: u64,
    /// Replies with a wrong body.
    pub body: u64,
}

impl ErrorCounts {
    /// All kinds together.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.kinds().iter().map(|(_, count)| count).sum()
    }

    fn kinds(&self) -> [(&'static str, u64); 7] {
        [
            ("connect", self.connect),
            ("reset", self.reset),
            ("closed", self.closed),
            ("timeout", self.timeout),
            ("malformed", self.malformed),
            ("status", self.status),
            ("body", self.body),
        ]
    }

    pub(super) fn add(&mut self, other: &ErrorCounts) {
        self.connect += other.connect;
        self.reset += other.reset;
        self.closed += other.closed;
        self.timeout += other.timeout;
        self.malformed += other.malformed;
        self.status += other.status;
        self.body += other.body;
    }
}

/// Latencies of right replies, in microseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LatencySummary {
    /// The fastest.
    pub min_us: f64,
    /// The mean; says little beside the quantiles.
    pub mean_us: f64,
    /// Half were at most this slow.
    pub p50_us: f64,
    /// Nine of ten were at most this slow.
    pub p90_us: f64,
    /// 99 of 100 were at most this slow.
    pub p99_us: f64,
    /// 999 of 1000 were at most this slow.
    pub p99_9_us: f64,
    /// The slowest.
    pub max_us: f64,
    /// Quantile and latency, for a curve.
    pub curve: Vec<(f64, f64)>,
}

impl LatencySummary {
    fn new(histogram: &Histogram<u64>) -> Self {
        let at = |quantile| micros(histogram.value_at_quantile(quantile));
        if histogram.is_empty() {
            return Self::default();
        }
        Self {
            min_us: micros(histogram.min()),
            mean_us: round(histogram.mean() / 1000.0),
            p50_us: at(0.5),
            p90_us: at(0.9),
            p99_us: at(0.99),
            p99_9_us: at(0.999),
            max_us: at(1.0),
            curve: QUANTILES.iter().map(|quantile| (*quantile, at(*quantile))).collect(),
        }
    }
}

fn micros(nanoseconds: u64) -> f64 {
    round(nanoseconds as f64 / 1000.0)
}

/// To three digits behind the point: more would be noise.
fn round(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

/// One second of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SecondRow {
    /// Counted from the start of its part of the run.
    pub second: u32,
    /// Right replies.
    pub requests: u64,
    /// Right replies a second.
    pub rate: f64,
    /// Replies whose status is allowed as "not now".
    pub shed: u64,
    /// Failed requests.
    pub errors: u64,
    /// Half were at most this slow.
    pub p50_us: f64,
    /// 99 of 100 were at most this slow.
    pub p99_us: f64,
    /// The slowest.
    pub max_us: f64,
}

impl SecondRow {
    pub(super) fn new(second: u32, length: Duration, slice: &Slice) -> Self {
        let latency = LatencySummary::new(&slice.latency);
        Self {
            second,
            requests: slice.right,
            rate: round(slice.right as f64 / length.as_secs_f64().max(1e-3)),
            shed: slice.shed,
            errors: slice.errors.total(),
            p50_us: latency.p50_us,
            p99_us: latency.p99_us,
            max_us: latency.max_us,
        }
    }
}

/// The use of a process over the measured part of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ServerUse {
    /// CPU time over all answers, shed ones included.
    pub cpu_us_per_request: f64,
    /// CPU time in user code.
    pub user_us: u64,
    /// CPU time in the kernel.
    pub system_us: u64,
    /// Times a thread gave up its CPU to wait.
    pub voluntary_switches: u64,
    /// Times the kernel took a CPU from a thread.
    pub involuntary_switches: u64,
    /// Both kinds over all answers.
    pub switches_per_request: f64,
    /// Memory held at the end.
    pub resident_bytes: u64,
}

impl ServerUse {
    fn new(before: &ProcessUse, after: &ProcessUse, answered: u64) -> Self {
        let user_us = after.user_us.saturating_sub(before.user_us);
        let system_us = after.system_us.saturating_sub(before.system_us);
        let voluntary_switches = after.voluntary_switches.saturating_sub(before.voluntary_switches);
        let involuntary_switches = after.involuntary_switches.saturating_sub(before.involuntary_switches);
        let per_request = |count: u64| round(count as f64 / answered.max(1) as f64);
        Self {
            cpu_us_per_request: per_request(user_us + system_us),
            user_us,
            system_us,
            voluntary_switches,
            involuntary_switches,
            switches_per_request: per_request(voluntary_switches + involuntary_switches),
            resident_bytes: after.resident_bytes,
        }
    }
}

/// The outcome of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The target's name.
    pub target: String,
    /// `closed` or `open`.
    pub r#loop: String,
    /// Open loop: requests a second that were due.
    pub rate_wanted: Option<f64>,
    /// Connections, over all threads.
    pub connections: usize,
    /// Threads of the load generator.
    pub threads: usize,
    /// Requests in flight on each connection.
    pub pipeline: usize,
    /// The time before the measurement.
    pub warm_up_s: f64,
    /// The measured time.
    pub duration_s: f64,
    /// Sends the same random keys again.
    pub seed: u64,
    /// Right replies.
    pub requests: u64,
    /// Right replies a second.
    pub rate: f64,
    /// Replies whose status is allowed as "not now".
    pub shed: u64,
    /// Failed requests.
    pub errors: ErrorCounts,
    /// The first thing that went wrong.
    pub first_error: Option<String>,
    /// Connections made again after a clean close.
    pub reconnects: u64,
    /// Replies by status.
    pub statuses: Vec<(u16, u64)>,
    /// Bytes received, heads included.
    pub bytes_read: u64,
    /// Bytes sent, heads included.
    pub bytes_written: u64,
    /// Latencies of right replies.
    pub latency: LatencySummary,
    /// Open loop: replies after the end. These, `unanswered` and `unsent` are part of the latencies. The last two count
    /// with the time that they had waited at the end of the run.
    pub late: u64,
    /// Open loop: requests without a reply when the run ended.
    pub unanswered: u64,
    /// Open loop: requests that found no free connection.
    pub unsent: u64,
    /// The use of the server's processes, if the plan names them.
    pub server: Option<ServerUse>,
    /// The use of this process.
    pub generator: Option<ServerUse>,
    /// The measured part, second by second.
    pub seconds: Vec<SecondRow>,
}

impl Report {
    pub(super) fn new(
        plan: &Plan,
        seconds: Vec<SecondRow>,
        total: &Slice,
        used: Option<((ProcessUse, ProcessUse), (ProcessUse, ProcessUse))>,
    ) -> Self {
        let answered = total.answered();
        let mut statuses = total.statuses.clone();
        statuses.sort_unstable();
        let server = used.as_ref().filter(|_| !plan.server_pids.is_empty());
        Self {
            target: plan.name.clone(),
            r#loop: if plan.rate.is_some() { "open" } else { "closed" }.to_owned(),
            rate_wanted: plan.rate,
            connections: plan.connections,
            threads: plan.threads,
            pipeline: plan.pipeline,
            warm_up_s: plan.warm_up.as_secs_f64(),
            duration_s: plan.duration.as_secs_f64(),
            seed: plan.seed,
            requests: total.right,
            rate: round(total.right as f64 / plan.duration.as_secs_f64()),
            shed: total.shed,
            errors: total.errors.clone(),
            first_error: total.first_error.clone(),
            reconnects: total.reconnects,
            statuses,
            bytes_read: total.bytes_read,
            bytes_written: total.bytes_written,
            latency: LatencySummary::new(&total.latency),
            late: total.late,
            unanswered: total.unanswered,
            unsent: total.unsent,
            server: server.map(|(before, after)| ServerUse::new(&before.0, &after.0, answered)),
            generator: used.as_ref().map(|(before, after)| ServerUse::new(&before.1, &after.1, answered)),
            seconds,
        }
    }

    /// Whether every reply was right or allowed, and there were some.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.errors.total() == 0 && self.requests > 0
    }

    /// One line per second.
    #[must_use]
    pub fn seconds_csv(&self) -> String {
        let mut text = "second,requests,rate,shed,errors,p50_us,p99_us,max_us\n".to_owned();
        for row in &self.seconds {
            let SecondRow { second, requests, rate, shed, errors, p50_us, p99_us, max_us } = row;
            // Writing to a String cannot fail.
            writeln!(text, "{second},{requests},{rate},{shed},{errors},{p50_us},{p99_us},{max_us}").ok();
        }
        text
    }

    /// One line per quantile.
    #[must_use]
    pub fn percentiles_csv(&self) -> String {
        let mut text = "quantile,latency_us\n".to_owned();
        for (quantile, latency_us) in &self.latency.curve {
            writeln!(text, "{quantile},{latency_us}").ok();
        }
        text
    }

    /// The summary for a person.
    #[must_use]
    pub fn summary(&self) -> String {
        let mut text = String::new();
        let mut line = |name: &str, value: String| text.push_str(&format!("{name:<12} {value}\n"));
        let wanted = self.rate_wanted.map(|rate| format!(", {rate} requests a second wanted")).unwrap_or_default();
        let (connections, threads) = (self.connections, self.threads);
        line("target", self.target.clone());
        line("load", format!("{} loop, {connections} connections, {threads} threads{wanted}", self.r#loop));
        line("requests", format!("{} in {} s, {:.0}/s", self.requests, self.duration_s, self.rate));
        let latency = &self.latency;
        line(
            "latency",
            format!(
                "p50 {}  p90 {}  p99 {}  p99.9 {}  max {}",
                duration_text(latency.p50_us),
                duration_text(latency.p90_us),
                duration_text(latency.p99_us),
                duration_text(latency.p99_9_us),
                duration_text(latency.max_us)
            ),
        );
        line("bytes", format!("{} read, {} written", self.bytes_read, self.bytes_written));
        if self.shed > 0 {
            line("shed", self.shed.to_string());
        }
        if self.reconnects > 0 {
            line("reconnects", self.reconnects.to_string());
        }
        if self.late + self.unanswered + self.unsent > 0 {
            let Self { late, unanswered, unsent, .. } = self;
            line("at the end", format!("{late} late, {unanswered} unanswered, {unsent} unsent"));
        }
        for (name, used) in [("server", &self.server), ("generator", &self.generator)] {
            if let Some(used) = used {
                let ServerUse { cpu_us_per_request, switches_per_request, resident_bytes, .. } = used;
                let memory = resident_bytes >> 20;
                line(
                    name,
                    format!("{cpu_us_per_request} µs CPU and {switches_per_request} switches a request, {memory} MiB"),
                );
            }
        }
        let kinds: Vec<String> = self
            .errors
            .kinds()
            .iter()
            .filter(|kind| kind.1 > 0)
            .map(|(name, count)| format!("{count} {name}"))
            .collect();
        line("errors", if kinds.is_empty() { "none".to_owned() } else { kinds.join(", ") });
        if let Some(first) = &self.first_error {
            line("first error", first.clone());
        }
        text
    }
}

pub(super) fn duration_text(us: f64) -> String {
    match us {
        us if us < 1000.0 => format!("{us:.0} µs"),
        us if us < 1_000_000.0 => format!("{:.2} ms", us / 1000.0),
        us => format!("{:.2} s", us / 1_000_000.0),
    }
}
