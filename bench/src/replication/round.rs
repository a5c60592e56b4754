//! Runs a part: its servers in alternation, each with all that is measured on it.

use super::contests::{Comparison, FOLLOWER, Part, ServerKind, Stand, Task};
use super::etcd::Etcd;
use super::nodes::{Effort, Nodes, Setup};
use super::workload::{At, Work, audit, load, prepare};
use crate::cells::{Measured, Rounds};
use crate::contest::{ContestResult, FigureRounds, Judgement, aim, one_line};
use crate::{Outcome, fsync};

/// A follower's CPU time for an entry, at most.
const FOLLOWER_US: f64 = 3.0;

/// What all rounds of a part gave.
#[derive(Debug, Default)]
struct Kept {
    runs: Vec<(&'static str, Measured)>,
    /// Per round of the comparison of followers.
    efforts: Vec<Efforts>,
    /// Sides that failed: comparison, side, reason.
    problems: Vec<(&'static str, &'static str, String)>,
    remarks: Vec<(&'static str, String)>,
}

/// What the nodes did for a load at the first node.
#[derive(Clone, Copy, Debug)]
struct Efforts {
    owner: Effort,
    /// The others together.
    followers: Effort,
}

enum Running {
    Nodes(Nodes),
    Etcd(Etcd),
}

impl Running {
    fn start(server: ServerKind, setup: &Setup) -> Outcome<Self> {
        match server {
            ServerKind::Nodes(wanted) => Nodes::start(setup, wanted).map(Self::Nodes),
            ServerKind::Etcd => Etcd::start(setup).map(Self::Etcd),
        }
    }

    fn stop(self) -> Outcome<()> {
        match self {
            Self::Nodes(nodes) => nodes.stop(),
            Self::Etcd(etcd) => etcd.stop(),
        }
    }
}

/// All rounds of a part. The first server of one round is the last of the next. A side that fails is tried once more,
/// and a remark says so. A side that fails again is left out, and its figures are void.
#[must_use]
pub fn run(part: &Part, setup: &Setup, rounds: &Rounds) -> Vec<ContestResult> {
    let mut kept = Kept::default();
    for round in 0..rounds.count {
        for index in 0..part.stands.len() {
            let stand = &part.stands[(index + round) % part.stands.len()];
            if let Err(error) = kept.run_stand(stand, setup, rounds, round) {
                eprintln!("{error}");
                stand.tasks.iter().for_each(|task| kept.drop_side(task, &error));
            }
        }
    }
    part.comparisons.iter().map(|comparison| kept.result(comparison)).collect()
}

impl Kept {
    fn run_stand(&mut self, stand: &Stand, setup: &Setup, rounds: &Rounds, round: usize) -> Outcome<()> {
        let is_dropped =
            |task: &Task| self.problems.iter().any(|(cell, side, _)| (*cell, *side) == (task.cell, task.side));
        let tasks: Vec<Task> = stand.tasks.iter().copied().filter(|task| !is_dropped(task)).collect();
        if tasks.is_empty() {
            return Ok(());
        }
        let fsync_us = fsync::cost_us(&setup.data)?;
        let server = Running::start(stand.server, setup)?;
        let mut prepared: Vec<(Work, At)> = Vec::new();
        for task in tasks {
            eprint!("{} {}/{} {}: ", task.cell, round + 1, rounds.count, task.side);
            let mut measure = || {
                if let Running::Nodes(nodes) = &server
                    && !prepared.contains(&(task.work, task.at))
                {
                    prepare(nodes, task.work, task.at)?;
                    prepared.push((task.work, task.at));
                }
                measure(&server, setup, rounds, &task)
            };
            let measured = measure().or_else(|error| {
                eprint!("{error}; once more: ");
                let remark = format!("In round {} {} was measured once more: {error}", round + 1, task.side);
                self.remarks.push((task.cell, remark));
                measure()
            });
            match measured {
                Ok((report, efforts)) => {
                    let measured = Measured { side: task.side.to_owned(), round, fsync_us, report };
                    eprintln!("{}", one_line(&measured));
                    self.runs.push((task.cell, measured));
                    self.efforts.extend(efforts.filter(|_| task.cell == FOLLOWER));
                }
                Err(error) => {
                    eprintln!("{error}");
                    self.drop_side(&task, &error);
                }
            }
        }
        server.stop()
    }

    fn drop_side(&mut self, task: &Task, error: &str) {
        self.runs.retain(|(cell, run)| (*cell, run.side.as_str()) != (task.cell, task.side));
        if task.cell == FOLLOWER {
            self.efforts.clear();
        }
        self.problems.push((task.cell, task.side, error.to_owned()));
    }

    fn result(&self, comparison: &Comparison) -> ContestResult {
        let Comparison { id, sides, aims, ratios } = comparison;
        let runs: Vec<Measured> = self.runs.iter().filter(|(cell, _)| cell == id).map(|(_, run)| run.clone()).collect();
        let why = |first: usize, second: usize| {
            let of = |index: usize| {
                let mut problems = self.problems.iter();
                problems.find(|(cell, side, _)| cell == id && *side == sides[index]).map(|found| found.2.as_str())
            };
            of(first).or(of(second))
        };
        let judged = aims.iter().map(|aim| aim.judge(sides, &runs, why(aim.first, aim.second)));
        let mut judgements: Vec<Judgement> = judged.collect();
        let ratio = |(name, figure, first, second): &(&str, _, usize, usize)| {
            let judged = aim(name, *figure, 1.0, (*first, *second)).judge(sides, &runs, None);
            FigureRounds { name: (*name).to_owned(), unit: "×".to_owned(), values: judged.values }
        };
        let mut figures: Vec<FigureRounds> = ratios.iter().map(ratio).collect();
        if *id == FOLLOWER {
            judgements.push(self.judge_follower(why(0, 0)));
            figures.extend(self.figures_of_followers());
        }
        let failed = self.problems.iter().filter(|(cell, ..)| cell == id).map(|found| found.2.clone());
        let remarks = self.remarks.iter().filter(|(cell, _)| cell == id).map(|found| found.1.clone());
        let remarks = remarks.chain(failed).collect();
        ContestResult { id: (*id).to_owned(), judgements, runs, figures, remarks }
    }

    fn judge_follower(&self, problem: Option<&str>) -> Judgement {
        let title = "CPU of a follower for each entry of 1 KB, 512 clients";
        let aim = format!("≤ {FOLLOWER_US} µs");
        if self.efforts.is_empty() {
            return Judgement::missing(title, aim, problem.unwrap_or("a side is missing"));
        }
        let values = self.efforts.iter().map(|one| one.followers.cpu_us / one.followers.entries).collect();
        Judgement::new(title, aim, "µs", values, |us| us <= FOLLOWER_US)
    }

    fn figures_of_followers(&self) -> Vec<FigureRounds> {
        let figure = |name: &str, unit: &str, value: &dyn Fn(&Efforts) -> f64| FigureRounds {
            name: name.to_owned(),
            unit: unit.to_owned(),
            values: self.efforts.iter().map(value).collect(),
        };
        vec![
            figure("CPU of the owner for each entry", "µs", &|one| one.owner.cpu_us / one.owner.entries),
            figure("entries in one batch of a follower", "entries", &|one| {
                one.followers.entries / one.followers.batches
            }),
            figure("entries of a follower for each entry of the owner", "entries", &|one| {
                one.followers.entries / 2.0 / one.owner.entries
            }),
        ]
    }
}

type Done = (millrace_loadgen::Report, Option<Efforts>);

fn measure(server: &Running, setup: &Setup, rounds: &Rounds, task: &Task) -> Outcome<Done> {
    let (report, efforts) = match server {
        Running::Etcd(etcd) => (etcd.load(setup, rounds, task.clients)?, None),
        Running::Nodes(nodes) => {
            let before = efforts(nodes)?;
            let report = load(nodes, setup, rounds, (task.work, task.at, task.clients))?;
            let after = efforts(nodes)?;
            (report, before.zip(after).map(|(before, after)| between(&before, &after)))
        }
    };
    if !report.is_clean() {
        let first = report.first_error.clone().unwrap_or_else(|| "no replies".to_owned());
        return Err(format!("{} errors, the first: {first}", report.errors.total()));
    }
    if let Running::Nodes(nodes) = server {
        audit(nodes, task.work, task.at)?;
    }
    Ok((report, efforts))
}

/// None for a node alone.
fn efforts(nodes: &Nodes) -> Outcome<Option<Efforts>> {
    if nodes.count() == 1 {
        return Ok(None);
    }
    let mut followers = Effort::default();
    for index in 1..nodes.count() {
        let one = nodes.effort(index)?;
        followers.cpu_us += one.cpu_us;
        followers.entries += one.entries;
        followers.batches += one.batches;
    }
    Ok(Some(Efforts { owner: nodes.effort(0)?, followers }))
}

fn between(before: &Efforts, after: &Efforts) -> Efforts {
    let less = |after: Effort, before: Effort| Effort {
        cpu_us: after.cpu_us - before.cpu_us,
        entries: after.entries - before.entries,
        batches: after.batches - before.batches,
    };
    Efforts { owner: less(after.owner, before.owner), followers: less(after.followers, before.followers) }
}
