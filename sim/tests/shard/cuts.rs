//! Transactions over several shards happen as a whole or not at all and once, wherever they are
//! cut off: every message and every append of each is a point at which everything dies, or one log fails.
//!
//! `hotel` and `media` do what the examples of these names do. After every cut: as many successes as
//! orders, rooms and seats taken; a review in each of three places or in none; nothing held; and the same key is
//! answered as the first time, a refusal too, also when its reason has gone meanwhile.

use millrace_shard::{Reply, Token};

use crate::*;

fn add() -> Script {
    s().add("n", 1)
}

/// Keys in three shards.
type Keys = [String; 3];

fn keys(rig: &Rig) -> Keys {
    [0, 1, 2].map(|shard| rig.key_in(shard, "k"))
}

type Answer = Result<Reply, millrace_base::Error>;

/// One kind of transaction.
struct Case {
    name: &'static str,
    /// What is there before, durably.
    prepare: fn(&mut Rig, &Keys),
    /// What the root does.
    script: fn(&Keys) -> Script,
    /// The root has no state of its own: the same script is a route's.
    is_bare: bool,
    /// Fields that it counts up, where that is all it does.
    looks: &'static [(usize, &'static str)],
    /// How often it took effect, by all that tells.
    counts: fn(&mut Rig, &Case, &Keys) -> Vec<i64>,
    /// It is refused until this is done.
    relieve: Option<fn(&mut Rig, &Keys)>,
}

/// Counts up these fields.
const fn counting(name: &'static str, script: fn(&Keys) -> Script, looks: &'static [(usize, &'static str)]) -> Case {
    Case { name, prepare: |_, _| (), script, is_bare: false, looks, counts: count_fields, relieve: None }
}

fn count_fields(rig: &mut Rig, case: &Case, keys: &Keys) -> Vec<i64> {
    let count = |(index, field): &(usize, &str)| rig.field("note", &keys[*index], field).as_i64().unwrap_or(0);
    case.looks.iter().map(count).collect()
}

const HOTEL: Case = Case {
    name: "hotel",
    prepare: |rig, keys| stock(rig, keys, CAPACITY),
    script: |[orders, hotel, flight]| reserve(orders, place(take, hotel, flight)),
    is_bare: true,
    looks: &[],
    counts: |rig, _, [orders, hotel, flight]| audit_hotel(rig, orders, hotel, flight),
    relieve: None,
};

const MEDIA: Case = Case {
    name: "media",
    prepare: |rig, keys| register(rig, keys, RIGHT),
    script: compose,
    is_bare: true,
    looks: &[],
    counts: |rig, _, keys| audit_media(rig, keys),
    relieve: None,
};

const CASES: [Case; 10] = [
    counting("transfer", |[_, b, _]| add().call(run("note", b, add())).get("n"), &[(0, "n"), (1, "n")]),
    counting("delegated", |[_, b, _]| s().call(run("note", b, add())), &[(1, "n")]),
    counting(
        "tree",
        |[_, b, c]| add().all([run("note", b, add()), run("note", c, add())]),
        &[(0, "n"), (1, "n"), (2, "n")],
    ),
    counting(
        "chain",
        |[a, b, c]| {
            let last = run("note", a, s().add("m", 1));
            add().call(run("note", b, add().call(run("note", c, add().call(last)))))
        },
        &[(0, "n"), (1, "n"), (2, "n"), (0, "m")],
    ),
    HOTEL,
    Case {
        // As the example places them: an order lives where its flight does.
        name: "hotel, orders beside the flight",
        prepare: |rig, [a, b, _]| stock(rig, &[a.clone(), b.clone(), a.clone()], CAPACITY),
        script: |[flight, hotel, _]| reserve(flight, place(take, hotel, flight)),
        counts: |rig, _, [flight, hotel, _]| audit_hotel(rig, flight, hotel, flight),
        ..HOTEL
    },
    Case {
        // The route catches the refusal and says so: a reply like any other.
        name: "hotel, the flight is full",
        prepare: |rig, keys| stock(rig, keys, 0),
        relieve: Some(|rig, keys| stock(rig, keys, CAPACITY)),
        ..HOTEL
    },
    Case {
        // One of two parallel takes aborts, perhaps before the other has taken.
        name: "hotel, a take aborts",
        prepare: |rig, keys| stock(rig, keys, 0),
        script: |[orders, hotel, flight]| {
            let take_or_abort = || s().at_least("left", 1).add("left", -1).returns(Json::Null);
            reserve(orders, place(take_or_abort, hotel, flight))
        },
        relieve: Some(|rig, keys| stock(rig, keys, CAPACITY)),
        ..HOTEL
    },
    MEDIA,
    Case {
        // Nobody catches the refusal: what is kept under the key is an abort.
        name: "media, wrong password",
        prepare: |rig, keys| register(rig, keys, RIGHT - 1),
        relieve: Some(|rig, keys| register(rig, keys, RIGHT)),
        ..MEDIA
    },
];

/// Rooms in the hotel, and seats unless the flight is full.
const CAPACITY: i64 = 5;

/// Sets what is left of rooms and seats.
fn stock(rig: &mut Rig, [_, hotel, flight]: &Keys, seats: i64) {
    rig.run("account", hotel, s().set("left", CAPACITY));
    rig.run("counter", flight, s().set("left", seats).set("capacity", seats));
    rig.settle();
}

fn take() -> Script {
    s().get("left").when(0, s().returns("full")).add("left", -1).returns(Json::Null)
}

/// Takes a room and a seat at the same time, and notes the order; or aborts.
fn place(take: fn() -> Script, hotel: &str, flight: &str) -> Script {
    s().all([run("account", hotel, take()), run("counter", flight, take())])
        .when(json!(["full", null]), s().abort("no room"))
        .when(json!([null, "full"]), s().abort("no seat"))
        .add("count", 1)
        .returns(true)
}

/// Gives null where the order is refused.
fn reserve(orders: &str, place: Script) -> Script {
    s().try_call(run("note", orders, place))
}

fn audit_hotel(rig: &mut Rig, orders: &str, hotel: &str, flight: &str) -> Vec<i64> {
    let mut number = |service: &str, key: &str, field: &str| rig.field(service, key, field).as_i64().unwrap_or(0);
    let seats = number("counter", flight, "capacity") - number("counter", flight, "left");
    vec![number("note", orders, "count"), CAPACITY - number("account", hotel, "left"), seats]
}

/// The least number that is the user's password.
const RIGHT: i64 = 7;

fn register(rig: &mut Rig, [user, movie, _]: &Keys, password: i64) {
    rig.run("account", user, s().set("password", password));
    rig.run("counter", movie, s().set("id", "m1"));
    rig.settle();
}

/// Two reads at the same time, an id that nobody else draws, and three writes at the same time, to
/// entities that follow from them.
fn compose([user, movie, _]: &Keys) -> Script {
    let login = read("account", user, s().at_least("password", RIGHT).returns(user.as_str()));
    let (id, user_read, movie_read) = (json!({"kept": [1]}), json!({"kept": [0, 0]}), json!({"kept": [0, 1]}));
    let review = s().add("count", 1).set("id", id.clone());
    let index = || s().push("reviews", id.clone());
    s().all([login, read("counter", movie, s().get("id"))])
        .keep()
        .random()
        .keep()
        .all([
            Callee::run_computed("note", json!({"text": ["review ", id]}), review),
            Callee::run_computed("note", json!({"text": ["by ", user_read]}), index()),
            Callee::run_computed("note", json!({"text": ["of ", movie_read]}), index()),
        ])
        .kept()
}

/// Reviews, and those of the user and of the movie; and how many are in all three.
fn audit_media(rig: &mut Rig, [user, ..]: &Keys) -> Vec<i64> {
    let mut reviews = Vec::new();
    let stores = rig.core.shards.values_mut().map(|shard| shard.store());
    let entities = stores.flat_map(|store| store.scan_entities(b"", None, usize::MAX).expect("memory"));
    let entities: Vec<_> = entities.filter(|entity| !entity.is_internal()).collect();
    for entity in entities {
        let key = String::from_utf8_lossy(&entity.parts().key).into_owned();
        if key.starts_with("review ") {
            reviews.push(rig.field("note", &key, "id"));
            assert_eq!(rig.field("note", &key, "count"), json!(1), "{key} is one review");
        }
    }
    let mut ids = |key: String| rig.field("note", &key, "reviews").as_array().cloned().unwrap_or_default();
    let (by_user, of_movie) = (ids(format!("by {user}")), ids("of m1".to_owned()));
    let is_everywhere = |id: &&Json| by_user.contains(id) && of_movie.contains(id);
    let everywhere = reviews.iter().filter(is_everywhere).count();
    [reviews.len(), by_user.len(), of_movie.len(), everywhere].map(|count| i64::try_from(count).expect("few")).to_vec()
}

impl Case {
    fn begin(&self, rig: &mut Rig, keys: &Keys, is_route: bool) -> Token {
        let script = (self.script)(keys);
        match (is_route, self.is_bare) {
            (true, true) => rig.route(script, Some("k")),
            (true, false) => rig.route(s().call(run("note", &keys[0], script)), Some("k")),
            (false, true) => rig.run_keyed("note", &rig.key_in(2, "asker"), script, "k"),
            (false, false) => rig.run_keyed("note", &keys[0], script, "k"),
        }
    }
}

/// Who comes first when both could go on.
#[derive(Clone, Copy, Debug)]
enum Order {
    Messages,
    NewestMessages,
    Disks,
}

/// One message is carried, or one shard's log gets to the disk. Says whether anything was left.
fn advance(rig: &mut Rig, order: Order) -> bool {
    let shards: Vec<ShardId> = rig.core.shards.keys().copied().collect();
    let is_behind = |rig: &mut Rig, shard: &ShardId| {
        let shard = rig.core.shards.get_mut(shard).expect("there");
        shard.durable_lsn() < shard.store().lsn()
    };
    let behind = shards.iter().find(|shard| is_behind(rig, shard)).copied();
    let message = match order {
        Order::Disks if behind.is_some() => None,
        Order::NewestMessages => rig.peers.pop_back(),
        _ => rig.peers.pop_front(),
    };
    match (message, behind) {
        (Some((to, message)), _) => rig.peer(to, message),
        (None, Some(shard)) => rig.make_durable_in(shard),
        (None, None) => return false,
    }
    true
}

/// What goes wrong after some steps.
#[derive(Clone, Copy, Debug)]
enum Fault {
    /// Everything dies; these shards keep what was written and not yet known to be durable.
    Crash { keeps: u8 },
    /// One shard's log fails; the others go on; then everything is started again.
    Stop(u16),
}

fn faults() -> Vec<Fault> {
    (0..8).map(|keeps| Fault::Crash { keeps }).chain((0..3).map(Fault::Stop)).collect()
}

/// Whether an answer says that it took effect. A refusal is an abort, or a reply of null.
fn says_done(answer: &Answer) -> bool {
    match answer {
        Ok(Reply::Value(bytes)) => bytes != "null",
        Ok(Reply::Route(reply)) => reply.body != "null",
        _ => false,
    }
}

/// Whether it is kept under the key for good.
fn is_final(answer: &Answer) -> bool {
    answer.as_ref().map_or_else(|error| error.code == ErrorCode::Aborted, |_| true)
}

/// What came of a cut.
#[derive(Default)]
struct Cut {
    has_more: bool,
    /// It was refused before the cut.
    was_refused: bool,
    /// It was refused, or not answered, before; and took effect when it was sent again.
    is_done_later: bool,
}

/// Cuts a keyed transaction off after so many steps, and sends it again.
fn cut_off(case: &Case, order: Order, is_route: bool, steps: usize, fault: Fault) -> Cut {
    let context = format!("{} in order {order:?}, route {is_route}, {fault:?} after {steps} steps", case.name);
    let mut rig = Rig::new(3);
    let keys = keys(&rig);
    (case.prepare)(&mut rig, &keys);
    let token = case.begin(&mut rig, &keys, is_route);
    let mut has_more = true;
    for _ in 0..steps {
        has_more = advance(&mut rig, order);
    }
    if let Fault::Stop(shard) = fault {
        rig.stop(ShardId(shard));
        rig.settle();
        rig.tick(20_000);
        rig.settle();
        assert!(rig.reply(token).is_some(), "{context}: nobody is answered");
    }
    let first = rig.reply(token).filter(|answer| is_final(answer)).cloned();
    match fault {
        Fault::Crash { keeps } => rig.crash_keeping(|shard| keeps & (1 << shard.0) != 0),
        Fault::Stop(_) => rig.crash(),
    }
    rig.settle();
    let left = (case.counts)(&mut rig, case, &keys);
    assert!(left.iter().all(|count| *count == left[0]), "{context}: a part of it is left: {left:?}");
    rig.assert_at_rest();
    if let Some(first) = &first {
        assert_eq!(left[0], i64::from(says_done(first)), "{context}: answered {first:?}");
    }
    if let Some(relieve) = case.relieve {
        relieve(&mut rig, &keys);
    }
    let again = case.begin(&mut rig, &keys, is_route);
    rig.settle();
    let second = rig.reply(again).cloned().unwrap_or_else(|| panic!("{context}: not answered again"));
    assert!(is_final(&second), "{context}: {second:?}");
    assert!(first.as_ref().is_none_or(|first| *first == second), "{context}: {first:?} first, {second:?} later");
    let is_done = says_done(&second);
    assert!(is_done || case.relieve.is_some(), "{context}: refused without a reason: {second:?}");
    let left = (case.counts)(&mut rig, case, &keys);
    assert!(left.iter().all(|count| *count == i64::from(is_done)), "{context}: {second:?}, and {left:?}");
    assert_eq!(rig.bookkeeping_rows("prepared") + rig.bookkeeping_rows("decision"), 0, "{context}");
    rig.assert_at_rest();
    let was_refused = first.is_some_and(|first| !says_done(&first));
    Cut { has_more, was_refused, is_done_later: is_done }
}

#[test]
fn a_cut_at_any_message_or_append_leaves_all_or_nothing_and_a_retry_makes_it_all() {
    for case in &CASES {
        let (mut points, mut refused, mut done_later) = (0, 0, 0);
        for order in [Order::Messages, Order::NewestMessages, Order::Disks] {
            for is_route in [false, true] {
                for fault in faults() {
                    for steps in 0.. {
                        assert!(steps < 200);
                        let cut = cut_off(case, order, is_route, steps, fault);
                        points += 1;
                        refused += usize::from(cut.was_refused);
                        done_later += usize::from(cut.is_done_later);
                        if !cut.has_more {
                            break;
                        }
                    }
                }
            }
        }
        println!("{}: {points} points, {refused} refused before the cut, {done_later} done in the end", case.name);
        assert!(points > 400 && done_later > 0, "{}: {points} points, {done_later} done", case.name);
        assert_eq!(refused > 0, case.relieve.is_some(), "{}: {refused} refused", case.name);
    }
}

#[test]
fn a_query_at_any_moment_sees_all_or_nothing_and_after_the_reply_all() {
    for case in CASES.iter().filter(|case| case.looks.len() > 1) {
        for order in [Order::Messages, Order::NewestMessages, Order::Disks] {
            for steps in 0..40 {
                let mut rig = Rig::new(3);
                let keys = keys(&rig);
                let token = case.begin(&mut rig, &keys, false);
                for _ in 0..steps {
                    advance(&mut rig, order);
                }
                let is_answered = rig.reply(token).is_some();
                let looks = || case.looks.iter().map(|(index, field)| read("note", &keys[*index], s().get(field)));
                let query = rig.read("note", &rig.key_in(1, "reader"), s().all(looks()));
                let single = rig.read("note", &keys[1], s().get(case.looks[1].1));
                rig.settle();
                let seen: Vec<i64> =
                    rig.value(query).as_array().expect("a list").iter().map(|n| n.as_i64().unwrap_or(0)).collect();
                let context = format!("{} {order:?} {steps}: {seen:?}", case.name);
                assert!(seen.iter().all(|n| *n == seen[0]), "{context}");
                if is_answered {
                    assert_eq!((seen[0], rig.value(single)), (1, json!(1)), "{context}");
                }
                rig.assert_at_rest();
            }
        }
    }
}
