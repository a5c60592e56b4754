//! Rows that shards keep for themselves; the first byte says which kind. A decoded row means the same after it is
//! encoded again.

use std::fmt::Debug;

use millrace_format::{
    DeadLetterRecord, Decision, DecodeError, FailureRecord, JournalRow, Prepared, ScheduleRecord, SignalRecord,
    WorkflowRecord,
};

pub(crate) fn run(bytes: &[u8]) {
    let Some((which, row)) = bytes.split_first() else { return };
    match which {
        b'c' => check(row, Decision::decode, Decision::encode),
        b'p' => check(row, Prepared::decode, Prepared::encode),
        b'f' => check(row, FailureRecord::decode, FailureRecord::encode),
        b'j' => check(row, JournalRow::decode, JournalRow::encode),
        b'w' => check(row, WorkflowRecord::decode, WorkflowRecord::encode),
        b's' => check(row, SignalRecord::decode, SignalRecord::encode),
        b't' => check(row, ScheduleRecord::decode, ScheduleRecord::encode),
        b'd' => check_dead_letter(row),
        _ => {}
    }
}

fn check<R: Debug + PartialEq>(row: &[u8], decode: fn(&[u8]) -> Result<R, DecodeError>, encode: fn(&R) -> Vec<u8>) {
    match decode(row) {
        Ok(record) => assert_eq!(decode(&encode(&record)), Ok(record)),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// A dead letter without an error is of an earlier version. No version writes such rows any more.
fn check_dead_letter(row: &[u8]) {
    match DeadLetterRecord::decode(row) {
        Ok(record) => {
            let encoded = match &record.error {
                Some(error) => DeadLetterRecord::encode(error, &record.message),
                None => record.message.encode(),
            };
            assert_eq!(DeadLetterRecord::decode(&encoded), Ok(record));
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}
