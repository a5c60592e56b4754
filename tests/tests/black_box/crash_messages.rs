//! Like `crash_examples`, for the bundled examples that go on by messages: timelines of followers, a fill cut into
//! steps, a trigger that reports low stock.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::sleep;
use std::time::Duration;

use millrace_history::{Access, Fact, Found, Recorder};
use millrace_tests::crash::{self, CLIENTS, Caller, is_free, run, settle, start};
use millrace_tests::{Server, repository, wait_until};
use serde_json::{Value, json};

fn judge(recorder: &Recorder, name: &str) {
    crash::judge(recorder, name, env!("CARGO_TARGET_TMPDIR"));
}

const AUTHORS: u64 = 6;

/// The number of posts of one client. A timeline keeps 1,000, and a home timeline has the posts of up to four
/// clients.
const POSTS: usize = 110;

fn author(number: u64) -> String {
    format!("author{}", number % AUTHORS)
}

/// The authors that an author follows.
fn followees(number: u64) -> [String; 3] {
    [1, 2, 3].map(|step| author(number + step))
}

fn follow(user: &str, followee: &str) -> Value {
    json!({ "user": user, "followee": followee })
}

fn fans() -> Vec<String> {
    (0..CLIENTS).map(|number| format!("fan{number}")).collect()
}

/// A register that holds whether a fan follows the star. Both ends of the edge are the same register, because they
/// change in one transaction.
fn edge(fan: &str) -> String {
    format!("{fan}→star")
}

/// Whether the star is among the authors that a fan follows.
fn is_followee(edges: &Value) -> Found {
    Found::value(i64::from(edges["followees"] == json!(["star"])))
}

/// Which fans follow the star, by the other end of the edges.
fn are_followers(edges: &Value) -> Vec<Found> {
    let followers = edges["followers"].as_array().expect("names");
    let unknown: Vec<_> = followers.iter().filter(|name| !fans().iter().any(|fan| *name == fan)).collect();
    assert!(unknown.is_empty(), "{unknown:?} never followed");
    fans().iter().map(|fan| Found::value(i64::from(followers.contains(&json!(fan))))).collect()
}

/// Reads the edges from one end.
fn look(caller: &mut Caller<'_>) {
    if caller.random.below(2) == 0 {
        let fan = format!("fan{}", caller.random.below(CLIENTS));
        let path = format!("/social/edges?user={fan}");
        return caller.get([Access::read(edge(&fan))], &path, |edges| vec![is_followee(edges)]);
    }
    let steps: Vec<Access> = fans().iter().map(|fan| Access::read(edge(fan))).collect();
    caller.get(steps, "/social/edges?user=star", are_followers);
}

/// Follows or unfollows the star, and checks at once whether both ends say so.
fn follow_and_look(caller: &mut Caller<'_>, fan: &str) {
    let follows = caller.random.below(2);
    let path = ["/social/unfollow", "/social/follow"][follows as usize];
    let step = Access::write(edge(fan), i64::try_from(follows).expect("0 or 1"));
    caller.post([step], path, &follow(fan, "star"), |_| vec![Found::Done]);
    look(caller);
    look(caller);
}

/// Composes posts, and follows and unfollows a star. Returns the ids of the acknowledged posts.
fn compose(caller: &mut Caller<'_>) -> Vec<String> {
    let (user, fan) = (author(caller.number), format!("fan{}", caller.number));
    let mut ids = Vec::new();
    let mut tries = 0;
    while !caller.stops() {
        if tries >= POSTS || caller.random.below(2) == 0 {
            follow_and_look(caller, &fan);
            continue;
        }
        // Its posts are spread over the lives of the server.
        sleep(Duration::from_millis(8));
        tries += 1;
        let text = format!("{}-{}", caller.number, caller.calls);
        let step = Access::append(user.as_str(), text.as_str());
        let body = json!({ "user": user, "text": text });
        let post = caller.post([step], "/social/compose", &body, |_| vec![Found::Done]);
        ids.extend(post.map(|post| post["id"].as_str().expect("an id").to_owned()));
    }
    ids
}

/// All of a timeline, oldest first.
fn posts(server: &Server, which: &str, user: &str) -> Vec<Value> {
    let mut all: Vec<Value> = Vec::new();
    loop {
        let (start, stop) = (all.len(), all.len() + 100);
        let page = server.get(&format!("/social/{which}?user={user}&start={start}&stop={stop}"));
        let page = page.as_array().expect("a list");
        all.extend(page.iter().cloned());
        if page.len() < 100 {
            all.reverse();
            return all;
        }
    }
}

#[test]
fn social_has_each_post_once_on_the_authors_timeline_and_on_each_followers_home() {
    let mut server = start("social");
    let authors: Vec<String> = (0..AUTHORS).map(author).collect();
    for user in authors.iter().chain(&fans()).chain([&"star".to_owned()]) {
        assert_eq!(is_free(&server, "/social/register", &json!({ "user": user })).status, 200);
    }
    for number in 0..AUTHORS {
        for followee in followees(number) {
            assert_eq!(is_free(&server, "/social/follow", &follow(&author(number), &followee)).status, 200);
        }
    }
    let recorder = Recorder::new();
    recorder.note(Fact::Registers(fans().iter().map(|fan| (edge(fan), 0.into())).collect()));
    let (kept, told) = run(&mut server, &recorder, CLIENTS, compose);
    settle(&server, &recorder, &kept);

    let mut timelines: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for author in authors {
        let timeline = posts(&server, "timeline", &author);
        let texts = timeline.iter().map(|post| post["text"].as_str().expect("a text"));
        recorder.client().invoke([Access::read_list(author.as_str())]).ok([Found::list(texts)]);
        timelines.insert(author, timeline);
    }
    let all: Vec<&str> = timelines.values().flatten().map(|post| post["id"].as_str().expect("an id")).collect();
    let distinct: BTreeSet<&str> = all.iter().copied().collect();
    println!("{} posts", all.len());
    assert_eq!(distinct.len(), all.len(), "a post is there twice");
    assert!(told.iter().flatten().all(|id| distinct.contains(id.as_str())), "an acknowledged post is lost");

    for number in 0..AUTHORS {
        let (user, followees) = (author(number), followees(number));
        let expected: usize = followees.iter().map(|followee| timelines[followee].len()).sum();
        wait_until("all posts have arrived", || posts(&server, "home", &user).len() >= expected);
        let home = posts(&server, "home", &user);
        assert_eq!(home.len(), expected, "posts on the home of {user}");
        for followee in &followees {
            let of: Vec<Value> = home.iter().filter(|post| post["user"] == *followee).cloned().collect();
            assert_eq!(of, timelines[followee], "posts of {followee} on the home of {user}");
        }
    }

    let mut connection = recorder.client();
    let edges = |user: &str| server.get(&format!("/social/edges?user={user}"));
    let steps: Vec<Access> = fans().iter().map(|fan| Access::read(edge(fan))).collect();
    connection.invoke(steps).ok(are_followers(&edges("star")));
    for fan in fans() {
        connection.invoke([Access::read(edge(&fan))]).ok([is_followee(&edges(&fan))]);
    }
    assert_eq!(is_free(&server, "/social/compose", &json!({ "user": "star", "text": "last" })).status, 200);
    judge(&recorder, "social");
}

/// Fills are numbered. The size of a value tells which fill it belongs to.
const FIRST_SIZE: u64 = 16;

/// The keys that every fill has. Three times as many can still be read at once.
const COMMON_KEYS: u64 = 3_000;

/// Some fills have fewer keys than the fill before, so the rest of that fill must be deleted.
fn keys_of_fill(number: u64) -> u64 {
    COMMON_KEYS * (3 - number % 3)
}

fn value_of(key: u64, size: u64) -> String {
    format!("{key}.").chars().cycle().take(size as usize).collect()
}

/// The last fill that was begun, and the last fill that was answered.
#[derive(Default)]
struct Fills {
    begun: AtomicU64,
    answered: AtomicU64,
}

/// One client fills, the others look.
fn fill_or_get(caller: &mut Caller<'_>, fills: &Fills) {
    while !caller.stops() {
        if caller.number == 1 {
            let number = fills.begun.load(Ordering::SeqCst) + 1;
            fills.begun.store(number, Ordering::SeqCst);
            let body = json!({ "keys": keys_of_fill(number), "size": FIRST_SIZE + number });
            let reply = caller.surely("/kv/fill", &body);
            assert_eq!(reply.status, 200, "{}", reply.text());
            fills.answered.store(number, Ordering::SeqCst);
            // Some fills are over before the next begins.
            sleep(Duration::from_millis(caller.random.below(100)));
            continue;
        }
        let key = caller.random.below(COMMON_KEYS);
        let least = fills.answered.load(Ordering::SeqCst);
        let call = caller.history.invoke([]);
        match caller.client.once("GET", &format!("/kv/get?key={key}"), &[], "") {
            Some(reply) if reply.status == 200 => {
                call.ok([]);
                let most = fills.begun.load(Ordering::SeqCst);
                let (text, size) = (reply.text(), reply.body.len() as u64);
                assert!((FIRST_SIZE + least..=FIRST_SIZE + most).contains(&size), "fill {least} to {most}: {text}");
                assert_eq!(text, value_of(key, size));
                caller.client.acknowledged();
            }
            Some(reply) => assert_eq!(reply.status, 503, "{}", reply.text()),
            None => call.fail("no answer"),
        }
    }
}

#[test]
fn kv_goes_on_filling_and_shows_one_fill_at_a_time() {
    let mut server = start("kv");
    let fills = Arc::new(Fills::default());
    let body = json!({ "keys": keys_of_fill(0), "size": FIRST_SIZE });
    assert_eq!(is_free(&server, "/kv/fill", &body).status, 200);
    let recorder = Recorder::new();
    let shared = Arc::clone(&fills);
    let (kept, _) = run(&mut server, &recorder, CLIENTS, move |caller| fill_or_get(caller, &shared));
    settle(&server, &recorder, &kept);
    let last = fills.answered.load(Ordering::SeqCst);
    assert_eq!(last, fills.begun.load(Ordering::SeqCst));
    let (keys, size) = (keys_of_fill(last), FIRST_SIZE + last);
    println!("{last} fills");
    wait_until("the last fill is over", || {
        server.get("/kv/fill") == json!({ "keys": keys, "size": size, "written": keys })
    });
    // This counts the rest of an earlier, larger fill too.
    let values = || server.get("/state/kv/kv").as_object().expect("fields").clone();
    wait_until("nothing is left of others", || values().len() as u64 == keys + 1);
    for (name, value) in values() {
        if let Some(key) = name.strip_prefix("value/") {
            assert_eq!(value, value_of(key.parse().expect("a number"), size), "{name}");
        }
    }
    assert_eq!(is_free(&server, "/kv/fill", &json!({ "keys": 1, "size": 1 })).status, 200);
    judge(&recorder, "kv");
}

/// Two kinds of items, with their stocks. One kind is soon gone.
const ITEMS: [(&str, [(&str, i64); 2]); 2] =
    [("small", [("bolt", 100_000), ("nut", 100_000)]), ("large", [("beam", 100_000), ("plate", 25)])];

/// Below this part of its first stock an item has to be ordered again.
fn mark(stock: i64) -> i64 {
    stock - 5
}

fn put_items(server: &Server) {
    let item = std::fs::read(repository().join("examples/inventory/item.json")).expect("the type");
    assert_eq!(server.request("PUT", "/schemas/item", &[], &item).status, 201);
    for (sku, stock) in ITEMS.iter().flat_map(|(_, skus)| skus) {
        let body = json!({ "name": sku, "stock": stock, "mark": mark(*stock) }).to_string();
        assert_eq!(server.request("PUT", &format!("/records/item/{sku}"), &[], body.as_bytes()).status, 201);
    }
}

const WAREHOUSES: [&str; 2] = ["north", "south"];

/// Orders one small item and one large item, and ships some orders. Returns the shipped ones.
fn order_and_ship(caller: &mut Caller<'_>) -> Vec<String> {
    let mut shipped = Vec::new();
    while !caller.stops() {
        let order = format!("o{}-{}", caller.number, caller.calls);
        let skus = ITEMS.map(|(kind, skus)| (kind, caller.pick(&skus.map(|(sku, _)| sku))));
        let lines = skus.map(|(_, sku)| json!({ "sku": sku, "count": 1 }));
        let warehouse = caller.pick(&WAREHOUSES);
        let path = format!("/call/inventory/{warehouse}/order");
        let body = json!({ "order": order, "lines": lines });
        let placed = caller.post_or_be_refused([Access::reserve(skus)], &path, &body, |reply| {
            assert_eq!(*reply, json!(order));
            vec![Found::Accepted(true)]
        });
        if placed.is_some() && caller.random.below(4) == 0 {
            let reply = caller.surely(&format!("/call/inventory/{warehouse}/ship"), &json!(order));
            assert_eq!(reply.status, 200, "{}", reply.text());
            shipped.push(order);
        }
    }
    shipped
}

#[test]
fn inventory_has_taken_from_stock_what_is_ordered_and_tells_once_that_it_is_low() {
    let mut server = start("inventory");
    put_items(&server);
    let recorder = Recorder::new();
    let (kept, shipped) = run(&mut server, &recorder, CLIENTS, order_and_ship);
    settle(&server, &recorder, &kept);
    let shipped: Vec<&String> = shipped.iter().flatten().collect();
    let mut open: BTreeMap<String, i64> = BTreeMap::new();
    let mut orders = shipped.len();
    for warehouse in WAREHOUSES {
        for order in server.value(&format!("inventory/{warehouse}/orders"), "").as_array().expect("a list") {
            orders += 1;
            assert!(!shipped.iter().any(|name| order[0] == **name), "{order} was sent off");
            for line in order[1].as_array().expect("lines") {
                *open.entry(line["sku"].as_str().expect("text").into()).or_default() += 1;
            }
        }
    }
    println!("{orders} orders, {} sent off", shipped.len());
    let kinds = |stock: &dyn Fn(&str, i64) -> i64| {
        let of = |skus: [(&str, i64); 2]| skus.map(|(sku, first)| (sku.to_owned(), stock(sku, first))).into();
        ITEMS.map(|(kind, skus)| (kind.to_owned(), of(skus))).into()
    };
    let item = |sku: &str| server.get(&format!("/records/item/{sku}"));
    let left = kinds(&|sku, _| item(sku)["stock"].as_i64().expect("a number"));
    recorder.note(Fact::Stocks { before: kinds(&|_, first| first), left, orders: orders as i64 });
    for (sku, first) in ITEMS.iter().flat_map(|(_, skus)| skus) {
        let item = item(sku);
        println!("{item}");
        assert_eq!(item["reserved"], open.get(*sku).copied().unwrap_or(0), "{sku}: open orders");
        let is_low = item["stock"].as_i64().expect("a number") < mark(*first);
        assert!(is_low, "too few orders to prove anything");
        let reorders = || server.value(&format!("inventory/{sku}/reorders"), "");
        wait_until("somebody was told", || reorders() != 0);
        assert_eq!(reorders(), 1, "{sku} fell below its mark once");
    }
    for warehouse in WAREHOUSES {
        let body = json!({ "order": "last", "lines": [{ "sku": "bolt", "count": 1 }, { "sku": "beam", "count": 1 }] });
        assert_eq!(is_free(&server, &format!("/call/inventory/{warehouse}/order"), &body).status, 200);
    }
    judge(&recorder, "inventory");
}
