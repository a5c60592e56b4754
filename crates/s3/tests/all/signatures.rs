//! Version 4 signatures: the examples of the S3 documentation, what is refused with which code, and that no byte of a
//! signed request may change.

use millrace_s3::error::{Code, S3Error};
use millrace_s3::signature::{
    CLOCK_SKEW_S, KnownKey, Payload, Request, Rules, Signed, SigningKey, SigningKeys, canonical, date, verify,
};
use proptest::prelude::*;

const ACCESS_KEY: &str = "AKIAIOSFODNN7EXAMPLE";
const SECRET: &str = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";
const TIMESTAMP: &str = "20130524T000000Z";
const HOST: &str = "examplebucket.s3.amazonaws.com";
const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

type Headers = Vec<(String, Vec<u8>)>;

struct Sent {
    method: String,
    path: String,
    query: String,
    host: String,
    headers: Headers,
}

impl Sent {
    fn new(method: &str, path: &str, query: &str, headers: &[(&str, &str)]) -> Self {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), value.as_bytes().to_vec());
        Self {
            method: method.to_owned(),
            path: path.to_owned(),
            query: query.to_owned(),
            host: HOST.to_owned(),
            headers: headers.iter().map(owned).collect(),
        }
    }

    fn set(&mut self, name: &str, value: &str) -> &mut Self {
        self.headers.retain(|(own, _)| own != name);
        self.headers.push((name.to_owned(), value.as_bytes().to_vec()));
        self
    }

    fn signed(mut self, names: &str, signature: &str) -> Self {
        let scope = "20130524/us-east-1/s3/aws4_request";
        let value =
            format!("AWS4-HMAC-SHA256 Credential={ACCESS_KEY}/{scope},SignedHeaders={names},Signature={signature}");
        self.set("authorization", &value);
        self
    }

    fn verify_at(&self, now_s: u64) -> Result<Option<Signed<u32>>, S3Error> {
        let headers: Vec<_> = self.headers.iter().map(|(name, value)| (name.as_str(), value.as_slice())).collect();
        let request = Request {
            method: &self.method,
            path: &self.path,
            query: &self.query,
            host: &self.host,
            bucket_in_host: None,
            headers: &headers,
        };
        let keys = |name: &str| (name == ACCESS_KEY).then(|| KnownKey { secret: SECRET.to_owned(), identity: 7 });
        verify(
            &request,
            now_s,
            &Rules { region: "us-east-1".to_owned(), allows_version_2: false },
            &keys,
            &mut SigningKeys::default(),
        )
    }

    fn verify(&self) -> Result<Option<Signed<u32>>, S3Error> {
        self.verify_at(date::parse(TIMESTAMP).unwrap())
    }

    fn code(&self) -> Code {
        self.verify().unwrap_err().code
    }
}

fn get_object() -> Sent {
    let headers = [("range", "bytes=0-9"), ("x-amz-content-sha256", EMPTY), ("x-amz-date", TIMESTAMP)];
    Sent::new("GET", "/test.txt", "", &headers).signed(
        "host;range;x-amz-content-sha256;x-amz-date",
        "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
    )
}

const PRESIGNED: &str = "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20130524%2Fus-east-1\
    %2Fs3%2Faws4_request&X-Amz-Date=20130524T000000Z&X-Amz-Expires=86400&X-Amz-SignedHeaders=host&X-Amz-Signature=\
    aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404";

fn presigned(query: &str) -> Sent {
    Sent::new("GET", "/test.txt", query, &[])
}

#[test]
fn documented_header_examples_are_accepted() {
    let common = "host;x-amz-content-sha256;x-amz-date";
    let date_headers = [("x-amz-content-sha256", EMPTY), ("x-amz-date", TIMESTAMP)];
    let lifecycle = Sent::new("GET", "/", "lifecycle", &date_headers)
        .signed(common, "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543");
    let list = Sent::new("GET", "/", "max-keys=2&prefix=J", &date_headers)
        .signed(common, "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7");
    let body = "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072";
    let headers = [
        ("date", "Fri, 24 May 2013 00:00:00 GMT"),
        ("x-amz-content-sha256", body),
        ("x-amz-date", TIMESTAMP),
        ("x-amz-storage-class", "REDUCED_REDUNDANCY"),
    ];
    let names = "date;host;x-amz-content-sha256;x-amz-date;x-amz-storage-class";
    let signature = "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd";
    for path in ["/test$file.text", "/test%24file.text"] {
        let put = Sent::new("PUT", path, "", &headers).signed(names, signature);
        assert_eq!(put.verify().unwrap().unwrap().identity, 7);
    }
    for sent in [get_object(), lifecycle, list] {
        let signed = sent.verify().unwrap().unwrap();
        assert_eq!((signed.identity, signed.is_presigned), (7, false));
        assert!(matches!(signed.payload, Payload::Sha256(hash) if hash[0] == 0xe3));
    }
}

#[test]
fn documented_chunked_examples_are_accepted() {
    let chunked = |form: &str, names: &str, signature: &str, more: &[(&str, &str)]| {
        let headers = [
            ("content-encoding", "aws-chunked"),
            ("x-amz-content-sha256", form),
            ("x-amz-date", TIMESTAMP),
            ("x-amz-decoded-content-length", "66560"),
            ("x-amz-storage-class", "REDUCED_REDUNDANCY"),
        ];
        let mut sent = Sent::new("PUT", "/examplebucket/chunkObject.txt", "", &headers);
        sent.host = "s3.amazonaws.com".to_owned();
        more.iter().for_each(|(name, value)| {
            sent.set(name, value);
        });
        sent.signed(names, signature).verify().unwrap().unwrap()
    };
    let plain = chunked(
        "STREAMING-AWS4-HMAC-SHA256-PAYLOAD",
        "content-encoding;content-length;host;x-amz-content-sha256;x-amz-date;x-amz-decoded-content-length;\
         x-amz-storage-class",
        "4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9",
        &[("content-length", "66824")],
    );
    assert_eq!(plain.payload, Payload::Chunked { is_signed: true, has_trailer: false });
    let trailer = chunked(
        "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER",
        "content-encoding;host;x-amz-content-sha256;x-amz-date;x-amz-decoded-content-length;x-amz-storage-class;\
         x-amz-trailer",
        "106e2a8a18243abcf37539882f36619c00e2dfc72633413f02d3b74544bfeb8e",
        &[("x-amz-trailer", "x-amz-checksum-crc32c")],
    );
    assert_eq!(trailer.payload, Payload::Chunked { is_signed: true, has_trailer: true });
    assert_eq!(trailer.seed.unwrap().scope, "20130524/us-east-1/s3/aws4_request");
}

#[test]
fn documented_presigned_example_is_accepted_until_it_expires() {
    let start = date::parse(TIMESTAMP).unwrap();
    for now_s in [start - CLOCK_SKEW_S, start, start + 86_400] {
        let signed = presigned(PRESIGNED).verify_at(now_s).unwrap().unwrap();
        assert_eq!((signed.payload, signed.is_presigned), (Payload::Unsigned, true));
    }
    for now_s in [start - CLOCK_SKEW_S - 1, start + 86_401] {
        assert_eq!(presigned(PRESIGNED).verify_at(now_s).unwrap_err().code, Code::AccessDenied);
    }
    // One second is the least. This is refused before the signature counts.
    let at_once = presigned(&PRESIGNED.replace("Expires=86400", "Expires=0")).verify_at(start);
    assert_eq!(at_once.unwrap_err().code, Code::AccessDenied);
}

/// The signatures are computed with Python's `hmac`.
#[test]
fn a_signed_lifetime_out_of_range_gives_no_access() {
    for (lifetime, signature) in [
        ("-7", "42b48b0bee288485d29669881fa3041eff5058f2ed813a9efb8840dd1697dca0"),
        ("604801", "d6f285ce1eb895802441320846b195098ec0d2ec9c83f6a36b9797c993b45a80"),
    ] {
        let changed = PRESIGNED.replace("Expires=86400", &format!("Expires={lifetime}"));
        assert_eq!(presigned(&changed).code(), Code::AuthorizationQueryParametersError, "{lifetime}");
        let (unsigned, _) = changed.rsplit_once('=').unwrap();
        assert_eq!(presigned(&format!("{unsigned}={signature}")).code(), Code::AccessDenied, "{lifetime}");
    }
}

#[test]
fn a_request_that_nobody_signed_is_anonymous() {
    assert!(Sent::new("GET", "/a", "prefix=X-Amz-Signature", &[]).verify().unwrap().is_none());
}

#[test]
fn malformed_queries_get_their_code() {
    let query = Code::AuthorizationQueryParametersError;
    for (from, to, code) in [
        ("86400", "604801", query),
        ("86400", "-1", query),
        ("86400", "1e3", query),
        ("86400", "", query),
        ("86400", "99999999999999999999999", query),
        ("AWS4-HMAC-SHA256", "AWS4-HMAC-SHA1", query),
        ("AWS4-HMAC-SHA256", "AWS4-ECDSA-P256-SHA256", Code::NotImplemented),
        ("&X-Amz-Date=20130524T000000Z", "", query),
        ("X-Amz-Date=20130524T000000Z", "X-Amz-Date=20130525T000000Z", query),
        ("X-Amz-Date=20130524T000000Z", "X-Amz-Date=20130524", query),
        ("X-Amz-Date=20130524T000000Z", "X-Amz-Date=20130524T000000Z&X-Amz-Date=20130524T000000Z", query),
        ("us-east-1", "eu-west-1", query),
        ("%2Fs3%2F", "%2Fiam%2F", query),
        ("aws4_request", "aws3_request", query),
        ("%2F20130524%2F", "%2F2013%2F", query),
        ("AKIAIOSFODNN7EXAMPLE%2F20130524%2F", "", query),
        ("AKIAIOSFODNN7EXAMPLE", "AKIA", Code::InvalidAccessKeyId),
        ("SignedHeaders=host", "SignedHeaders=range", Code::AccessDenied),
        ("SignedHeaders=host", "SignedHeaders=host%3B", query),
        ("SignedHeaders=host", "SignedHeaders=host%3Bhost", query),
        ("aeeed9", "aeeed8", Code::SignatureDoesNotMatch),
        ("aeeed9", "AEEED9", Code::SignatureDoesNotMatch),
    ] {
        let changed = PRESIGNED.replacen(from, to, 1);
        assert_ne!(changed, PRESIGNED, "{from}");
        assert_eq!(presigned(&changed).code(), code, "{from} → {to}");
    }
    let mut both = get_object();
    both.query = PRESIGNED.to_owned();
    assert_eq!(both.code(), Code::InvalidArgument);
    let mut unsigned = presigned(PRESIGNED);
    unsigned.set("x-amz-acl", "public-read");
    assert_eq!(unsigned.code(), Code::AccessDenied);
    assert_eq!(presigned("AWSAccessKeyId=a&Signature=b&Expires=1").code(), Code::InvalidRequest);
}

#[test]
fn malformed_headers_get_their_code() {
    let malformed = Code::AuthorizationHeaderMalformed;
    let good =
        String::from_utf8(get_object().headers.iter().find(|(name, _)| name == "authorization").unwrap().1.clone())
            .unwrap();
    for (from, to, code) in [
        ("AWS4-HMAC-SHA256", "AWS4-ECDSA-P256-SHA256", Code::NotImplemented),
        ("AWS4-HMAC-SHA256", "AWS", Code::InvalidRequest),
        ("AWS4-HMAC-SHA256", "Basic", Code::InvalidArgument),
        ("Credential=", "Credentials=", malformed),
        (",SignedHeaders=", ",SignedHeaders", malformed),
        (",Signature=", ",Signature=a,Signature=", malformed),
        (&good[17..], "", malformed),
        ("us-east-1", "eu-west-1", malformed),
        ("/s3/", "/iam/", malformed),
        ("aws4_request", "aws4", malformed),
        ("/20130524/", "/20130523/", malformed),
        ("/20130524/", "/2013052x/", malformed),
        ("AKIAIOSFODNN7EXAMPLE/", "", malformed),
        ("AKIAIOSFODNN7EXAMPLE", "", Code::InvalidAccessKeyId),
        ("AKIAIOSFODNN7EXAMPLE", "nobody", Code::InvalidAccessKeyId),
        ("host;", "", Code::AccessDenied),
        (";x-amz-date", "", Code::AccessDenied),
        ("range;", "", Code::SignatureDoesNotMatch),
        ("f0e8", "f0e9", Code::SignatureDoesNotMatch),
        ("f0e8", "", Code::SignatureDoesNotMatch),
    ] {
        let mut sent = get_object();
        sent.set("authorization", &good.replacen(from, to, 1));
        assert_eq!(sent.code(), code, "{from} → {to}");
    }
    for (name, value, code) in [
        ("authorization", "", Code::AccessDenied),
        ("x-amz-date", "yesterday", Code::AccessDenied),
        ("x-amz-date", "20130524T001501Z", Code::RequestTimeTooSkewed),
        ("x-amz-date", "20130524T001500Z", Code::SignatureDoesNotMatch),
        ("x-amz-content-sha256", "abc", Code::InvalidArgument),
        ("x-amz-content-sha256", "STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD", Code::NotImplemented),
        ("x-amz-content-sha256", "UNSIGNED-PAYLOAD", Code::SignatureDoesNotMatch),
        ("x-amz-acl", "public-read", Code::AccessDenied),
    ] {
        let mut sent = get_object();
        assert_eq!(sent.set(name, value).code(), code, "{name}: {value}");
    }
    let mut sent = get_object();
    sent.headers.retain(|(name, _)| name != "x-amz-content-sha256");
    assert_eq!(sent.code(), Code::InvalidRequest);
    sent.headers.retain(|(name, _)| name != "x-amz-date");
    assert_eq!(sent.code(), Code::AccessDenied);
    let mut twice = get_object();
    twice.headers.push(("authorization".to_owned(), good.into_bytes()));
    assert_eq!(twice.code(), Code::InvalidArgument);
    let mut region = get_object();
    let header = region.headers.iter_mut().find(|(name, _)| name == "authorization").unwrap();
    header.1 = String::from_utf8(header.1.clone()).unwrap().replace("us-east-1", "eu").into_bytes();
    assert_eq!(region.verify().unwrap_err().details, [("Region", "us-east-1".to_owned())]);
}

#[test]
fn a_changed_secret_is_not_answered_from_the_cache() {
    let mut cache = SigningKeys::default();
    let old = cache.get("a", "old", "20130524", "us-east-1");
    let new = cache.get("a", "new", "20130524", "us-east-1");
    assert!(old != new && new == SigningKey::derive("new", "20130524", "us-east-1"));
    assert!(cache.get("a", "old", "20130524", "us-east-1") == old);
}

fn sign(mut sent: Sent) -> Sent {
    let names = ["host", "x-amz-content-sha256", "x-amz-date", "x-amz-meta-a"];
    sent.set("x-amz-content-sha256", "UNSIGNED-PAYLOAD").set("x-amz-date", TIMESTAMP);
    let headers: Vec<_> = sent.headers.iter().map(|(name, value)| (name.as_str(), value.as_slice())).collect();
    let request = Request {
        method: &sent.method,
        path: &sent.path,
        query: &sent.query,
        host: &sent.host,
        bucket_in_host: None,
        headers: &headers,
    };
    let canonical = canonical::request(&request, &names, "UNSIGNED-PAYLOAD");
    let text = canonical::string_to_sign(TIMESTAMP, "20130524/us-east-1/s3/aws4_request", &canonical);
    let signature = SigningKey::derive(SECRET, "20130524", "us-east-1").sign(text.as_bytes());
    sent.signed(&names.join(";"), &signature)
}

/// What the signature covers of a request: two requests that mean the same may differ in bytes.
fn meaning(sent: &Sent) -> impl PartialEq + use<> {
    let headers: Vec<_> = sent.headers.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
    let path = canonical::decode(&sent.path, false);
    (sent.method.clone(), path, canonical::query(&sent.query), sent.host.clone(), headers)
}

proptest! {
    #[test]
    fn what_is_signed_is_accepted_and_no_byte_may_change(
        path in "/[ -~é]{0,20}",
        query in "[a-c%&=+ 0-9]{0,12}",
        value in "[!-~]{1,10}",
        place in 0..4_usize,
        at in any::<prop::sample::Index>(),
        flip in 1..128_u8,
    ) {
        let mut sent = sign(Sent::new("PUT", &path, &query, &[("x-amz-meta-a", &value)]));
        prop_assert!(sent.verify().unwrap().is_some());
        let before = meaning(&sent);
        let header = at.index(sent.headers.len());
        let bytes = match place {
            0 => &mut sent.path.as_bytes().to_vec(),
            1 => &mut sent.query.as_bytes().to_vec(),
            2 => &mut sent.host.as_bytes().to_vec(),
            _ => &mut sent.headers[header].1,
        };
        prop_assume!(!bytes.is_empty());
        let index = at.index(bytes.len());
        bytes[index] ^= flip;
        let text = String::from_utf8(bytes.clone());
        prop_assume!(place == 3 || text.is_ok());
        match place {
            0 => sent.path = text.unwrap(),
            1 => sent.query = text.unwrap(),
            2 => sent.host = text.unwrap(),
            _ => {}
        }
        prop_assume!(meaning(&sent) != before);
        prop_assert!(!matches!(sent.verify(), Ok(Some(_))));
    }

    #[test]
    fn any_authorization_is_answered(value in prop::collection::vec(any::<u8>(), 0..200), query in ".{0,200}") {
        let mut sent = get_object();
        sent.headers.last_mut().unwrap().1 = value;
        sent.query = query;
        prop_assert!(!matches!(sent.verify(), Ok(Some(_))));
    }
}
