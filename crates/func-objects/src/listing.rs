//! One page of a list, from keys that come in order.
//!
//! [`Listing`] says where to look next, takes what is found there, and says whether to go on, to jump past a common
//! prefix, or to stop. So a page reads about as many keys as it shows, even if a common prefix hides a million.
//! It must not know how keys are stored or what the items are.

use millrace_api::objects::{ListPage, ListRequest};

/// Larger than every byte of a key, which is UTF-8. A prefix with this byte behind it is past all keys of the prefix.
const PAST: u8 = 0xFF;

/// What to do after an item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Flow {
    /// Go on with the next one.
    Next,
    /// Go on after this position: nothing before it can be shown. Going on with the next one gives the same page.
    SeekAfter(Vec<u8>),
    /// The page is full.
    Full,
}

/// A page on its way.
#[derive(Debug)]
pub struct Listing<'a, T> {
    request: &'a ListRequest,
    page: ListPage<T>,
    /// What the page showed last: a key or cut key, and the version or upload.
    last: (String, String),
}

impl<'a, T> Listing<'a, T> {
    /// An empty page.
    #[must_use]
    pub fn new(request: &'a ListRequest) -> Self {
        Self { request, page: ListPage::default(), last: (String::new(), String::new()) }
    }

    /// The position after which the first key is to be looked for. `None`: the page stays empty, as its limit is 0.
    ///
    /// If the request names a version or upload, keys begin with the key `after` itself. Then the caller leaves out
    /// what does not stand behind that version or upload.
    #[must_use]
    pub fn start(&self) -> Option<Vec<u8>> {
        let ListRequest { prefix, after, after_id, limit, .. } = self.request;
        if *limit == 0 {
            return None;
        }
        let after = match self.cut(after) {
            _ if after.is_empty() => Vec::new(),
            Some(cut) => past(cut),
            None if after_id.is_empty() => after.clone().into_bytes(),
            None => before(after),
        };
        Some(after.max(before(prefix)))
    }

    /// Takes the next item: of a greater key, or of the same key with another id. Keys that the page does not show
    /// are passed over.
    pub fn take(&mut self, key: &str, id: &str, item: T) -> Flow {
        let ListRequest { prefix, after, after_id, limit, .. } = self.request;
        let Some(tail) = key.strip_prefix(prefix.as_str()) else {
            return if key < prefix.as_str() { Flow::Next } else { Flow::Full };
        };
        let delimiter = self.request.delimiter.as_str();
        let cut_bytes = if delimiter.is_empty() { None } else { tail.find(delimiter) };
        let shown = cut_bytes.map_or(key, |bytes| &key[..prefix.len() + bytes + delimiter.len()]);
        let is_cut = cut_bytes.is_some();
        let is_passed = !after.is_empty()
            && if is_cut || after_id.is_empty() { shown <= after.as_str() } else { shown < after.as_str() };
        let is_shown_already = is_cut && self.page.common_prefixes.last().is_some_and(|last| last == shown);
        if is_passed || is_shown_already {
            return if is_cut { Flow::SeekAfter(past(shown)) } else { Flow::Next };
        }
        if self.count() >= usize::from(*limit) {
            self.page.next = Some(std::mem::take(&mut self.last));
            return Flow::Full;
        }
        if is_cut {
            self.last = (shown.to_owned(), String::new());
            self.page.common_prefixes.push(shown.to_owned());
            return Flow::SeekAfter(past(shown));
        }
        self.last = (key.to_owned(), id.to_owned());
        self.page.items.push(item);
        Flow::Next
    }

    /// How many items and cut keys the page has.
    #[must_use]
    pub fn count(&self) -> usize {
        self.page.items.len() + self.page.common_prefixes.len()
    }

    /// How many more the page takes, and one more that tells whether there is a next page: as many keys as are worth
    /// reading at once, if none of them is cut.
    #[must_use]
    pub fn wanted(&self) -> usize {
        usize::from(self.request.limit).saturating_sub(self.count()) + 1
    }

    /// The page. If it is not full, all keys must have been taken.
    #[must_use]
    pub fn into_page(self) -> ListPage<T> {
        self.page
    }

    /// The cut key that stands for a key, if it is cut.
    fn cut<'k>(&self, key: &'k str) -> Option<&'k str> {
        let ListRequest { prefix, delimiter, .. } = self.request;
        let tail = key.strip_prefix(prefix.as_str()).filter(|_| !delimiter.is_empty())?;
        tail.find(delimiter.as_str()).map(|bytes| &key[..prefix.len() + bytes + delimiter.len()])
    }
}

/// The position past all keys that begin so.
fn past(prefix: &str) -> Vec<u8> {
    let mut position = prefix.as_bytes().to_vec();
    position.push(PAST);
    position
}

/// A position after all smaller keys and before this one and all that begin so.
fn before(key: &str) -> Vec<u8> {
    let mut position = key.as_bytes().to_vec();
    match position.pop() {
        // The shorter key is smaller, and the next one after it is this one.
        None | Some(0) => {}
        Some(last) => position.extend([last - 1, PAST]),
    }
    position
}
