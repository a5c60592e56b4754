//! What a node does when the machine's clock is set back: the time of its shards goes on, and nobody waits for longer.

use std::sync::Arc;

use millrace_base::{ErrorCode, limits, shard_of_key};
use millrace_driver::Job;
use millrace_shard::{Invoke, Reply, RequestInfo, Token};

use super::{Machine, Node, Setup};
use crate::clock::SimClock;
use crate::rig::{APP, route_call};
use crate::script::{Callee, Script};

const KEY: &str = "{x}a";
const BEGIN_MS: u64 = 1_000_000_000;

struct World {
    machine: Machine,
    clock: Arc<SimClock>,
    node: Node,
    next_token: u64,
}

fn setup() -> Setup {
    Setup {
        cores: 1,
        look_ns: 1,
        read_ahead: 100,
        flush_after_ms: 1,
        chunk_bytes: 1 << 20,
        first_nonce: 1,
        hold_ms: None,
    }
}

impl World {
    fn new() -> Self {
        let clock = Arc::new(SimClock::new(BEGIN_MS));
        let machine = Machine::quiet(Arc::clone(&clock) as _);
        let node = Node::start(&machine, setup()).expect("it starts");
        Self { machine, clock, node, next_token: 0 }
    }

    /// What is in memory and in the log is in the checkpoint, and the process is another.
    fn restart(&mut self) {
        self.rest();
        self.node = Node::start(&self.machine, setup()).expect("it starts");
    }

    fn rest(&mut self) {
        for _ in 0..20 {
            self.clock.advance(10);
            self.node.tick();
            for _ in 0..10 {
                self.node.end_round(0);
            }
            self.node.end_commit(0);
            self.node.write_chunk(0);
        }
    }

    fn info(&mut self) -> RequestInfo {
        let nonce = self.node.core(0).take_nonce();
        RequestInfo { time: self.node.core(0).now(), began_ms: 0, nonce, idempotency_key: None }
    }

    fn ask(&mut self, job: Job) -> Token {
        self.next_token += 1;
        self.node.request(0, Token(self.next_token), job);
        Token(self.next_token)
    }

    fn call(&mut self, key: &str, script: &Script) -> Token {
        let info = self.info();
        let catalog = self.node.catalog();
        let (program, service) = catalog.service(Some(APP), "counter").expect("a service");
        let (handler, _) = catalog.handler(program, service, "run").expect("a handler");
        let invoke = Invoke { info, handler, key: key.as_bytes().into(), input: script.json().into() };
        self.ask(Job::Invoke(shard_of_key(key.as_bytes(), 2), invoke))
    }

    fn route(&mut self, script: &Script) -> Token {
        let info = self.info();
        let call = route_call(info, self.node.catalog(), script);
        self.ask(Job::Route(call))
    }

    fn reply(&mut self, token: Token) -> Option<Result<String, ErrorCode>> {
        let replies = &mut self.node.output.replies;
        let at = replies.iter().position(|(to, _)| *to == token)?;
        Some(match replies.swap_remove(at).1 {
            Ok(Reply::Value(bytes)) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
            Ok(Reply::Route(reply)) => Ok(String::from_utf8_lossy(&reply.body).into_owned()),
            Ok(_) => Ok(String::new()),
            Err(error) => Err(error.code),
        })
    }

    /// The number in a reply that has come by now.
    fn number(&mut self, token: Token) -> u64 {
        self.rest();
        let text = self.reply(token).expect("it has been answered").expect("it succeeds");
        text.chars().filter(char::is_ascii_digit).collect::<String>().parse().expect("a number")
    }
}

/// Notes the time, and returns it.
fn now() -> Script {
    Script::new().add("count", 1).now()
}

#[test]
fn the_time_of_a_shard_never_goes_back() {
    let mut world = World::new();
    let first = world.call(KEY, &now());
    let first = world.number(first);
    assert!(first >= BEGIN_MS);

    world.clock.set_back(5_000);
    let second = world.call(KEY, &now());
    let second = world.number(second);
    assert!(second >= first, "{second} after {first}");
    let routed = world.route(&Script::new().call(Callee::run("counter", KEY, now())));
    let routed = world.number(routed);
    assert!(routed >= second, "{routed} in a route after {second}");

    // While the machine catches up, it shows times again at which the shard's clock was behind.
    let mut last = routed;
    for _ in 0..15 {
        world.clock.advance(600);
        let next = world.call(KEY, &now());
        let next = world.number(next);
        let placed = world.route(&Script::new().call(Callee::run("counter", KEY, now())));
        let placed = world.number(placed);
        assert!(next >= last && placed >= next, "{next} and {placed} after {last}");
        last = placed;
    }

    // The log of what was before is gone.
    world.clock.set_back(60_000);
    world.restart();
    let third = world.call(KEY, &now());
    let third = world.number(third);
    assert!(third >= last && third < last + 10_000, "{third} after {last}");
}

#[test]
fn nobody_waits_for_longer_because_the_clock_was_set_back() {
    let mut world = World::new();
    let slow = world.call(KEY, &Script::new().hash());
    let waits = world.call(KEY, &now());
    world.clock.set_back(3_600_000);
    world.rest();
    assert_eq!((world.reply(slow), world.reply(waits)), (None, None));
    world.clock.advance(limits::CALL_WAIT_MS);
    world.rest();
    assert_eq!(world.reply(waits), Some(Err(ErrorCode::WaitLimit)));
}
