//! `T/_migrate`: brings one record to the present schema and says which index rows it has then.

use std::rc::Rc;

use millrace_base::{Error, ErrorCode};

use crate::stored::{FIELD, Stored};
use crate::turn::{Progress, Turn};
use crate::wire::{Migrated, encode};

pub(crate) fn start(turn: &mut Turn<'_>, type_index: usize, key: &[u8]) -> Result<Progress, Error> {
    let program = Rc::clone(turn.program);
    let of = &program.types[type_index];
    let Some(value) = turn.host.get(FIELD)?.cloned() else {
        return Ok(Progress::Done(encode(&Migrated::default())));
    };
    let stored = Stored::read(&value)?;
    let current = match program.current_value(of, &stored) {
        Ok(current) => current,
        Err(error) if error.code == ErrorCode::WrongType => {
            return Ok(Progress::Done(encode(&Migrated { is_skipped: true, ..Migrated::default() })));
        }
        Err(error) => return Err(error),
    };
    let mut rows = Migrated::default();
    if !of.indexes.is_empty() {
        let (add, unfit) = of.rows(&of.schema, &current, key)?;
        (rows.add, rows.is_unfit) = (add, unfit.is_some());
        let before = program.stored_rows(of, &stored, key)?;
        rows.remove = before.into_iter().filter(|row| rows.add.binary_search(row).is_err()).collect();
    }
    if stored.schema_id != of.schema_id {
        rows.size_bytes = current.len();
        turn.host.set(FIELD, Stored { schema_id: of.schema_id, value: &current, ..stored }.write())?;
    }
    Ok(Progress::Done(encode(&rows)))
}
