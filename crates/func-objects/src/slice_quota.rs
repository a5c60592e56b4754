//! The quota of a bucket with slices. Each slice has a share of it, so that a write needs no other slice as long as it
//! fits into the share. Together the shares are never more than the quota.
//!
//! A write that does not fit counts what is in all slices, and shares what is left anew. So a write is refused exactly if
//! the bucket has no room for it. Near its quota a bucket is slow, as then each write is one of all slices.

use std::rc::Rc;

use bytes::Bytes;
use millrace_api::objects::{ObjectReply, ObjectRequest, Refusal, Usage};
use millrace_base::{Error, Value, ValueKind};

use crate::bucket::{hand_on, usage};
use crate::names::{BUCKET, SLICE, SLICE_USAGE, bucket_key};
use crate::rows::{SHARE, UsageRow};
use crate::settings::Settings;
use crate::slices::tell;
use crate::turn::{Progress, Turn};
use crate::wire::{SliceInput, decode, encode};

fn exceeded(quota_bytes: u64, used_bytes: u64) -> Error {
    Refusal::QuotaExceeded.error(format!("the bucket may hold {quota_bytes} bytes and has {used_bytes}"))
}

/// Whether so many bytes more fit into the slice whose turn it is, as far as it knows by itself.
fn fits(turn: &mut Turn<'_>, more_bytes: u64) -> Result<bool, Error> {
    let share = turn.host.get(SHARE)?.and_then(|value| value.content().try_into().ok());
    let Some(share_bytes) = share.map(u64::from_be_bytes) else { return Ok(false) };
    Ok(usage(turn)?.size_bytes.saturating_add(more_bytes) <= share_bytes)
}

/// The places of all slices but the one whose turn it is.
fn others(turn: &Turn<'_>, settings: &Settings) -> Vec<String> {
    let (place, bucket) = (turn.place(), turn.bucket());
    let all = std::iter::once(bucket.to_owned()).chain(settings.row.slices.others(bucket));
    all.filter(|other| other != place).collect()
}

/// Asks all other slices how much is in them, and goes on with their bytes.
fn ask_others(
    turn: &mut Turn<'_>,
    settings: &Settings,
    then: impl FnOnce(UsageRow) -> Result<ObjectReply, Error> + 'static,
) -> Result<Progress, Error> {
    let own = usage(turn)?;
    let mut calls = Vec::new();
    for place in others(turn, settings) {
        calls.push(turn.call((BUCKET, SLICE_USAGE), bucket_key(&place), Bytes::new())?);
    }
    if calls.is_empty() {
        return Ok(Progress::Done(then(own)?.to_bytes(b"")));
    }
    Ok(Turn::then_all(calls, move |_, results| {
        let mut all = own;
        for result in results {
            let other: UsageRow = decode(&result?)?;
            all.objects = all.objects.saturating_add(other.objects);
            all.size_bytes = all.size_bytes.saturating_add(other.size_bytes);
        }
        Ok(Progress::Done(then(all)?.to_bytes(b"")))
    }))
}

/// Answers how much is in the bucket.
pub(crate) fn usage_of_all(turn: &mut Turn<'_>, settings: &Settings) -> Result<Progress, Error> {
    let quota_bytes = settings.row.quota_bytes;
    ask_others(turn, settings, move |UsageRow { objects, size_bytes }| {
        Ok(ObjectReply::Usage(Usage { objects, size_bytes, quota_bytes }))
    })
}

/// Answers whether a write of so many bytes may come.
pub(crate) fn check(turn: &mut Turn<'_>, settings: &Settings, more_bytes: u64) -> Result<Progress, Error> {
    let quota_bytes = settings.row.quota_bytes.unwrap_or(u64::MAX);
    if settings.row.quota_bytes.is_none() || fits(turn, more_bytes)? {
        return Ok(Progress::Done(ObjectReply::Done.to_bytes(b"")));
    }
    ask_others(turn, settings, move |UsageRow { size_bytes, .. }| match size_bytes.checked_add(more_bytes) {
        Some(after) if after <= quota_bytes => Ok(ObjectReply::Done),
        _ => Err(exceeded(quota_bytes, size_bytes)),
    })
}

/// Makes room for a write in the slices' shares, and runs it then. `None`: there is room already.
pub(crate) fn make_room(
    turn: &mut Turn<'_>,
    settings: &Rc<Settings>,
    more_bytes: u64,
    input: &[u8],
) -> Result<Option<Progress>, Error> {
    let Some(quota_bytes) = settings.row.quota_bytes else { return Ok(None) };
    if settings.row.slices.count() == 1 {
        let used_bytes = usage(turn)?.size_bytes;
        let fits = used_bytes.saturating_add(more_bytes) <= quota_bytes;
        return if fits { Ok(None) } else { Err(exceeded(quota_bytes, used_bytes)) };
    }
    if fits(turn, more_bytes)? {
        return Ok(None);
    }
    let others = others(turn, settings);
    let calls = tell(turn, others.iter().cloned(), &SliceInput::Usage)?;
    let (settings, input) = (Rc::clone(settings), input.to_vec());
    Ok(Some(Turn::then_all(calls, move |turn, results| {
        let used = results.into_iter().map(|result| Ok(decode::<UsageRow>(&result?)?.size_bytes));
        let (own_bytes, used) = (usage(turn)?.size_bytes, used.collect::<Result<Vec<u64>, Error>>()?);
        let used_bytes = used.iter().fold(own_bytes, |total, used| total.saturating_add(*used));
        let left = used_bytes.checked_add(more_bytes).and_then(|needed| quota_bytes.checked_sub(needed));
        let left_bytes = left.ok_or_else(|| exceeded(quota_bytes, used_bytes))?;
        let each_bytes = left_bytes / (used.len() as u64 + 1);
        let mut calls = Vec::new();
        for (place, used_bytes) in others.iter().zip(&used) {
            let share = SliceInput::Share(used_bytes + each_bytes);
            calls.push(turn.call((BUCKET, SLICE), bucket_key(place), encode(&share))?);
        }
        let own_share = own_bytes + more_bytes + each_bytes;
        turn.host.set(SHARE, Value::new(ValueKind::Bytes, &own_share.to_be_bytes()))?;
        Ok(Turn::then_all(calls, move |turn, results| {
            results.into_iter().collect::<Result<Vec<_>, _>>()?;
            let request = ObjectRequest::from_bytes(&input)?;
            hand_on(turn, &settings, &request, &input)
        }))
    })))
}
