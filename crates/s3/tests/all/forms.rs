//! Uploads by browsers: the documented example, policies, malformed forms, split points.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use millrace_s3::error::{Code, S3Error};
use millrace_s3::post_form::{Event, Form, FormReader, Policy, Success, boundary, verify};
use millrace_s3::signature::{KnownKey, Rules, SigningKeys, date};
use proptest::prelude::*;

const ACCESS_KEY: &str = "AKIAIOSFODNN7EXAMPLE";
const SECRET: &str = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";
const BUCKET: &str = "sigv4examplebucket";
const POLICY: &str = "eyAiZXhwaXJhdGlvbiI6ICIyMDE1LTEyLTMwVDEyOjAwOjAwLjAwMFoiLA0KICAiY29uZGl0aW9ucyI6IFsNCiAgICB7ImJ1\
    Y2tldCI6ICJzaWd2NGV4YW1wbGVidWNrZXQifSwNCiAgICBbInN0YXJ0cy13aXRoIiwgIiRrZXkiLCAidXNlci91c2VyMS8iXSwNCiAgICB7ImFjbCI\
    6ICJwdWJsaWMtcmVhZCJ9LA0KICAgIHsic3VjY2Vzc19hY3Rpb25fcmVkaXJlY3QiOiAiaHR0cDovL3NpZ3Y0ZXhhbXBsZWJ1Y2tldC5zMy5hbWF6b2\
    5hd3MuY29tL3N1Y2Nlc3NmdWxfdXBsb2FkLmh0bWwifSwNCiAgICBbInN0YXJ0cy13aXRoIiwgIiRDb250ZW50LVR5cGUiLCAiaW1hZ2UvIl0sDQogI\
    CAgeyJ4LWFtei1tZXRhLXV1aWQiOiAiMTQzNjUxMjM2NTEyNzQifSwNCiAgICB7IngtYW16LXNlcnZlci1zaWRlLWVuY3J5cHRpb24iOiAiQUVTMjU2\
    In0sDQogICAgWyJzdGFydHMtd2l0aCIsICIkeC1hbXotbWV0YS10YWciLCAiIl0sDQoNCiAgICB7IngtYW16LWNyZWRlbnRpYWwiOiAiQUtJQUlPU0Z\
    PRE5ON0VYQU1QTEUvMjAxNTEyMjkvdXMtZWFzdC0xL3MzL2F3czRfcmVxdWVzdCJ9LA0KICAgIHsieC1hbXotYWxnb3JpdGhtIjogIkFXUzQtSE1BQy\
    1TSEEyNTYifSwNCiAgICB7IngtYW16LWRhdGUiOiAiMjAxNTEyMjlUMDAwMDAwWiIgfQ0KICBdDQp9";

fn example() -> Vec<(&'static str, String)> {
    [
        ("key", "user/user1/${filename}"),
        ("acl", "public-read"),
        ("success_action_redirect", "http://sigv4examplebucket.s3.amazonaws.com/successful_upload.html"),
        ("Content-Type", "image/jpeg"),
        ("x-amz-meta-uuid", "14365123651274"),
        ("x-amz-server-side-encryption", "AES256"),
        ("X-Amz-Credential", "AKIAIOSFODNN7EXAMPLE/20151229/us-east-1/s3/aws4_request"),
        ("X-Amz-Algorithm", "AWS4-HMAC-SHA256"),
        ("X-Amz-Date", "20151229T000000Z"),
        ("x-amz-meta-tag", ""),
        ("Policy", POLICY),
        ("X-Amz-Signature", "8afdbf4008c03f22c2cd3cdb72e4afbb1f6a588f3255ac628749a66d7f09699e"),
    ]
    .map(|(name, value)| (name, value.to_owned()))
    .to_vec()
}

fn body(fields: &[(&str, String)], file: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    for (name, value) in fields {
        let part = format!("--XyZ\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n");
        body.extend_from_slice(part.as_bytes());
    }
    body.extend_from_slice(
        b"--XyZ\r\nContent-Disposition: form-data; name=\"file\"; filename=\"C:\\dir\\photo.jpg\"\r\n",
    );
    body.extend_from_slice(b"Content-Type: text/plain\r\n\r\n");
    body.extend_from_slice(file);
    body.extend_from_slice(
        b"\r\n--XyZ\r\nContent-Disposition: form-data; name=\"submit\"\r\n\r\nUpload\r\n--XyZ--\r\n",
    );
    body
}

fn read(pieces: &[&[u8]]) -> Result<(Form, Vec<u8>), S3Error> {
    let mut reader = FormReader::new("XyZ");
    let (mut file, mut begun) = (Vec::new(), 0);
    for piece in pieces {
        reader.push(piece);
        loop {
            match reader.next_event()? {
                Event::NeedsMore | Event::End => break,
                Event::FileBegins => begun += 1,
                Event::File(bytes) => file.extend_from_slice(&bytes),
            }
        }
    }
    let form = reader.finish()?;
    assert_eq!(begun, 1);
    Ok((form, file))
}

fn form(fields: &[(&str, String)]) -> Form {
    read(&[&body(fields, b"jpeg")]).unwrap().0
}

fn check(form: &Form, allows_version_2: bool) -> Result<Option<u32>, S3Error> {
    let keys = |name: &str| (name == ACCESS_KEY).then(|| KnownKey { secret: SECRET.to_owned(), identity: 7 });
    let rules = Rules { region: "us-east-1".to_owned(), allows_version_2 };
    let now_s = date::parse("20151230T115959Z").unwrap();
    let signed = verify(form, BUCKET, now_s, &rules, &keys, &mut SigningKeys::default())?;
    Ok(signed.map(|signed| signed.identity))
}

#[test]
fn documented_example_is_accepted() {
    let (form, file) = read(&[&body(&example(), b"jpeg")]).unwrap();
    assert_eq!(
        (form.key().unwrap(), file.as_slice(), form.content_type()),
        ("user/user1/photo.jpg", &b"jpeg"[..], Some("image/jpeg"))
    );
    assert_eq!(check(&form, false).unwrap(), Some(7));
    let address = "http://sigv4examplebucket.s3.amazonaws.com/successful_upload.html?bucket=b&key=a%2Fb&etag=%22e%22";
    assert_eq!(form.success("b", "a/b", "\"e\""), Success::Redirect(address.to_owned()));
}

#[test]
fn changed_forms_get_their_code() {
    for (name, value, code) in [
        ("x-amz-signature", Some("8afd"), Code::SignatureDoesNotMatch),
        ("policy", Some("e30="), Code::SignatureDoesNotMatch),
        ("policy", None, Code::InvalidArgument),
        ("x-amz-signature", None, Code::InvalidArgument),
        ("x-amz-date", Some("20151228T000000Z"), Code::InvalidArgument),
        ("x-amz-algorithm", Some("AWS4-ECDSA-P256-SHA256"), Code::NotImplemented),
        ("x-amz-credential", Some("x/20151229/us-east-1/s3/aws4_request"), Code::InvalidAccessKeyId),
        ("x-amz-credential", Some("x/20151229/eu/s3/aws4_request"), Code::InvalidArgument),
        ("key", Some("user/user2/a"), Code::AccessDenied),
        ("acl", Some("private"), Code::AccessDenied),
        ("acl", None, Code::AccessDenied),
        ("content-type", Some("image/png, text/plain"), Code::AccessDenied),
        ("x-amz-meta-other", Some("a"), Code::AccessDenied),
    ] {
        let mut fields = example();
        fields.retain(|(own, _)| !own.eq_ignore_ascii_case(name));
        fields.extend(value.map(|value| (name, value.to_owned())));
        assert_eq!(check(&form(&fields), false).unwrap_err().code, code, "{name}: {value:?}");
    }
    let mut ignored = example();
    ignored.push(("X-Ignore-A", "a".to_owned()));
    ignored.push(("x-amz-checksum-crc32", "AAAAAA==".to_owned()));
    assert_eq!(check(&form(&ignored), false).unwrap(), Some(7));
    assert_eq!(check(&form(&[("key", "a".to_owned())]), false).unwrap(), None);
    assert_eq!(form(&[]).key().unwrap_err().code, Code::UserKeyMustBeSpecified);
}

#[test]
fn version_2_is_accepted_behind_its_switch() {
    let json = "{\"expiration\": \"2016-01-01T00:00:00Z\", \"conditions\": [[\"StArTs-WiTh\", \"$KeY\", \"\"], {\"bUcKeT\": \"sigv4examplebucket\"}]}";
    let policy = STANDARD.encode(json);
    let fields = |signature: &str| {
        let all = [("AWSAccessKeyId", ACCESS_KEY), ("policy", &policy), ("signature", signature), ("key", "a")];
        form(&all.map(|(name, value)| (name, value.to_owned())))
    };
    assert_eq!(check(&fields(SIGNATURE), true).unwrap(), Some(7));
    assert_eq!(check(&fields(SIGNATURE), false).unwrap_err().code, Code::InvalidRequest);
    for wrong in ["", "?", "AAAA"] {
        assert_eq!(check(&fields(wrong), true).unwrap_err().code, Code::SignatureDoesNotMatch);
    }
}

/// HMAC-SHA1 of the policy above, computed with Python's `hmac`.
const SIGNATURE: &str = "A7v/jWiQavbJvlZ4epzGPnA62VA=";

#[test]
fn malformed_policies_are_refused() {
    let policy =
        |conditions: &str| format!("{{\"expiration\": \"2016-01-01T00:00:00.000Z\", \"conditions\": {conditions}}}");
    for json in [
        String::new(),
        "[]".to_owned(),
        "{\"conditions\": []}".to_owned(),
        "{\"EXPIRATION\": \"2016-01-01T00:00:00Z\", \"conditions\": []}".to_owned(),
        "{\"expiration\": \"2016-01-01T00:00:00Z\", \"CONDITIONS\": []}".to_owned(),
        "{\"expiration\": \"2016-01-01 00:00:00\", \"conditions\": []}".to_owned(),
        policy("[{}]"),
        policy("{}"),
        policy("[{\"acl\": 1}]"),
        policy("[[\"eq\", \"$acl\"]]"),
        policy("[[\"eq\", \"acl\", \"a\"]]"),
        policy("[[\"ends-with\", \"$acl\", \"a\"]]"),
        policy("[[\"content-length-range\", 0]]"),
        policy("[[\"content-length-range\", -1, 5]]"),
        policy("[\"a\"]"),
        policy(&"[".repeat(10_000)),
    ] {
        assert_eq!(Policy::parse(json.as_bytes()).unwrap_err().code, Code::InvalidPolicyDocument, "{json}");
    }
    let ranged = policy("[[\"content-length-range\", 5, \"10\"], [\"content-length-range\", 0, 9]]");
    let ranged = Policy::parse(ranged.as_bytes()).unwrap();
    assert!(ranged.check_size(5).is_ok() && ranged.check_size(9).is_ok());
    assert_eq!(ranged.check_size(4).unwrap_err().code, Code::EntityTooSmall);
    assert_eq!(ranged.check_size(10).unwrap_err().code, Code::EntityTooLarge);
}

#[test]
fn malformed_forms_are_refused() {
    let disposition = "Content-Disposition: form-data; name";
    for (body, code) in [
        (String::new(), Code::MalformedPostRequest),
        ("x".repeat(10_000), Code::MalformedPostRequest),
        ("--XyZ--".to_owned(), Code::IncorrectNumberOfFilesInPostRequest),
        ("--XyZabc\r\n".to_owned(), Code::MalformedPostRequest),
        ("--XyZ\r\n\r\na\r\n--XyZ".to_owned(), Code::MalformedPostRequest),
        (format!("--XyZ\r\n{}", "a".repeat(5_000)), Code::MalformedPostRequest),
        (format!("--XyZ\r\n{disposition}=a\r\n\r\n{}", "a".repeat(30_000)), Code::MaxPostPreDataLengthExceeded),
        (format!("--XyZ\r\n{disposition}=file\r\n\r\nabc"), Code::IncompleteBody),
        (format!("--XyZ\r\n{disposition}=\"a\r\n\r\nabc"), Code::MalformedPostRequest),
        (
            format!("--XyZ\r\n{disposition}=a\r\n\r\n\r\n--XyZ\r\n{disposition}=A\r\n\r\n\r\n--XyZ\r\n"),
            Code::MalformedPostRequest,
        ),
        (
            (0..300).map(|index| format!("--XyZ\r\n{disposition}=a{index}\r\n\r\n\r\n")).collect(),
            Code::MaxPostPreDataLengthExceeded,
        ),
    ] {
        assert_eq!(read(&[body.as_bytes()]).unwrap_err().code, code, "{}", &body[..body.len().min(60)]);
    }
    assert_eq!(boundary("multipart/form-data; boundary=\"a b\"").unwrap(), "a b");
    assert_eq!(boundary("text/plain").unwrap_err().code, Code::RequestIsNotMultiPartContent);
    for text in ["multipart/form-data", "multipart/form-data; boundary=", "multipart/form-data; boundary=é"] {
        assert_eq!(boundary(text).unwrap_err().code, Code::MalformedPostRequest);
    }
}

#[test]
fn a_redirect_that_is_not_an_address_is_ignored() {
    for (name, value, status) in [
        ("success_action_redirect", "javascript:alert(1)", 204),
        ("success_action_redirect", "http://a/\r\nb: c", 204),
        ("success_action_status", "404", 204),
        ("success_action_status", "201", 201),
    ] {
        assert_eq!(form(&[(name, value.to_owned())]).success("b", "k", "e"), Success::Status(status));
    }
}

proptest! {
    #[test]
    fn split_points_do_not_matter(
        file in prop::collection::vec(prop_oneof![Just(b'\r'), Just(b'\n'), Just(b'-'), Just(b'X'), any::<u8>()], 0..60),
        change in prop::option::of((any::<prop::sample::Index>(), any::<u8>())),
        splits in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
    ) {
        let mut body = body(&[("key", "k".to_owned())], &file);
        if let Some((at, byte)) = change {
            let at = at.index(body.len());
            body[at] = byte;
        }
        let mut ends: Vec<_> = splits.iter().map(|split| split.index(body.len() + 1)).chain([body.len()]).collect();
        ends.sort_unstable();
        let mut start = 0;
        let mut pieces = Vec::new();
        for end in ends {
            pieces.push(&body[start..end]);
            start = end;
        }
        let whole = read(&[&body]);
        if change.is_none() {
            prop_assert_eq!(&whole.as_ref().unwrap().1, &file);
        }
        prop_assert_eq!(read(&pieces), whole);
    }
}
