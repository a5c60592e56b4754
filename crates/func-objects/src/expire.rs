//! Lifecycle rules at work: a bucket with rules sends itself a message each day, and works off what is due in batches.
//!
//! The messages are durable and delivered exactly once, so a crash loses no day. A message names the rules it was sent
//! for: those of older rules, and of a bucket that is gone, do nothing. Locked versions stay; a later day tries again.

use bytes::Bytes;
use millrace_base::{Error, limits};
use millrace_func::{EntityRows, EntityScan, HandlerId, Message, OperationId, Visit};

use crate::bucket::{count, settings};
use crate::lifecycle::{self, Candidate, Rules};
use crate::names::{BUCKET, EXPIRE, OBJECT, UPLOAD, WRITE, behind_place, bucket_key};
use crate::rows::{INFO, UPLOAD as UPLOAD_FIELD, UploadRow, VERSION, VersionRow, from_value};
use crate::settings::Settings;
use crate::turn::{Progress, Turn};
use crate::wire::{ChangeInput, ChangeOutput, ExpireInput, decode, encode};

/// Buckets do not all begin at midnight: they are spread over this part of a day, an hour.
const SPREAD: u64 = 24;

/// Entities that one transaction looks at, and those of them that it changes: few enough that other requests of the
/// bucket do not wait long.
const LOOKED_AT: usize = 200;
const CHANGED: usize = 50;

/// What a version is for lifecycle rules.
pub(crate) fn candidate(row: &VersionRow) -> Candidate<'_> {
    Candidate {
        size_bytes: row.size_bytes,
        modified_ms: row.modified_ms,
        tags: &row.input.tags,
        is_delete_marker: row.is_delete_marker,
    }
}

/// When the current version of an object expires, for a reply.
pub(crate) fn expires(settings: &Settings, key: &str, row: &VersionRow) -> Option<(u64, String)> {
    let found = lifecycle::expires(settings.lifecycle_rules()?, key, &candidate(row))?;
    Some((found.0, found.1.to_owned()))
}

/// Begins with new rules, a short time after they were set.
///
/// # Errors
/// Those of the host.
pub(crate) fn begin(turn: &mut Turn<'_>, number: u64) -> Result<(), Error> {
    send(turn, ExpireInput { number, is_uploads: false, from: Vec::new() }, 0)
}

fn send(turn: &mut Turn<'_>, input: ExpireInput, delay_ms: u64) -> Result<(), Error> {
    let handler = HandlerId { program: turn.program, service: BUCKET, handler: EXPIRE };
    let key = turn.key.to_vec();
    turn.host.send(Message { handler, key, input: encode(&input), delay_ms, id: None })?;
    Ok(())
}

/// Works off one batch.
///
/// # Errors
/// Those of the host.
pub(crate) fn run(turn: &mut Turn<'_>, input: &[u8]) -> Result<Progress, Error> {
    let input: ExpireInput = decode(input)?;
    // The bucket is gone, or has no such slice any more.
    if turn.host.get(INFO)?.is_none() {
        return Ok(Progress::Done(Bytes::new()));
    }
    let settings = settings(turn)?;
    let is_current = settings.row.lifecycle_number == Some(input.number);
    let Some(rules) = settings.lifecycle_rules().filter(|_| is_current) else {
        return Ok(Progress::Done(Bytes::new()));
    };
    let (calls, next) = batch(turn, (&settings, rules), &input)?;
    let number = input.number;
    let (next, delay_ms) = match (next, input.is_uploads) {
        (Some(from), is_uploads) => (ExpireInput { number, is_uploads, from }, 0),
        (None, false) => (ExpireInput { number, is_uploads: true, from: Vec::new() }, 0),
        (None, true) => {
            let now_ms = turn.host.now().0;
            let delay_ms = rules.day_ms - now_ms % rules.day_ms + number % (rules.day_ms / SPREAD).max(1);
            (ExpireInput { number, is_uploads: false, from: Vec::new() }, delay_ms)
        }
    };
    send(turn, next, delay_ms)?;
    if calls.is_empty() {
        return Ok(Progress::Done(Bytes::new()));
    }
    Ok(Turn::then_all(calls, |turn, results| {
        let outputs = results.into_iter().map(|result| decode(&result?)).collect::<Result<Vec<ChangeOutput>, _>>()?;
        count(turn, &outputs.iter().collect::<Vec<_>>())?;
        Ok(Progress::Done(Bytes::new()))
    }))
}

/// Looks at some entities, and has those change with which something is due. Says where the next batch begins.
fn batch(
    turn: &mut Turn<'_>,
    (settings, rules): (&Settings, Rules<'_>),
    input: &ExpireInput,
) -> Result<(Vec<OperationId>, Option<Vec<u8>>), Error> {
    let (place, bucket) = (turn.place(), turn.bucket());
    let prefix = bucket_key(place);
    let service = if input.is_uploads { UPLOAD } else { OBJECT };
    let scan = EntityScan {
        service,
        from: input.from.clone(),
        prefix,
        field: if input.is_uploads { UPLOAD_FIELD.to_vec() } else { VERSION.to_vec() },
        is_prefix: !input.is_uploads,
        fields_limit: limits::SCAN_ROWS,
        ..EntityScan::default()
    };
    let now_ms = turn.host.now().0;
    let (mut due, mut looked_at, mut ended) = (Vec::new(), 0, Ok(None));
    turn.host.built_in()?.visit_entities(&scan, &mut |entity| {
        if looked_at >= LOOKED_AT || due.len() >= CHANGED {
            ended = Ok(Some(entity.key));
            return Visit::Stop;
        }
        looked_at += 1;
        let rest = behind_place(&entity.key, place);
        let key = if input.is_uploads { rest.rsplitn(2, |byte| *byte == 0).last().unwrap_or_default() } else { rest };
        let key = String::from_utf8_lossy(key).into_owned();
        match is_due(rules, &key, &entity, (input.is_uploads, now_ms)) {
            Ok(true) => due.push((entity.key, key)),
            Ok(false) => {}
            Err(error) => {
                ended = Err(error);
                return Visit::Stop;
            }
        }
        Visit::Next
    })?;
    let next = ended?;
    let mut calls = Vec::new();
    for (entity, key) in due {
        let change = ChangeInput::Expire { settings: settings.output(), bucket: bucket.to_owned(), key };
        calls.push(turn.call((service, WRITE), entity, encode(&change))?);
    }
    Ok((calls, next))
}

/// Whether anything of an object or an upload is due.
fn is_due(rules: Rules<'_>, key: &str, entity: &EntityRows, (is_upload, now_ms): (bool, u64)) -> Result<bool, Error> {
    if is_upload {
        let Some((_, value)) = entity.fields.first() else { return Ok(false) };
        return Ok(is_upload_due(rules, key, &from_value(value)?, now_ms));
    }
    let rows = entity.fields.iter().map(|(_, value)| from_value(value));
    let rows = rows.collect::<Result<Vec<VersionRow>, _>>()?;
    let candidates: Vec<Candidate<'_>> = rows.iter().map(candidate).collect();
    Ok(!lifecycle::due(rules, key, &candidates, now_ms).is_empty())
}

/// Whether an upload has waited too long for its completion.
pub(crate) fn is_upload_due(rules: Rules<'_>, key: &str, row: &UploadRow, now_ms: u64) -> bool {
    row.completed.is_none() && lifecycle::aborts(rules, key, row.began_ms).is_some_and(|(time_ms, _)| time_ms <= now_ms)
}
