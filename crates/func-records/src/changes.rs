//! Changes of a type: what one shard gives, and how the shards' changes become one page.

use std::rc::Rc;

use bytes::Bytes;
use millrace_api::RecordReply;
use millrace_base::{Error, ErrorCode, limits};

use crate::apply::read_time;
use crate::change_cursor;
use crate::program::{CHANGES, RecordProgram};
use crate::rows::{LAST_SEQUENCE, change_field, change_sequence, read_number, stream_begins_after, visit_changes};
use crate::turn::{Calls, Gathers, Progress, Turn};
use crate::wire::{AskChanges, From, GotChanges, decode, decode_all, encode};

/// `T--shard/_changes`.
pub(crate) fn of_shard(turn: &mut Turn<'_>, type_index: usize, input: &[u8]) -> Result<Progress, Error> {
    let ask: AskChanges = decode(input)?;
    let stream = turn.record_type(type_index).stream;
    let last = read_number(turn.host, LAST_SEQUENCE)?.unwrap_or(0);
    let mut got = GotChanges::default();
    let after = match ask.from {
        From::Now => {
            got.at = last;
            return Ok(Progress::Done(encode(&got)));
        }
        From::Oldest => None,
        From::After(after) => Some(after),
    };
    let begins = stream_begins_after(turn.host, stream)?;
    let scanned_after = after.or(Some(begins)).filter(|after| *after > 0).map(change_field);
    let (mut first, mut size_bytes) = (None, 0);
    visit_changes(turn.host, scanned_after, ask.limit.min(limits::SCAN_ROWS), &mut |_, field, value| {
        let sequence = change_sequence(field);
        first = first.or(sequence);
        let text = String::from_utf8_lossy(value.content()).into_owned();
        size_bytes += text.len();
        if size_bytes > ask.size_bytes && !got.changes.is_empty() {
            return Ok(false);
        }
        let time = read_time(value.content()).unwrap_or(0);
        got.changes.push((sequence.unwrap_or(0), time, text));
        Ok(true)
    })?;
    // A stream as it is kept has no gaps. Either the next change is there, or the reader has all up to the last.
    got.is_lost = after.is_some_and(|after| {
        let is_within = (begins..=last).contains(&after);
        !is_within || first.unwrap_or(last + 1) != after + 1
    });
    got.at = after.unwrap_or(last);
    if let (Some(first), None) = (first, after) {
        got.at = first.saturating_sub(1);
    }
    Ok(Progress::Done(encode(&got)))
}

/// The operation `Changes`.
pub(crate) fn start(turn: &mut Turn<'_>, type_index: usize, cursor: &str, limit: u32) -> Result<Progress, Error> {
    let program = Rc::clone(turn.program);
    let of = &program.types[type_index];
    if of.changes.is_none() {
        let message = format!(
            "the type {:?} keeps no changes: give it `changes` in its settings, as in {{\"changes\":{{}}}}",
            of.name.as_str()
        );
        return Err(Error::new(ErrorCode::BadRequest, message));
    }
    let shards = turn.shared.shard_keys.len();
    let froms: Vec<From> = match cursor {
        "" => vec![From::Oldest; shards],
        "now" => vec![From::Now; shards],
        text => {
            change_cursor::read((of.name.as_str(), of.stream), text, shards)?.into_iter().map(From::after).collect()
        }
    };
    let limit = page_limit(limit);
    // Together they are one page.
    let size_bytes = (limits::OUTPUT_BYTES / shards).max(64 << 10);
    let inputs = froms.into_iter().map(|from| encode(&AskChanges { from, limit, size_bytes }));
    let calls = turn.call_shards((of.shard_service, CHANGES), inputs)?;
    Ok(Progress::Wait(Box::new(Gather { program, type_index, limit, calls })))
}

/// How many items a page has.
pub(crate) fn page_limit(asked: u32) -> usize {
    match asked as usize {
        0 => limits::PAGE_ITEMS,
        asked => asked.min(limits::MOST_PAGE_ITEMS),
    }
}

struct Gather {
    program: Rc<RecordProgram>,
    type_index: usize,
    limit: usize,
    calls: Calls,
}

impl Gathers for Gather {
    fn calls(&mut self) -> &mut Calls {
        &mut self.calls
    }

    fn gathered(self: Box<Self>, _: &mut Turn<'_>, results: Vec<Result<Bytes, Error>>) -> Result<Progress, Error> {
        let shards: Vec<GotChanges> = decode_all(results)?;
        if shards.iter().any(|shard| shard.is_lost) {
            let message = "changes after this cursor are not kept any more: take the cursor \"now\", then \
                           read the records again and go on from that cursor, and keep changes for longer if that happens";
            return Err(Error::new(ErrorCode::BadRequest, message));
        }
        let of = &self.program.types[self.type_index];
        let stream = (of.name.as_str(), of.stream);
        let (texts, sequences) = merge(&shards, self.limit, stream);
        let cursor = change_cursor::write(stream, &sequences);
        let body = format!("{{\"changes\":[{}],\"cursor\":\"{cursor}\"}}", texts.join(","));
        let matched = u32::try_from(texts.len()).unwrap_or(u32::MAX);
        let reply = RecordReply { matched, body: Bytes::from(body), ..RecordReply::default() };
        Ok(Progress::Done(reply.to_bytes()))
    }
}

/// With more shards than this, a change does not have the cursor behind it. A cursor has a number for each shard, so it
/// would be longer than the change.
const SHARDS_WITH_CURSORS: usize = 256;

/// The first changes by time, with each shard's in their own order, and the place in each shard behind them. Every
/// change has the cursor behind it, so that a reader may stop at any.
fn merge(shards: &[GotChanges], limit: usize, stream: (&str, u16)) -> (Vec<String>, Vec<u64>) {
    let mut taken = vec![0; shards.len()];
    let mut sequences: Vec<u64> = shards.iter().map(|shard| shard.at).collect();
    let mut texts = Vec::new();
    let mut size_bytes = 0;
    while texts.len() < limit && size_bytes < limits::OUTPUT_BYTES {
        let heads = shards.iter().zip(&taken).enumerate();
        let heads = heads.filter_map(|(shard, (got, taken))| Some((got.changes.get(*taken)?, shard)));
        let Some(((sequence, _, text), shard)) = heads.min_by_key(|((_, time, _), shard)| (*time, *shard)) else {
            break;
        };
        taken[shard] += 1;
        sequences[shard] = *sequence;
        let text = match text.strip_suffix('}').filter(|_| shards.len() <= SHARDS_WITH_CURSORS) {
            Some(members) => format!("{members},\"cursor\":\"{}\"}}", change_cursor::write(stream, &sequences)),
            None => text.clone(),
        };
        size_bytes += text.len();
        texts.push(text);
    }
    (texts, sequences)
}
