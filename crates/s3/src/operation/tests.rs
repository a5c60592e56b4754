//! Tables of requests and the operations they become.

use http::{HeaderMap, HeaderName, HeaderValue};
use millrace_api::objects::{
    AccessInput, BodyDigests, CannedAccess, ChecksumAlgorithm, ConfigurationKind, Grantee, ObjectOperation as Operation,
};

use super::copy::{self, Source};
use super::digests::{Claims, whole};
use super::*;
use crate::users::KnownUser;

#[derive(Clone)]
struct Bob;

impl Users for Bob {
    fn find(&self, _: &str) -> Option<KnownUser> {
        None
    }

    fn display_name(&self, id: &str) -> Option<String> {
        (id == "bob").then(|| "Bob".to_owned())
    }

    fn id_of_name(&self, name: &str) -> Option<String> {
        (name == "Bob").then(|| "bob".to_owned())
    }

    fn id_of_email(&self, email: &str) -> Option<String> {
        (email == "bob@test").then(|| "bob".to_owned())
    }
}

struct Given {
    headers: HeaderMap,
    query: Query,
}

fn given(query: &str, headers: &[(&str, &str)]) -> Given {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        let name = HeaderName::from_bytes(name.as_bytes()).expect("a name");
        map.append(name, HeaderValue::from_bytes(value.as_bytes()).expect("a value"));
    }
    Given { headers: map, query: Query::parse(query).expect("a query") }
}

impl Given {
    fn head(&self) -> Head<'_> {
        Head { headers: &self.headers, query: &self.query, region: "us-east-1" }
    }

    fn parse(&self, action: Action, document: &str) -> Result<Operation, Code> {
        parse(action, &self.head(), document.as_bytes(), &Bob).map_err(|error| error.code)
    }
}

#[test]
fn lists_take_their_parameters() {
    let of = |action, query: &str| match given(query, &[]).parse(action, "") {
        Ok(Operation::List(list) | Operation::ListVersions(list) | Operation::ListUploads(list)) => Ok(list),
        Ok(other) => panic!("{other:?}"),
        Err(code) => Err(code),
    };
    let list = of(Action::ListObjects, "prefix=a%2Fb&delimiter=%2F&marker=c+d&max-keys=5").expect("valid");
    assert_eq!(
        (list.prefix.as_str(), list.delimiter.as_str(), list.after.as_str(), list.limit),
        ("a/b", "/", "c d", 5)
    );
    assert_eq!(of(Action::ListObjects, "max-keys=5000").map(|list| list.limit), Ok(1000));
    assert_eq!(of(Action::ListObjects, "max-keys=0").map(|list| list.limit), Ok(0));
    assert_eq!(of(Action::ListObjectsV2, "start-after=a").map(|list| list.after), Ok("a".to_owned()));
    assert_eq!(
        of(Action::ListObjectsV2, "start-after=a&continuation-token=Yg").map(|list| list.after),
        Ok("b".to_owned())
    );
    assert_eq!(of(Action::ListObjectsV2, "continuation-token=").map(|list| list.after), Ok(String::new()));
    for query in ["bucket-region=us-east-1&max-buckets=5", "max-buckets=5"] {
        let buckets = given(query, &[]).parse(Action::ListBuckets, "");
        assert!(matches!(buckets, Ok(Operation::ListBuckets(list)) if list.limit == 5), "{query}");
    }
    let list = of(Action::ListVersions, "key-marker=k&version-id-marker=v").expect("valid");
    assert_eq!((list.after.as_str(), list.after_id.as_str()), ("k", "v"));
    for (action, query) in [
        (Action::ListObjects, "max-keys=x"),
        (Action::ListObjects, "max-keys=-1"),
        (Action::ListObjects, "encoding-type=base64"),
        (Action::ListObjectsV2, "continuation-token=%25"),
        (Action::ListVersions, "version-id-marker=v"),
        (Action::ListBuckets, "bucket-region=eu-west-1"),
        (Action::GetObject, "partNumber=0"),
        (Action::GetObject, "partNumber=10001"),
        (Action::GetObject, "versionId="),
        (Action::ListParts, "part-number-marker=x"),
    ] {
        assert_eq!(given(query, &[]).parse(action, ""), Err(Code::InvalidArgument), "{query}");
    }
}

#[test]
fn conditions_are_read() {
    let headers = [
        ("if-match", "\"a\", W/\"b\""),
        ("if-none-match", "*"),
        ("if-modified-since", "Thu, 01 Jan 1970 00:00:01 GMT"),
        ("if-unmodified-since", "tomorrow"),
    ];
    let Ok(Operation::Get(conditions)) = given("versionId=v", &headers).parse(Action::GetObject, "") else {
        panic!("a read")
    };
    assert_eq!(
        (conditions.if_match, conditions.if_none_match),
        (vec!["a".to_owned(), "b".to_owned()], vec!["*".to_owned()])
    );
    assert_eq!((conditions.if_modified_since_ms, conditions.if_unmodified_since_ms), (Some(1000), None));
    assert_eq!((conditions.version.as_deref(), conditions.overrides_headers), (Some("v"), false));
    let many = vec!["a"; 33].join(",");
    assert_eq!(given("", &[("if-match", &many)]).parse(Action::GetObject, ""), Err(Code::InvalidArgument));
    let given = given("", &[("x-amz-if-match-size", "3")]);
    assert!(
        matches!(given.parse(Action::DeleteObject, ""), Ok(Operation::Delete(one)) if one.conditions.if_match_size_bytes == Some(3))
    );
}

#[test]
fn access_headers_are_read() {
    let of =
        |headers: &[(&str, &str)]| access::from_headers(&given("", headers).head(), &Bob).map_err(|error| error.code);
    assert_eq!(of(&[]), Ok(AccessInput::None));
    assert_eq!(of(&[("x-amz-acl", "public-read")]), Ok(AccessInput::Canned(CannedAccess::PublicRead)));
    let grants = of(&[(
        "x-amz-grant-read",
        "id=\"bob\", emailAddress=bob@test,uri=\"http://acs.amazonaws.com/groups/global/AllUsers\"",
    )]);
    let Ok(AccessInput::Grants(grants)) = grants else { panic!("{grants:?}") };
    assert_eq!(grants.len(), 3);
    assert_eq!(grants[1].grantee, Grantee::User("bob".to_owned()));
    for (headers, code) in [
        (vec![("x-amz-acl", "public")], Code::InvalidArgument),
        (vec![("x-amz-grant-read", "id=eve")], Code::InvalidArgument),
        (vec![("x-amz-grant-read", "bob")], Code::InvalidArgument),
        (vec![("x-amz-grant-read", "uri=http://x")], Code::InvalidArgument),
        (vec![("x-amz-grant-write", "emailAddress=eve@test")], Code::UnresolvableGrant),
        (vec![("x-amz-acl", "private"), ("x-amz-grant-read", "id=bob")], Code::InvalidRequest),
    ] {
        assert_eq!(of(&headers), Err(code), "{headers:?}");
    }
    let put = Action::PutConfiguration(ConfigurationKind::Access);
    assert_eq!(given("", &[]).parse(put, ""), Err(Code::MissingSecurityHeader));
    assert_eq!(given("", &[("x-amz-acl", "private")]).parse(put, "<A/>"), Err(Code::UnexpectedContent));
}

#[test]
fn metadata_are_bounded_and_decoded() {
    let of = |headers: &[(&str, &str)]| input::upload(&given("", headers).head(), &Bob).map_err(|error| error.code);
    let read = of(&[
        ("x-amz-meta-a", "=?UTF-8?B?w6Q=?="),
        ("x-amz-meta-b", "=?UTF-8?Q?=C3=A4_b?="),
        ("x-amz-meta-c", "ä"),
        ("x-amz-meta-d", "1"),
        ("x-amz-meta-d", "2"),
        ("content-encoding", "aws-chunked,gzip"),
        ("x-amz-tagging", "a=1&b=%20"),
    ])
    .expect("valid");
    let value = |name: &str| read.metadata.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
    assert_eq!([value("a"), value("b"), value("c"), value("d")], [Some("ä"), Some("ä b"), Some("ä"), Some("1,2")]);
    assert_eq!(read.headers, [("content-encoding".to_owned(), "gzip".to_owned())]);
    let two = of(&[("content-encoding", "deflate,aws-chunked, gzip")]).expect("valid");
    assert_eq!(two.headers, [("content-encoding".to_owned(), "deflate, gzip".to_owned())]);
    assert_eq!((read.tags[0].value.as_str(), read.tags[1].value.as_str()), ("1", " "));
    assert_eq!(decode_metadata(encode_metadata("ä\n").as_bytes()), "ä\n");
    assert_eq!(decode_metadata(b"\xe4"), "ä");
    let fits = "x".repeat(2047);
    assert!(of(&[("x-amz-meta-a", &fits)]).is_ok());
    assert_eq!(of(&[("x-amz-meta-aa", &fits)]), Err(Code::MetadataTooLarge));
    for (headers, code) in [
        (vec![("x-amz-tagging", "a=1&a=2")], Code::InvalidTag),
        (vec![("x-amz-tagging", "a=%ff")], Code::InvalidArgument),
        (vec![("x-amz-storage-class", "CHEAP")], Code::InvalidStorageClass),
        (vec![("x-amz-storage-class", "GLACIER")], Code::InvalidStorageClass),
        (vec![("x-amz-storage-class", "DEEP_ARCHIVE")], Code::InvalidStorageClass),
        (vec![("x-amz-object-lock-mode", "GOVERNANCE")], Code::InvalidArgument),
        (vec![("x-amz-object-lock-legal-hold", "yes")], Code::InvalidArgument),
        (
            vec![("x-amz-object-lock-mode", "gov"), ("x-amz-object-lock-retain-until-date", "2030-01-01T00:00:00Z")],
            Code::InvalidArgument,
        ),
        (vec![("x-amz-checksum-algorithm", "CRC16")], Code::InvalidRequest),
        (vec![("x-amz-checksum-type", "COMPOSITE")], Code::InvalidRequest),
    ] {
        assert_eq!(of(&headers), Err(code), "{headers:?}");
    }
}

#[test]
fn copy_sources_are_read() {
    let of = |text: &str| copy::source(&given("", &[("x-amz-copy-source", text)]).head()).map_err(|error| error.code);
    let source = |key: &str, version: Option<&str>| Source {
        bucket: "abc".to_owned(),
        key: key.to_owned(),
        version: version.map(str::to_owned),
    };
    assert_eq!(of("/abc/k"), Ok(source("k", None)));
    assert_eq!(of("abc/a%2Fb%20c+d?versionId=v"), Ok(source("a/b c+d", Some("v"))));
    assert_eq!(of("abc/k%3FversionId=v"), Ok(source("k?versionId=v", None)));
    for text in ["", "abc", "abc/", "/abc", "abc/%ff", "abc/k?versionId="] {
        assert_eq!(of(text), Err(Code::InvalidArgument), "{text}");
    }
    let range = |text: &str| copy::range(&given("", &[("x-amz-copy-source-range", text)]).head()).ok().flatten();
    assert_eq!(range("bytes=0-9"), Some(0..10));
    for text in ["bytes=0-", "bytes=-5", "bytes=9-0", "0-9", "bytes=0-9,1-2", "bytes=0-18446744073709551615"] {
        assert_eq!(range(text), None, "{text}");
    }
}

#[test]
fn claims_are_compared() {
    let crc = ("x-amz-checksum-crc32", "AAAAAQ==");
    let of = |headers: &[(&str, &str)]| Claims::read(&given("", headers).head()).map_err(|error| error.code);
    for headers in [
        vec![crc, ("x-amz-checksum-sha1", "AAAAAAAAAAAAAAAAAAAAAAAAAAA=")],
        vec![crc, ("x-amz-trailer", "x-amz-checksum-crc32")],
        vec![crc, ("x-amz-sdk-checksum-algorithm", "SHA1")],
        vec![("x-amz-sdk-checksum-algorithm", "SHA1")],
        vec![("x-amz-checksum-crc32", "AAAA")],
        vec![("x-amz-checksum-crc32", "?")],
        vec![("x-amz-trailer", "x-amz-meta-a")],
    ] {
        assert_eq!(of(&headers), Err(Code::InvalidRequest), "{headers:?}");
    }
    for text in ["?", "AAAA", ""] {
        assert_eq!(of(&[("content-md5", text)]), Err(Code::InvalidDigest), "{text}");
    }
    let digests = |value: u8| BodyDigests {
        md5: [value; 16],
        checksums: vec![whole(ChecksumAlgorithm::Crc32, vec![0, 0, 0, value])],
    };
    let check = |claims: &Claims, value, trailer| claims.check(&digests(value), trailer).map_err(|error| error.code);
    let claims = of(&[crc, ("x-amz-sdk-checksum-algorithm", "crc32")]).expect("valid");
    assert_eq!(claims.needed(claims.kept()), [ChecksumAlgorithm::Crc32]);
    assert_eq!(check(&claims, 1, None), Ok(()));
    assert_eq!(check(&claims, 2, None), Err(Code::BadDigest));
    let claims = of(&[("x-amz-trailer", "x-amz-checksum-CRC32")]).expect("valid");
    assert_eq!(check(&claims, 1, Some(&[0, 0, 0, 1][..])), Ok(()));
    assert_eq!(check(&claims, 1, Some(&[0, 0, 0, 2][..])), Err(Code::BadDigest));
    assert_eq!(check(&claims, 1, None), Err(Code::InvalidRequest));
    let claims = Claims { md5: Some([1; 16]), ..Claims::default() };
    assert_eq!(check(&claims, 2, None), Err(Code::BadDigest));
    let claims = Claims { sha256: Some([1; 32]), ..Claims::default() };
    assert_eq!(check(&claims, 1, None), Err(Code::XAmzContentSha256Mismatch));
}

#[test]
fn other_features_are_refused_by_their_headers() {
    for name in [
        "x-amz-server-side-encryption",
        "x-amz-server-side-encryption-customer-key",
        "x-amz-write-offset-bytes",
        "x-amz-object-lock-event-hold-duration",
        "x-amz-object-annotation-directive",
        "x-amz-bucket-namespace",
        "x-amz-if-match-initiated-time",
    ] {
        let refused = check_headers(&given("", &[(name, "x")]).headers).map_err(|error| error.code);
        assert_eq!(refused, Err(Code::NotImplemented), "{name}");
    }
    assert_eq!(check_headers(&given("", &[("x-amz-meta-a", "x")]).headers), Ok(()));
}

#[test]
fn other_documents_are_read() {
    let region = |name: &str| {
        format!(
            "<CreateBucketConfiguration><LocationConstraint>{name}</LocationConstraint></CreateBucketConfiguration>"
        )
    };
    let none = given("", &[]);
    assert!(none.parse(Action::CreateBucket, "").is_ok());
    assert!(none.parse(Action::CreateBucket, &region("us-east-1")).is_ok());
    assert_eq!(none.parse(Action::CreateBucket, &region("mars")), Err(Code::InvalidLocationConstraint));
    assert_eq!(none.parse(Action::CreateBucket, "<A/>"), Err(Code::MalformedXml));
    let tagged = |tags: &str| format!("<CreateBucketConfiguration><Tags>{tags}</Tags></CreateBucketConfiguration>");
    let tag = "<Tag><Key>team</Key><Value>a</Value></Tag>";
    assert_eq!(none.parse(Action::CreateBucket, &tagged(tag)), Err(Code::NotImplemented));
    assert!(none.parse(Action::CreateBucket, &tagged("")).is_ok());
    let ownership = given("", &[("x-amz-object-ownership", "x")]);
    assert_eq!(ownership.parse(Action::CreateBucket, ""), Err(Code::InvalidArgument));
    assert_eq!(none.parse(Action::GetObjectAttributes, ""), Err(Code::InvalidRequest));
    let wrong = given("", &[("x-amz-object-attributes", "ETag,Size")]);
    assert_eq!(wrong.parse(Action::GetObjectAttributes, ""), Err(Code::InvalidArgument));
    let parts =
        "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>e</ETag></Part></CompleteMultipartUpload>";
    let complete = given("uploadId=u", &[("x-amz-mp-object-size", "7"), ("if-none-match", "*")]);
    assert!(matches!(
        complete.parse(Action::CompleteUpload, parts),
        Ok(Operation::CompleteUpload { upload, size_bytes: Some(7), conditions, .. })
            if upload == "u" && conditions.if_none_match == ["*"]
    ));
}

#[test]
fn uploads_are_refused_for_what_s3_does_not_take() {
    let of = |headers: &[(&str, &str)]| given("uploads", headers).parse(Action::CreateUpload, "").err();
    for (algorithm, kind, expected) in [
        ("CRC32", "FULL_OBJECT", None),
        ("CRC32", "COMPOSITE", None),
        ("CRC64NVME", "FULL_OBJECT", None),
        ("CRC64NVME", "COMPOSITE", Some(Code::InvalidRequest)),
        ("SHA256", "COMPOSITE", None),
        ("SHA256", "FULL_OBJECT", Some(Code::InvalidRequest)),
        ("SHA1", "FULL_OBJECT", Some(Code::InvalidRequest)),
    ] {
        let headers = [("x-amz-checksum-algorithm", algorithm), ("x-amz-checksum-type", kind)];
        assert_eq!(of(&headers), expected, "{algorithm} {kind}");
    }
    for (place, expected) in [
        ("/other", None),
        ("https://example.com/x", None),
        ("example.com", Some(Code::InvalidRedirectLocation)),
        ("ftp://example.com", Some(Code::InvalidRedirectLocation)),
    ] {
        assert_eq!(of(&[("x-amz-website-redirect-location", place)]), expected, "{place}");
    }
}
