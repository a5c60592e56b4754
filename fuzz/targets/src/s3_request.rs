//! Requests of S3 without their bodies: method, host, path and query in the first four lines, then a header a line.
//! What is read keeps the bounds that the engine counts on, and what is refused says why.

use std::ops::Range;

use http::{HeaderMap, HeaderName, HeaderValue, Method};
use millrace_s3::error::S3Error;
use millrace_s3::operation::range::{Wanted, wanted};
use millrace_s3::operation::{Head, check_headers, copy, parse};
use millrace_s3::route::{Query, action, check_bucket_name, check_key, target};
use millrace_s3::xml::tagging;

use crate::s3_document::Ann;

const LENGTH: u64 = 1_000;
const TAGS: usize = 10;

pub(crate) fn run(bytes: &[u8]) {
    let mut lines = bytes.splitn(5, |byte| *byte == b'\n');
    let mut text = || std::str::from_utf8(lines.next().unwrap_or_default());
    let (Ok(method), Ok(host), Ok(path), Ok(raw)) = (text(), text(), text(), text()) else { return };
    let Ok(method) = Method::from_bytes(method.as_bytes()) else { return };
    let headers = headers(lines.next().unwrap_or_default());
    let Some(target) = accepted(target(host, &["s3.example.com".to_owned()], path)) else { return };
    assert!(target.bucket.is_empty() || check_bucket_name(&target.bucket).is_ok());
    assert!(check_key(&target.key).is_ok());
    let Some(query) = accepted(Query::parse(raw)) else { return };
    assert!(query.iter().all(|(name, _)| query.has(name)));
    let head = Head { headers: &headers, query: &query, region: "us-east-1" };
    if let Some(action) = accepted(action(&method, &target, &query, &headers))
        && accepted(check_headers(&headers)).is_some()
    {
        accepted(parse(action, &head, b"", &Ann));
    }
    if let Some(source) = accepted(copy::source(&head)) {
        assert!(check_bucket_name(&source.bucket).is_ok() && check_key(&source.key).is_ok());
        assert!(!source.key.is_empty() && source.version.as_deref() != Some(""));
    }
    if let Some(Some(range)) = accepted(copy::range(&head)) {
        check_range(&range);
    }
    if let Ok(range) = head.header("range")
        && let Wanted::Part(range) = wanted(range, LENGTH)
    {
        check_range(&range);
        assert!(range.end <= LENGTH);
    }
    check_tags(&head);
}

/// Tags that are read and written again are the same, in the order of their keys.
fn check_tags(head: &Head<'_>) {
    let Ok(Some(text)) = head.header("x-amz-tagging") else { return };
    let Some(mut tags) = accepted(tagging::parse_tags(text, TAGS)) else { return };
    tags.sort_unstable_by(|a, b| a.key.cmp(&b.key));
    assert!(tags.len() <= TAGS);
    if !tags.is_empty() {
        let written = tagging::write_tags(&tags);
        assert_eq!(tagging::read_tags(written.as_bytes(), TAGS).ok(), Some(tags), "{written}");
    }
}

fn check_range(range: &Range<u64>) {
    assert!(range.start < range.end, "{range:?}");
}

fn headers(bytes: &[u8]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for line in bytes.split(|byte| *byte == b'\n').take(20) {
        let Some(colon) = line.iter().position(|byte| *byte == b':') else { continue };
        let (name, value) = (HeaderName::from_bytes(&line[..colon]), HeaderValue::from_bytes(&line[colon + 1..]));
        if let (Ok(name), Ok(value)) = (name, value) {
            headers.append(name, value);
        }
    }
    headers
}

fn accepted<T>(read: Result<T, S3Error>) -> Option<T> {
    read.inspect_err(|error| assert!(!error.message.is_empty())).ok()
}
