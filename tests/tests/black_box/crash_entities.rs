//! Like `crash_examples`, for the bundled examples in which each call changes one entity: lists, calculators, short
//! URLs, passwords, graphs, networks.

use std::collections::BTreeMap;
use std::thread::sleep;
use std::time::{Duration, Instant};

use millrace_history::{Access, Fact, Found, Recorder};
use millrace_tests::crash::{self, CLIENTS, Caller, is_free, list, run, settle, start};
use millrace_tests::{Server, basic};
use serde_json::{Value, json};

fn judge(recorder: &Recorder, name: &str) {
    crash::judge(recorder, name, env!("CARGO_TARGET_TMPDIR"));
}

/// A number below a million that no other call of the test has.
fn new_number(caller: &Caller<'_>) -> i64 {
    i64::try_from(caller.calls * CLIENTS + caller.number + 1).expect("small")
}

fn items(server: &Server, key: &str) -> Vec<i64> {
    let items = server.value(&format!("list/{key}/items"), "");
    items.as_array().expect("a list").iter().map(|item| item.as_i64().expect("a number")).collect()
}

/// What a client surely put on the stack, and what it surely took from it.
#[derive(Default)]
struct Stacked {
    pushed: Vec<i64>,
    popped: Vec<i64>,
    /// List, item, and the size in the append's reply.
    sizes: Vec<(&'static str, i64, usize)>,
}

fn append_and_pop(caller: &mut Caller<'_>) -> Stacked {
    let mut told = Stacked::default();
    while !caller.stops() {
        // Replies hold whole lists.
        sleep(Duration::from_millis(10));
        let (key, item) = (caller.pick(&["a", "b"]), new_number(caller));
        match caller.random.below(8) {
            0 => {
                caller.query([Access::read_list(key)], &format!("/call/list/{key}/items"), |reply| vec![list(reply)]);
            }
            1 | 2 => {
                let reply = caller.surely("/call/list/stack/append", &json!(item));
                assert_eq!(reply.status, 200, "{}", reply.text());
                told.pushed.push(item);
            }
            3 => {
                let reply = caller.surely("/call/list/stack/pop", &Value::Null);
                match reply.status {
                    200 => told.popped.push(reply.json().as_i64().expect("a number")),
                    status => assert_eq!((status, reply.code().as_str()), (409, "aborted"), "{}", reply.text()),
                }
            }
            _ => {
                let path = format!("/call/list/{key}/append");
                let size = caller.post([Access::append(key, item)], &path, &json!(item), |_| vec![Found::Done]);
                told.sizes.extend(size.map(|size| (key, item, size.as_u64().expect("a size") as usize)));
            }
        }
    }
    told
}

#[test]
fn list_has_each_item_once_where_it_was_said_to_be() {
    let mut server = start("list");
    let recorder = Recorder::new();
    let (kept, told) = run(&mut server, &recorder, CLIENTS, append_and_pop);
    settle(&server, &recorder, &kept);
    let lists = ["a", "b"].map(|key| (key, items(&server, key)));
    for (key, found) in &lists {
        println!("{key}: {} items", found.len());
        recorder.client().invoke([Access::read_list(*key)]).ok([Found::list(found.clone())]);
    }
    let lists = BTreeMap::from(lists);
    for (key, item, size) in told.iter().flat_map(|told| &told.sizes) {
        assert_eq!(lists[key].get(size - 1), Some(item), "it was told to be item {size} of {key}");
    }
    let mut left = items(&server, "stack");
    println!("{} left on the stack", left.len());
    left.extend(told.iter().flat_map(|told| &told.popped));
    left.sort_unstable();
    let mut pushed: Vec<i64> = told.iter().flat_map(|told| told.pushed.clone()).collect();
    pushed.sort_unstable();
    assert_eq!(left, pushed, "what is popped or left is not what was pushed");
    assert_eq!(is_free(&server, "/call/list/a/append", &json!(0)).status, 200);
    judge(&recorder, "list");
}

/// Adds one to counters, and known amounts to two sums. Returns for each sum each amount with the value that it gave.
fn calculate(caller: &mut Caller<'_>) -> BTreeMap<&'static str, Vec<(f64, f64)>> {
    let mut told = BTreeMap::<_, Vec<_>>::new();
    while !caller.stops() {
        if caller.random.below(2) == 0 {
            let key = caller.pick(&["x", "y"]);
            caller.post([Access::increment(key)], &format!("/call/calculator/{key}/add"), &json!(1), |reply| {
                vec![Found::Number(reply.as_i64().expect("a whole number") - 1)]
            });
            continue;
        }
        let operation = caller.pick(&["add", "subtract"]);
        // Binary fractions are exact.
        let amount = (1 + caller.random.below(40)) as f64 / 8.0;
        let reply = caller.surely(&format!("/call/calculator/{operation}/{operation}"), &json!(amount));
        assert_eq!(reply.status, 200, "{}", reply.text());
        told.entry(operation).or_default().push((amount, reply.json().as_f64().expect("a number")));
    }
    told
}

#[test]
fn calculator_gives_each_value_once_and_loses_no_operation() {
    let mut server = start("calculator");
    let recorder = Recorder::new();
    let (kept, told) = run(&mut server, &recorder, CLIENTS, calculate);
    settle(&server, &recorder, &kept);
    let value = |key: &str| server.value(&format!("calculator/{key}/get"), "");
    let count = |key: &str| (key.to_owned(), value(key).as_i64().expect("a whole number"));
    recorder.note(Fact::Counters(["x", "y"].map(count).into()));
    for (operation, sign) in [("add", 1.0), ("subtract", -1.0)] {
        let of = told.iter().filter_map(|told| told.get(operation));
        let mut steps: Vec<(f64, f64)> = of.flatten().copied().collect();
        steps.sort_by(|(_, one), (_, other)| (one * sign).total_cmp(&(other * sign)));
        // A sum that only grows tells the order, and the value that each operation began with.
        let mut sum = 0.0;
        for (amount, after) in &steps {
            sum += sign * amount;
            assert_eq!(sum, *after, "{operation} {amount}");
        }
        assert_eq!(value(operation), sum, "{operation}: {} operations", steps.len());
    }
    assert_eq!(is_free(&server, "/call/calculator/x/add", &json!(1)).status, 200);
    judge(&recorder, "calculator");
}

/// One URL of one call: the time of the request, and the reply, if there was one.
struct Shortened {
    url: String,
    begin: Instant,
    end: Instant,
    told: Option<(String, String)>,
}

fn shorten(caller: &mut Caller<'_>) -> Vec<Shortened> {
    const URLS: u64 = 400;
    let mut all = Vec::new();
    while !caller.stops() {
        // Two different URLs in one request.
        let numbers = [caller.random.below(URLS), URLS + caller.random.below(URLS)];
        let urls = numbers.map(|number| format!("https://example.com/{number}"));
        let begin = Instant::now();
        let reply = caller.post([], "/url/shorten", &json!(urls), |_| Vec::new());
        let end = Instant::now();
        let text = |value: &Value| value.as_str().expect("text").to_owned();
        for (index, url) in urls.into_iter().enumerate() {
            let told = reply.as_ref().map(|reply| (text(&reply[index][0]), text(&reply[index][1])));
            if let Some((_, short)) = &told
                && let Some(reply) = caller.client.once("GET", &format!("/url/{short}"), &[], "")
                && reply.status != 503
            {
                assert_eq!((reply.status, reply.header("location")), (302, Some(url.as_str())), "{short}");
            }
            all.push(Shortened { url, begin, end, told });
        }
    }
    all
}

#[test]
fn url_shortener_makes_each_code_once_and_keeps_it() {
    let mut server = start("url-shortener");
    let recorder = Recorder::new();
    let (kept, told) = run(&mut server, &recorder, CLIENTS, shorten);
    settle(&server, &recorder, &kept);
    let mut by_url: BTreeMap<&str, Vec<&Shortened>> = BTreeMap::new();
    for one in told.iter().flatten() {
        by_url.entry(&one.url).or_default().push(one);
    }
    println!("{} URLs", by_url.len());
    let mut connection = server.connect();
    for (url, calls) in by_url {
        let answered: Vec<_> = calls.iter().filter_map(|call| Some((call, call.told.as_ref()?))).collect();
        let Some((_, (_, short))) = answered.first() else { continue };
        let made: Vec<_> = answered.iter().filter(|(_, (outcome, _))| outcome == "NotFound").collect();
        assert!(answered.iter().all(|(_, (_, other))| other == short), "{url} has several codes");
        assert!(made.len() <= 1, "{url} was made {} times", made.len());
        assert!(made.len() == 1 || answered.len() < calls.len(), "{url} was found before anybody asked for it");
        for (maker, _) in made {
            let too_early = answered.iter().any(|(call, _)| call.end < maker.begin);
            assert!(!too_early, "{url} was made anew after it had been there");
        }
        let reply = connection.request("GET", &format!("/url/{short}"), &[], b"").expect("a reply");
        assert_eq!((reply.status, reply.header("location")), (302, Some(url)), "{short}");
    }
    assert_eq!(is_free(&server, "/url/shorten", &json!(["https://example.com/1"])).status, 200);
    judge(&recorder, "url-shortener");
}

/// The name of a user that a client tried to register with a password, and whether the registration succeeded, if the
/// client was told.
type Registered = (String, String, Option<bool>);

/// Registers users under names that other clients want too. Imports other users, whose salt tells which import it
/// was.
fn register_and_import(caller: &mut Caller<'_>) -> Vec<Registered> {
    const NAMES: u64 = 12;
    let mut registered = Vec::new();
    while !caller.stops() {
        let old = caller.pick(&["old1", "old2"]);
        match caller.random.below(40) {
            // Hashing a password is slow.
            0 if registered.len() < 6 => {
                let name = format!("new{}", caller.random.below(NAMES));
                let password = format!("{}-{}", caller.number, caller.calls);
                let body = json!({ "username": name, "password": password });
                let is_new = if caller.number.is_multiple_of(2) {
                    caller.client.once("POST", "/user/register", &[], &body.to_string())
                } else {
                    Some(caller.surely("/user/register", &body))
                };
                let is_new = match is_new {
                    None => None,
                    Some(reply) if reply.status == 503 => continue,
                    Some(reply) => {
                        assert!([201, 409].contains(&reply.status), "{}", reply.text());
                        Some(reply.status == 201)
                    }
                };
                registered.push((name, password, is_new));
            }
            1..15 => {
                let read = |credential: &Value| {
                    let salt = credential.as_str().and_then(|text| text.get(46..)).expect("$sha1$, 40 digits, salt");
                    vec![Found::value(salt.parse::<i64>().expect("a number"))]
                };
                caller.get([Access::read(old)], &format!("/state/user/{old}/credential"), read);
            }
            _ => {
                let salt = new_number(caller);
                let body = json!({ "scheme": "sha1", "salt": salt.to_string(), "hash": "0".repeat(40) });
                caller.post([Access::write(old, salt)], &format!("/call/user/{old}/import"), &body, |_| {
                    vec![Found::Done]
                });
            }
        }
    }
    registered
}

#[test]
fn login_lets_in_who_registered_first_and_nobody_else() {
    let mut server = start("login");
    let recorder = Recorder::new();
    let old = ["old1", "old2"].map(|name| (name.to_owned(), 0.into()));
    for (name, _) in &old {
        let body = json!({ "scheme": "sha1", "salt": "0", "hash": "0".repeat(40) });
        assert_eq!(is_free(&server, &format!("/call/user/{name}/import"), &body).status, 200);
    }
    recorder.note(Fact::Registers(old.into()));
    let (kept, told) = run(&mut server, &recorder, CLIENTS, register_and_import);
    settle(&server, &recorder, &kept);
    let mut by_name: BTreeMap<&str, Vec<&Registered>> = BTreeMap::new();
    for one in told.iter().flatten() {
        by_name.entry(&one.0).or_default().push(one);
    }
    println!("{} users", by_name.len());
    let mut connection = server.connect();
    for (name, tries) in by_name {
        let mut lets_in = |password: &str| {
            let reply = connection.request("GET", "/user/login", &[&basic(name, password)], b"").expect("a reply");
            assert!([200, 401].contains(&reply.status), "{name}: {}", reply.text());
            reply.status == 200
        };
        let may_be: Vec<_> = tries.iter().filter(|(.., is_new)| *is_new != Some(false)).collect();
        let surely: Vec<_> = tries.iter().filter(|(.., is_new)| *is_new == Some(true)).collect();
        assert!(surely.len() <= 1, "{name} was registered {} times", surely.len());
        if let [(_, password, _)] = surely[..] {
            assert!(lets_in(password), "{name} was registered and is not let in");
        } else {
            assert!(!may_be.is_empty(), "everybody was told that {name} is taken, and nobody has it");
        }
        for (_, password, _) in tries.iter().filter(|(.., is_new)| *is_new == Some(false)).take(1) {
            assert!(!lets_in(password), "{name} lets in somebody who was refused");
        }
    }
    judge(&recorder, "login");
}

fn edges(state: &Value) -> Vec<Found> {
    let lists = ["a", "b"].map(|node| list(&state[format!("to/{node}")]));
    let count = |node: &str| state[format!("to/{node}")].as_array().map_or(0, Vec::len);
    let totals = json!({ "keys": 2, "edges": count("a") + count("b") });
    assert_eq!(state["totals"], totals, "the totals are not those of the lists");
    lists.into()
}

#[test]
fn graph_has_all_edges_of_a_text_or_none() {
    let mut server = start("graph");
    let recorder = Recorder::new();
    let steps = |item: i64| ["a", "b"].map(|node| Access::append(node, format!("n{item}")));
    recorder.client().invoke(steps(0)).ok([Found::Done, Found::Done]);
    assert_eq!(server.request("POST", "/graph/load", &[], b"a n0\nb n0\n").status, 200);
    let (kept, _) = run(&mut server, &recorder, CLIENTS, move |caller| {
        while !caller.stops() {
            // Each reply to a read holds the whole graph.
            sleep(Duration::from_millis(10));
            if caller.random.below(4) == 0 {
                caller.get(["a", "b"].map(Access::read_list), "/state/graph/graph", edges);
                continue;
            }
            let item = new_number(caller);
            let text = format!("a n{item}\nb n{item}\n");
            caller.post_text(steps(item), "/graph/load", text, |_| vec![Found::Done, Found::Done]);
        }
    });
    settle(&server, &recorder, &kept);
    let state = server.get("/state/graph/graph");
    recorder.client().invoke(["a", "b"].map(Access::read_list)).ok(edges(&state));
    assert_eq!(state["to/a"], state["to/b"]);
    let count = state["to/a"].as_array().expect("a list").len();
    println!("{count} edges from each node");
    assert_eq!(server.get("/graph/count?k=a&depth=64"), count);
    assert_eq!(server.request("POST", "/graph/load", &[], b"a last\n").status, 200);
    judge(&recorder, "graph");
}

/// A network of one layer whose outputs tell its number: the bias in thousandths, and as many outputs as the number's
/// last digit.
fn network(name: &str, number: i64) -> Value {
    let width = 1 + number % 3;
    let weights = [0.0, number as f64 / 1000.0].repeat(width as usize);
    json!({ "name": name, "layers": [1, width], "weights": weights })
}

fn number_of_network(prediction: &Value) -> i64 {
    let outputs: Vec<f64> =
        prediction["outputs"].as_array().expect("outputs").iter().map(|output| output.as_f64().expect("one")).collect();
    let number = ((outputs[0] / (1.0 - outputs[0])).ln() * 1000.0).round() as i64;
    assert_eq!(outputs, vec![outputs[0]; 1 + (number % 3) as usize], "layers of one network, weights of another");
    number
}

#[test]
fn neural_predicts_with_one_network_the_last_that_was_loaded() {
    let mut server = start("neural");
    let recorder = Recorder::new();
    let names = ["p", "q"];
    recorder.note(Fact::Registers(names.map(|name| (name.to_owned(), 0.into())).into()));
    for name in names {
        assert_eq!(is_free(&server, "/neural/load", &network(name, 0)).status, 200);
    }
    let predict = |reply: &Value| vec![Found::value(number_of_network(reply))];
    let (kept, _) = run(&mut server, &recorder, CLIENTS, move |caller| {
        while !caller.stops() {
            // The sigmoid tells numbers up to some 20,000 apart.
            sleep(Duration::from_millis(2));
            let (name, number) = (caller.pick(&names), new_number(caller));
            if caller.random.below(2) == 0 {
                let body = json!({ "name": name, "input": [0.5] });
                caller.post([Access::read(name)], "/neural/predict", &body, predict);
            } else {
                let body = network(name, number);
                caller.post([Access::write(name, number)], "/neural/load", &body, |_| vec![Found::Done]);
            }
        }
    });
    settle(&server, &recorder, &kept);
    for name in names {
        let body = json!({ "name": name, "input": [0.5] });
        let reply = is_free(&server, "/neural/predict", &body).json();
        recorder.client().invoke([Access::read(name)]).ok(predict(&reply));
        assert_eq!(is_free(&server, "/neural/load", &network(name, 1)).status, 200);
    }
    judge(&recorder, "neural");
}
