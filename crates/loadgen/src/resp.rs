//! RESP2 replies, for comparisons with servers that speak the Redis protocol.
//!
//! Promises: memory is bounded, and no bytes make it panic. A reply counts as status 200, an error reply as 500 and a null
//! as 404, so that the same expectations serve both protocols.

use super::codec::{ParseError, Reply};

/// Bytes of one reply.
const REPLY_BYTES: usize = 64 << 20;

/// Arrays inside arrays.
const DEPTH: usize = 8;

/// The parser of one connection's replies.
#[derive(Debug, Default)]
pub(super) struct RespParser {
    /// A reply that has not arrived whole.
    partial: Vec<u8>,
    /// Bytes of `partial` that belong to the last reply.
    told: usize,
}

/// A reply in its bytes.
struct Found {
    status: u16,
    /// The text of a simple reply or a bulk string; empty for an array.
    start: usize,
    end: usize,
    length: usize,
}

impl RespParser {
    pub(super) fn is_inside_reply(&self) -> bool {
        self.partial.len() > self.told
    }

    /// As [`super::response::ResponseParser::feed`].
    pub(super) fn feed<'a>(&'a mut self, input: &'a [u8]) -> Result<(usize, Option<Reply<'a>>), ParseError> {
        self.partial.drain(..self.told);
        self.told = 0;
        if self.partial.is_empty() {
            if let Some(found) = find_reply(input, 0)? {
                return Ok((found.length, Some(found.reply(input))));
            }
            self.partial.extend_from_slice(input);
        } else {
            let known = self.partial.len();
            self.partial.extend_from_slice(input);
            if let Some(found) = find_reply(&self.partial, 0)? {
                self.partial.truncate(found.length);
                self.told = found.length;
                return Ok((found.length - known, Some(found.reply(&self.partial))));
            }
        }
        if self.partial.len() > REPLY_BYTES {
            return Err(ParseError("the reply is too large"));
        }
        Ok((input.len(), None))
    }
}

impl Found {
    fn reply<'a>(&self, bytes: &'a [u8]) -> Reply<'a> {
        Reply { status: self.status, keep_alive: true, body: &bytes[self.start..self.end] }
    }
}

/// The reply at the start of `bytes`, if it is complete.
fn find_reply(bytes: &[u8], depth: usize) -> Result<Option<Found>, ParseError> {
    let Some(line_end) = bytes.windows(2).position(|pair| pair == b"\r\n") else { return Ok(None) };
    let after = line_end + 2;
    let simple = |status| Found { status, start: 1, end: line_end, length: after };
    match bytes[0] {
        b'+' | b':' => Ok(Some(simple(200))),
        b'-' => Ok(Some(simple(500))),
        b'$' => {
            let Some(length) = parse_count(&bytes[1..line_end])? else {
                return Ok(Some(Found { status: 404, start: after, end: after, length: after }));
            };
            let end = after + length;
            match bytes.get(end..end + 2) {
                None => Ok(None),
                Some(b"\r\n") => Ok(Some(Found { status: 200, start: after, end, length: end + 2 })),
                Some(_) => Err(ParseError("a bulk string does not end where its length says")),
            }
        }
        b'*' if depth >= DEPTH => Err(ParseError("arrays nest too deeply")),
        b'*' => {
            let Some(count) = parse_count(&bytes[1..line_end])? else {
                return Ok(Some(Found { status: 404, start: after, end: after, length: after }));
            };
            let mut length = after;
            for _ in 0..count {
                match find_reply(&bytes[length..], depth + 1)? {
                    Some(item) => length += item.length,
                    None => return Ok(None),
                }
            }
            Ok(Some(Found { status: 200, start: after, end: after, length }))
        }
        _ => Err(ParseError("the reply has an unknown type")),
    }
}

/// A length; `None` for -1, which stands for null.
fn parse_count(digits: &[u8]) -> Result<Option<usize>, ParseError> {
    if digits == b"-1" {
        return Ok(None);
    }
    if digits.is_empty() || digits.len() > 9 || !digits.iter().all(u8::is_ascii_digit) {
        return Err(ParseError("a length is not a number"));
    }
    let count = digits.iter().fold(0usize, |count, digit| count * 10 + usize::from(digit - b'0'));
    if count > REPLY_BYTES { Err(ParseError("the reply is too large")) } else { Ok(Some(count)) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::codec::replies_in_pieces;

    fn parse(bytes: &[u8], piece: usize) -> Result<Vec<(u16, Vec<u8>)>, ParseError> {
        let mut parser = RespParser::default();
        replies_in_pieces(bytes, piece, |rest| parser.feed(rest).map(|(used, reply)| (used, reply.map(|it| it.told()))))
    }

    const MIXED: &[u8] =
        b"+OK\r\n:42\r\n-ERR no\r\n$5\r\nhe\r\no\r\n$-1\r\n$0\r\n\r\n*2\r\n:1\r\n*1\r\n$1\r\nx\r\n*-1\r\n*0\r\n";

    #[test]
    fn replies_are_the_same_however_their_bytes_arrive() {
        let expected = [(200, "OK"), (200, "42"), (500, "ERR no"), (200, "he\r\no"), (404, ""), (200, "")]
            .into_iter()
            .chain([(200, ""), (404, ""), (200, "")])
            .map(|(status, body)| (status, body.as_bytes().to_vec()))
            .collect::<Vec<_>>();
        for piece in 1..=MIXED.len() {
            assert_eq!(parse(MIXED, piece).unwrap(), expected, "in pieces of {piece}");
        }
    }

    #[test]
    fn broken_replies_are_errors() {
        let deep = "*1\r\n".repeat(9);
        for bytes in ["HTTP/1.1 200\r\n", "$x\r\n", "$1\r\nabc", "$999999999\r\n", "*1111111111\r\n", deep.as_str()] {
            assert!(parse(bytes.as_bytes(), 100).is_err(), "{bytes:?}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes in "[+:\\-$*0-9a\\r\\n]{0,60}", piece in 1..20usize) {
            let bytes = bytes.replace('a', "\r\n");
            drop(parse(bytes.as_bytes(), piece));
        }
    }
}
