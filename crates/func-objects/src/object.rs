//! Writes of one object: its versions, in the transaction of its bucket.

use millrace_api::objects::{
    AccessInput, CannedAccess, Checksum, Content, DeleteOne, Deleted, ObjectOperation, ObjectReply, ObjectRequest,
    Ownership, Permission, PutInput, Refusal, Retention, RetentionMode, RetentionPeriod, UploadInput, Versioning,
    WriteConditions,
};
use millrace_base::{Error, Value, ValueKind};
use millrace_func::{HandlerId, Host, Message};

use crate::access::{Need, grants_of, is_public, lists_count};
use crate::names::{ERASE, UPLOAD, check_object_key, upload_key};
use crate::object_read::{ObjectAsk, Place, current, found, lock_checked, no_such_key, version};
use crate::rows::{BODY, NULL, VERSION, VersionRow, from_value, ordered, to_value};
use crate::settings::Settings;
use crate::turn::Turn;
use crate::version_id::version_id;
use crate::wire::ChangeOutput;

/// Who owns what nobody signed for, as S3 names them.
const ANONYMOUS: &str = "65a011a29cdf8ec533ec3d1ccaae921c";

const DAY_MS: u64 = 24 * 60 * 60 * 1000;

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
        ChangeOutput { objects: self.objects, size_bytes: self.size_bytes, reply: Ok(reply) }
    }
}

/// Runs an operation that a bucket's handler has handed on.
pub(crate) fn change(
    turn: &mut Turn<'_>,
    settings: &Settings,
    request: &ObjectRequest<'_>,
) -> Result<ChangeOutput, Error> {
    let ask = ObjectAsk { settings, requester: &request.requester, bucket: request.bucket, key: request.key };
    match &request.operation {
        ObjectOperation::Put(input) => put(turn, &ask, input, &request.body),
        ObjectOperation::Delete(input) => delete(turn, &ask, input),
        ObjectOperation::PutAccess { version, access } => put_access(turn, &ask, version.as_deref(), access),
        ObjectOperation::PutTags { version, tags } => {
            let names = if tags.is_empty() {
                ("DeleteObjectTagging", "DeleteObjectVersionTagging")
            } else {
                ("PutObjectTagging", "PutObjectVersionTagging")
            };
            let asks = (names.0, names.1, Need::Object(Permission::FullControl));
            let (place, mut row) = found(turn.host, &ask, asks, version.as_deref())?;
            row.input.tags.clone_from(tags);
            keep(turn.host, place, &row)?;
            Ok(ChangeOutput::reply(ObjectReply::Version(ask.is_versioned().then(|| row.shown_id()))))
        }
        ObjectOperation::PutRetention { version, retention, bypass_governance } => {
            put_retention(turn, &ask, version.as_deref(), *retention, *bypass_governance)
        }
        ObjectOperation::PutLegalHold { version, is_held } => {
            lock_checked(&ask)?;
            let asks = ("PutObjectLegalHold", "PutObjectLegalHold", Need::Object(Permission::FullControl));
            let (place, mut row) = found(turn.host, &ask, asks, version.as_deref())?;
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
    check_write(conditions, before.as_ref())?;
    let mut delta = Delta::default();
    let id = place(turn, settings, before, &mut delta)?;
    (row.order, row.id) = id;
    // The bytes of the parts were counted as they came.
    delta.objects += 1;
    turn.host.set(VERSION, to_value(&row))?;
    Ok(delta.output(written(&row, settings)))
}

fn written(row: &VersionRow, settings: &Settings) -> ObjectReply {
    ObjectReply::Written {
        etag: row.etag.clone(),
        version: (settings.row.versioning == Versioning::Enabled).then(|| row.shown_id()),
        modified_ms: row.modified_ms,
        checksum: row.checksum.clone(),
        expires: None,
        size_bytes: row.size_bytes,
    }
}

/// Who owns a new object, and who may what with it.
pub(crate) fn ownership(
    ask: &ObjectAsk<'_>,
    access: &AccessInput,
) -> Result<(String, Vec<millrace_api::objects::Grant>), Error> {
    let settings = &ask.settings.row;
    let gives_away = matches!(access, AccessInput::Canned(CannedAccess::BucketOwnerFullControl));
    let is_bucket_owners = match settings.ownership.unwrap_or_default() {
        Ownership::BucketOwnerEnforced => true,
        Ownership::BucketOwnerPreferred => gives_away,
        Ownership::ObjectWriter => false,
    };
    if !lists_count(ask.settings) {
        check_no_list(access)?;
        return Ok((settings.owner.clone(), grants_of(&AccessInput::None, &settings.owner, &settings.owner)?));
    }
    let owner =
        if is_bucket_owners { settings.owner.clone() } else { ask.requester.id.unwrap_or(ANONYMOUS).to_owned() };
    let grants = grants_of(access, &owner, &settings.owner)?;
    check_public(ask.settings, &grants)?;
    Ok((owner, grants))
}

/// Refuses access lists where they do not count.
pub(crate) fn check_no_list(access: &AccessInput) -> Result<(), Error> {
    match access {
        AccessInput::None | AccessInput::Canned(CannedAccess::BucketOwnerFullControl | CannedAccess::Private) => Ok(()),
        _ => Err(Refusal::AccessControlListNotSupported.error("The bucket does not allow ACLs")),
    }
}

/// Refuses lists that would make something public where that is blocked.
pub(crate) fn check_public(settings: &Settings, grants: &[millrace_api::objects::Grant]) -> Result<(), Error> {
    if settings.row.public_access.is_some_and(|block| block.block_public_acls) && is_public(grants) {
        return Err(Refusal::AccessDenied.error("Access Denied"));
    }
    Ok(())
}

/// What policies may ask of a write.
pub(crate) fn write_context(
    input: &UploadInput,
    copy: Option<&millrace_api::objects::CopyInput>,
) -> Vec<(String, String)> {
    let mut context = Vec::new();
    let canned = match &input.access {
        AccessInput::Canned(canned) => Some(canned_name(*canned)),
        _ => None,
    };
    context.extend(canned.map(|name| ("s3:x-amz-acl".to_owned(), name.to_owned())));
    if let AccessInput::Grants(grants) = &input.access {
        for grant in grants {
            let name = match grant.permission {
                Permission::FullControl => "full-control",
                Permission::Read => "read",
                Permission::Write => "write",
                Permission::ReadAcp => "read-acp",
                Permission::WriteAcp => "write-acp",
            };
            let who = match &grant.grantee {
                millrace_api::objects::Grantee::User(id) => format!("id={id}"),
                millrace_api::objects::Grantee::Group(group) => format!("{group:?}"),
            };
            context.push((format!("s3:x-amz-grant-{name}"), who));
        }
    }
    context.extend(input.tags.iter().map(|tag| (format!("s3:RequestObjectTag/{}", tag.key), tag.value.clone())));
    context.extend(input.tags.iter().map(|tag| ("s3:RequestObjectTagKeys".to_owned(), tag.key.clone())));
    if !input.storage_class.is_empty() {
        context.push(("s3:x-amz-storage-class".to_owned(), input.storage_class.clone()));
    }
    if let Some(copy) = copy {
        context.push(("s3:x-amz-copy-source".to_owned(), copy.source.clone()));
        context.push(("s3:x-amz-metadata-directive".to_owned(), copy.metadata_directive.clone()));
    }
    context
}

fn canned_name(canned: CannedAccess) -> &'static str {
    match canned {
        CannedAccess::Private => "private",
        CannedAccess::PublicRead => "public-read",
        CannedAccess::PublicReadWrite => "public-read-write",
        CannedAccess::AuthenticatedRead => "authenticated-read",
        CannedAccess::BucketOwnerRead => "bucket-owner-read",
        CannedAccess::BucketOwnerFullControl => "bucket-owner-full-control",
        CannedAccess::LogDeliveryWrite => "log-delivery-write",
    }
}

/// Refuses what a new version may not be, and gives it the bucket's default retention.
pub(crate) fn checked_input(ask: &ObjectAsk<'_>, input: &UploadInput, now_ms: u64) -> Result<UploadInput, Error> {
    check_object_key(ask.key)?;
    let mut input = input.clone();
    let Some(lock) = ask.settings.row.object_lock else {
        if input.retention.is_some() || input.legal_hold.is_some() {
            return Err(Refusal::InvalidRequest.error("Bucket is missing Object Lock Configuration"));
        }
        return Ok(input);
    };
    if input.retention.is_some_and(|retention| retention.until_ms <= now_ms) {
        return Err(Refusal::InvalidArgument.error("The retain until date must be in the future!"));
    }
    if input.retention.is_none() {
        input.retention = lock.default_retention.map(|default| {
            let days = match default.period {
                RetentionPeriod::Days(days) => u64::from(days),
                RetentionPeriod::Years(years) => u64::from(years) * 365,
            };
            Retention { mode: default.mode, until_ms: now_ms + days * DAY_MS }
        });
    }
    Ok(input)
}

fn put(turn: &mut Turn<'_>, ask: &ObjectAsk<'_>, put: &PutInput, body: &[u8]) -> Result<ChangeOutput, Error> {
    let need = Need::Bucket(Permission::Write);
    let before = current(turn.host)?;
    ask.may("PutObject", need, None, write_context(&put.input, put.copy.as_ref()))?;
    check_write(&put.conditions, before.as_ref())?;
    let now_ms = turn.host.now().0;
    let mut input = checked_input(ask, &put.input, now_ms)?;
    let (owner, grants) = ownership(ask, &put.input.access)?;
    input.access = AccessInput::None;
    let mut delta = Delta::default();
    let (order, id) = place(turn, ask.settings, before, &mut delta)?;
    let checksum = match put.checksum {
        Some(algorithm) => put.body.digests.of(algorithm).cloned(),
        None => put.body.digests.checksums.first().cloned(),
    };
    let row = VersionRow {
        order,
        id,
        is_delete_marker: false,
        size_bytes: put.body.length,
        etag: hex(&put.body.digests.md5),
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
    Ok(delta.output(written(&row, ask.settings)))
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Makes room for a new current version, and says which place and id it has: the one before is kept as an older version,
/// or goes.
fn place(
    turn: &mut Turn<'_>,
    settings: &Settings,
    before: Option<VersionRow>,
    delta: &mut Delta,
) -> Result<(u64, Option<String>), Error> {
    let newest = before.as_ref().map_or(0, |row| u64::MAX - row.order);
    let sequence = (turn.host.now().0 * ORDERS_PER_MS).max(newest + 1);
    let order = u64::MAX - sequence;
    match settings.row.versioning {
        Versioning::Enabled => {
            if let Some(before) = before {
                push_down(turn.host, &before)?;
            }
            Ok((order, Some(version_id(order, turn.host.random()))))
        }
        Versioning::Off | Versioning::Suspended => {
            match before {
                Some(before) if before.id.is_none() => remove_content(turn, &before, Place::Current, delta)?,
                Some(before) => {
                    push_down(turn.host, &before)?;
                    remove_null(turn, delta)?;
                }
                None => remove_null(turn, delta)?,
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
fn remove_null(turn: &mut Turn<'_>, delta: &mut Delta) -> Result<(), Error> {
    match version(turn.host, "null")? {
        Some((place @ Place::Older(_), row)) => remove_content(turn, &row, place, delta),
        _ => Ok(()),
    }
}

/// A version goes, with its content.
fn remove_content(turn: &mut Turn<'_>, row: &VersionRow, place: Place, delta: &mut Delta) -> Result<(), Error> {
    let (version_field, body_field) = match place {
        Place::Current => (VERSION.to_vec(), BODY.to_vec()),
        Place::Older(order) => (ordered(VERSION, order), ordered(BODY, order)),
    };
    delta.add(row, -1);
    for number in row.bodies() {
        turn.host.release_body(number)?;
    }
    turn.host.delete(&version_field)?;
    if row.content == Content::Inline && row.size_bytes > 0 {
        turn.host.delete(&body_field)?;
    }
    if row.id.is_none() && matches!(place, Place::Older(_)) {
        turn.host.delete(NULL)?;
    }
    Ok(())
}

/// The rows of an upload whose version went, go, too, some at a time.
fn erase_upload(turn: &mut Turn<'_>, ask: &ObjectAsk<'_>, row: &VersionRow) -> Result<(), Error> {
    if let Content::Parts { upload, .. } = &row.content {
        let handler = HandlerId { program: turn.program, service: UPLOAD, handler: ERASE };
        let key = upload_key(ask.bucket, ask.key, upload);
        turn.host.send(Message { handler, key, input: bytes::Bytes::new(), delay_ms: 0 })?;
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
fn keep(host: &mut dyn Host, place: Place, row: &VersionRow) -> Result<(), Error> {
    match place {
        Place::Current => host.set(VERSION, to_value(row)),
        Place::Older(order) => host.set(&ordered(VERSION, order), to_value(row)),
    }
}

/// Refuses a write whose conditions do not hold.
pub(crate) fn check_write(conditions: &WriteConditions, current: Option<&VersionRow>) -> Result<(), Error> {
    let current = current.filter(|row| !row.is_delete_marker);
    let failed = || Refusal::PreconditionFailed.error("At least one of the pre-conditions you specified did not hold");
    if !conditions.if_match.is_empty() {
        let row = current.ok_or_else(no_such_key)?;
        if !conditions.if_match.iter().any(|tag| tag == "*" || *tag == row.etag) {
            return Err(failed());
        }
    }
    let is_one_of = |row: &VersionRow| conditions.if_none_match.iter().any(|tag| tag == "*" || *tag == row.etag);
    if current.is_some_and(is_one_of) {
        return Err(failed());
    }
    let has_size = |row: &VersionRow| conditions.if_match_size_bytes.is_none_or(|size| size == row.size_bytes);
    let is_of_time = |row: &VersionRow| {
        conditions.if_match_modified_ms.is_none_or(|time_ms| time_ms / 1000 == row.modified_ms / 1000)
    };
    if current.is_some_and(|row| !has_size(row) || !is_of_time(row)) {
        return Err(failed());
    }
    Ok(())
}

fn delete(turn: &mut Turn<'_>, ask: &ObjectAsk<'_>, input: &DeleteOne) -> Result<ChangeOutput, Error> {
    let need = Need::Bucket(Permission::Write);
    let mut delta = Delta::default();
    let Some(id) = &input.version else {
        let before = current(turn.host)?;
        ask.may("DeleteObject", need, None, Vec::new())?;
        check_write(&input.conditions, before.as_ref())?;
        if ask.settings.row.versioning == Versioning::Off {
            if let Some(before) = before {
                remove_content(turn, &before, Place::Current, &mut delta)?;
                erase_upload(turn, ask, &before)?;
            }
            return Ok(delta.output(ObjectReply::Deleted(Deleted::default())));
        }
        let (order, id) = place(turn, ask.settings, before, &mut delta)?;
        let owner = ask.requester.id.unwrap_or(ANONYMOUS);
        let marker = VersionRow::delete_marker(order, id, owner, turn.host.now().0);
        turn.host.set(VERSION, to_value(&marker))?;
        let deleted = Deleted { version: Some(marker.shown_id()), is_delete_marker: true };
        return Ok(delta.output(ObjectReply::Deleted(deleted)));
    };
    let context = vec![("s3:VersionId".to_owned(), id.clone())];
    ask.may("DeleteObjectVersion", need, None, context)?;
    let mut deleted = Deleted { version: Some(id.clone()), is_delete_marker: false };
    let Some((place, row)) = version(turn.host, id)? else {
        return Ok(delta.output(ObjectReply::Deleted(deleted)));
    };
    check_write(&input.conditions, Some(&row))?;
    check_unlocked(ask, &row, input.bypass_governance, turn.host.now().0)?;
    deleted.is_delete_marker = row.is_delete_marker;
    remove_content(turn, &row, place, &mut delta)?;
    erase_upload(turn, ask, &row)?;
    if place == Place::Current {
        promote(turn.host)?;
    }
    Ok(delta.output(ObjectReply::Deleted(deleted)))
}

/// Refuses to remove a version that is retained or held.
fn check_unlocked(ask: &ObjectAsk<'_>, row: &VersionRow, bypass: bool, now_ms: u64) -> Result<(), Error> {
    let locked = || Refusal::AccessDenied.error("Access Denied because object protected by object lock.");
    if row.input.legal_hold == Some(true) {
        return Err(locked());
    }
    match row.input.retention.filter(|retention| retention.until_ms > now_ms) {
        None => Ok(()),
        Some(Retention { mode: RetentionMode::Governance, .. }) if bypass => {
            ask.may("BypassGovernanceRetention", Need::Owner, Some(row), Vec::new()).map_err(|_| locked())
        }
        Some(_) => Err(locked()),
    }
}

fn put_access(
    turn: &mut Turn<'_>,
    ask: &ObjectAsk<'_>,
    version: Option<&str>,
    access: &AccessInput,
) -> Result<ChangeOutput, Error> {
    let asks = ("PutObjectAcl", "PutObjectVersionAcl", Need::Object(Permission::WriteAcp));
    let (place, mut row) = found(turn.host, ask, asks, version)?;
    if !lists_count(ask.settings) {
        check_no_list(access)?;
        return Ok(ChangeOutput::reply(ObjectReply::Version(None)));
    }
    row.grants = grants_of(access, &row.owner, &ask.settings.row.owner)?;
    check_public(ask.settings, &row.grants)?;
    keep(turn.host, place, &row)?;
    Ok(ChangeOutput::reply(ObjectReply::Version(ask.is_versioned().then(|| row.shown_id()))))
}

fn put_retention(
    turn: &mut Turn<'_>,
    ask: &ObjectAsk<'_>,
    version: Option<&str>,
    retention: Option<Retention>,
    bypass: bool,
) -> Result<ChangeOutput, Error> {
    lock_checked(ask)?;
    let asks = ("PutObjectRetention", "PutObjectRetention", Need::Object(Permission::FullControl));
    let (place, mut row) = found(turn.host, ask, asks, version)?;
    let now_ms = turn.host.now().0;
    if retention.is_some_and(|retention| retention.until_ms <= now_ms) {
        return Err(Refusal::InvalidArgument.error("The retain until date must be in the future!"));
    }
    let shortens = row.input.retention.filter(|old| old.until_ms > now_ms).filter(|old| {
        let is_longer = retention.is_some_and(|new| {
            new.until_ms >= old.until_ms && (new.mode == old.mode || new.mode == RetentionMode::Compliance)
        });
        !is_longer
    });
    if let Some(old) = shortens {
        let denied = || Refusal::AccessDenied.error("Access Denied because object protected by object lock.");
        if old.mode == RetentionMode::Compliance || !bypass {
            return Err(denied());
        }
        ask.may("BypassGovernanceRetention", Need::Owner, Some(&row), Vec::new()).map_err(|_| denied())?;
    }
    row.input.retention = retention;
    keep(turn.host, place, &row)?;
    Ok(ChangeOutput::reply(ObjectReply::Done))
}

/// A checksum that a client said, beside one that was taken.
pub(crate) fn same_checksum(said: &Checksum, taken: Option<&Checksum>) -> bool {
    taken.is_some_and(|taken| taken.algorithm == said.algorithm && taken.value == said.value)
}
