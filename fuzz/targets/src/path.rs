//! Paths, queries and idempotency keys of requests. A decoded part is within its limits and no longer than the text.
//! The router captures parts of the path only.

use http::Method;
use millrace_base::{Error, ErrorCode, IdempotencyKey, limits};
use millrace_http::router::{Captures, Found, find};
use millrace_http::{Kind, Parameter, path};

const METHODS: [Method; 6] = [Method::GET, Method::HEAD, Method::POST, Method::PUT, Method::DELETE, Method::OPTIONS];
pub(crate) fn run(bytes: &[u8]) {
    if let Ok(key) = IdempotencyKey::new(bytes) {
        assert_eq!(key.as_str().as_bytes(), bytes);
        assert!((1..=limits::IDEMPOTENCY_KEY_BYTES).contains(&bytes.len()));
    }
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    check_query(text);
    let (path, query) = text.split_once('?').unwrap_or((text, ""));
    check_query(query);
    check_router(path);
    for part in path.split('/') {
        check_part(part);
    }
}

fn check_part(part: &str) {
    let decoded = path::decode(part);
    refused_or(&decoded, |bytes| {
        assert!(bytes.len() <= part.len());
        assert!(part.contains('%') || **bytes == *part.as_bytes());
    });
    refused_or(&path::decode_text(part), |text| {
        assert_eq!(decoded.as_deref(), Ok(text.as_bytes()));
    });
    for (bounded, limit) in
        [(path::decode_key(part), limits::KEY_BYTES), (path::decode_field(part), limits::FIELD_BYTES)]
    {
        let fits = decoded.as_ref().is_ok_and(|bytes| (1..=limit).contains(&bytes.len()));
        assert_eq!(bounded.is_ok(), fits);
        refused_or(&bounded, |bytes| assert_eq!(decoded.as_ref(), Ok(bytes)));
    }
}

fn check_query(query: &str) {
    assert_eq!(path::query_parameter(None, "delay_ms"), Ok(None));
    let text = path::query_parameter(Some(query), "delay_ms");
    let delay_ms = path::delay_ms(Some(query));
    refused_or(&delay_ms, |delay_ms| match &text {
        Ok(None) => assert_eq!(*delay_ms, 0),
        Ok(Some(text)) => assert_eq!(text.parse(), Ok(*delay_ms)),
        Err(error) => panic!("a delay was read out of what was refused: {error}"),
    });
    refused_or(&text, |text| assert!(text.as_ref().is_none_or(|text| text.len() <= query.len())));
}

fn refused_or<T>(result: &Result<T, Error>, check: impl FnOnce(&T)) {
    match result {
        Ok(value) => check(value),
        Err(error) => assert!(error.code == ErrorCode::BadRequest && !error.message.is_empty()),
    }
}

fn check_router(path: &str) {
    for method in &METHODS {
        match find(method, path) {
            Found::Operation(row, captures) => {
                check_captures(path, &captures);
                let is_route = matches!(row.kind, Kind::Route);
                assert!(is_route || row.method == method.as_str() || *method == Method::HEAD && row.method == "GET");
            }
            Found::WrongMethod(rows) => {
                let allow = rows.allow();
                assert!(allow.split(", ").all(|allowed| allowed == "OPTIONS" || allowed != method.as_str()), "{allow}");
                assert!(allow.len() > "OPTIONS".len() && allow.ends_with("OPTIONS"), "{allow}");
            }
            Found::Nothing => {}
        }
    }
}

fn check_captures(path: &str, captures: &Captures<'_>) {
    for parameter in Parameter::ALL {
        let Some(text) = captures.get(parameter) else { continue };
        match parameter {
            Parameter::Path => assert!(text.starts_with('/')),
            _ => assert!(!text.contains('/')),
        }
        assert!(path.contains(text));
    }
}
