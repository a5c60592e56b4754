//! Lifecycle rules on a running node, whose day is short: what vanishes and what stays, also through kills.

use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

use millrace_tests::{Server, ServerOptions, has_programs, wait_until};
use serde_json::Value;

use crate::s3_objects::{S3, add_ann, lines, md5_header};

/// A day, so that several pass within a test.
const DAY_MS: &str = "500";

/// Longer than the larger contents that are in the log, so that these have bodies of their own.
const LARGE: usize = 20_000;

fn served() -> Option<(Server, S3)> {
    if !has_programs(&["curl", "openssl"]) {
        return None;
    }
    let mut options = ServerOptions::examples(&["counter"]);
    options.set("--s3-lifecycle-day-ms", DAY_MS);
    let (options, s3) = S3::listen(options);
    let server = Server::start(options);
    add_ann(&server);
    Some((server, s3))
}

/// Does this for each path that curl makes of one with ranges, such as `/b/k[1-9]`.
fn for_each(s3: &S3, method: &str, path: &str, body: &str) {
    let (status, text) =
        s3.curl(&["-f", "-X", method, "--data-binary", body, "-H", "content-type:"], path).expect(path);
    assert!(status < 300, "{path}: {status} {text}");
}

fn count(s3: &S3, path: &str, element: &str) -> usize {
    let (status, page) = s3.ask("GET", path);
    assert!(status == 200 && page.contains("<IsTruncated>false</IsTruncated>"), "{path}: {status} {page}");
    page.matches(&format!("<{element}>")).count()
}

fn rule(id: &str, prefix: &str, actions: &str) -> String {
    format!("<Rule><ID>{id}</ID><Filter><Prefix>{prefix}</Prefix></Filter><Status>Enabled</Status>{actions}</Rule>")
}

fn set_rules(s3: &S3, bucket: &str, rules: &[String]) {
    let body = format!("<LifecycleConfiguration>{}</LifecycleConfiguration>", rules.concat());
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("rules.xml");
    std::fs::write(&file, body).expect("written");
    let arguments = ["-X", "PUT", "--data-binary", &format!("@{}", file.display()), "-H", &md5_header(&file)];
    let arguments = [&arguments[..], &["-H", "content-type:"]].concat();
    let reply = s3.curl(&arguments, &format!("/{bucket}?lifecycle=")).expect("a reply");
    assert_eq!(reply.0, 200, "{}", reply.1);
}

fn usage(server: &Server, bucket: &str) -> (Value, Value) {
    let usage = lines(server, &["bucket", "usage", bucket]).remove(0);
    (usage["objects"].clone(), usage["size_bytes"].clone())
}

/// Objects and uploads, of which rules take some.
fn fill_logs(s3: &S3) {
    assert_eq!(s3.ask("PUT", "/logs").0, 200);
    for_each(s3, "PUT", "/logs/old/small[1-150]", "0123456789");
    for_each(s3, "PUT", "/logs/old/large[1-20]", &"x".repeat(LARGE));
    for_each(s3, "PUT", "/logs/new/[1-20]", "0123456789");
    for_each(s3, "POST", "/logs/begun/[1-20]?uploads=", "");
    for_each(s3, "POST", "/logs/kept/[1-3]?uploads=", "");
    // One of them has a part.
    let (_, begun) = s3.ask("POST", "/logs/begun/part?uploads=");
    let id = begun.split("<UploadId>").nth(1).and_then(|rest| rest.split('<').next()).expect("an id");
    assert_eq!(s3.put(&format!("/logs/begun/part?partNumber=1&uploadId={id}"), &"y".repeat(LARGE)).0, 200);
}

/// Objects of three versions each, and some that are deleted.
fn fill_versions(s3: &S3) {
    assert_eq!(s3.ask("PUT", "/versions").0, 200);
    let enabled = "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>";
    assert_eq!(s3.put("/versions?versioning=", enabled).0, 200);
    for body in ["1", "22", "333"] {
        for_each(s3, "PUT", "/versions/three/[1-40]", body);
    }
    for_each(s3, "PUT", "/versions/deleted/[1-20]", "4444");
    for_each(s3, "DELETE", "/versions/deleted/[1-20]", "");
    for_each(s3, "PUT", "/versions/untouched/[1-2]", "55555");
    for_each(s3, "PUT", "/versions/untouched/[1-2]", "55555");
}

fn set_all_rules(s3: &S3) {
    let expire = "<Expiration><Days>1</Days></Expiration>";
    let far = "<Expiration><Days>36500</Days></Expiration>";
    let abort =
        "<AbortIncompleteMultipartUpload><DaysAfterInitiation>1</DaysAfterInitiation></AbortIncompleteMultipartUpload>";
    set_rules(s3, "logs", &[rule("old", "old/", expire), rule("far", "new/", far), rule("begun", "begun/", abort)]);
    let noncurrent = |kept: &str| {
        format!("<NoncurrentVersionExpiration><NoncurrentDays>1</NoncurrentDays>{kept}</NoncurrentVersionExpiration>")
    };
    let one = noncurrent("<NewerNoncurrentVersions>1</NewerNoncurrentVersions>");
    let markers = "<Expiration><ExpiredObjectDeleteMarker>true</ExpiredObjectDeleteMarker></Expiration>";
    let deleted = format!("{markers}{}", noncurrent(""));
    set_rules(s3, "versions", &[rule("three", "three/", &one), rule("deleted", "deleted/", &deleted)]);
}

/// What is left in the end: nothing that a rule takes, and all else.
fn check_what_is_left(server: &Server, s3: &S3) {
    wait_until("objects expire", || count(s3, "/logs?list-type=2&prefix=old%2F", "Key") == 0);
    wait_until("uploads are aborted", || count(s3, "/logs?prefix=begun%2F&uploads=", "Upload") == 0);
    wait_until("old versions vanish", || count(s3, "/versions?prefix=three%2F&versions=", "Version") == 80);
    wait_until("delete markers vanish", || count(s3, "/versions?prefix=deleted%2F&versions=", "Key") == 0);
    assert_eq!(count(s3, "/logs?list-type=2&prefix=new%2F", "Key"), 20);
    assert_eq!(count(s3, "/logs?prefix=kept%2F&uploads=", "Upload"), 3);
    assert_eq!(count(s3, "/versions?prefix=untouched%2F&versions=", "Version"), 4);
    assert_eq!(s3.ask("GET", "/versions/three/1"), (200, "333".to_owned()));
    // What the buckets say of themselves agrees: 20 of 10 bytes; 40 of 2 and of 3 bytes, and 4 of 5.
    assert_eq!(usage(server, "logs"), (20.into(), 200.into()));
    assert_eq!(usage(server, "versions"), (84.into(), 220.into()));
}

#[test]
fn rules_expire_objects_versions_and_uploads() {
    let Some((server, s3)) = served() else { return };
    fill_logs(&s3);
    fill_versions(&s3);
    set_all_rules(&s3);
    check_what_is_left(&server, &s3);
    let head = s3.curl(&["-I"], "/logs/new/1").expect("a reply").1.to_lowercase();
    let expiry: BTreeMap<&str, &str> = head.lines().filter_map(|line| line.split_once(": ")).collect();
    assert!(expiry["x-amz-expiration"].contains("rule-id=\"far\""), "{head}");
    // The rules go on working: what comes later vanishes, too.
    for_each(&s3, "PUT", "/logs/old/later[1-3]", "x");
    wait_until("later objects expire", || count(&s3, "/logs?list-type=2&prefix=old%2F", "Key") == 0);
    // Without them nothing vanishes any more.
    assert_eq!(s3.ask("DELETE", "/logs?lifecycle=").0, 204);
    for_each(&s3, "PUT", "/logs/old/stays", "x");
    thread::sleep(Duration::from_secs(3));
    assert_eq!(count(&s3, "/logs?list-type=2&prefix=old%2F", "Key"), 1);
}

#[test]
fn rules_go_on_after_kills() {
    let Some((mut server, s3)) = served() else { return };
    fill_logs(&s3);
    fill_versions(&s3);
    set_all_rules(&s3);
    for life in 0..6_u64 {
        // Some kills come while the rules work, some while they wait for the next day.
        thread::sleep(Duration::from_millis(life * 60));
        server.kill();
        server.restart();
    }
    check_what_is_left(&server, &s3);
}
