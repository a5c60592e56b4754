//! Questions to one shard.

use millrace_api::StateFields;
use millrace_shard::AskedSchedule;

use super::wire::{Item, wire_enum, wire_struct};
use crate::question::Question;

wire_enum!(Question {
    1 => ReadInvocation { sequence, has_journal },
    2 => Cancel { sequence },
    3 => Signal { sequence, name, payload, idempotency_key },
    4 => ListWorkflows { after, limit, is_live_only },
    5 => ListDeadLetters { after, limit },
    6 => ReadDeadLetter { field },
    7 => EndDeadLetter { field, is_retried },
    8 => ReadState { entity, fields },
    9 => HasEntities { app, service },
    10 => ListSchedules { asked },
});
wire_enum!(StateFields {
    1 => All,
    2 => One(field),
    3 => Page { prefix, after, limit },
});
wire_struct!(AskedSchedule { app, service, name, cron });

impl Item for AskedSchedule {}
