//! Rows that are read beside the cores of a node.

use super::Node;
use crate::happened::Thing;
use crate::random::Rng;

impl Node {
    /// Some rows are read beside a core, and some are handed over to it.
    pub fn read_some(&mut self, index: usize, rng: &mut Rng) {
        for _ in 0..=rng.index(4) {
            self.read_one(index, rng.draw());
        }
    }

    /// All that was asked for is read and handed over.
    pub fn read_all(&mut self, index: usize) {
        while self.cores[index].core.platform.reads.count() > 0 {
            self.read_one(index, u64::MAX);
        }
    }

    fn read_one(&mut self, index: usize, choice: u64) {
        let core = &mut self.cores[index].core;
        if let Some(rows) = core.platform.reads.go_on(choice) {
            core.platform.happened.note(Thing::RowsRead);
            core.rows_read(rows);
            self.finish_step(index);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use millrace_base::{ShardId, shard_of_key};
    use millrace_driver::{FastRead, Job, Submitted};
    use millrace_shard::{Invoke, Reply, RequestInfo, Token};

    use super::super::{Machine, Node, Setup};
    use crate::clock::SimClock;
    use crate::rig::{APP, route_call};
    use crate::script::{Callee, Script};

    /// Keys of one shard.
    const A: &str = "{x}a";
    const B: &str = "{x}b";
    const C: &str = "{x}c";

    fn shard() -> ShardId {
        shard_of_key(A.as_bytes(), 2)
    }

    /// What [`Reads::go_on`](crate::reads::Reads::go_on) makes of these choices, if one is asked for.
    const READ_AND_KEEP: u64 = 1;
    const READ_AND_GIVE_THE_SECOND: u64 = 5 + (1 << 8);

    struct World {
        node: Node,
        clock: Arc<SimClock>,
        next_token: u64,
    }

    impl World {
        /// A node with rows of two counters, [`A`] and [`B`], that are in the checkpoint only.
        fn with_cold_counters() -> Self {
            Self::with_looks_of(100_000)
        }

        /// The same; each look at the clock takes so long, and a read as long as one look.
        fn with_looks_of(look_ns: u64) -> Self {
            let clock = Arc::new(SimClock::new(1_000_000_000));
            let machine = Machine::quiet(Arc::clone(&clock) as _);
            let setup = Setup {
                cores: 1,
                look_ns,
                read_ahead: 100,
                flush_after_ms: 1,
                chunk_bytes: 1 << 20,
                first_nonce: 1,
                hold_ms: None,
            };
            let node = Node::start(&machine, setup).expect("it starts");
            let mut world = Self { node, clock, next_token: 0 };
            let written = [A, B].map(|key| world.call(key, Script::new().add("count", 7)));
            world.rest();
            assert!(written.iter().all(|token| world.reply(*token).is_some()));
            world.forget();
            // The core reads one by itself, and finds whether that is quick.
            let tried = world.call("{x}d", get());
            assert_eq!(world.reply(tried).as_deref(), Some("null"));
            world
        }

        fn rest(&mut self) {
            for _ in 0..20 {
                self.clock.advance(10);
                self.node.tick();
                self.end_rounds();
                self.node.end_commit(0);
                self.node.write_chunk(0);
            }
        }

        /// A few: what waits for the disk is tried in every one.
        fn end_rounds(&mut self) {
            for _ in 0..10 {
                self.node.end_round(0);
            }
        }

        fn forget(&mut self) {
            let store = self.node.store(shard());
            while store.settle(usize::MAX) {}
            store.evict(0);
            assert!(store.may_be_cold());
        }

        fn token(&mut self) -> Token {
            self.next_token += 1;
            Token(self.next_token)
        }

        fn call(&mut self, key: &str, script: Script) -> Token {
            let token = self.token();
            let job = self.job("run", key, script);
            self.node.request(0, token, job);
            token
        }

        fn job(&mut self, handler: &str, key: &str, script: Script) -> Job {
            let info = self.info();
            let catalog = self.node.catalog();
            let (program, service) = catalog.service(Some(APP), "counter").expect("a service");
            let (handler, _) = catalog.handler(program, service, handler).expect("a handler");
            Job::Invoke(shard(), Invoke { info, handler, key: key.as_bytes().into(), input: script.json().into() })
        }

        fn info(&mut self) -> RequestInfo {
            let nonce = self.node.core(0).take_nonce();
            RequestInfo { time: self.node.core(0).now(), began_ms: 0, nonce, idempotency_key: None }
        }

        /// The reply, if it has come.
        fn reply(&mut self, token: Token) -> Option<String> {
            self.end_rounds();
            let replies = &mut self.node.output.replies;
            let at = replies.iter().position(|(to, _)| *to == token)?;
            match replies.swap_remove(at).1.expect("it succeeds") {
                Reply::Value(bytes) => Some(String::from_utf8_lossy(&bytes).into_owned()),
                Reply::Route(reply) => Some(String::from_utf8_lossy(&reply.body).into_owned()),
                _ => Some(String::new()),
            }
        }

        fn reads_under_way(&mut self) -> usize {
            self.node.core(0).platform.reads.count()
        }
    }

    fn get() -> Script {
        Script::new().get("count")
    }

    #[test]
    fn a_core_serves_others_while_rows_are_read_and_reads_them_once() {
        let mut world = World::with_cold_counters();
        let (first, second) = (world.call(A, get()), world.call(A, get()));
        assert_eq!((world.reply(first), world.reply(second)), (None, None), "they wait");
        assert_eq!(world.reads_under_way(), 1, "for one read");
        let other = world.call(B, get());
        assert_eq!(world.reads_under_way(), 2);
        world.node.read_all(0);
        for token in [first, second, other] {
            assert_eq!(world.reply(token).as_deref(), Some("7"));
        }
        let waits = world.call(C, get());
        let warm = world.call(A, get());
        assert_eq!(world.reply(warm).as_deref(), Some("7"), "nobody waits for the rows of others");
        assert_eq!(world.reply(waits), None);
        world.node.read_all(0);
        assert_eq!(world.reply(waits).as_deref(), Some("null"));
    }

    #[test]
    fn rows_that_are_too_old_by_the_time_they_come_are_not_served() {
        let mut world = World::with_cold_counters();
        let early = world.call(A, get());
        world.node.read_one(0, READ_AND_KEEP);
        // A transaction reaches the entity by another way meanwhile, and changes it.
        let add = Callee::run("counter", A, Script::new().add("count", 1));
        let changing = world.call(B, Script::new().call(add));
        world.node.read_one(0, READ_AND_GIVE_THE_SECOND);
        world.rest();
        assert!(world.reply(changing).is_some());
        world.forget();
        assert_eq!((world.reply(early), world.reads_under_way()), (None, 1), "what was read first is still on its way");
        world.node.read_all(0);
        assert_eq!(world.reply(early).as_deref(), Some("8"));
    }

    #[test]
    fn a_route_waits_for_what_it_calls_first() {
        let mut world = World::with_cold_counters();
        let token = world.token();
        let info = world.info();
        let script = Script::new().call(Callee::run("counter", A, get()));
        let call = route_call(info, world.node.catalog(), &script);
        world.node.request(0, token, Job::Route(call));
        assert_eq!((world.reply(token), world.reads_under_way()), (None, 1));
        assert!(!world.node.core(0).is_idle());
        world.node.read_all(0);
        assert!(world.reply(token).expect("it goes on").contains('7'));
        assert_eq!(world.node.core(0).open_requests(), 0);
    }

    #[test]
    fn a_core_reads_by_itself_as_long_as_that_is_quick() {
        let mut world = World::with_looks_of(1);
        let token = world.call(A, get());
        assert_eq!(world.reads_under_way(), 0);
        assert_eq!(world.reply(token).as_deref(), Some("7"));
    }

    #[test]
    fn a_request_that_ends_at_once_is_answered_where_it_is_submitted_and_leaves_nothing_pending() {
        let mut world = World::with_looks_of(1);
        let submit = |world: &mut World, job| {
            let core = world.node.core(0);
            let arrival = core.enter();
            core.submit(job, arrival)
        };
        let read = world.job("read", A, get());
        assert!(matches!(submit(&mut world, read), Submitted::Answered(Ok(Reply::Value(value))) if value == "7"));
        assert_eq!(world.node.core(0).open_requests(), 0);
        let change = world.job("run", A, Script::new().add("count", 1));
        assert!(matches!(submit(&mut world, change), Submitted::Pending(_)), "it waits for the disk");
        assert_eq!(world.node.core(0).open_requests(), 1);
    }

    #[test]
    fn a_fast_read_leaves_what_is_cold_to_the_long_way() {
        let mut world = World::with_cold_counters();
        let catalog = world.node.catalog();
        let (program, service) = catalog.service(Some(APP), "counter").expect("a service");
        let (handler, _) = catalog.handler(program, service, "read").expect("a handler");
        let input = get().json();
        let read = FastRead { handler, shard: shard(), key: A.as_bytes(), input: input.as_bytes() };
        let core = world.node.core(0);
        let arrival = core.enter();
        assert!(core.fast_read(read, arrival).is_none(), "it would wait for the disk");
    }
}
