//! States that cannot be stop the shard, and it answers whom it owes an answer.
//!
//! Each test plants such a state, gives the shard the input that would meet it, and does what a driver does
//! when a shard panics: it stops that shard.

use std::panic::{AssertUnwindSafe, catch_unwind};

use bytes::Bytes;
use millrace_base::{EntityKey, ErrorCode, TransactionId};

use super::*;
use crate::peer::{Begin, FromParticipation, PeerBody, PeerMessage, ToCoordinator, ToParticipation};
use crate::request::{Invoke, RequestInfo};
use crate::testing::{RUN, START, TestWorld, keys, options, store};
use crate::typed_reply::ReplyTo;

const CALLER: Token = Token(1);
const BESIDE: Token = Token(2);
const OTHER: ShardId = ShardId(1);

struct Rig {
    shard: Shard,
    world: TestWorld,
}

impl Rig {
    fn new() -> Self {
        Self { shard: Shard::new(options(2), store()).expect("no rows"), world: TestWorld::new() }
    }

    /// Calls an entity of this shard that calls one of the other.
    fn call_away(&mut self, token: Token, nonce: u64) -> TransactionId {
        let keys = keys(2);
        let info = RequestInfo { time: START, began_ms: 0, nonce, idempotency_key: None };
        let (key, input) = (keys[&ShardId(0)].as_bytes().into(), Bytes::from(keys[&OTHER].clone()));
        let invoke = Invoke { info, handler: RUN, key, input };
        self.shard.handle(Input::Invoke(ReplyTo::of(token), invoke), &mut self.world.world());
        self.world.outputs.peers.last().expect("the other shard is called").1.transaction
    }

    fn hear(&mut self, transaction: TransactionId, body: PeerBody) {
        let message = PeerMessage { from: OTHER, transaction, body };
        self.shard.handle(Input::Peer(message), &mut self.world.world());
    }

    /// Gives the shard a message that meets a planted state, and stops it as a driver does.
    fn breaks_at(&mut self, transaction: TransactionId, body: PeerBody) {
        let broke = catch_unwind(AssertUnwindSafe(|| self.hear(transaction, body)));
        assert!(broke.is_err(), "what cannot be is no silent return");
        self.shard.handle(Input::Stop("an invariant broke".to_owned()), &mut self.world.world());
    }

    fn answered(&self, token: Token) -> Option<ErrorCode> {
        let of = self.world.outputs.replies.iter().filter(|(answered, _)| *answered == token);
        let mut errors = of.map(|(_, result)| result.as_ref().expect_err("it was not committed").code);
        let first = errors.next();
        assert_eq!(errors.next(), None, "answered once");
        first
    }
}

/// What a participant may say of its part.
fn news() -> [PeerBody; 3] {
    let error = Error::new(ErrorCode::Internal, "a participant's");
    let message = ToCoordinator::Failed(error.clone());
    let failed = FromParticipation { participation_id: 1, incarnation: 1, message };
    [PeerBody::ToCoordinator(1, failed), PeerBody::Ended, PeerBody::Lost(error)]
}

#[test]
fn a_coordinated_transaction_that_is_lost_stops_the_shard() {
    for body in news() {
        let mut rig = Rig::new();
        let lost = rig.call_away(CALLER, 1 << 32);
        rig.shard.execution.plant_lost();
        rig.call_away(BESIDE, 2 << 32);
        rig.breaks_at(lost, body);
        assert_eq!(rig.answered(BESIDE), Some(ErrorCode::ShardStopped));
    }
}

#[test]
fn a_coordinated_transaction_without_its_coordination_stops_the_shard() {
    for body in news() {
        let mut rig = Rig::new();
        let planted = rig.call_away(CALLER, 1 << 32);
        rig.shard.execution.plant_roleless();
        rig.breaks_at(planted, body);
        assert_eq!(rig.answered(CALLER), Some(ErrorCode::ShardStopped));
    }
}

#[test]
fn a_participation_that_is_lost_stops_the_shard_and_its_coordinator_is_told() {
    let id = TransactionId { coordinator: OTHER, incarnation: 3, number: 4 };
    let begin = Begin { program: RUN.program, time: START, age: (1, 1), seed: 5 };
    let entity = EntityKey::internal("x", b"1");
    let prepare =
        || ToParticipation::Prepare { participation_id: 0, is_delegated: false, hold_ms: None, is_query: false };
    for is_lost in [true, false] {
        for body in [
            PeerBody::ToParticipation(2, prepare()),
            PeerBody::Commit,
            PeerBody::Abort { is_answered: true, heard: None },
        ] {
            let mut rig = Rig::new();
            let reserve = ToParticipation::Reserve { begin, entity: entity.clone(), is_exclusive: true };
            rig.hear(id, PeerBody::ToParticipation(1, reserve));
            if is_lost {
                rig.shard.execution.plant_lost();
            } else {
                rig.shard.execution.plant_roleless();
            }
            rig.breaks_at(id, body);
            let told = rig.world.outputs.peers.last().expect("the coordinator is told");
            assert!(matches!(told, (OTHER, PeerMessage { body: PeerBody::Lost(_), .. })), "{told:?}");
        }
    }
}
