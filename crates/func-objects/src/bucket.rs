//! A bucket: what fronts ask of it and of what is in it. Its handler runs every write, so that what the bucket says of
//! itself and its objects change together.

use std::collections::BTreeMap;
use std::rc::Rc;

use bytes::Bytes;
use millrace_api::is_built_in;
use millrace_api::objects::{
    AccessInput, BucketInfo, DeleteOne, DeletedOne, ObjectLock, ObjectOperation, ObjectReply, ObjectRequest, Ownership,
    PolicyStatus, Refusal, Versioning,
};
use millrace_base::{Error, ErrorCode, Name};
use millrace_func::OperationId;

use crate::access::{Ask, Known, Policy, acl};
use crate::names::{
    ACCOUNT, BUCKET, OBJECT, READ, UPLOAD, WRITE, bucket_key, check_bucket_name, check_object_key, object_key,
    upload_key,
};
use crate::notify::{Untold, UntoldOne};
use crate::rows::{BucketRow, INFO, USAGE, UsageRow, from_value, to_value};
use crate::settings::Settings;
use crate::turn::{Progress, Turn};
use crate::wire::{AccountInput, ChangeInput, ChangeOutput, SliceInput, decode, encode};
use crate::{configuration, list, notify, slice_pages, slice_quota, slices, upload};

/// Objects that one request removes. S3's bound.
const DELETED_AT_ONCE: usize = 1000;

pub(crate) fn no_such_bucket() -> Error {
    Refusal::NoSuchBucket.error("The specified bucket does not exist")
}

/// The settings of the bucket whose turn it is.
pub(crate) fn settings(turn: &mut Turn<'_>) -> Result<Rc<Settings>, Error> {
    let row = turn.host.get(INFO)?.cloned().ok_or_else(|| slices::absent(turn.place()))?;
    let cache = turn.settings;
    let read = cache.read(turn.bucket(), &row, |field| turn.host.get(field).map(|value| Some(value.cloned())))?;
    read.ok_or_else(|| Error::new(ErrorCode::Internal, "a bucket's settings cannot be read"))
}

/// Runs what only reads.
pub(crate) fn read(turn: &mut Turn<'_>, input: &[u8]) -> Result<Progress, Error> {
    let request = ObjectRequest::from_bytes(input)?;
    let settings = settings(turn)?;
    if let Some(elsewhere) = slices::elsewhere(turn, &settings, &request, (BUCKET, READ), input)? {
        return Ok(elsewhere);
    }
    let ask = Ask { settings: &settings, request: &request, now_ms: turn.host.now().0 };
    if !matches!(request.operation, ObjectOperation::GetCors { .. }) {
        // A write that is checked may find an upload whose owner is not known here: that is asked again.
        ask.check(Known::default())?;
    }
    let reply = match &request.operation {
        ObjectOperation::HeadBucket => {
            let row = &settings.row;
            ObjectReply::Bucket(BucketInfo {
                name: request.bucket.to_owned(),
                created_ms: row.created_ms,
                owner: row.owner.clone(),
                has_object_lock: row.object_lock.is_some(),
                app: row.app.clone(),
                slices: u16::try_from(row.slices.count()).unwrap_or(u16::MAX),
            })
        }
        ObjectOperation::List(_) | ObjectOperation::ListVersions(_) | ObjectOperation::ListUploads(_) => {
            if slices::has_others(turn, &settings) {
                return slice_pages::list(turn, &settings, &request, input);
            }
            list::page(turn, &request.operation)?
        }
        ObjectOperation::GetConfiguration(kind) => configuration::get(turn, &settings, *kind)?,
        ObjectOperation::GetPolicyStatus => {
            // S3 counts a bucket as public by its list, too.
            let by_policy = settings.policy.as_deref().is_some_and(Policy::is_public);
            ObjectReply::PolicyStatus(PolicyStatus { is_public: by_policy || acl::is_public(&settings.row.grants) })
        }
        ObjectOperation::GetUsage => return slice_quota::usage_of_all(turn, &settings),
        ObjectOperation::GetCors { origin, method, headers } => configuration::cors(turn, origin, method, headers)?,
        ObjectOperation::CheckWrite { size_bytes, .. } => {
            return slice_quota::check(turn, &settings, size_bytes.unwrap_or(0));
        }
        _ => return Err(Refusal::InvalidRequest.error("this is not a question about a bucket")),
    };
    Ok(Progress::Done(reply.to_bytes(b"")))
}

/// What is in the slice whose turn it is.
pub(crate) fn usage(turn: &mut Turn<'_>) -> Result<UsageRow, Error> {
    Ok(turn.host.get(USAGE)?.map(from_value).transpose()?.unwrap_or_default())
}

/// Runs what may change something.
pub(crate) fn write(turn: &mut Turn<'_>, input: &[u8]) -> Result<Progress, Error> {
    let request = ObjectRequest::from_bytes(input)?;
    if let ObjectOperation::CreateBucket { access, object_lock, ownership } = &request.operation {
        return create(turn, &request, access, *object_lock, *ownership);
    }
    let settings = settings(turn)?;
    if let Some(elsewhere) = slices::elsewhere(turn, &settings, &request, (BUCKET, WRITE), input)? {
        return Ok(elsewhere);
    }
    let ask = Ask { settings: &settings, request: &request, now_ms: turn.host.now().0 };
    match &request.operation {
        ObjectOperation::DeleteBucket => {
            ask.check(Known::default())?;
            remove(turn, &settings, &request)
        }
        ObjectOperation::PutConfiguration { configuration, .. } => {
            ask.check(Known::default())?;
            configuration::put(turn, &ask, configuration)
        }
        ObjectOperation::DeleteConfiguration(kind) => {
            ask.check(Known::default())?;
            configuration::delete(turn, &settings, *kind)
        }
        ObjectOperation::SetQuota(quota_bytes) => {
            // Whoever could set it could lift it.
            ask.check_system()?;
            let row = BucketRow { quota_bytes: *quota_bytes, ..settings.row.clone() };
            slices::keep(turn, &settings, &row)
        }
        ObjectOperation::SetSlices(count) => {
            // Whoever could set it could make the bucket slow.
            ask.check_system()?;
            slices::spread(turn, &settings, *count)
        }
        ObjectOperation::SetApp(app) => {
            // Whoever could set it could let any app in.
            ask.check_system()?;
            let is_name = |app: &String| Name::new(app).is_ok() && !is_built_in(app);
            if !app.as_ref().is_none_or(is_name) {
                return Err(Refusal::InvalidArgument.error("this is not the name of an app"));
            }
            slices::keep(turn, &settings, &BucketRow { app: app.clone(), ..settings.row.clone() })
        }
        ObjectOperation::DeleteMany { objects } => delete_many(turn, &settings, &request, objects),
        operation => {
            let more_bytes = match operation {
                ObjectOperation::Put(put) => put.body.length,
                ObjectOperation::PutPart(part) => part.body.length,
                _ => 0,
            };
            if more_bytes > 0
                && let Some(making_room) = slice_quota::make_room(turn, &settings, more_bytes, input)?
            {
                return Ok(making_room);
            }
            hand_on(turn, &settings, &request, input)
        }
    }
}

/// Has the object or upload do it, and counts what it changed.
pub(crate) fn hand_on(
    turn: &mut Turn<'_>,
    settings: &Settings,
    request: &ObjectRequest<'_>,
    input: &[u8],
) -> Result<Progress, Error> {
    let mut upload_made = None;
    let (service, key) = match &request.operation {
        ObjectOperation::CreateUpload(_) => {
            // Lists are in the order of ids, and clients expect the order of their beginning.
            let (began_ms, other) = (turn.host.now().0, turn.host.random() & 0xffff);
            let id = format!("{began_ms:012x}{other:04x}{:016x}", turn.host.random());
            let key = upload_key(turn.place(), request.key, &id);
            upload_made = Some(id);
            (UPLOAD, key)
        }
        ObjectOperation::PutPart(_) | ObjectOperation::CompleteUpload { .. } | ObjectOperation::AbortUpload { .. } => {
            (UPLOAD, upload_key(turn.place(), request.key, &upload::upload_id(request)?))
        }
        _ => (OBJECT, object_key(turn.place(), request.key)),
    };
    let change =
        ChangeInput::Operation { settings: settings.output(), request: input.to_vec(), refusal_is_answer: false };
    let call = turn.call((service, WRITE), key, encode(&change))?;
    let told = settings.row.has_notifications.then(|| input.to_vec());
    Ok(Turn::then(call, move |turn, output| {
        let output: ChangeOutput = decode(&output)?;
        count(turn, &[&output])?;
        let mut reply = output.reply.map_err(|(_, message)| Refusal::InvalidRequest.error(message))?;
        if let (ObjectReply::Upload { id, .. }, Some(made)) = (&mut reply, upload_made) {
            *id = made;
        }
        if let Some(input) = told.filter(|_| !output.is_repeated) {
            let request = ObjectRequest::from_bytes(&input)?;
            notify::tell(turn, (request.bucket, request.key), &request.operation, &reply)?;
        }
        Ok(Progress::Done(reply.to_bytes(b"")))
    }))
}

/// Counts what changes did.
pub(crate) fn count(turn: &mut Turn<'_>, outputs: &[&ChangeOutput]) -> Result<(), Error> {
    let objects: i64 = outputs.iter().map(|output| output.objects).sum();
    let size_bytes: i64 = outputs.iter().map(|output| output.size_bytes).sum();
    if objects == 0 && size_bytes == 0 {
        return Ok(());
    }
    let before = usage(turn)?;
    let after = UsageRow {
        objects: before.objects.saturating_add_signed(objects),
        size_bytes: before.size_bytes.saturating_add_signed(size_bytes),
    };
    turn.host.set(USAGE, to_value(&after))
}

fn delete_many(
    turn: &mut Turn<'_>,
    settings: &Settings,
    request: &ObjectRequest<'_>,
    objects: &[(String, DeleteOne)],
) -> Result<Progress, Error> {
    if objects.len() > DELETED_AT_ONCE {
        return Err(Refusal::MalformedXml.error(format!("at most {DELETED_AT_ONCE} objects are removed at once")));
    }
    let (mut calls, mut own) = (Vec::with_capacity(objects.len()), Vec::with_capacity(objects.len()));
    let mut elsewhere: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (index, (key, one)) in objects.iter().enumerate() {
        check_object_key(key)?;
        let place = settings.row.slices.place(request.bucket, key);
        if place != turn.place() {
            elsewhere.entry(place.into_owned()).or_default().push(index);
            continue;
        }
        calls.push(delete_one(turn, settings, request, (key, one))?);
        own.push((index, key.clone(), one.version.clone()));
    }
    for (place, indexes) in &elsewhere {
        let objects = indexes.iter().map(|index| objects[*index].clone()).collect();
        let operation = ObjectOperation::DeleteMany { objects };
        let there = ObjectRequest { operation, ..request.clone() };
        calls.push(turn.call((BUCKET, WRITE), bucket_key(place), there.to_bytes())?);
    }
    if calls.is_empty() {
        return Ok(Progress::Done(ObjectReply::DeletedMany(Vec::new()).to_bytes(b"")));
    }
    let is_told = settings.row.has_notifications;
    Ok(Turn::then_all(calls, move |turn, mut results| {
        let others = results.split_off(own.len());
        let mut deleted = BTreeMap::new();
        for (result, indexes) in others.into_iter().zip(elsewhere.into_values()) {
            let (ObjectReply::DeletedMany(there), _) = ObjectReply::from_bytes(result?)? else {
                return Err(Error::new(ErrorCode::Internal, "a slice answered something else"));
            };
            deleted.extend(indexes.into_iter().zip(there));
        }
        deleted_here(turn, is_told, own, results, &mut deleted)?;
        Ok(Progress::Done(ObjectReply::DeletedMany(deleted.into_values().collect()).to_bytes(b"")))
    }))
}

/// Has an object of this slice removed, as one of many.
fn delete_one(
    turn: &mut Turn<'_>,
    settings: &Settings,
    request: &ObjectRequest<'_>,
    (key, one): (&str, &DeleteOne),
) -> Result<OperationId, Error> {
    let operation = ObjectOperation::Delete(one.clone());
    let requester = request.requester.clone();
    let each = ObjectRequest { requester, bucket: request.bucket, key, operation, body: Bytes::new() };
    let change = ChangeInput::Operation {
        settings: settings.output(),
        request: each.to_bytes().to_vec(),
        refusal_is_answer: true,
    };
    turn.call((OBJECT, WRITE), object_key(turn.place(), key), encode(&change))
}

/// Counts and tells what was removed of this slice's objects, and puts it where it was asked for.
fn deleted_here(
    turn: &mut Turn<'_>,
    is_told: bool,
    asked: Vec<(usize, String, Option<String>)>,
    results: Vec<Result<Bytes, Error>>,
    deleted: &mut BTreeMap<usize, DeletedOne>,
) -> Result<(), Error> {
    let outputs = results.into_iter().map(|result| decode(&result?)).collect::<Result<Vec<ChangeOutput>, _>>()?;
    count(turn, &outputs.iter().collect::<Vec<_>>())?;
    let mut untold = Untold { time_ms: turn.host.now().0, deleted: Vec::new() };
    for ((index, key, version), output) in asked.into_iter().zip(outputs) {
        let result = match output.reply {
            Ok(ObjectReply::Deleted(one)) => {
                if is_told {
                    let (key, version, reply) = (key.clone(), version.clone(), one.clone());
                    untold.deleted.push(UntoldOne { key, version, reply });
                }
                Ok(one)
            }
            Ok(_) => return Err(Error::new(ErrorCode::Internal, "an object answered something else")),
            Err(refusal) => Err(refusal),
        };
        deleted.insert(index, DeletedOne { key, version, result });
    }
    notify::tell_later(turn, &untold)
}

/// Whether making a bucket again would leave it as it is. S3 allows that in its first region, so clients do it.
///
/// S3 resets the access list there; nobody asks for that by chance here, so another list is refused.
fn is_made_again(there: &BucketRow, asked: &BucketRow) -> bool {
    let is_same_ownership = asked.ownership.is_none() || asked.ownership == there.ownership;
    let is_same_lock = asked.object_lock.is_none() || there.object_lock.is_some();
    there.grants == asked.grants && is_same_ownership && is_same_lock
}

fn create(
    turn: &mut Turn<'_>,
    request: &ObjectRequest<'_>,
    access: &AccessInput,
    object_lock: bool,
    ownership: Option<Ownership>,
) -> Result<Progress, Error> {
    check_bucket_name(request.bucket)?;
    let Some(owner) = request.requester.id else {
        return Err(Refusal::AccessDenied.error("Access Denied"));
    };
    let there = turn.host.get(INFO)?.map(BucketRow::from_value).transpose()?;
    if there.as_ref().is_some_and(|there| there.owner != owner) {
        return Err(Refusal::BucketAlreadyExists.error("The requested bucket name is not available. The bucket namespace is shared by all users of the system. Please select a different name and try again."));
    }
    let list = acl::of_new_bucket(access, owner, ownership.unwrap_or_default())?;
    let created_ms = turn.host.now().0;
    let row = BucketRow {
        created_ms,
        owner: owner.to_owned(),
        versioning: if object_lock { Versioning::Enabled } else { Versioning::Off },
        ownership,
        object_lock: object_lock.then(ObjectLock::default),
        grants: list.grants,
        ..BucketRow::default()
    };
    if let Some(there) = there {
        if is_made_again(&there, &row) {
            return Ok(Progress::Done(ObjectReply::Done.to_bytes(b"")));
        }
        // The bucket that the request names is another one than the one that it describes.
        return Err(if there.grants == row.grants {
            Refusal::BucketAlreadyOwnedByYou
                .error("Your previous request to create the named bucket succeeded and you already own it.")
        } else {
            Refusal::BucketAlreadyExists.error("You own this bucket already, and it has another access list.")
        });
    }
    turn.host.set(INFO, row.to_value())?;
    let add = AccountInput::Add { bucket: request.bucket.to_owned(), created_ms };
    let call = turn.call((ACCOUNT, WRITE), owner.as_bytes().to_vec(), encode(&add))?;
    Ok(Turn::then(call, |_, _| Ok(Progress::Done(ObjectReply::Done.to_bytes(b"")))))
}

fn remove(turn: &mut Turn<'_>, settings: &Settings, request: &ObjectRequest<'_>) -> Result<Progress, Error> {
    slices::clear(turn)?;
    let mut calls = slices::tell(turn, settings.row.slices.others(request.bucket), &SliceInput::Remove)?;
    let remove = AccountInput::Remove { bucket: request.bucket.to_owned() };
    calls.push(turn.call((ACCOUNT, WRITE), settings.row.owner.as_bytes().to_vec(), encode(&remove))?);
    Ok(slices::done(calls))
}

#[cfg(test)]
mod tests {
    use millrace_api::objects::CannedAccess;

    use super::*;

    #[test]
    fn a_bucket_is_made_again_where_that_changes_nothing() {
        let row = |canned, ownership, has_lock: bool| BucketRow {
            owner: "o".to_owned(),
            grants: acl::of_new_bucket(&AccessInput::Canned(canned), "o", Ownership::default()).expect("valid").grants,
            ownership,
            object_lock: has_lock.then(ObjectLock::default),
            ..BucketRow::default()
        };
        let enforced = Some(Ownership::BucketOwnerEnforced);
        let writer = Some(Ownership::ObjectWriter);
        let (private, public) = (CannedAccess::Private, CannedAccess::PublicRead);
        for (there, asked, expected) in [
            (row(private, None, false), row(private, None, false), true),
            (row(public, None, false), row(public, None, false), true),
            (row(private, None, false), row(public, None, false), false),
            (row(public, None, false), row(private, None, false), false),
            (row(private, enforced, true), row(private, None, false), true),
            (row(private, enforced, false), row(private, enforced, false), true),
            (row(private, enforced, false), row(private, writer, false), false),
            (row(private, None, false), row(private, None, true), false),
        ] {
            assert_eq!(is_made_again(&there, &asked), expected, "{there:?} {asked:?}");
        }
    }
}
