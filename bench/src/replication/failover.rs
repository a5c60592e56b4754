//! A node is killed under load: how soon its shards are served again, and whether requests of other shards notice.
//!
//! Every shard has a client that writes all the time. Clients ask nodes that are not killed. From the kill on, each shard of
//! the killed node has a second client, whose first request is sent after the kill.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::nodes::{Guidance, Nodes, SHARDS, Setup, Wanted, keys};
use super::places::{NODES, on};
use super::workload::Work;
use crate::Outcome;
use crate::contest::{ContestResult, FigureRounds, Judgement};
use crate::small::Connection;

/// Names it on the command line.
pub const ID: &str = "failover";

const AIM_S: f64 = 1.0;
/// A new leader has to be found first.
const AIM_LEADER_S: f64 = 1.5;

/// A client waits so long between two requests.
const PAUSE: Duration = Duration::from_millis(5);
/// The load before the kill, and after the shards are served again.
const LOAD: Duration = Duration::from_millis(500);
/// A node that cannot serve a call answers within a few seconds.
const PATIENCE: Duration = Duration::from_secs(10);
/// The second client of a shard sends its request again after this time, as the first may have gone to the killed node.
const AGAIN: Duration = Duration::from_millis(200);
/// After this time a shard counts as lost.
const SERVED: Duration = Duration::from_secs(20);

const VALUE: &str = "v";

/// What one kill did.
#[derive(Clone, Debug)]
struct Kill {
    /// Whether the node led the meta shard.
    was_leader: bool,
    /// Until its first shard was served again.
    first_s: f64,
    /// Until all of its shards were.
    all_s: f64,
    /// Its shards' clients.
    lost: Told,
    /// The other shards' clients.
    others: Told,
}

/// What clients were told.
#[derive(Clone, Debug, Default)]
struct Told {
    requests: u64,
    errors: u64,
    slowest: Duration,
    first_error: Option<String>,
}

impl Told {
    fn add(&mut self, other: Self) {
        self.requests += other.requests;
        self.errors += other.errors;
        self.slowest = self.slowest.max(other.slowest);
        self.first_error = self.first_error.take().or(other.first_error);
    }
}

/// Kills nodes one after the other. Every second one leads the meta shard.
#[must_use]
pub fn measure(setup: &Setup, kills: usize) -> ContestResult {
    let mut done = Vec::new();
    let problem = kill_all(setup, kills, &mut done).err();
    if let Some(error) = &problem {
        eprintln!("{ID}: {error}");
    }
    ContestResult {
        id: ID.to_owned(),
        judgements: judge(&done, problem.as_deref()),
        runs: Vec::new(),
        figures: figures(&done),
        remarks: done.iter().filter_map(|kill| kill.others.first_error.clone()).chain(problem).collect(),
    }
}

fn kill_all(setup: &Setup, kills: usize, done: &mut Vec<Kill>) -> Outcome<()> {
    let wanted = Wanted { is_cluster: true, durability: "fsync", cores: 1, app: Work::Write.app() };
    let mut nodes = Nodes::start(setup, wanted)?;
    for number in 0..kills {
        nodes.wait_until_spread()?;
        let guidance = nodes.guidance(0)?;
        // The others take turns.
        let beside = if number % 2 == 1 { 0 } else { 1 + number / 2 % (NODES - 1) };
        let victim = (guidance.leader + beside) % NODES;
        let kill = kill_one(setup, &mut nodes, &guidance, victim)?;
        eprintln!(
            "{ID} {}/{kills}: {}all shards served again after {:.3} s, the first after {:.3} s; {} of {} other requests failed",
            number + 1,
            if kill.was_leader { "the leader; " } else { "" },
            kill.all_s,
            kill.first_s,
            kill.others.errors,
            kill.others.requests,
        );
        done.push(kill);
        nodes.start_again(setup, victim)?;
    }
    nodes.stop()
}

fn kill_one(setup: &Setup, nodes: &mut Nodes, guidance: &Guidance, victim: usize) -> Outcome<Kill> {
    let addresses: Vec<SocketAddr> = (0..NODES).map(|index| nodes.address(index)).collect();
    let survivors: Vec<SocketAddr> =
        (0..NODES).filter(|index| *index != victim).map(|index| addresses[index]).collect();
    let shard = |shard: usize| {
        let owner = guidance.owners[shard];
        let asked = if owner == victim { survivors[shard % survivors.len()] } else { addresses[owner] };
        let key = keys('k', 1, |of| of == shard).pop().unwrap_or_default();
        (owner == victim, asked, format!("/call/store/{key}/put"))
    };
    let shards: Vec<(bool, SocketAddr, String)> = (0..usize::from(SHARDS)).map(shard).collect();
    let is_over = AtomicBool::new(false);
    // Threads stay on the CPUs of the thread that starts them.
    on(&setup.places.load, || {
        std::thread::scope(|scope| {
            let is_over = &is_over;
            let clients: Vec<_> = shards
                .iter()
                .map(|(is_lost, asked, path)| (*is_lost, scope.spawn(move || write_until(is_over, *asked, path))))
                .collect();
            std::thread::sleep(LOAD);
            let killed = Instant::now();
            nodes.kill(victim);
            let lost = shards.iter().filter(|(is_lost, ..)| *is_lost);
            let probes: Vec<_> =
                lost.map(|(_, asked, path)| scope.spawn(move || served_after(killed, *asked, path))).collect();
            let served = probes.into_iter().map(|probe| probe.join().unwrap_or_else(|_| panicked()));
            let served: Outcome<Vec<f64>> = served.collect();
            std::thread::sleep(LOAD);
            is_over.store(true, Ordering::Relaxed);
            let (mut lost, mut others) = (Told::default(), Told::default());
            for (is_lost, client) in clients {
                let told = client.join().unwrap_or_default();
                if is_lost { lost.add(told) } else { others.add(told) }
            }
            let served = served?;
            let first_s = served.iter().copied().fold(f64::MAX, f64::min);
            let all_s = served.iter().copied().fold(0.0, f64::max);
            Ok(Kill { was_leader: guidance.leader == victim, first_s, all_s, lost, others })
        })
    })?
}

fn panicked<T>() -> Outcome<T> {
    Err("a client panicked".to_owned())
}

/// Writes until it is over.
fn write_until(is_over: &AtomicBool, address: SocketAddr, path: &str) -> Told {
    let mut told = Told::default();
    let mut connection = None;
    while !is_over.load(Ordering::Relaxed) {
        let start = Instant::now();
        let written = write(&mut connection, address, path, PATIENCE);
        told.slowest = told.slowest.max(start.elapsed());
        told.requests += 1;
        if let Err(error) = written {
            told.errors += 1;
            told.first_error.get_or_insert(error);
        }
        std::thread::sleep(PAUSE);
    }
    told
}

/// The time from `killed` to the reply to a request that was sent after it.
fn served_after(killed: Instant, address: SocketAddr, path: &str) -> Outcome<f64> {
    let mut connection = None;
    loop {
        match write(&mut connection, address, path, AGAIN) {
            Ok(()) => return Ok(killed.elapsed().as_secs_f64()),
            Err(error) if killed.elapsed() > SERVED => return Err(format!("not served after {SERVED:?}: {error}")),
            Err(_) => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}

fn write(connection: &mut Option<Connection>, address: SocketAddr, path: &str, patience: Duration) -> Outcome<()> {
    let mut open = match connection.take() {
        Some(open) => open,
        None => Connection::open(address, patience)?,
    };
    let (status, reply) = open.request("POST", path, &json!(VALUE).to_string())?;
    // The connection of a request that failed is of no use.
    *connection = Some(open);
    let is_right = status == 200 && serde_json::from_str::<Value>(&reply).is_ok_and(|told| told == VALUE.len());
    if is_right { Ok(()) } else { Err(format!("POST {path} gave {status}: {reply}")) }
}

fn judge(done: &[Kill], problem: Option<&str>) -> Vec<Judgement> {
    let served = |was_leader: bool, bound: f64| {
        let which = if was_leader { "the leader" } else { "a node that does not lead" };
        let title = format!("kill -9 of {which}: until all of its shards are served again, slowest kill");
        let values = done.iter().filter(|kill| kill.was_leader == was_leader).map(|kill| kill.all_s);
        every(&title, format!("≤ {bound} s"), "s", values.collect(), problem, |value| value <= bound)
    };
    let errors = done.iter().map(|kill| kill.others.errors as f64).collect();
    let title = "kill -9 of a node: failed requests of other nodes' shards";
    vec![
        served(false, AIM_S),
        served(true, AIM_LEADER_S),
        every(title, "0".to_owned(), "requests", errors, problem, |count| count == 0.0),
    ]
}

/// The aim holds for every kill, not for the median.
fn every(
    title: &str,
    aim: String,
    unit: &str,
    values: Vec<f64>,
    problem: Option<&str>,
    is_met: impl Fn(f64) -> bool,
) -> Judgement {
    match problem {
        Some(why) => Judgement::missing(title, aim, why),
        None if values.is_empty() => Judgement::missing(title, aim, "no such node was killed"),
        None => {
            let is_met_by_all = values.iter().all(|value| is_met(*value));
            Judgement { is_met: is_met_by_all, ..Judgement::new(title, aim, unit, values, is_met) }
        }
    }
}

fn figures(done: &[Kill]) -> Vec<FigureRounds> {
    let figure = |name: &str, unit: &str, value: &dyn Fn(&Kill) -> f64| FigureRounds {
        name: name.to_owned(),
        unit: unit.to_owned(),
        values: done.iter().map(value).collect(),
    };
    vec![
        figure("until the first of its shards is served again", "s", &|kill| kill.first_s),
        figure("requests of its shards", "requests", &|kill| kill.lost.requests as f64),
        figure("failed requests of its shards", "requests", &|kill| kill.lost.errors as f64),
        figure("slowest request of its shards", "s", &|kill| kill.lost.slowest.as_secs_f64()),
        figure("requests of other shards", "requests", &|kill| kill.others.requests as f64),
        figure("slowest request of other shards", "s", &|kill| kill.others.slowest.as_secs_f64()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_slow_kill_loses_the_aim_and_a_run_that_broke_off_has_no_figure() {
        let kill = |was_leader, all_s, errors| Kill {
            was_leader,
            first_s: 0.5,
            all_s,
            lost: Told::default(),
            others: Told { errors, ..Told::default() },
        };
        let done = [kill(false, 0.8, 0), kill(false, 0.9, 0), kill(false, 1.1, 0), kill(true, 1.4, 0)];
        let met: Vec<bool> = judge(&done, None).iter().map(|judged| judged.is_met).collect();
        assert_eq!(met, [false, true, true]);
        let met: Vec<bool> = judge(&[kill(false, 1.0, 1)], None).iter().map(|judged| judged.is_met).collect();
        assert_eq!(met, [true, false, false]);
        assert!(judge(&done, Some("why")).iter().all(|judged| !judged.is_measured && judged.measured.contains("why")));
    }
}
