//! Calls that services declare to be made again and again.
//!
//! A schedule belongs to the shard of its key. Its next time is a row; when that comes, one entry
//! puts a message into the inbox and the time after that into the row, so each time is made one
//! call of, exactly once. Times that passed while the node was down are made up by a single call.
//! A deployment replaces the app's schedules: those that are no longer declared end, as all do with
//! the app; those whose times have changed begin anew.

use std::collections::BTreeMap;

use millrace_base::{UnixMillis, Value, ValueKind, shard_of_key};
use millrace_format::{MessageRecord, ScheduleRecord, Write};
use millrace_func::{Cron, Schedule};
use millrace_store::StoreError;

use crate::host::store_failed;
use crate::inbox::inbox_field;
use crate::request::{Reply, Sequence, Token};
use crate::shard::Shard;
use crate::world::World;

/// When a schedule is due whose times never come.
const NEVER: UnixMillis = UnixMillis(u64::MAX);

/// What a shard knows of its schedules.
#[derive(Default)]
pub(crate) struct Schedules {
    /// By field; all rows, once they have been read.
    rows: Option<BTreeMap<Box<[u8]>, ScheduleRecord>>,
}

/// A schedule that is declared, as its shard is asked about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AskedSchedule {
    /// The app.
    pub app: String,
    /// The service.
    pub service: String,
    /// The schedule's name.
    pub name: String,
    /// What is declared now: a row that was computed from another text is out of date.
    pub cron: String,
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

impl Shard {
    /// Starts what is due, and takes over what deployments have changed.
    pub(crate) fn run_schedules(&mut self, world: &mut World<'_>) {
        // Rows that cannot be read now are asked for again at the next tick; until then nothing is due.
        if world.is_read_only || self.read_schedules().is_err() {
            return;
        }
        let catalog = world.catalog;
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
            .filter(|(.., schedule)| shard_of_key(&schedule.key, self.options.shard_count) == self.options.shard)
            .collect();
        let mut writes = Vec::new();
        self.end_schedules(&declared, &mut writes);
        for (field, app, service, schedule) in declared {
            self.run_schedule(field, (app, service, schedule), &mut writes, world.now);
        }
        if !writes.is_empty() {
            self.append(writes, world);
        }
    }

    /// When schedules of this shard are due next. A time that has passed is about to be called, as soon as the
    /// shard can write.
    pub fn list_schedules(&mut self, token: Token, asked: &[AskedSchedule], world: &mut World<'_>) {
        if self.refuses(token, world) {
            return;
        }
        let now = world.now;
        let result = self.read_schedules().map_err(|error| store_failed(&error)).map(|()| {
            let due = |asked: &AskedSchedule| self.due(asked, now);
            Reply::Schedules(asked.iter().map(due).collect())
        });
        let depends_on = self.store.entity_lsn(&self.bookkeeping.schedules);
        self.reply_when_durable(token, result, depends_on, world);
    }

    fn due(&self, asked: &AskedSchedule, now: UnixMillis) -> Option<UnixMillis> {
        let field = schedule_field(&asked.app, &asked.service, &asked.name);
        let row = self.schedules.rows.as_ref().and_then(|rows| rows.get(&field));
        match row.filter(|row| row.cron == asked.cron) {
            Some(row) => (row.due < NEVER).then_some(row.due),
            // Just deployed: the next tick computes the same.
            None => next_due(&asked.cron, now),
        }
    }

    fn read_schedules(&mut self) -> Result<(), StoreError> {
        if self.schedules.rows.is_none() {
            let rows = self.store.scan_fields(&self.bookkeeping.schedules, b"", None, usize::MAX)?;
            let decode = |(field, value): (Box<[u8]>, Value)| {
                ScheduleRecord::decode(value.content()).ok().map(|record| (field, record))
            };
            self.schedules.rows = Some(rows.into_iter().filter_map(decode).collect());
        }
        Ok(())
    }

    /// Forgets schedules that nobody declares any more.
    fn end_schedules(&mut self, declared: &[Declared<'_>], writes: &mut Vec<Write>) {
        let entity = &self.bookkeeping.schedules;
        if let Some(rows) = &mut self.schedules.rows {
            rows.retain(|field, _| {
                let is_declared = declared.iter().any(|(known, ..)| known == field);
                if !is_declared {
                    writes.push(Write { entity: entity.clone(), field: field.clone(), value: None });
                }
                is_declared
            });
        }
    }

    fn run_schedule(
        &mut self,
        field: Box<[u8]>,
        (app, service, schedule): (&str, &str, &Schedule),
        writes: &mut Vec<Write>,
        now: UnixMillis,
    ) {
        let known = self.schedules.rows.as_ref().and_then(|rows| rows.get(&field));
        let known = known.filter(|record| record.cron == schedule.cron);
        if known.is_some_and(|record| record.due > now) {
            return;
        }
        let due = next_due(&schedule.cron, now).unwrap_or(NEVER);
        if known.is_some() {
            let message = MessageRecord {
                keeps_outcome: false,
                invocation: None,
                is_signal: false,
                was_set_aside: false,
                attempts: 0,
                due: now,
                app: app.to_owned(),
                service: service.to_owned(),
                handler: schedule.handler.to_string(),
                key: schedule.key.clone(),
                input: schedule.input.clone(),
            };
            let index = u16::try_from(writes.len()).unwrap_or(u16::MAX);
            let sequence = Sequence { lsn: self.store.lsn().next(), index };
            let write = self.inbox_write(&inbox_field(now, sequence), &message);
            writes.push(write);
        }
        let record = ScheduleRecord { due, cron: schedule.cron.clone() };
        let value = Some(Value::new(ValueKind::Bytes, &record.encode()));
        writes.push(Write { entity: self.bookkeeping.schedules.clone(), field: field.clone(), value });
        if let Some(rows) = &mut self.schedules.rows {
            rows.insert(field, record);
        }
    }
}
