//! Promises 3 and 5: exactly once, and recovers alone. The server is killed with `kill -9` again and again while
//! clients work. Each client remembers what it was told, and the test compares the server with it.
//!
//! `MILLRACE_TEST_KILLS` is the number of kills (8 in a normal run).

use std::collections::HashSet;

use millrace_tests::{Client, Load, Server, ServerOptions, Shared, TestApp, number_from_env, wait_until};
use serde_json::json;

const CLIENTS: u64 = 6;

/// The least number of acknowledged calls between two kills. So each start of the server does real work.
const CALLS_PER_LIFE: u64 = 150;

fn kills() -> u64 {
    number_from_env("MILLRACE_TEST_KILLS", 8) as u64
}

/// Kills and restarts the server under this load. `before_restart` may change its options.
fn kill_again_and_again<T: Send + 'static>(
    load: &Load<T>,
    server: &mut Server,
    times: u64,
    before_restart: impl Fn(&mut Server, u64),
) {
    for life in 0..times {
        // The kills hit different places of the work, the same places in each run of the test.
        load.wait_for(CALLS_PER_LIFE + life * 37 % 100);
        server.kill();
        before_restart(server, life);
        server.restart();
    }
}

/// Acknowledged increments, and increments that were never answered.
#[derive(Default)]
struct Tally {
    acknowledged: u64,
    unanswered: u64,
}

/// Increments a key that this client alone writes, and a key that all clients share.
fn count_without_keys(number: u64, shared: &Shared) -> (Tally, Tally) {
    let mut client = Client::new(shared);
    let mut own = Tally::default();
    let mut common = Tally::default();
    let (add, value) = (format!("/call/counter/own{number}/add"), format!("/call/counter/own{number}/value"));
    while !client.stops() {
        match client.once("POST", &add, &[], "1") {
            Some(reply) if reply.status == 200 => {
                own.acknowledged += 1;
                assert_eq!(reply.json(), own.acknowledged, "an increment was lost or made twice");
                client.acknowledged();
            }
            Some(reply) => assert_eq!(reply.status, 503, "{}", reply.text()),
            None => {
                // The value shows whether the increment took effect. Nothing else may have happened to it.
                let found = client.value(&value, "null").as_u64().expect("a number");
                let most = own.acknowledged + 1;
                assert!((own.acknowledged..=most).contains(&found), "{found} is not {} or {most}", own.acknowledged);
                own.unanswered += most - found;
                own.acknowledged = found;
            }
        }
        match client.once("POST", "/call/counter/common/add", &[], "1") {
            Some(reply) if reply.status == 200 => common.acknowledged += 1,
            Some(reply) => assert_eq!(reply.status, 503, "{}", reply.text()),
            None => common.unanswered += 1,
        }
    }
    (own, common)
}

#[test]
fn without_keys_a_counter_holds_the_acknowledged_increments_and_at_most_the_unanswered_ones() {
    let mut server = Server::start(ServerOptions::examples(&["counter"]));
    let load = Load::start(&server, CLIENTS, count_without_keys);
    kill_again_and_again(&load, &mut server, kills(), |_, _| {});
    let tallies = load.finish();
    let sum = |of: fn(&Tally) -> u64| tallies.iter().map(|(_, common)| of(common)).sum::<u64>();
    let (acknowledged, unanswered) = (sum(|tally| tally.acknowledged), sum(|tally| tally.unanswered));
    let found = server.value("counter/common/value", "null").as_u64().expect("a number");
    println!("{acknowledged} acknowledged, {unanswered} unanswered, {found} found");
    assert!((acknowledged..=acknowledged + unanswered).contains(&found));
    for (number, (own, _)) in tallies.iter().enumerate() {
        assert_eq!(server.value(&format!("counter/own{number}/value"), "null"), own.acknowledged);
    }
}

/// Increments with idempotency keys, each until it is answered. Now and then it repeats an answered one. Returns the
/// replies of the shared counter.
fn count_with_keys(number: u64, shared: &Shared) -> (u64, Vec<u64>) {
    let mut client = Client::new(shared);
    let own = format!("/call/counter/own{number}/add");
    let mut replies = Vec::new();
    let mut calls = 0u64;
    while !client.stops() {
        let header = format!("Idempotency-Key: own-{number}-{calls}");
        let reply = client.until_answered("POST", &own, &[&header], "1");
        assert_eq!((reply.status, reply.text()), (200, (calls + 1).to_string()), "call {calls}");
        let header = format!("Idempotency-Key: common-{number}-{calls}");
        let reply = client.until_answered("POST", "/call/counter/common/add", &[&header], "1");
        assert_eq!(reply.status, 200, "{}", reply.text());
        replies.push(reply.json().as_u64().expect("a number"));
        calls += 1;
        client.acknowledged();
        if calls.is_multiple_of(5) {
            let again = calls * calls % 97 % calls;
            let header = format!("Idempotency-Key: common-{number}-{again}");
            let reply = client.until_answered("POST", "/call/counter/common/add", &[&header], "1");
            assert_eq!(reply.json(), replies[again as usize], "the retry got another reply than the first one");
        }
    }
    (calls, replies)
}

fn check_counted_with_keys(server: &Server, tallies: &[(u64, Vec<u64>)]) {
    let mut distinct = HashSet::new();
    for (number, (calls, replies)) in tallies.iter().enumerate() {
        assert_eq!(server.value(&format!("counter/own{number}/value"), "null"), *calls);
        assert!(replies.iter().all(|reply| distinct.insert(*reply)), "two calls got the same reply");
    }
    let calls: u64 = tallies.iter().map(|(calls, _)| calls).sum();
    println!("{calls} acknowledged");
    assert_eq!(server.value("counter/common/value", "null"), calls);
    assert_eq!(distinct.len() as u64, calls);
    assert_eq!(distinct.iter().max(), Some(&calls));
}

#[test]
fn with_keys_a_counter_holds_exactly_the_acknowledged_increments_and_retries_get_the_first_reply() {
    let mut server = Server::start(ServerOptions::examples(&["counter"]));
    let load = Load::start(&server, CLIENTS, count_with_keys);
    kill_again_and_again(&load, &mut server, kills(), |_, _| {});
    let tallies = load.finish();
    check_counted_with_keys(&server, &tallies);
    for (number, (calls, replies)) in tallies.iter().enumerate().filter(|(_, (calls, _))| *calls > 0) {
        let header = format!("Idempotency-Key: common-{number}-{}", calls - 1);
        let reply = server.request("POST", "/call/counter/common/add", &[&header], b"1");
        assert_eq!(reply.json(), replies[*calls as usize - 1], "after the last restart");
    }
}

#[test]
fn the_same_holds_when_the_number_of_cores_changes_at_every_restart() {
    let mut server = Server::start(ServerOptions::examples(&["counter"]));
    let load = Load::start(&server, CLIENTS, count_with_keys);
    kill_again_and_again(&load, &mut server, kills().div_ceil(2), |server, life| {
        server.options().set("--cores", ["1", "3", "2", "5"][life as usize % 4]);
    });
    check_counted_with_keys(&server, &load.finish());
}

/// Sends increments from outside, and lets a handler send three from inside, to other shards.
fn send(number: u64, shared: &Shared) -> (Vec<String>, u64) {
    let mut client = Client::new(shared);
    let (path, relay) = (format!("/send/ledger/sent{number}/received"), format!("/call/ledger/relay{number}/relay"));
    let targets = json!([0, 1, 2].map(|target| format!("target{number}-{target}"))).to_string();
    let (mut ids, mut relays) = (Vec::new(), 0u64);
    while !client.stops() {
        let header = format!("Idempotency-Key: send-{number}-{relays}");
        let reply = client.until_answered("POST", &path, &[&header], "");
        assert_eq!(reply.status, 202, "{}", reply.text());
        ids.push(reply.json()["id"].as_str().expect("an id").to_owned());
        let header = format!("Idempotency-Key: relay-{number}-{relays}");
        let reply = client.until_answered("POST", &relay, &[&header], &targets);
        relays += 1;
        assert_eq!((reply.status, reply.text()), (200, relays.to_string()));
        client.acknowledged();
    }
    (ids, relays)
}

#[test]
fn a_sent_message_takes_effect_exactly_once() {
    let mut server = Server::start(ServerOptions::examples(&[]).and_test_apps(&["ledger"]));
    let load = Load::start(&server, CLIENTS, send);
    kill_again_and_again(&load, &mut server, kills().div_ceil(2), |_, _| {});
    let tallies = load.finish();
    let check = |server: &Server| {
        for (number, (ids, relays)) in tallies.iter().enumerate() {
            assert_eq!(server.value(&format!("ledger/sent{number}/seen"), ""), ids.len(), "client {number}");
            for target in 0..3 {
                assert_eq!(server.value(&format!("ledger/target{number}-{target}/seen"), ""), *relays);
            }
        }
    };
    let mut connection = server.connect();
    for (number, (ids, relays)) in tallies.iter().enumerate() {
        for id in ids {
            wait_until("the sent call has ended", || {
                let reply = connection.request("GET", &format!("/invocations/{id}"), &[], b"").expect("a reply");
                assert_eq!(reply.status, 200, "{}", reply.text());
                assert_ne!(reply.json()["status"], "failed", "{}", reply.text());
                reply.json()["status"] == "succeeded"
            });
        }
        for target in 0..3 {
            let seen = || server.value(&format!("ledger/target{number}-{target}/seen"), "").as_u64().unwrap_or(0);
            wait_until("the messages have arrived", || seen() >= *relays);
        }
    }
    check(&server);
    // A message that a restart would deliver once more is delivered before the server answers what it has seen.
    server.kill();
    server.restart();
    check(&server);
    assert!(server.stop());
    server.restart();
    check(&server);
}

const ACCOUNTS: u64 = 12;
const OPENED_WITH: u64 = 1000;

fn account(number: u64) -> String {
    format!("{{bank}}{number}")
}

fn path_of(number: u64, handler: &str) -> String {
    format!("/call/ledger/%7Bbank%7D{number}/{handler}")
}

fn transfer(number: u64, shared: &Shared) {
    let mut client = Client::new(shared);
    let all = json!((0..ACCOUNTS).map(account).collect::<Vec<_>>()).to_string();
    let mut step = number;
    while !client.stops() {
        // Any sequence works that differs between the clients and is the same in each run.
        step = step.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let (from, to) = ((step >> 33) % ACCOUNTS, (step >> 43) % ACCOUNTS);
        if from == to {
            continue;
        }
        let input = json!({ "to": account(to), "amount": (step >> 53) % 300 }).to_string();
        if let Some(reply) = client.once("POST", &path_of(from, "transfer"), &[], &input) {
            assert!([200, 409, 503].contains(&reply.status), "{}", reply.text());
            client.acknowledged();
        }
        if let Some(reply) = client.once("POST", &path_of(0, "total"), &[], &all)
            && reply.status != 503
        {
            assert_eq!(reply.text(), (ACCOUNTS * OPENED_WITH).to_string(), "money was made or lost");
        }
    }
}

#[test]
fn transfers_are_atomic_at_every_moment_and_through_every_crash() {
    let mut server = Server::start(ServerOptions::examples(&[]).and_test_apps(&["ledger"]));
    for number in 0..ACCOUNTS {
        let path = format!("ledger/%7Bbank%7D{number}/open");
        assert_eq!(server.value(&path, &OPENED_WITH.to_string()), OPENED_WITH);
    }
    let load = Load::start(&server, CLIENTS, transfer);
    kill_again_and_again(&load, &mut server, kills().div_ceil(2), |_, _| {});
    load.finish();
    let balance = |number| server.value(&format!("ledger/%7Bbank%7D{number}/balance"), "").as_u64().expect("a number");
    let balances: Vec<u64> = (0..ACCOUNTS).map(balance).collect();
    println!("{balances:?}");
    assert_eq!(balances.iter().sum::<u64>(), ACCOUNTS * OPENED_WITH);
    assert!(balances.iter().any(|balance| *balance != OPENED_WITH), "nothing was transferred");
}

#[test]
fn an_app_that_was_deployed_is_there_after_a_kill() {
    let mut server = Server::start(ServerOptions::examples(&[]));
    for version in 1..=kills().div_ceil(2) {
        let source = format!(
            "import {{ service, query }} from 'millrace';
             export default service({{
               version: query(() => {version}),
               count(ctx) {{ const n = (ctx.get('n') ?? 0) + 1; ctx.set('n', n); return n; }},
             }});"
        );
        let reply = TestApp::with("shop.ts", &source).deploy(&server, "shop");
        assert!([200, 201].contains(&reply.status), "{}", reply.text());
        server.kill();
        server.restart();
        assert_eq!(server.value("shop/k/version", ""), version);
        assert_eq!(server.value("shop/k/count", ""), version);
    }
}
