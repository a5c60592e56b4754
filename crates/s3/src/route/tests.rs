//! Routing: tables of requests and what they mean.

use http::{HeaderMap, HeaderValue, Method};
use millrace_api::objects::ConfigurationKind as Kind;

use super::{Action, Query, Target, action, check_bucket_name, target};
use crate::error::Code;

fn routed(method: &str, uri: &str, headers: &[(&'static str, &'static str)]) -> Result<Action, Code> {
    let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
    let target = target("s3.test", &[], path).map_err(|error| error.code)?;
    let query = Query::parse(query).map_err(|error| error.code)?;
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        map.insert(*name, HeaderValue::from_static(value));
    }
    let method = Method::from_bytes(method.as_bytes()).expect("a method");
    action(&method, &target, &query, &map).map_err(|error| error.code)
}

#[test]
fn each_operation_is_found() {
    for (method, uri, expected) in [
        ("GET", "/", Action::ListBuckets),
        ("PUT", "/abc", Action::CreateBucket),
        ("PUT", "/abc/", Action::CreateBucket),
        ("HEAD", "/abc", Action::HeadBucket),
        ("DELETE", "/abc", Action::DeleteBucket),
        ("GET", "/abc", Action::ListObjects),
        ("GET", "/abc?list-type=2&prefix=a", Action::ListObjectsV2),
        ("GET", "/abc?versions", Action::ListVersions),
        ("GET", "/abc?uploads=", Action::ListUploads),
        ("GET", "/abc?location", Action::GetLocation),
        ("GET", "/abc?acl", Action::GetConfiguration(Kind::Access)),
        ("PUT", "/abc?acl", Action::PutConfiguration(Kind::Access)),
        ("PUT", "/abc?versioning", Action::PutConfiguration(Kind::Versioning)),
        ("DELETE", "/abc?cors", Action::DeleteConfiguration(Kind::Cors)),
        ("DELETE", "/abc?policy", Action::DeleteConfiguration(Kind::Policy)),
        ("GET", "/abc?policyStatus", Action::GetPolicyStatus),
        ("GET", "/abc?object-lock", Action::GetConfiguration(Kind::ObjectLock)),
        ("POST", "/abc?delete", Action::DeleteObjects),
        ("GET", "/abc?logging", Action::Absent("BucketLoggingStatus")),
        ("GET", "/abc/k", Action::GetObject),
        ("GET", "/abc/k?versionId=1&x-id=GetObject", Action::GetObject),
        ("GET", "/abc/k?20261128", Action::GetObject),
        ("PUT", "/abc/k?x-id=PutObject&X-Amz-Security-Token=&x-trace", Action::PutObject),
        ("DELETE", "/abc/k?versionId=", Action::DeleteObject),
        ("HEAD", "/abc/k?tagging", Action::HeadObject),
        ("PUT", "/abc/k", Action::PutObject),
        ("DELETE", "/abc/k", Action::DeleteObject),
        ("GET", "/abc/k?attributes", Action::GetObjectAttributes),
        ("GET", "/abc/k?acl", Action::GetObjectAcl),
        ("PUT", "/abc/k?tagging", Action::PutObjectTagging),
        ("DELETE", "/abc/k?tagging", Action::DeleteObjectTagging),
        ("GET", "/abc/k?retention", Action::GetRetention),
        ("PUT", "/abc/k?legal-hold", Action::PutLegalHold),
        ("POST", "/abc/k?uploads", Action::CreateUpload),
        ("PUT", "/abc/k?partNumber=1&uploadId=u", Action::UploadPart),
        ("GET", "/abc/k?uploadId=u", Action::ListParts),
        ("POST", "/abc/k?uploadId=u", Action::CompleteUpload),
        ("DELETE", "/abc/k?uploadId=u", Action::AbortUpload),
        ("OPTIONS", "/abc/k", Action::Preflight),
    ] {
        assert_eq!(routed(method, uri, &[]), Ok(expected), "{method} {uri}");
    }
    let copy = [("x-amz-copy-source", "/abc/k")];
    assert_eq!(routed("PUT", "/abc/k", &copy), Ok(Action::CopyObject));
    assert_eq!(routed("PUT", "/abc/k?partNumber=1&uploadId=u", &copy), Ok(Action::UploadPartCopy));
    let form = [("content-type", "Multipart/Form-Data; boundary=x")];
    assert_eq!(routed("POST", "/abc", &form), Ok(Action::PostForm));
}

#[test]
fn what_is_not_offered_says_so() {
    for (method, uri, code) in [
        ("PUT", "/abc?website", Code::NotImplemented),
        ("GET", "/abc?website", Code::NoSuchWebsite),
        ("GET", "/abc?encryption", Code::NoSuchEncryption),
        ("GET", "/abc?replication", Code::NoSuchReplication),
        ("PUT", "/abc?encryption", Code::NotImplemented),
        ("PUT", "/abc?replication", Code::NotImplemented),
        ("PUT", "/abc?accelerate", Code::NotImplemented),
        ("PUT", "/abc?logging", Code::NotImplemented),
        ("GET", "/abc?analytics&id=x", Code::NotImplemented),
        ("GET", "/abc?inventory", Code::NotImplemented),
        ("GET", "/abc?metrics", Code::NotImplemented),
        ("GET", "/abc?intelligent-tiering", Code::NotImplemented),
        ("GET", "/abc?session", Code::NotImplemented),
        ("GET", "/abc/k?torrent", Code::NotImplemented),
        ("POST", "/abc/k?select&select-type=2", Code::NotImplemented),
        ("POST", "/abc/k?restore", Code::NotImplemented),
        ("PUT", "/abc/k?annotation&name=a", Code::NotImplemented),
        ("DELETE", "/abc/k?annotation", Code::NotImplemented),
        ("PUT", "/abc/k?subresourceOfTomorrow", Code::NotImplemented),
        ("DELETE", "/abc/k?subresourceOfTomorrow=", Code::NotImplemented),
        ("DELETE", "/abc?subresourceOfTomorrow", Code::NotImplemented),
        ("POST", "/abc/k", Code::MethodNotAllowed),
        ("POST", "/abc", Code::MethodNotAllowed),
        ("PATCH", "/abc/k", Code::MethodNotAllowed),
        ("DELETE", "/", Code::MethodNotAllowed),
        ("DELETE", "/abc?acl", Code::MethodNotAllowed),
        ("PUT", "/abc/k?partNumber=1", Code::InvalidArgument),
    ] {
        assert_eq!(routed(method, uri, &[]), Err(code), "{method} {uri}");
    }
}

#[test]
fn keys_are_taken_as_they_are() {
    let of = |host: &str, path: &str| target(host, &["s3.test".to_owned()], path);
    for (host, path, bucket, key) in [
        ("x", "/abc", "abc", ""),
        ("x", "/abc/", "abc", ""),
        ("x", "/abc/a+b", "abc", "a+b"),
        ("x", "/abc/a%20b%2Fc", "abc", "a b/c"),
        ("x", "/abc/../x//y/", "abc", "../x//y/"),
        ("x", "/abc//", "abc", "/"),
        ("x", "/abc/%C3%A4", "abc", "ä"),
        ("x", "/abc/100%", "abc", "100%"),
        ("abc.s3.test", "/k/l", "abc", "k/l"),
        ("a.b.c.S3.test:9000", "/", "a.b.c", ""),
        ("s3.test:9000", "/abc/k", "abc", "k"),
        ("[::1]:9000", "/abc/k", "abc", "k"),
    ] {
        let found = of(host, path).expect(path);
        assert_eq!((found.bucket.as_str(), found.key.as_str()), (bucket, key), "{host}{path}");
    }
    assert_eq!(of("x", "/"), Ok(Target::default()));
    let longest = "k".repeat(1024);
    assert!(of("x", &format!("/abc/{longest}")).is_ok());
    for (path, code) in [
        (format!("/abc/{longest}k"), Code::KeyTooLong),
        ("/abc/%ff".to_owned(), Code::InvalidUri),
        ("/abc/%00".to_owned(), Code::InvalidUri),
        ("//k".to_owned(), Code::InvalidBucketName),
        ("*".to_owned(), Code::InvalidUri),
        ("/WriteGetObjectResponse".to_owned(), Code::NotImplemented),
        ("/WriteGetObjectResponse/k".to_owned(), Code::InvalidBucketName),
    ] {
        assert_eq!(of("x", &path).expect_err(&path).code, code);
    }
}

#[test]
fn bucket_names_follow_the_rules() {
    for name in ["abc", "a.b", "a-b-c", "123", "1a1", &"a".repeat(63)] {
        assert!(check_bucket_name(name).is_ok(), "{name}");
    }
    for name in [
        "",
        "ab",
        "Abc",
        "a_b",
        "-ab",
        "ab-",
        ".ab",
        "ab.",
        "a..b",
        "1.2.3.4",
        "xn--abc",
        "abc-s3alias",
        "abc--x-s3",
        "a b",
        "äbc",
        "{abc}",
        &"a".repeat(64),
    ] {
        assert!(check_bucket_name(name).is_err(), "{name}");
    }
}
