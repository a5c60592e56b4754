//! For fuzzing only: the promises that readers of cursors and of stored records keep for any bytes.

use millrace_api::RecordQuery;
use millrace_base::{ErrorCode, Value, ValueKind};
use millrace_func::{Base64Alphabet, base64_decode, base64_encode};

use crate::rows::{ID_BYTES, ORDER_KEY_BYTES, Position};
use crate::stored::Stored;
use crate::{change_cursor, page_cursor};

const TYPE: &str = "t";

/// Bytes before the page's own part of a cursor: version and query.
const PAGE_HEAD_BYTES: usize = 9;

/// The same for changes: version, type, number of the stream.
const CHANGES_HEAD_BYTES: usize = 5;

/// A cursor is refused, or leads to the place for which it is written. Random bytes rarely have a cursor's head, so the
/// bytes are also read with a head before them.
#[doc(hidden)]
pub fn check_cursors(bytes: &[u8]) {
    if let Ok(text) = std::str::from_utf8(bytes) {
        check_page(text);
        check_changes(text);
    }
    check_page(&behind_head(
        &page_cursor::write(TYPE, &RecordQuery::default(), &Position::default()),
        PAGE_HEAD_BYTES,
        bytes,
    ));
    check_changes(&behind_head(&change_cursor::write((TYPE, 1), &[]), CHANGES_HEAD_BYTES, bytes));
}

fn behind_head(cursor: &str, head_bytes: usize, rest: &[u8]) -> String {
    let mut bytes = base64_decode(cursor.as_bytes()).unwrap_or_default();
    assert!(bytes.len() >= head_bytes, "a head");
    bytes.truncate(head_bytes);
    bytes.extend_from_slice(rest);
    base64_encode(&bytes, Base64Alphabet::Url)
}

fn check_page(cursor: &str) {
    let query = RecordQuery { cursor, ..RecordQuery::default() };
    match page_cursor::read(TYPE, &query) {
        Ok(None) => assert!(cursor.is_empty(), "only nothing is the beginning"),
        Ok(Some(position)) => {
            assert!(position.key.len() <= ORDER_KEY_BYTES && position.id.len() <= ID_BYTES, "within the limits");
            let again = page_cursor::write(TYPE, &query, &position);
            let query = RecordQuery { cursor: &again, ..RecordQuery::default() };
            assert_eq!(page_cursor::read(TYPE, &query), Ok(Some(position)), "the same place");
            assert!(page_cursor::read("other", &query).is_err(), "of this query only");
        }
        Err(error) => assert!(error.code == ErrorCode::BadRequest && !error.message.is_empty(), "{error}"),
    }
}

fn check_changes(cursor: &str) {
    for shards in 0..4 {
        match change_cursor::read((TYPE, 1), cursor, shards) {
            Ok(sequences) => {
                assert_eq!(sequences.len(), shards, "one of each shard");
                let again = change_cursor::write((TYPE, 1), &sequences);
                assert_eq!(change_cursor::read((TYPE, 1), &again, shards), Ok(sequences), "the same place");
                assert!(change_cursor::read((TYPE, 2), &again, shards).is_err(), "of this stream only");
            }
            Err(error) => assert!(error.code == ErrorCode::BadRequest && !error.message.is_empty(), "{error}"),
        }
    }
}

/// A stored record is refused, or writing it again gives the same bytes.
#[doc(hidden)]
pub fn check_stored(bytes: &[u8]) {
    let value = Value::new(ValueKind::Bytes, bytes);
    match Stored::read(&value) {
        Ok(stored) => {
            assert!(bytes.ends_with(stored.value), "the value is the end");
            let again = stored.write();
            assert!(again.content().len() <= bytes.len(), "the shortest form");
            assert_eq!(Stored::read(&again), Ok(stored), "the same record");
        }
        Err(error) => assert!(error.code == ErrorCode::Internal && !error.message.is_empty(), "{error}"),
    }
}
