//! What shards say to each other: messages, and transactions over several shards.

use millrace_func::NestedCall;
use millrace_shard::{
    AwaitedResult, Begin, Delivery, FromParticipation, PeerBody, PeerCall, PeerMessage, ResultQuestion, ToCoordinator,
    ToParticipation,
};

use super::wire::{wire_enum, wire_struct};

wire_struct!(Delivery { from, sequence, after, message });
wire_struct!(PeerMessage { from, transaction, body });
wire_struct!(Begin { program, time, age, seed });
wire_struct!(PeerCall { number, depth, call, once });
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
