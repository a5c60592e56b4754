//! MongoDB's wire protocol, for comparisons with servers that speak it. Commands and replies are `OP_MSG` messages with
//! one document each.
//!
//! Promises: memory is bounded, and no bytes make it panic. A reply has a status as in HTTP, so that the same expectations
//! serve all protocols: 500 if it is not `ok` or has an error, 404 if nothing was found or changed, 201 if something was
//! created, otherwise 200.

use serde_json::Value;

use super::bson::{self, ARRAY, DOCUMENT, DocumentTemplate, Element, Elements, length_at, put_length};
use super::codec::{ParseError, Reply};
use super::plan::BenchError;
use super::template::Scope;

/// The code of `OP_MSG`.
const OP_MSG: i32 = 2013;
/// Four numbers: length, request, answered request, operation.
const HEADER_BYTES: usize = 16;
/// Flags and the kind of the section, between the header and the document.
const PREFIX_BYTES: usize = 5;
/// Every request has this number, because replies on a connection come in order.
const REQUEST: i32 = 1;
/// The flags that a receiver must know, among them a checksum and more messages to come. No request asks for these.
const REQUIRED_FLAGS: u32 = 0xFFFF;

/// Bytes of one message: `maxMessageSizeBytes` of the servers.
pub const MESSAGE_BYTES: usize = 48_000_000;
/// The shortest message: its header and an empty document.
const LEAST_BYTES: usize = HEADER_BYTES + PREFIX_BYTES + 5;

/// Appends a request's message.
pub(super) fn render(command: &DocumentTemplate, scope: &mut Scope, scratch: &mut Vec<u8>, out: &mut Vec<u8>) {
    let start = out.len();
    // The length follows.
    for number in [0, REQUEST, 0, OP_MSG, 0] {
        out.extend_from_slice(&i32::to_le_bytes(number));
    }
    out.push(0);
    command.render(scope, scratch, out);
    put_length(out, start, start);
}

fn literal(json: &str) -> Result<DocumentTemplate, BenchError> {
    let document = DocumentTemplate::compile(json)?;
    if document.is_literal() {
        Ok(document)
    } else {
        Err(BenchError::Arguments("this document cannot hold template parts".to_owned()))
    }
}

/// The message of a command without template parts, written as Extended JSON.
///
/// # Errors
/// If it is not such a command.
pub fn message(command: &str) -> Result<Vec<u8>, BenchError> {
    let mut out = Vec::new();
    render(&literal(command)?, &mut Scope::new(0, 0, 1), &mut Vec::new(), &mut out);
    Ok(out)
}

/// The body of the reply to a command that finds just this document, as Extended JSON: its fields in their order, without
/// `_id`.
///
/// # Errors
/// If it is not a document, or has template parts.
pub fn found(document: &str) -> Result<Vec<u8>, BenchError> {
    let mut out = Vec::new();
    literal(document)?.render(&mut Scope::new(0, 0, 1), &mut Vec::new(), &mut out);
    fields(&out).map(<[u8]>::to_vec).map_err(|error| BenchError::Arguments(error.0.to_owned()))
}

/// The document of a whole reply, as JSON.
///
/// # Errors
/// If it is not a reply, or has a value that JSON lacks.
pub fn decode(reply: &[u8]) -> Result<Value, String> {
    let document = document(reply).map_err(|error| error.0)?;
    bson::decode(document, 0).map_err(|error| error.0.to_owned())
}

/// The parser of one connection's replies.
#[derive(Debug, Default)]
pub(super) struct MongoParser {
    /// A reply that has not arrived whole.
    partial: Vec<u8>,
    /// Bytes of `partial` that belong to the last reply.
    told: usize,
}

impl MongoParser {
    pub(super) fn is_inside_reply(&self) -> bool {
        self.partial.len() > self.told
    }

    /// As [`super::response::ResponseParser::feed`].
    pub(super) fn feed<'a>(&'a mut self, input: &'a [u8]) -> Result<(usize, Option<Reply<'a>>), ParseError> {
        self.partial.drain(..self.told);
        self.told = 0;
        let known = self.partial.len();
        if known == 0
            && let Some(length) = message_length(input)?
            && let Some(message) = input.get(..length)
        {
            return Ok((length, Some(reply(message)?)));
        }
        // Only the current message is kept.
        let mut used = input.len();
        if known + used >= 4 {
            let mut start = [0; 4];
            for (byte, from) in start.iter_mut().zip(self.partial.iter().chain(input)) {
                *byte = *from;
            }
            if let Some(length) = message_length(&start)? {
                used = used.min(length - known);
                self.partial.extend_from_slice(&input[..used]);
                if self.partial.len() < length {
                    return Ok((used, None));
                }
                self.told = length;
                return Ok((used, Some(reply(&self.partial)?)));
            }
        }
        self.partial.extend_from_slice(input);
        used = input.len();
        Ok((used, None))
    }
}

/// The length of the first message in the bytes, if its length field is complete.
///
/// # Errors
/// If no message can have this length.
fn message_length(bytes: &[u8]) -> Result<Option<usize>, ParseError> {
    if bytes.len() < 4 {
        return Ok(None);
    }
    match length_at(bytes)? {
        length if length > MESSAGE_BYTES => Err(ParseError("the reply is too large")),
        length if length < LEAST_BYTES => Err(ParseError("the reply is shorter than any can be")),
        length => Ok(Some(length)),
    }
}

/// The document of a whole message.
fn document(message: &[u8]) -> Result<&[u8], ParseError> {
    let number =
        |index: usize| message.get(index * 4..).and_then(<[u8]>::first_chunk).map(|at| i32::from_le_bytes(*at));
    if message_length(message)? != Some(message.len()) {
        return Err(ParseError("the reply does not end where its length says"));
    }
    if number(2) != Some(REQUEST) || number(3) != Some(OP_MSG) {
        return Err(ParseError("the reply is no answer to the request, or not in OP_MSG"));
    }
    if number(4).is_none_or(|flags| flags as u32 & REQUIRED_FLAGS != 0) {
        return Err(ParseError("the reply has flags that were not asked for"));
    }
    match &message[HEADER_BYTES + PREFIX_BYTES - 1..] {
        [0, document @ ..] => Ok(document),
        _ => Err(ParseError("the reply begins with another section than its document")),
    }
}

/// The fields of a reply.
#[derive(Default)]
struct Said<'a> {
    is_ok: bool,
    message: &'a [u8],
    /// Errors of writes that failed, or did not reach the disk as requested.
    error: Option<&'a [u8]>,
    cursor: Option<&'a [u8]>,
    count: Option<Element<'a>>,
    modified: Option<i64>,
    is_made: bool,
}

fn said(document: &[u8]) -> Result<Said<'_>, ParseError> {
    let mut said = Said::default();
    let mut elements = Elements::of(document)?;
    while let Some(element) = elements.next()? {
        match (element.name, element.kind) {
            (b"ok", _) => said.is_ok = element.integer() == Some(1),
            (b"errmsg", _) => said.message = element.text(),
            (b"writeErrors" | b"writeConcernError", _) => said.error = Some(element.value),
            (b"cursor", DOCUMENT) => said.cursor = Some(element.value),
            (b"n", _) => said.count = Some(element),
            (b"nModified", _) => said.modified = element.integer(),
            (b"upserted", ARRAY) => said.is_made = true,
            _ => {}
        }
    }
    Ok(said)
}

/// The reply in a whole message. Its body is the error, or the only document found without `_id`, or the number of
/// documents that a write found, as its four bytes.
fn reply(message: &[u8]) -> Result<Reply<'_>, ParseError> {
    let told = |status, body| Ok(Reply { status, keep_alive: true, body });
    let said = said(document(message)?)?;
    if !said.is_ok {
        return told(500, said.message);
    }
    if let Some(error) = said.error {
        return told(500, error);
    }
    if let Some(cursor) = said.cursor {
        return match only_document(cursor)? {
            Batch::Empty => told(404, &[]),
            Batch::One(document) => told(200, fields(document)?),
            Batch::More => told(200, &[]),
        };
    }
    let Some(element) = said.count else { return told(200, &[]) };
    let count = element.integer().filter(|count| *count >= 0).ok_or(ParseError("`n` is no count"))?;
    if said.modified.is_some_and(|modified| !(0..=count).contains(&modified)) {
        return Err(ParseError("`nModified` is above `n`"));
    }
    match count {
        0 => told(404, element.value),
        _ if said.is_made => told(201, element.value),
        _ => told(200, element.value),
    }
}

/// The documents of a reply to `find`.
enum Batch<'a> {
    Empty,
    One(&'a [u8]),
    More,
}

fn only_document(cursor: &[u8]) -> Result<Batch<'_>, ParseError> {
    let mut elements = Elements::of(cursor)?;
    while let Some(element) = elements.next()? {
        if element.name != b"firstBatch" || element.kind != ARRAY {
            continue;
        }
        let mut batch = Elements::of(element.value)?;
        let Some(first) = batch.next()? else { return Ok(Batch::Empty) };
        if first.kind != DOCUMENT {
            return Err(ParseError("what was found is no document"));
        }
        return Ok(if batch.next()?.is_some() { Batch::More } else { Batch::One(first.value) });
    }
    Err(ParseError("the cursor has no first batch"))
}

/// The bytes of a document's fields to its end, without `_id`. Servers put `_id` first.
fn fields(document: &[u8]) -> Result<&[u8], ParseError> {
    let first = Elements::of(document)?.next()?;
    // Its type, its name and the NUL after that, and its value.
    let skipped =
        first.filter(|first| first.name == b"_id").map_or(0, |first| first.name.len() + first.value.len() + 2);
    document.get(4 + skipped..).ok_or(ParseError("a document does not end where its length says"))
}

#[cfg(test)]
#[path = "mongo_tests.rs"]
mod tests;
