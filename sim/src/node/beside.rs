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

    use millrace_api::StateFields;
    use millrace_base::{EntityKey, Error, ErrorCode, ShardId, limits, shard_of_key};
    use millrace_driver::{FastRead, Job, Submitted};
    use millrace_shard::question::ReadState;
    use millrace_shard::{Input, Invoke, Reply, RequestInfo, Token};

    use super::super::{Machine, Node, Setup};
    use crate::clock::SimClock;
    use crate::rig::{APP, route_call};
    use crate::script::{Callee, Script};

    /// Keys of one shard.
    const A: &str = "{x}a";
    const B: &str = "{x}b";
    const C: &str = "{x}c";
    /// One that has no rows, which is known.
    const WARM: &str = "{x}d";

    fn shard() -> ShardId {
        shard_of_key(A.as_bytes(), 2)
    }

    /// What [`Reads::go_on`](crate::reads::Reads::go_on) makes of this choice, if one is asked for.
    const READ_AND_KEEP: u64 = 1;

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
            let tried = world.call(WARM, get());
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

        fn entity(&self, key: &str) -> EntityKey {
            let catalog = self.node.catalog();
            let (program, service) = catalog.service(Some(APP), "counter").expect("a service");
            let (handler, _) = catalog.handler(program, service, "run").expect("a handler");
            catalog.entity(handler, key.as_bytes()).expect("an entity")
        }

        fn load(&mut self, key: &str) {
            let entity = self.entity(key);
            self.node.store(shard()).get(&entity, b"count").expect("it is read");
        }

        fn look_at(&mut self, key: &str) -> Token {
            let token = self.token();
            let question = ReadState { entity: self.entity(key), fields: StateFields::All }.into();
            self.node.request(0, token, Job::Ask { shard: shard(), question });
            token
        }

        fn has_reply(&mut self, token: Token) -> bool {
            self.end_rounds();
            self.node.output.replies.iter().any(|(to, _)| *to == token)
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
        // The core reads it by itself meanwhile, as it does when too many wait, and it is changed.
        world.load(A);
        let changing = world.call(A, Script::new().add("count", 1));
        world.rest();
        assert!(world.reply(changing).is_some());
        world.forget();
        assert_eq!((world.reply(early), world.reads_under_way()), (None, 1), "what was read first is still on its way");
        world.node.read_all(0);
        assert_eq!(world.reply(early).as_deref(), Some("8"));
    }

    #[test]
    fn a_call_within_a_transaction_waits_for_rows_while_the_core_serves_others() {
        let mut world = World::with_cold_counters();
        let add = Callee::run("counter", A, Script::new().add("count", 1));
        let adding = world.call(WARM, Script::new().call(add));
        assert_eq!((world.reply(adding), world.reads_under_way()), (None, 1));
        let read = world.job("read", WARM, get());
        let token = world.token();
        world.node.request(0, token, read);
        assert_eq!(world.reply(token).as_deref(), Some("null"));
        world.node.read_all(0);
        world.rest();
        assert!(world.reply(adding).is_some());
        let now = world.call(A, get());
        assert_eq!(world.reply(now).as_deref(), Some("8"));
    }

    #[test]
    fn calls_beside_each_other_have_their_rows_read_beside_each_other() {
        let mut world = World::with_cold_counters();
        let gets = [A, B, A].map(|key| Callee::read("counter", key, get()));
        let reading = world.call(WARM, Script::new().all(gets));
        assert_eq!((world.reply(reading), world.reads_under_way()), (None, 2));
        world.node.read_all(0);
        assert_eq!(world.reply(reading).as_deref(), Some("[7,7,7]"));
    }

    #[test]
    fn a_message_waits_for_rows() {
        let mut world = World::with_cold_counters();
        let add = Callee::run("counter", A, Script::new().add("count", 1));
        let sending = world.call(WARM, Script::new().send(add, 0));
        world.rest();
        assert!(world.reply(sending).is_some());
        assert_eq!(world.reads_under_way(), 1);
        assert!(!world.node.core(0).is_quiet(), "it is under way");
        world.node.read_all(0);
        let now = world.call(A, get());
        world.rest();
        assert_eq!(world.reply(now).as_deref(), Some("8"));
    }

    /// Else they would hold the core one behind the other.
    #[test]
    fn many_who_wait_for_one_entity_all_go_on_some_at_a_time() {
        let mut world = World::with_cold_counters();
        let mut waiting = Vec::new();
        for _ in 0..100 {
            waiting.push(world.call(A, get()));
            world.end_rounds();
        }
        assert_eq!(world.reads_under_way(), 1);
        let rows = loop {
            if let Some(rows) = world.node.core(0).platform.reads.go_on(u64::MAX) {
                break rows;
            }
        };
        world.node.core(0).rows_read(rows);
        let waiting_still = world.node.core(0).shard_mut(shard()).expect("it is open").figures().waiting;
        assert!((1..100).contains(&waiting_still), "{waiting_still} wait");
        assert!(!world.node.core(0).is_quiet());
        for token in waiting {
            assert_eq!(world.reply(token).as_deref(), Some("7"));
        }
    }

    #[test]
    fn a_call_that_has_waited_too_long_for_rows_is_refused() {
        let mut world = World::with_cold_counters();
        let late = world.call(A, get());
        world.clock.advance(limits::QUEUE_MS + 100);
        world.node.read_all(0);
        world.end_rounds();
        let refused = |(to, reply): &(Token, Result<Reply, Error>)| {
            *to == late && reply.as_ref().is_err_and(|error| error.code == ErrorCode::Overloaded)
        };
        assert!(world.node.output.replies.iter().any(refused), "{:?}", world.node.output.replies);
    }

    #[test]
    fn a_look_at_state_waits_for_rows() {
        let mut world = World::with_cold_counters();
        let asked = world.look_at(A);
        assert_eq!((world.has_reply(asked), world.reads_under_way()), (false, 1));
        world.node.read_all(0);
        assert!(world.has_reply(asked));
    }

    #[test]
    fn who_waits_for_rows_is_answered_when_the_shard_stops() {
        let mut world = World::with_cold_counters();
        let add = Callee::run("counter", B, Script::new().add("count", 1));
        let tokens = [world.call(A, get()), world.call(WARM, Script::new().call(add))];
        assert_eq!(world.reads_under_way(), 2);
        world.node.core(0).give(shard(), Input::Stop("a test".to_owned()));
        world.end_rounds();
        for token in tokens {
            assert!(world.node.output.replies.iter().any(|(to, reply)| *to == token && reply.is_err()));
        }
        world.node.read_all(0);
        assert!(world.node.core(0).is_idle());
    }

    #[test]
    fn a_transaction_that_gave_up_waiting_for_rows_does_not_go_on_with_them() {
        let mut world = World::with_cold_counters();
        let add = Callee::run("counter", A, Script::new().add("count", 1));
        let waiting = world.call(WARM, Script::new().call(add));
        for _ in 0..2_000 {
            world.clock.advance(10);
            world.node.tick();
        }
        world.end_rounds();
        let refused = |(to, reply): &(Token, Result<Reply, _>)| *to == waiting && reply.is_err();
        assert!(world.node.output.replies.iter().any(refused));
        world.node.read_all(0);
        let now = world.call(A, get());
        assert_eq!(world.reply(now).as_deref(), Some("7"));
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
