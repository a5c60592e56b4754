//! What the engine sees of a reply, whatever the protocol.

use super::mongo::MongoParser;
use super::resp::RespParser;
use super::response::{HeadCache, ResponseParser};

/// Why a reply cannot be understood.
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
