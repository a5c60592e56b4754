//! The load of each example: its first state, the request with its changing parts, and the audit after all replies.

use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use millrace_loadgen::{Expectation, HttpRequest, Plan, RequestTemplate};
use serde_json::{Value, json};

use crate::contest::{Contestant, Load};
use crate::server::{Kind, Server, Setup};
use crate::{Outcome, small};

/// Keys of the examples that draw a key for each request, all equally likely.
pub const KEYS: usize = 100_000;
/// Hotels, and as many flights.
pub const HOTELS: usize = 100;
/// Users of the media example.
pub const USERS: usize = 100;
/// Movies of the media example.
pub const TITLES: usize = 1000;
/// Groups of hotels, flights, users and movies. A request stays within one group. So a group can lie on one shard or
/// on several, with the same contention.
const GROUPS: usize = 10;
/// Capacity of each hotel and flight, so that none is ever full.
const CAPACITY: u64 = 1_000_000_000;
/// First balance of each of the ten accounts, so that no transfer lacks funds.
const BALANCE: u64 = 1_000_000_000_000;
const ACCOUNTS: u64 = 10;
/// The length of a review.
const TEXT_CHARACTERS: usize = 256;
/// Concurrent connections of the preparation.
const PREPARERS: usize = 8;
/// Keys that the audit of `tree` reads.
const AUDITED_KEYS: usize = 50;

/// The example.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum App {
    /// One counter, called by its handler.
    Counter,
    /// One counter, called by a route.
    Single,
    /// Three entities, one calls the next.
    Chain,
    /// Two entities, called in parallel.
    Tree,
    /// A hotel, a flight and the flight's orders.
    Hotel,
    /// A user, a movie, and three places for a review.
    Media,
    /// Two of ten accounts.
    Hot,
}

/// One example with one way of calling it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Workload {
    /// The example.
    pub app: App,
    /// Its requests go to `echo`, which touches no state.
    pub is_echo: bool,
    /// Each request has an idempotency key of its own.
    pub is_keyed: bool,
    /// The entities of one request lie on separate shards, not on one.
    pub is_spread: bool,
}

impl Workload {
    /// Without a key.
    #[must_use]
    pub fn new(app: App, is_spread: bool) -> Self {
        Self { app, is_echo: false, is_keyed: false, is_spread }
    }

    /// With a key.
    #[must_use]
    pub fn keyed(self) -> Self {
        Self { is_keyed: true, ..self }
    }

    /// The folder of its example.
    #[must_use]
    pub fn folder(&self) -> &'static str {
        if self.is_echo {
            return "echo";
        }
        match self.app {
            App::Counter => "counter",
            App::Single => "single",
            App::Chain => "chain",
            App::Tree => "tree",
            App::Hotel => "hotel",
            App::Media => "media",
            App::Hot => "hot",
        }
    }

    fn path(&self) -> &'static str {
        if self.is_echo {
            return "/echo/req";
        }
        match self.app {
            App::Counter => "/call/counter/k{{uniform:0:100000}}/add",
            App::Single => "/single/req",
            App::Chain => "/chain/req",
            App::Tree => "/tree/req",
            App::Hotel => "/hotel/reserve",
            App::Media => "/media/compose",
            App::Hot => "/hot/transfer",
        }
    }

    /// A name within a group. With braces around the group's name, all of the group is on one shard.
    fn name(&self, group: &str, kind: &str, number: &str) -> String {
        if self.is_spread { format!("g{group}{kind}{number}") } else { format!("{{g{group}}}{kind}{number}") }
    }

    fn body(&self) -> String {
        let uniform = |count: usize| format!("{{{{uniform:0:{count}}}}}");
        let key = format!("k{}", uniform(KEYS));
        // The first occurrence draws a group, and later ones recall it.
        let first = format!("{{{{group=uniform:0:{GROUPS}}}}}");
        let again = "{{$group}}";
        match self.app {
            App::Counter => "1".to_owned(),
            App::Single => format!(r#"{{"key":"{key}"}}"#),
            App::Chain if self.is_spread => format!(r#"{{"key":"{key}","spread":true}}"#),
            App::Chain => format!(r#"{{"key":"{key}"}}"#),
            App::Tree if self.is_spread => format!(r#"{{"key":"{key}"}}"#),
            App::Tree => format!(r#"{{"key":"{{{key}}}"}}"#),
            App::Hotel => {
                let flight = self.name(&first, "f", &uniform(HOTELS / GROUPS));
                let hotel = self.name(again, "h", &uniform(HOTELS / GROUPS));
                format!(r#"{{"user":"user{}","flight":"{flight}","hotel":"{hotel}"}}"#, uniform(1_000_000))
            }
            App::Media => {
                let user = self.name(&first, "u", &uniform(USERS / GROUPS));
                let title = self.name(again, "m", &uniform(TITLES / GROUPS));
                let text = "x".repeat(TEXT_CHARACTERS);
                let rest = format!(r#""rating":7,"text":"{text}""#);
                format!(r#"{{"username":"{user}","password":"secret","title":"{title}",{rest}}}"#)
            }
            App::Hot => {
                let (from, distance) = (uniform(10), "{{uniform:1:10}}");
                format!(r#"{{"from":{from},"distance":{distance},"amount":1}}"#)
            }
        }
    }

    /// The text that a right reply contains.
    fn mark(&self) -> Option<&'static str> {
        match self.app {
            _ if self.is_echo => Some("\""),
            App::Counter | App::Single => None,
            App::Chain => Some("[["),
            App::Tree => Some("["),
            App::Hotel => Some("[true,"),
            App::Media => Some("\""),
            App::Hot => Some("\"from\":"),
        }
    }

    fn audit_once(&self, address: SocketAddr) -> Outcome<()> {
        match self.app {
            App::Counter | App::Single | App::Chain => Ok(()),
            App::Tree => (0..AUDITED_KEYS).try_for_each(|number| {
                let key = if self.is_spread { format!("k{number}") } else { format!("%7Bk{number}%7D") };
                let counters = get(address, &format!("/tree/counters?key={key}"))?;
                if counters[0] == counters[1] { Ok(()) } else { Err(format!("the counters of {key} are {counters}")) }
            }),
            App::Hotel => {
                let audit = get(address, "/hotel/audit")?;
                let taken = |what: &str| -> u64 {
                    let left = audit[what].as_object().into_iter().flatten();
                    left.map(|(_, left)| CAPACITY.saturating_sub(left.as_u64().unwrap_or(0))).sum()
                };
                let (orders, rooms, seats) = (audit["orders"].as_u64(), taken("hotels"), taken("flights"));
                let is_right =
                    orders.is_some() && orders == Some(rooms) && orders == Some(seats) && audit["locks"] == 0;
                let told =
                    || format!("{rooms} rooms, {seats} seats, orders {}, locks {}", audit["orders"], audit["locks"]);
                if is_right { Ok(()) } else { Err(told()) }
            }
            App::Media => {
                let audit = get(address, "/media/audit")?;
                let is_right = audit["pending"] == 0 && audit["reviews"] == audit["by_user"];
                if is_right { Ok(()) } else { Err(format!("the audit says {audit}")) }
            }
            App::Hot => {
                let total = &get(address, "/hot/total")?["total"];
                if *total == ACCOUNTS * BALANCE { Ok(()) } else { Err(format!("the accounts hold {total} together")) }
            }
        }
    }
}

impl Workload {
    /// The load generator's plan for the node at `address`.
    ///
    /// # Errors
    /// If the request cannot be built.
    pub fn plan_at(&self, name: &str, address: SocketAddr) -> Outcome<Plan> {
        let url = format!("http://{address}{}", self.path());
        let headers: &[String] = if self.is_keyed { &["Idempotency-Key: {{uuid}}".to_owned()] } else { &[] };
        let body = self.body();
        let request = HttpRequest { method: "POST", url: &url, headers, body: Some(&body) };
        let (request, ..) = RequestTemplate::http(&request).map_err(|error| error.to_string())?;
        let mut plan = Plan::new(name, address, request);
        plan.expectation = Expectation {
            statuses: vec![200],
            body_contains: self.mark().map(|mark| mark.as_bytes().to_vec()),
            ..Expectation::default()
        };
        plan.timeout = Duration::from_secs(30);
        Ok(plan)
    }

    /// Makes the first state, through the node at `address`.
    ///
    /// # Errors
    /// If the node refuses a request.
    pub fn prepare_at(&self, address: SocketAddr) -> Outcome<()> {
        let mut posts: Vec<(&str, Value)> = Vec::new();
        let numbered = |count: usize| (0..count).map(move |at| ((at % GROUPS).to_string(), (at / GROUPS).to_string()));
        match self.app {
            _ if self.is_echo => {}
            App::Hotel => {
                for (group, number) in numbered(HOTELS) {
                    let (hotel, flight) = (self.name(&group, "h", &number), self.name(&group, "f", &number));
                    posts.push(("/hotel/add_hotel", json!({"id": hotel, "capacity": CAPACITY})));
                    posts.push(("/hotel/add_flight", json!({"id": flight, "capacity": CAPACITY})));
                }
            }
            App::Media => {
                for (group, number) in numbered(USERS) {
                    let user = self.name(&group, "u", &number);
                    posts.push(("/media/register_user", json!({"username": user, "password": "secret"})));
                }
                for (group, number) in numbered(TITLES) {
                    let title = self.name(&group, "m", &number);
                    posts.push(("/media/register_movie", json!({"title": title, "id": title})));
                }
            }
            App::Hot => {
                for account in 0..ACCOUNTS {
                    let body = json!({"account": format!("account{account}"), "balance": BALANCE});
                    posts.push(("/hot/open", body));
                }
            }
            App::Counter | App::Single | App::Chain | App::Tree => {}
        }
        post_all(address, &posts)
    }

    /// Checks the state at the node after all replies have arrived.
    ///
    /// # Errors
    /// If the state is wrong or cannot be read.
    pub fn audit_at(&self, address: SocketAddr) -> Outcome<()> {
        if self.is_echo {
            return Ok(());
        }
        // Requests of the ended load may still run.
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            match self.audit_once(address) {
                Err(_) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(100)),
                outcome => return outcome,
            }
        }
    }
}

impl Load for Workload {
    fn plan(&self, name: &str, server: &Server) -> Outcome<Plan> {
        Ok(Plan { server_pids: server.pids(), ..self.plan_at(name, server.address)? })
    }

    fn prepare(&self, server: &Server, _setup: &Setup) -> Outcome<()> {
        self.prepare_at(server.address)
    }

    fn audit(&self, address: SocketAddr) -> Outcome<()> {
        self.audit_at(address)
    }
}

impl Contestant {
    /// Millrace on one core.
    #[must_use]
    pub fn millrace(name: &str, durability: &'static str, workload: Workload, connections: usize) -> Self {
        let kind = Kind::Millrace { app: workload.folder(), durability, cores: 1 };
        Self { name: name.to_owned(), kind, workload: Rc::new(workload), connections, cpus: None }
    }
}

/// A GET whose reply is JSON.
///
/// # Errors
/// If the reply is not 200 with JSON.
pub fn get(address: SocketAddr, path: &str) -> Outcome<Value> {
    let (status, body) = small::http(address, "GET", path, "")?;
    if status != 200 {
        return Err(format!("GET {path} gave {status}: {body}"));
    }
    serde_json::from_str(&body).map_err(|error| format!("GET {path} gave {body:?}: {error}"))
}

/// A metric of the server.
///
/// # Errors
/// If the server has no such metric.
pub fn metric(address: SocketAddr, name: &str) -> Outcome<f64> {
    let (_, metrics) = small::http(address, "GET", "/metrics", "")?;
    let line = metrics.lines().find(|line| line.split([' ', '{']).next() == Some(name));
    let value = line.and_then(|line| line.split_whitespace().last()?.parse().ok());
    value.ok_or_else(|| format!("the server does not tell {name}"))
}

/// Sends a few requests at a time, because each one alone waits for a sync.
pub(crate) fn post_all(address: SocketAddr, posts: &[(&str, Value)]) -> Outcome<()> {
    let post = |(path, body): &(&str, Value)| -> Outcome<()> {
        let (status, reply) = small::http(address, "POST", path, &body.to_string())?;
        if status < 300 { Ok(()) } else { Err(format!("POST {path} {body} gave {status}: {reply}")) }
    };
    let share = posts.len().div_ceil(PREPARERS).max(1);
    std::thread::scope(|scope| {
        let run = |share| scope.spawn(move || -> Outcome<()> { <[_]>::iter(share).try_for_each(post) });
        let threads: Vec<_> = posts.chunks(share).map(run).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, Outcome<()>>| {
            thread.join().unwrap_or_else(|_| Err("a thread that prepares panicked".to_owned()))
        };
        threads.into_iter().try_for_each(join)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_body_is_a_template_of_json() {
        for app in [App::Counter, App::Single, App::Chain, App::Tree, App::Hotel, App::Media, App::Hot] {
            for is_spread in [false, true] {
                let body = Workload::new(app, is_spread).body();
                let request =
                    HttpRequest { method: "POST", url: "http://127.0.0.1:1/", headers: &[], body: Some(&body) };
                RequestTemplate::http(&request).unwrap();
                // Template parts stand for numbers or for characters of strings.
                let filled = body.replace("{{group=uniform:0:10}}", "1").replace("{{$group}}", "1");
                let filled = filled.replace("{{uniform:0:100000}}", "2").replace("{{uniform:0:1000000}}", "3");
                let filled = filled.replace("{{uniform:0:10}}", "4").replace("{{uniform:0:100}}", "5");
                let filled = filled.replace("{{uniform:1:10}}", "6");
                serde_json::from_str::<Value>(&filled).unwrap_or_else(|error| panic!("{filled}: {error}"));
            }
        }
    }
}
