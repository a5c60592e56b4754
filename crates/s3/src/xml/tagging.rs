//! Tags, as documents and as the header and form field that lists them.

use millrace_api::objects::Tag;
use percent_encoding::percent_decode_str;

use super::{Element, Writer, read};
use crate::error::{Code, S3Error};

/// Bytes of a tag's key and value, as S3 documents them in characters.
const KEY_CHARACTERS: usize = 128;
const VALUE_CHARACTERS: usize = 256;

/// Reads `Tagging` with at most so many tags.
///
/// # Errors
/// `MalformedXML`, `InvalidTag`, `BadRequest`-like `InvalidTag` for too many.
pub fn read_tags(document: &[u8], limit: usize) -> Result<Vec<Tag>, S3Error> {
    let root = read(document, "Tagging")?;
    checked(tags_of(root.child("TagSet").ok_or(Code::MalformedXml)?)?, limit)
}

/// Reads all `Tag` elements in this one.
///
/// # Errors
/// `MalformedXML`.
pub fn tags_of(element: &Element) -> Result<Vec<Tag>, S3Error> {
    element.all("Tag").map(tag_of).collect()
}

fn tag_of(element: &Element) -> Result<Tag, S3Error> {
    Ok(Tag { key: element.needed("Key")?.to_owned(), value: element.needed("Value")?.to_owned() })
}

/// Reads `a=1&b=2`, percent-encoded.
///
/// # Errors
/// `InvalidArgument` for what cannot be decoded, `InvalidTag`.
pub fn parse_tags(text: &str, limit: usize) -> Result<Vec<Tag>, S3Error> {
    let mut tags = Vec::new();
    for pair in text.split('&').filter(|pair| !pair.is_empty()) {
        if tags.len() == limit {
            return Err(too_many(limit));
        }
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        tags.push(Tag { key: decode(key)?, value: decode(value)? });
    }
    checked(tags, limit)
}

fn decode(text: &str) -> Result<String, S3Error> {
    let spaced = text.replace('+', " ");
    let decoded = percent_decode_str(&spaced).decode_utf8();
    let wrong = "The header 'x-amz-tagging' shall be encoded as UTF-8 then URLEncoded URL query parameters without tag \
                 name duplicates.";
    decoded.map(std::borrow::Cow::into_owned).map_err(|_| S3Error::new(Code::InvalidArgument, wrong))
}

fn too_many(limit: usize) -> S3Error {
    S3Error::new(Code::InvalidTag, format!("There can be at most {limit} tags."))
}

/// What S3 says of every set of tags.
fn checked(tags: Vec<Tag>, limit: usize) -> Result<Vec<Tag>, S3Error> {
    if tags.len() > limit {
        return Err(too_many(limit));
    }
    for (index, tag) in tags.iter().enumerate() {
        if tag.key.is_empty() || tag.key.chars().count() > KEY_CHARACTERS {
            return Err(S3Error::new(Code::InvalidTag, "The TagKey you have provided is invalid"));
        }
        if tag.value.chars().count() > VALUE_CHARACTERS {
            return Err(S3Error::new(Code::InvalidTag, "The TagValue you have provided is invalid"));
        }
        if tag.key.starts_with("aws:") {
            return Err(S3Error::new(Code::InvalidTag, "System tags cannot be added/updated by requester"));
        }
        if !tag.key.chars().chain(tag.value.chars()).all(is_allowed) {
            return Err(S3Error::new(Code::InvalidTag, "A tag has a character that tags cannot have."));
        }
        if tags[..index].iter().any(|earlier| earlier.key == tag.key) {
            return Err(S3Error::new(Code::InvalidTag, "Cannot provide multiple Tags with the same key"));
        }
    }
    Ok(tags)
}

fn is_allowed(character: char) -> bool {
    character.is_alphanumeric() || character.is_whitespace() || "_.:/=+-@".contains(character)
}

/// Writes `Tagging`, sorted by key: a set has no order, and clients compare documents.
#[must_use]
pub fn write_tags(tags: &[Tag]) -> String {
    let mut writer = Writer::new("Tagging");
    writer.open("TagSet");
    let mut sorted = tags.to_vec();
    sorted.sort_unstable_by(|a, b| a.key.cmp(&b.key));
    put_tags(&mut writer, &sorted);
    writer.finish()
}

/// Writes one `Tag` for each.
pub fn put_tags(writer: &mut Writer, tags: &[Tag]) {
    for tag in tags {
        writer.open("Tag").text("Key", &tag.key).text("Value", &tag.value).close();
    }
}
