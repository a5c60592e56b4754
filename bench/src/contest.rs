//! A contest: sides that run in alternation, and aims that compare two of them.

use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use millrace_loadgen::{Plan, run};
use serde::{Deserialize, Serialize};

use crate::cells::{Measured, Rounds};
use crate::machine::median;
use crate::server::{Kind, Server, Setup};
use crate::{Outcome, fsync};

/// Which figure of two sides is compared, first over second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Figure {
    /// Server CPU per request, at most the aim.
    Cpu,
    /// Right replies a second, at least the aim.
    Rate,
    /// Median latency, below the aim.
    Median,
    /// 99th percentile of latency, below the aim.
    Tail,
}

/// The load of a server while it is measured.
pub trait Load: std::fmt::Debug {
    /// Prepares the state that the requests need.
    ///
    /// # Errors
    /// If the server refuses a request.
    fn prepare(&self, server: &Server, setup: &Setup) -> Outcome<()>;

    /// The load generator's plan. The caller sets connections, rate and times.
    ///
    /// # Errors
    /// If the request cannot be built.
    fn plan(&self, name: &str, server: &Server) -> Outcome<Plan>;

    /// Checks the state after all replies have arrived.
    ///
    /// # Errors
    /// If the state is wrong or cannot be read.
    fn audit(&self, address: SocketAddr) -> Outcome<()>;
}

/// One server under one load.
#[derive(Clone, Debug)]
pub struct Contestant {
    /// Its name in tables.
    pub name: String,
    /// The server.
    pub kind: Kind,
    /// Its load.
    pub workload: Rc<dyn Load>,
    /// Connections of the load generator.
    pub connections: usize,
    /// The server's CPUs, if they differ from those of the other sides.
    pub cpus: Option<&'static str>,
}

impl Contestant {
    /// Starts the server and prepares its state.
    ///
    /// # Errors
    /// If it does not start, or refuses a request.
    pub fn open(&self, setup: &Setup) -> Outcome<Server> {
        let server = match self.cpus {
            Some(cpus) => Server::start(&self.kind, &Setup { server_cpus: cpus.to_owned(), ..setup.clone() }),
            None => Server::start(&self.kind, setup),
        }?;
        self.workload.prepare(&server, setup)?;
        Ok(server)
    }

    /// The load generator's plan.
    ///
    /// # Errors
    /// If the request cannot be built.
    pub fn plan(&self, server: &Server, setup: &Setup, duration: Duration, warm_up: Duration) -> Outcome<Plan> {
        let mut plan = self.workload.plan(&self.name, server)?;
        plan.connections = self.connections;
        plan.threads = setup.load_cpus.len().clamp(1, self.connections);
        plan.duration = duration;
        plan.warm_up = warm_up;
        plan.cpus.clone_from(&setup.load_cpus);
        Ok(plan)
    }

    /// Starts the server, loads it, audits it, stops it.
    ///
    /// # Errors
    /// If any step fails, or any reply is wrong.
    pub fn measure(&self, setup: &Setup, rounds: &Rounds, round: usize) -> Outcome<Measured> {
        let server = self.open(setup).map_err(|error| self.named(&error))?;
        let measured = self.load(&server, setup, rounds, round)?;
        self.close(server)?;
        Ok(measured)
    }

    fn named(&self, error: &str) -> String {
        format!("{}: {error}", self.name)
    }

    fn load(&self, server: &Server, setup: &Setup, rounds: &Rounds, round: usize) -> Outcome<Measured> {
        let fsync_us = fsync::cost_us(&setup.data)?;
        let plan = self.plan(server, setup, rounds.duration, rounds.warm_up).map_err(|error| self.named(&error))?;
        let report = run(&plan, &mut |_| {}).map_err(|error| self.named(&error.to_string()))?;
        if !report.is_clean() {
            let first = report.first_error.clone().unwrap_or_else(|| "no replies".to_owned());
            return Err(self.named(&format!("{} errors, the first: {first}", report.errors.total())));
        }
        Ok(Measured { side: self.name.clone(), round, fsync_us, report })
    }

    fn close(&self, server: Server) -> Outcome<()> {
        let audited = self.workload.audit(server.address).map_err(|error| format!("the audit failed: {error}"));
        audited.and_then(|()| server.stop()).map_err(|error| self.named(&error))
    }
}

/// A comparison of two sides, and its aim.
#[derive(Clone, Debug)]
pub struct Aim {
    /// Names it in tables.
    pub title: String,
    /// The figure that decides.
    pub figure: Figure,
    /// The bound of the ratio; see [`Figure`].
    pub bound: f64,
    /// The numerator's side, by its index in the contest.
    pub first: usize,
    /// The denominator's side.
    pub second: usize,
}

/// The first side over the second, by their indexes.
#[must_use]
pub fn aim(title: &str, figure: Figure, bound: f64, (first, second): (usize, usize)) -> Aim {
    Aim { title: title.to_owned(), figure, bound, first, second }
}

/// Sides and aims.
#[derive(Clone, Debug)]
pub struct Contest {
    /// Names it on the command line.
    pub id: String,
    /// The sides.
    pub sides: Vec<Contestant>,
    /// The aims.
    pub aims: Vec<Aim>,
    /// The order of the sides in a round.
    pub order: Order,
}

/// The order of the sides in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Each has the machine to itself from start to stop.
    Alone,
    /// All servers run at once and take turns, [`TURNS`] times in a round. Fluctuations of the machine within
    /// seconds then reach all sides, so a smaller difference shows. The sides must be idle without requests.
    Turns,
}

/// Turns of a side in a round of [`Order::Turns`], all of the same length.
const TURNS: usize = 4;

/// The result for one aim.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Judgement {
    /// Names it in tables.
    pub title: String,
    /// The aim.
    pub aim: String,
    /// The figure for a person, or the reason if there is none.
    pub measured: String,
    /// The figure's unit.
    #[serde(default)]
    pub unit: String,
    /// The figure in each round.
    pub values: Vec<f64>,
    /// `A / B`, where two sides are compared.
    #[serde(default)]
    pub compared: String,
    /// Whether the median meets the aim.
    pub is_met: bool,
    /// Whether there is a figure.
    pub is_measured: bool,
}

/// A figure that belongs to no side.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FigureRounds {
    /// Its name.
    pub name: String,
    /// Its unit.
    pub unit: String,
    /// One value for each round.
    pub values: Vec<f64>,
}

/// The result of a contest.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ContestResult {
    /// Names it on the command line.
    pub id: String,
    /// The results for its aims.
    pub judgements: Vec<Judgement>,
    /// Every side of every round.
    pub runs: Vec<Measured>,
    /// Figures that belong to no side.
    #[serde(default)]
    pub figures: Vec<FigureRounds>,
    /// Further lines for a person.
    pub remarks: Vec<String>,
}

impl Judgement {
    /// A figure with its aim.
    #[must_use]
    pub fn new(title: &str, aim: String, unit: &str, values: Vec<f64>, is_met: impl Fn(f64) -> bool) -> Self {
        let middle = median(&values);
        let low = values.iter().copied().fold(f64::MAX, f64::min);
        let high = values.iter().copied().fold(0.0, f64::max);
        Self {
            title: title.to_owned(),
            aim,
            measured: format!("{} {unit} ({} to {})", digits(middle), digits(low), digits(high)),
            is_met: !values.is_empty() && is_met(middle),
            is_measured: !values.is_empty(),
            unit: unit.to_owned(),
            values,
            compared: String::new(),
        }
    }

    /// An aim without a figure.
    #[must_use]
    pub fn missing(title: &str, aim: String, why: &str) -> Self {
        let measured = format!("not measured: {}", why.replace(['|', '\n'], " "));
        let (title, unit, compared) = (title.to_owned(), String::new(), String::new());
        Self { title, aim, measured, unit, values: Vec::new(), compared, is_met: false, is_measured: false }
    }
}

/// At least three significant digits.
#[must_use]
pub fn digits(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.3}"),
    }
}

impl Aim {
    fn text(&self) -> String {
        let bound = digits(self.bound);
        match self.figure {
            Figure::Cpu => format!("CPU ≤ {bound} ×"),
            Figure::Rate => format!("throughput ≥ {bound} ×"),
            Figure::Median => format!("p50 < {bound} ×"),
            Figure::Tail => format!("p99 < {bound} ×"),
        }
    }

    /// The names of both sides, as [`Judgement::compared`] has them.
    fn compared(&self, sides: &[&str]) -> String {
        format!("{} / {}", sides[self.first], sides[self.second])
    }

    fn ratio(&self, sides: &[&str], runs: &[Measured], round: usize) -> Option<f64> {
        let of = |side: usize| runs.iter().find(|run| run.round == round && run.side == sides[side]);
        let (first, second) = (of(self.first)?, of(self.second)?);
        let figure = |run: &Measured| match self.figure {
            Figure::Cpu => run.report.server.as_ref().map(|used| used.cpu_us_per_request),
            Figure::Rate => Some(run.report.rate),
            Figure::Median => Some(run.report.latency.p50_us),
            Figure::Tail => Some(run.report.latency.p99_us),
        };
        Some(figure(first)? / figure(second)?)
    }

    /// The figure of all rounds, `sides` being the names of the contest's sides.
    pub(crate) fn judge(&self, sides: &[&str], runs: &[Measured], problem: Option<&str>) -> Judgement {
        let rounds = runs.iter().map(|run| run.round + 1).max().unwrap_or(0);
        let ratios: Vec<f64> = (0..rounds).filter_map(|round| self.ratio(sides, runs, round)).collect();
        if ratios.is_empty() {
            return Judgement::missing(&self.title, self.text(), problem.unwrap_or("a side is missing"));
        }
        let is_met = |ratio: f64| match self.figure {
            Figure::Cpu => ratio <= self.bound,
            Figure::Rate => ratio >= self.bound,
            Figure::Median | Figure::Tail => ratio < self.bound,
        };
        let compared = self.compared(sides);
        Judgement { compared, ..Judgement::new(&self.title, self.text(), "×", ratios, is_met) }
    }
}

impl Contest {
    /// All rounds, the sides in alternation. The first side of one round is the last of the next. A side that fails is
    /// tried once more, and a remark says so. A side that fails again is left out, and its figures are void.
    #[must_use]
    pub fn run(&self, setup: &Setup, rounds: &Rounds) -> ContestResult {
        let mut kept = Kept::default();
        match self.order {
            Order::Alone => self.run_alone(setup, rounds, &mut kept),
            Order::Turns => self.run_in_turns(setup, rounds, &mut kept),
        }
        let Kept { runs, problems, remarks } = kept;
        let problem = |aim: &Aim| {
            let of = |side: usize| problems.iter().find(|(name, _)| *name == self.sides[side].name);
            of(aim.first).or(of(aim.second)).map(|(_, error)| error.as_str())
        };
        let names: Vec<&str> = self.sides.iter().map(|side| side.name.as_str()).collect();
        let judgements = self.aims.iter().map(|aim| aim.judge(&names, &runs, problem(aim))).collect();
        ContestResult {
            id: self.id.clone(),
            judgements,
            runs,
            figures: Vec::new(),
            remarks: remarks.into_iter().chain(problems.into_iter().map(|(_, error)| error)).collect(),
        }
    }

    fn run_alone(&self, setup: &Setup, rounds: &Rounds, kept: &mut Kept) {
        for round in 0..rounds.count {
            for index in 0..self.sides.len() {
                let side = &self.sides[(index + round) % self.sides.len()];
                if kept.problems.iter().any(|(name, _)| *name == side.name) {
                    continue;
                }
                self.tell(round, rounds, side);
                let first = side.measure(setup, rounds, round);
                match first.or_else(|error| kept.again(round, &error, || side.measure(setup, rounds, round))) {
                    Ok(measured) => {
                        eprintln!("{}", one_line(&measured));
                        kept.runs.push(measured);
                    }
                    Err(error) => kept.drop_side(&side.name, error),
                }
            }
        }
    }

    fn run_in_turns(&self, setup: &Setup, rounds: &Rounds, kept: &mut Kept) {
        for round in 0..rounds.count {
            let first = self.turns(setup, rounds, round);
            match first.or_else(|error| kept.again(round, &error, || self.turns(setup, rounds, round))) {
                Ok(runs) => kept.runs.extend(runs),
                // One failed turn voids the round for all sides.
                Err(error) => return self.sides.iter().for_each(|side| kept.drop_side(&side.name, error.clone())),
            }
        }
    }

    /// One round of [`Order::Turns`]. Each turn counts as a round of its own.
    fn turns(&self, setup: &Setup, rounds: &Rounds, round: usize) -> Outcome<Vec<Measured>> {
        let open = |side: &Contestant| side.open(setup).map_err(|error| side.named(&error));
        let servers = self.sides.iter().map(open).collect::<Outcome<Vec<Server>>>()?;
        let each = Rounds { duration: rounds.duration / TURNS as u32, warm_up: rounds.warm_up / 4, ..*rounds };
        let mut runs = Vec::new();
        for turn in round * TURNS..(round + 1) * TURNS {
            for index in 0..self.sides.len() {
                let at = (index + turn) % self.sides.len();
                self.tell(round, rounds, &self.sides[at]);
                let measured = self.sides[at].load(&servers[at], setup, &each, turn)?;
                eprintln!("{}", one_line(&measured));
                runs.push(measured);
            }
        }
        for (side, server) in self.sides.iter().zip(servers) {
            side.close(server)?;
        }
        Ok(runs)
    }

    fn tell(&self, round: usize, rounds: &Rounds, side: &Contestant) {
        eprint!("{} {}/{} {}: ", self.id, round + 1, rounds.count, side.name);
    }
}

/// Results while a contest runs.
#[derive(Default)]
struct Kept {
    runs: Vec<Measured>,
    /// Sides that were left out, with reasons.
    problems: Vec<(String, String)>,
    remarks: Vec<String>,
}

impl Kept {
    fn again<T>(&mut self, round: usize, error: &str, measure: impl FnOnce() -> Outcome<T>) -> Outcome<T> {
        eprint!("{error}; once more: ");
        self.remarks.push(format!("In round {} a side was measured once more: {error}", round + 1));
        measure()
    }

    fn drop_side(&mut self, name: &str, error: String) {
        eprintln!("{error}");
        self.runs.retain(|run| run.side != name);
        self.problems.push((name.to_owned(), error));
    }
}

/// Progress for a waiting person.
pub fn one_line(measured: &Measured) -> String {
    let report = &measured.report;
    let cpu = report.server.as_ref().map_or(0.0, |used| used.cpu_us_per_request);
    let (rate, p50, p99) = (report.rate, report.latency.p50_us, report.latency.p99_us);
    format!(
        "{rate:.0}/s, {cpu:.2} µs CPU a request, p50 {p50:.0} µs, p99 {p99:.0} µs, fsync {:.0} µs",
        measured.fsync_us
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(side: &str, round: usize, rate: f64) -> Measured {
        let report = serde_json::from_value(serde_json::json!({
            "target": "", "loop": "closed", "rate_wanted": null, "connections": 1, "threads": 1, "pipeline": 1,
            "warm_up_s": 0.0, "duration_s": 1.0, "seed": 0, "requests": 1, "rate": rate, "shed": 0,
            "errors": {"connect": 0, "reset": 0, "closed": 0, "timeout": 0, "malformed": 0, "status": 0, "body": 0},
            "first_error": null, "reconnects": 0, "statuses": [], "bytes_read": 0, "bytes_written": 0,
            "latency": {"min_us": 0.0, "mean_us": 0.0, "p50_us": 0.0, "p90_us": 0.0, "p99_us": 0.0, "p99_9_us": 0.0,
                "max_us": 0.0, "curve": []},
            "late": 0, "unanswered": 0, "unsent": 0, "server": null, "generator": null, "seconds": [],
        }));
        Measured { side: side.to_owned(), round, fsync_us: 0.0, report: report.unwrap() }
    }

    #[test]
    fn ratios_are_taken_within_rounds_and_their_median_decides() {
        let sides = ["a", "b"];
        let aim = Aim { title: String::new(), figure: Figure::Rate, bound: 0.5, first: 0, second: 1 };
        let mut runs = vec![run("a", 0, 10.0), run("b", 0, 10.0), run("b", 1, 100.0), run("a", 1, 20.0)];
        runs.extend([run("a", 2, 7.0), run("b", 2, 10.0), run("a", 3, 1.0)]);
        let judged = aim.judge(&sides, &runs, None);
        assert_eq!((judged.values.as_slice(), judged.is_met), (&[1.0, 0.2, 0.7][..], true));
        assert!(!Aim { bound: 0.71, ..aim.clone() }.judge(&sides, &runs, None).is_met);
        // These runs have no CPU figure.
        let judged = Aim { figure: Figure::Cpu, ..aim }.judge(&sides, &runs, Some("why"));
        assert!(!judged.is_measured && !judged.is_met && judged.measured.contains("why"));
    }
}
