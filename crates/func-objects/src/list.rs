//! Pages of lists: keys in order, cut behind a delimiter, versions, uploads.
//!
//! A page is one scan. Keys that a cut key stands for are passed over in one seek, however many they are.

use millrace_api::objects::{ListPage, ListRequest, ListedUpload, ObjectOperation, ObjectReply, Refusal};
use millrace_base::{Error, Value};
use millrace_func::{EntityRows, EntityScan, Visit};
use serde::de::DeserializeOwned;

use crate::names::{OBJECT, UPLOAD, behind_place, bucket_key};
use crate::rows::{NULL, UPLOAD as UPLOAD_FIELD, UploadRow, VERSION, VersionRow, from_value, ordered};
use crate::turn::Turn;
use crate::version_id::order_of;

/// Keys on a page. S3's bound.
pub(crate) const PAGE: usize = 1000;

/// What becomes of an entity that a list comes to.
enum Taken {
    /// So many items of it are on the page.
    Items(usize),
    /// The page was full before all of it was on it.
    Full,
}

/// Which entities a list goes over, and what of each.
struct Walk<'a, R> {
    place: &'a str,
    service: u16,
    field: &'a [u8],
    is_prefix: bool,
    request: &'a ListRequest,
    /// The key in an entity's key behind the bucket.
    key_of: fn(&[u8]) -> &[u8],
    /// What the list needs to know of an entity. One of which that is nothing stands behind no cut key, either.
    read: fn(&EntityRows) -> Result<Option<R>, Error>,
    /// Where to begin, as far as the request says.
    from: Vec<u8>,
    /// Of the entity of that key: only fields behind this.
    behind_field: Vec<u8>,
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

/// Puts an entity on the page, for whose items there is so much room.
type Take<'a, T, R> = dyn FnMut(&mut ListPage<T>, &str, (R, &EntityRows), usize) -> Result<Taken, Error> + 'a;

impl<R> Walk<'_, R> {
    /// Goes over the list until the page is full.
    fn run<T>(&self, turn: &mut Turn<'_>, page: &mut ListPage<T>, take: &mut Take<'_, T, R>) -> Result<(), Error> {
        let limit = usize::from(self.request.limit).min(PAGE);
        if limit == 0 {
            return Ok(());
        }
        let slice = bucket_key(self.place);
        let scan = EntityScan {
            service: self.service,
            prefix: [&slice[..], self.request.prefix.as_bytes()].concat(),
            from: [&slice[..], &self.from].concat(),
            behind_field: self.behind_field.clone(),
            field: self.field.to_vec(),
            is_prefix: self.is_prefix,
            // One more than there is room for says that the page is full.
            fields_limit: limit + 1,
        };
        let (mut count, mut ended) = (0, Ok(false));
        turn.host.built_in()?.visit_entities(
            &scan,
            &mut |entity| match self.visit(page, &mut count, &entity, take) {
                Ok(Some(next)) => next,
                Ok(None) => {
                    ended = Ok(true);
                    Visit::Stop
                }
                Err(error) => {
                    ended = Err(error);
                    Visit::Stop
                }
            },
        )?;
        if !ended? {
            page.next = None;
        }
        Ok(())
    }

    /// Puts one entity on the page, or the cut key that it stands behind. `None`: the page was full before.
    fn visit<T>(
        &self,
        page: &mut ListPage<T>,
        count: &mut usize,
        entity: &EntityRows,
        take: &mut Take<'_, T, R>,
    ) -> Result<Option<Visit>, Error> {
        let limit = usize::from(self.request.limit).min(PAGE);
        let key = String::from_utf8_lossy((self.key_of)(behind_place(&entity.key, self.place)));
        let Some(row) = (self.read)(entity)? else {
            return Ok(Some(Visit::Next));
        };
        let Some(cut) = cut(&key, self.request) else {
            return match take(page, &key, (row, entity), limit - *count)? {
                Taken::Items(items) => {
                    *count += items;
                    Ok(Some(Visit::Next))
                }
                Taken::Full => Ok(None),
            };
        };
        // One that the page before ended with, or that comes before what was asked for, is not told again.
        if cut > self.request.after.as_str() {
            if *count >= limit {
                return Ok(None);
            }
            page.common_prefixes.push(cut.to_owned());
            page.next = Some((cut.to_owned(), String::new()));
            *count += 1;
        }
        let next = behind(&[&bucket_key(self.place)[..], cut.as_bytes()].concat());
        Ok(Some(next.map_or(Visit::Stop, Visit::Seek)))
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

/// A page of a slice, as the operation asks for it.
pub(crate) fn page(turn: &mut Turn<'_>, operation: &ObjectOperation) -> Result<ObjectReply, Error> {
    let place = turn.place();
    match operation {
        ObjectOperation::List(request) => Ok(ObjectReply::Objects(objects(turn, place, request)?)),
        ObjectOperation::ListVersions(request) => Ok(ObjectReply::Versions(versions(turn, place, request)?)),
        ObjectOperation::ListUploads(request) => Ok(ObjectReply::Uploads(uploads(turn, place, request)?)),
        _ => Err(Refusal::InvalidRequest.error("this is not a list of a bucket")),
    }
}

/// Current objects.
fn objects(
    turn: &mut Turn<'_>,
    place: &str,
    request: &ListRequest,
) -> Result<ListPage<millrace_api::objects::ListedObject>, Error> {
    let walk = Walk {
        place,
        service: OBJECT,
        field: VERSION,
        is_prefix: false,
        request,
        key_of: |key| key,
        read: |entity| Ok(first::<VersionRow>(entity)?.filter(|row| !row.is_delete_marker)),
        from: after_key(request),
        behind_field: Vec::new(),
    };
    let mut page = ListPage::default();
    walk.run(turn, &mut page, &mut |page, key, (row, _), room| {
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
fn versions(
    turn: &mut Turn<'_>,
    place: &str,
    request: &ListRequest,
) -> Result<ListPage<millrace_api::objects::ListedVersion>, Error> {
    let (from, behind_field) = if request.after_id.is_empty() {
        (after_key(request), Vec::new())
    } else {
        (request.after.as_bytes().to_vec(), field_of_version(turn, place, request)?)
    };
    let walk = Walk {
        place,
        service: OBJECT,
        field: VERSION,
        is_prefix: true,
        request,
        key_of: |key| key,
        read: |_| Ok(Some(())),
        from,
        behind_field,
    };
    let mut page = ListPage::default();
    walk.run(turn, &mut page, &mut |page, key, ((), entity), room| {
        let mut taken = 0;
        for (field, value) in &entity.fields {
            if taken >= room {
                page.next = Some(last_of(page, request));
                return Ok(Taken::Full);
            }
            let row: VersionRow = from_value(value)?;
            let item = row.listed_version(key.to_owned(), field == VERSION);
            page.next = Some((key.to_owned(), item.version.clone()));
            page.items.push(item);
            taken += 1;
        }
        Ok(Taken::Items(taken))
    })?;
    Ok(page)
}

/// The field that the version at a marker has, or had before it went. Empty: nobody can say, so the object's versions
/// come again.
fn field_of_version(turn: &mut Turn<'_>, place: &str, request: &ListRequest) -> Result<Vec<u8>, Error> {
    if let Some(order) = order_of(&request.after_id) {
        return Ok(ordered(VERSION, order));
    }
    if request.after_id != "null" {
        return Ok(Vec::new());
    }
    let key = [&bucket_key(place)[..], request.after.as_bytes()].concat();
    let mut read = |field: &[u8]| -> Result<Option<Value>, Error> {
        let (prefix, field) = (key.clone(), field.to_vec());
        let scan = EntityScan { service: OBJECT, prefix, field, fields_limit: 1, ..EntityScan::default() };
        let mut found = None;
        turn.host.built_in()?.visit_entities(&scan, &mut |entity| {
            if entity.key == key {
                found = entity.fields.into_iter().next().map(|(_, value)| value);
            }
            Visit::Stop
        })?;
        Ok(found)
    };
    if let Some(order) = read(NULL)?.and_then(|value| Some(u64::from_be_bytes(value.content().try_into().ok()?))) {
        return Ok(ordered(VERSION, order));
    }
    let current: Option<VersionRow> = read(VERSION)?.as_ref().map(from_value).transpose()?;
    Ok(if current.is_some_and(|row| row.id.is_none()) { VERSION.to_vec() } else { Vec::new() })
}

/// The row in the first field.
fn first<T: DeserializeOwned>(entity: &EntityRows) -> Result<Option<T>, Error> {
    entity.fields.first().map(|(_, value)| from_value(value)).transpose()
}

/// An upload's key ends with a zero byte and its id.
fn split_upload(key: &[u8]) -> (&[u8], &[u8]) {
    match key.iter().rposition(|byte| *byte == 0) {
        Some(at) => (&key[..at], &key[at + 1..]),
        None => (key, b""),
    }
}

/// Uploads under way.
fn uploads(turn: &mut Turn<'_>, place: &str, request: &ListRequest) -> Result<ListPage<ListedUpload>, Error> {
    let from = if request.after.is_empty() {
        Vec::new()
    } else if request.after_id.is_empty() {
        [request.after.as_bytes(), b"\x01"].concat()
    } else {
        [request.after.as_bytes(), b"\0", request.after_id.as_bytes(), b"\0"].concat()
    };
    let walk = Walk {
        place,
        service: UPLOAD,
        field: UPLOAD_FIELD,
        is_prefix: false,
        request,
        key_of: |key| split_upload(key).0,
        read: |entity| Ok(first::<UploadRow>(entity)?.filter(|row| row.completed.is_none())),
        from,
        behind_field: Vec::new(),
    };
    let mut page = ListPage::default();
    walk.run(turn, &mut page, &mut |page, key, (row, entity), room| {
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

/// Whether a slice has any version of any object.
pub(crate) fn has_objects(turn: &mut Turn<'_>, place: &str) -> Result<bool, Error> {
    let scan = EntityScan {
        service: OBJECT,
        prefix: bucket_key(place),
        field: VERSION.to_vec(),
        fields_limit: 1,
        ..EntityScan::default()
    };
    let mut has_any = false;
    turn.host.built_in()?.visit_entities(&scan, &mut |_| {
        has_any = true;
        Visit::Stop
    })?;
    Ok(has_any)
}

/// The keys of a slice's uploads, also of completed ones: at most `limit`.
pub(crate) fn upload_keys(turn: &mut Turn<'_>, place: &str, limit: usize) -> Result<Vec<Vec<u8>>, Error> {
    turn.host.keys(UPLOAD, &bucket_key(place), None, limit)
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
