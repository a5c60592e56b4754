//! What shards say to each other: messages, and transactions over several shards.

use millrace_format::DecodeError;
use millrace_func::NestedCall;
use millrace_shard::{
    AwaitedResult, Begin, Delivery, FromParticipation, PeerBody, PeerCall, PeerMessage, ResultQuestion, ToCoordinator,
    ToParticipation,
};

use super::Frame;
use super::wire::{Reader, Wire, wire_enum, wire_struct};
use crate::message::CoreMessage;

wire_struct!(Delivery { from, sequence, after, message });
wire_struct!(PeerMessage { from, transaction, body });
wire_struct!(Begin { program, time, age, seed });
wire_struct!(ResultQuestion { of, app, asker, operation });
wire_struct!(AwaitedResult { of, asker, operation, result });
wire_struct!(NestedCall { handler, key, input });
wire_struct!(FromParticipation { participation_id, incarnation, message });

wire_enum!(PeerBody {
    1 => ToParticipation(number, said),
    2 => ToCoordinator(number, said),
    3 => Commit,
    4 => Abort { is_answered, heard },
    5 => Ended,
    6 => Inquire,
    7 => Lost(error),
    8 => Forget(once),
    9 => Recall,
    10 => CommittedAlone,
    11 => Heard,
    12 => AwaitResult(question),
    13 => AwaitedResult(result),
});
wire_enum!(ToParticipation {
    1 => Reserve { begin, entity, is_exclusive },
    2 => Call(begin, call),
    3 => Result(number, result),
    4 => TakeBack(number),
    5 => TakenBack,
    6 => Prepare { participation_id, is_delegated, hold_ms, is_query },
});
wire_enum!(ToCoordinator {
    1 => Reserved,
    2 => Call(call),
    3 => Lingers(number),
    4 => Over(number),
    5 => Result(number, result),
    6 => TakeBack(number),
    7 => TakenBack,
    8 => Died { entity, is_exclusive },
    9 => Failed(error),
    10 => Prepared,
    11 => ReadOnly { has_let_go, hold_ms },
    12 => Committed,
    13 => Spent(cpu_ns),
});

/// Flags of a call: it has a place for its result, and tells its callers.
const HAS_PLACE: u8 = 1;
const HAS_CALLERS: u8 = 2;

/// By hand: programs that do not tell callers write an option where the flags are.
impl Wire for PeerCall {
    fn put(&self, out: &mut Vec<u8>) {
        self.number.put(out);
        self.depth.put(out);
        self.call.put(out);
        let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
        (flag(self.once.is_some(), HAS_PLACE) | flag(self.callers.is_some(), HAS_CALLERS)).put(out);
        if let Some(once) = &self.once {
            once.put(out);
        }
        if let Some(callers) = &self.callers {
            callers.put(out);
        }
    }

    fn get(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (number, depth, call) = (Wire::get(reader)?, Wire::get(reader)?, Wire::get(reader)?);
        let flags = u8::get(reader)?;
        if flags & !(HAS_PLACE | HAS_CALLERS) != 0 {
            return Err(DecodeError::Kind(flags));
        }
        let once = if flags & HAS_PLACE == 0 { None } else { Some(Wire::get(reader)?) };
        let callers = if flags & HAS_CALLERS == 0 { None } else { Some(Wire::get(reader)?) };
        Ok(Self { number, depth, call, once, callers })
    }
}

impl Frame {
    /// The call across shards in it, if it tells which others that is nested in.
    fn nested_call(&mut self) -> Option<&mut PeerCall> {
        let Frame::Message(CoreMessage::Peer { message, .. } | CoreMessage::Detour { message, .. }) = self else {
            return None;
        };
        match &mut message.body {
            PeerBody::ToParticipation(_, ToParticipation::Call(_, call)) => Some(call),
            PeerBody::ToCoordinator(_, FromParticipation { message: ToCoordinator::Call(call), .. }) => Some(call),
            _ => None,
        }
        .filter(|call| call.callers.is_some())
    }

    /// The frame as programs know it that do not tell the callers of a call, if it tells them.
    #[must_use]
    pub fn without_callers(&self) -> Option<Self> {
        let mut frame = self.clone();
        frame.nested_call()?.callers = None;
        Some(frame)
    }
}
