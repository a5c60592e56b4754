//! Pages of lists: keys in order, cut behind a delimiter, versions, uploads.
//!
//! A page is read in pieces. Keys that a cut key stands for are passed over in one seek, however many they are.

use millrace_api::objects::{ListPage, ListRequest, ListedUpload};
use millrace_base::{Error, limits};
use millrace_func::{EntityRows, EntityScan};

use crate::names::{OBJECT, UPLOAD, behind_bucket, bucket_key};
use crate::rows::{UPLOAD as UPLOAD_FIELD, UploadRow, VERSION, VersionRow, from_value};
use crate::turn::Turn;
use crate::version_id::order_of;

/// Keys on a page. S3's bound.
const PAGE: usize = 1000;

/// Keys read in the first piece behind a cut key: the next one may soon come.
const FIRST_PIECE: usize = 16;

/// Versions of one object that a page looks at.
const VERSIONS: usize = limits::SCAN_ROWS;

/// What becomes of an entity that a list comes to.
enum Taken {
    /// So many items of it are on the page.
    Items(usize),
    /// The page was full before all of it was on it.
    Full,
}

/// Which entities a list goes over, and what of each.
struct Walk<'a> {
    bucket: &'a str,
    service: u16,
    field: &'a [u8],
    is_prefix: bool,
    request: &'a ListRequest,
    /// The key in an entity's key behind the bucket.
    key_of: fn(&[u8]) -> &[u8],
    /// Where to begin, as far as the request says.
    from: Vec<u8>,
}

/// The smallest bytes behind all that begin with these.
fn behind(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte != 0xFF)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Some(end)
}

/// The cut key that a key is shown as, if it is.
fn cut<'k>(key: &'k str, request: &ListRequest) -> Option<&'k str> {
    if request.delimiter.is_empty() {
        return None;
    }
    let rest = key.get(request.prefix.len()..)?;
    let at = rest.find(&request.delimiter)?;
    Some(&key[..request.prefix.len() + at + request.delimiter.len()])
}

impl Walk<'_> {
    /// Goes over the list until the page is full.
    fn run<T>(
        &self,
        turn: &mut Turn<'_>,
        page: &mut ListPage<T>,
        mut take: impl FnMut(&mut ListPage<T>, &str, &EntityRows, usize) -> Result<Taken, Error>,
    ) -> Result<(), Error> {
        let limit = usize::from(self.request.limit).min(PAGE);
        let bucket = bucket_key(self.bucket);
        let prefix = [&bucket[..], self.request.prefix.as_bytes()].concat();
        let mut from = [&bucket[..], &self.from].concat();
        let mut piece = if self.request.delimiter.is_empty() { limit + 1 } else { FIRST_PIECE };
        let mut count = 0;
        if limit == 0 {
            return Ok(());
        }
        'pieces: loop {
            let scan = EntityScan {
                service: self.service,
                prefix: prefix.clone(),
                from: std::mem::take(&mut from),
                field: self.field.to_vec(),
                is_prefix: self.is_prefix,
                fields_limit: VERSIONS,
                limit: piece.min(limit + 1),
                max_bytes: limits::SCAN_BYTES / 4,
            };
            let found = turn.host.entities(&scan)?;
            for entity in &found.entities {
                let key = String::from_utf8_lossy((self.key_of)(behind_bucket(&entity.key, self.bucket))).into_owned();
                if let Some(cut) = cut(&key, self.request) {
                    // One that the page before ended with, or that comes before what was asked for, is not told again.
                    if cut > self.request.after.as_str() {
                        if count >= limit {
                            page.next = Some(last_of(page, self.request));
                            return Ok(());
                        }
                        page.common_prefixes.push(cut.to_owned());
                        page.next = Some((cut.to_owned(), String::new()));
                        count += 1;
                    }
                    match behind(&[&bucket[..], cut.as_bytes()].concat()) {
                        Some(next) => from = next,
                        None => break 'pieces,
                    }
                    piece = FIRST_PIECE;
                    continue 'pieces;
                }
                match take(page, &key, entity, limit - count)? {
                    Taken::Items(items) => count += items,
                    Taken::Full => return Ok(()),
                }
            }
            match found.next {
                Some(next) => from = next,
                None => break,
            }
            piece *= 2;
        }
        page.next = None;
        Ok(())
    }
}

/// Where a page that ends here is gone on with. It is kept up as items are added.
fn last_of<T>(page: &ListPage<T>, request: &ListRequest) -> (String, String) {
    page.next.clone().unwrap_or_else(|| (request.after.clone(), request.after_id.clone()))
}

/// Where keys begin that come behind a marker.
fn after_key(request: &ListRequest) -> Vec<u8> {
    if request.after.is_empty() { Vec::new() } else { [request.after.as_bytes(), b"\0"].concat() }
}

/// Current objects.
pub(crate) fn objects(
    turn: &mut Turn<'_>,
    bucket: &str,
    request: &ListRequest,
) -> Result<ListPage<millrace_api::objects::ListedObject>, Error> {
    let walk = Walk {
        bucket,
        service: OBJECT,
        field: VERSION,
        is_prefix: false,
        request,
        key_of: |key| key,
        from: after_key(request),
    };
    let mut page = ListPage::default();
    walk.run(turn, &mut page, |page, key, entity, room| {
        let Some((_, value)) = entity.fields.first() else { return Ok(Taken::Items(0)) };
        let row: VersionRow = from_value(value)?;
        if row.is_delete_marker {
            return Ok(Taken::Items(0));
        }
        if room == 0 {
            page.next = Some(last_of(page, request));
            return Ok(Taken::Full);
        }
        page.items.push(row.listed(key.to_owned()));
        page.next = Some((key.to_owned(), String::new()));
        Ok(Taken::Items(1))
    })?;
    Ok(page)
}

/// All versions, newest first.
pub(crate) fn versions(
    turn: &mut Turn<'_>,
    bucket: &str,
    request: &ListRequest,
) -> Result<ListPage<millrace_api::objects::ListedVersion>, Error> {
    let from = if request.after_id.is_empty() { after_key(request) } else { request.after.as_bytes().to_vec() };
    let walk = Walk { bucket, service: OBJECT, field: VERSION, is_prefix: true, request, key_of: |key| key, from };
    let mut page = ListPage::default();
    walk.run(turn, &mut page, |page, key, entity, room| {
        let mut rows: Vec<(bool, VersionRow)> = Vec::with_capacity(entity.fields.len());
        for (field, value) in &entity.fields {
            rows.push((field == VERSION, from_value(value)?));
        }
        let skipped = if key == request.after && !request.after_id.is_empty() {
            // One that went since the last page still says by its id where it lay.
            let is_it = |(_, row): &(bool, VersionRow)| row.shown_id() == request.after_id;
            let order = order_of(&request.after_id);
            let lay = || order.map_or(0, |order| rows.partition_point(|(_, row)| row.order <= order));
            rows.iter().position(is_it).map_or_else(lay, |at| at + 1)
        } else {
            0
        };
        let mut taken = 0;
        for (is_latest, row) in rows.into_iter().skip(skipped) {
            if taken >= room {
                page.next = Some(last_of(page, request));
                return Ok(Taken::Full);
            }
            let item = row.listed_version(key.to_owned(), is_latest);
            page.next = Some((key.to_owned(), item.version.clone()));
            page.items.push(item);
            taken += 1;
        }
        Ok(Taken::Items(taken))
    })?;
    Ok(page)
}

/// An upload's key ends with a zero byte and its id.
fn split_upload(key: &[u8]) -> (&[u8], &[u8]) {
    match key.iter().rposition(|byte| *byte == 0) {
        Some(at) => (&key[..at], &key[at + 1..]),
        None => (key, b""),
    }
}

/// Uploads under way.
pub(crate) fn uploads(
    turn: &mut Turn<'_>,
    bucket: &str,
    request: &ListRequest,
) -> Result<ListPage<ListedUpload>, Error> {
    let from = if request.after.is_empty() {
        Vec::new()
    } else if request.after_id.is_empty() {
        [request.after.as_bytes(), b"\x01"].concat()
    } else {
        [request.after.as_bytes(), b"\0", request.after_id.as_bytes(), b"\0"].concat()
    };
    let walk = Walk {
        bucket,
        service: UPLOAD,
        field: UPLOAD_FIELD,
        is_prefix: false,
        request,
        key_of: |key| split_upload(key).0,
        from,
    };
    let mut page = ListPage::default();
    walk.run(turn, &mut page, |page, key, entity, room| {
        let Some((_, value)) = entity.fields.first() else { return Ok(Taken::Items(0)) };
        let row: UploadRow = from_value(value)?;
        if row.completed.is_some() {
            return Ok(Taken::Items(0));
        }
        if room == 0 {
            page.next = Some(last_of(page, request));
            return Ok(Taken::Full);
        }
        let id = String::from_utf8_lossy(split_upload(&entity.key).1).into_owned();
        page.next = Some((key.to_owned(), id.clone()));
        page.items.push(row.listed(key.to_owned(), id));
        Ok(Taken::Items(1))
    })?;
    Ok(page)
}

/// Whether a bucket has any version of any object.
pub(crate) fn has_objects(turn: &mut Turn<'_>, bucket: &str) -> Result<bool, Error> {
    let prefix = bucket_key(bucket);
    let scan = EntityScan {
        service: OBJECT,
        from: prefix.clone(),
        prefix,
        field: VERSION.to_vec(),
        limit: 1,
        max_bytes: limits::SCAN_BYTES,
        ..EntityScan::default()
    };
    Ok(!turn.host.entities(&scan)?.entities.is_empty())
}

/// The keys of a bucket's uploads, also of completed ones: at most `limit`.
pub(crate) fn upload_keys(turn: &mut Turn<'_>, bucket: &str, limit: usize) -> Result<Vec<Vec<u8>>, Error> {
    turn.host.keys(UPLOAD, &bucket_key(bucket), None, limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_cut_behind_the_first_delimiter_after_the_prefix() {
        let request = |prefix: &str, delimiter: &str| ListRequest {
            prefix: prefix.to_owned(),
            delimiter: delimiter.to_owned(),
            ..ListRequest::default()
        };
        for (key, prefix, delimiter, cut_key) in [
            ("a/b/c", "", "/", Some("a/")),
            ("a/b/c", "a/", "/", Some("a/b/")),
            ("a/b/c", "a", "/", Some("a/")),
            ("abc", "", "/", None),
            ("a/b", "", "", None),
            ("axxb", "", "xx", Some("axx")),
            ("/a", "/", "/", None),
            ("//a", "/", "/", Some("//")),
        ] {
            assert_eq!(cut(key, &request(prefix, delimiter)), cut_key, "{key} {prefix} {delimiter}");
        }
    }
}
