//! A document as a bounded tree.

use quick_xml::Reader;
use quick_xml::events::{BytesRef, BytesStart, Event};

use crate::error::{Code, S3Error};
use crate::limits;

/// An element with what is in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Element {
    /// Its name without a namespace's prefix.
    pub name: String,
    /// Its text, without what separates child elements.
    pub text: String,
    /// The elements in it.
    pub children: Vec<Element>,
    /// The attribute `type`, which only `Grantee` has.
    pub kind: String,
}

/// Reads a document whose outermost element has this name.
///
/// # Errors
/// `MalformedXML`; `MissingRequestBodyError` for an empty one.
pub fn read(document: &[u8], name: &str) -> Result<Element, S3Error> {
    if document.iter().all(u8::is_ascii_whitespace) {
        return Err(Code::MissingRequestBody.into());
    }
    if document.len() > limits::DOCUMENT_BYTES {
        return Err(Code::MaxMessageLengthExceeded.into());
    }
    let root = tree(document).ok_or(Code::MalformedXml)?;
    if root.name == name { Ok(root) } else { Err(Code::MalformedXml.into()) }
}

fn tree(document: &[u8]) -> Option<Element> {
    let document = std::str::from_utf8(document).ok()?;
    // No document can have a zero byte, and none could be written with one.
    if document.contains('\0') {
        return None;
    }
    let mut reader = Reader::from_str(document.strip_prefix('\u{feff}').unwrap_or(document));
    let mut open: Vec<Element> = Vec::new();
    let mut root = None;
    let mut count = 0;
    loop {
        match reader.read_event().ok()? {
            Event::Start(start) => {
                count += 1;
                if root.is_some() || open.len() >= limits::DOCUMENT_DEPTH || count > limits::DOCUMENT_ELEMENTS {
                    return None;
                }
                open.push(begun(&start)?);
            }
            Event::Empty(start) => {
                count += 1;
                if root.is_some() || count > limits::DOCUMENT_ELEMENTS {
                    return None;
                }
                close(begun(&start)?, &mut open, &mut root);
            }
            Event::End(_) => {
                let element = open.pop()?;
                close(element, &mut open, &mut root);
            }
            Event::Text(text) => add(&mut open, &text.xml10_content().ok()?)?,
            Event::CData(text) => add(&mut open, &text.decode().ok()?)?,
            Event::GeneralRef(entity) => {
                let mut buffer = [0; 4];
                add(&mut open, character(&entity)?.encode_utf8(&mut buffer))?;
            }
            Event::Decl(_) | Event::Comment(_) | Event::PI(_) => {}
            // Entities that a document defines can grow without bound.
            Event::DocType(_) => return None,
            Event::Eof => break,
        }
    }
    if open.is_empty() { root } else { None }
}

/// Attributes of one element. Documents of S3 have two at most.
const ATTRIBUTES: usize = 16;

fn begun(start: &BytesStart<'_>) -> Option<Element> {
    let name = std::str::from_utf8(start.local_name().into_inner()).ok()?.to_owned();
    let mut kind = String::new();
    for (count, attribute) in start.attributes().enumerate() {
        // Each is compared with all before it: without a bound, a document of one element would take minutes.
        if count >= ATTRIBUTES {
            return None;
        }
        let attribute = attribute.ok()?;
        if attribute.key.local_name().into_inner() == b"type" {
            kind = attribute.unescape_value().ok()?.into_owned();
        }
    }
    Some(Element { name, kind, ..Element::default() })
}

fn close(mut element: Element, open: &mut [Element], root: &mut Option<Element>) {
    if !element.children.is_empty() {
        element.text.clear();
    }
    match open.last_mut() {
        Some(parent) => parent.children.push(element),
        None => *root = Some(element),
    }
}

/// Text outside of the outermost element can only be white space.
fn add(open: &mut [Element], text: &str) -> Option<()> {
    match open.last_mut() {
        Some(element) => element.text.push_str(text),
        None if text.chars().all(char::is_whitespace) => {}
        None => return None,
    }
    Some(())
}

fn character(entity: &BytesRef<'_>) -> Option<char> {
    if let Some(character) = entity.resolve_char_ref().ok()? {
        return Some(character);
    }
    match &**entity {
        b"amp" => Some('&'),
        b"lt" => Some('<'),
        b"gt" => Some('>'),
        b"quot" => Some('"'),
        b"apos" => Some('\''),
        _ => None,
    }
}

impl Element {
    /// The first child of this name.
    #[must_use]
    pub fn child(&self, name: &str) -> Option<&Element> {
        self.children.iter().find(|child| child.name == name)
    }

    /// All children of this name.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Element> {
        self.children.iter().filter(move |child| child.name == name)
    }

    /// The text of the first child of this name.
    #[must_use]
    pub fn text_of(&self, name: &str) -> Option<&str> {
        self.child(name).map(|child| child.text.as_str())
    }

    /// The text of a child that has to be there.
    ///
    /// # Errors
    /// `MalformedXML` if it is not.
    pub fn needed(&self, name: &str) -> Result<&str, S3Error> {
        self.text_of(name).ok_or_else(|| Code::MalformedXml.into())
    }

    /// Its text as a number.
    ///
    /// # Errors
    /// `MalformedXML` for anything else.
    pub fn number<T: std::str::FromStr>(&self) -> Result<T, S3Error> {
        self.text.trim().parse().map_err(|_| Code::MalformedXml.into())
    }

    /// A child's text as a number.
    ///
    /// # Errors
    /// `MalformedXML` for a text that is no number.
    pub fn number_of<T: std::str::FromStr>(&self, name: &str) -> Result<Option<T>, S3Error> {
        self.child(name).map(Element::number).transpose()
    }

    /// A child's text as a truth value; false if it is not there.
    ///
    /// # Errors
    /// `MalformedXML` for another text.
    pub fn truth_of(&self, name: &str) -> Result<bool, S3Error> {
        match self.text_of(name).map(str::trim) {
            None | Some("") => Ok(false),
            Some(text) if text.eq_ignore_ascii_case("true") => Ok(true),
            Some(text) if text.eq_ignore_ascii_case("false") => Ok(false),
            Some(_) => Err(Code::MalformedXml.into()),
        }
    }
}
