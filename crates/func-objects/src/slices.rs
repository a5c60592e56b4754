//! A bucket's slices: entities of its own on other shards. Each slice keeps a copy of the settings that its objects need,
//! so that a write needs no other slice. What changes the settings changes all copies, in one transaction.
//!
//! The first slice is the bucket itself. It alone answers what is asked about the bucket as a whole.

use bytes::Bytes;
use millrace_api::objects::{ObjectReply, ObjectRequest, Refusal, Slices, moved};
use millrace_base::{Error, Value, ValueKind, limits};
use millrace_func::{HandlerId, Message, OperationId};

use crate::bucket::{no_such_bucket, usage};
use crate::names::{BUCKET, ERASE, SLICE, UPLOAD, behind_place, bucket_key, bucket_of};
use crate::rows::{BucketRow, INFO, LIFECYCLE, NOTIFICATION, POLICY, SHARE};
use crate::settings::Settings;
use crate::turn::{Progress, Turn};
use crate::wire::{Fields, SliceInput, decode, encode};
use crate::{expire, list};

/// What slices have copies of. All else is asked of the first one only.
const COPIED: [&[u8]; 4] = [INFO, POLICY, LIFECYCLE, NOTIFICATION];

/// Uploads under way that go with their slice.
const UPLOADS_THAT_GO: usize = 1000;

/// Fields of a slice's entity, and more.
const FIELDS: usize = 1000;

/// Whether an operation on the whole bucket is for other slices, too.
pub(crate) fn has_others(turn: &Turn<'_>, settings: &Settings) -> bool {
    settings.row.slices.count() > 1 && is_first(turn.place())
}

fn is_first(place: &str) -> bool {
    place == bucket_of(place)
}

/// There is nothing at this place: no bucket, or whoever asks is wrong about its slices.
pub(crate) fn absent(place: &str) -> Error {
    if is_first(place) { no_such_bucket() } else { moved(&Slices::default()) }
}

/// What becomes of a request whose object is in another slice: the node is told where to ask. Functions do not know slices:
/// what they ask for is handed on.
///
/// # Errors
/// [`moved`].
pub(crate) fn elsewhere(
    turn: &mut Turn<'_>,
    settings: &Settings,
    request: &ObjectRequest<'_>,
    handler: (u16, u16),
    input: &[u8],
) -> Result<Option<Progress>, Error> {
    if !request.operation.is_about_object() {
        return Ok(None);
    }
    let place = settings.row.slices.place(request.bucket, request.key);
    if place == turn.place() {
        return Ok(None);
    }
    if request.requester.app().is_none() {
        return Err(moved(&settings.row.slices));
    }
    let key = [&bucket_key(&place)[..], behind_place(turn.key, turn.place())].concat();
    let call = turn.call(handler, key, Bytes::copy_from_slice(input))?;
    Ok(Some(Turn::then(call, |_, output| Ok(Progress::Done(output)))))
}

/// Keeps a bucket's settings, here and in all other slices.
pub(crate) fn keep(turn: &mut Turn<'_>, settings: &Settings, row: &BucketRow) -> Result<Progress, Error> {
    if *row != settings.row {
        turn.host.set(INFO, row.to_value())?;
    }
    if row.quota_bytes != settings.row.quota_bytes {
        turn.host.delete(SHARE)?;
    }
    let copies = SliceInput::Settings(copies(turn)?);
    let calls = tell(turn, row.slices.others(turn.bucket()), &copies)?;
    Ok(done(calls))
}

fn copies(turn: &mut Turn<'_>) -> Result<Fields, Error> {
    let mut fields = Vec::new();
    for field in COPIED {
        if let Some(value) = turn.host.get(field)? {
            fields.push((field.to_vec(), value.content().to_vec()));
        }
    }
    Ok(fields)
}

/// Tells slices the same.
pub(crate) fn tell(
    turn: &mut Turn<'_>,
    places: impl Iterator<Item = String>,
    input: &SliceInput,
) -> Result<Vec<OperationId>, Error> {
    let input = encode(input);
    places.map(|place| turn.call((BUCKET, SLICE), bucket_key(&place), input.clone())).collect()
}

/// The end of an operation that says nothing, once these calls have ended well.
pub(crate) fn done(calls: Vec<OperationId>) -> Progress {
    let done = || Progress::Done(ObjectReply::Done.to_bytes(b""));
    if calls.is_empty() {
        return done();
    }
    Turn::then_all(calls, move |_, results| {
        results.into_iter().collect::<Result<Vec<_>, _>>()?;
        Ok(done())
    })
}

/// Spreads an empty bucket over other slices than before.
pub(crate) fn spread(turn: &mut Turn<'_>, settings: &Settings, count: u16) -> Result<Progress, Error> {
    let most = limits::BUCKET_SLICES;
    if count == 0 || count > most {
        return Err(Refusal::InvalidArgument.error(format!("a bucket has 1 to {most} slices")));
    }
    let (bucket, before) = (turn.bucket(), &settings.row.slices);
    let shard_count = turn.host.built_in()?.shard_count();
    let slices = Slices::spread(bucket, count, shard_count);
    if slices == *before {
        return Ok(done(Vec::new()));
    }
    refuse_used(turn)?;
    let row = BucketRow { slices: slices.clone(), ..settings.row.clone() };
    turn.host.set(INFO, row.to_value())?;
    turn.host.delete(SHARE)?;
    let begin = SliceInput::Begin(copies(turn)?);
    let mut calls = tell(turn, slices.others(bucket), &begin)?;
    let kept: Vec<String> = slices.others(bucket).collect();
    let gone = before.others(bucket).filter(|place| !kept.contains(place));
    calls.extend(tell(turn, gone, &SliceInput::Begin(Vec::new()))?);
    Ok(done(calls))
}

/// Refuses a change of slices where anything lies in this one.
fn refuse_used(turn: &mut Turn<'_>) -> Result<(), Error> {
    let place = turn.place();
    if list::has_objects(turn, place)? || !list::upload_keys(turn, place, 1)?.is_empty() {
        let message = "the slices of a bucket change only while it has no objects and no uploads";
        return Err(Refusal::BucketNotEmpty.error(message));
    }
    Ok(())
}

/// Takes away all that a slice without objects has, with its uploads under way.
pub(crate) fn clear(turn: &mut Turn<'_>) -> Result<(), Error> {
    let place = turn.place();
    if list::has_objects(turn, place)? {
        return Err(Refusal::BucketNotEmpty.error("The bucket you tried to delete is not empty"));
    }
    let uploads = list::upload_keys(turn, place, UPLOADS_THAT_GO + 1)?;
    if uploads.len() > UPLOADS_THAT_GO {
        return Err(Refusal::BucketNotEmpty.error("The bucket you tried to delete has too many uploads under way"));
    }
    for key in uploads {
        let handler = HandlerId { program: turn.program, service: UPLOAD, handler: ERASE };
        turn.host.send(Message { handler, key, input: Bytes::from_static(b"bodies"), delay_ms: 0, id: None })?;
    }
    delete_fields(turn)
}

fn delete_fields(turn: &mut Turn<'_>) -> Result<(), Error> {
    let fields = turn.host.scan(&millrace_func::ScanRequest { limit: FIELDS, ..Default::default() })?;
    for (field, _) in fields {
        turn.host.delete(&field)?;
    }
    Ok(())
}

/// Does what another slice of the bucket says.
pub(crate) fn run(turn: &mut Turn<'_>, input: &[u8]) -> Result<Progress, Error> {
    match decode(input)? {
        SliceInput::Settings(fields) => take(turn, &fields)?,
        SliceInput::Begin(fields) => {
            refuse_used(turn)?;
            delete_fields(turn)?;
            take(turn, &fields)?;
        }
        SliceInput::Remove => clear(turn)?,
        SliceInput::Usage => return Ok(Progress::Done(encode(&usage(turn)?))),
        SliceInput::Share(bytes) => turn.host.set(SHARE, Value::new(ValueKind::Bytes, &bytes.to_be_bytes()))?,
    }
    Ok(Progress::Done(Bytes::new()))
}

/// Takes over settings.
fn take(turn: &mut Turn<'_>, fields: &Fields) -> Result<(), Error> {
    let before = row(turn)?;
    for field in COPIED {
        match fields.iter().find(|(name, _)| name == field) {
            Some((_, content)) => turn.host.set(field, Value::new(ValueKind::Bytes, content))?,
            None => drop(turn.host.delete(field)?),
        }
    }
    let after = row(turn)?;
    if after.quota_bytes != before.quota_bytes {
        turn.host.delete(SHARE)?;
    }
    match after.lifecycle_number {
        Some(number) if before.lifecycle_number != Some(number) => expire::begin(turn, number),
        _ => Ok(()),
    }
}

fn row(turn: &mut Turn<'_>) -> Result<BucketRow, Error> {
    Ok(turn.host.get(INFO)?.map(BucketRow::from_value).transpose()?.unwrap_or_default())
}
