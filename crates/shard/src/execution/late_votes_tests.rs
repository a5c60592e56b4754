//! Votes that come too late to count, again and again: they are asked for until the transaction's time is over.

use bytes::Bytes;
use millrace_base::{Error, ErrorCode, IdempotencyKey, ShardId, TransactionId, limits};

use crate::input::Input;
use crate::options::ShardOptions;
use crate::peer::{FromParticipation, PeerBody, PeerMessage, ToCoordinator, ToParticipation};
use crate::request::RequestInfo;
use crate::testing::{RUN, START, TestWorld, keys, options, store};
use crate::typed_reply::ReplyTo;
use crate::world::World;
use crate::{Invoke, Shard, Token};

const AWAY: ShardId = ShardId(1);

/// What a shard has read stays as it is for so long.
const HOLD_MS: u64 = 100;

/// A shard that coordinates a transaction with another one, which has only read.
struct Rig {
    shard: Shard,
    world: TestWorld,
    now_ms: u64,
    said: u32,
    asked: usize,
}

impl Rig {
    fn new() -> Self {
        let options = ShardOptions { hold_ms: Some(HOLD_MS), ..options(2) };
        let shard = Shard::new(options, store()).expect("no rows");
        Self { shard, world: TestWorld::new(), now_ms: 0, said: 0, asked: 0 }
    }

    fn give(&mut self, input: Input) {
        let mut world = World { monotonic_ms: self.now_ms, ..self.world.world() };
        self.shard.handle(input, &mut world);
        let lsn = self.shard.store().lsn();
        let mut world = World { monotonic_ms: self.now_ms, ..self.world.world() };
        self.shard.handle(Input::Durable(lsn), &mut world);
    }

    fn hear(&mut self, transaction: TransactionId, body: PeerBody) {
        self.give(Input::Peer(PeerMessage { from: AWAY, transaction, body }));
    }

    fn hear_participation(&mut self, transaction: TransactionId, message: ToCoordinator) {
        self.said += 1;
        let said = FromParticipation { participation_id: 5, incarnation: 1, message };
        self.hear(transaction, PeerBody::ToCoordinator(self.said, said));
    }

    /// The other shard answers what it was asked. All but the result of the call comes too late.
    fn answer(&mut self) {
        for (to, PeerMessage { transaction, body, .. }) in std::mem::take(&mut self.world.outputs.peers) {
            assert_eq!(to, AWAY);
            match body {
                PeerBody::ToParticipation(_, ToParticipation::Call(_, call)) => {
                    self.hear_participation(
                        transaction,
                        ToCoordinator::Result(call.number, Ok(Bytes::from_static(b"1"))),
                    );
                }
                PeerBody::ToParticipation(_, ToParticipation::Prepare { .. }) => {
                    self.asked += 1;
                    self.now_ms += HOLD_MS;
                    let hold_ms = Some(HOLD_MS);
                    self.hear_participation(transaction, ToCoordinator::ReadOnly { has_let_go: false, hold_ms });
                }
                PeerBody::Recall => self.hear(transaction, PeerBody::Ended),
                PeerBody::Abort { .. } => {}
                other => panic!("{other:?}"),
            }
        }
    }

    /// The error that the call ends with.
    fn ends_with(&mut self, idempotency_key: Option<IdempotencyKey>) -> Error {
        let keys = keys(2);
        let (key, input) = (keys[&ShardId(0)].as_bytes().into(), Bytes::from(keys[&AWAY].clone()));
        let info = RequestInfo { time: START, began_ms: 0, nonce: 1 << 32, idempotency_key };
        self.give(Input::Invoke(ReplyTo::of(Token(1)), Invoke { info, handler: RUN, key, input }));
        while self.world.outputs.replies.is_empty() {
            self.answer();
            self.give(Input::Tick);
            assert!(self.now_ms <= limits::CALL_WAIT_MS + HOLD_MS, "it asks for ever");
        }
        self.world.outputs.replies.remove(0).1.expect_err("no vote counts")
    }
}

#[test]
fn a_transaction_whose_votes_always_lapse_ends_when_its_time_is_over() {
    let key = IdempotencyKey::new(b"key").expect("a key").kept();
    // Without a key and without effects here, the other shard may decide.
    for idempotency_key in [Some(key), None] {
        let mut rig = Rig::new();
        assert_eq!(rig.ends_with(idempotency_key).code, ErrorCode::WaitLimit);
        assert!(rig.now_ms >= limits::CALL_WAIT_MS, "it was asked for as long as that could help");
        assert!(rig.asked > 50, "{} times", rig.asked);
        assert_eq!((rig.shard.figures().locked_entities, rig.shard.figures().waiting), (0, 0));
    }
}
