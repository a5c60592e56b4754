//! A node whose handlers run in workers, under faults: seeds find nothing, bugs planted in how attempts are treated are
//! found, and a connection that is lost with any single frame loses nothing. Before that, what seeds have found, by hand.
//!
//! A program of its own: its seeds take half a minute, and run beside those of the other programs.

use std::rc::Rc;
use std::sync::Arc;

use millrace_api::Intervention;
use millrace_base::{ShardId, shard_of_key};
use millrace_driver::question::Intervene;
use millrace_driver::{Job, Question};
use millrace_shard::{Invoke, Reply, RequestInfo, Token};
use millrace_sim::bugs::PlantedBug;
use millrace_sim::clock::SimClock;
use millrace_sim::happened::Thing;
use millrace_sim::net::Fate;
use millrace_sim::node::{Machine, Node, Setup};
use millrace_sim::random::Rng;
use millrace_sim::rig::APP;
use millrace_sim::runner::{self, Totals};
use millrace_sim::script::{Callee, Script};
use millrace_sim::workers::{Way, WorkerPlan};
use millrace_sim::world::{Plan, trace};

/// Seeds of one test run; `cargo run --release -p millrace-sim -- --workers --seeds N` runs more.
const SEEDS: u64 = 700;

/// Seeds within which each planted bug must be found, for each way to workers.
const SEEDS_FOR_A_BUG: u64 = 400;

/// Two keys of the first shard, and one of the second.
fn keys() -> [String; 3] {
    let key = |shard: u16, name: &str| {
        let mut keys = (0..).map(|number| format!("{{{number}}}{name}"));
        keys.find(|key| shard_of_key(key.as_bytes(), 2) == ShardId(shard)).expect("some number will do")
    };
    [key(0, "one"), key(0, "two"), key(1, "one")]
}

/// A node of two shards on two cores, where nothing goes wrong.
struct World {
    node: Node,
    clock: Arc<SimClock>,
    rng: Rng,
    next_token: u64,
}

impl World {
    fn new(way: Way) -> Self {
        let clock = Arc::new(SimClock::new(1_000_000_000));
        let workers = Some(WorkerPlan { way, frames: Rc::default(), lose_at: None });
        let machine = Machine { workers, ..Machine::quiet(Arc::clone(&clock) as _) };
        let setup = Setup {
            cores: 2,
            look_ns: 1_000,
            read_ahead: 100,
            flush_after_ms: 1_000,
            chunk_bytes: 1 << 20,
            first_nonce: 1,
            hold_ms: None,
        };
        Self { node: Node::start(&machine, setup).expect("it starts"), clock, rng: Rng::new(3), next_token: 0 }
    }

    /// Everything but workers goes on, for a while.
    fn go_on(&mut self) {
        for _ in 0..10 {
            self.clock.advance(1);
            self.node.tick();
            for core in 0..self.node.cores() {
                self.node.run_due(core);
                self.node.end_round(core);
                self.node.end_commit(core);
                self.node.read_all(core);
                while self.node.receive(core, Fate::default()) {}
            }
        }
    }

    /// One turn of a worker is frames, and what follows of it happens.
    fn work(&mut self) {
        self.node.carry_for_workers(&mut self.rng, true);
        self.go_on();
    }

    fn work_until(&mut self, is_reached: impl Fn(&mut Self) -> bool) {
        for _ in 0..400 {
            if is_reached(self) {
                return;
            }
            self.work();
        }
        panic!("it never comes to that: {:?}, {:?}", self.node.left_at_rest(), self.node.waiting_workflows());
    }

    fn request(&mut self, service: &str, key: &str, handler: &str, script: &Script) -> Token {
        let shard = shard_of_key(key.as_bytes(), 2);
        let (program, service) = self.node.catalog().service(Some(APP), service).expect("a service");
        let (id, _) = self.node.catalog().handler(program, service, handler).expect("a handler");
        let nonce = self.node.core(0).take_nonce();
        let info = RequestInfo { time: self.node.core(0).now(), began_ms: 0, nonce, idempotency_key: None };
        let invoke = Invoke { info, handler: id, key: key.as_bytes().into(), input: script.json().into() };
        let job = match handler {
            "flow" => Job::Send { shard, invoke, delay_ms: 0 },
            _ => Job::Invoke(shard, invoke),
        };
        self.next_token += 1;
        self.node.request(0, Token(self.next_token), job);
        self.go_on();
        Token(self.next_token)
    }

    /// The reply to a request, within some seconds.
    fn reply(&mut self, token: Token) -> Option<Reply> {
        for _ in 0..400 {
            let replies = &mut self.node.output.replies;
            if let Some(at) = replies.iter().position(|(to, _)| *to == token) {
                return Some(replies.swap_remove(at).1.expect("it succeeds"));
            }
            self.work();
        }
        None
    }

    fn call(&mut self, key: &str, script: &Script) -> Option<String> {
        let token = self.request("account", key, "run", script);
        match self.reply(token)? {
            Reply::Value(json) => Some(String::from_utf8_lossy(&json).into_owned()),
            other => panic!("{other:?}"),
        }
    }

    /// The field as it is stored now.
    fn stored(&mut self, key: &str, field: &str) -> Option<String> {
        let name = |text: &str| millrace_base::Name::new(text).expect("a name");
        let entity = millrace_base::EntityKey::new(&name(APP), &name("account"), key.as_bytes());
        let store = self.node.store(shard_of_key(key.as_bytes(), 2));
        let value = store.get(&entity, field.as_bytes()).expect("the store reads");
        value.map(|value| String::from_utf8_lossy(value.content()).into_owned())
    }

    fn cancel(&mut self, shard: ShardId, sequence: millrace_shard::Sequence) -> Token {
        let question: Question = Intervene { sequence, intervention: Intervention::Cancel }.into();
        self.next_token += 1;
        self.node.request(0, Token(self.next_token), Job::Ask { shard, question });
        self.go_on();
        Token(self.next_token)
    }
}

#[test]
fn a_call_that_comes_back_over_another_shard_waits_for_none_of_its_callers() {
    let [one, two, away] = keys();
    for way in Way::ALL {
        let mut world = World::new(way);
        let back = Callee::run("account", &one, Script::new().get("n"));
        let on = Callee::run("account", &two, Script::new().call(back));
        let there = Callee::run("account", &away, Script::new().call(on));
        let reply = world.call(&one, &Script::new().add("n", 1).call(there));
        assert_eq!(reply.as_deref(), Some("1"), "{way:?}: it ends, and sees what its first caller has written");
    }
}

#[test]
fn calls_of_one_transaction_that_meet_over_another_shard_lose_no_write() {
    let [one, two, away] = keys();
    let add = || Callee::run("account", &two, Script::new().add("n", 1));
    let over = |name: &str| {
        Callee::run(
            "account",
            &format!("{{{}}}{name}", &away[1..away.find('}').expect("a tag")]),
            Script::new().call(add()),
        )
    };
    for way in Way::ALL {
        for (all, sum) in [(vec![over("a"), over("b")], 2), (vec![add(), over("a"), add(), over("b")], 4)] {
            let mut world = World::new(way);
            world.call(&one, &Script::new().all(all)).expect("it ends");
            assert_eq!(world.stored(&two, "n"), Some(sum.to_string()), "{way:?}");
        }
    }
}

#[test]
fn a_workflow_that_is_cancelled_while_its_worker_has_the_turn_undoes_what_it_has_done() {
    let [own, first, second] = keys();
    let add = |key: &str, number| Callee::run("account", key, Script::new().add("done", number));
    let ends = [Script::new().returns(1), Script::new().abort_step("planned"), Script::new().sleep(5)];
    for (way, end) in Way::ALL.iter().flat_map(|way| ends.iter().map(move |end| (*way, end.clone()))) {
        let mut world = World::new(way);
        let script = Script::new().compensate(add(&first, -1)).call(add(&first, 1));
        let script = script.compensate(add(&second, -1)).call(add(&second, 1)).join(end.clone());
        let token = world.request("account", &own, "flow", &script);
        let Some(Reply::Sent(id)) = world.reply(token) else { panic!("it is sent") };
        world.work_until(|world| world.stored(&second, "done").is_some());
        // The worker is told of its last call, and says how the workflow goes on only after this.
        world.go_on();
        let cancelled = world.cancel(id.shard, id.sequence);
        assert_eq!(world.reply(cancelled), Some(Reply::Done), "{way:?}");
        world.work_until(|world| world.node.workflows() == 0);
        let left = [&first, &second].map(|key| world.stored(key, "done"));
        assert_eq!(left, [Some("0".to_owned()), Some("0".to_owned())], "{way:?}, {}", end.json());
    }
}

#[test]
fn no_seed_breaks_a_promise_with_workers() {
    let mut totals = Totals::default();
    let found = runner::run(1, SEEDS, &Plan::with_workers, &mut totals);
    assert!(found.is_none(), "{found:?}");
    println!("{totals}\n{}", totals.happened);
    assert!(totals.acknowledged as u64 > 20 * SEEDS && totals.judged as u64 > 15 * SEEDS, "{totals}");
    // A simulator in which nothing happens finds nothing.
    let is_rare = |thing: &&Thing| thing.is_of_workers() && totals.happened.times(**thing) < SEEDS / 4;
    let rare: Vec<&str> = Thing::ALL.iter().filter(is_rare).map(|thing| thing.name()).collect();
    assert!(rare.is_empty(), "hardly happens: {rare:?} in {}", totals.happened);
}

#[test]
fn every_bug_in_how_attempts_are_treated_is_found_on_each_way_that_can_have_it() {
    let is_found = |bug: PlantedBug, way: u64| {
        let plan = |seed| Plan { bug: Some(bug), ..Plan::with_workers(3 * seed + way) };
        runner::run(1, SEEDS_FOR_A_BUG, &plan, &mut Totals::default()).is_some()
    };
    for bug in PlantedBug::ALL.iter().copied().filter(|bug| bug.is_of_workers()) {
        for (number, way) in (0..).zip(Way::ALL) {
            let may_have_it = match way {
                // A request has a time limit, and no heartbeats.
                Way::RequestReply => bug != PlantedBug::SilenceIsIgnored,
                // A stream that was reset brings no frames any more.
                Way::Stream => bug != PlantedBug::OldAttemptIsAnswer,
                Way::DialIn => true,
            };
            assert!(!may_have_it || is_found(bug, number), "{} is not found, {way:?}", bug.name());
        }
    }
}

#[test]
fn a_connection_that_is_lost_with_any_frame_loses_nothing() {
    for seed in 0..6 {
        let plan = |lose_worker_at| Plan { steps: 40, lose_worker_at, ..Plan::with_workers(seed) };
        let whole = runner::run_one(plan(Some(u64::MAX))).expect("without a loss");
        assert!(whole.worker_frames > 100, "{whole:?}");
        for frame in 1..=whole.worker_frames {
            if let Err(failure) = runner::run_one(plan(Some(frame))) {
                panic!("seed {seed}, lost with frame {frame} of {}: {}", whole.worker_frames, failure.what);
            }
        }
    }
}

#[test]
fn a_seed_with_workers_replays_exactly() {
    for seed in [6, 7, 8] {
        let first = trace(Plan::with_workers(seed));
        assert!(first.len() > 100);
        assert_eq!(first, trace(Plan::with_workers(seed)));
    }
}
