//! `T--shard/_apply`: writes index rows and changes of one write, and deletes old changes.

use bytes::Bytes;
use millrace_base::{Error, Value, ValueKind};

use crate::program::ChangesKept;
use crate::rows::{
    LAST_SEQUENCE, begin_stream, change_field, change_sequence, number_value, read_number, visit_changes,
};
use crate::turn::{Progress, Turn};
use crate::wire::{Apply, decode};

/// Old changes are collected after this many new ones.
const COLLECT_EVERY: u64 = 16;

/// At most so many are collected then. This is more than have come, so that collecting catches up.
const COLLECTED: usize = 64;

pub(crate) fn run(turn: &mut Turn<'_>, type_index: usize, input: &[u8]) -> Result<Progress, Error> {
    let apply: Apply = decode(input)?;
    for field in &apply.remove {
        turn.host.delete(field)?;
    }
    for field in &apply.add {
        turn.host.set(field, Value::new(ValueKind::Bytes, b""))?;
    }
    let of = turn.record_type(type_index);
    if let (Some(kept), stream) = (of.changes.clone(), of.stream)
        && !apply.changes.is_empty()
    {
        append(turn, (&kept, stream), &apply.changes)?;
    }
    Ok(Progress::Done(Bytes::new()))
}

fn append(turn: &mut Turn<'_>, (kept, stream): (&ChangesKept, u16), changes: &[String]) -> Result<(), Error> {
    let now = turn.host.now().0;
    let mut sequence = read_number(turn.host, LAST_SEQUENCE)?.unwrap_or(0);
    begin_stream(turn.host, stream, sequence)?;
    let mut is_time_to_collect = false;
    for members in changes {
        sequence += 1;
        let text = format!("{{\"sequence\":{sequence},\"at_ms\":{now},{members}}}");
        turn.host.set(&change_field(sequence), Value::json(&text))?;
        is_time_to_collect |= sequence % COLLECT_EVERY == 0;
    }
    turn.host.set(LAST_SEQUENCE, number_value(sequence))?;
    if is_time_to_collect {
        collect(turn, kept, sequence, now)?;
    }
    Ok(())
}

/// Deletes changes from the oldest on, up to the first that has to stay.
fn collect(turn: &mut Turn<'_>, kept: &ChangesKept, last: u64, now: u64) -> Result<(), Error> {
    visit_changes(turn.host, None, COLLECTED, &mut |host, field, value| {
        let Some(sequence) = change_sequence(field) else {
            return Ok(true);
        };
        let is_too_many = last.saturating_sub(sequence) >= kept.count;
        let is_too_old = read_time(value.content()).is_some_and(|time| time.saturating_add(kept.retention_ms) <= now);
        if sequence == last || !(is_too_many || is_too_old) {
            return Ok(false);
        }
        host.delete(field)?;
        Ok(true)
    })
}

/// When a change happened: the number behind `"at_ms":`, at the beginning of its JSON.
pub(crate) fn read_time(json: &[u8]) -> Option<u64> {
    const NAME: &[u8] = b"\"at_ms\":";
    let at = json.windows(NAME.len()).take(64).position(|part| part == NAME)? + NAME.len();
    let mut digits = json[at..].iter().take_while(|byte| byte.is_ascii_digit());
    digits.try_fold(0_u64, |number, digit| number.checked_mul(10)?.checked_add(u64::from(digit - b'0')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_change_is_found() {
        assert_eq!(
            read_time(br#"{"sequence":18446744073709551615,"at_ms":1700000000123,"id":"x"}"#),
            Some(1_700_000_000_123)
        );
        assert_eq!(read_time(br#"{"sequence":1}"#), None);
        assert_eq!(read_time(b""), None);
    }
}
