//! The place of a reader of changes: the last sequence that it has got of each shard, in one stream of changes. A type
//! has another stream each time that changes were not kept for a while.

use millrace_base::{Error, ErrorCode, fingerprint};
use millrace_func::{Base64Alphabet, base64_decode, base64_encode};

/// The version for a type's first stream.
const FIRST: u8 = 1;

/// The version with the stream's number behind the head.
const NUMBERED: u8 = 2;

/// The first bytes: version, and two of a fingerprint of the type's name.
fn head(version: u8, type_name: &str) -> [u8; 3] {
    let [low, high, ..] = fingerprint(&[type_name.as_bytes()]).to_le_bytes();
    [version, low, high]
}

/// The cursor of a type's stream, which is named by the type's name and the stream's number.
pub(crate) fn write((type_name, stream): (&str, u16), sequences: &[u64]) -> String {
    let mut bytes = match stream {
        0 => head(FIRST, type_name).to_vec(),
        stream => [&head(NUMBERED, type_name)[..], &stream.to_le_bytes()].concat(),
    };
    for sequence in sequences {
        let mut number = *sequence;
        while number >= 0x80 {
            bytes.push(number as u8 | 0x80);
            number >>= 7;
        }
        bytes.push(number as u8);
    }
    base64_encode(&bytes, Base64Alphabet::Url)
}

/// Reads what [`write`] wrote.
///
/// # Errors
/// `bad-request` for anything else, and for a cursor of a stream that has ended.
pub(crate) fn read((type_name, stream): (&str, u16), text: &str, shards: usize) -> Result<Vec<u64>, Error> {
    let wrong = || {
        let message = "the cursor is not one of this type's changes: give back the last one as it was, or none";
        Error::new(ErrorCode::BadRequest, message)
    };
    // The longest cursor has ten bytes for each shard.
    if text.len() > 16 + shards * 14 {
        return Err(wrong());
    }
    let bytes = base64_decode(text.as_bytes()).ok_or_else(wrong)?;
    let (of, mut rest) = match bytes.strip_prefix(&head(FIRST, type_name)[..]) {
        Some(rest) => (0, rest),
        None => {
            let rest = bytes.strip_prefix(&head(NUMBERED, type_name)[..]).ok_or_else(wrong)?;
            let (number, rest) = rest.split_first_chunk().ok_or_else(wrong)?;
            (u16::from_le_bytes(*number), rest)
        }
    };
    let mut sequences = Vec::with_capacity(shards);
    while !rest.is_empty() {
        let end = rest.iter().position(|byte| *byte < 0x80).filter(|end| *end < 10).ok_or_else(wrong)?;
        let mut number = 0_u64;
        for (index, byte) in rest[..=end].iter().enumerate() {
            let bits = u64::from(byte & 0x7F);
            number |=
                bits.checked_shl(7 * index as u32).filter(|moved| moved >> (7 * index) == bits).ok_or_else(wrong)?;
        }
        sequences.push(number);
        rest = &rest[end + 1..];
    }
    if sequences.len() != shards {
        return Err(wrong());
    }
    if of != stream {
        let message = "changes after this cursor are not all there: the type kept none for a while, or was deleted and \
                       made again; take the cursor \"now\", then read the records again and go on from that cursor";
        return Err(Error::new(ErrorCode::BadRequest, message));
    }
    Ok(sequences)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn cursors_come_back(stream in any::<u16>(), sequences in proptest::collection::vec(any::<u64>(), 0..9)) {
            let text = write(("personinfo", stream), &sequences);
            prop_assert_eq!(read(("personinfo", stream), &text, sequences.len()), Ok(sequences.clone()));
            prop_assert!(read(("personinfo", stream), &text, sequences.len() + 1).is_err());
            prop_assert!(read(("account", stream), &text, sequences.len()).is_err());
            prop_assert!(read(("personinfo", stream ^ 1), &text, sequences.len()).is_err());
        }

        #[test]
        fn other_texts_are_refused(text in "[A-Za-z0-9_-]{0,40}") {
            if let Ok(sequences) = read(("t", 0), &text, 2) {
                prop_assert_eq!(sequences.len(), 2);
            }
        }
    }
}
