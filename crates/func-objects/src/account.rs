//! A user's account: which buckets are theirs. It lies in a shard of its own.

use bytes::Bytes;
use millrace_api::objects::{BucketInfo, ListPage, ObjectOperation, ObjectReply, ObjectRequest, Refusal};
use millrace_base::{Error, Value, ValueKind};
use millrace_func::ScanRequest;

use crate::turn::{Progress, Turn};
use crate::wire::{AccountInput, decode};

/// Buckets of one user. S3's default bound.
const BUCKETS: usize = 10_000;

/// A field is a bucket's name behind this.
const BUCKET: &str = "b";

/// Adds or takes away a bucket.
pub(crate) fn write(turn: &mut Turn<'_>, input: &[u8]) -> Result<Progress, Error> {
    match decode(input)? {
        AccountInput::Add { bucket, created_ms } => {
            let all = ScanRequest { prefix: BUCKET.into(), after: None, limit: BUCKETS };
            if turn.host.scan(&all)?.len() >= BUCKETS {
                return Err(Refusal::TooManyBuckets.error("You have attempted to create more buckets than allowed"));
            }
            let value = Value::new(ValueKind::Bytes, &created_ms.to_be_bytes());
            turn.host.set([BUCKET, &bucket].concat().as_bytes(), value)?;
        }
        AccountInput::Remove { bucket } => {
            turn.host.delete([BUCKET, &bucket].concat().as_bytes())?;
        }
    }
    Ok(Progress::Done(Bytes::new()))
}

/// Lists the requester's own buckets.
pub(crate) fn read(turn: &mut Turn<'_>, key: &[u8], input: &[u8]) -> Result<Progress, Error> {
    let request = ObjectRequest::from_bytes(input)?;
    let ObjectOperation::ListBuckets(list) = &request.operation else {
        return Err(Refusal::InvalidRequest.error("an account is asked for its buckets only"));
    };
    let is_own = request.requester.id.is_some_and(|id| id.as_bytes() == key);
    if !is_own && !request.requester.is_system {
        return Err(Refusal::AccessDenied.error("Access Denied"));
    }
    let field = |name: &str| [BUCKET, name].concat().into_bytes();
    let limit = if list.limit == 0 { BUCKETS } else { usize::from(list.limit) };
    let scan = ScanRequest {
        prefix: field(&list.prefix),
        after: (!list.after.is_empty()).then(|| field(&list.after)),
        limit: limit + 1,
    };
    let mut rows = turn.host.scan(&scan)?;
    let mut page = ListPage::default();
    let is_cut = rows.len() > limit;
    rows.truncate(limit);
    for (field, value) in rows {
        let name = String::from_utf8_lossy(&field[BUCKET.len()..]).into_owned();
        let created_ms = value.content().try_into().map_or(0, u64::from_be_bytes);
        let owner = String::from_utf8_lossy(key).into_owned();
        page.items.push(BucketInfo { name, created_ms, owner, ..BucketInfo::default() });
    }
    if is_cut {
        page.next = page.items.last().map(|last| (last.name.clone(), String::new()));
    }
    Ok(Progress::Done(ObjectReply::Buckets(page).to_bytes(b"")))
}
