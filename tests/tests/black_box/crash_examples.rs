//! Promises 1 to 5 on the bundled examples. Clients work, with idempotency keys and without. Meanwhile the server is
//! killed with `kill -9` at random moments, and restarted with another number of cores each time. The history
//! checker judges what every client asked and was told.
//!
//! `MILLRACE_TEST_KILLS` is the number of kills in each test (4 in a normal run). `MILLRACE_TEST_SEED` chooses the
//! moments.

use std::collections::{BTreeMap, BTreeSet};
use std::thread::sleep;
use std::time::Duration;

use millrace_history::{Access, Fact, Found, Recorder, Value as Element};
use millrace_tests::crash::{self, CLIENTS, Caller, is_free, kills, list, number, run, run_through, settle, start};
use millrace_tests::{Server, ServerOptions, TestApp, wait_until};
use serde_json::{Value, json};

/// The number of clients that transfer: as many as the checker of banks decides for certain.
const BANK_CLIENTS: u64 = 10;

fn judge(recorder: &Recorder, name: &str) {
    crash::judge(recorder, name, env!("CARGO_TARGET_TMPDIR"));
}

const KEYS: [&str; 3] = ["a", "b", "c"];

#[test]
fn single_counts_each_call_once() {
    let mut server = start("single");
    let recorder = Recorder::new();
    let (kept, _) = run(&mut server, &recorder, CLIENTS, |caller| {
        while !caller.stops() {
            let key = caller.pick(&KEYS);
            caller.post([Access::increment(key)], "/single/req", &json!({ "key": key }), |reply| vec![number(reply)]);
        }
    });
    settle(&server, &recorder, &kept);
    let count = |key: &&str| server.value(&format!("single/{key}/count"), "").as_i64().expect("a number");
    recorder.note(Fact::Counters(KEYS.iter().map(|key| ((*key).to_owned(), count(key))).collect()));
    for key in KEYS {
        assert_eq!(is_free(&server, "/single/req", &json!({ "key": key })).status, 200);
    }
    judge(&recorder, "single");
}

#[test]
fn counter_counts_each_call_once() {
    let mut server = start("counter");
    let recorder = Recorder::new();
    let (kept, _) = run(&mut server, &recorder, CLIENTS, |caller| {
        while !caller.stops() {
            let key = caller.pick(&KEYS);
            if caller.random.below(4) == 0 {
                let path = format!("/call/counter/{key}/value");
                caller.query([Access::count(key)], &path, |reply| vec![number(reply)]);
                continue;
            }
            // The reply is the count with this increment.
            caller.post([Access::increment(key)], &format!("/call/counter/{key}/add"), &json!(1), |reply| {
                vec![Found::Number(reply.as_i64().expect("a whole number") - 1)]
            });
        }
    });
    settle(&server, &recorder, &kept);
    let value = |key: &&str| server.value(&format!("counter/{key}/value"), "").as_i64().expect("a number");
    recorder.note(Fact::Counters(KEYS.iter().map(|key| ((*key).to_owned(), value(key))).collect()));
    for key in KEYS {
        assert_eq!(is_free(&server, &format!("/call/counter/{key}/add"), &json!(1)).status, 200);
    }
    judge(&recorder, "counter");
}

#[test]
fn chain_counts_each_call_once_on_one_shard_and_on_three() {
    let mut server = start("chain");
    let recorder = Recorder::new();
    let backend = |key: &str, spread: bool| if spread { format!("{key}/caller2/backend") } else { key.to_owned() };
    let (kept, _) = run(&mut server, &recorder, CLIENTS, move |caller| {
        while !caller.stops() {
            let (key, spread) = (caller.pick(&KEYS), caller.random.below(2) == 1);
            let step = Access::increment(backend(key, spread));
            caller.post([step], "/chain/req", &json!({ "key": key, "spread": spread }), |reply| {
                vec![number(&reply[0][0])]
            });
        }
    });
    settle(&server, &recorder, &kept);
    let mut counters = BTreeMap::new();
    for (key, spread) in KEYS.iter().flat_map(|key| [(key, false), (key, true)]) {
        let name = backend(key, spread);
        let path = format!("/state/chain_backend/{}/count", name.replace('/', "%2F"));
        counters.insert(name, server.get(&path).as_i64().expect("a number"));
        assert_eq!(is_free(&server, "/chain/req", &json!({ "key": key, "spread": spread })).status, 200);
    }
    recorder.note(Fact::Counters(counters));
    judge(&recorder, "chain");
}

#[test]
fn tree_counts_in_both_services_or_in_none() {
    let mut server = start("tree");
    let recorder = Recorder::new();
    let both = |reply: &Value| vec![number(&reply[0]), number(&reply[1])];
    let names = |key: &str| [format!("1/{key}"), format!("2/{key}")];
    let (kept, _) = run(&mut server, &recorder, CLIENTS, move |caller| {
        while !caller.stops() {
            let key = caller.pick(&KEYS);
            if caller.random.below(4) == 0 {
                caller.get(names(key).map(Access::count), &format!("/tree/counters?key={key}"), both);
            } else {
                caller.post(names(key).map(Access::increment), "/tree/req", &json!({ "key": key }), both);
            }
        }
    });
    settle(&server, &recorder, &kept);
    let mut counters = BTreeMap::new();
    for key in KEYS {
        let found = server.get(&format!("/tree/counters?key={key}"));
        assert_eq!(found[0], found[1], "{key}");
        for (name, count) in names(key).into_iter().zip(found.as_array().expect("two")) {
            counters.insert(name, count.as_i64().expect("a number"));
        }
        assert_eq!(is_free(&server, "/tree/req", &json!({ "key": key })).json(), found);
    }
    recorder.note(Fact::Counters(counters));
    judge(&recorder, "tree");
}

const LISTS: [&str; 3] = ["front end", "service1", "service2"];

fn append_and_read(item: i64) -> impl Iterator<Item = Access> {
    LISTS.into_iter().map(move |name| Access::append(name, item)).chain(LISTS.map(Access::read_list))
}

fn lists_of(reply: &Value) -> Vec<Found> {
    (0..3).map(|index| list(&reply[index])).collect()
}

fn assert_refused(caller: &mut Caller<'_>, how: &str, item: i64) {
    let path = format!("/compose/append-{how}");
    let reply = caller.post_or_be_refused(append_and_read(item), &path, &json!(item), |_| Vec::new());
    assert_eq!(reply, None, "{item} should have been refused by {path}");
}

#[test]
fn compose_appends_to_all_lists_or_to_none_in_one_order() {
    let mut server = start("compose");
    let recorder = Recorder::new();
    let (kept, _) = run(&mut server, &recorder, CLIENTS, |caller| {
        while !caller.stops() {
            // Each reply holds the whole lists.
            sleep(Duration::from_millis(10));
            let item = 1000 + i64::try_from(caller.calls * CLIENTS + caller.number).expect("small");
            match caller.random.below(8) {
                0 | 1 => caller.get(LISTS.map(Access::read_list), "/compose/lists", lists_of),
                // Refused after service2 has appended, so this item must never be seen.
                2 => assert_refused(caller, "callee-throws", item),
                // The front end throws, for up to 10, when all three have appended. This item must never be seen
                // either.
                3 => assert_refused(caller, "user-abort", -item),
                choice => {
                    let path = ["/compose/append", "/compose/append-user-abort"][usize::from(choice == 4)];
                    caller.post(append_and_read(item), path, &json!(item), |reply| {
                        [vec![Found::Done; 3], lists_of(reply)].concat()
                    });
                }
            }
        }
    });
    settle(&server, &recorder, &kept);
    let lists = server.get("/compose/lists");
    recorder.client().invoke(LISTS.map(Access::read_list)).ok(lists_of(&lists));
    println!("{} items", lists[0].as_array().expect("a list").len());
    assert_eq!(lists[0], lists[1]);
    assert_eq!(lists[0], lists[2]);
    assert_eq!(is_free(&server, "/compose/append", &json!(5)).status, 200);
    judge(&recorder, "compose");
}

fn stocks(audit: &Value) -> BTreeMap<String, BTreeMap<String, i64>> {
    let left = |of: &str| {
        let stocks = audit[of].as_object().expect("stocks").iter();
        stocks.map(|(id, left)| (id.clone(), left.as_i64().expect("a number"))).collect()
    };
    BTreeMap::from([("hotel".to_owned(), left("hotels")), ("flight".to_owned(), left("flights"))])
}

#[test]
fn hotel_has_as_many_orders_as_successes_and_as_both_decrements() {
    let mut server = start("hotel");
    let (hotels, flights) = (["ritz", "savoy", "tiny"], ["LH1", "LH2", "jet"]);
    for (what, ids) in [("hotel", hotels), ("flight", flights)] {
        for (id, capacity) in ids.into_iter().zip([100_000, 100_000, 25]) {
            let body = json!({ "id": id, "capacity": capacity });
            assert_eq!(is_free(&server, &format!("/hotel/add_{what}"), &body).status, 200);
        }
    }
    let before = stocks(&server.get("/hotel/audit"));
    let recorder = Recorder::new();
    let (kept, _) = run(&mut server, &recorder, CLIENTS, move |caller| {
        while !caller.stops() {
            if caller.random.below(20) == 0 {
                if let Some(reply) = caller.client.once("GET", "/hotel/audit", &[], "") {
                    assert!([200, 503].contains(&reply.status), "{}", reply.text());
                    assert!(reply.status == 503 || reply.json()["locks"] == 0, "in the middle: {}", reply.text());
                }
                continue;
            }
            let (hotel, flight) = (caller.pick(&hotels), caller.pick(&flights));
            let body = json!({ "user": format!("u{}", caller.number), "hotel": hotel, "flight": flight });
            let step = Access::reserve([("hotel", hotel), ("flight", flight)]);
            caller.post([step], "/hotel/reserve", &body, |reply| {
                vec![Found::Accepted(reply[0].as_bool().expect("true or false"))]
            });
        }
    });
    settle(&server, &recorder, &kept);
    let audit = server.get("/hotel/audit");
    println!("{audit}");
    assert_eq!(audit["locks"], 0);
    let orders = audit["orders"].as_i64().expect("a number");
    recorder.note(Fact::Stocks { before, left: stocks(&audit), orders });
    for (hotel, flight) in hotels.into_iter().zip(flights) {
        is_free(&server, "/hotel/reserve", &json!({ "user": "last", "hotel": hotel, "flight": flight }));
    }
    judge(&recorder, "hotel");
}

/// The ids of the reviews in each of the three stores.
fn reviews(server: &Server, users: &[String]) -> BTreeMap<String, Vec<Element>> {
    let mut connection = server.connect();
    let mut stores: BTreeMap<String, Vec<Element>> = BTreeMap::new();
    for bucket in 0..256 {
        let path = format!("/state/media_review/{bucket:02x}");
        let reply = connection.request("GET", &path, &[], b"").expect("a reply");
        let fields = reply.json();
        let names = fields.as_object().into_iter().flatten().filter_map(|(name, _)| name.strip_prefix("review/"));
        stores.entry("reviews".into()).or_default().extend(names.map(Element::from));
    }
    for (service, keys) in [("media_user_review", users), ("media_movie_review", &["m0".into(), "m1".into()][..])] {
        for key in keys {
            let path = format!("/call/{service}/{key}/ids");
            let reply = connection.request("POST", &path, &[], br#"{"limit":10000}"#).expect("a reply");
            assert_eq!(reply.status, 200, "{path}: {}", reply.text());
            let ids =
                reply.json().as_array().expect("a list").iter().map(|row| Element::from(&row[1])).collect::<Vec<_>>();
            stores.entry(service.into()).or_default().extend(ids);
        }
    }
    stores
}

#[test]
fn media_stores_each_review_in_three_places_or_in_none() {
    let mut server = start("media");
    let users: Vec<String> = (0..4).map(|number| format!("user{number}")).collect();
    for user in &users {
        let body = json!({ "username": user, "password": "secret" });
        assert_eq!(is_free(&server, "/media/register_user", &body).status, 200);
    }
    for (title, id) in [("Alien", "m0"), ("Brazil", "m1")] {
        assert_eq!(is_free(&server, "/media/register_movie", &json!({ "title": title, "id": id })).status, 200);
    }
    let recorder = Recorder::new();
    let names = users.clone();
    let (kept, _) = run(&mut server, &recorder, CLIENTS, move |caller| {
        while !caller.stops() {
            if caller.random.below(30) == 0 {
                if let Some(reply) = caller.client.once("GET", "/media/audit", &[], "") {
                    assert!([200, 503].contains(&reply.status), "{}", reply.text());
                    assert!(reply.status == 503 || reply.json()["pending"] == 0, "in the middle: {}", reply.text());
                }
                continue;
            }
            let (user, title) = (&names[caller.random.below(4) as usize], caller.pick(&["Alien", "Brazil"]));
            let body = json!({ "username": user, "password": "secret", "title": title, "rating": 7, "text": "seen" });
            caller.post([Access::Publish], "/media/compose", &body, |reply| {
                vec![Found::value(reply.as_str().expect("an id"))]
            });
        }
    });
    settle(&server, &recorder, &kept);
    let audit = server.get("/media/audit");
    println!("{audit}");
    assert_eq!(audit["pending"], 0);
    recorder.note(Fact::Stores(reviews(&server, &users)));
    for (user, title) in users.iter().zip(["Alien", "Brazil", "Alien", "Brazil"]) {
        let body = json!({ "username": user, "password": "secret", "title": title, "rating": 7, "text": "last" });
        assert_eq!(is_free(&server, "/media/compose", &body).status, 200);
    }
    judge(&recorder, "media");
}

const ACCOUNTS: [&str; 6] = ["ann", "bob", "cat", "dan", "eve", "fay"];
const OPENED_WITH: i64 = 1000;

/// A service beside the example's own services: it returns all balances at one moment.
const AUDIT: &str = r#"
import { type Routes } from "millrace";
export const routes: Routes = {
  async "GET /all"(ctx, request) {
    const ids = request.query.get("ids").split(",");
    const balances = await Promise.all(ids.map((id) => ctx.call("SERVICE", id, "balance")));
    return Object.fromEntries(ids.map((id, index) => [id, balances[index]]));
  },
};
"#;

/// Serves an example, and a service that reads the accounts of `service`.
fn start_with_audit(example: &str, service: &str) -> Server {
    let server = Server::start(ServerOptions::examples(&[]));
    let app = TestApp::example(example).and(&format!("{example}_audit.ts"), &AUDIT.replace("SERVICE", service));
    let reply = app.deploy(&server, example);
    assert_eq!(reply.status, 201, "{}", reply.text());
    server
}

fn bank() -> Server {
    let server = start_with_audit("transfer", "transfer_account");
    for id in ACCOUNTS {
        assert_eq!(is_free(&server, "/transfer/open", &json!({ "id": id, "balance": OPENED_WITH })).status, 200);
    }
    server
}

fn all_balances(example: &str, ids: &[&str]) -> String {
    format!("/{example}_audit/all?ids={}", escape(&ids.join(",")))
}

fn balances(reply: &Value) -> BTreeMap<String, i64> {
    let accounts = reply.as_object().expect("balances").iter();
    accounts.map(|(id, balance)| (id.clone(), balance.as_i64().expect("a number"))).collect()
}

/// Two accounts and an amount, chosen at random.
fn parties(caller: &mut Caller<'_>, accounts: &[&'static str]) -> (&'static str, &'static str, i64) {
    let from = caller.pick(accounts);
    let others: Vec<_> = accounts.iter().copied().filter(|id| *id != from).collect();
    (from, caller.pick(&others), 1 + caller.random.below(400) as i64)
}

/// The number of kills in one history of a bank. With more unknown transfers the checker cannot decide any more.
const BANK_KILLS: u64 = 2;

/// Clients transfer through all kills. The checker judges what they saw in parts.
fn transfer_in_parts(server: &mut Server, name: &str, accounts: &[&str], all: &str, client: fn(&mut Caller<'_>)) {
    let mut balance: BTreeMap<String, i64> = accounts.iter().map(|id| ((*id).to_owned(), OPENED_WITH)).collect();
    for part in 0..kills().div_ceil(BANK_KILLS) {
        let recorder = Recorder::new();
        recorder.note(Fact::Accounts(balance));
        let (kept, _) = run_through(BANK_KILLS.min(kills()), server, &recorder, BANK_CLIENTS, move |caller| {
            caller.without_key = 5;
            // Keys are not used twice.
            caller.calls = part * 1_000_000;
            client(caller);
        });
        settle(server, &recorder, &kept);
        balance = balances(&server.get(all));
        println!("{balance:?}");
        recorder.client().invoke([Access::Balances]).ok([Found::Balances(balance.clone())]);
        assert_eq!(balance.values().sum::<i64>(), OPENED_WITH * accounts.len() as i64);
        judge(&recorder, name);
    }
}

#[test]
fn transfers_as_transactions_keep_the_sum_and_are_serializable() {
    let mut server = bank();
    transfer_in_parts(&mut server, "transfer", &ACCOUNTS, &all_balances("transfer", &ACCOUNTS), |caller| {
        while !caller.stops() {
            if caller.random.below(4) == 0 {
                caller.get([Access::Balances], &all_balances("transfer", &ACCOUNTS), |reply| {
                    vec![Found::Balances(balances(reply))]
                });
                continue;
            }
            let (from, to, amount) = parties(caller, &ACCOUNTS);
            let body = json!({ "from": from, "to": to, "amount": amount });
            caller.post_or_be_refused([Access::transfer(from, to, amount)], "/transfer/transaction", &body, |reply| {
                let balance = |of: &str| reply[of].as_i64().expect("a balance");
                vec![Found::balances([(from, balance("from")), (to, balance("to"))])]
            });
        }
    });
    for id in ACCOUNTS {
        let other = if id == "ann" { "bob" } else { "ann" };
        is_free(&server, "/transfer/transaction", &json!({ "from": id, "to": other, "amount": 1 }));
    }
}

/// Accounts of `examples/bank`: three accounts of a branch, which share a shard by their tag, and three others.
const BRANCH_ACCOUNTS: [&str; 6] = ["{north}ann", "{north}bob", "{north}cat", "dan", "eve", "fay"];

fn escape(id: &str) -> String {
    id.replace('{', "%7B").replace('}', "%7D")
}

/// Transfers between accounts, and reads all of them or one.
fn transfer_and_look(caller: &mut Caller<'_>) {
    let all = all_balances("bank", &BRANCH_ACCOUNTS);
    while !caller.stops() {
        let (from, to, amount) = parties(caller, &BRANCH_ACCOUNTS);
        let path = format!("/call/account/{}", escape(from));
        match caller.random.below(8) {
            0 | 1 => caller.get([Access::Balances], &all, |reply| vec![Found::Balances(balances(reply))]),
            2 => caller.query([Access::Balance(from.into())], &format!("{path}/balance"), |reply| vec![number(reply)]),
            _ => {
                let (path, body) = (format!("{path}/transfer"), json!({ "to": to, "amount": amount }));
                caller.post_or_be_refused([Access::transfer(from, to, amount)], &path, &body, |_| vec![Found::Done]);
            }
        }
    }
}

#[test]
fn bank_keeps_the_sum_and_books_each_transfer_on_both_accounts() {
    let mut server = start_with_audit("bank", "account");
    let path_of = |id: &str, handler: &str| format!("account/{}/{handler}", escape(id));
    for id in BRANCH_ACCOUNTS {
        assert_eq!(server.value(&path_of(id, "deposit"), &OPENED_WITH.to_string()), OPENED_WITH);
    }
    let all = all_balances("bank", &BRANCH_ACCOUNTS);
    transfer_in_parts(&mut server, "bank", &BRANCH_ACCOUNTS, &all, transfer_and_look);
    let found = balances(&server.get(&all));
    for id in BRANCH_ACCOUNTS {
        let rows = server.value(&path_of(id, "history"), r#"{"limit":1000}"#);
        let rows = rows.as_array().expect("bookings");
        assert!(rows.len() < 1000, "more than an account keeps");
        let mut balance = 0;
        for row in rows {
            balance += row["change"].as_i64().expect("a number");
            assert_eq!(row["balance"], balance, "{id}: {row}");
        }
        assert_eq!(balance, found[id], "{id}: what is booked");
    }
    for id in BRANCH_ACCOUNTS {
        let other = if id == "dan" { "eve" } else { "dan" };
        is_free(&server, &format!("/call/{}", path_of(id, "transfer")), &json!({ "to": other, "amount": 1 }));
    }
}

/// Starts sagas. Returns the ids it was told, and the number of calls that were never answered.
fn start_sagas(caller: &mut Caller<'_>) -> (Vec<String>, usize) {
    let (mut ids, mut unanswered) = (Vec::new(), 0);
    while !caller.stops() {
        let (from, mut to, amount) = parties(caller, &ACCOUNTS);
        if caller.random.below(5) == 0 {
            to = "nobody";
        }
        let body = json!({ "from": from, "to": to, "amount": amount });
        match caller.post([Access::increment("sagas")], "/transfer/saga", &body, |_| vec![Found::Done]) {
            Some(id) => ids.push(id.as_str().expect("an id").to_owned()),
            None => unanswered += 1,
        }
        // Few enough to be judged in time.
        sleep(Duration::from_millis(5));
    }
    (ids, unanswered)
}

/// The notes of sagas that accounts still hold: account and saga.
fn notes(server: &Server) -> Vec<(&'static str, String)> {
    let of = |account| {
        let state = server.get(&format!("/state/transfer_account/{account}"));
        let names: Vec<String> = state.as_object().expect("fields").keys().cloned().collect();
        names.into_iter().filter_map(move |name| Some((account, name.strip_prefix("saga/")?.to_owned())))
    };
    ACCOUNTS.into_iter().flat_map(of).collect()
}

/// The last step of a saga sends a message that forgets how to undo it.
fn assert_no_note(server: &Server) {
    wait_until("the messages that sagas sent have arrived", || {
        let left = notes(server);
        if !left.is_empty() {
            println!("still noted: {left:?}");
        }
        left.is_empty()
    });
}

#[test]
fn transfers_as_sagas_all_end_and_keep_the_sum() {
    let mut server = bank();
    let recorder = Recorder::new();
    let (kept, told) = run(&mut server, &recorder, CLIENTS, start_sagas);
    settle(&server, &recorder, &kept);
    let mut sagas = Vec::new();
    wait_until("all sagas have ended", || {
        sagas = server.invocations("service=transfer_saga", 1000);
        sagas.iter().all(|saga| ["succeeded", "failed"].contains(&saga["status"].as_str().expect("a status")))
    });
    let ids: BTreeSet<&str> = sagas.iter().filter_map(|saga| saga["id"].as_str()).collect();
    let told_ids: Vec<&String> = told.iter().flat_map(|(ids, _)| ids).collect();
    let distinct: BTreeSet<&&String> = told_ids.iter().collect();
    let unanswered: usize = told.iter().map(|(_, unanswered)| unanswered).sum();
    let lost: Vec<_> = told_ids.iter().filter(|id| !ids.contains(id.as_str())).collect();
    println!("{} sagas, {} told, {unanswered} unanswered", ids.len(), told_ids.len());
    assert_eq!(distinct.len(), told_ids.len(), "two calls were told the same saga");
    assert_eq!(lost, [&""; 0], "acknowledged sagas are lost");
    recorder.note(Fact::Counters(BTreeMap::from([("sagas".to_owned(), ids.len() as i64)])));

    // The accounts show what each saga says it did.
    let mut expected: BTreeMap<String, i64> = ACCOUNTS.iter().map(|id| ((*id).to_owned(), OPENED_WITH)).collect();
    let mut succeeded = 0;
    for id in &ids {
        let saga = server.get(&format!("/invocations/{id}"));
        let input = &saga["input"];
        let amount = input["amount"].as_i64().expect("an amount");
        assert!(saga["status"] == "failed" || input["to"] != "nobody", "{saga}");
        if saga["status"] == "succeeded" {
            succeeded += 1;
            *expected.entry(input["from"].as_str().expect("an id").into()).or_default() -= amount;
            *expected.entry(input["to"].as_str().expect("an id").into()).or_default() += amount;
        }
    }
    println!("{succeeded} succeeded, {} undone", ids.len() - succeeded);
    assert!(succeeded > 0 && succeeded < ids.len());
    let found = balances(&server.get(&all_balances("transfer", &ACCOUNTS)));
    assert_eq!(found, expected);
    assert_eq!(found.values().sum::<i64>(), OPENED_WITH * ACCOUNTS.len() as i64);
    assert_no_note(&server);
    for id in ACCOUNTS {
        let other = if id == "ann" { "bob" } else { "ann" };
        is_free(&server, "/transfer/transaction", &json!({ "from": id, "to": other, "amount": 1 }));
    }
    judge(&recorder, "saga");
}
