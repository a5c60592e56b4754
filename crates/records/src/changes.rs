//! The changes of a type as server-sent events.
//!
//! Promises: each event's `id` is the cursor behind it. So a client that comes back with the last `id` it saw misses
//! nothing and gets nothing twice. Nothing is read ahead: the next page is asked for when the one before has left.
//! Knows no clock: who drives it waits between pages.

use std::borrow::Cow;

use bytes::Bytes;
use http::HeaderName;
use millrace_api as api;
use millrace_api::{Principal, RecordOperation, RecordRequest};
use millrace_base::{Error, ErrorCode};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::read::{change_page, page_items};
use crate::request::Request;
use crate::url::refused;

static LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// Bytes of a cursor that is taken: it names a place in each shard.
const CURSOR_BYTES: usize = 128 << 10;

/// One reader of a type's changes.
pub struct ChangeStream<B> {
    backend: B,
    who: Principal,
    type_name: String,
    cursor: String,
    limit: u32,
}

impl<B: api::Records> ChangeStream<B> {
    /// A reader that begins where `Last-Event-ID` or the query's `cursor` says.
    ///
    /// # Errors
    /// `bad-request` for what cannot be read.
    pub fn open(backend: &B, who: &Principal, request: &Request<'_>) -> Result<Self, Error> {
        let (cursor, limit) = change_page(request.query)?;
        let last = request.headers.get(&LAST_EVENT_ID).map(|value| value.to_str()).transpose();
        let last = last.map_err(|_| refused("Last-Event-ID is not text"))?.filter(|last| !last.is_empty());
        let cursor = last.map_or_else(|| cursor.map(Cow::into_owned).unwrap_or_default(), str::to_owned);
        if cursor.len() > CURSOR_BYTES {
            return Err(refused("the cursor is too long"));
        }
        let type_name = request.type_name()?.into_owned();
        Ok(Self { backend: backend.clone(), who: who.clone(), type_name, cursor, limit: page_items(limit)? })
    }

    /// The first page. Says where the stream begins even if nothing has changed yet. So a client that is cut off before
    /// the first event comes back to the same place.
    ///
    /// # Errors
    /// Those of reading changes.
    pub async fn first(&mut self) -> Result<Bytes, Error> {
        let (mut text, count) = self.page().await?;
        if count == 0 {
            text = format!("id: {}\n\n", self.cursor);
        }
        Ok(text.into())
    }

    /// What has changed since: some events, or `None`.
    ///
    /// # Errors
    /// Those of reading changes.
    pub async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        let (text, count) = self.page().await?;
        Ok((count > 0).then(|| text.into()))
    }

    async fn page(&mut self) -> Result<(String, usize), Error> {
        loop {
            let operation = RecordOperation::Changes { cursor: &self.cursor, limit: self.limit };
            let request = RecordRequest { type_name: &self.type_name, id: None, operation, idempotency_key: None };
            let reply = self.backend.record(&self.who, request).reply().await?;
            let page = Page::read(&reply.body)?;
            let Some(text) = page.events() else {
                // The changes do not say where they are: one at a time, the page says it.
                self.limit = 1;
                continue;
            };
            let count = page.changes.len();
            self.cursor = page.cursor.into_owned();
            return Ok((text, count));
        }
    }
}

/// The event that ends a stream which cannot go on.
#[must_use]
pub fn error_event(problem: &[u8]) -> Bytes {
    let mut text = b"event: error\ndata: ".to_vec();
    text.extend_from_slice(problem);
    text.extend_from_slice(b"\n\n");
    text.into()
}

/// A page of changes as the engine writes it.
#[derive(Deserialize)]
struct Page<'a> {
    #[serde(borrow)]
    changes: Vec<&'a RawValue>,
    #[serde(borrow)]
    cursor: Cow<'a, str>,
}

impl<'a> Page<'a> {
    fn read(body: &'a [u8]) -> Result<Self, Error> {
        let page: Self = serde_json::from_slice(body)
            .map_err(|error| Error::new(ErrorCode::Internal, format!("a page of changes cannot be read: {error}")))?;
        if page.cursor.contains(['\n', '\r', '\0']) {
            return Err(Error::new(ErrorCode::Internal, "a cursor holds a line break"));
        }
        Ok(page)
    }

    /// The page as events. Each has the cursor behind it as its id: the last one the page's, those
    /// before it what they say themselves. `None` if one of those does not say it.
    fn events(&self) -> Option<String> {
        #[derive(Deserialize)]
        struct OwnCursor<'a> {
            #[serde(borrow, default)]
            cursor: Option<Cow<'a, str>>,
        }
        let mut text = String::new();
        for (index, change) in self.changes.iter().enumerate() {
            let own = serde_json::from_str::<OwnCursor<'_>>(change.get()).ok().and_then(|place| place.cursor);
            let id = if index + 1 == self.changes.len() { Some(&self.cursor) } else { own.as_ref() };
            text.push_str("id: ");
            text.push_str(id.filter(|id| !id.contains(['\n', '\r', '\0']))?);
            text.push('\n');
            // A line break in JSON text is white space.
            for line in change.get().lines() {
                text.push_str("data: ");
                text.push_str(line);
                text.push('\n');
            }
            text.push('\n');
        }
        Some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_becomes_events_with_ids() {
        let body = br#"{"changes":[{"id":"a","cursor":"1.0"},{"id":"b",
"cursor":"1.1"}],"cursor":"2.1"}"#;
        let page = Page::read(body).expect("a page");
        assert_eq!(
            page.events().as_deref(),
            Some(
                "id: 1.0\ndata: {\"id\":\"a\",\"cursor\":\"1.0\"}\n\nid: 2.1\ndata: {\"id\":\"b\",\ndata: \"cursor\":\"1.1\"}\n\n"
            )
        );
        let plain = br#"{"changes":[{"id":"a"},{"id":"b"}],"cursor":"2"}"#;
        assert_eq!(Page::read(plain).expect("a page").events(), None, "nobody knows where the first one is");
        let single = br#"{"changes":[{"id":"a"}],"cursor":"2"}"#;
        let events = Page::read(single).expect("a page").events();
        assert_eq!(events.as_deref(), Some("id: 2\ndata: {\"id\":\"a\"}\n\n"));
        for bad in [&b"{}"[..], b"[]", br#"{"changes":[],"cursor":"a\nb"}"#] {
            assert!(Page::read(bad).is_err());
        }
    }
}
