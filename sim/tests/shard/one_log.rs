//! Shards that share a log wait for the disk once, and not between themselves; and whatever follows from
//! what may be lost is lost with it, whoever shares a log with whom.

use millrace_shard::Token;

use crate::layouts::{LAYOUTS, ORDERS, Order, advance, every_choice};
use crate::*;

fn add() -> Script {
    s().add("n", 1)
}

fn keys(rig: &Rig) -> [String; 3] {
    [0, 1, 2].map(|shard| rig.key_in(shard, "k"))
}

#[test]
fn a_transaction_over_shards_of_one_log_waits_for_the_disk_once() {
    let mut rig = Rig::with_one_log(3);
    let [a, b, c] = keys(&rig);
    let token = rig.run("note", &a, add().all([run("note", &b, add()), run("note", &c, add())]));
    rig.carry_peers();
    assert!(rig.reply(token).is_none(), "nothing is durable");
    for key in [&a, &b, &c] {
        assert_eq!(rig.field("note", key, "n"), json!(1), "{key}");
    }
    assert!(
        rig.core.shards.values().all(|shard| (shard.figures().locked_entities, shard.figures().unfinished) == (0, 0))
    );
    rig.make_log_durable(0);
    assert!(rig.reply(token).is_some_and(Result::is_ok));
}

#[test]
fn votes_without_an_entry_wait_for_the_disk_also_between_shards_of_one_log() {
    // What may be lost is read in the second shard, for a transaction of the first one that writes nothing there.
    let scripts: [fn(&str) -> Script; 5] = [
        |there| s().call(read("note", there, s().get("n"))),
        |there| add().call(read("note", there, s().get("n"))),
        |there| s().call(read("note", there, s().get("n").fail("it has 5"))),
        |there| s().call(run("note", there, s().get("n").abort("it has 5"))),
        |there| s().call(run("note", there, s().get("n").start(run("account", there, s().fail("it has 5"))))),
    ];
    for script in scripts {
        let mut rig = Rig::with_one_log(2);
        let (here, there) = (rig.key_in(0, "a"), rig.key_in(1, "b"));
        rig.run("note", &there, s().set("n", 5));
        let token = rig.run("note", &here, script(&there));
        rig.carry_peers();
        assert!(rig.reply(token).is_none(), "what it has seen can still be lost");
        rig.settle();
        assert!(rig.reply(token).is_some());
        rig.assert_at_rest();
    }
}

/// What comes after a transfer from `a` to `b`.
#[derive(Clone, Copy, Debug)]
enum Next {
    /// `c` notes what it has read in `b`.
    Notes,
    /// `c` counts up what is in `b`, and notes what it is then.
    CountsUp,
    /// As above, and leaves what it has noted to `a`.
    NotesElsewhere,
}

const NEXT: [Next; 3] = [Next::Notes, Next::CountsUp, Next::NotesElsewhere];

impl Next {
    fn begin(self, rig: &mut Rig, [a, b, c]: &[String; 3]) -> Token {
        let seen = json!({"kept": [0]});
        let looks = || s().call(read("note", b, s().get("n"))).keep();
        let counts_up = s().call(run("note", b, s().add("m", 1).get("n"))).keep();
        match self {
            Next::Notes => rig.run("note", c, looks().set("seen", seen)),
            Next::CountsUp => rig.run("note", c, counts_up.set("seen", seen)),
            Next::NotesElsewhere => {
                let note = s().call(read("note", b, s().get("n"))).keep().set("seen", seen);
                rig.run("note", c, s().call(run("account", a, note)))
            }
        }
    }

    /// What it has noted.
    fn seen(self, rig: &mut Rig, [a, _, c]: &[String; 3]) -> Json {
        match self {
            Next::NotesElsewhere => rig.field("account", a, "seen"),
            _ => rig.field("note", c, "seen"),
        }
    }
}

/// A transfer, and one that comes after so many steps of it.
struct Course {
    logs: &'static [u16],
    order: Order,
    next: Next,
    begins_after: usize,
}

struct Running {
    rig: Rig,
    keys: [String; 3],
    transfer: Token,
    next: Option<Token>,
    /// Asks what is in `b`.
    query: Option<Token>,
    has_more: bool,
}

impl Course {
    fn run(&self, steps: usize) -> Running {
        let mut rig = Rig::with_logs(self.logs);
        let keys = keys(&rig);
        let transfer = rig.run("note", &keys[0], add().call(run("note", &keys[1], add())));
        let (mut next, mut query, mut has_more) = (None, None, true);
        for step in 0..=steps {
            if step == self.begins_after {
                next = Some(self.next.begin(&mut rig, &keys));
                query = Some(rig.read("note", &keys[2], s().call(read("note", &keys[1], s().get("n")))));
            }
            has_more = advance(&mut rig, self.order, step, &mut Vec::new());
        }
        Running { rig, keys, transfer, next, query, has_more }
    }

    /// Everything dies after so many steps, and so much of the logs is left.
    fn cut(&self, steps: usize, kept: &[usize]) -> bool {
        let Course { logs, order, next: kind, begins_after } = *self;
        let place =
            format!("logs {logs:?}, {order:?}, {kind:?} after {begins_after}, cut after {steps}, kept {kept:?}");
        let Running { mut rig, keys, transfer, next, query, .. } = self.run(steps);
        let is_done = |rig: &Rig, token: Option<Token>| token.is_some_and(|token| rig.reply(token).is_some());
        let (is_transferred, is_noted) = (is_done(&rig, Some(transfer)), is_done(&rig, next));
        let told = query.filter(|token| rig.reply(*token).is_some()).map(|token| rig.value(token));
        rig.crash_keeping_entries(kept);
        rig.settle();
        let [from, to] = [0, 1].map(|index| rig.field("note", &keys[index], "n"));
        let seen = kind.seen(&mut rig, &keys);
        assert_eq!(from, to, "{place}");
        assert!(!is_transferred || to == json!(1), "{place}: it was answered");
        if is_noted && matches!(kind, Next::CountsUp) {
            assert_eq!(rig.field("note", &keys[1], "m"), json!(1), "{place}: it was answered");
        }
        assert!(seen != json!(1) || to == json!(1), "{place}: what it has seen is lost");
        assert!(told != Some(json!(1)) || to == json!(1), "{place}: what was told is lost");
        rig.assert_at_rest();
        seen == json!(1) || told == Some(json!(1))
    }
}

#[test]
fn what_follows_from_what_is_lost_is_lost_and_what_was_told_is_not() {
    for logs in LAYOUTS {
        let (mut points, mut followed) = (0, 0);
        for (order, next) in ORDERS.into_iter().flat_map(|order| NEXT.map(|next| (order, next))) {
            for begins_after in 0..14 {
                let course = Course { logs, order, next, begins_after };
                for steps in begins_after.. {
                    let Running { rig, has_more, .. } = course.run(steps);
                    for kept in every_choice(&rig.tails()) {
                        points += 1;
                        followed += usize::from(course.cut(steps, &kept));
                    }
                    if !has_more {
                        break;
                    }
                }
            }
        }
        println!("logs {logs:?}: {points} points, at {followed} something had come of the transfer");
        assert!(followed > 500, "{logs:?}: {followed} of {points}");
    }
}
