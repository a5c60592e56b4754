//! Where a page of a query ended: the position of the last record looked at, and the query.

use millrace_api::RecordQuery;
use millrace_base::{Error, ErrorCode, fingerprint};
use millrace_func::{Base64Alphabet, base64_decode, base64_encode};

use crate::rows::{ID_BYTES, ORDER_KEY_BYTES, Position};

const VERSION: u8 = 1;
const HEAD_BYTES: usize = 1 + 8 + 2;

/// What must be the same for a position to mean the same.
fn name(type_name: &str, query: &RecordQuery<'_>) -> [u8; 8] {
    let parts = [
        type_name.as_bytes(),
        query.predicate.as_bytes(),
        query.parameters.as_bytes(),
        query.order.as_bytes(),
        query.prefix,
    ];
    fingerprint(&parts).to_le_bytes()
}

pub(crate) fn write(type_name: &str, query: &RecordQuery<'_>, position: &Position) -> String {
    let mut bytes = vec![VERSION];
    bytes.extend_from_slice(&name(type_name, query));
    bytes.extend_from_slice(&(position.key.len() as u16).to_le_bytes());
    bytes.extend_from_slice(&position.key);
    bytes.extend_from_slice(&position.id);
    base64_encode(&bytes, Base64Alphabet::Url)
}

/// Reads what [`write`] wrote; `None` for the beginning.
///
/// # Errors
/// `bad-request` for a cursor of another query, and for anything else.
pub(crate) fn read(type_name: &str, query: &RecordQuery<'_>) -> Result<Option<Position>, Error> {
    if query.cursor.is_empty() {
        return Ok(None);
    }
    parse(query.cursor, name(type_name, query)).map(Some).ok_or_else(|| {
        let message = "the cursor is not one of this query: give back the last one as it was, with the same query";
        Error::new(ErrorCode::BadRequest, message)
    })
}

fn parse(cursor: &str, name: [u8; 8]) -> Option<Position> {
    if cursor.len() > (HEAD_BYTES + ORDER_KEY_BYTES + ID_BYTES) * 2 {
        return None;
    }
    let bytes = base64_decode(cursor.as_bytes())?;
    let rest = bytes.strip_prefix(&[VERSION])?.strip_prefix(&name)?;
    let (length, rest) = rest.split_first_chunk::<2>()?;
    let (key, id) = rest.split_at_checked(usize::from(u16::from_le_bytes(*length)))?;
    let is_valid = key.len() <= ORDER_KEY_BYTES && id.len() <= ID_BYTES;
    is_valid.then(|| Position { key: key.to_vec(), id: id.to_vec() })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn cursors_belong_to_their_query(
            key in proptest::collection::vec(any::<u8>(), 0..20), id in proptest::collection::vec(any::<u8>(), 0..20),
        ) {
            let position = Position { key, id };
            let query = RecordQuery { predicate: ".a == 1", ..RecordQuery::default() };
            let cursor = write("t", &query, &position);
            let next = RecordQuery { cursor: &cursor, limit: 7, ..query.clone() };
            prop_assert_eq!(read("t", &next), Ok(Some(position)));
            prop_assert!(read("u", &next).is_err());
            let others = [RecordQuery { predicate: ".a == 2", ..next.clone() }, RecordQuery { order: ".a", ..next }];
            prop_assert!(others.iter().all(|other| read("t", other).is_err()));
        }

        #[test]
        fn other_texts_are_refused(cursor in "[A-Za-z0-9_=+/-]{1,60}") {
            let query = RecordQuery { cursor: &cursor, ..RecordQuery::default() };
            prop_assert!(read("t", &query).is_err());
        }
    }
}
