//! A schedule is called once at each of its times: never before it, and as soon as the node can after it. Times that
//! pass while the node is down, or while the clock jumps over them, are made up for by one call.

use millrace_base::{EntityKey, ShardId, UnixMillis, shard_of_key};
use millrace_driver::SHARD_TICK_MS;
use millrace_format::{ScheduleRecord, Write};

use super::{Entries, View};
use crate::core::LoggedEntry;
use crate::node::Node;
use crate::rig::APP;
use crate::workload::{FIRED, Recurring, SCHEDULED_SERVICE, recurring};

/// What the entries of a schedule's shard say about it.
#[derive(Default)]
pub struct Fired {
    pub times: u64,
    /// The calls that made up for more than one time.
    pub folded: u64,
    /// The time when the schedule is due next, once it is known.
    due: Option<UnixMillis>,
}

/// What happened to a schedule, by the entries of its shard.
///
/// # Errors
/// When the schedule was called too early, or its next time is not the first one after now.
pub fn fired(entries: &Entries, schedule: &Recurring, shard: ShardId) -> Result<Fired, String> {
    let mut fired = Fired::default();
    for entry in entries.of(shard) {
        for write in entry.writes.iter().filter(|write| is_of(write, schedule)) {
            note(&mut fired, entry, write, schedule)?;
        }
    }
    Ok(fired)
}

fn is_of(write: &Write, schedule: &Recurring) -> bool {
    let field = [APP, SCHEDULED_SERVICE, schedule.name].join("\0");
    write.entity == EntityKey::internal("schedule", b"") && *write.field == *field.as_bytes()
}

fn note(fired: &mut Fired, entry: &LoggedEntry, write: &Write, schedule: &Recurring) -> Result<(), String> {
    let (name, time, period_ms) = (schedule.name, entry.time, schedule.period_ms);
    let value = write.value.as_ref().ok_or_else(|| format!("{name} was forgotten at {time:?}"))?;
    let record = ScheduleRecord::decode(value.content()).map_err(|error| error.to_string())?;
    if let Some(due) = fired.due {
        if time < due {
            return Err(format!("{name} was due at {due:?} and called at {time:?}"));
        }
        fired.times += 1;
        fired.folded += u64::from(due.plus(period_ms) <= time);
    }
    let next = UnixMillis((time.0 / period_ms + 1) * period_ms);
    if record.due != next {
        return Err(format!("{name} was called at {time:?} and is due at {:?}, not at {next:?}", record.due));
    }
    fired.due = Some(record.due);
    Ok(())
}

/// `is_started`: nothing that is due can be overdue, as every shard has just been started.
pub fn check(view: &mut View<'_, Node>, entries: &Entries, is_started: bool) -> Result<(), String> {
    for schedule in recurring(view.shard_count) {
        let shard = shard_of_key(schedule.key.as_bytes(), view.shard_count);
        let fired = fired(entries, &schedule, shard)?;
        let is_stopped = view.states.shard(shard).is_stopped();
        let core = view.states.core_of(shard);
        let now = core.now();
        // At rest, the shard's next tick looks at it.
        let allowed_ms = if view.is_final { SHARD_TICK_MS } else { 0 };
        let is_late = is_started && fired.due.is_none_or(|due| due.plus(allowed_ms) <= now);
        if is_late && !core.is_read_only() && !is_stopped {
            return Err(format!("{} is due at {:?}, and now is {now:?}", schedule.name, fired.due));
        }
        let noted = view.number(SCHEDULED_SERVICE, &schedule.key, FIRED).cast_unsigned();
        let is_right = if view.is_final { noted == fired.times } else { noted <= fired.times };
        if !is_right {
            return Err(format!("{} was called {} times, of which {noted} took effect", schedule.name, fired.times));
        }
    }
    Ok(())
}
