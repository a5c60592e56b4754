//! A page of a list of a bucket with slices: the pages of all slices, put together.
//!
//! Each slice gives as many keys as the page may have. So the first ones of all are among them, wherever they are.

use std::cmp::Ordering;

use millrace_api::objects::{ListPage, ObjectOperation, ObjectReply, ObjectRequest};
use millrace_base::{Error, ErrorCode};

use crate::list::{self, PAGE};
use crate::names::{BUCKET, READ, bucket_key};
use crate::settings::Settings;
use crate::turn::{Progress, Turn};

/// Asks all slices for the page, and puts it together.
pub(crate) fn list(
    turn: &mut Turn<'_>,
    settings: &Settings,
    request: &ObjectRequest<'_>,
    input: &[u8],
) -> Result<Progress, Error> {
    let limit = match &request.operation {
        ObjectOperation::List(list) | ObjectOperation::ListVersions(list) | ObjectOperation::ListUploads(list) => {
            usize::from(list.limit).min(PAGE)
        }
        _ => 0,
    };
    let own = list::page(turn, &request.operation)?;
    let input = bytes::Bytes::copy_from_slice(input);
    let calls = settings
        .row
        .slices
        .others(request.bucket)
        .map(|place| turn.call((BUCKET, READ), bucket_key(&place), input.clone()))
        .collect::<Result<Vec<_>, _>>()?;
    Ok(Turn::then_all(calls, move |_, results| {
        let mut pages = vec![own];
        for result in results {
            pages.push(ObjectReply::from_bytes(result?)?.0);
        }
        Ok(Progress::Done(together(pages, limit)?.to_bytes(b"")))
    }))
}

/// The page that these pages are together.
fn together(pages: Vec<ObjectReply>, limit: usize) -> Result<ObjectReply, Error> {
    let (mut objects, mut versions, mut uploads) = (Vec::new(), Vec::new(), Vec::new());
    for page in pages {
        match page {
            ObjectReply::Objects(page) => objects.push(page),
            ObjectReply::Versions(page) => versions.push(page),
            ObjectReply::Uploads(page) => uploads.push(page),
            _ => return Err(Error::new(ErrorCode::Internal, "a slice answered a list with something else")),
        }
    }
    Ok(if !objects.is_empty() {
        ObjectReply::Objects(merged(objects, limit, |item| (&item.key, "")))
    } else if !versions.is_empty() {
        ObjectReply::Versions(merged(versions, limit, |item| (&item.object.key, &item.version)))
    } else {
        ObjectReply::Uploads(merged(uploads, limit, |item| (&item.key, &item.id)))
    })
}

/// Where a page stands in its items and its cut keys.
struct Front<T> {
    items: std::iter::Peekable<std::vec::IntoIter<T>>,
    cut_keys: std::iter::Peekable<std::vec::IntoIter<String>>,
}

/// Merges pages whose keys are in order. A key and all that belongs to it is in one of them; cut keys may be in several.
fn merged<T>(pages: Vec<ListPage<T>>, limit: usize, marker: fn(&T) -> (&String, &str)) -> ListPage<T> {
    let mut page = ListPage::default();
    let are_more = pages.iter().any(|page| page.next.is_some());
    let mut fronts: Vec<Front<T>> = pages
        .into_iter()
        .map(|page| Front {
            items: page.items.into_iter().peekable(),
            cut_keys: page.common_prefixes.into_iter().peekable(),
        })
        .collect();
    let mut next = None;
    for _ in 0..limit {
        let item = least(&mut fronts, |front| front.items.peek().map(|item| marker(item).0));
        let cut_key = least(&mut fronts, |front| front.cut_keys.peek());
        match (item, cut_key) {
            (None, None) => break,
            (Some((index, key)), cut_key) if cut_key.as_ref().is_none_or(|(_, cut_key)| key < *cut_key) => {
                let item = fronts[index].items.next();
                next = item.as_ref().map(marker).map(|(key, id)| (key.clone(), id.to_owned()));
                page.items.extend(item);
            }
            (_, Some((_, cut_key))) => {
                for front in &mut fronts {
                    front.cut_keys.next_if(|other| *other == cut_key);
                }
                next = Some((cut_key.clone(), String::new()));
                page.common_prefixes.push(cut_key);
            }
            (Some(_), None) => {}
        }
    }
    let is_left = fronts.iter_mut().any(|front| front.items.peek().is_some() || front.cut_keys.peek().is_some());
    page.next = next.filter(|_| are_more || is_left);
    page
}

/// The page with the smallest key of this kind, and that key. Of equal ones the first.
fn least<T>(fronts: &mut [Front<T>], key: impl Fn(&mut Front<T>) -> Option<&String>) -> Option<(usize, String)> {
    let mut least: Option<(usize, String)> = None;
    for (index, front) in fronts.iter_mut().enumerate() {
        if let Some(key) = key(front)
            && least.as_ref().is_none_or(|(_, known)| key.cmp(known) == Ordering::Less)
        {
            least = Some((index, key.clone()));
        }
    }
    least
}
