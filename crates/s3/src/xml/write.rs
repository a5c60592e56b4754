//! Writing documents.

use std::fmt::{Display, Write};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// What S3 leaves as it is where a client asks for URL encoding.
pub(crate) const ENCODED: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b'/');

const NAMESPACE: &str = "http://s3.amazonaws.com/doc/2006-03-01/";

/// How keys stand in a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Encoding {
    /// As they are.
    #[default]
    None,
    /// Percent-encoded, as `encoding-type=url` asks for.
    Url,
}

/// A document that is being written.
#[derive(Debug)]
pub struct Writer {
    text: String,
    open: Vec<&'static str>,
}

impl Writer {
    /// Begins a document with its outermost element, in S3's namespace.
    #[must_use]
    pub fn new(root: &'static str) -> Self {
        let mut writer = Self::plain();
        let _ = write!(writer.text, "<{root} xmlns=\"{NAMESPACE}\">");
        writer.open.push(root);
        writer
    }

    /// Begins a document without an element, as errors are.
    #[must_use]
    pub fn plain() -> Self {
        let mut text = String::with_capacity(1024);
        text.push_str("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
        Self { text, open: Vec::new() }
    }

    /// Makes room for so many bytes more. A page of a list is long, and would move each time it has grown to twice its size.
    pub fn reserve(&mut self, bytes: usize) -> &mut Self {
        self.text.reserve(bytes);
        self
    }

    /// A page of a list has ten thousand tags, so they do without the machinery of formats.
    fn tag(&mut self, before: &str, name: &str) {
        self.text.push_str(before);
        self.text.push_str(name);
        self.text.push('>');
    }

    /// Opens an element.
    pub fn open(&mut self, name: &'static str) -> &mut Self {
        self.tag("<", name);
        self.open.push(name);
        self
    }

    /// Opens an element with the attribute `xsi:type`.
    pub fn open_typed(&mut self, name: &'static str, kind: &str) -> &mut Self {
        let _ =
            write!(self.text, "<{name} xmlns:xsi=\"http://www.w3.org/2001/XMLSchema-instance\" xsi:type=\"{kind}\">");
        self.open.push(name);
        self
    }

    /// Closes the element that was opened last.
    pub fn close(&mut self) -> &mut Self {
        if let Some(name) = self.open.pop() {
            self.tag("</", name);
        }
        self
    }

    /// An element with a text.
    pub fn text(&mut self, name: &str, text: &str) -> &mut Self {
        self.tag("<", name);
        escape(text, &mut self.text);
        self.tag("</", name);
        self
    }

    /// Text in the element that was opened last.
    pub fn raw_text(&mut self, text: &str) -> &mut Self {
        escape(text, &mut self.text);
        self
    }

    /// An element with a number, or something else that needs no escaping.
    pub fn value(&mut self, name: &str, value: impl Display) -> &mut Self {
        self.tag("<", name);
        let _ = write!(self.text, "{value}");
        self.tag("</", name);
        self
    }

    /// An element with a text, if there is one.
    pub fn some(&mut self, name: &str, text: Option<&str>) -> &mut Self {
        match text {
            Some(text) => self.text(name, text),
            None => self,
        }
    }

    /// An element with an ETag in quotes.
    pub fn etag(&mut self, etag: &str) -> &mut Self {
        self.text.push_str("<ETag>&quot;");
        escape(etag, &mut self.text);
        self.text.push_str("&quot;</ETag>");
        self
    }

    /// An element with a key, or a part of one.
    pub fn key(&mut self, name: &str, key: &str, encoding: Encoding) -> &mut Self {
        match encoding {
            Encoding::None => self.text(name, key),
            Encoding::Url => self.value(name, utf8_percent_encode(key, ENCODED)),
        }
    }

    /// The whole document: closes what is open.
    #[must_use]
    pub fn finish(mut self) -> String {
        while !self.open.is_empty() {
            self.close();
        }
        self.text
    }
}

/// Characters that XML 1.0 cannot have at all are written as references, as S3 does; parsers that are strict refuse
/// them, which is why clients ask for URL encoding.
fn escape(text: &str, out: &mut String) {
    let is_plain = |byte: u8| matches!(byte, b' '..=b'~') && !matches!(byte, b'&' | b'<' | b'>' | b'"');
    // Nearly every text of a list.
    if text.bytes().all(is_plain) {
        return out.push_str(text);
    }
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\u{fffe}' | '\u{ffff}' | '\0'..='\x1f' => {
                let _ = write!(out, "&#x{:x};", u32::from(character));
            }
            _ => out.push(character),
        }
    }
}
