//! Reads of one object: the same whether a turn runs them or they are answered at once.

use bytes::Bytes;
use millrace_api::objects::{
    AccessList, Checksum, Content, ObjectInfo, ObjectOperation, ObjectReply, ObjectRequest, PartInfo, PartsPage,
    ReadConditions, Refusal, Versioning,
};
use millrace_base::{Error, ErrorCode, limits};
use millrace_func::{Reader, ScanRequest};

use crate::access::{Ask, Known};
use crate::conditions::{self, Present};
use crate::expire;
use crate::names::{READ, UPLOAD, upload_key};
use crate::rows::{BODY, NULL, VERSION, VersionRow, from_value, ordered};
use crate::settings::Settings;
use crate::turn::{Progress, Turn};
use crate::version_id::order_of;

/// Where a version lies in its object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum VersionLocation {
    Current,
    Older(u64),
}

/// Whether the bucket keeps versions, or once kept them.
pub(crate) fn is_versioned(settings: &Settings) -> bool {
    settings.row.versioning != Versioning::Off
}

/// The current version.
pub(crate) fn current<R: Reader + ?Sized>(reader: &mut R) -> Result<Option<VersionRow>, Error> {
    reader.get(VERSION)?.map(from_value).transpose()
}

/// The version of this id.
pub(crate) fn version<R: Reader + ?Sized>(
    reader: &mut R,
    id: &str,
) -> Result<Option<(VersionLocation, VersionRow)>, Error> {
    let current = current(reader)?;
    if let Some(row) = current
        && row.shown_id() == id
    {
        return Ok(Some((VersionLocation::Current, row)));
    }
    if id != "null" && order_of(id).is_none() {
        return Err(Refusal::InvalidArgument.error("Invalid version id specified"));
    }
    let order = match id {
        "null" => reader.get(NULL)?.and_then(|value| Some(u64::from_be_bytes(value.content().try_into().ok()?))),
        id => order_of(id),
    };
    let Some(order) = order else { return Ok(None) };
    let found: Option<VersionRow> = reader.get(&ordered(VERSION, order))?.map(from_value).transpose()?;
    Ok(found.filter(|row| row.shown_id() == id).map(|row| (VersionLocation::Older(order), row)))
}

/// A refusal that says more to the front than its code.
fn with_detail(refusal: Refusal, message: &str, more: serde_json::Value) -> Error {
    let mut detail = serde_json::json!({ "code": refusal.as_str() });
    if let (Some(detail), serde_json::Value::Object(more)) = (detail.as_object_mut(), more) {
        detail.extend(more);
    }
    Error { code: ErrorCode::ObjectRefused, message: message.to_owned(), detail: Some(detail.to_string()) }
}

pub(crate) fn no_such_key() -> Error {
    Refusal::NoSuchKey.error("The specified key does not exist.")
}

pub(crate) fn no_such_version() -> Error {
    Refusal::NoSuchVersion.error("The specified version does not exist.")
}

/// The version that a read is about. A delete marker has no content.
pub(crate) fn found<R: Reader + ?Sized>(
    reader: &mut R,
    ask: &Ask<'_>,
    id: Option<&str>,
) -> Result<(VersionLocation, VersionRow), Error> {
    let found = match id {
        None => current(reader)?.map(|row| (VersionLocation::Current, row)),
        Some(id) => version(reader, id)?,
    };
    let row = found.as_ref().map(|(_, row)| row).filter(|row| !row.is_delete_marker);
    ask.check(row.map(Known::from).unwrap_or_default())?;
    match (found, id) {
        (None, Some(_)) => Err(no_such_version()),
        (None, None) => Err(no_such_key()),
        (Some((_, row)), Some(_)) if row.is_delete_marker => {
            let more = serde_json::json!({ "delete_marker": row.shown_id(), "modified_ms": row.modified_ms });
            Err(with_detail(
                Refusal::MethodNotAllowed,
                "The specified method is not allowed against this resource.",
                more,
            ))
        }
        (Some((_, row)), None) if row.is_delete_marker => {
            let more = serde_json::json!({ "delete_marker": row.shown_id() });
            Err(with_detail(Refusal::NoSuchKey, "The specified key does not exist.", more))
        }
        (Some(found), _) => Ok(found),
    }
}

/// Runs a read that needs nothing but the object's own fields. `None` for others.
pub(crate) fn read<R: Reader + ?Sized>(
    reader: &mut R,
    ask: &Ask<'_>,
    operation: &ObjectOperation,
) -> Option<Result<(ObjectReply, Bytes), Error>> {
    Some(match operation {
        ObjectOperation::Get(conditions) => get(reader, ask, conditions, false),
        ObjectOperation::GetSource(conditions) => get(reader, ask, conditions, true),
        ObjectOperation::GetAccess(id) => found(reader, ask, id.as_deref()).map(|(_, row)| {
            let list = AccessList { owner: row.owner.clone(), grants: row.grants };
            (ObjectReply::Access(list), Bytes::new())
        }),
        ObjectOperation::GetTags(id) => found(reader, ask, id.as_deref()).map(|(_, row)| {
            let version = is_versioned(ask.settings).then(|| row.shown_id());
            (ObjectReply::Tags { tags: row.input.tags, version }, Bytes::new())
        }),
        ObjectOperation::GetRetention(id) => {
            lock_checked(ask).and_then(|()| found(reader, ask, id.as_deref())).and_then(|(_, row)| {
                let retention = row.input.retention.ok_or_else(no_lock)?;
                Ok((ObjectReply::Retention(retention), Bytes::new()))
            })
        }
        ObjectOperation::GetLegalHold(id) => {
            lock_checked(ask).and_then(|()| found(reader, ask, id.as_deref())).and_then(|(_, row)| {
                let is_held = row.input.legal_hold.ok_or_else(no_lock)?;
                Ok((ObjectReply::LegalHold(is_held), Bytes::new()))
            })
        }
        _ => return None,
    })
}

fn no_lock() -> Error {
    Refusal::NoSuchObjectLockConfiguration.error("The specified object does not have a ObjectLock configuration")
}

/// Refuses questions about locks where there are none.
pub(crate) fn lock_checked(ask: &Ask<'_>) -> Result<(), Error> {
    if ask.settings.row.object_lock.is_some() {
        return Ok(());
    }
    Err(Refusal::InvalidRequest.error("Bucket is missing Object Lock Configuration"))
}

pub(crate) fn get<R: Reader + ?Sized>(
    reader: &mut R,
    ask: &Ask<'_>,
    conditions: &ReadConditions,
    is_source: bool,
) -> Result<(ObjectReply, Bytes), Error> {
    let requester = &ask.request.requester;
    if conditions.overrides_headers && requester.id.is_none() && !requester.is_system {
        return Err(Refusal::InvalidRequest
            .error("Request specific response headers cannot be used for anonymous GET requests."));
    }
    let (place, row) = found(reader, ask, conditions.version.as_deref())?;
    check_conditions(conditions, &row, is_source)?;
    let mut info = row.info(is_versioned(ask.settings));
    let action = if conditions.version.is_some() { "s3:GetObjectVersionTagging" } else { "s3:GetObjectTagging" };
    info.expires = match place {
        VersionLocation::Current => expire::expires(ask.settings, ask.request.key, &row),
        VersionLocation::Older(_) => None,
    };
    info.shows_tags = row.input.tags.is_empty() || ask.may(action, Known::from(&row));
    if let Some(number) = conditions.part_number {
        info.part = Some(part(&row, number, &info)?);
    }
    let body = match (&row.content, conditions.is_head) {
        (Content::Inline, false) if row.size_bytes > 0 => {
            let field = match place {
                VersionLocation::Current => BODY.to_vec(),
                VersionLocation::Older(order) => ordered(BODY, order),
            };
            let value = reader.get(&field)?;
            let value = value
                .ok_or_else(|| Error::new(ErrorCode::Internal, "an object's content is not where it should be"))?;
            Bytes::copy_from_slice(value.content())
        }
        _ => Bytes::new(),
    };
    Ok((ObjectReply::Object { info: Box::new(info), content: row.content }, body))
}

/// Where a part begins and ends.
fn part(row: &VersionRow, number: u16, info: &ObjectInfo) -> Result<PartInfo, Error> {
    let no_part = || Refusal::InvalidPart.error("The object has no part of this number.");
    let index = usize::from(number).checked_sub(1).ok_or_else(no_part)?;
    let Content::Parts { parts, .. } = &row.content else {
        let whole = PartInfo { number, offset: 0, size_bytes: row.size_bytes, checksum: info.checksum.clone() };
        return if index == 0 { Ok(whole) } else { Err(no_part()) };
    };
    let (_, part) = parts.get(index).ok_or_else(no_part)?;
    let offset = parts[..index].iter().map(|(_, part)| part.length).sum();
    Ok(PartInfo { number, offset, size_bytes: part.length, checksum: None })
}

/// The part whose checksum a reply still lacks: its upload, and its number there. The part's own row has it.
pub(crate) fn lacks_checksum(reply: &ObjectReply) -> Option<(&str, u16)> {
    let ObjectReply::Object { info, content: Content::Parts { upload, parts } } = reply else { return None };
    let part = info.part.as_ref().filter(|_| info.checksum.is_some())?;
    let (number, _) = parts.get(usize::from(part.number).checked_sub(1)?)?;
    Some((upload, *number))
}

pub(crate) fn add_checksum(reply: &mut ObjectReply, checksum: Option<Checksum>) {
    if let ObjectReply::Object { info, .. } = reply
        && let Some(part) = &mut info.part
    {
        part.checksum = checksum;
    }
}

/// Refuses a read whose conditions do not hold, and tells the front what it needs for its answer.
fn check_conditions(conditions: &ReadConditions, row: &VersionRow, is_source: bool) -> Result<(), Error> {
    let present = Present { etag: &row.etag, modified_ms: row.modified_ms, size_bytes: row.size_bytes };
    let checked = if is_source {
        conditions::check_source(conditions, present)
    } else {
        conditions::check_read(conditions, present)
    };
    checked.map_err(|refusal| match refusal {
        Refusal::NotModified => {
            let more = serde_json::json!({ "etag": row.etag, "modified_ms": row.modified_ms });
            with_detail(refusal, "Not Modified", more)
        }
        other => other.error("At least one of the pre-conditions you specified did not hold"),
    })
}

/// Asks the upload for the checksum of the one part that is read.
pub(crate) fn with_checksum(
    turn: &mut Turn<'_>,
    request: &ObjectRequest<'_>,
    (mut reply, body): (ObjectReply, Bytes),
) -> Result<Progress, Error> {
    let Some((upload, number)) = lacks_checksum(&reply) else {
        return Ok(Progress::Done(reply.to_bytes(&body)));
    };
    let key = upload_key(turn.place(), request.key, upload);
    let operation = ObjectOperation::GetAttributes { version: None, parts_after: number - 1, max_parts: 1 };
    let ask = ObjectRequest {
        requester: request.requester.clone(),
        bucket: request.bucket,
        key: request.key,
        operation,
        body: Bytes::new(),
    };
    let call = turn.call((UPLOAD, READ), key, ask.to_bytes())?;
    Ok(Turn::then(call, move |_, output| {
        let (ObjectReply::Parts(page), _) = ObjectReply::from_bytes(output)? else {
            return Err(Error::new(ErrorCode::Internal, "an upload answered something else"));
        };
        let part = page.parts.into_iter().find(|part| part.number == number);
        add_checksum(&mut reply, part.and_then(|part| part.checksum));
        Ok(Progress::Done(reply.to_bytes(&body)))
    }))
}

/// Reads that need more than one turn: attributes with parts, and the node's own questions.
pub(crate) fn read_more(
    turn: &mut Turn<'_>,
    ask: &Ask<'_>,
    request: &ObjectRequest<'_>,
    input: &[u8],
) -> Result<Progress, Error> {
    match &request.operation {
        ObjectOperation::RefersTo { number, .. } if request.requester.is_system => {
            let all = ScanRequest { prefix: VERSION.to_vec(), after: None, limit: limits::SCAN_ROWS };
            let rows = turn.host.scan(&all)?;
            // Of more versions than are looked at, one behind them may have it: better a body too many than one too few.
            let mut refers = rows.len() >= limits::SCAN_ROWS;
            for (_, value) in rows {
                let row: VersionRow = from_value(&value)?;
                refers |= row.bodies().contains(number);
            }
            Ok(Progress::Done(ObjectReply::RefersTo(refers).to_bytes(b"")))
        }
        ObjectOperation::GetAttributes { version, .. } => {
            let (_, row) = found(turn.host, ask, version.as_deref())?;
            let info = Box::new(row.info(is_versioned(ask.settings)));
            let Content::Parts { upload, parts } = &row.content else {
                let reply = ObjectReply::Attributes { info, parts: PartsPage::default() };
                return Ok(Progress::Done(reply.to_bytes(b"")));
            };
            let total = u16::try_from(parts.len()).unwrap_or(u16::MAX);
            let key = upload_key(turn.place(), request.key, upload);
            let call = turn.call((UPLOAD, READ), key, Bytes::copy_from_slice(input))?;
            Ok(Turn::then(call, move |_, output| {
                let (reply, _) = ObjectReply::from_bytes(output)?;
                let ObjectReply::Parts(page) = reply else {
                    return Err(Error::new(ErrorCode::Internal, "an upload answered something else"));
                };
                let parts = PartsPage { total, ..page };
                Ok(Progress::Done(ObjectReply::Attributes { info, parts }.to_bytes(b"")))
            }))
        }
        _ => Err(Refusal::InvalidRequest.error("this is not a question about an object")),
    }
}
