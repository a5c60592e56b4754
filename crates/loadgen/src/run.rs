//! All threads of a run and its clock. It starts them together, gathers their counts for each second, and measures the
//! server's process over exactly the measured part.

use std::collections::BTreeMap;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::engine::{Engine, Message};
use super::measure::{Period, Slice};
use super::plan::{BenchError, Plan};
use super::process::ProcessUse;
use super::report::{Report, SecondRow};

/// Descriptors beside the connections: standard streams, epolls, timers, files.
const OTHER_DESCRIPTORS: u64 = 64;

/// The progress of a run, once a second.
#[derive(Clone, Debug)]
pub struct Progress {
    /// Whether this second is not part of the measurement.
    pub is_warm_up: bool,
    /// The counts of the second.
    pub row: SecondRow,
}

/// Runs a plan to its end; `progress` is called once a second.
///
/// # Errors
/// If the plan cannot be run, or no connection can be made.
pub fn run(plan: &Plan, progress: &mut dyn FnMut(&Progress)) -> Result<Report, BenchError> {
    run_together(std::slice::from_ref(plan), progress)
}

/// Runs several plans at once, such as one for each node of a cluster, and reports them as one load. Their times must be
/// the same. Name, seed and the server's processes are those of the first.
///
/// # Errors
/// If a plan cannot be run, or no connection can be made.
pub fn run_together(plans: &[Plan], progress: &mut dyn FnMut(&Progress)) -> Result<Report, BenchError> {
    let whole = whole(plans)?;
    for pid in &whole.server_pids {
        ProcessUse::of(*pid).map_err(BenchError::Arguments)?;
    }
    raise_descriptor_limit(whole.connections as u64 + 4 * whole.threads as u64 + OTHER_DESCRIPTORS)?;
    let base = Instant::now();
    let mut engines = Vec::with_capacity(whole.threads);
    for plan in plans {
        for thread in 0..plan.threads {
            engines.push((plan, thread, Engine::new(plan, thread, base)?));
        }
    }
    let (tell, told) = mpsc::channel();
    std::thread::scope(|scope| {
        let mut starts = Vec::with_capacity(whole.threads);
        for (plan, thread, engine) in engines {
            let (start, started) = mpsc::channel();
            let tell: Sender<Message> = tell.clone();
            starts.push(start);
            let builder = std::thread::Builder::new().name(format!("load-{thread}"));
            let spawned = builder.spawn_scoped(scope, move || {
                settle_thread(plan, thread);
                engine.run(&started, &tell);
            });
            spawned.map_err(|error| BenchError::System(format!("cannot start a thread: {error}")))?;
        }
        drop(tell);
        Gathering::new(&whole, base).gather(starts, &told, progress)
    })
}

/// The plans as one, for what concerns all of them.
fn whole(plans: &[Plan]) -> Result<Plan, BenchError> {
    let refuse = |message: &str| Err(BenchError::Arguments(message.to_owned()));
    let Some((first, rest)) = plans.split_first() else { return refuse("there is no plan to run") };
    let mut whole = first.clone();
    first.check()?;
    for plan in rest {
        plan.check()?;
        if (plan.warm_up, plan.duration) != (first.warm_up, first.duration) {
            return refuse("plans that run together need the same times");
        }
        whole.connections += plan.connections;
        whole.threads += plan.threads;
        whole.rate = whole.rate.zip(plan.rate).map(|(sum, rate)| sum + rate);
    }
    Ok(whole)
}

/// Binds the thread to its CPU and makes its waits exact, if the kernel allows it.
fn settle_thread(plan: &Plan, thread: usize) {
    if !plan.cpus.is_empty() {
        let cpu = plan.cpus[thread % plan.cpus.len()];
        let mut set = rustix::thread::CpuSet::new();
        if cpu < rustix::thread::CpuSet::MAX_CPU {
            set.set(cpu);
            rustix::thread::sched_setaffinity(None, &set).ok();
        }
    }
    // Timers are 50 µs late by default, to save power.
    rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1)).ok();
}

/// Raises the limit of descriptors to this number.
///
/// # Errors
/// If the hard limit is lower and cannot be raised.
pub(super) fn raise_descriptor_limit(wanted: u64) -> Result<(), BenchError> {
    let limit = getrlimit(Resource::Nofile);
    let (soft, hard) = (limit.current.unwrap_or(u64::MAX), limit.maximum.unwrap_or(u64::MAX));
    if soft >= wanted {
        return Ok(());
    }
    let raised = Rlimit { current: Some(wanted), maximum: Some(hard.max(wanted)) };
    setrlimit(Resource::Nofile, raised).map_err(|error| {
        let hint = "raise it with ulimit -n or use fewer connections";
        BenchError::System(format!("{wanted} descriptors are needed, the limit is {hard}: {error}; {hint}"))
    })
}

struct Gathering<'a> {
    plan: &'a Plan,
    base: Instant,
    /// Slices of a period, and the number of threads that have sent theirs.
    periods: BTreeMap<Period, (usize, Slice)>,
    rows: Vec<SecondRow>,
    total: Slice,
    before: Option<(ProcessUse, ProcessUse)>,
    after: Option<(ProcessUse, ProcessUse)>,
}

impl<'a> Gathering<'a> {
    fn new(plan: &'a Plan, base: Instant) -> Self {
        let (rows, total) = (Vec::new(), Slice::new());
        Self { plan, base, periods: BTreeMap::new(), rows, total, before: None, after: None }
    }

    fn gather(
        mut self,
        starts: Vec<Sender<u64>>,
        told: &Receiver<Message>,
        progress: &mut dyn FnMut(&Progress),
    ) -> Result<Report, BenchError> {
        self.wait_until_ready(told)?;
        // Far enough ahead that every thread is ready in time.
        let start = self.base.elapsed() + Duration::from_millis(5);
        for sender in starts {
            sender.send(start.as_nanos() as u64).ok();
        }
        let (measured, end) = (start + self.plan.warm_up, start + self.plan.warm_up + self.plan.duration);
        loop {
            let now = self.base.elapsed();
            if now >= measured && self.before.is_none() {
                self.before = self.sample();
            }
            if now >= end && self.after.is_none() {
                self.after = self.sample();
            }
            let next = if now < measured { measured - now } else { end.saturating_sub(now) };
            let patience = if now < end { next } else { Duration::from_secs(60) };
            match told.recv_timeout(patience) {
                Ok(Message::Observed(period, slice)) => self.take(period, &slice, progress),
                Ok(Message::Ready { .. }) | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        let after = self.after.or_else(|| self.sample());
        Ok(Report::new(self.plan, self.rows, &self.total, self.before.zip(after)))
    }

    fn wait_until_ready(&self, told: &Receiver<Message>) -> Result<(), BenchError> {
        let (mut open, mut error) = (0, None);
        for _ in 0..self.plan.threads {
            match told.recv() {
                Ok(Message::Ready { open: more, error: first }) => {
                    open += more;
                    error = error.or(first);
                }
                _ => return Err(BenchError::System("a thread of the load generator ended early".to_owned())),
            }
        }
        if open == 0 {
            let why = error.unwrap_or_else(|| "no connection was made in time".to_owned());
            return Err(BenchError::Connect(format!("{}: {why}", self.plan.target)));
        }
        Ok(())
    }

    /// The use of the server's processes and of this process so far.
    fn sample(&self) -> Option<(ProcessUse, ProcessUse)> {
        let server = ProcessUse::of_all(&self.plan.server_pids).ok()?;
        Some((server, ProcessUse::of(std::process::id()).ok()?))
    }

    fn take(&mut self, period: Period, slice: &Slice, progress: &mut dyn FnMut(&Progress)) {
        let (threads, sum) = self.periods.entry(period).or_insert_with(|| (0, Slice::new()));
        *threads += 1;
        sum.add(slice);
        if *threads < self.plan.threads {
            return;
        }
        let Some((_, sum)) = self.periods.remove(&period) else { return };
        let (warm_up, duration) = (self.plan.warm_up, self.plan.duration);
        let row = |second: u32, whole: Duration| {
            let passed = Duration::from_secs(u64::from(second));
            SecondRow::new(second, whole.saturating_sub(passed).min(Duration::from_secs(1)), &sum)
        };
        match period {
            Period::WarmUp(second) => progress(&Progress { is_warm_up: true, row: row(second, warm_up) }),
            Period::Measured(second) => {
                let row = row(second, duration);
                progress(&Progress { is_warm_up: false, row: row.clone() });
                self.rows.push(row);
                self.total.add(&sum);
            }
            // In an open loop, late replies belong to requests of the measured part. They count for latency, not for the
            // rate.
            Period::Drain => self.total.add_late(&sum),
        }
    }
}
