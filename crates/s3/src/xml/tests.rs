//! Documents in and out.

use millrace_api::objects::{
    AccessList, Configuration, ConfigurationKind as Kind, Deleted, DeletedOne, Expiry, Grant, Grantee, Group, ListPage,
    ListRequest, ListedObject, Permission, Tag, Versioning,
};
use proptest::prelude::*;

use super::configuration::{read_configuration, read_legal_hold, read_retention, write_configuration};
use super::lists::{ListForm, from_token, to_token};
use super::tagging::write_tags;
use super::{Encoding, access, delete, lists, read, uploads};
use crate::error::Code;
use crate::users::{KnownUser, Users};

#[derive(Clone)]
struct Two;

impl Users for Two {
    fn find(&self, _: &str) -> Option<KnownUser> {
        None
    }

    fn display_name(&self, id: &str) -> Option<String> {
        ["alice", "bob"].contains(&id).then(|| id.to_uppercase())
    }

    fn id_of_name(&self, name: &str) -> Option<String> {
        ["alice", "bob"].contains(&name).then(|| name.to_owned())
    }

    fn id_of_email(&self, email: &str) -> Option<String> {
        (email == "bob@test").then(|| "bob".to_owned())
    }
}

#[test]
fn documents_that_are_none_are_refused() {
    let deep = format!("{}{}", "<A>".repeat(17), "</A>".repeat(17));
    let many = format!("<A>{}</A>", "<B/>".repeat(64_000));
    for document in [
        "<A>",
        "<A></B>",
        "<A/><A/>",
        "</A>",
        "text",
        "<A/>text",
        "<A>&unknown;</A>",
        "<!DOCTYPE A><A/>",
        "<!DOCTYPE A [<!ENTITY x \"y\">]><A>&x;</A>",
        "<A b></A>",
        "<B/>",
        "<A>&#xd800;</A>",
        "<A>\0</A>",
        "<A>&#0;</A>",
        &deep,
        &many,
    ] {
        let code = read(document.as_bytes(), "A").expect_err("refused").code;
        assert_eq!(code, Code::MalformedXml, "{}", &document[..document.len().min(40)]);
    }
    assert_eq!(read(b" \n", "A").expect_err("empty").code, Code::MissingRequestBody);
    assert!(read(b"<A>\xff</A>", "A").is_err());
}

#[test]
fn documents_are_read_with_namespaces_and_entities() {
    let document =
        "\u{feff}<?xml version=\"1.0\"?><!-- c --><s:A xmlns:s=\"x\"><s:B>1 &lt;&#65;&#x42;<![CDATA[<]]></s:B>\n</s:A>";
    let root = read(document.as_bytes(), "A").expect("well-formed");
    assert_eq!(root.text_of("B"), Some("1 <AB<"));
    assert_eq!(root.text, "");
}

/// Each setting's document as it is written; read again it is the same.
#[test]
fn settings_come_back() {
    for (kind, inner) in [
        (Kind::Versioning, "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>"),
        (
            Kind::Cors,
            "<CORSConfiguration><CORSRule><ID>a</ID><AllowedMethod>GET</AllowedMethod><AllowedOrigin>*</AllowedOrigin>\
             <AllowedHeader>x-*</AllowedHeader><MaxAgeSeconds>60</MaxAgeSeconds><ExposeHeader>etag</ExposeHeader>\
             </CORSRule></CORSConfiguration>",
        ),
        (
            Kind::Lifecycle,
            "<LifecycleConfiguration><Rule><Expiration><Days>3</Days></Expiration><ID>a</ID><Filter><And><Prefix>p\
             </Prefix><Tag><Key>k</Key><Value>v</Value></Tag><ObjectSizeGreaterThan>5</ObjectSizeGreaterThan></And>\
             </Filter><Status>Enabled</Status><NoncurrentVersionExpiration><NoncurrentDays>1</NoncurrentDays>\
             <NewerNoncurrentVersions>2</NewerNoncurrentVersions></NoncurrentVersionExpiration></Rule><Rule><ID>b</ID>\
             <Prefix></Prefix><Status>Disabled</Status><AbortIncompleteMultipartUpload><DaysAfterInitiation>7\
             </DaysAfterInitiation></AbortIncompleteMultipartUpload></Rule></LifecycleConfiguration>",
        ),
        (Kind::Tagging, "<Tagging><TagSet><Tag><Key>a</Key><Value></Value></Tag></TagSet></Tagging>"),
        (
            Kind::Ownership,
            "<OwnershipControls><Rule><ObjectOwnership>BucketOwnerPreferred</ObjectOwnership></Rule></OwnershipControls>",
        ),
        (
            Kind::PublicAccess,
            "<PublicAccessBlockConfiguration><BlockPublicAcls>true</BlockPublicAcls><IgnorePublicAcls>false\
             </IgnorePublicAcls><BlockPublicPolicy>true</BlockPublicPolicy><RestrictPublicBuckets>false\
             </RestrictPublicBuckets></PublicAccessBlockConfiguration>",
        ),
        (
            Kind::ObjectLock,
            "<ObjectLockConfiguration><ObjectLockEnabled>Enabled</ObjectLockEnabled><Rule><DefaultRetention><Mode>\
             GOVERNANCE</Mode><Years>1</Years></DefaultRetention></Rule></ObjectLockConfiguration>",
        ),
        (
            Kind::Notification,
            "<NotificationConfiguration><CloudFunctionConfiguration><Id>a</Id><Event>s3:ObjectCreated:*</Event><Filter>\
             <S3Key><FilterRule><Name>prefix</Name><Value>p/</Value></FilterRule></S3Key></Filter><CloudFunction>\
             arn:millrace:function:shop:thumbs:make</CloudFunction></CloudFunctionConfiguration></NotificationConfiguration>",
        ),
        (Kind::RequestPayment, "<RequestPaymentConfiguration><Payer>Requester</Payer></RequestPaymentConfiguration>"),
    ] {
        let setting = read_configuration(kind, inner.as_bytes()).unwrap_or_else(|error| panic!("{inner}: {error}"));
        assert_eq!(setting.kind(), kind);
        let written = write_configuration(&setting, &Two);
        let (_, body) = written.split_once('\n').expect("declaration");
        assert_eq!(body.replace(" xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"", ""), inner);
        assert_eq!(read_configuration(kind, written.as_bytes()), Ok(setting));
    }
    let off = write_configuration(&Configuration::Versioning(Versioning::Off), &Two);
    assert!(off.ends_with(
        "<VersioningConfiguration xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"></VersioningConfiguration>"
    ));
}

#[test]
fn settings_that_break_a_rule_are_refused() {
    let rule = |inner: &str| format!("<LifecycleConfiguration><Rule>{inner}</Rule></LifecycleConfiguration>");
    let lock = |inner: &str| {
        format!(
            "<ObjectLockConfiguration><ObjectLockEnabled>Enabled</ObjectLockEnabled><Rule><DefaultRetention>{inner}\
             </DefaultRetention></Rule></ObjectLockConfiguration>"
        )
    };
    let on = "<Filter/><Status>Enabled</Status>";
    for (kind, document, code) in [
        (Kind::Versioning, "<VersioningConfiguration/>".to_owned(), Code::MalformedXml),
        (Kind::Versioning, "<A/>".to_owned(), Code::MalformedXml),
        (Kind::Lifecycle, "<LifecycleConfiguration/>".to_owned(), Code::MalformedXml),
        (Kind::Lifecycle, rule(on), Code::MalformedXml),
        (Kind::Lifecycle, rule("<Filter/><Status>on</Status><Expiration><Days>1</Days></Expiration>"), Code::MalformedXml),
        (Kind::Lifecycle, rule(&format!("{on}<Expiration><Days>0</Days></Expiration>")), Code::InvalidArgument),
        (Kind::Lifecycle, rule(&format!("{on}<Expiration><Days>-1</Days></Expiration>")), Code::InvalidArgument),
        (Kind::Lifecycle, rule(&format!("{on}<Expiration><Days>x</Days></Expiration>")), Code::MalformedXml),
        (
            Kind::Lifecycle,
            rule(&format!("{on}<Expiration><Date>2026-01-01T01:00:00Z</Date></Expiration>")),
            Code::InvalidArgument,
        ),
        (
            Kind::Lifecycle,
            rule(&format!("{on}<Expiration><Days>1</Days><Date>2026-01-01</Date></Expiration>")),
            Code::MalformedXml,
        ),
        (Kind::Lifecycle, rule(&format!("{on}<Transition><Days>1</Days></Transition>")), Code::NotImplemented),
        (Kind::ObjectLock, lock("<Mode>GOVERNANCE</Mode>"), Code::MalformedXml),
        (Kind::ObjectLock, lock("<Mode>x</Mode><Days>1</Days>"), Code::MalformedXml),
        (Kind::ObjectLock, lock("<Mode>GOVERNANCE</Mode><Days>0</Days>"), Code::InvalidRetentionPeriod),
        (Kind::ObjectLock, lock("<Mode>GOVERNANCE</Mode><Days>-1</Days>"), Code::InvalidRetentionPeriod),
        (Kind::ObjectLock, lock("<Mode>GOVERNANCE</Mode><Days>1</Days><Years>1</Years>"), Code::MalformedXml),
        (Kind::Cors, "<CORSConfiguration/>".to_owned(), Code::MalformedXml),
        (
            Kind::Cors,
            "<CORSConfiguration><CORSRule><AllowedMethod>PATCH</AllowedMethod><AllowedOrigin>*</AllowedOrigin></CORSRule>\
             </CORSConfiguration>"
                .to_owned(),
            Code::InvalidRequest,
        ),
        (
            Kind::Tagging,
            "<Tagging><TagSet><Tag><Key>a</Key><Value/></Tag><Tag><Key>a</Key><Value/></Tag></TagSet></Tagging>".to_owned(),
            Code::InvalidTag,
        ),
        (Kind::Policy, "x".repeat(21 << 10), Code::PolicyTooLarge),
        (Kind::Policy, String::new(), Code::MissingRequestBody),
    ] {
        let refused = read_configuration(kind, document.as_bytes()).map_err(|error| error.code);
        assert_eq!(refused, Err(code), "{document}");
    }
}

#[test]
fn access_lists_come_back_and_name_only_known_users() {
    let grant = |grantee, permission| Grant { grantee, permission };
    let list = AccessList {
        owner: "alice".to_owned(),
        grants: vec![
            grant(Grantee::Group(Group::AllUsers), Permission::Read),
            grant(Grantee::User("bob".to_owned()), Permission::WriteAcp),
        ],
    };
    let written = access::write_list(&list, &Two);
    let turned = AccessList { grants: list.grants.iter().rev().cloned().collect(), ..list.clone() };
    assert_eq!(access::write_list(&turned, &Two), written, "groups come first");
    assert!(written.contains("<Owner><ID>alice</ID><DisplayName>ALICE</DisplayName></Owner>"), "{written}");
    assert_eq!(access::read_list(written.as_bytes(), &Two), Ok(list));
    let by_email = written.replace("<ID>bob</ID>", "<EmailAddress>bob@test</EmailAddress>");
    assert!(access::read_list(by_email.as_bytes(), &Two).is_ok());
    for (from, to, code) in [
        ("bob", "eve", Code::InvalidArgument),
        ("<ID>bob</ID>", "<EmailAddress>x</EmailAddress>", Code::UnresolvableGrant),
        ("AllUsers", "Nobody", Code::InvalidArgument),
        ("WRITE_ACP", "write", Code::MalformedAcl),
        ("</Grant>", "", Code::MalformedAcl),
    ] {
        let refused = access::read_list(written.replace(from, to).as_bytes(), &Two).map_err(|error| error.code);
        assert_eq!(refused, Err(code), "{to}");
    }
}

#[test]
fn retention_and_hold_are_read() {
    let text =
        "<Retention><Mode>COMPLIANCE</Mode><RetainUntilDate>2030-01-01T00:00:00.000Z</RetainUntilDate></Retention>";
    let retention = read_retention(text.as_bytes()).expect("valid").expect("not empty");
    assert!(super::configuration::write_retention(&retention).contains("<RetainUntilDate>2030-01-01T00:00:00.000Z<"));
    assert_eq!(read_retention(b"<Retention/>"), Ok(None));
    for text in ["<Retention><Mode>X</Mode></Retention>", "<Retention><Mode>GOVERNANCE</Mode></Retention>"] {
        assert_eq!(read_retention(text.as_bytes()).map_err(|error| error.code), Err(Code::MalformedXml));
    }
    assert_eq!(read_legal_hold(b"<LegalHold><Status>ON</Status></LegalHold>"), Ok(true));
    assert!(read_legal_hold(b"<LegalHold><Status>on</Status></LegalHold>").is_err());
}

#[test]
fn deletions_are_read_and_told() {
    let text = "<Delete><Quiet>true</Quiet><Object><Key>a&amp;b</Key><VersionId>v</VersionId><ETag>\"e\"</ETag></Object></Delete>";
    let (objects, is_quiet) = delete::read_delete(text.as_bytes(), false).expect("valid");
    assert!(is_quiet);
    assert_eq!((objects[0].0.as_str(), objects[0].1.version.as_deref()), ("a&b", Some("v")));
    assert_eq!(objects[0].1.conditions.if_match, ["e"]);
    let many = |count: usize| format!("<Delete>{}</Delete>", "<Object><Key>a</Key></Object>".repeat(count));
    assert!(delete::read_delete(many(1000).as_bytes(), false).is_ok());
    assert!(delete::read_delete(many(1001).as_bytes(), false).is_err());
    assert!(delete::read_delete(many(0).as_bytes(), false).is_err());

    let marker = Deleted { version: Some("m".to_owned()), is_delete_marker: true };
    let results = [
        DeletedOne { key: "a".to_owned(), version: None, result: Ok(marker) },
        DeletedOne { key: "b".to_owned(), version: None, result: Err(("AccessDenied".to_owned(), "no".to_owned())) },
    ];
    let told = delete::write_deleted(&results, false);
    assert!(told.contains(
        "<Deleted><Key>a</Key><DeleteMarker>true</DeleteMarker><DeleteMarkerVersionId>m</DeleteMarkerVersionId></Deleted>"
    ));
    assert!(told.contains("<Error><Key>b</Key><Code>AccessDenied</Code><Message>no</Message></Error>"));
    assert!(!delete::write_deleted(&results, true).contains("<Deleted>"));
}

#[test]
fn parts_to_complete_are_checked() {
    let parts = |inner: &str| format!("<CompleteMultipartUpload>{inner}</CompleteMultipartUpload>");
    let part =
        |number: &str, more: &str| format!("<Part><PartNumber>{number}</PartNumber><ETag>\"e\"</ETag>{more}</Part>");
    let read = |text: String| uploads::read_complete(text.as_bytes()).map_err(|error| error.code);
    let good = read(parts(&(part("1", "<ChecksumCRC32>AAAAAA==</ChecksumCRC32>") + &part("3", "")))).expect("valid");
    assert_eq!((good[0].etag.as_str(), good[1].number), ("e", 3));
    assert_eq!(good[0].checksum.as_ref().map(|checksum| checksum.value.len()), Some(4));
    for (inner, code) in [
        (String::new(), Code::MalformedXml),
        (part("2", "") + &part("1", ""), Code::InvalidPartOrder),
        (part("1", "") + &part("1", ""), Code::InvalidPartOrder),
        (part("0", ""), Code::InvalidArgument),
        (part("10001", ""), Code::InvalidArgument),
        (part("x", ""), Code::MalformedXml),
        (part("1", "<ChecksumCRC32>AA==</ChecksumCRC32>"), Code::InvalidRequest),
    ] {
        assert_eq!(read(parts(&inner)), Err(code), "{inner}");
    }
}

#[test]
fn a_list_is_written_as_documented() {
    let item = ListedObject {
        key: "a b/\u{1}<".to_owned(),
        size_bytes: 3,
        etag: "e".to_owned(),
        modified_ms: 0,
        owner: "alice".to_owned(),
        storage_class: "STANDARD".to_owned(),
        checksum: None,
    };
    let page = ListPage {
        items: vec![item],
        common_prefixes: vec!["p/".to_owned()],
        next: Some(("p/".to_owned(), String::new())),
    };
    let request = ListRequest { delimiter: "/".to_owned(), limit: 2, ..ListRequest::default() };
    let form = ListForm { shows_delimiter: true, max_keys: 2, encoding: Encoding::Url, ..ListForm::default() };
    let written = lists::objects("abc", &page, &request, &form, &Two);
    assert_eq!(
        written.split_once("2006-03-01/\">").expect("namespace").1,
        "<Name>abc</Name><Prefix></Prefix><Marker></Marker><NextMarker>p/</NextMarker><MaxKeys>2</MaxKeys><Delimiter>/\
         </Delimiter><IsTruncated>true</IsTruncated><EncodingType>url</EncodingType><Contents><Key>a%20b/%01%3C</Key>\
         <LastModified>1970-01-01T00:00:00.000Z</LastModified><ETag>&quot;e&quot;</ETag><Size>3</Size><Owner><ID>alice</ID>\
         <DisplayName>ALICE</DisplayName></Owner><StorageClass>STANDARD</StorageClass></Contents><CommonPrefixes><Prefix>p/\
         </Prefix></CommonPrefixes></ListBucketResult>"
    );
    for (prefix, is_second, shown) in
        [("a\n", false, "a&#xa;"), ("a\u{1}", false, "a%01"), ("a\n", true, "a%0A"), ("ä b", false, "ä b")]
    {
        let request = ListRequest { prefix: prefix.to_owned(), ..ListRequest::default() };
        let form = ListForm { is_second, encoding: Encoding::Url, ..ListForm::default() };
        let written = lists::objects("abc", &ListPage::default(), &request, &form, &Two);
        assert!(written.contains(&format!("<Prefix>{shown}</Prefix>")), "{written}");
    }
    let second = ListForm { is_second: true, max_keys: 2, shows_delimiter: true, ..ListForm::default() };
    let written = lists::objects("abc", &page, &request, &second, &Two);
    assert!(written.contains("<NextContinuationToken>cC8</NextContinuationToken><KeyCount>2</KeyCount>"), "{written}");
    assert!(written.contains("<Key>a b/&#x1;&lt;</Key>") && !written.contains("<Owner>"));
    assert_eq!(from_token(&to_token("ä/\0")).as_deref(), Some("ä/\0"));
    assert_eq!(from_token("%"), None);
}

#[test]
fn tags_are_written_in_the_order_of_their_keys() {
    let tag = |key: &str| Tag { key: key.to_owned(), value: String::new() };
    let written = write_tags(&[tag("foo"), tag("bar")]);
    assert!(written.find("<Key>bar</Key>") < written.find("<Key>foo</Key>"), "{written}");
}

#[test]
fn a_lifecycle_date_is_a_midnight() {
    let text = "<LifecycleConfiguration><Rule><Filter/><Status>Enabled</Status><Expiration><Date>2026-01-01</Date></Expiration></Rule></LifecycleConfiguration>";
    let read = super::lifecycle::read_lifecycle(text.as_bytes()).expect("valid");
    assert_eq!(read.rules[0].expiration, Some(Expiry::Date(1_767_225_600_000)));
    assert!(super::lifecycle::write_lifecycle(&read).contains("<Date>2026-01-01T00:00:00.000Z</Date>"));
}

proptest! {
    #[test]
    fn arbitrary_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = read(&bytes, "A");
    }

    #[test]
    fn texts_come_back(text in "\\PC*") {
        let mut writer = super::Writer::new("A");
        writer.text("B", &text);
        let document = writer.finish();
        let root = read(document.as_bytes(), "A").expect("written here");
        prop_assert_eq!(root.text_of("B"), Some(text.as_str()));
    }
}

#[test]
fn an_element_with_many_attributes_is_refused_at_once() {
    let attributes: String = (0..200_000).map(|number| format!(" a{number}=\"b\"")).collect();
    let began = std::time::Instant::now();
    assert!(super::read::read(format!("<Delete{attributes}/>").as_bytes(), "Delete").is_err());
    assert!(began.elapsed().as_secs() < 2, "comparing each with all before it takes minutes");
}
