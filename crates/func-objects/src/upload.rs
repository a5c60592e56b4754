//! Uploads of parts. A part is a row of the upload's entity; completing it makes one row of the object of them, and the
//! parts' rows stay until the version goes.

use bytes::Bytes;
use md5::{Digest as _, Md5};
use millrace_api::objects::{
    Checksum, ChecksumAlgorithm, ChecksumKind, CompletePart, Content, ListedPart, ObjectOperation, ObjectReply,
    ObjectRequest, PartBody, PartInput, PartsPage, Refusal, UploadInput,
};
use millrace_base::{Error, hex};
use millrace_func::{HandlerId, Message, ScanRequest};

use crate::access::{Ask, Known};
use crate::names::{ERASE, OBJECT, UPLOAD, WRITE, object_key};
use crate::object::{checked_input, ownership, same_checksum};
use crate::rows::{
    CompletedRow, PART, PartRow, UPLOAD as INFO, UploadRow, VersionRow, from_value, part_field, part_number, to_value,
};
use crate::settings::Settings;
use crate::turn::{Progress, Turn};
use crate::wire::{ChangeInput, ChangeOutput, decode, encode};
use crate::{expire, lifecycle};

/// Parts of an upload, and bytes of a part that is not the last. S3's bounds.
const PARTS: u16 = 10_000;
const LEAST_PART_BYTES: u64 = 5 << 20;
const OBJECT_BYTES: u64 = 5 << 40;

/// Rows that go in one transaction.
const ERASED_AT_ONCE: usize = 1000;

fn no_such_upload() -> Error {
    Refusal::NoSuchUpload.error(
        "The specified multipart upload does not exist. The upload ID may be invalid, or the upload may have been aborted or completed.",
    )
}

fn info(turn: &mut Turn<'_>) -> Result<Option<UploadRow>, Error> {
    turn.host.get(INFO)?.map(from_value).transpose()
}

fn open(turn: &mut Turn<'_>) -> Result<UploadRow, Error> {
    info(turn)?.filter(|row| row.completed.is_none()).ok_or_else(no_such_upload)
}

/// Runs an operation that a bucket's handler has handed on.
pub(crate) fn change(
    turn: &mut Turn<'_>,
    settings: &Settings,
    request: &ObjectRequest<'_>,
    raw: &[u8],
) -> Result<Progress, Error> {
    let ask = Ask { settings, request, now_ms: turn.host.now().0 };
    // Who began it may abort it.
    let began = info(turn)?;
    ask.check(began.as_ref().map(|row| Known::begun_by(&row.initiator)).unwrap_or_default())?;
    let output = match &request.operation {
        ObjectOperation::CreateUpload(input) => create(turn, &ask, input)?,
        ObjectOperation::PutPart(part) => put_part(turn, part)?,
        ObjectOperation::CompleteUpload { parts, checksum, size_bytes, .. } => {
            return complete(turn, settings, (request, raw), parts, (checksum.as_ref(), *size_bytes));
        }
        ObjectOperation::AbortUpload { .. } => abort(turn)?,
        _ => return Err(Refusal::InvalidRequest.error("this is not an operation on an upload")),
    };
    Ok(Progress::Done(encode(&output)))
}

fn create(turn: &mut Turn<'_>, ask: &Ask<'_>, input: &UploadInput) -> Result<ChangeOutput, Error> {
    let now_ms = turn.host.now().0;
    let kept = checked_input(ask, input, now_ms)?;
    let (owner, grants) = ownership(ask, &input.access)?;
    let checksum = input.checksum.map(|(algorithm, kind)| {
        let default = match algorithm {
            ChecksumAlgorithm::Crc64Nvme => ChecksumKind::FullObject,
            _ => ChecksumKind::Composite,
        };
        (algorithm, kind.unwrap_or(default))
    });
    let initiator = ask.request.requester.id.unwrap_or_default().to_owned();
    let row = UploadRow { input: kept, owner, initiator, grants, began_ms: now_ms, checksum, completed: None };
    turn.host.set(INFO, to_value(&row))?;
    let rules = ask.settings.lifecycle_rules();
    let aborts = rules.and_then(|rules| lifecycle::aborts(rules, ask.request.key, now_ms));
    let expires = aborts.map(|(time_ms, id)| (time_ms, id.to_owned()));
    Ok(ChangeOutput::reply(ObjectReply::Upload { id: String::new(), checksum, expires }))
}

fn put_part(turn: &mut Turn<'_>, part: &PartInput) -> Result<ChangeOutput, Error> {
    let upload = open(turn)?;
    if part.number == 0 || part.number > PARTS {
        return Err(Refusal::InvalidArgument.error("Part number must be an integer between 1 and 10000, inclusive"));
    }
    let body = part.body.number.ok_or_else(|| Refusal::InvalidRequest.error("a part needs a body of its own"))?;
    // The first is the one that the client gave, if it gave one.
    let given = part.body.digests.checksums.first();
    let checksum = match (upload.checksum, given) {
        (Some((expected, _)), Some(given)) if given.algorithm != expected => {
            return Err(Refusal::InvalidRequest.error(format!(
                "Checksum Type mismatch occurred, expected checksum Type: {}, actual checksum Type: {}",
                name_of(expected),
                name_of(given.algorithm)
            )));
        }
        _ => given,
    };
    let row = PartRow {
        body,
        size_bytes: part.body.length,
        md5: part.body.digests.md5,
        modified_ms: turn.host.now().0,
        checksum: checksum.cloned(),
    };
    let field = part_field(part.number);
    let mut delta = i64::try_from(row.size_bytes).unwrap_or(i64::MAX);
    if let Some(before) = turn.host.get(&field)?.cloned() {
        let before: PartRow = from_value(&before)?;
        turn.host.built_in()?.release_body(before.body)?;
        delta -= i64::try_from(before.size_bytes).unwrap_or(i64::MAX);
    }
    turn.host.set(&field, to_value(&row))?;
    let reply = ObjectReply::Written {
        etag: hex(&row.md5),
        version: None,
        modified_ms: row.modified_ms,
        checksum: row.checksum,
        expires: None,
        size_bytes: row.size_bytes,
    };
    Ok(ChangeOutput { objects: 0, size_bytes: delta, is_repeated: false, reply: Ok(reply) })
}

/// An algorithm as S3 names it in this error.
fn name_of(algorithm: ChecksumAlgorithm) -> String {
    format!("{algorithm:?}").to_lowercase()
}

/// Rows of parts behind a number.
fn parts(turn: &mut Turn<'_>, after: u16, limit: usize) -> Result<Vec<(u16, PartRow)>, Error> {
    let after = (after > 0).then(|| part_field(after));
    let rows = turn.host.scan(&ScanRequest { prefix: PART.to_vec(), after, limit })?;
    let read =
        |(field, value): (Vec<u8>, millrace_base::Value)| Ok((part_number(&field).unwrap_or(0), from_value(&value)?));
    rows.into_iter().map(read).collect()
}

fn digest_of(parts: &[CompletePart]) -> [u8; 16] {
    let mut hasher = Md5::new();
    for part in parts {
        hasher.update(part.number.to_be_bytes());
        hasher.update(part.etag.as_bytes());
        hasher.update([0]);
    }
    hasher.finalize().into()
}

/// What the object of these parts is.
struct Whole {
    parts: Vec<(u16, PartBody)>,
    size_bytes: u64,
    etag: String,
    /// Rows of parts that are not in it.
    unused: Vec<(u16, PartRow)>,
    checksums: Vec<(Option<Checksum>, u64)>,
}

fn whole(asked: &[CompletePart], rows: Vec<(u16, PartRow)>) -> Result<Whole, Error> {
    let invalid = || {
        Refusal::InvalidPart.error(
            "One or more of the specified parts could not be found. The part may not have been uploaded, or the specified entity tag may not match the part's entity tag.",
        )
    };
    if asked.is_empty() {
        return Err(Refusal::MalformedXml.error("You must specify at least one part"));
    }
    if asked.windows(2).any(|pair| pair[0].number >= pair[1].number) {
        return Err(Refusal::InvalidPartOrder.error(
            "The list of parts was not in ascending order. The parts list must be specified in order by part number.",
        ));
    }
    let mut whole =
        Whole { parts: Vec::new(), size_bytes: 0, etag: String::new(), unused: Vec::new(), checksums: Vec::new() };
    let mut hasher = Md5::new();
    let mut rows = rows.into_iter().peekable();
    for (index, part) in asked.iter().enumerate() {
        while let Some(row) = rows.next_if(|(number, _)| *number < part.number) {
            whole.unused.push(row);
        }
        let (_, row) = rows.next_if(|(number, _)| *number == part.number).ok_or_else(invalid)?;
        if part.etag != hex(&row.md5) {
            return Err(invalid());
        }
        if let Some(said) = &part.checksum
            && !same_checksum(said, row.checksum.as_ref())
        {
            return Err(invalid());
        }
        if row.size_bytes < LEAST_PART_BYTES && index + 1 < asked.len() {
            return Err(Refusal::EntityTooSmall.error("Your proposed upload is smaller than the minimum allowed size"));
        }
        hasher.update(row.md5);
        whole.parts.push((part.number, PartBody { number: row.body, length: row.size_bytes }));
        whole.size_bytes += row.size_bytes;
        whole.checksums.push((row.checksum, row.size_bytes));
    }
    whole.unused.extend(rows);
    whole.etag = format!("{}-{}", hex(&hasher.finalize()), asked.len());
    if whole.size_bytes > OBJECT_BYTES {
        return Err(Refusal::EntityTooLarge.error("Your proposed upload exceeds the maximum allowed object size."));
    }
    Ok(whole)
}

/// A client that says one part's checksum of an upload with a checksum of checksums has to say each. S3 wants them also of one that
/// says none; Ceph does not, and nothing is lost without them.
fn check_checksums(of_upload: Option<(ChecksumAlgorithm, ChecksumKind)>, asked: &[CompletePart]) -> Result<(), Error> {
    let Some((algorithm, ChecksumKind::Composite)) = of_upload else { return Ok(()) };
    let says_some = asked.iter().any(|part| part.checksum.is_some());
    match asked.iter().find(|part| says_some && part.checksum.is_none()) {
        Some(part) => Err(Refusal::InvalidRequest.error(format!(
            "The upload was created using a {} checksum. The complete request must include the checksum for each part. It was missing for part {} in the request.",
            name_of(algorithm),
            part.number
        ))),
        None => Ok(()),
    }
}

/// Answers once more what completing an upload with the same parts gave.
fn repeated(done: &CompletedRow, parts_digest: [u8; 16]) -> Result<Progress, Error> {
    if done.parts_digest != parts_digest {
        return Err(no_such_upload());
    }
    let reply = ObjectReply::Written {
        etag: done.etag.clone(),
        version: done.version.clone(),
        modified_ms: done.modified_ms,
        checksum: done.checksum.clone(),
        expires: None,
        size_bytes: done.size_bytes,
    };
    let repeated = ChangeOutput { is_repeated: true, ..ChangeOutput::reply(reply) };
    Ok(Progress::Done(encode(&repeated)))
}

fn complete(
    turn: &mut Turn<'_>,
    settings: &Settings,
    (request, raw): (&ObjectRequest<'_>, &[u8]),
    asked: &[CompletePart],
    (said, said_size): (Option<&Checksum>, Option<u64>),
) -> Result<Progress, Error> {
    let mut upload = info(turn)?.ok_or_else(no_such_upload)?;
    let parts_digest = digest_of(asked);
    if let Some(done) = &upload.completed {
        return repeated(done, parts_digest);
    }
    let rows = parts(turn, 0, usize::from(PARTS))?;
    check_checksums(upload.checksum, asked)?;
    let whole = whole(asked, rows)?;
    let checksum = match upload.checksum {
        None => None,
        Some((algorithm, kind)) => crate::checksum::of_parts(algorithm, kind, &whole.checksums),
    };
    if said.is_some_and(|said| checksum.as_ref().is_none_or(|taken| taken.value != said.value)) {
        return Err(Refusal::BadDigest.error("The checksum that you specified did not match what we received."));
    }
    if said_size.is_some_and(|said| said != whole.size_bytes) {
        return Err(Refusal::InvalidRequest
            .error("The provided 'x-amz-mp-object-size' header value does not match what was computed."));
    }
    let now_ms = turn.host.now().0;
    let id = upload_id(request)?;
    let row = VersionRow {
        order: 0,
        id: None,
        is_delete_marker: false,
        size_bytes: whole.size_bytes,
        etag: whole.etag.clone(),
        modified_ms: now_ms,
        owner: upload.owner.clone(),
        input: upload.input.clone(),
        grants: upload.grants.clone(),
        checksum: checksum.clone(),
        content: Content::Parts { upload: id, parts: whole.parts },
    };
    let change = ChangeInput::Completed { settings: settings.output(), request: raw.to_vec(), row: Box::new(row) };
    let call = turn.call((OBJECT, WRITE), object_key(turn.place(), request.key), encode(&change))?;
    let unused = whole.unused;
    Ok(Turn::then(call, move |turn, output| {
        let mut output: ChangeOutput = decode(&output)?;
        if let Ok(ObjectReply::Written { etag, version, modified_ms, checksum, size_bytes, .. }) = &output.reply {
            upload.completed = Some(CompletedRow {
                etag: etag.clone(),
                version: version.clone(),
                modified_ms: *modified_ms,
                size_bytes: *size_bytes,
                checksum: checksum.clone(),
                parts_digest,
            });
        }
        for (number, part) in unused {
            output.size_bytes -= i64::try_from(part.size_bytes).unwrap_or(i64::MAX);
            turn.host.built_in()?.release_body(part.body)?;
            turn.host.delete(&part_field(number))?;
        }
        turn.host.set(INFO, to_value(&upload))?;
        Ok(Progress::Done(encode(&output)))
    }))
}

/// The upload that an operation names.
pub(crate) fn upload_id(request: &ObjectRequest<'_>) -> Result<String, Error> {
    match &request.operation {
        ObjectOperation::PutPart(part) => Ok(part.upload.clone()),
        ObjectOperation::CompleteUpload { upload, .. }
        | ObjectOperation::AbortUpload { upload }
        | ObjectOperation::ListParts { upload, .. } => Ok(upload.clone()),
        _ => Err(no_such_upload()),
    }
}

fn abort(turn: &mut Turn<'_>) -> Result<ChangeOutput, Error> {
    open(turn)?;
    let mut size_bytes = 0;
    for (_, part) in parts(turn, 0, usize::from(PARTS))? {
        size_bytes -= i64::try_from(part.size_bytes).unwrap_or(i64::MAX);
        turn.host.built_in()?.release_body(part.body)?;
    }
    erase(turn, false)?;
    Ok(ChangeOutput { objects: 0, size_bytes, is_repeated: false, reply: Ok(ObjectReply::Done) })
}

/// Aborts an upload that has waited too long, if it still is one.
pub(crate) fn expire(turn: &mut Turn<'_>, ask: &Ask<'_>) -> Result<ChangeOutput, Error> {
    let rules = ask.settings.lifecycle_rules();
    let is_due = match (info(turn)?, rules) {
        (Some(row), Some(rules)) => expire::is_upload_due(rules, ask.request.key, &row, ask.now_ms),
        _ => false,
    };
    if is_due { abort(turn) } else { Ok(ChangeOutput::reply(ObjectReply::Done)) }
}

/// The rows of an upload go: some now, the rest by messages. Their bodies went before, with a version or an abortion, or
/// go with them.
pub(crate) fn erase(turn: &mut Turn<'_>, with_bodies: bool) -> Result<(), Error> {
    turn.host.delete(INFO)?;
    let rows = turn.host.scan(&ScanRequest { prefix: PART.to_vec(), after: None, limit: ERASED_AT_ONCE })?;
    let are_more = rows.len() >= ERASED_AT_ONCE;
    for (field, value) in rows {
        if with_bodies {
            let row: PartRow = from_value(&value)?;
            turn.host.built_in()?.release_body(row.body)?;
        }
        turn.host.delete(&field)?;
    }
    if are_more {
        let handler = HandlerId { program: turn.program, service: UPLOAD, handler: ERASE };
        let key = turn.key.to_vec();
        let input = Bytes::from_static(if with_bodies { b"bodies" } else { b"" });
        turn.host.send(Message { handler, key, input, delay_ms: 0, id: None })?;
    }
    Ok(())
}

/// Reads an upload: its parts, or whether one has a body.
pub(crate) fn read(
    turn: &mut Turn<'_>,
    settings: &Settings,
    request: &ObjectRequest<'_>,
) -> Result<ObjectReply, Error> {
    match &request.operation {
        ObjectOperation::ListParts { upload, after, limit } => {
            let ask = Ask { settings, request, now_ms: turn.host.now().0 };
            let began = info(turn)?;
            ask.check(began.as_ref().map(|row| Known::begun_by(&row.initiator)).unwrap_or_default())?;
            let row = open(turn)?;
            let mut page = page(turn, *after, *limit)?;
            page.upload = Some(row.listed(request.key.to_owned(), upload.clone()));
            Ok(ObjectReply::Parts(page))
        }
        ObjectOperation::RefersTo { part: Some((_, number)), number: body } if request.requester.is_system => {
            let row: Option<PartRow> = turn.host.get(&part_field(*number))?.map(from_value).transpose()?;
            Ok(ObjectReply::RefersTo(row.is_some_and(|row| row.body == *body)))
        }
        ObjectOperation::GetAttributes { parts_after, max_parts, .. } => {
            Ok(ObjectReply::Parts(page(turn, *parts_after, *max_parts)?))
        }
        _ => Err(Refusal::InvalidRequest.error("this is not a question about an upload")),
    }
}

fn page(turn: &mut Turn<'_>, after: u16, limit: u16) -> Result<PartsPage, Error> {
    let limit = usize::from(limit).min(1000);
    let mut rows = parts(turn, after, limit + 1)?;
    let are_more = rows.len() > limit;
    rows.truncate(limit);
    let parts: Vec<ListedPart> = rows
        .into_iter()
        .map(|(number, row)| ListedPart {
            number,
            size_bytes: row.size_bytes,
            etag: hex(&row.md5),
            modified_ms: row.modified_ms,
            checksum: row.checksum,
        })
        .collect();
    let next_after = parts.last().map(|part| part.number).filter(|_| are_more);
    Ok(PartsPage { total: 0, next_after, parts, upload: None })
}
