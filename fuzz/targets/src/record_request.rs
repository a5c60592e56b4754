//! A request about records, native or classic: `GET /path?query` in one line, headers in lines of their own, an
//! empty line, the body. It is refused with a reason, or its operation reaches the engine as it was meant.

use http::{HeaderMap, HeaderName, HeaderValue, Method};
use millrace_api::RecordOperation;
use millrace_base::{ErrorCode, limits};
use millrace_http::router::{Captures, Found, find};
use millrace_http::{Kind, Parameter};
use millrace_records::{IDEMPOTENCY_KEY, Records, Request, RequestFacts};

pub(crate) fn run(bytes: &[u8]) {
    let (head, body) = split(bytes, b"\n\n");
    let Ok(head) = std::str::from_utf8(head) else { return };
    let mut lines = head.lines();
    let Some((method, target)) = lines.next().and_then(|line| line.split_once(' ')) else { return };
    let Ok(method) = Method::from_bytes(method.as_bytes()) else { return };
    let (path, query) = target.split_once('?').map_or((target, None), |(path, query)| (path, Some(query)));
    let mut headers = HeaderMap::new();
    for (name, value) in lines.filter_map(|line| line.split_once(": ")) {
        let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_str(value)) else {
            return;
        };
        headers.append(name, value);
    }
    let Found::Operation(row, captures) = find(&method, path) else { return };
    let Kind::Records(operation) = row.kind else { return };
    let request = request(&captures, query, headers, body);
    let records = Records::default();
    match records.asked(operation, &request) {
        Ok(None) => (),
        Ok(Some(asked)) => {
            let read = RecordOperation::from_bytes(&asked).expect("what was written");
            assert_eq!(read.to_bytes(), asked);
            check(&read);
            // An id that the server draws is in no operation.
            assert_eq!(records.asked(operation, &request), Ok(Some(asked.clone())));
        }
        Err(error) => {
            assert!(!error.message.is_empty());
            assert!(error.code != ErrorCode::Internal, "{error}");
        }
    }
}

fn split<'b>(bytes: &'b [u8], mark: &[u8]) -> (&'b [u8], &'b [u8]) {
    match bytes.windows(mark.len()).position(|part| part == mark) {
        Some(at) => (&bytes[..at], &bytes[at + mark.len()..]),
        None => (bytes, b""),
    }
}

/// Makes the request as the front that listens makes it.
fn request<'a>(captures: &Captures<'a>, query: Option<&'a str>, headers: HeaderMap, body: &[u8]) -> Request<'a> {
    let get = |parameter| captures.get(parameter);
    let (script, field) = (get(Parameter::Script), get(Parameter::Field));
    let item = get(Parameter::RecordId).or(get(Parameter::Version)).or(get(Parameter::SchemaId));
    let seen = RequestFacts {
        accept: headers.contains_key("accept"),
        condition: headers.contains_key("if-match") || headers.contains_key("if-none-match"),
        idempotency_key: headers.contains_key(&IDEMPOTENCY_KEY),
    };
    Request {
        name: get(Parameter::Type).or(get(Parameter::Subject)).unwrap_or_default(),
        item: item.or(script.and(field)).unwrap_or_default(),
        part: script.or(field).unwrap_or_default(),
        query,
        headers,
        seen,
        body: body.to_vec().into(),
    }
}

/// Everything that the front bounds is bounded.
fn check(operation: &RecordOperation<'_>) {
    let limit = match operation {
        RecordOperation::Find(query) => {
            assert!(query.predicate.len() <= limits::PATH_BYTES && query.order.len() <= limits::PATH_BYTES);
            query.limit
        }
        RecordOperation::Changes { limit, .. } => *limit,
        RecordOperation::GetMany { ids, .. } => {
            assert!(ids.len() <= limits::BATCH_RECORDS);
            assert!(ids.iter().all(|id| (1..=limits::RECORD_ID_BYTES).contains(&id.len())));
            1
        }
        RecordOperation::Select { path, .. } => {
            assert!(path.len() <= limits::PATH_BYTES);
            1
        }
        _ => 1,
    };
    assert!((1..=limits::MOST_PAGE_ITEMS).contains(&(limit as usize)));
}
