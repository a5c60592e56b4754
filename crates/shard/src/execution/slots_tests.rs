//! When messages take their slots on workers, and how long they keep them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use millrace_base::{Error, UnixMillis};
use millrace_func::{
    ActivationId, App, Engine, HandlerId, Host, OperationId, Program, Service, Start, TurnResult, WorkerSlot,
};

use crate::input::Input;
use crate::request::RequestInfo;
use crate::testing::{CallEngine, RUN, START, TestWorld, keys, options, store};
use crate::typed_reply::ReplyTo;
use crate::{Invoke, Shard, Token, World};

/// One slot, that is taken or not.
type Slot = Arc<AtomicBool>;

struct Held(Slot);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.store(false, Ordering::SeqCst);
    }
}

/// Runs as [`CallEngine`] does, with one slot for all roots.
struct OneSlot(Slot);

impl Engine for OneSlot {
    fn load(&self, _: Program, _: &App) -> Result<(), Error> {
        Ok(())
    }

    fn services(&self, program: Program) -> Vec<Service> {
        CallEngine.services(program)
    }

    fn enter(&self, _: HandlerId) -> Option<WorkerSlot> {
        let is_free = !self.0.swap(true, Ordering::SeqCst);
        is_free.then(|| WorkerSlot::new(Arc::new(Held(Arc::clone(&self.0)))))
    }

    fn unload(&self, _: Program) {}

    fn start(&self, activation: ActivationId, start: Start<'_>, host: &mut dyn Host) -> TurnResult {
        CallEngine.start(activation, start, host)
    }

    fn resume(
        &self,
        activation: ActivationId,
        operation: OperationId,
        result: Result<Bytes, Error>,
        host: &mut dyn Host,
    ) -> TurnResult {
        CallEngine.resume(activation, operation, result, host)
    }

    fn cancel(&self, activation: ActivationId) {
        CallEngine.cancel(activation);
    }
}

struct Rig {
    shard: Shard,
    world: TestWorld,
    now: UnixMillis,
    nonce: u64,
}

impl Rig {
    fn new(slot: &Slot, shard_count: u16) -> Self {
        let shard = Shard::new(options(shard_count), store()).expect("no rows");
        Self { shard, world: TestWorld::on_workers(OneSlot(Arc::clone(slot))), now: START, nonce: 0 }
    }

    fn give(&mut self, input: Input) {
        let mut world = World { now: self.now, monotonic_ms: self.now.0, ..self.world.world() };
        self.shard.handle(input, &mut world);
        let lsn = self.shard.store().lsn();
        let mut world = World { now: self.now, monotonic_ms: self.now.0, ..self.world.world() };
        self.shard.handle(Input::Durable(lsn), &mut world);
    }

    /// Sends a message for `key`, whose handler calls that of `callee`.
    fn send(&mut self, key: &str, callee: &str) {
        self.nonce += 1;
        let to = ReplyTo::of(Token(self.nonce));
        let info = RequestInfo { time: self.now, began_ms: self.now.0, nonce: self.nonce << 32, idempotency_key: None };
        let (key, input) = (key.as_bytes().into(), Bytes::from(callee.to_owned()));
        self.give(Input::Send(to, Invoke { info, handler: RUN, key, input }, 0));
    }

    fn later(&mut self, wait_ms: u64) {
        self.now = self.now.plus(wait_ms);
        self.give(Input::RunDue);
    }
}

#[test]
fn a_message_without_a_slot_holds_nothing_and_begins_once_there_is_one() {
    let slot = Slot::new(AtomicBool::new(true));
    let mut rig = Rig::new(&slot, 1);
    rig.send("a", "null");
    for _ in 0..100 {
        rig.later(50);
        assert_eq!((rig.shard.figures().waiting, rig.shard.figures().locked_entities), (1, 0));
    }
    assert_eq!(rig.shard.figures().failed_attempts, 0, "to wait is no attempt");
    let is_due_in = |wait_ms| rig.shard.is_due(rig.now, rig.now.0 + wait_ms);
    assert!(!is_due_in(0) && is_due_in(50));
    slot.store(false, Ordering::SeqCst);
    rig.later(50);
    assert_eq!((rig.shard.figures().waiting, rig.shard.figures().locked_entities), (0, 0));
    assert!(!slot.load(Ordering::SeqCst), "it has ended, and gave its slot back");
}

#[test]
fn a_message_keeps_its_slot_until_it_ends_and_its_calls_need_none() {
    let slot = Slot::new(AtomicBool::new(false));
    let mut rig = Rig::new(&slot, 2);
    let keys = keys(2);
    let (here, away) = (&keys[&millrace_base::ShardId(0)], &keys[&millrace_base::ShardId(1)]);
    rig.send(here, away);
    assert!(slot.load(Ordering::SeqCst), "it waits for the other shard");
    assert_eq!(rig.world.outputs.peers.len(), 1);
    let beside = format!("{{{here}}}b");
    rig.send(&beside, "null");
    rig.later(50);
    assert_eq!(rig.shard.figures().waiting, 2, "one waits for the other shard, one for a slot");
    rig.give(Input::Stop("the log failed".to_owned()));
    assert!(!slot.load(Ordering::SeqCst));
}
