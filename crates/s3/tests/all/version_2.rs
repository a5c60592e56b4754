//! Version 2 signatures: requests of the S3 documentation, the switch, and what is refused.

use millrace_s3::error::{Code, S3Error};
use millrace_s3::signature::{KnownKey, Request, Rules, SigningKeys, date, verify};

const ACCESS_KEY: &str = "AKIAIOSFODNN7EXAMPLE";

struct Sent<'a> {
    method: &'a str,
    path: &'a str,
    query: &'a str,
    bucket_in_host: Option<&'a str>,
    headers: &'a [(&'a str, &'a [u8])],
}

impl Sent<'_> {
    fn verify(&self, now_s: u64, allows_version_2: bool) -> Result<Option<u32>, S3Error> {
        let Self { method, path, query, bucket_in_host, headers } = *self;
        let request = Request { method, path, query, host: "s3.amazonaws.com", bucket_in_host, headers };
        let secret = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY".to_owned();
        let keys = |name: &str| (name == ACCESS_KEY).then(|| KnownKey { secret: secret.clone(), identity: 7 });
        let rules = Rules { region: "us-east-1".to_owned(), allows_version_2 };
        Ok(verify(&request, now_s, &rules, &keys, &mut SigningKeys::default())?.map(|signed| signed.identity))
    }
}

#[test]
fn requests_are_accepted_behind_the_switch() {
    let bucket = Some("awsexamplebucket1");
    for (method, path, query, bucket_in_host, headers) in EXAMPLES {
        let signature = headers.last().unwrap().1;
        let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, value.as_bytes())).collect();
        let bucket_in_host = bucket_in_host.then_some(bucket).flatten();
        let sent = Sent { method, path, query, bucket_in_host, headers: &headers };
        let time = headers
            .iter()
            .find(|(name, _)| *name == "x-amz-date")
            .or_else(|| headers.iter().find(|(name, _)| *name == "date"));
        let (now_s, _) = date::parse_http(std::str::from_utf8(time.unwrap().1).unwrap()).unwrap();
        assert_eq!(sent.verify(now_s, true).unwrap(), Some(7), "{signature}");
        assert_eq!(sent.verify(now_s, false).unwrap_err().code, Code::InvalidRequest);
        assert_eq!(sent.verify(now_s + 901, true).unwrap_err().code, Code::RequestTimeTooSkewed);
        let other = Sent { path: "/other", ..sent };
        assert_eq!(other.verify(now_s, true).unwrap_err().code, Code::SignatureDoesNotMatch);
    }
}

type Example = (&'static str, &'static str, &'static str, bool, &'static [(&'static str, &'static str)]);

/// The first is documented in "Signing and authenticating REST requests". The signatures of the others are computed
/// with Python's `hmac`. The authorization comes last.
const EXAMPLES: [Example; 3] = [
    (
        "GET",
        "/photos/puppy.jpg",
        "",
        true,
        &[
            ("date", "Tue, 27 Mar 2007 19:36:42 +0000"),
            ("authorization", "AWS AKIAIOSFODNN7EXAMPLE:qgk2+6Sv9/oM7G3qLEjTH1a1l1g="),
        ],
    ),
    (
        "PUT",
        "/photos/puppy.jpg",
        "",
        true,
        &[
            ("content-type", "image/jpeg"),
            ("date", "Tue, 27 Mar 2007 21:15:45 GMT"),
            ("authorization", "AWS AKIAIOSFODNN7EXAMPLE:8o3Noj7demwhkeukhcUK7PSr1II="),
        ],
    ),
    (
        "GET",
        "/",
        "acl",
        true,
        &[
            ("date", "Tue, 27 Mar 2007 19:44:46 GMT"),
            ("authorization", "AWS AKIAIOSFODNN7EXAMPLE:bCsK7JmFneccm8Eaaf2T/8PNH6M="),
        ],
    ),
];

fn presigned(query: &str) -> Sent<'_> {
    Sent { method: "GET", path: "/a/b%20c", query, bucket_in_host: None, headers: &[] }
}

#[test]
fn presigned_queries() {
    let good = "AWSAccessKeyId=AKIAIOSFODNN7EXAMPLE&Signature=Gkw6Oq56h1Yak2pdbG75BJjh7CQ%3D&Expires=1175139620";
    assert_eq!(presigned(good).verify(1_175_139_620, true).unwrap(), Some(7));
    for (from, to, code) in [
        ("1175139620", "1175139621", Code::SignatureDoesNotMatch),
        ("1175139620", "", Code::AccessDenied),
        ("1175139620", "x", Code::AccessDenied),
        ("&Expires=1175139620", "", Code::AccessDenied),
        ("&Expires", "&Expires=1&Expires", Code::InvalidArgument),
        ("AKIA", "BKIA", Code::InvalidAccessKeyId),
        ("&Expires", "&versionId=1&Expires", Code::SignatureDoesNotMatch),
    ] {
        let changed = good.replacen(from, to, 1);
        assert_eq!(presigned(&changed).verify(1_175_139_000, true).unwrap_err().code, code, "{from} → {to}");
    }
    assert_eq!(presigned(good).verify(1_175_139_621, true).unwrap_err().code, Code::AccessDenied);
    assert_eq!(presigned(good).verify(1_175_139_000, false).unwrap_err().code, Code::InvalidRequest);
}

/// Clients of boto sign a bucket's path with a slash behind, and send it without. Computed with Python's `hmac`.
#[test]
fn a_bucket_may_be_signed_with_a_slash_behind() {
    let authorization = b"AWS AKIAIOSFODNN7EXAMPLE:gJtUj+D0lSb1Zhh8Vgfn3Xh6Afw=";
    let headers = [("date", &b"Tue, 27 Mar 2007 19:36:42 GMT"[..]), ("authorization", authorization)];
    let sent = |path| Sent { method: "PUT", path, query: "", bucket_in_host: None, headers: &headers };
    let (now_s, _) = date::parse_http("Tue, 27 Mar 2007 19:36:42 GMT").unwrap();
    for path in ["/abc", "/abc/"] {
        assert_eq!(sent(path).verify(now_s, true).unwrap(), Some(7), "{path}");
    }
    for path in ["/abc/k", "/abc//", "/", ""] {
        assert_eq!(sent(path).verify(now_s, true).unwrap_err().code, Code::SignatureDoesNotMatch, "{path}");
    }
}

#[test]
fn malformed_headers_are_refused() {
    for value in ["AWS ", "AWS a", "AWS :b", "AWS a:"] {
        let headers = [("date", &b"Tue, 27 Mar 2007 19:36:42 GMT"[..]), ("authorization", value.as_bytes())];
        let sent = Sent { method: "GET", path: "/", query: "", bucket_in_host: None, headers: &headers };
        assert_eq!(sent.verify(0, true).unwrap_err().code, Code::InvalidArgument, "{value}");
    }
}
