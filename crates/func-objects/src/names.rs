//! Services, handlers and keys of the app.

use millrace_api::objects::{ACCOUNT_SERVICE, BUCKET_SERVICE, OBJECT_SERVICE, Refusal, UPLOAD_SERVICE};
use millrace_api::{HandlerKind, READ_HANDLER, WRITE_HANDLER};
use millrace_base::{Error, Name};
use millrace_func::Service;

/// The services, by their index.
pub(crate) const BUCKET: u16 = 0;
pub(crate) const OBJECT: u16 = 1;
pub(crate) const UPLOAD: u16 = 2;
pub(crate) const ACCOUNT: u16 = 3;

/// Handlers that every service has.
pub(crate) const READ: u16 = 0;
/// Of a bucket: what fronts ask for. Of the others: what a bucket's handler asks for.
pub(crate) const WRITE: u16 = 1;
/// Of a bucket: its settings. Of an upload: rows that nobody needs go, some at a time.
pub(crate) const SETTINGS: u16 = 2;
pub(crate) const ERASE: u16 = 2;
/// Of a bucket: its lifecycle rules, a batch at a time.
pub(crate) const EXPIRE: u16 = 3;
/// Of a bucket: notifications that a request has left, a batch at a time.
pub(crate) const NOTIFY: u16 = 4;
/// Of a bucket's slice: what its settings are from now on.
pub(crate) const SLICE: u16 = 5;
/// Of a bucket's slice: how much is in it.
pub(crate) const SLICE_USAGE: u16 = 6;

/// Bytes of an object's key, as S3 has it.
pub(crate) const OBJECT_KEY_BYTES: usize = 1024;

/// The app's services, in the order of their indexes.
pub(crate) fn services() -> Vec<Service> {
    let name = |text: &str| Name::new(text).expect("a constant that is a name");
    let service = |text: &str, handlers: &[(&str, HandlerKind)]| Service {
        name: name(text),
        handlers: handlers.iter().map(|(text, kind)| (name(text), *kind)).collect(),
        routes: Vec::new(),
        schedules: Vec::new(),
    };
    let common = [(READ_HANDLER, HandlerKind::Query), (WRITE_HANDLER, HandlerKind::Transaction)];
    let with = |more: (&'static str, HandlerKind)| [common[0], common[1], more];
    vec![
        service(
            BUCKET_SERVICE,
            &[
                &with(("_settings", HandlerKind::Query))[..],
                &[("_expire", HandlerKind::Transaction), ("_notify", HandlerKind::Transaction)],
                &[("_slice", HandlerKind::Transaction), ("_slice_usage", HandlerKind::Query)],
            ]
            .concat(),
        ),
        service(OBJECT_SERVICE, &common),
        service(UPLOAD_SERVICE, &with(("_erase", HandlerKind::Transaction))),
        service(ACCOUNT_SERVICE, &common),
    ]
}

/// The key of the entity of a bucket's slice, and the beginning of those of its objects and uploads. A slice's place is what
/// stands between the braces: the bucket, and the slice's number behind it unless it is the first.
pub(crate) fn bucket_key(place: &str) -> Vec<u8> {
    ["{", place, "}"].concat().into_bytes()
}

/// The key of an object's entity.
pub(crate) fn object_key(place: &str, key: &str) -> Vec<u8> {
    ["{", place, "}", key].concat().into_bytes()
}

/// The key of an upload's entity.
pub(crate) fn upload_key(place: &str, key: &str, upload: &str) -> Vec<u8> {
    ["{", place, "}", key, "\0", upload].concat().into_bytes()
}

/// The place in the key of an entity.
pub(crate) fn place_of(entity_key: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(entity_key).ok()?;
    text.strip_prefix('{')?.split_once('}').map(|(place, _)| place)
}

/// The bucket of a place. No bucket has a slash in its name.
pub(crate) fn bucket_of(place: &str) -> &str {
    place.split_once('/').map_or(place, |(bucket, _)| bucket)
}

/// What stands behind the place in the key of an entity.
pub(crate) fn behind_place<'a>(entity_key: &'a [u8], place: &str) -> &'a [u8] {
    entity_key.get(place.len() + 2..).unwrap_or_default()
}

/// Refuses names that no bucket can have.
pub(crate) fn check_bucket_name(name: &str) -> Result<(), Error> {
    let is_letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = name.as_bytes();
    let is_right = (3..=63).contains(&bytes.len())
        && bytes.iter().all(|byte| is_letter(*byte) || matches!(byte, b'-' | b'.'))
        && is_letter(bytes[0])
        && is_letter(bytes[bytes.len() - 1])
        && !name.contains("..")
        && !name.contains(".-")
        && !name.contains("-.")
        && name.parse::<std::net::Ipv4Addr>().is_err()
        && !name.starts_with("xn--")
        && !name.ends_with("-s3alias");
    let message = "The specified bucket is not valid. A name has 3 to 63 lower-case letters, digits, dots and hyphens. It \
                   begins and ends with a letter or a digit, has no dot beside a dot or a hyphen, and is no IP address.";
    if is_right { Ok(()) } else { Err(Refusal::InvalidBucketName.error(message)) }
}

/// Refuses keys that no object can have.
pub(crate) fn check_object_key(key: &str) -> Result<(), Error> {
    if key.len() > OBJECT_KEY_BYTES {
        return Err(Refusal::KeyTooLongError.error("Your key is too long"));
    }
    if key.is_empty() {
        return Err(Refusal::InvalidArgument.error("an object needs a key"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_taken_apart_as_they_were_made() {
        let key = object_key("my-bucket", "a/b}{c");
        assert_eq!(place_of(&key), Some("my-bucket"));
        assert_eq!(behind_place(&key, "my-bucket"), b"a/b}{c");
        assert_eq!(behind_place(&bucket_key("my-bucket"), "my-bucket"), b"");
        assert_eq!(place_of(b"other"), None);
        let key = upload_key("my-bucket/7", "a/b", "id");
        assert_eq!(place_of(&key).map(bucket_of), Some("my-bucket"));
        assert_eq!(behind_place(&key, "my-bucket/7"), b"a/b\0id");
    }

    #[test]
    fn names_of_buckets_are_as_s3_has_them() {
        for name in ["abc", "a.b-c", "1ab", &"a".repeat(63)] {
            assert!(check_bucket_name(name).is_ok(), "{name}");
        }
        for name in [
            "",
            "ab",
            "Abc",
            "a_b",
            "-ab",
            "ab-",
            "a..b",
            "a.-b",
            "a-.b",
            "192.168.1.1",
            &"a".repeat(64),
            "xn--ab",
            "äbc",
        ] {
            assert!(check_bucket_name(name).is_err(), "{name}");
        }
    }
}
