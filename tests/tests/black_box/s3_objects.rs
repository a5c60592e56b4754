//! Objects over S3, asked by curl, which signs requests itself.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use millrace_tests::{Output, Server, ServerOptions, free_address, has_programs, millrace, wait_until};
use serde_json::Value;

use crate::disk_full::{SmallDisk, fill};
use crate::tls::Tls;

pub(crate) const KEYS: [&str; 2] = ["ANNSKEY", "annssecret"];

/// A server that listens for S3, and a user of it.
pub(crate) struct S3 {
    address: SocketAddr,
    /// What curl is told beside.
    arguments: Vec<String>,
    base: String,
}

/// A status and a body.
type Reply = (u16, String);

impl S3 {
    /// Adds the listener to a server's options.
    pub(crate) fn listen(options: ServerOptions) -> (ServerOptions, Self) {
        let address = free_address();
        let options = options.with(&["--s3", &address.to_string()]);
        (options, Self { address, arguments: Vec::new(), base: format!("http://{address}") })
    }

    /// Where it listens, as other clients want to know it.
    pub(crate) fn endpoint(&self) -> &str {
        &self.base
    }

    pub(crate) fn curl(&self, arguments: &[&str], path: &str) -> Result<Reply, String> {
        let curl = Command::new("curl")
            .args(["-sS", "--aws-sigv4", "aws:amz:us-east-1:s3", "--user", &KEYS.join(":")])
            .args(["-H", "x-amz-content-sha256:UNSIGNED-PAYLOAD", "-w", "\n%{http_code}"])
            .args(&self.arguments)
            .args(arguments)
            .arg(format!("{}{path}", self.base))
            .output()
            .expect("run");
        if !curl.status.success() {
            return Err(String::from_utf8_lossy(&curl.stderr).into_owned());
        }
        let text = String::from_utf8_lossy(&curl.stdout).into_owned();
        let (body, status) = text.rsplit_once('\n').expect("a status");
        Ok((status.parse().expect("a number"), body.to_owned()))
    }

    pub(crate) fn ask(&self, method: &str, path: &str) -> Reply {
        self.curl(&["-X", method], path).expect("a reply")
    }

    pub(crate) fn put(&self, path: &str, body: &str) -> Reply {
        self.curl(&["-X", "PUT", "--data-binary", body, "-H", "content-type:"], path).expect("a reply")
    }
}

pub(crate) fn cli(server: &Server, arguments: &[&str]) -> Output {
    millrace(&[&["s3"], arguments, &["--url", &server.url()]].concat())
}

/// The header that documents need, for the content of a file. Needs openssl.
pub(crate) fn md5_header(file: &Path) -> String {
    let command = format!("openssl md5 -binary {} | base64", file.display());
    let md5 = Command::new("sh").arg("-c").arg(command).output().expect("run");
    format!("content-md5:{}", String::from_utf8_lossy(&md5.stdout).trim())
}

/// The lines that a command prints.
pub(crate) fn lines(server: &Server, arguments: &[&str]) -> Vec<Value> {
    let output = cli(server, arguments);
    assert_eq!(output.code, Some(0), "{arguments:?}: {}", output.err);
    output.out.lines().map(|line| serde_json::from_str(line).expect("a line is JSON")).collect()
}

pub(crate) fn add_ann(server: &Server) -> String {
    let arguments = ["user", "add", "ann", "--access-key", KEYS[0], "--secret-key", KEYS[1]];
    lines(server, &arguments)[0]["id"].as_str().expect("an id").to_owned()
}

#[test]
fn buckets_are_listed_and_bounded_and_requests_counted() {
    if !has_programs(&["curl"]) {
        return;
    }
    let (options, s3) = S3::listen(ServerOptions::examples(&["counter"]));
    let mut server = Server::start(options);
    let id = add_ann(&server);
    assert_eq!(lines(&server, &["bucket", "list"]), [] as [Value; 0]);
    assert_eq!(s3.ask("PUT", "/photos").0, 200);
    assert_eq!(s3.put("/photos/a", "0123456789").0, 200);
    // No id of an upload is that long, nor does it fit into a key.
    for id in ["x".repeat(100), "x".repeat(2_000)] {
        let (status, body) = s3.ask("DELETE", &format!("/photos/a?uploadId={id}"));
        assert!(status == 404 && body.contains("<Code>NoSuchUpload</Code>"), "{status} {body}");
    }
    let listed = lines(&server, &["bucket", "list", "--user", "ann"]);
    assert_eq!((listed.len(), &listed[0]["name"], &listed[0]["owner"]), (1, &"photos".into(), &id.as_str().into()));
    assert!(lines(&server, &["bucket", "list", "--user", "bob"]).is_empty());

    assert_eq!(cli(&server, &["bucket", "quota", "photos", "15"]).code, Some(0));
    let (status, body) = s3.put("/photos/b", "0123456789");
    assert!(status >= 400 && body.contains("<Code>QuotaExceeded</Code>"), "{status} {body}");
    server.kill();
    server.restart();
    let usage = &lines(&server, &["bucket", "usage", "photos"])[0];
    assert_eq!((&usage["objects"], &usage["size_bytes"], &usage["quota_bytes"]), (&1.into(), &10.into(), &15.into()));
    assert_eq!(cli(&server, &["bucket", "quota", "photos", "none"]).code, Some(0));
    assert_eq!(lines(&server, &["bucket", "quota", "photos"])[0]["quota_bytes"], Value::Null);
    assert_eq!(s3.put("/photos/b", "0123456789").0, 200);
    for (arguments, reason) in [
        (&["bucket", "usage", "none"][..], "does not exist"),
        (&["bucket", "quota", "none", "5"], "does not exist"),
        (&["bucket", "quota", "photos", "many"], "a number of bytes"),
    ] {
        let output = cli(&server, arguments);
        assert_eq!(output.code, Some(1), "{arguments:?}");
        assert!(output.err.contains(reason), "{}", output.err);
    }

    // A policy names users that are there.
    let policy = |principal: &str| {
        let statement = format!(
            r#"{{"Effect":"Allow","Principal":{{"AWS":"{principal}"}},"Action":"s3:GetObject","Resource":"arn:aws:s3:::photos/*"}}"#
        );
        s3.put("/photos?policy=", &format!(r#"{{"Version":"2012-10-17","Statement":[{statement}]}}"#))
    };
    for principal in [id.as_str(), "arn:aws:iam:::user/ann", "*"] {
        assert_eq!(policy(principal).0, 204, "{principal}");
    }
    let (status, body) = policy("arn:aws:iam:::user/eve");
    assert!(status == 400 && body.contains("<Code>MalformedPolicy</Code>"), "{status} {body}");

    let metrics = server.request("GET", "/metrics", &[], b"").text();
    assert!(metrics.contains(r#"millrace_s3_requests_total{operation="put",status="2xx"}"#), "{metrics}");
    assert!(server.metric("millrace_s3_connections_total") >= 1.0);
    assert!(server.metric("millrace_s3_received_bytes_total") > 10.0);
}

/// An app that remembers what it was told. `allowed` is its `[objects]`.
pub(crate) fn inbox(folder: &Path, allowed: &str) -> String {
    let app = folder.join("inbox");
    std::fs::create_dir_all(&app).expect("a folder");
    let code = r#"
        import { service, query } from "millrace";
        export default service({
          arrived(ctx, event) { ctx.set("events", (ctx.get("events") ?? 0) + 1); },
          events: query((ctx) => ctx.get("events") ?? 0),
        });"#;
    std::fs::write(app.join("mail.ts"), code).expect("written");
    std::fs::write(app.join("millrace.toml"), format!("[objects]\nnotifications = {allowed}\n")).expect("written");
    app.to_str().expect("text").to_owned()
}

#[test]
fn buckets_call_handlers_of_apps_that_allow_it() {
    if !has_programs(&["curl"]) {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let app = inbox(folder.path(), r#"["photos", "logs-*"]"#);
    let (options, s3) = S3::listen(ServerOptions::examples(&["counter"]).with(&["--app", &app]));
    let server = Server::start(options);
    add_ann(&server);
    let rule = |target: &str| {
        format!(
            "<NotificationConfiguration><CloudFunctionConfiguration><Id>a</Id>\
             <CloudFunction>arn:millrace:function:{target}</CloudFunction><Event>s3:ObjectCreated:*</Event>\
             <Event>s3:ObjectRemoved:*</Event></CloudFunctionConfiguration></NotificationConfiguration>"
        )
    };
    for (bucket, target, status) in [
        ("photos", "inbox:mail:arrived", 200),
        ("logs-a", "inbox:mail:arrived", 200),
        ("other", "inbox:mail:arrived", 400),
        ("photos", "inbox:mail:missing", 400),
        // A query would be run, would change nothing, and nobody would notice.
        ("photos", "inbox:mail:events", 400),
        ("photos", "counter:counter:add", 400),
    ] {
        s3.ask("PUT", &format!("/{bucket}"));
        let (got, body) = s3.put(&format!("/{bucket}?notification="), &rule(target));
        assert_eq!(got, status, "{bucket} {target}: {body}");
        assert!(status == 200 || body.contains("<Code>InvalidArgument</Code>"), "{body}");
    }
    let keys: Vec<String> = (0..30).map(|number| format!("k{number}")).collect();
    for key in &keys[..3] {
        assert_eq!(s3.put(&format!("/photos/{key}"), "x").0, 200);
    }
    let told = |key: &str| server.value(&format!("mail/{key}/events"), "");
    wait_until("the puts are told", || keys[..3].iter().all(|key| told(key) == 1));
    // Of many deletions each is told, also of what was not there.
    let objects: String = keys.iter().map(|key| format!("<Object><Key>{key}</Key></Object>")).collect();
    let document = format!("<Delete>{objects}</Delete>");
    let file = folder.path().join("delete.xml");
    std::fs::write(&file, &document).expect("written");
    let data = format!("@{}", file.display());
    let md5 = md5_header(&file);
    let deleted =
        s3.curl(&["-X", "POST", "--data-binary", &data, "-H", &md5, "-H", "content-type:"], "/photos?delete=");
    assert_eq!(deleted.expect("a reply").0, 200);
    wait_until("the deletions are told", || {
        let of = |key: &String| told(key) == if keys[..3].contains(key) { 2 } else { 1 };
        keys.iter().all(of)
    });
}

#[test]
fn the_null_store_keeps_nothing_and_says_so() {
    if !has_programs(&["curl"]) {
        return;
    }
    let (options, s3) = S3::listen(ServerOptions::examples(&["counter"]).with(&["--s3-anonymous-null-store"]));
    let mut server = Server::start(options);
    // Nobody has made this bucket, nor is there a user.
    assert_eq!(s3.put("/photos/k", "hello").0, 200);
    let (status, reply) = s3.curl(&["-i"], "/photos/k").expect("a reply");
    assert_eq!(status, 200);
    assert!(reply.ends_with("\r\n\r\n\0\0\0\0\0") && reply.contains("null store"), "{reply:?}");
    assert!(s3.ask("GET", "/photos?list-type=2").1.contains("<Key>k</Key>"));
    assert_eq!(s3.ask("GET", "/photos?policy=").0, 501);
    assert!(server.errors().contains("NULL STORE"), "{}", server.errors());
    assert!(!server.data().join("bodies").exists());
    server.kill();
    server.restart();
    assert_eq!(s3.ask("GET", "/photos/k").0, 404);
}

#[test]
fn s3_is_served_with_the_nodes_certificate() {
    let Some(tls) = Tls::new() else { return };
    tls.make("own");
    let (options, mut s3) = S3::listen(tls.options("own.pem", "own.key"));
    let server = Server::start_tls(options);
    let trusted = tls.path("own.pem").to_str().expect("text").to_owned();
    let url = format!("https://localhost:{}", server.address().port());
    let mut arguments = vec!["s3", "user", "add", "ann", "--access-key", KEYS[0], "--secret-key", KEYS[1]];
    arguments.extend(["--url", &url, "--ca", &trusted]);
    let added = millrace(&arguments);
    assert_eq!(added.code, Some(0), "{}", added.err);
    let plain = s3.curl(&["-X", "PUT"], "/abc");
    assert!(plain.is_err() || plain.is_ok_and(|(status, _)| status >= 400), "plain HTTP was served");
    s3.base = format!("https://localhost:{}", s3.address.port());
    // A client that would rather speak HTTP/2 is answered, too.
    for version in ["--http1.1", "--http2"] {
        s3.arguments = [version, "--cacert", &trusted].map(str::to_owned).to_vec();
        assert_eq!(s3.ask("PUT", "/abc").0, 200, "{version}");
        assert_eq!(s3.put("/abc/k", version).0, 200);
        assert_eq!(s3.ask("GET", "/abc/k"), (200, version.to_owned()));
    }
}

#[test]
fn objects_are_deleted_on_a_disk_that_they_have_filled() {
    if !has_programs(&["curl"]) {
        return;
    }
    let Some(disk) = SmallDisk::new() else { return };
    let (mut options, s3) = S3::listen(ServerOptions::examples(&["counter"]));
    options.set("--cores", "1");
    options.folder = Some(disk.mount.clone());
    options.wrapper = disk.wrapper();
    let mut server = Server::start(options);
    add_ann(&server);
    assert_eq!(s3.ask("PUT", "/photos").0, 200);
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("body");
    std::fs::write(&file, vec![b'x'; 12 << 20]).expect("written");
    let data = format!("@{}", file.display());
    let put = |number: usize| {
        s3.curl(&["-X", "PUT", "--data-binary", &data, "-H", "content-type:"], &format!("/photos/{number}"))
            .expect("a reply")
    };
    let count = (0..40).find(|number| put(*number).0 != 200).expect("the disk is full");
    let (status, body) = put(count);
    assert!(status == 503 && body.contains("<Code>ServiceUnavailable</Code>"), "{status} {body}");
    assert!(count > 5, "{count}");
    // Nothing but content is refused.
    assert_eq!(server.call("counter/k/add", "1").status, 200);
    assert_eq!(s3.ask("DELETE", "/photos/0").0, 204);
    assert_eq!(s3.curl(&["-I"], "/photos/0").expect("a reply").0, 404);
    wait_until("there is room again", || put(count).0 == 200);

    // Somebody else takes the rest, and the log has no room for a segment after a crash. What is there is served.
    fill(&disk);
    server.kill();
    server.restart();
    assert_eq!(s3.ask("GET", "/photos/2").0, 200);
    std::fs::remove_file(disk.inside("ballast")).expect("removed");
    wait_until("objects are deleted again", || s3.ask("DELETE", "/photos/1").0 == 204);
    wait_until("content is taken again", || put(1).0 == 200);
}
