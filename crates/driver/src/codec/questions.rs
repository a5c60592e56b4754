//! Questions to one shard.

use millrace_api::{Intervention, StateFields};
use millrace_format::DecodeError;
use millrace_shard::AskedSchedule;
use millrace_shard::question::{
    EndDeadLetter, HasEntities, Intervene, ListDeadLetters, ListFailingMessages, ListSchedules, ListWorkflows,
    Question, ReadDeadLetter, ReadInvocation, ReadState, Signal, StartWorkflow,
};

use super::wire::{Item, Reader, Wire, wire_enum, wire_struct};

wire_enum!(Question {
    1 => ReadInvocation(question),
    3 => Signal(question),
    4 => ListWorkflows(question),
    5 => ListDeadLetters(question),
    6 => ReadDeadLetter(question),
    7 => EndDeadLetter(question),
    8 => ReadState(question),
    9 => HasEntities(question),
    10 => ListSchedules(question),
    11 => Intervene(question),
    12 => ListFailingMessages(question),
    13 => StartWorkflow(question);
    2 => cancel
});
/// Earlier programs had a question of its own for one of the interventions.
fn cancel(reader: &mut Reader<'_>) -> Result<Question, DecodeError> {
    Ok(Intervene { sequence: Wire::get(reader)?, intervention: Intervention::Cancel }.into())
}

wire_struct!(ReadInvocation { sequence, has_journal });
wire_struct!(Intervene { sequence, intervention });
wire_enum!(Intervention {
    1 => Cancel,
    2 => Kill,
    3 => Resume,
    4 => Restart { from, on_newest },
});
wire_struct!(Signal { sequence, name, payload, idempotency_key });
wire_struct!(ListWorkflows { after, limit, is_live_only });
wire_struct!(StartWorkflow { id, app, service, handler, key, input, delay_ms });
wire_struct!(ListDeadLetters { after, limit });
wire_struct!(ListFailingMessages { after, limit });
wire_struct!(ReadDeadLetter { field });
wire_struct!(EndDeadLetter { field, is_retried });
wire_struct!(ReadState { entity, fields });
wire_struct!(HasEntities { app, service });
wire_struct!(ListSchedules { asked });
wire_enum!(StateFields {
    1 => All,
    2 => One(field),
    3 => Page { prefix, after, limit },
});
wire_struct!(AskedSchedule { app, service, name, cron });

impl Item for AskedSchedule {}
