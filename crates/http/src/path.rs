//! Strict readers of what arrives inside a URL or a header: percent-encoding, queries. None of them panics or allocates beyond the input's size.

use std::borrow::Cow;
use std::time::Duration;

use millrace_api::{InvocationStatus, StateFields};
use millrace_base::{Error, ErrorCode, Name, check_chosen_id, limits};
use millrace_records::url::{bounded, is_digits};
pub use millrace_records::url::{decode, decode_key, decode_text};
use serde::Deserialize;
use serde::de::IntoDeserializer;
use serde::de::value::{Error as ValueError, StrDeserializer};

fn refused(message: impl Into<String>) -> Error {
    Error::new(ErrorCode::BadRequest, message)
}

/// Decodes a field's name.
///
/// # Errors
/// As [`decode`], and for a name that is empty or longer than [`limits::FIELD_BYTES`].
pub fn decode_field(text: &str) -> Result<Cow<'_, [u8]>, Error> {
    bounded(decode(text)?, "field", limits::FIELD_BYTES)
}

/// The value of the query parameter `name`.
///
/// # Errors
/// `bad-request` when it occurs twice, is badly encoded or is not UTF-8.
pub fn query_parameter<'a>(query: Option<&'a str>, name: &str) -> Result<Option<Cow<'a, str>>, Error> {
    raw_parameter(query, name)?.map(decode_text).transpose()
}

/// Which fields `GET /state/{service}/{key}` is asked for: all, or with `prefix`, `after` or `limit` a page.
///
/// # Errors
/// `bad-request` for what cannot be names of fields, and as [`page_items`].
pub fn state_fields(query: Option<&str>) -> Result<StateFields, Error> {
    let (prefix, after) = (raw_parameter(query, "prefix")?, raw_parameter(query, "after")?);
    if prefix.is_none() && after.is_none() && raw_parameter(query, "limit")?.is_none() {
        return Ok(StateFields::All);
    }
    let prefix = decode(prefix.unwrap_or_default())?.into();
    let after = after.map(decode_field).transpose()?.map(Into::into);
    Ok(StateFields::Page { prefix, after, limit: page_items(query)? })
}

/// The `key` of entities in a query: any bytes.
///
/// # Errors
/// `bad-request` when it occurs twice or is badly encoded, and as [`decode_key`].
pub fn key_parameter(query: Option<&str>) -> Result<Option<Cow<'_, [u8]>>, Error> {
    raw_parameter(query, "key")?.map(decode_key).transpose()
}

fn raw_parameter<'a>(query: Option<&'a str>, name: &str) -> Result<Option<&'a str>, Error> {
    let mut found = None;
    for pair in query.unwrap_or_default().split('&') {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        if key != name {
            continue;
        }
        if found.replace(value).is_some() {
            return Err(refused(format!("the query parameter {name} occurs twice")));
        }
    }
    Ok(found)
}

/// The delay of `/send/…?delay_ms=`: 0 when it is not there.
///
/// # Errors
/// `bad-request` for anything but a whole number of milliseconds up to [`limits::DELAY_MS`].
pub fn delay_ms(query: Option<&str>) -> Result<u64, Error> {
    milliseconds(query, "delay_ms", limits::DELAY_MS, "ten years")
}

/// The id of `/send/…?id=`, which the caller chose for a workflow.
///
/// # Errors
/// `bad-request` for what is no such id.
pub fn chosen_id(query: Option<&str>) -> Result<Option<Cow<'_, str>>, Error> {
    let id = query_parameter(query, "id")?;
    id.iter().try_for_each(|id| check_chosen_id(id))?;
    Ok(id)
}

/// From where `POST /invocations/{id}/restart` begins, and whether in the newest version.
///
/// # Errors
/// `bad-request` for an empty or long name, and for what is neither `true` nor `false`.
pub fn restart(query: Option<&str>) -> Result<(Option<Box<str>>, bool), Error> {
    let most = limits::RESTARTED_FROM_BYTES;
    let from = query_parameter(query, "from")?;
    if from.as_ref().is_some_and(|name| !(1..=most).contains(&name.len())) {
        return Err(refused(format!("from is the name of a step, of 1 to {most} bytes")));
    }
    let on_newest = match query_parameter(query, "on_newest")?.as_deref() {
        None | Some("false") => false,
        Some("true") => true,
        Some(_) => return Err(refused("on_newest is true or false".to_owned())),
    };
    Ok((from.map(|name| name.into()), on_newest))
}

/// 0 when it is not there; `most` is also told in words.
fn milliseconds(query: Option<&str>, name: &str, most: u64, words: &str) -> Result<u64, Error> {
    let Some(text) = query_parameter(query, name)? else {
        return Ok(0);
    };
    let found = if is_digits(&text) { text.parse().ok() } else { None };
    found.filter(|found| *found <= most).ok_or_else(|| {
        refused(format!("{name} must be a whole number from 0 to {most} ({words}), such as {name}=1500"))
    })
}

/// How long `GET /invocations/{id}?wait_ms=` waits for the end: not at all when it is not there.
///
/// # Errors
/// `bad-request` for anything but a whole number of milliseconds up to [`limits::INVOCATION_WAIT_MS`].
pub fn wait(query: Option<&str>) -> Result<Duration, Error> {
    Ok(Duration::from_millis(milliseconds(query, "wait_ms", limits::INVOCATION_WAIT_MS, "a minute")?))
}

/// How many items a page may hold: [`limits::PAGE_ITEMS`] when the query does not say.
///
/// # Errors
/// `bad-request` for anything but a whole number from 1 to [`limits::MOST_PAGE_ITEMS`].
pub fn page_items(query: Option<&str>) -> Result<usize, Error> {
    let most = limits::MOST_PAGE_ITEMS;
    let Some(text) = query_parameter(query, "limit")? else {
        return Ok(limits::PAGE_ITEMS);
    };
    let items = if is_digits(&text) { text.parse().ok() } else { None };
    items
        .filter(|items| (1..=most).contains(items))
        .ok_or_else(|| refused(format!("limit must be a whole number from 1 to {most}, such as limit=100")))
}

/// Whether those are meant that wait for their next attempt.
///
/// # Errors
/// `bad-request` for anything but `true` and `false`.
pub fn is_waiting(query: Option<&str>) -> Result<bool, Error> {
    match query_parameter(query, "waiting")?.as_deref() {
        None | Some("false") => Ok(false),
        Some("true") => Ok(true),
        Some(_) => Err(refused("waiting must be true or false".to_owned())),
    }
}

/// Where a page begins.
///
/// # Errors
/// `bad-request` when it is there and empty.
pub fn page_after(query: Option<&str>) -> Result<Option<Cow<'_, str>>, Error> {
    let after = query_parameter(query, "after")?;
    if after.as_deref() == Some("") {
        return Err(refused("after is empty: leave it out for the first page"));
    }
    Ok(after)
}

/// The name of an app or service in a query.
///
/// # Errors
/// `bad-request` for a text that none can have.
pub fn name_parameter<'a>(query: Option<&'a str>, name: &str) -> Result<Option<Cow<'a, str>>, Error> {
    let found = query_parameter(query, name)?;
    if let Some(Err(error)) = found.as_deref().map(Name::new) {
        return Err(refused(format!("{name}: {error}")));
    }
    Ok(found)
}

/// The `status` that a list of invocations is asked for.
///
/// # Errors
/// `bad-request` for a text that is none; the message names them all.
pub fn invocation_status(query: Option<&str>) -> Result<Option<InvocationStatus>, Error> {
    let Some(text) = query_parameter(query, "status")? else {
        return Ok(None);
    };
    let deserializer: StrDeserializer<'_, ValueError> = (&*text).into_deserializer();
    InvocationStatus::deserialize(deserializer).map(Some).map_err(|error| refused(format!("status: {error}")))
}

/// Checks that a query has only parameters that `is_known`: a list whose misspelt filter were
/// passed over would show what nobody asked for.
///
/// # Errors
/// `bad-request` naming the first other one.
pub fn check_query(query: Option<&str>, is_known: impl Fn(&str) -> bool) -> Result<(), Error> {
    for pair in query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
        let name = pair.split_once('=').map_or(pair, |(name, _)| name);
        if !is_known(name) {
            let shown: String = name.chars().take(100).collect();
            return Err(refused(format!("the query parameter {shown:?} means nothing here; see /openapi.json")));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use millrace_base::IdempotencyKey;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn decodes_only_what_is_encoded() {
        assert!(matches!(decode("alice"), Ok(Cow::Borrowed(b"alice"))));
        assert_eq!(decode("a%2Fb%00%fF").expect("valid").as_ref(), b"a/b\x00\xff");
        assert_eq!(decode("a+b").expect("valid").as_ref(), b"a+b");
        for bad in ["%", "a%2", "%zz", "%+1", "%%41"] {
            assert_eq!(decode(bad).map_err(|error| error.code), Err(ErrorCode::BadRequest), "{bad}");
        }
        assert!(decode_text("%ff").is_err());
        assert_eq!(decode_text("%C3%A4").expect("valid"), "ä");
    }

    #[test]
    fn keys_and_fields_are_bounded() {
        assert!(decode_key("").is_err());
        assert!(decode_key(&"k".repeat(limits::KEY_BYTES)).is_ok());
        assert!(decode_key(&"%41".repeat(limits::KEY_BYTES)).is_ok(), "decoded bytes count");
        assert!(decode_key(&"k".repeat(limits::KEY_BYTES + 1)).is_err());
        assert!(decode_field("").is_err());
    }

    #[test]
    fn the_delay_is_a_whole_number() {
        assert_eq!(delay_ms(None), Ok(0));
        assert_eq!(delay_ms(Some("x=1&delay_ms=250")), Ok(250));
        for bad in ["delay_ms=", "delay_ms", "delay_ms=-1", "delay_ms=1.5", "delay_ms=1&delay_ms=2"] {
            assert!(delay_ms(Some(bad)).is_err(), "{bad}");
        }
        let most = limits::DELAY_MS;
        assert_eq!(delay_ms(Some(&format!("delay_ms={most}"))), Ok(most));
        for bad in [(most + 1).to_string(), u64::MAX.to_string(), "99999999999999999999".to_owned()] {
            let error = delay_ms(Some(&format!("delay_ms={bad}"))).expect_err(&bad);
            assert_eq!(
                error.message,
                "delay_ms must be a whole number from 0 to 315360000000 (ten years), such as delay_ms=1500"
            );
        }
    }

    #[test]
    fn a_page_is_bounded_and_begins_somewhere() {
        assert_eq!(page_items(None), Ok(limits::PAGE_ITEMS));
        assert_eq!(page_items(Some("limit=1&after=x")), Ok(1));
        assert_eq!(page_items(Some("limit=1000")), Ok(limits::MOST_PAGE_ITEMS));
        for bad in ["limit=0", "limit=1001", "limit=", "limit", "limit=-1", "limit=+1", "limit=1e2", "limit=1&limit=1"]
        {
            assert!(page_items(Some(bad)).is_err(), "{bad}");
        }
        assert!(page_items(Some("limit=99999999999999999999999")).is_err());
        assert_eq!(page_after(Some("after=a%2Fb")).expect("valid").as_deref(), Some("a/b"));
        assert_eq!(page_after(Some("limit=2")), Ok(None));
        assert!(page_after(Some("after=")).is_err() && page_after(Some("after=%zz")).is_err());
    }

    #[test]
    fn filters_are_names_and_other_parameters_are_refused() {
        assert_eq!(name_parameter(Some("app=shop"), "app").expect("valid").as_deref(), Some("shop"));
        assert_eq!(name_parameter(Some("app=shop"), "service"), Ok(None));
        for bad in ["app=", "app", "app=a%2Fb", "app=1"] {
            assert!(name_parameter(Some(bad), "app").is_err(), "{bad}");
        }
        let is_known = |name: &str| name == "app";
        for good in [None, Some(""), Some("app=1"), Some("app&app=2&")] {
            assert_eq!(check_query(good, is_known), Ok(()), "{good:?}");
        }
        for bad in ["apps=1", "app=1&x", "=", "App=1"] {
            assert!(check_query(Some(bad), is_known).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_wait_is_at_most_a_minute() {
        assert_eq!(wait(None), Ok(Duration::ZERO));
        assert_eq!(wait(Some("wait_ms=60000")), Ok(Duration::from_secs(60)));
        for bad in ["wait_ms=", "wait_ms=-1", "wait_ms=60001", "wait_ms=1&wait_ms=2", "wait_ms=99999999999999999999"] {
            assert!(wait(Some(bad)).is_err(), "{bad}");
        }
    }

    #[test]
    fn idempotency_keys_are_short_and_visible() {
        assert_eq!(IdempotencyKey::new(b"abc-1").expect("short and visible").as_str(), "abc-1");
        assert!(IdempotencyKey::new(&[b'k'; limits::IDEMPOTENCY_KEY_BYTES]).is_ok());
        assert!(IdempotencyKey::new(&[b'k'; limits::IDEMPOTENCY_KEY_BYTES + 1]).is_err());
        for bad in [&b""[..], b"a b", b"\x00", "ä".as_bytes(), b"\xff"] {
            assert!(IdempotencyKey::new(bad).is_err());
        }
    }

    proptest! {
        #[test]
        fn decoding_undoes_encoding(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let encoded = percent_encoding::percent_encode(&bytes, percent_encoding::NON_ALPHANUMERIC).to_string();
            prop_assert_eq!(decode(&encoded).expect("well encoded").into_owned(), bytes);
        }

        #[test]
        fn no_text_makes_a_reader_panic(text in "\\PC*", name in "[a-z]{0,3}", value in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = decode(&text);
            let _ = decode_text(&text);
            let _ = decode_key(&text);
            let _ = query_parameter(Some(&text), &name);
            let _ = delay_ms(Some(&text));
            let _ = (page_items(Some(&text)), page_after(Some(&text)), invocation_status(Some(&text)));
            let _ = (name_parameter(Some(&text), &name), check_query(Some(&text), |known| known == name));
            let _ = IdempotencyKey::new(&value);
        }
    }
}
