//! Every class of anomaly, planted by hand, is found and named. Its innocent neighbour passes.

use std::collections::BTreeMap;

use millrace_history::AnomalyKind::{self, *};
use millrace_history::CycleClass::{G0, G1c, G2, GSingle};
use millrace_history::Order::{Data, Process, Realtime};
use millrace_history::{Access, Fact, Found, History, Value, verdict};

/// An operation of a separate client (`process`), from `begin` to `end`.
struct Do(u64, u64, u64, Vec<(Access, Found)>);

fn history(operations: Vec<Do>) -> History {
    let mut history = History::new();
    for Do(process, begin, end, steps) in operations {
        let (steps, found): (Vec<Access>, Vec<Found>) = steps.into_iter().unzip();
        let id = history.invoke(process, steps, begin);
        history.ok(id, found, end);
    }
    history
}

fn failed(mut history: History, steps: Vec<Access>) -> History {
    let id = history.invoke(99, steps, 0);
    history.fail(id, "aborted", 100);
    history
}

fn unknown(mut history: History, steps: Vec<Access>) -> History {
    let id = history.invoke(98, steps, 0);
    history.unknown(id, "timed out", 100);
    history
}

fn with(mut history: History, fact: Fact) -> History {
    history.note(fact);
    history
}

fn append(key: &str, value: i64) -> (Access, Found) {
    (Access::append(key, value), Found::Done)
}

fn list(key: &str, values: &[i64]) -> (Access, Found) {
    (Access::read_list(key), Found::list(values.iter().copied()))
}

fn write(key: &str, value: i64) -> (Access, Found) {
    (Access::write(key, value), Found::Done)
}

fn read(key: &str, value: i64) -> (Access, Found) {
    (Access::read(key), if value == 0 { Found::Value(None) } else { Found::value(value) })
}

fn increment(key: &str, before: i64) -> (Access, Found) {
    (Access::increment(key), Found::Number(before))
}

fn count(key: &str, value: i64) -> (Access, Found) {
    (Access::count(key), Found::Number(value))
}

/// All operations at once: no order in time helps.
fn together(transactions: Vec<Vec<(Access, Found)>>) -> History {
    let operation = |(process, steps): (usize, _)| Do(process as u64, 0, 100, steps);
    history(transactions.into_iter().enumerate().map(operation).collect())
}

#[track_caller]
fn finds(history: &History, kind: AnomalyKind) -> String {
    let verdict = verdict(history);
    let anomaly = verdict.anomaly().unwrap_or_else(|| panic!("{} is not found", kind.name()));
    assert_eq!(anomaly.kind, kind, "{anomaly}");
    assert!(!verdict.is_sound());
    anomaly.to_string()
}

#[track_caller]
fn passes(history: &History) {
    let verdict = verdict(history);
    assert!(verdict.is_sound(), "{verdict}");
}

#[test]
fn a_circle_of_writes_is_g0() {
    let writes = |first: i64| vec![append("x", first), append("y", first)];
    let read = vec![list("x", &[1, 2]), list("y", &[2, 1])];
    let text = finds(&together(vec![writes(1), writes(2), read]), Cycle(G0, Data));
    assert!(text.contains("T0 before T1: it appended 1 to x, and then came 2"), "{text}");
    passes(&together(vec![writes(1), writes(2), vec![list("x", &[1, 2]), list("y", &[1, 2])]]));
}

#[test]
fn a_read_of_a_failed_append_is_g1a() {
    let read = together(vec![vec![list("x", &[1])]]);
    finds(&failed(read.clone(), vec![Access::append("x", 1)]), G1a);
    passes(&unknown(read.clone(), vec![Access::append("x", 1)]));
    finds(&read, Phantom);
}

#[test]
fn a_read_between_two_appends_of_one_transaction_is_g1b() {
    let appends = vec![append("x", 1), append("x", 2)];
    finds(&together(vec![appends.clone(), vec![list("x", &[1])]]), G1b);
    passes(&together(vec![appends.clone(), vec![list("x", &[1, 2])]]));
    // Interleaved, the same operations are a circle of writes.
    finds(&together(vec![appends, vec![append("x", 3)], vec![list("x", &[1, 3, 2])]]), Cycle(G0, Data));
}

#[test]
fn reading_each_others_writes_is_g1c() {
    let history = together(vec![vec![append("x", 1), list("y", &[2])], vec![append("y", 2), list("x", &[1])]]);
    finds(&history, Cycle(G1c, Data));
}

#[test]
fn seeing_half_of_a_transaction_is_g_single() {
    let appends = vec![append("x", 1), append("y", 1)];
    let half = together(vec![appends.clone(), vec![list("x", &[1]), list("y", &[])]]);
    let text = finds(&half, Cycle(GSingle, Data));
    assert!(text.contains("G-single: each of these"), "{text}");
    assert!(text.contains("T1 (process 1, 0..100): read x → [1], read y → []"), "{text}");
    // The same with an unknown transaction: the part of it that is seen proves that it took effect.
    let half = together(vec![vec![list("x", &[1]), list("y", &[])]]);
    finds(&unknown(half, vec![Access::append("x", 1), Access::append("y", 1)]), Cycle(GSingle, Data));
}

#[test]
fn lost_update_is_found_although_nothing_reads_later() {
    let one = |value: i64| vec![list("x", &[]), append("x", value)];
    finds(&together(vec![one(1), one(2)]), Cycle(G2, Data));
    passes(&together(vec![one(1), vec![list("x", &[1]), append("x", 2)]]));
    passes(&together(vec![one(1), vec![append("x", 2)], vec![append("x", 3)]]));
}

#[test]
fn write_skew_is_g2() {
    let history = together(vec![vec![list("x", &[]), append("y", 1)], vec![list("y", &[]), append("x", 2)]]);
    finds(&history, Cycle(G2, Data));
}

#[test]
fn a_stale_read_is_g_single_realtime() {
    let stale = |process: u64, begin: u64| {
        history(vec![
            Do(0, 0, 10, vec![append("x", 1)]),
            Do(1, 11, 20, vec![list("x", &[1])]),
            Do(process, begin, 40, vec![list("x", &[])]),
        ])
    };
    let text = finds(&stale(2, 21), Cycle(GSingle, Realtime));
    assert!(text.contains("it had ended when the other began"), "{text}");
    // The same client saw it already, or did it itself.
    finds(&stale(0, 21), Cycle(GSingle, Process));
    finds(&stale(1, 21), Cycle(GSingle, Process));
    // It began before the append was acknowledged.
    passes(&stale(2, 10));
    passes(&stale(2, 5));
}

#[test]
fn writes_against_time_are_g0_realtime() {
    let history = history(vec![
        Do(0, 0, 10, vec![append("x", 1)]),
        Do(1, 20, 30, vec![append("x", 2)]),
        Do(2, 40, 50, vec![list("x", &[2, 1])]),
    ]);
    finds(&history, Cycle(G0, Realtime));
}

#[test]
fn a_read_from_the_future_is_g1c_realtime() {
    let history = history(vec![Do(0, 0, 10, vec![list("x", &[1])]), Do(1, 20, 30, vec![append("x", 1)])]);
    finds(&history, Cycle(G1c, Realtime));
}

#[test]
fn write_skew_across_time_is_g2_realtime() {
    let skew = |process: u64, begin: u64| {
        history(vec![
            Do(0, 0, 100, vec![list("x", &[]), list("y", &[2])]),
            Do(1, 0, 10, vec![append("x", 1)]),
            Do(2, 0, 100, vec![append("y", 2)]),
            Do(process, begin, 100, vec![list("y", &[])]),
        ])
    };
    finds(&skew(3, 11), Cycle(G2, Realtime));
    finds(&skew(1, 11), Cycle(G2, Process));
    passes(&skew(3, 10));
}

#[test]
fn an_unknown_append_may_come_late_or_never() {
    let sees = |lists: [&[i64]; 2]| {
        let read = |process, begin, values: &[i64]| Do(process, begin, begin + 10, vec![list("x", values)]);
        unknown(history(vec![read(0, 200, lists[0]), read(1, 300, lists[1])]), vec![Access::append("x", 1)])
    };
    passes(&sees([&[], &[]]));
    passes(&sees([&[], &[1]]));
    passes(&sees([&[1], &[1]]));
    finds(&sees([&[1], &[]]), Cycle(GSingle, Realtime));
}

#[test]
fn single_list_breaches_are_named() {
    let appends = vec![vec![append("x", 1)], vec![append("x", 2)]];
    let and = |reads: &[&[i64]]| {
        let reads = reads.iter().map(|values| vec![list("x", values)]);
        together(appends.clone().into_iter().chain(reads).collect())
    };
    finds(&and(&[&[1, 2, 1]]), DuplicateElement);
    finds(&and(&[&[1], &[2, 1]]), IncompatibleOrder);
    finds(&and(&[&[1, 2], &[1, 3]]), Phantom);
    passes(&and(&[&[1], &[], &[1, 2]]));
    let lost = history(vec![Do(0, 0, 10, vec![append("x", 1)]), Do(1, 20, 30, vec![list("x", &[])])]);
    let text = finds(&lost, LostAppend);
    assert!(text.contains("T0 (process 0, 0..10): append x 1"), "{text}");
}

#[test]
fn a_transaction_sees_itself() {
    finds(&together(vec![vec![append("x", 1), list("x", &[])]]), Internal);
    finds(&together(vec![vec![list("x", &[]), list("x", &[1])], vec![append("x", 1)]]), Internal);
    finds(&together(vec![vec![list("x", &[1]), append("x", 1)]]), IncompatibleOrder);
    finds(&together(vec![vec![append("x", 1), append("x", 2)], vec![list("x", &[2, 1])]]), IncompatibleOrder);
    passes(&together(vec![vec![append("x", 1), list("x", &[1]), append("x", 2), list("x", &[1, 2])]]));
    finds(&together(vec![vec![write("r", 1), read("r", 2)], vec![write("r", 2)]]), Internal);
    finds(&together(vec![vec![count("c", 0), increment("c", 0), count("c", 0)]]), Internal);
}

#[test]
fn registers_are_linearizable() {
    let stale = |begin: u64| {
        history(vec![
            Do(0, 0, 10, vec![write("x", 1)]),
            Do(1, 20, 30, vec![write("x", 2)]),
            Do(2, begin, 50, vec![read("x", 1)]),
        ])
    };
    let text = finds(&stale(31), NotSerializable);
    let why = "then T1 must come and cannot: it ends the x of 1, which is still to be read";
    assert!(text.contains(why) && text.contains("T2 (process 2, 31..50): read x → 1"), "{text}");
    passes(&stale(30));
    finds(&together(vec![vec![read("x", 5)]]), Phantom);
    finds(&failed(together(vec![vec![read("x", 5)]]), vec![Access::write("x", 5)]), G1a);
    passes(&unknown(together(vec![vec![read("x", 5)]]), vec![Access::write("x", 5)]));
    // A value that comes back.
    let back = |values: [i64; 3]| {
        let reads = values.into_iter().zip([20, 40, 60]);
        let reads = reads.map(|(value, begin)| Do(5, begin, begin + 10, vec![read("x", value)]));
        let writes = [Do(0, 0, 10, vec![write("x", 1)]), Do(1, 0, 100, vec![write("x", 2)])];
        history(writes.into_iter().chain(reads).collect())
    };
    passes(&back([1, 1, 2]));
    finds(&back([1, 2, 1]), NotSerializable);
    let initial = Fact::Registers(BTreeMap::from([("x".to_owned(), Value::from("old"))]));
    passes(&with(together(vec![vec![(Access::read("x"), Found::value("old"))]]), initial));
}

#[test]
fn registers_in_transactions_are_serializable() {
    let writes = vec![write("x", 1), write("y", 1)];
    passes(&together(vec![writes.clone(), vec![read("x", 1), read("y", 1)]]));
    finds(&together(vec![writes, vec![read("x", 1), read("y", 0)]]), NotSerializable);
    let skew = together(vec![vec![read("x", 0), write("y", 1)], vec![read("y", 0), write("x", 1)]]);
    finds(&skew, NotSerializable);
}

fn bank(operations: Vec<Do>) -> History {
    let accounts = [("a", 10), ("b", 0), ("c", 5)];
    with(history(operations), Fact::Accounts(accounts.map(|(key, balance)| (key.to_owned(), balance)).into()))
}

fn transfer(from: &str, to: &str, amount: i64) -> (Access, Found) {
    (Access::transfer(from, to, amount), Found::Done)
}

fn balances(a: i64, b: i64, c: i64) -> (Access, Found) {
    (Access::Balances, Found::balances([("a", a), ("b", b), ("c", c)]))
}

#[test]
fn banks_keep_their_money() {
    let one = |found| bank(vec![Do(0, 0, 100, vec![transfer("a", "b", 4)]), Do(1, 0, 100, vec![found])]);
    passes(&one(balances(10, 0, 5)));
    passes(&one(balances(6, 4, 5)));
    finds(&one(balances(6, 0, 5)), WrongTotal);
    finds(&one(balances(-1, 11, 5)), NegativeBalance);
    let text = finds(&one(balances(7, 3, 5)), NotSerializable);
    assert!(text.contains("cannot: a holds 6 and not 7, b holds 4 and not 3"), "{text}");
    finds(&one((Access::Balances, Found::balances([("a", 15)]))), WrongKeys);
    finds(&one((Access::Balance("b".to_owned()), Found::Number(-4))), NegativeBalance);
    passes(&one((Access::Balance("b".to_owned()), Found::Number(4))));
    // Overdrawn: no order lets both happen.
    finds(
        &bank(vec![Do(0, 0, 9, vec![transfer("a", "b", 7)]), Do(1, 10, 20, vec![transfer("a", "c", 7)])]),
        NotSerializable,
    );
    finds(&history(vec![Do(0, 0, 9, vec![transfer("a", "b", 7)])]), Malformed);
}

#[test]
fn snapshots_of_a_bank_are_ordered() {
    let two = |first: (Access, Found), second: (Access, Found)| {
        bank(vec![
            Do(0, 0, 100, vec![transfer("a", "b", 1)]),
            Do(1, 0, 100, vec![transfer("a", "c", 2)]),
            Do(2, 0, 100, vec![first]),
            Do(3, 0, 100, vec![second]),
        ])
    };
    passes(&two(balances(9, 1, 5), balances(7, 1, 7)));
    // One reading saw only the first transfer, the other only the second: long fork.
    finds(&two(balances(9, 1, 5), balances(8, 0, 7)), NotSerializable);
    // Stale: an acknowledged effect must be seen.
    let stale =
        |begin| bank(vec![Do(0, 0, 10, vec![transfer("a", "b", 4)]), Do(1, begin, 30, vec![balances(10, 0, 5)])]);
    finds(&stale(11), NotSerializable);
    passes(&stale(10));
    // The reply to a transfer is a reading too.
    let reply = |b| (Access::transfer("a", "b", 4), Found::balances([("a", 6), ("b", b)]));
    passes(&bank(vec![Do(0, 0, 10, vec![reply(4)])]));
    finds(&bank(vec![Do(0, 0, 10, vec![reply(5)])]), NotSerializable);
    // An unknown transfer may be there.
    let lost = unknown(bank(vec![Do(1, 200, 300, vec![balances(6, 4, 5)])]), vec![Access::transfer("a", "b", 4)]);
    passes(&lost);
}

fn counters(values: &[(&str, i64)]) -> Fact {
    Fact::Counters(values.iter().map(|&(key, value)| (key.to_owned(), value)).collect())
}

#[test]
fn counters_count_once() {
    let two = together(vec![vec![increment("c", 0)], vec![increment("c", 1)]]);
    passes(&with(two.clone(), counters(&[("c", 2)])));
    finds(&with(two.clone(), counters(&[("c", 1)])), LostIncrement);
    finds(&with(two.clone(), counters(&[("c", 3)])), ExtraEffect);
    finds(&with(two.clone(), counters(&[])), WrongKeys);
    finds(&with(two.clone(), counters(&[("c", 2), ("d", 1)])), WrongKeys);
    let lost = unknown(two, vec![Access::increment("c")]);
    passes(&with(lost.clone(), counters(&[("c", 2)])));
    passes(&with(lost.clone(), counters(&[("c", 3)])));
    finds(&with(lost.clone(), counters(&[("c", 4)])), ExtraEffect);
    passes(&failed(together(vec![vec![increment("c", 0)]]), vec![Access::increment("c")]));
    finds(&together(vec![vec![increment("c", 0)], vec![increment("c", 0)]]), RepeatedReply);
    finds(&together(vec![vec![increment("c", 1)]]), ExtraEffect);
    finds(&together(vec![vec![count("c", 1)]]), ExtraEffect);
}

#[test]
fn counters_are_serializable() {
    let tree = |first: [i64; 2], second: [i64; 2]| {
        let one = |[a, b]: [i64; 2]| vec![increment("a", a), increment("b", b)];
        together(vec![one(first), one(second)])
    };
    passes(&tree([0, 0], [1, 1]));
    finds(&tree([0, 1], [1, 0]), Cycle(G0, Data));
    let reads = |a, b| together(vec![vec![increment("a", 0), increment("b", 0)], vec![count("a", a), count("b", b)]]);
    passes(&reads(0, 0));
    passes(&reads(1, 1));
    finds(&reads(1, 0), Cycle(GSingle, Data));
    let late = history(vec![Do(0, 0, 10, vec![increment("a", 1)]), Do(1, 20, 30, vec![increment("a", 0)])]);
    finds(&late, Cycle(G0, Realtime));
    let stale = history(vec![Do(0, 0, 10, vec![increment("a", 0)]), Do(1, 20, 30, vec![count("a", 0)])]);
    finds(&stale, Cycle(GSingle, Realtime));
}

fn stocks(hotel: i64, flight: i64, orders: i64) -> Fact {
    let kinds = |hotel: i64, flight: i64| {
        let one = |kind: &str, key: &str, count: i64| (kind.to_owned(), BTreeMap::from([(key.to_owned(), count)]));
        BTreeMap::from([one("hotel", "h", hotel), one("flight", "f", flight)])
    };
    Fact::Stocks { before: kinds(4, 2), left: kinds(hotel, flight), orders }
}

fn reserve(is_made: bool) -> (Access, Found) {
    (Access::reserve([("hotel", "h"), ("flight", "f")]), Found::Accepted(is_made))
}

#[test]
fn orders_equal_both_decrements() {
    let two = together(vec![vec![reserve(true)], vec![reserve(true)], vec![reserve(false)]]);
    passes(&with(two.clone(), stocks(2, 0, 2)));
    finds(&with(two.clone(), stocks(3, 0, 2)), LostEffect);
    finds(&with(two.clone(), stocks(1, 0, 2)), ExtraEffect);
    finds(&with(two.clone(), stocks(2, -1, 2)), ExtraEffect);
    finds(&with(two.clone(), stocks(2, 0, 1)), LostEffect);
    finds(&with(two.clone(), stocks(2, 0, 3)), ExtraEffect);
    finds(&two, Malformed);
    let one = || together(vec![vec![reserve(true)]]);
    finds(&with(together(vec![vec![reserve(true)], vec![reserve(false)]]), stocks(3, 1, 1)), WrongRefusal);
    let doubtful = || unknown(one(), vec![Access::reserve([("hotel", "h"), ("flight", "f")])]);
    passes(&with(doubtful(), stocks(3, 1, 1)));
    passes(&with(doubtful(), stocks(2, 0, 2)));
    // Half of the unknown transfer took effect.
    finds(&with(doubtful(), stocks(2, 1, 1)), Unequal);
    finds(&with(doubtful(), stocks(3, 1, 2)), Unequal);
}

#[test]
fn reviews_are_in_every_store() {
    let publish = |id: i64| (Access::Publish, Found::value(id));
    let two = together(vec![vec![publish(1)], vec![publish(2)]]);
    let stores = |ids: [&[i64]; 3]| {
        let store = |(name, ids): (&str, &[i64])| (name.to_owned(), ids.iter().map(|&id| Value::from(id)).collect());
        Fact::Stores(["reviews", "by_user", "by_movie"].into_iter().zip(ids).map(store).collect())
    };
    passes(&with(two.clone(), stores([&[1, 2], &[2, 1], &[1, 2]])));
    finds(&with(two.clone(), stores([&[1, 2], &[1, 2], &[1, 2, 3]])), ExtraEffect);
    finds(&with(two.clone(), stores([&[1], &[1], &[1]])), LostEffect);
    finds(&with(two.clone(), stores([&[1, 2, 2], &[1, 2], &[1, 2]])), DuplicateElement);
    let lost = unknown(two.clone(), vec![Access::Publish]);
    passes(&with(lost.clone(), stores([&[1, 2, 3], &[1, 2, 3], &[1, 2, 3]])));
    finds(&with(lost.clone(), stores([&[1, 2], &[1, 2, 3], &[1, 2]])), Unequal);
    let sizes = |sizes: [i64; 2]| {
        Fact::StoreSizes(
            [("reviews", sizes[0]), ("users", sizes[1])].map(|(name, size)| (name.to_owned(), size)).into(),
        )
    };
    passes(&with(two.clone(), sizes([2, 2])));
    finds(&with(two.clone(), sizes([1, 1])), LostEffect);
    finds(&with(lost, sizes([2, 3])), Unequal);
    finds(&with(together(vec![vec![publish(1)], vec![publish(1)]]), stores([&[1], &[1], &[1]])), RepeatedReply);
}

#[test]
fn nothing_is_held_at_rest() {
    let held = |count| with(together(vec![vec![write("x", 1)]]), Fact::AtRest { what: "locks".to_owned(), count });
    passes(&held(0));
    assert!(finds(&held(2), LeftAtRest).contains("2 locks at rest"));
}

#[test]
fn what_proves_nothing_does_not_pass() {
    finds(&History::new(), Malformed);
    finds(&together(vec![vec![(Access::read("x"), Found::Done)]]), Malformed);
    finds(&together(vec![vec![append("x", 1)], vec![append("x", 1)]]), Malformed);
    let mut twice = History::new();
    let id = twice.invoke(0, [Access::write("x", 1)], 0);
    twice.ok(id, [Found::Done], 1);
    twice.fail(id, "changed its mind", 2);
    finds(&twice, Malformed);
    finds(&history(vec![Do(0, 10, 5, vec![write("x", 1)])]), Malformed);
}
