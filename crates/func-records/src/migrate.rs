//! `T/_migrate`: brings one record to the present schema and returns which index rows it has then. It deletes an
//! expired record. It gives a timer to a record that needs one and has none: timers that came while there was no such
//! type were dropped.

use std::rc::Rc;

use millrace_base::{Error, ErrorCode};

use crate::expire::{self, has_lost_its_timer, take_away, with_timer};
use crate::stored::{FIELD, Stored};
use crate::turn::{Progress, Turn};
use crate::wire::{Migrated, encode};

pub(crate) fn start(turn: &mut Turn<'_>, type_index: usize, key: &[u8]) -> Result<Progress, Error> {
    let program = Rc::clone(turn.program);
    let of = &program.types[type_index];
    let Some(value) = turn.host.get(FIELD)?.cloned() else {
        return Ok(Progress::Done(encode(&Migrated::default())));
    };
    let mut stored = Stored::read(&value)?;
    let mut rows = Migrated::default();
    let now = turn.host.now();
    if stored.is_expired(now) {
        // A record that cannot be deleted does not hold up the sweep.
        if let Ok(calls) = take_away(turn, type_index, key, &stored) {
            (rows.rows, rows.messages, rows.size_bytes) = (calls.rows, calls.messages, calls.size_bytes);
            return expire::Rest { calls, output: encode(&rows) }.go_on(turn);
        }
    } else if has_lost_its_timer(&stored, now) {
        stored = with_timer(turn, of, key, stored)?;
        (rows.messages, rows.size_bytes) = (1, stored.value.len());
        turn.host.set(FIELD, stored.write())?;
    }
    let current = match program.current_value(of, &stored) {
        Ok(current) => current,
        Err(error) if error.code == ErrorCode::WrongType => {
            rows.is_skipped = true;
            return Ok(Progress::Done(encode(&rows)));
        }
        Err(error) => return Err(error),
    };
    if !of.indexes.is_empty() {
        let (add, unfit) = of.rows(&of.schema, &current, key)?;
        (rows.add, rows.is_unfit) = (add, unfit.is_some());
        let before = program.stored_rows(of, &stored, key)?;
        rows.remove = before.into_iter().filter(|row| rows.add.binary_search(row).is_err()).collect();
    }
    if stored.schema_id != of.schema_id {
        rows.size_bytes += current.len();
        turn.host.set(FIELD, Stored { schema_id: of.schema_id, value: &current, ..stored }.write())?;
    }
    Ok(Progress::Done(encode(&rows)))
}
