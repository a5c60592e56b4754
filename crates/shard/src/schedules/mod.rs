//! Calls that services declare to be made again and again.
//!
//! A schedule belongs to the shard of its key. Its next time is a row. When that time comes, one entry
//! puts a message into the inbox and the time after it into the row. So each time gives exactly one
//! call. A single call makes up for all times that passed while the node was down.
//!
//! A deployment replaces the app's schedules. A schedule that is no longer declared ends. One whose
//! times have changed begins anew.

use std::collections::BTreeMap;

use millrace_base::{EntityKey, Error, UnixMillis, Value, ValueKind};
use millrace_format::{MessageRecord, ScheduleRecord, Write};
use millrace_func::{Catalog, Cron, Schedule};

use crate::context::{Context, Rows, store_failed};
use crate::question::AskedSchedule;
use crate::typed_reply::ReplyTo;

#[cfg(test)]
mod tests;

/// When a schedule is due whose times never come.
const NEVER: UnixMillis = UnixMillis(u64::MAX);

/// What a shard knows of its schedules.
pub(crate) struct Schedules {
    /// Field: app, service, name; value: `format::ScheduleRecord`.
    entity: EntityKey,
    /// By field; all rows, once they have been read.
    rows: Option<BTreeMap<Box<[u8]>, ScheduleRecord>>,
}

/// A schedule that is declared, with the app and service that declare it.
type Declared<'a> = (Box<[u8]>, &'a str, &'a str, &'a Schedule);

fn schedule_field(app: &str, service: &str, name: &str) -> Box<[u8]> {
    [app.as_bytes(), b"\0", service.as_bytes(), b"\0", name.as_bytes()].concat().into()
}

/// The next time of a text that the engine has parsed when the app was loaded. `None` for times that never come.
fn next_due(cron: &str, now: UnixMillis) -> Option<UnixMillis> {
    Cron::parse(cron).ok().and_then(|cron| cron.next_after(now))
}

/// The message of a schedule that is due.
fn message_of((app, service, schedule): (&str, &str, &Schedule), now: UnixMillis) -> MessageRecord {
    MessageRecord {
        keeps_invocation_result: false,
        invocation: None,
        chosen_id: None,
        is_signal: false,
        was_set_aside: false,
        attempts: 0,
        due: now,
        app: app.to_owned(),
        service: service.to_owned(),
        handler: schedule.handler.to_string(),
        key: schedule.key.clone(),
        input: schedule.input.clone(),
    }
}

impl Schedules {
    pub(crate) fn new() -> Self {
        Self { entity: EntityKey::internal("schedule", b""), rows: None }
    }

    /// Takes over what deployments have changed. Gives the writes that are to be made, and the messages of what is
    /// due, which are to be in the same entry.
    pub(crate) fn run(&mut self, catalog: &Catalog, context: &mut Context<'_>) -> (Vec<Write>, Vec<MessageRecord>) {
        let (mut writes, mut messages) = (Vec::new(), Vec::new());
        let entity = self.entity.clone();
        // Rows that cannot be read now are asked for again at the next tick; until then nothing is due.
        let Ok(rows) = self.rows(context.rows) else {
            return (writes, messages);
        };
        let loaded = catalog.apps().filter_map(|(_, program)| catalog.program(program));
        let declared: Vec<Declared<'_>> = loaded
            .flat_map(|loaded| loaded.services.iter().map(move |service| (loaded, service)))
            .flat_map(|(loaded, service)| {
                let (app, name) = (loaded.app.as_str(), service.name.as_str());
                service
                    .schedules
                    .iter()
                    .map(move |schedule| (schedule_field(app, name, schedule.name.as_str()), app, name, schedule))
            })
            .filter(|(.., schedule)| context.rows.shard_of(&schedule.key) == context.rows.shard())
            .collect();
        rows.retain(|field, _| {
            let is_declared = declared.iter().any(|(known, ..)| known == field);
            if !is_declared {
                writes.push(Write { entity: entity.clone(), field: field.clone(), value: None });
            }
            is_declared
        });
        for (field, app, service, schedule) in declared {
            let known = rows.get(&field).filter(|record| record.cron == schedule.cron);
            if known.is_some_and(|record| record.due > context.now) {
                continue;
            }
            if known.is_some() {
                messages.push(message_of((app, service, schedule), context.now));
            }
            let due = next_due(&schedule.cron, context.now).unwrap_or(NEVER);
            let record = ScheduleRecord { due, cron: schedule.cron.clone() };
            let value = Some(Value::new(ValueKind::Bytes, &record.encode()));
            writes.push(Write { entity: entity.clone(), field: field.clone(), value });
            rows.insert(field, record);
        }
        (writes, messages)
    }

    /// Answers when schedules of this shard are due next.
    pub(crate) fn answer_due(
        &mut self,
        to: ReplyTo<Vec<Option<UnixMillis>>>,
        asked: &[AskedSchedule],
        context: &mut Context<'_>,
    ) {
        let due = self.due(asked, context);
        let depends_on = context.rows.entity_lsn(&self.entity);
        context.answer(to, due, depends_on);
    }

    /// When schedules of this shard are due next. A time that has passed is about to be called, as soon as the
    /// shard can write.
    ///
    /// # Errors
    /// When the rows cannot be read.
    fn due(&mut self, asked: &[AskedSchedule], context: &mut Context<'_>) -> Result<Vec<Option<UnixMillis>>, Error> {
        let rows = self.rows(context.rows)?;
        let due = |asked: &AskedSchedule| {
            let row = rows.get(&schedule_field(&asked.app, &asked.service, &asked.name));
            match row.filter(|row| row.cron == asked.cron) {
                Some(row) => (row.due < NEVER).then_some(row.due),
                // Just deployed: the next tick computes the same.
                None => next_due(&asked.cron, context.now),
            }
        };
        Ok(asked.iter().map(due).collect())
    }

    fn rows(&mut self, rows: &mut Rows) -> Result<&mut BTreeMap<Box<[u8]>, ScheduleRecord>, Error> {
        if self.rows.is_none() {
            let found = rows.store().scan_fields(&self.entity, b"", None, usize::MAX);
            let decode = |(field, value): (Box<[u8]>, Value)| {
                ScheduleRecord::decode(value.content()).ok().map(|record| (field, record))
            };
            let found = found.map_err(|error| store_failed(&error))?;
            self.rows = Some(found.into_iter().filter_map(decode).collect());
        }
        Ok(self.rows.get_or_insert_default())
    }
}
