//! The header `Authorization` and signed queries: a line each. Nobody with a key has signed them, so none is accepted,
//! and what is refused says why.

use millrace_s3::signature::{HeaderFields, KnownKey, Request, Rules, SigningKeys, verify};

pub(crate) fn run(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let (header, query) = text.split_once('\n').unwrap_or((text, ""));
    if let Ok(fields) = HeaderFields::parse(header) {
        assert!(header.contains(fields.credential) && header.contains(fields.signature));
        assert!(fields.signed_headers.is_sorted());
    }
    let date = &b"20130524T000000Z"[..];
    let rules = Rules { region: "us-east-1".to_owned(), allows_version_2: true };
    let known = |_: &str| Some(KnownKey { secret: "a secret that is not in the corpus".to_owned(), identity: () });
    for headers in [&[("x-amz-date", date), ("authorization", header.as_bytes())][..], &[("x-amz-date", date)]] {
        let request = Request { method: "GET", path: "/b/k", query, host: "localhost", bucket_in_host: None, headers };
        match verify(&request, 1_369_353_600, &rules, &known, &mut SigningKeys::default()) {
            Ok(None) => assert!(!headers.iter().any(|(name, _)| *name == "authorization")),
            Ok(Some(_)) => panic!("nobody has signed it"),
            Err(error) => assert!(!error.message.is_empty()),
        }
    }
}
