//! What clients ask of nodes: reads and writes of 1 KB, and reservations.

use std::net::SocketAddr;
use std::time::Duration;

use millrace_loadgen::{Expectation, HttpRequest, Plan, Report, RequestTemplate, run_together};
use serde_json::{Value, json};

use super::nodes::{Nodes, Setup, keys};
use crate::cells::Rounds;
use crate::transactions::workload::{App, Workload, post_all};
use crate::{Outcome, small};

/// Bytes of a value.
pub const VALUE_BYTES: usize = 1024;
/// Keys that a load writes, each equally likely.
pub const KEYS: usize = 3000;
/// Keys that a load reads.
const READ_KEYS: usize = 1000;
/// Letters before the keys of reads and of writes.
const READ: char = 'r';
const WRITTEN: char = 'w';
/// A value ends with so many equal letters. Before them, each write puts 36 of its own.
const TAIL_BYTES: usize = VALUE_BYTES - 36;
const AUDITED_KEYS: usize = 100;

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// A query of an entity of 1 KB.
    Read,
    /// A call that replaces the 1 KB of an entity.
    Write,
    /// A reservation; its entities are on shards of their own or on one.
    Hotel {
        /// On shards of their own.
        is_spread: bool,
    },
}

/// Which node a client asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// All clients ask the first node. It owns the shards of their keys.
    Owner,
    /// All clients ask the first node. All nodes own shards of their keys.
    First,
    /// The clients are spread over the nodes. Each node owns the shards of the keys that it is asked for.
    Owners,
    /// The clients are spread over the nodes. Any node owns the shards of the keys.
    All,
}

impl Work {
    /// The app that it needs.
    #[must_use]
    pub fn app(self) -> &'static str {
        match self {
            Self::Read | Self::Write => "store",
            Self::Hotel { .. } => "hotel",
        }
    }

    fn hotel(self) -> Option<Workload> {
        match self {
            Self::Hotel { is_spread } => Some(Workload::new(App::Hotel, is_spread)),
            Self::Read | Self::Write => None,
        }
    }
}

fn value_of(first: &str) -> String {
    format!("{first}{}", "v".repeat(TAIL_BYTES))
}

fn value_to_read() -> String {
    value_of(&"r".repeat(VALUE_BYTES - TAIL_BYTES))
}

/// The keys of one node's share of a load.
fn keys_at(nodes: &Nodes, work: Work, at: At, index: usize) -> Outcome<Vec<String>> {
    let (prefix, count) = if work == Work::Read { (READ, READ_KEYS) } else { (WRITTEN, KEYS) };
    match at {
        At::First | At::All => Ok(keys(prefix, count, |_| true)),
        At::Owner | At::Owners => {
            let owners = nodes.guidance(index)?.owners;
            let shares = if at == At::Owners { nodes.count() } else { 1 };
            Ok(keys(prefix, count.div_ceil(shares), |shard| owners[shard] == index))
        }
    }
}

/// Gives every entity that is read its value, or opens hotels and flights.
///
/// # Errors
/// If a node refuses it.
pub fn prepare(nodes: &Nodes, work: Work, at: At) -> Outcome<()> {
    match work {
        Work::Write => Ok(()),
        Work::Read => {
            let value = Value::String(value_to_read());
            let paths = keys_at(nodes, work, at, 0)?.into_iter().map(|key| format!("/call/store/{key}/put"));
            let paths: Vec<String> = paths.collect();
            let posts: Vec<(&str, Value)> = paths.iter().map(|path| (path.as_str(), value.clone())).collect();
            post_all(nodes.address(0), &posts)
        }
        Work::Hotel { .. } => work.hotel().map_or(Ok(()), |hotel| hotel.prepare_at(nodes.address(0))),
    }
}

/// Sends requests of `clients`, and checks every reply.
///
/// # Errors
/// If they cannot be sent.
pub fn load(nodes: &Nodes, setup: &Setup, rounds: &Rounds, (work, at, clients): (Work, At, usize)) -> Outcome<Report> {
    let asked = if matches!(at, At::Owners | At::All) { nodes.count() } else { 1 };
    let cpus = &setup.places.load;
    let mut plans = Vec::new();
    let mut first_cpu = 0;
    for index in 0..asked {
        let mut plan = plan(nodes, (work, at), index)?;
        let share = |whole: usize| whole / asked + usize::from(index < whole % asked);
        plan.connections = share(clients);
        plan.threads = share(cpus.len()).clamp(1, plan.connections.max(1));
        plan.cpus = (0..plan.threads).map(|thread| cpus[(first_cpu + thread) % cpus.len()]).collect();
        plan.duration = rounds.duration;
        plan.warm_up = rounds.warm_up;
        plan.timeout = Duration::from_secs(30);
        plan.server_pids = nodes.pids();
        first_cpu += plan.threads;
        plans.push(plan);
    }
    run_together(&plans, &mut |_| {}).map_err(|error| error.to_string())
}

fn plan(nodes: &Nodes, (work, at): (Work, At), index: usize) -> Outcome<Plan> {
    let address = nodes.address(index);
    if let Some(hotel) = work.hotel() {
        return hotel.plan_at("", address);
    }
    let keys = keys_at(nodes, work, at, index)?.join(",");
    let handler = if work == Work::Read { "get" } else { "put" };
    let url = format!("http://{address}/call/store/{{{{pick:{keys}}}}}/{handler}");
    let body = if work == Work::Read { "null".to_owned() } else { json!(value_of("{{uuid}}")).to_string() };
    let request = HttpRequest { method: "POST", url: &url, headers: &[], body: Some(&body) };
    let (request, ..) = RequestTemplate::http(&request).map_err(|error| error.to_string())?;
    let mut plan = Plan::new("", address, request);
    let expected = if work == Work::Read { json!(value_to_read()).to_string() } else { VALUE_BYTES.to_string() };
    plan.expectation = Expectation { statuses: vec![200], body: Some(expected.into_bytes()), ..Expectation::default() };
    Ok(plan)
}

/// Checks the state after the load, at every node: each answers with what somebody has written.
///
/// # Errors
/// If the state is wrong or cannot be read.
pub fn audit(nodes: &Nodes, work: Work, at: At) -> Outcome<()> {
    let failed = |error: String| format!("the audit failed: {error}");
    match work {
        Work::Read => Ok(()),
        Work::Write => {
            let keys = keys_at(nodes, work, at, 0)?;
            for index in 0..nodes.count() {
                audit_values(nodes.address(index), &keys).map_err(failed)?;
            }
            Ok(())
        }
        Work::Hotel { .. } => work.hotel().map_or(Ok(()), |hotel| hotel.audit_at(nodes.address(0))).map_err(failed),
    }
}

fn audit_values(address: SocketAddr, keys: &[String]) -> Outcome<()> {
    let mut found = 0;
    for key in keys.iter().take(AUDITED_KEYS) {
        let (status, reply) = small::http(address, "POST", &format!("/call/store/{key}/get"), "null")?;
        let value: Value = serde_json::from_str(&reply).unwrap_or_default();
        match value.as_str() {
            Some(text) if text.len() == VALUE_BYTES && text.ends_with(&value_of("")) => found += 1,
            None if status == 200 && value.is_null() => {}
            _ => return Err(format!("{key} gave {status}: {reply}")),
        }
    }
    if found > 0 { Ok(()) } else { Err("no key has a value".to_owned()) }
}
