//! Writes of one object: its versions, in the transaction of its bucket.

use millrace_api::objects::{
    AccessInput, BodyDigests, Checksum, ChecksumAlgorithm, Content, DeleteOne, Deleted, Grant, ObjectOperation,
    ObjectReply, ObjectRequest, PutInput, Refusal, Retention, UploadInput, Versioning,
};
use millrace_base::{Error, Value, ValueKind, hex, limits};
use millrace_checksum::Hasher;
use millrace_func::{HandlerId, Host, Message, ScanRequest};

use crate::access::acl::{self, Owners};
use crate::access::{Ask, Known, actions};
use crate::conditions::{self, Present};
use crate::lifecycle::Due;
use crate::names::{ERASE, UPLOAD, check_object_key, upload_key};
use crate::object_read::{VersionLocation, current, found, is_versioned, lock_checked, no_such_key, version};
use crate::rows::{BODY, NULL, VERSION, VersionRow, from_value, ordered, to_value};
use crate::settings::Settings;
use crate::turn::Turn;
use crate::version_id::version_id;
use crate::wire::ChangeOutput;
use crate::{expire, lifecycle, lock, tagging};

/// Places of versions that a millisecond has.
const ORDERS_PER_MS: u64 = 1 << 12;

/// How a write changes what the bucket counts.
#[derive(Default)]
struct Delta {
    objects: i64,
    size_bytes: i64,
}

impl Delta {
    fn add(&mut self, row: &VersionRow, sign: i64) {
        if !row.is_delete_marker {
            self.objects += sign;
            self.size_bytes += sign * i64::try_from(row.size_bytes).unwrap_or(i64::MAX);
        }
    }

    fn output(self, reply: ObjectReply) -> ChangeOutput {
        ChangeOutput { objects: self.objects, size_bytes: self.size_bytes, is_repeated: false, reply: Ok(reply) }
    }
}

/// Runs an operation that a bucket's handler has handed on.
pub(crate) fn change(
    turn: &mut Turn<'_>,
    settings: &Settings,
    request: &ObjectRequest<'_>,
) -> Result<ChangeOutput, Error> {
    let ask = Ask { settings, request, now_ms: turn.host.now().0 };
    match &request.operation {
        ObjectOperation::Put(input) => put(turn, &ask, input, &request.body),
        ObjectOperation::Delete(input) => delete(turn, &ask, input),
        ObjectOperation::PutAccess { version, access } => put_access(turn, &ask, version.as_deref(), access),
        ObjectOperation::PutTags { version, tags } => {
            let (place, mut row) = found(turn.host, &ask, version.as_deref())?;
            tagging::check_object_tags(tags)?;
            row.input.tags.clone_from(tags);
            keep(turn.host, place, &row)?;
            Ok(ChangeOutput::reply(ObjectReply::Version(is_versioned(ask.settings).then(|| row.shown_id()))))
        }
        ObjectOperation::PutRetention { version, retention, bypass_governance } => {
            put_retention(turn, &ask, version.as_deref(), *retention, *bypass_governance)
        }
        ObjectOperation::PutLegalHold { version, is_held } => {
            lock_checked(&ask)?;
            let (place, mut row) = found(turn.host, &ask, version.as_deref())?;
            row.input.legal_hold = Some(*is_held);
            keep(turn.host, place, &row)?;
            Ok(ChangeOutput::reply(ObjectReply::Done))
        }
        _ => Err(Refusal::InvalidRequest.error("this is not an operation on one object")),
    }
}

/// An upload was completed: its version becomes the current one.
pub(crate) fn completed(
    turn: &mut Turn<'_>,
    settings: &Settings,
    request: &ObjectRequest<'_>,
    mut row: VersionRow,
) -> Result<ChangeOutput, Error> {
    let ObjectOperation::CompleteUpload { conditions, .. } = &request.operation else {
        return Err(Refusal::InvalidRequest.error("this does not complete an upload"));
    };
    let before = current(turn.host)?;
    conditions::check_write(conditions, present(before.as_ref())).map_err(failed)?;
    let ask = Ask { settings, request, now_ms: turn.host.now().0 };
    let mut delta = Delta::default();
    let id = place(turn, &ask, before, &mut delta)?;
    (row.order, row.id) = id;
    // The bytes of the parts were counted as they came.
    delta.objects += 1;
    turn.host.set(VERSION, to_value(&row))?;
    Ok(delta.output(written(&row, &ask)))
}

fn written(row: &VersionRow, ask: &Ask<'_>) -> ObjectReply {
    let settings = ask.settings;
    ObjectReply::Written {
        etag: row.etag.clone(),
        version: (settings.row.versioning == Versioning::Enabled).then(|| row.shown_id()),
        modified_ms: row.modified_ms,
        checksum: row.checksum.clone(),
        expires: expire::expires(settings, ask.request.key, row),
        size_bytes: row.size_bytes,
    }
}

/// Who owns a new object, and who may what with it.
pub(crate) fn ownership(ask: &Ask<'_>, access: &AccessInput) -> Result<(String, Vec<Grant>), Error> {
    let list = acl::of_new_object(access, ask.writer(), &ask.settings.row.owner, ask.rules())?;
    Ok((list.owner, list.grants))
}

/// Refuses what a new version may not be, and gives it the bucket's default retention.
pub(crate) fn checked_input(ask: &Ask<'_>, input: &UploadInput, now_ms: u64) -> Result<UploadInput, Error> {
    check_object_key(ask.request.key)?;
    tagging::check_object_tags(&input.tags)?;
    let mut input = input.clone();
    let Some(lock) = ask.settings.row.object_lock else {
        if input.retention.is_some() || input.legal_hold.is_some() {
            return Err(Refusal::InvalidRequest.error("Bucket is missing Object Lock Configuration"));
        }
        return Ok(input);
    };
    match input.retention {
        Some(retention) => lock::check_new(retention, now_ms)?,
        None => input.retention = lock::default_retention(Some(&lock), now_ms),
    }
    Ok(input)
}

fn put(turn: &mut Turn<'_>, ask: &Ask<'_>, put: &PutInput, body: &[u8]) -> Result<ChangeOutput, Error> {
    let before = current(turn.host)?;
    ask.check(before.as_ref().map(Known::from).unwrap_or_default())?;
    conditions::check_write(&put.conditions, present(before.as_ref())).map_err(failed)?;
    let now_ms = turn.host.now().0;
    let mut input = checked_input(ask, &put.input, now_ms)?;
    let (owner, grants) = ownership(ask, &put.input.access)?;
    input.access = AccessInput::None;
    let mut delta = Delta::default();
    let (order, id) = place(turn, ask, before, &mut delta)?;
    // Fronts have hashed what they give, off the cores. What a function writes is short.
    let of_function = ask.request.requester.app().map(|_| digests(body));
    let digests = of_function.as_ref().unwrap_or(&put.body.digests);
    let checksum = match put.checksum {
        Some(algorithm) => digests.of(algorithm).cloned(),
        None => digests.checksums.first().cloned(),
    };
    let row = VersionRow {
        order,
        id,
        is_delete_marker: false,
        size_bytes: put.body.length,
        etag: hex(&digests.md5),
        modified_ms: now_ms,
        owner,
        input,
        grants,
        checksum,
        content: put.body.number.map_or(Content::Inline, Content::Body),
    };
    delta.add(&row, 1);
    turn.host.set(VERSION, to_value(&row))?;
    if row.content == Content::Inline && !body.is_empty() {
        turn.host.set(BODY, Value::new(ValueKind::Bytes, body))?;
    }
    Ok(delta.output(written(&row, ask)))
}

fn digests(body: &[u8]) -> BodyDigests {
    let mut hasher = Hasher::new(&[ChecksumAlgorithm::Crc64Nvme]);
    hasher.update(body);
    hasher.finish()
}

/// Makes room for a new current version, and says which place and id it has: the one before is kept as an older version,
/// or goes.
fn place(
    turn: &mut Turn<'_>,
    ask: &Ask<'_>,
    before: Option<VersionRow>,
    delta: &mut Delta,
) -> Result<(u64, Option<String>), Error> {
    let newest = before.as_ref().map_or(0, |row| u64::MAX - row.order);
    let sequence = (turn.host.now().0 * ORDERS_PER_MS).max(newest + 1);
    let order = u64::MAX - sequence;
    match ask.settings.row.versioning {
        Versioning::Enabled => {
            if let Some(before) = before {
                push_down(turn.host, &before)?;
            }
            Ok((order, Some(version_id(order, turn.host.random()))))
        }
        Versioning::Off | Versioning::Suspended => {
            match before {
                Some(before) if before.id.is_none() => {
                    remove_content(turn, ask, &before, VersionLocation::Current, delta)?
                }
                Some(before) => {
                    push_down(turn.host, &before)?;
                    remove_null(turn, ask, delta)?;
                }
                None => remove_null(turn, ask, delta)?,
            }
            Ok((order, None))
        }
    }
}

/// The current version becomes an older one.
fn push_down(host: &mut dyn Host, row: &VersionRow) -> Result<(), Error> {
    host.set(&ordered(VERSION, row.order), to_value(row))?;
    if let Some(body) = host.get(BODY)?.cloned() {
        host.set(&ordered(BODY, row.order), body)?;
        host.delete(BODY)?;
    }
    if row.id.is_none() {
        host.set(NULL, Value::new(ValueKind::Bytes, &row.order.to_be_bytes()))?;
    }
    Ok(())
}

/// The version `null` goes, where it is an older one.
fn remove_null(turn: &mut Turn<'_>, ask: &Ask<'_>, delta: &mut Delta) -> Result<(), Error> {
    match version(turn.host, "null")? {
        Some((place @ VersionLocation::Older(_), row)) => remove_content(turn, ask, &row, place, delta),
        _ => Ok(()),
    }
}

/// A version goes, with its content.
fn remove_content(
    turn: &mut Turn<'_>,
    ask: &Ask<'_>,
    row: &VersionRow,
    place: VersionLocation,
    delta: &mut Delta,
) -> Result<(), Error> {
    let (version_field, body_field) = match place {
        VersionLocation::Current => (VERSION.to_vec(), BODY.to_vec()),
        VersionLocation::Older(order) => (ordered(VERSION, order), ordered(BODY, order)),
    };
    delta.add(row, -1);
    for number in row.bodies() {
        turn.host.built_in()?.release_body(number)?;
    }
    turn.host.delete(&version_field)?;
    if row.content == Content::Inline && row.size_bytes > 0 {
        turn.host.delete(&body_field)?;
    }
    if row.id.is_none() && matches!(place, VersionLocation::Older(_)) {
        turn.host.delete(NULL)?;
    }
    erase_upload(turn, ask, row)
}

/// The rows of an upload whose version went, go, too, some at a time.
fn erase_upload(turn: &mut Turn<'_>, ask: &Ask<'_>, row: &VersionRow) -> Result<(), Error> {
    if let Content::Parts { upload, .. } = &row.content {
        let handler = HandlerId { program: turn.program, service: UPLOAD, handler: ERASE };
        let key = upload_key(turn.place(), ask.request.key, upload);
        turn.host.send(Message { handler, key, input: bytes::Bytes::new(), delay_ms: 0, id: None })?;
    }
    Ok(())
}

/// The newest older version becomes the current one.
fn promote(host: &mut dyn Host) -> Result<(), Error> {
    let newest = millrace_func::ScanRequest { prefix: VERSION.to_vec(), after: None, limit: 1 };
    let Some((field, value)) = host.scan(&newest)?.into_iter().next() else { return Ok(()) };
    let row: VersionRow = from_value(&value)?;
    host.delete(&field)?;
    host.set(VERSION, value)?;
    let body = ordered(BODY, row.order);
    if let Some(content) = host.get(&body)?.cloned() {
        host.set(BODY, content)?;
        host.delete(&body)?;
    }
    if row.id.is_none() {
        host.delete(NULL)?;
    }
    Ok(())
}

/// Writes a version's row again, where it lies.
fn keep(host: &mut dyn Host, place: VersionLocation, row: &VersionRow) -> Result<(), Error> {
    match place {
        VersionLocation::Current => host.set(VERSION, to_value(row)),
        VersionLocation::Older(order) => host.set(&ordered(VERSION, order), to_value(row)),
    }
}

/// What conditions are compared with: a delete marker is nothing.
fn present(row: Option<&VersionRow>) -> Option<Present<'_>> {
    let row = row.filter(|row| !row.is_delete_marker)?;
    Some(Present { etag: &row.etag, modified_ms: row.modified_ms, size_bytes: row.size_bytes })
}

/// A condition that does not hold.
fn failed(refusal: Refusal) -> Error {
    match refusal {
        Refusal::NoSuchKey => no_such_key(),
        other => other.error("At least one of the pre-conditions you specified did not hold"),
    }
}

fn delete(turn: &mut Turn<'_>, ask: &Ask<'_>, input: &DeleteOne) -> Result<ChangeOutput, Error> {
    let mut delta = Delta::default();
    let Some(id) = &input.version else {
        let before = current(turn.host)?;
        ask.check(before.as_ref().map(Known::from).unwrap_or_default())?;
        conditions::check_delete(&input.conditions, present(before.as_ref())).map_err(failed)?;
        if ask.settings.row.versioning == Versioning::Off {
            if let Some(before) = before {
                remove_content(turn, ask, &before, VersionLocation::Current, &mut delta)?;
            }
            return Ok(delta.output(ObjectReply::Deleted(Deleted::default())));
        }
        let (order, id) = place(turn, ask, before, &mut delta)?;
        let owner = ask.writer().unwrap_or(&ask.settings.row.owner);
        let marker = VersionRow::delete_marker(order, id, owner, turn.host.now().0);
        turn.host.set(VERSION, to_value(&marker))?;
        let deleted = Deleted { version: Some(marker.shown_id()), is_delete_marker: true };
        return Ok(delta.output(ObjectReply::Deleted(deleted)));
    };
    let there = version(turn.host, id)?;
    ask.check(there.as_ref().map(|(_, row)| Known::from(row)).unwrap_or_default())?;
    let mut deleted = Deleted { version: Some(id.clone()), is_delete_marker: false };
    let Some((place, row)) = there else {
        return Ok(delta.output(ObjectReply::Deleted(deleted)));
    };
    conditions::check_delete(&input.conditions, present(Some(&row))).map_err(failed)?;
    let bypass = bypasses(ask, &row, input.bypass_governance);
    lock::check_delete(row.input.retention, row.input.legal_hold, bypass, ask.now_ms)?;
    deleted.is_delete_marker = row.is_delete_marker;
    remove_content(turn, ask, &row, place, &mut delta)?;
    if place == VersionLocation::Current {
        promote(turn.host)?;
    }
    Ok(delta.output(ObjectReply::Deleted(deleted)))
}

/// Versions of one object that one transaction removes; more go on the next day.
const EXPIRED_AT_ONCE: usize = 500;

/// Removes what is due by lifecycle rules and not locked.
pub(crate) fn expire(turn: &mut Turn<'_>, ask: &Ask<'_>) -> Result<ChangeOutput, Error> {
    let Some(rules) = ask.settings.lifecycle_rules() else { return Ok(ChangeOutput::reply(ObjectReply::Done)) };
    let all = ScanRequest { prefix: VERSION.to_vec(), after: None, limit: limits::SCAN_ROWS };
    let fields = turn.host.scan(&all)?;
    let rows = fields.iter().map(|(field, value)| Ok((field == VERSION, from_value(value)?)));
    let rows = rows.collect::<Result<Vec<(bool, VersionRow)>, Error>>()?;
    let candidates: Vec<_> = rows.iter().map(|(_, row)| expire::candidate(row)).collect();
    // Without a current version there is nothing to judge by.
    if rows.first().is_none_or(|(is_current, _)| !is_current) {
        return Ok(ChangeOutput::reply(ObjectReply::Done));
    }
    let due = lifecycle::due(rules, ask.request.key, &candidates, ask.now_ms);
    let is_free =
        |row: &VersionRow| lock::check_delete(row.input.retention, row.input.legal_hold, false, ask.now_ms).is_ok();
    let mut delta = Delta::default();
    for index in due
        .iter()
        .filter_map(|due| if let Due::Remove(index) = due { Some(*index) } else { None })
        .take(EXPIRED_AT_ONCE)
    {
        let (is_current, row) = &rows[index];
        if is_free(row) {
            let place = if *is_current { VersionLocation::Current } else { VersionLocation::Older(row.order) };
            remove_content(turn, ask, row, place, &mut delta)?;
        }
    }
    if due.contains(&Due::Expire) {
        let before = current(turn.host)?;
        if ask.settings.row.versioning != Versioning::Off {
            let (order, id) = place(turn, ask, before, &mut delta)?;
            let marker = VersionRow::delete_marker(order, id, &ask.settings.row.owner, ask.now_ms);
            turn.host.set(VERSION, to_value(&marker))?;
        } else if let Some(before) = before.filter(is_free) {
            remove_content(turn, ask, &before, VersionLocation::Current, &mut delta)?;
        }
    }
    Ok(delta.output(ObjectReply::Done))
}

/// Whether a retention of governance mode is ended: asked for, and allowed.
fn bypasses(ask: &Ask<'_>, row: &VersionRow, is_asked: bool) -> bool {
    is_asked && ask.may(actions::BYPASS, Known::from(row))
}

fn put_access(
    turn: &mut Turn<'_>,
    ask: &Ask<'_>,
    version: Option<&str>,
    access: &AccessInput,
) -> Result<ChangeOutput, Error> {
    let (place, mut row) = found(turn.host, ask, version)?;
    let owners = Owners { owner: &row.owner, bucket_owner: Some(&ask.settings.row.owner) };
    row.grants = acl::replaced(access, owners, ask.rules())?.grants;
    keep(turn.host, place, &row)?;
    Ok(ChangeOutput::reply(ObjectReply::Version(is_versioned(ask.settings).then(|| row.shown_id()))))
}

fn put_retention(
    turn: &mut Turn<'_>,
    ask: &Ask<'_>,
    version: Option<&str>,
    retention: Option<Retention>,
    bypass: bool,
) -> Result<ChangeOutput, Error> {
    lock_checked(ask)?;
    let (place, mut row) = found(turn.host, ask, version)?;
    let bypass = bypasses(ask, &row, bypass);
    lock::check_change(row.input.retention, retention, bypass, ask.now_ms)?;
    row.input.retention = retention;
    keep(turn.host, place, &row)?;
    Ok(ChangeOutput::reply(ObjectReply::Done))
}

/// A checksum that a client said, beside one that was taken.
pub(crate) fn same_checksum(said: &Checksum, taken: Option<&Checksum>) -> bool {
    taken.is_some_and(|taken| taken.algorithm == said.algorithm && taken.value == said.value)
}
