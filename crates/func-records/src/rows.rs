//! The fields of `T--shard`: index rows, changes, and rows that say how far they go.
//!
//! | field | value | what |
//! |---|---|---|
//! | `i`: index number (u16 BE), order key of the value, escaped id, its length (u16 BE) | empty | one index row. |
//! | `c`: sequence (u64 BE) | JSON text | one change. |
//! | `n` | u64 BE | the last sequence. |
//! | `e` | number of the stream of changes (u16 BE), sequence (u64 BE) | it begins after this sequence. |
//! | `b`: index number (u16 BE) | fingerprint of its definition (u64 BE) | the index is complete in this shard. |
//! | `s` | JSON text | where the sweep is. |
//!
//! An escaped id has `00 FF` for each NUL and ends with `00 01`. So rows of one key are in the order of their ids.
//! Order keys are those of [`millrace_avro::order_key`]. If there is no value, the key is that of null.

use millrace_base::{Error, ErrorCode, Value, ValueKind, limits};
use millrace_func::{Host, ScanRequest};

pub(crate) const INDEX: u8 = b'i';
pub(crate) const CHANGE: u8 = b'c';
pub(crate) const LAST_SEQUENCE: &[u8] = b"n";
const STREAM: &[u8] = b"e";
pub(crate) const COMPLETE: u8 = b'b';
pub(crate) const SWEEP: &[u8] = b"s";

/// Bytes of a record's id, escaped. It is part of the names of index rows, which are bounded.
pub(crate) const ID_BYTES: usize = limits::RECORD_ID_BYTES;

/// Bytes of an order key in an index row. Longer keys are cut, so texts that differ only behind the cut share a place
/// in the order. Together with the id it fits a field's name.
pub(crate) const ORDER_KEY_BYTES: usize = 500;

/// Ends an escaped id. It sorts before the next bytes of any longer id.
const TERMINATOR: [u8; 2] = [0x00, 0x01];
const ESCAPED_NUL: [u8; 2] = [0x00, 0xFF];

/// Refuses ids that are too long.
pub(crate) fn check_id(id: &[u8]) -> Result<(), Error> {
    let escaped = id.len() + id.iter().filter(|byte| **byte == 0).count();
    if escaped <= ID_BYTES {
        return Ok(());
    }
    let message = format!("a record's id has at most {ID_BYTES} bytes (NULs count twice), this one has {escaped}");
    Err(Error::new(ErrorCode::TooLarge, message))
}

/// Order key and id: where a record stands in an order. In the order of ids, keys are empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Position {
    pub key: Vec<u8>,
    pub id: Vec<u8>,
}

/// The prefix of all rows of an index.
pub(crate) fn index_prefix(number: u16) -> Vec<u8> {
    let mut field = vec![INDEX];
    field.extend_from_slice(&number.to_be_bytes());
    field
}

/// The row of a record in an index.
pub(crate) fn index_row(number: u16, key: &[u8], id: &[u8]) -> Vec<u8> {
    let mut field = Vec::with_capacity(3 + key.len() + id.len() + 8);
    field.push(INDEX);
    field.extend_from_slice(&number.to_be_bytes());
    field.extend_from_slice(key);
    let start = field.len();
    for byte in id {
        match byte {
            0 => field.extend_from_slice(&ESCAPED_NUL),
            byte => field.push(*byte),
        }
    }
    field.extend_from_slice(&TERMINATOR);
    // Ids have been checked to have at most ID_BYTES.
    let length = (field.len() - start) as u16;
    field.extend_from_slice(&length.to_be_bytes());
    field
}

/// The position that a row stands for.
pub(crate) fn read_index_row(field: &[u8]) -> Option<Position> {
    let (rest, length) = field.get(3..)?.split_last_chunk::<2>()?;
    let key_bytes = rest.len().checked_sub(usize::from(u16::from_be_bytes(*length)))?;
    let (key, escaped) = rest.split_at(key_bytes);
    let mut id = Vec::with_capacity(escaped.len());
    let mut bytes = escaped.strip_suffix(&TERMINATOR)?.iter();
    while let Some(byte) = bytes.next() {
        id.push(*byte);
        if *byte == 0 {
            bytes.next();
        }
    }
    Some(Position { key: key.to_vec(), id })
}

/// The number of the index to which a row belongs.
pub(crate) fn index_number(field: &[u8]) -> Option<u16> {
    match field {
        [INDEX | COMPLETE, high, low, ..] => Some(u16::from_be_bytes([*high, *low])),
        _ => None,
    }
}

/// The field that holds a change.
pub(crate) fn change_field(sequence: u64) -> Vec<u8> {
    let mut field = vec![CHANGE];
    field.extend_from_slice(&sequence.to_be_bytes());
    field
}

/// The sequence of a change's field.
pub(crate) fn change_sequence(field: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(field.get(1..)?.try_into().ok()?))
}

/// Changes read at a time. One scan may gather a bounded number of bytes, and a change with its record may have half a
/// mebibyte.
const CHANGES_AT_ONCE: usize = 16;

/// Gets a field that holds a change, and its value. Returns whether it needs more.
type ChangeVisitor<'a> = dyn FnMut(&mut dyn Host, &[u8], &Value) -> Result<bool, Error> + 'a;

/// Gives `visit` the changes behind the field `after`, in order and at most so many, until it needs no more.
pub(crate) fn visit_changes(
    host: &mut dyn Host,
    mut after: Option<Vec<u8>>,
    limit: usize,
    visit: &mut ChangeVisitor<'_>,
) -> Result<(), Error> {
    let mut left = limit;
    while left > 0 {
        let count = left.min(CHANGES_AT_ONCE);
        let rows = host.scan(&ScanRequest { prefix: vec![CHANGE], after: after.take(), limit: count })?;
        for (field, value) in &rows {
            if !visit(host, field, value)? {
                return Ok(());
            }
        }
        left = if rows.len() < count { 0 } else { left - count };
        after = rows.into_iter().next_back().map(|(field, _)| field);
    }
    Ok(())
}

/// The field that says that an index is complete.
pub(crate) fn complete_field(number: u16) -> Vec<u8> {
    let mut field = vec![COMPLETE];
    field.extend_from_slice(&number.to_be_bytes());
    field
}

/// A number as a field's value.
pub(crate) fn number_value(number: u64) -> Value {
    Value::new(ValueKind::Bytes, &number.to_be_bytes())
}

/// The number in a field of the activation's entity.
pub(crate) fn read_number(host: &mut dyn Host, field: &[u8]) -> Result<Option<u64>, Error> {
    let Some(value) = host.get(field)? else {
        return Ok(None);
    };
    match value.content().try_into() {
        Ok(bytes) => Ok(Some(u64::from_be_bytes(bytes))),
        Err(_) => Err(Error::new(ErrorCode::Internal, "a row of the records cannot be read")),
    }
}

/// The stream of the changes here, and the sequence behind which it begins.
fn read_stream(host: &mut dyn Host) -> Result<(u16, u64), Error> {
    let Some(value) = host.get(STREAM)? else {
        return Ok((0, 0));
    };
    match value.content() {
        [high, low, sequence @ ..] if sequence.len() == 8 => {
            let sequence = sequence.iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
            Ok((u16::from_be_bytes([*high, *low]), sequence))
        }
        _ => Err(Error::new(ErrorCode::Internal, "a row of the records cannot be read")),
    }
}

/// The sequence behind which a stream begins. Changes up to it belong to streams that have ended.
pub(crate) fn stream_begins_after(host: &mut dyn Host, stream: u16) -> Result<u64, Error> {
    match read_stream(host)? {
        (known, begins) if known >= stream => Ok(begins),
        // It has no changes yet.
        _ => Ok(read_number(host, LAST_SEQUENCE)?.unwrap_or(0)),
    }
}

/// The next change belongs to this stream. Activations that still run with the settings before also add to it.
pub(crate) fn begin_stream(host: &mut dyn Host, stream: u16, last: u64) -> Result<(), Error> {
    if stream == 0 || read_stream(host)?.0 >= stream {
        return Ok(());
    }
    let mut bytes = stream.to_be_bytes().to_vec();
    bytes.extend_from_slice(&last.to_be_bytes());
    host.set(STREAM, Value::new(ValueKind::Bytes, &bytes))
}

/// The first bytes after all that begin with `prefix`; `None` if there are none.
pub(crate) fn successor(prefix: &[u8]) -> Option<Vec<u8>> {
    let keep = prefix.iter().rposition(|byte| *byte != 0xFF)?;
    let mut after = prefix[..=keep].to_vec();
    after[keep] += 1;
    Some(after)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_named_as_documented() {
        let row = index_row(0x0102, b"key", b"id");
        assert_eq!(row, b"i\x01\x02keyid\0\x01\0\x04");
        assert_eq!(read_index_row(&row), Some(Position { key: b"key".to_vec(), id: b"id".to_vec() }));
        assert_eq!(index_number(&row), Some(0x0102));
        assert_eq!(change_field(7), b"c\0\0\0\0\0\0\0\x07");
        assert_eq!(change_sequence(&change_field(7)), Some(7));
        assert_eq!(complete_field(3), b"b\0\x03");
        for other in [&b""[..], b"i", b"i\0\0", b"i\0\0\0\x05a", b"i\0\0a\0\x01"] {
            assert_eq!(read_index_row(other), None);
        }
    }

    #[test]
    fn the_longest_row_fits_a_field() {
        for id in [&[1; ID_BYTES][..], &[0; ID_BYTES / 2]] {
            assert_eq!(check_id(id), Ok(()));
            assert!(index_row(1, &[0; ORDER_KEY_BYTES], id).len() <= limits::FIELD_BYTES);
        }
        assert_eq!(check_id(&[1; ID_BYTES + 1]).expect_err("too long").code, ErrorCode::TooLarge);
    }

    #[test]
    fn rows_of_one_key_are_in_the_order_of_ids() {
        let ids: [&[u8]; 9] = [b"", b"\0", b"\0\0", b"\0\x01", b"\x01", b"a", b"a\0", b"a\x01\xff", b"b"];
        let rows: Vec<Vec<u8>> = ids.iter().map(|id| index_row(1, b"k", id)).collect();
        assert!(rows.is_sorted());
        for (id, row) in ids.iter().zip(&rows) {
            assert_eq!(read_index_row(row).map(|position| position.id), Some(id.to_vec()));
        }
    }

    #[test]
    fn successors_come_after_everything_with_the_prefix() {
        assert_eq!(successor(b"ab"), Some(b"ac".to_vec()));
        assert_eq!(successor(b"a\xff"), Some(b"b".to_vec()));
        assert_eq!(successor(b"\xff\xff"), None);
        assert_eq!(successor(b""), None);
    }
}
