//! Transactions over several shards happen as a whole or not at all and once, wherever they are
//! cut off: every message and every append of each is a point at which everything dies, or one log fails; and
//! every first part of what was written and not known to be durable is what may be left of a log.
//!
//! `hotel` and `media` do what the examples of these names do. After every cut: as many successes as
//! orders, rooms and seats taken; a review in each of three places or in none; nothing held; what it came
//! after is there; and the same key is answered as the first time, a refusal too, also when its reason has
//! gone meanwhile. All of it with each shard writing a log of its own, with all of them writing one, and with both
//! kinds beside each other; and with the messages of the opening before coming once more after the restart.

mod alone;

use millrace_shard::{Reply, Token};
use millrace_sim::rig_logs::OnItsWay;

use crate::layouts::{EACH_ITS_OWN, LAYOUTS, ORDERS, Order, advance, every_choice};
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
    /// Entities that it has touched if it took effect.
    touched: &'static [(&'static str, usize)],
    /// Fields that it counts up, where that is all it does.
    looks: &'static [(usize, &'static str)],
    /// How often it took effect, by all that tells.
    counts: fn(&mut Rig, &Case, &Keys) -> Vec<i64>,
    /// It is refused until this is done.
    relieve: Option<fn(&mut Rig, &Keys)>,
}

/// Counts up these fields.
const fn counting(name: &'static str, script: fn(&Keys) -> Script, looks: &'static [(usize, &'static str)]) -> Case {
    let touched = if looks.len() > 2 { NOTES } else { NOTES.split_at(2).0 };
    Case { name, prepare: |_, _| (), script, is_bare: false, touched, looks, counts: count_fields, relieve: None }
}

const NOTES: &[(&str, usize)] = &[("note", 0), ("note", 1), ("note", 2)];

fn count_fields(rig: &mut Rig, case: &Case, keys: &Keys) -> Vec<i64> {
    let count = |(index, field): &(usize, &str)| rig.field("note", &keys[*index], field).as_i64().unwrap_or(0);
    case.looks.iter().map(count).collect()
}

const HOTEL: Case = Case {
    name: "hotel",
    prepare: |rig, keys| stock(rig, keys, CAPACITY),
    script: |[orders, hotel, flight]| reserve(orders, place(take, hotel, flight)),
    is_bare: true,
    touched: &[("note", 0), ("account", 1), ("counter", 2)],
    looks: &[],
    counts: |rig, _, [orders, hotel, flight]| audit_hotel(rig, orders, hotel, flight),
    relieve: None,
};

const MEDIA: Case = Case {
    name: "media",
    prepare: |rig, keys| register(rig, keys, RIGHT),
    script: compose,
    is_bare: true,
    touched: &[("account", 0), ("counter", 1)],
    looks: &[],
    counts: |rig, _, keys| audit_media(rig, keys),
    relieve: None,
};

const CASES: [Case; 11] = [
    counting("transfer", |[_, b, _]| add().call(run("note", b, add())).get("n"), &[(0, "n"), (1, "n")]),
    counting("delegated", |[_, b, _]| s().call(run("note", b, add())), &[(1, "n")]),
    counting("delegated after a read", |[_, b, _]| s().get("before").call(run("note", b, add())), &[(1, "n")]),
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
        touched: &[("note", 0), ("account", 1), ("counter", 0)],
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

/// How a transaction is asked for.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    Call,
    Route,
    /// Nothing of it is kept; its coordinator may leave the decision to the other shard.
    WithoutKey,
}

impl Case {
    fn begin(&self, rig: &mut Rig, keys: &Keys, way: Way) -> Token {
        let script = (self.script)(keys);
        let asker = if self.is_bare { rig.key_in(2, "asker") } else { keys[0].clone() };
        match way {
            Way::Call => rig.run_keyed("note", &asker, script, "k"),
            Way::Route if self.is_bare => rig.route(script, Some("k")),
            Way::Route => rig.route(s().call(run("note", &asker, script)), Some("k")),
            Way::WithoutKey => rig.run("note", &asker, script),
        }
    }
}

/// One kind of way through a transaction.
#[derive(Clone, Copy)]
struct Course {
    case: &'static Case,
    /// Which log each shard writes.
    logs: &'static [u16],
    order: Order,
    way: Way,
    /// What it touches has been written twice just before, and that is not durable yet.
    is_behind: bool,
    /// An older one holds what it touches last, until it is let go.
    is_held: bool,
    /// Shards fail alone, and hold for so long what they have locked.
    hold_ms: Option<u64>,
}

/// A transaction on its way.
struct Running {
    rig: Rig,
    keys: Keys,
    token: Token,
    /// The writes just before it.
    before: Vec<Token>,
    delivered: Vec<OnItsWay>,
    has_more: bool,
}

impl Course {
    fn run(&self, steps: usize) -> Running {
        let mut rig = match self.hold_ms {
            Some(hold_ms) => Rig::failing_alone(3, hold_ms),
            None => Rig::with_logs(self.logs),
        };
        let keys = keys(&rig);
        (self.case.prepare)(&mut rig, &keys);
        let touched = || self.case.touched.iter().filter(|_| self.is_behind);
        let twice = touched().flat_map(|place| [(place, 1), (place, 2)]);
        let before = twice.map(|((service, key), n)| rig.run(service, &keys[*key], s().set("before", n))).collect();
        if let Some((service, key)) = self.case.touched.last().filter(|_| self.is_held) {
            rig.run(service, &keys[*key], s().hash());
        }
        let token = self.case.begin(&mut rig, &keys, self.way);
        let (mut has_more, mut delivered) = (true, Vec::new());
        for step in 0..steps {
            has_more = advance(&mut rig, self.order, step, &mut delivered);
        }
        Running { rig, keys, token, before, delivered, has_more }
    }

    /// How often it took effect: as often in every place.
    fn count(&self, rig: &mut Rig, keys: &Keys, context: &dyn Fn() -> String) -> i64 {
        let counts = (self.case.counts)(rig, self.case, keys);
        assert!(counts.iter().all(|count| *count == counts[0]), "{}: a part of it is left: {counts:?}", context());
        counts[0]
    }

    /// The writes just before it that are there still.
    fn before(&self, rig: &mut Rig, keys: &Keys) -> Vec<bool> {
        let touched = self.case.touched.iter().filter(|_| self.is_behind);
        let there = touched.map(|(service, key)| rig.field(service, &keys[*key], "before").as_i64().unwrap_or(0));
        there.flat_map(|newest| [newest >= 1, newest >= 2]).collect()
    }
}

/// What goes wrong after some steps.
#[derive(Clone, Copy, Debug)]
enum Fault {
    /// Everything dies.
    Crash(Restart),
    /// One log fails; the others go on; then everything is started again.
    Stop(u16),
}

/// What comes after a crash.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Restart {
    /// The shards come to rest, and then the same is asked for again.
    Quiet,
    /// As above, and all that was said in the opening before is said once more as soon as they run.
    Echoes,
    /// The same is asked for again at once, and what was said in the opening before comes in between.
    EchoesMeetRetry,
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
    /// It was refused before the cut.
    was_refused: bool,
    /// It was refused, or not answered, before; and took effect when it was sent again.
    is_done_later: bool,
    /// It left a log with some of its tail, and without some.
    is_amid_tail: bool,
    /// Messages of the opening before that came after it.
    echoes: usize,
}

/// What was to be seen of a transaction before it was cut off.
struct Observed {
    /// Its answer, if it is one for good.
    first: Option<Answer>,
    /// Which of the writes just before it were answered.
    before: Vec<bool>,
}

impl Observed {
    fn was_done(&self) -> bool {
        self.first.as_ref().is_some_and(says_done)
    }
}

/// Looks at what is left when everything has come to rest after a cut. How often it took effect.
fn audit(course: &Course, rig: &mut Rig, keys: &Keys, seen: &Observed, context: &dyn Fn() -> String) -> i64 {
    let count = course.count(rig, keys, context);
    rig.assert_at_rest();
    if let Some(first) = &seen.first {
        assert_eq!(count, i64::from(seen.was_done()), "{}: answered {first:?}", context());
    }
    let there = course.before(rig, keys);
    assert!(count == 0 || there.iter().all(|is_there| *is_there), "{}: it came after {there:?}", context());
    count
}

/// Cuts a transaction off after so many steps, when so much of each log's tail is on disk, and asks for it again.
fn cut_off(course: &Course, steps: usize, fault: Fault, kept: &[usize]) -> Cut {
    let Course { case, logs, order, way, is_behind, .. } = *course;
    let context = || {
        let head = format!("{} with logs {logs:?}, behind {is_behind}, in order {order:?}, {way:?}", case.name);
        format!("{head}, {fault:?} after {steps} steps, kept {kept:?}")
    };
    let Running { mut rig, keys, token, before, mut delivered, .. } = course.run(steps);
    let is_amid_tail = rig.tails().iter().zip(kept).any(|(tail, kept)| (1..*tail).contains(kept));
    if let Fault::Stop(log) = fault {
        stop(&mut rig, logs, log);
        assert!(rig.reply(token).is_some(), "{}: nobody is answered", context());
    }
    let first = rig.reply(token).filter(|answer| is_final(answer)).cloned();
    let before = before.iter().map(|token| rig.reply(*token).is_some_and(Result::is_ok)).collect();
    let seen = Observed { first, before };
    delivered.append(&mut rig.on_their_way());
    rig.crash_keeping_entries(kept);
    let mut echoes = match fault {
        Fault::Crash(Restart::Echoes | Restart::EchoesMeetRetry) => delivered,
        _ => Vec::new(),
    };
    let echo_count = echoes.len();
    let mut left = None;
    if !matches!(fault, Fault::Crash(Restart::EchoesMeetRetry)) {
        echoes.drain(..).for_each(|message| rig.hand_over(message));
        rig.settle();
        left = Some(audit(course, &mut rig, &keys, &seen, &context));
        if let Some(relieve) = case.relieve {
            relieve(&mut rig, &keys);
        }
    }
    let again = case.begin(&mut rig, &keys, way);
    for (step, message) in echoes.into_iter().enumerate() {
        rig.hand_over(message);
        advance(&mut rig, order, step, &mut Vec::new());
    }
    rig.settle();
    let second = rig.reply(again).cloned().unwrap_or_else(|| panic!("{}: not answered again", context()));
    audit_retry(course, &mut rig, &keys, (&seen, left, &second), &context);
    let was_refused = seen.first.is_some_and(|first| !says_done(&first));
    Cut { was_refused, is_done_later: says_done(&second), is_amid_tail, echoes: echo_count }
}

/// One log fails; the shards of the others go on.
fn stop(rig: &mut Rig, logs: &[u16], log: u16) {
    let shard = logs.iter().position(|other| *other == log).expect("every log has a shard");
    rig.stop(ShardId(shard.try_into().expect("few")));
    rig.settle();
    rig.tick(20_000);
    rig.settle();
}

/// Looks at what is left when the same has been asked for again. `left` is how often it had taken effect, if
/// that has been looked at.
fn audit_retry(
    course: &Course,
    rig: &mut Rig,
    keys: &Keys,
    (seen, left, second): (&Observed, Option<i64>, &Answer),
    context: &dyn Fn() -> String,
) {
    let there = course.before(rig, keys);
    let is_lost = |(answered, is_there): (&bool, &bool)| (*answered || seen.was_done()) && !is_there;
    assert!(!seen.before.iter().zip(&there).any(is_lost), "{}: {:?}, and {there:?}", context(), seen.before);
    assert!(is_final(second), "{}: {second:?}", context());
    let is_done = says_done(second);
    assert!(is_done || course.case.relieve.is_some(), "{}: refused without a reason: {second:?}", context());
    let count = course.count(rig, keys, context);
    let first = &seen.first;
    if course.way == Way::WithoutKey {
        let earlier = left.unwrap_or_else(|| i64::from(seen.was_done()).max(count - 1).min(1));
        assert_eq!(count, earlier + i64::from(is_done), "{}: {first:?} first, {second:?} later", context());
    } else {
        assert!(first.as_ref().is_none_or(|first| first == second), "{}: {first:?}, {second:?} later", context());
        assert_eq!(count, i64::from(is_done), "{}: {second:?}", context());
    }
    assert_eq!(rig.bookkeeping_rows("prepared") + rig.bookkeeping_rows("decision"), 0, "{}", context());
    rig.assert_at_rest();
}

/// What came of many cuts.
#[derive(Debug, Default)]
struct Total {
    points: usize,
    refused: usize,
    done_later: usize,
    amid_tails: usize,
    echoes: usize,
}

impl Total {
    fn add(&mut self, cut: &Cut) {
        self.points += 1;
        self.refused += usize::from(cut.was_refused);
        self.done_later += usize::from(cut.is_done_later);
        self.amid_tails += usize::from(cut.is_amid_tail);
        self.echoes += cut.echoes;
    }
}

/// Cuts at every step, each with everything that may be left of the logs.
fn cut_everywhere(course: &Course, restarts: &[Restart], total: &mut Total) {
    for steps in 0.. {
        assert!(steps < 200);
        let running = course.run(steps);
        let tails = running.rig.tails();
        for kept in every_choice(&tails) {
            for restart in restarts {
                total.add(&cut_off(course, steps, Fault::Crash(*restart), &kept));
            }
        }
        for log in (0..running.rig.log_count()).filter(|_| restarts.contains(&Restart::Quiet)) {
            for count in 0..=tails[usize::from(log)] {
                // The others have come to rest by then, and have no tail.
                let kept = vec![count; tails.len()];
                total.add(&cut_off(course, steps, Fault::Stop(log), &kept));
            }
        }
        if !running.has_more {
            return;
        }
    }
}

/// All courses through a case with these logs.
fn every_course(case: &'static Case, logs: &'static [u16], mut visit: impl FnMut(&Course)) {
    for order in ORDERS {
        for way in [Way::Call, Way::Route, Way::WithoutKey] {
            // Ticks are of no more interest when something else was written before.
            for is_behind in [false, true].into_iter().filter(|is_it| !is_it || order != Order::MessagesAndTicks) {
                visit(&Course { case, logs, order, way, is_behind, is_held: false, hold_ms: None });
            }
        }
    }
}

fn a_cut_anywhere_leaves_all_or_nothing(logs: &'static [u16]) {
    for case in &CASES {
        let mut total = Total::default();
        every_course(case, logs, |course| cut_everywhere(course, &[Restart::Quiet], &mut total));
        println!("{} with logs {logs:?}: {total:?}", case.name);
        let Total { points, refused, done_later, amid_tails, .. } = total;
        assert!(points > 400 && done_later > 0 && amid_tails > 200, "{}: {total:?}", case.name);
        assert_eq!(refused > 0, case.relieve.is_some(), "{}: {refused} refused", case.name);
    }
}

#[test]
fn a_cut_at_any_message_or_append_leaves_all_or_nothing_and_a_retry_makes_it_all() {
    a_cut_anywhere_leaves_all_or_nothing(EACH_ITS_OWN);
}

#[test]
fn a_cut_anywhere_of_one_log_that_all_share_leaves_all_or_nothing() {
    a_cut_anywhere_leaves_all_or_nothing(&[0, 0, 0]);
}

#[test]
fn a_cut_anywhere_of_two_logs_leaves_all_or_nothing() {
    a_cut_anywhere_leaves_all_or_nothing(&[0, 0, 1]);
    a_cut_anywhere_leaves_all_or_nothing(&[0, 1, 1]);
}

#[test]
fn what_was_said_in_an_earlier_participation_id_takes_no_effect_in_this_one() {
    for logs in [EACH_ITS_OWN, &[0, 1, 1]] {
        let mut all = Total::default();
        for case in &CASES {
            let mut total = Total::default();
            let restarts = [Restart::Echoes, Restart::EchoesMeetRetry];
            every_course(case, logs, |course| cut_everywhere(course, &restarts, &mut total));
            println!("{} with logs {logs:?}: {total:?}", case.name);
            all.echoes += total.echoes;
        }
        assert!(all.echoes > 50_000, "{logs:?}: {all:?}");
    }
}

/// A second copy of a message comes after so many steps, and nothing else goes wrong. Who held something lets
/// it go just before; and what comes of the copy is heard before what was said earlier.
fn say_again(course: &Course, steps: usize, which: usize) {
    let Course { case, logs, order, way, is_behind, is_held, .. } = *course;
    let context = || {
        let head = format!("{} with logs {logs:?}, behind {is_behind}, in order {order:?}, {way:?}", case.name);
        format!("{head}, held {is_held}, message {which} again after {steps} steps")
    };
    let Running { mut rig, keys, token, delivered, .. } = course.run(steps);
    if !rig.offloads.is_empty() {
        rig.finish_offload();
    }
    rig.hand_over(delivered[which].clone());
    if let Some((to, message)) = rig.peers.pop_back() {
        rig.peer(to, message);
    }
    rig.settle();
    let answer = rig.reply(token).cloned().unwrap_or_else(|| panic!("{}: not answered", context()));
    assert!(is_final(&answer), "{}: {answer:?}", context());
    assert!(says_done(&answer) == case.relieve.is_none(), "{}: {answer:?}", context());
    assert_eq!(course.count(&mut rig, &keys, &context), i64::from(says_done(&answer)), "{}: {answer:?}", context());
    assert_eq!(rig.bookkeeping_rows("prepared") + rig.bookkeeping_rows("decision"), 0, "{}", context());
    rig.assert_at_rest();
}

#[test]
fn any_message_that_comes_again_at_any_later_step_takes_no_effect() {
    for logs in [EACH_ITS_OWN, &[0, 0, 1]] {
        let mut points = 0;
        let mut again = |course: &Course| {
            for steps in 0.. {
                let Running { delivered, has_more, .. } = course.run(steps);
                (0..delivered.len()).for_each(|which| say_again(course, steps, which));
                points += delivered.len();
                if !has_more {
                    return;
                }
            }
        };
        CASES.iter().for_each(|case| {
            every_course(case, logs, |course| {
                again(course);
                again(&Course { is_held: true, ..*course });
            });
        });
        println!("logs {logs:?}: {points} messages came again");
        assert!(points > 10_000, "{logs:?}: {points}");
    }
}

#[test]
fn a_query_at_any_moment_sees_all_or_nothing_and_after_the_reply_all() {
    for (case, logs) in CASES.iter().flat_map(|case| LAYOUTS.map(|logs| (case, logs))) {
        for order in ORDERS.into_iter().filter(|_| case.looks.len() > 1) {
            for steps in 0..40 {
                let course =
                    Course { case, logs, order, way: Way::Call, is_behind: false, is_held: false, hold_ms: None };
                let Running { mut rig, keys, token, .. } = course.run(steps);
                let is_answered = rig.reply(token).is_some();
                let looks = || case.looks.iter().map(|(index, field)| read("note", &keys[*index], s().get(field)));
                let query = rig.read("note", &rig.key_in(1, "reader"), s().all(looks()));
                let single = rig.read("note", &keys[1], s().get(case.looks[1].1));
                rig.settle();
                let seen: Vec<i64> =
                    rig.value(query).as_array().expect("a list").iter().map(|n| n.as_i64().unwrap_or(0)).collect();
                let context = format!("{} with logs {logs:?} {order:?} {steps}: {seen:?}", case.name);
                assert!(seen.iter().all(|n| *n == seen[0]), "{context}");
                if is_answered {
                    assert_eq!((seen[0], rig.value(single)), (1, json!(1)), "{context}");
                }
                rig.assert_at_rest();
            }
        }
    }
}
