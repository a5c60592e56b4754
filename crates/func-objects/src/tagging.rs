//! Tags of objects and buckets: their limits, and the form in which a header carries them.

use millrace_api::objects::{Refusal, Tag};
use millrace_base::Error;

use crate::limits;

/// Checks the tags of an object.
///
/// # Errors
/// `InvalidTag`.
pub fn check_object_tags(tags: &[Tag]) -> Result<(), Error> {
    check(tags, limits::OBJECT_TAGS, "Object")
}

/// Checks the tags of a bucket.
///
/// # Errors
/// `InvalidTag`.
pub fn check_bucket_tags(tags: &[Tag]) -> Result<(), Error> {
    check(tags, limits::BUCKET_TAGS, "Bucket")
}

fn check(tags: &[Tag], limit: usize, of: &str) -> Result<(), Error> {
    let refuse = |message: String| Err(Refusal::InvalidTag.error(message));
    if tags.len() > limit {
        return refuse(format!("{of} tags cannot be greater than {limit}"));
    }
    for (index, tag) in tags.iter().enumerate() {
        let key_characters = tag.key.chars().count();
        if key_characters == 0 || key_characters > limits::TAG_KEY_CHARACTERS || !tag.key.chars().all(is_allowed) {
            return refuse("The TagKey you have provided is invalid".to_owned());
        }
        if tag.key.to_ascii_lowercase().starts_with("aws:") {
            return refuse("Tag keys cannot start with aws:".to_owned());
        }
        if tag.value.chars().count() > limits::TAG_VALUE_CHARACTERS || !tag.value.chars().all(is_allowed) {
            return refuse("The TagValue you have provided is invalid".to_owned());
        }
        if tags[..index].iter().any(|other| other.key == tag.key) {
            return refuse("Cannot provide multiple Tags with the same key".to_owned());
        }
    }
    Ok(())
}

/// What S3 documents: letters, digits and spaces of any script, and `+ - = . _ : / @`.
fn is_allowed(character: char) -> bool {
    character.is_alphanumeric() || character.is_whitespace() || "+-=._:/@".contains(character)
}

/// Reads the header `x-amz-tagging`, whose form is that of a query.
///
/// # Errors
/// `InvalidArgument` where the form is broken, `InvalidTag` where the tags are.
pub fn parse_header(text: &str) -> Result<Vec<Tag>, Error> {
    let mut tags = Vec::new();
    for pair in text.split('&').filter(|pair| !pair.is_empty()) {
        // So that what is gathered is bounded before it is checked.
        if tags.len() > limits::OBJECT_TAGS {
            break;
        }
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let (Some(key), Some(value)) = (decode(key), decode(value)) else {
            let message = "The header 'x-amz-tagging' shall be encoded as UTF-8 then URLEncoded URL query parameters";
            return Err(Refusal::InvalidArgument.error(message));
        };
        tags.push(Tag { key, value });
    }
    check_object_tags(&tags)?;
    Ok(tags)
}

fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, behind)) = rest.split_first() {
        rest = behind;
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let digits = rest.get(..2)?;
                rest = &rest[2..];
                let digit = |byte: u8| char::from(byte).to_digit(16);
                u8::try_from(digit(digits[0])? * 16 + digit(digits[1])?).ok()?
            }
            other => other,
        });
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tag(key: &str, value: &str) -> Tag {
        Tag { key: key.to_owned(), value: value.to_owned() }
    }

    #[test]
    fn limits_are_those_of_s3() {
        let many = |count: usize| (0..count).map(|index| tag(&index.to_string(), "")).collect::<Vec<_>>();
        for (tags, is_valid) in [
            (vec![], true),
            (many(10), true),
            (many(11), false),
            (vec![tag(&"k".repeat(128), &"v".repeat(256))], true),
            (vec![tag(&"ü".repeat(128), &"é".repeat(256))], true),
            (vec![tag(&"k".repeat(129), "")], false),
            (vec![tag("k", &"v".repeat(257))], false),
            (vec![tag("", "v")], false),
            (vec![tag("k", "a b+-=._:/@")], true),
            (vec![tag("k", "<")], false),
            (vec![tag("k\0", "")], false),
            (vec![tag("aws:k", "")], false),
            (vec![tag("AWS:k", "")], false),
            (vec![tag("k", "1"), tag("k", "2")], false),
            (vec![tag("k", "1"), tag("K", "2")], true),
        ] {
            let result = check_object_tags(&tags);
            assert_eq!(result.is_ok(), is_valid, "{tags:?}");
            assert!(result.is_ok() || result.is_err_and(|error| Refusal::of(&error) == Some(Refusal::InvalidTag)));
        }
        assert_eq!(check_bucket_tags(&many(50)), Ok(()));
        assert!(check_bucket_tags(&many(51)).is_err());
    }

    #[test]
    fn headers_are_read() {
        assert_eq!(parse_header(""), Ok(vec![]));
        assert_eq!(parse_header("a=1&b"), Ok(vec![tag("a", "1"), tag("b", "")]));
        assert_eq!(parse_header("a+b=%2Fx%C3%BC&&"), Ok(vec![tag("a b", "/xü")]));
        assert_eq!(parse_header("a=b=c"), Ok(vec![tag("a", "b=c")]));
        for (text, refusal) in [
            ("a=%", Refusal::InvalidArgument),
            ("a=%2", Refusal::InvalidArgument),
            ("a=%+f", Refusal::InvalidArgument),
            ("a=%FF", Refusal::InvalidArgument),
            ("=v", Refusal::InvalidTag),
            ("a=1&a=2", Refusal::InvalidTag),
        ] {
            assert_eq!(parse_header(text).map_err(|error| Refusal::of(&error)), Err(Some(refusal)), "{text}");
        }
        let many = (0..100_000).map(|index| format!("{index}=1&")).collect::<String>();
        assert_eq!(parse_header(&many).map_err(|error| Refusal::of(&error)), Err(Some(Refusal::InvalidTag)));
    }
}
