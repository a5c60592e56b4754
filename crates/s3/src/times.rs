//! Times as S3 writes and reads them: ISO 8601 in documents, HTTP dates in headers, Unix milliseconds inside.

use std::time::{Duration, UNIX_EPOCH};

use time::OffsetDateTime;
use time::format_description::well_known::{Iso8601, Rfc3339};

/// 9999-12-31T23:59:59Z: years beyond have more than four digits.
const LAST_MS: u64 = 253_402_300_799_000;

/// As documents have it: `2026-01-31T12:00:00.000Z`.
#[must_use]
pub fn iso(unix_ms: u64) -> String {
    let unix_ms = unix_ms.min(LAST_MS);
    let at = OffsetDateTime::from_unix_timestamp((unix_ms / 1000) as i64).unwrap_or(OffsetDateTime::UNIX_EPOCH);
    let mut text = String::with_capacity("2026-01-31T12:00:00.000Z".len());
    let mut part = |value: u64, digits: u32, behind: char| {
        // A page of a list has a thousand times: digit by digit costs less than a format.
        let digit = |place: u32| char::from(b'0' + (value / 10_u64.pow(place) % 10) as u8);
        text.extend((0..digits).rev().map(digit));
        text.push(behind);
    };
    part(u64::try_from(at.year()).unwrap_or_default(), 4, '-');
    part(u64::from(u8::from(at.month())), 2, '-');
    part(u64::from(at.day()), 2, 'T');
    part(u64::from(at.hour()), 2, ':');
    part(u64::from(at.minute()), 2, ':');
    part(u64::from(at.second()), 2, '.');
    part(unix_ms % 1000, 3, 'Z');
    text
}

/// As headers have it.
#[must_use]
pub fn http_date(unix_ms: u64) -> String {
    httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_millis(unix_ms.min(LAST_MS)))
}

/// Reads a time of a header: an HTTP date, or ISO 8601 as some clients send it.
#[must_use]
pub fn parse_http_date(text: &str) -> Option<u64> {
    match httpdate::parse_http_date(text) {
        Ok(at) => u64::try_from(at.duration_since(UNIX_EPOCH).ok()?.as_millis()).ok(),
        Err(_) => parse_iso(text),
    }
}

/// Reads a time of a document: with any offset, or only a day.
#[must_use]
pub fn parse_iso(text: &str) -> Option<u64> {
    let text = text.trim();
    let nanoseconds = match OffsetDateTime::parse(text, &Rfc3339) {
        Ok(at) => at.unix_timestamp_nanos(),
        Err(_) => match OffsetDateTime::parse(text, &Iso8601::PARSING) {
            Ok(at) => at.unix_timestamp_nanos(),
            Err(_) => time::Date::parse(text, &Iso8601::PARSING).ok()?.midnight().assume_utc().unix_timestamp_nanos(),
        },
    };
    let unix_ms = u64::try_from(nanoseconds.checked_div(1_000_000)?).ok()?;
    (unix_ms <= LAST_MS).then_some(unix_ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_come_back() {
        for unix_ms in [0, 1_369_353_600_000, 1_769_860_800_123, LAST_MS] {
            assert_eq!(parse_iso(&iso(unix_ms)), Some(unix_ms));
            assert_eq!(parse_http_date(&http_date(unix_ms)), Some(unix_ms / 1000 * 1000));
        }
        assert_eq!(iso(1_369_353_600_000), "2013-05-24T00:00:00.000Z");
    }

    #[test]
    fn forms_that_clients_send_are_read() {
        for text in ["2013-05-24T00:00:00Z", "2013-05-24T02:00:00+02:00", "20130524T000000Z", "2013-05-24"] {
            assert_eq!(parse_iso(text), Some(1_369_353_600_000), "{text}");
        }
        for text in ["", "yesterday", "2013-13-01T00:00:00Z", "1960-01-01T00:00:00Z", "99999-01-01T00:00:00Z"] {
            assert_eq!(parse_iso(text), None, "{text}");
            assert_eq!(parse_http_date(text), None, "{text}");
        }
    }
}
