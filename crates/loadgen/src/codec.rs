//! The engine's view of a reply in any protocol.

use super::mongo::MongoParser;
use super::resp::RespParser;
use super::response::{HeadCache, ResponseParser};

/// The reason why a reply cannot be parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ParseError(pub(super) &'static str);

/// A whole reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reply<'a> {
    pub status: u16,
    /// Whether the connection may be used again.
    pub keep_alive: bool,
    /// The body, if it came with its head or is kept to be checked.
    pub body: &'a [u8],
}

#[cfg(test)]
impl Reply<'_> {
    pub(super) fn told(&self) -> (u16, Vec<u8>) {
        (self.status, self.body.to_vec())
    }
}

/// The reply parser of one connection.
#[derive(Debug)]
pub(super) enum Codec {
    Http(ResponseParser),
    Resp(RespParser),
    Mongo(MongoParser),
}

impl Codec {
    pub(super) fn feed<'a>(
        &'a mut self,
        input: &'a [u8],
        cache: &mut HeadCache,
    ) -> Result<(usize, Option<Reply<'a>>), ParseError> {
        match self {
            Codec::Http(parser) => parser.feed(input, cache),
            Codec::Resp(parser) => parser.feed(input),
            Codec::Mongo(parser) => parser.feed(input),
        }
    }

    pub(super) fn is_inside_reply(&self) -> bool {
        match self {
            Codec::Http(parser) => parser.is_inside_reply(),
            Codec::Resp(parser) => parser.is_inside_reply(),
            Codec::Mongo(parser) => parser.is_inside_reply(),
        }
    }
}

/// For tests of parsers: status and body of all replies in bytes that arrive in pieces.
#[cfg(test)]
pub(super) fn replies_in_pieces(
    bytes: &[u8],
    piece: usize,
    mut feed: impl FnMut(&[u8]) -> Result<(usize, Option<(u16, Vec<u8>)>), ParseError>,
) -> Result<Vec<(u16, Vec<u8>)>, ParseError> {
    let mut replies = Vec::new();
    for part in bytes.chunks(piece) {
        let mut rest = part;
        while !rest.is_empty() {
            let (used, reply) = feed(rest)?;
            replies.extend(reply);
            rest = &rest[used..];
        }
    }
    Ok(replies)
}
