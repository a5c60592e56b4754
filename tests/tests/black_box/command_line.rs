//! The commands of the binary as a person meets them. They reach nodes with TLS and agree on where things are. Their
//! errors say what to type.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use millrace_tests::{Output, Server, ServerOptions, TestApp, binary, free_address, millrace, repository, wait_until};

fn text(path: &Path) -> &str {
    path.to_str().expect("text")
}

/// Runs `millrace` with these arguments and variables of the environment.
fn millrace_in(environment: &[(&str, &str)], arguments: &[&str]) -> Output {
    let output = Command::new(binary())
        .args(arguments)
        .envs(environment.iter().copied())
        .stdin(Stdio::null())
        .output()
        .expect("started");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Output { code: output.status.code(), out: text(&output.stdout), err: text(&output.stderr) }
}

/// A `millrace serve` that a test starts with its own arguments. It is killed when the test ends.
struct Started {
    child: Child,
    folder: tempfile::TempDir,
}

impl Started {
    fn new(environment: &[(&str, &str)], arguments: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let file = |name: &str| File::create(folder.path().join(name)).expect("made");
        let child = Command::new(binary())
            .args(["serve", "--cores", "1"])
            .args(arguments)
            .env("MILLRACE_DATA", folder.path().join("data"))
            .envs(environment.iter().copied())
            .stdin(Stdio::null())
            .stdout(file("out"))
            .stderr(file("err"))
            .spawn()
            .expect("started");
        Self { child, folder }
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.folder.path().join(name)).expect("there")
    }

    /// The whole greeting.
    fn greeting(&self) -> String {
        wait_until("the server greets", || self.read("out").contains("/healthz\n"));
        self.read("out")
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A self-signed certificate for localhost, or `None` without openssl.
struct Certificate {
    certificate: PathBuf,
    key: PathBuf,
}

impl Certificate {
    fn new(folder: &Path, name: &str, extension: &str) -> Option<Self> {
        let (certificate, key) = (folder.join(format!("{name}.pem")), folder.join(format!("{name}-key.pem")));
        let made = Command::new("openssl")
            .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"])
            .args(["-subj", "/CN=millrace test", "-addext", "subjectAltName=DNS:localhost", "-addext", extension])
            .args(["-keyout", text(&key), "-out", text(&certificate)])
            .output();
        made.is_ok_and(|made| made.status.success()).then_some(Self { certificate, key })
    }

    fn arguments(&self) -> [&str; 4] {
        ["--tls-certificate", text(&self.certificate), "--tls-key", text(&self.key)]
    }
}

const NO_AUTHORITY: &str = "basicConstraints=critical,CA:FALSE";

#[test]
fn a_node_with_tls_is_deployed_to_and_called() {
    let folder = tempfile::tempdir().expect("a folder");
    let make = |name, extension| Certificate::new(folder.path(), name, extension);
    let (Some(own), Some(other), Some(authority)) =
        (make("own", NO_AUTHORITY), make("other", NO_AUTHORITY), make("authority", "basicConstraints=CA:TRUE"))
    else {
        println!("skipped: needs the command openssl");
        return;
    };
    let keys = folder.path().join("keys.json");
    let made = millrace(&["keys", "--keys", text(&keys), "add", "--role", "admin", "root"]);
    let key = made.out.trim();
    let options = |certificate: &Certificate| {
        ServerOptions::examples(&[]).with(&certificate.arguments()).with(&["--keys", text(&keys)])
    };
    let server = Server::start_tls(options(&own));
    let port = server.address().port();
    let url = format!("https://localhost:{port}");
    let ask =
        |url: &str, words: &[&str], more: &[&str]| millrace(&[words, &["--url", url, "--api-key", key], more].concat());
    let trusting = ["--ca", text(&own.certificate)];

    let bank = repository().join("examples/bank");
    let deployed = ask(&url, &["deploy", text(&bank)], &trusting);
    assert_eq!((deployed.code, deployed.err.as_str()), (Some(0), ""), "{}", deployed.out);
    let paid = ask(&url, &["call", "account/ada/deposit", "10"], &trusting);
    assert_eq!((paid.code, paid.out.trim(), paid.err.as_str()), (Some(0), "10", ""));
    for words in [&["invocations"][..], &["schedules"], &["dead-letters"]] {
        let listed = ask(&url, words, &trusting);
        assert_eq!(listed.code, Some(0), "{words:?}: {}", listed.err);
    }
    let without_key = millrace(&["call", "account/ada/balance", "--url", &url, "--ca", text(&own.certificate)]);
    assert!(without_key.err.contains("unauthorized"), "{}", without_key.err);
    let variable = [("MILLRACE_CA", text(&own.certificate)), ("MILLRACE_API_KEY", key), ("MILLRACE_URL", &url)];
    let called = millrace_in(&variable, &["call", "account/ada/balance"]);
    assert_eq!((called.code, called.out.trim()), (Some(0), "10"), "{}", called.err);

    let refused = |url: &str, more: &[&str], words: &str| {
        // An idempotency key lets the client try again, which is in vain here.
        let begun = Instant::now();
        let call = ask(url, &["call", "account/ada/deposit", "1", "--idempotency-key", "k"], more);
        assert!(begun.elapsed() < Duration::from_secs(10), "{url} {more:?}: {}", call.err);
        assert!(call.code == Some(1) && call.err.contains(words), "{url} {more:?}: {}", call.err);
        assert!(!call.err.contains(key), "{}", call.err);
    };
    refused(&url, &["--ca", text(&other.certificate)], "no authority that is trusted here");
    refused(&url, &[], "--ca FILE");
    refused(&url, &["--ca", text(&own.key)], "it holds no certificate");
    refused(&format!("https://127.0.0.1:{port}"), &trusting, "not valid for");
    refused(&format!("http://127.0.0.1:{port}"), &[], "https://");
    let plain = Server::start(ServerOptions::examples(&[]));
    refused(&format!("https://localhost:{}", plain.address().port()), &trusting, "does not speak TLS");
    let unfit = Server::start_tls(options(&authority));
    let url = format!("https://localhost:{}", unfit.address().port());
    refused(&url, &["--ca", text(&authority.certificate)], "CA:FALSE");
    assert_eq!(ask(&format!("https://localhost:{port}"), &["call", "account/ada/balance"], &trusting).out.trim(), "10");
}

#[test]
fn a_key_that_strangers_could_read_on_its_way_is_warned_of() {
    let server = Server::start(ServerOptions::examples(&["counter"]));
    let port = server.address().port();
    let call = |url: String, key: &[&str]| {
        let called = millrace(&[&["call", "counter/k/value", "--url", &url], key].concat());
        assert_eq!(called.code, Some(0), "{}", called.err);
        called.err
    };
    // This address leads to the server, but it is not one of the addresses that never leave the machine.
    let warning = call(format!("http://0.0.0.0:{port}"), &["--api-key", "mr_x_secret"]);
    assert!(warning.contains("without TLS") && !warning.contains("secret"), "{warning}");
    assert_eq!(call(format!("http://0.0.0.0:{port}"), &[]), "");
    assert_eq!(call(format!("http://localhost:{port}"), &["--api-key", "mr_x_secret"]), "");
}

#[test]
fn the_first_start_for_others_says_how_and_that_is_enough() {
    let address = format!("0.0.0.0:{}", free_address().port());
    for name in ["data", "my data's"] {
        let folder = tempfile::tempdir().expect("a folder");
        let data = folder.path().join(name);
        let arguments = ["serve", "--cores", "1", "--http", &address, "--data", text(&data)];
        let refused = millrace(&arguments);
        assert_eq!(refused.code, Some(1));
        let command = refused.err.split('`').nth(1).expect("a command").replace("NAME", "ann");
        assert!(command.starts_with("millrace keys "), "{}", refused.err);
        let command = command.replacen("millrace", text(&binary()), 1);
        let made = Command::new("sh").args(["-c", &command]).output().expect("run");
        assert!(made.status.success(), "{command}: {}", String::from_utf8_lossy(&made.stderr));
        let started = Started::new(&[], &["--http", &address, "--data", text(&data)]);
        started.greeting();
    }
    // Both commands read the same from the environment.
    let folder = tempfile::tempdir().expect("a folder");
    let environment = [("MILLRACE_DATA", text(folder.path())), ("MILLRACE_HTTP", &address)];
    let made = millrace_in(&environment, &["keys", "add", "--role", "admin", "ann"]);
    let file = folder.path().join("keys.json");
    assert!(made.code == Some(0) && made.err.contains(text(&file)) && file.exists(), "{}", made.err);
    Started::new(&environment, &[]).greeting();
    let flag = folder.path().join("flag");
    let made = millrace_in(&environment, &["keys", "add", "--role", "admin", "bob", "--data", text(&flag)]);
    assert!(made.code == Some(0) && flag.join("keys.json").exists(), "a flag beats the environment: {}", made.err);
}

#[test]
fn what_is_set_is_understood_or_answered_with_an_example() {
    let port = free_address().port();
    let started = Started::new(&[("MILLRACE_LOG_JSON", "1")], &["--http", &format!("localhost:{port}")]);
    let greeting = started.greeting();
    assert!(greeting.contains(&format!("curl http://127.0.0.1:{port}/healthz\n")), "{greeting}");
    wait_until("the log is JSON", || started.read("err").starts_with('{'));
    drop(started);
    for address in [format!(":{port}"), port.to_string()] {
        let refused = millrace(&["serve", "--http", &address]);
        let example = format!("0.0.0.0:{port}");
        assert!(refused.code == Some(2) && refused.err.contains(&example), "{address}: {}", refused.err);
    }
    for (value, is_json) in [("yes", true), ("true", true), ("0", false), ("no", false), ("", false)] {
        let started = Started::new(&[("MILLRACE_LOG_JSON", value)], &["--http", &format!("127.0.0.1:{port}")]);
        wait_until("it logs", || started.read("err").contains('\n'));
        assert_eq!(started.read("err").starts_with('{'), is_json, "{value:?}: {}", started.read("err"));
    }
    let refused = millrace_in(&[("MILLRACE_LOG_JSON", "maybe")], &["serve"]);
    assert!(refused.code == Some(2) && refused.err.contains("yes or no"), "{}", refused.err);
    let started = Started::new(&[], &["--http", &format!("127.0.0.1:{port}"), "--log", "trace"]);
    wait_until("the log tells", || started.read("err").contains("no events of level trace"));
    let log = started.read("err");
    assert!(!log.contains("max_level") && !log.contains('\u{1b}'), "{log}");
}

#[test]
fn the_greeting_of_a_node_with_tls_says_https() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(certificate) = Certificate::new(folder.path(), "own", NO_AUTHORITY) else {
        println!("skipped: needs the command openssl");
        return;
    };
    let address = free_address().to_string();
    let greeting = Started::new(&[], &[&["--http", &address][..], &certificate.arguments()].concat()).greeting();
    assert!(greeting.contains(&format!("curl https://{address}/healthz")), "{greeting}");
    assert!(!greeting.contains("http://"), "{greeting}");
}

/// A service `top` with a route and a handler that refuses.
fn refusing() -> TestApp {
    TestApp::with(
        "top.ts",
        "import { service, query, Abort } from 'millrace';
         export default service({
           key: query((ctx) => ctx.key),
           refuse() { throw new Abort('no money', { balance: 3, note: '\\u009b2J' }); },
         });
         export const routes = { 'GET /list': () => ({ status: 302, headers: { location: '/' } }) };",
    )
}

#[test]
fn errors_say_what_to_type_and_all_that_the_node_says() {
    let server = Server::start(ServerOptions::examples(&[]));
    let url = server.url();
    let folder = tempfile::tempdir().expect("a folder");
    refusing().write(folder.path());
    let deploy = |name: &str, more: &[&str]| {
        millrace(&[&["deploy", text(folder.path()), "--url", &url, "--name", name], more].concat())
    };
    let call = |target: &str| millrace(&["call", target, "--url", &url]);
    let first = deploy("one", &[]);
    assert_eq!((first.code, first.err.as_str()), (Some(0), ""));
    let (head, services) = first.out.split_once('\n').expect("lines");
    assert!(head.starts_with("deployed one, version ") && head.len() == "deployed one, version ".len() + 16, "{head}");
    assert_eq!(services, "  top: key (query), refuse\n    GET /top/list\n");

    let refused = call("top/k/refuse");
    assert!(refused.code == Some(1) && refused.err.contains("aborted (409): no money\n"), "{}", refused.err);
    assert!(refused.err.contains(r#"payload: {"balance":3,"note":"\u{9b}2J"}"#), "{}", refused.err);
    assert_eq!(call("top/k/z/key").out.trim(), "\"k/z\"");
    assert_eq!(call("top/k%2Fz/key").out.trim(), "\"k%2Fz\"");

    let bench = |url: &str| millrace(&["bench", "http", url, "-d", "100ms", "--warm-up", "0", "-c", "1"]);
    let wrong = bench(&format!("{url}/top/list"));
    let said = format!("{}{}", wrong.out, wrong.err);
    assert!(wrong.code == Some(1) && said.contains("302") && said.contains("--expect-status"), "{said}");
    let with_tls = bench(&url.replace("http:", "https:"));
    assert!(with_tls.code == Some(2) && with_tls.err.contains("has TLS"), "{}", with_tls.err);

    let second = deploy("two", &["--json"]);
    let answer: serde_json::Value = serde_json::from_str(&second.out).expect("JSON alone");
    assert_eq!((second.code, &answer["name"], &answer["services"][0]["name"]), (Some(0), &"two".into(), &"top".into()));
    let warned = |output: &Output| output.err.contains("warning: ") && output.err.contains("/apps/one/");
    assert!(warned(&second) && answer["warnings"].as_array().is_some_and(|all| all.len() == 1), "{}", second.err);
    assert!(warned(&deploy("one", &[])), "the short URLs lead nowhere still");
    let ambiguous = call("top/k/key");
    assert!(ambiguous.err.contains("millrace call APP:service/key/handler"), "{}", ambiguous.err);
    assert_eq!(call("two:top/k/key").out.trim(), "\"k\"");
}

#[test]
fn a_list_of_no_keys_says_where_it_looked() {
    let folder = tempfile::tempdir().expect("a folder");
    let none = millrace(&["keys", "--data", text(&folder.path().join("nothere")), "list"]);
    assert_eq!((none.code, none.out.as_str()), (Some(0), ""), "{}", none.err);
    assert!(none.err.contains("no keys in") && none.err.contains("nothere"), "{}", none.err);
}

#[test]
fn a_command_ends_quietly_when_nobody_reads_its_output_any_more() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("keys.json");
    let add = millrace(&["keys", "--keys", text(&file), "add", "--role", "admin", "ann"]);
    assert_eq!(add.code, Some(0), "{}", add.err);
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let mut list = Command::new(binary());
    list.args(["keys", "--keys", text(&file), "list"]).stdin(Stdio::null()).stdout(writer);
    let output = list.output().expect("started");
    assert_eq!((output.status.code(), &*String::from_utf8_lossy(&output.stderr)), (Some(141), ""));
}

#[test]
fn apps_are_listed_and_removed_and_state_is_read_in_the_shell() {
    let server = Server::start(ServerOptions::examples(&["counter", "bank"]));
    let url = server.url();
    let run = |arguments: &[&str]| millrace(&[arguments, &["--url", &url]].concat());
    let listed = run(&["apps"]);
    assert_eq!(listed.code, Some(0), "{}", listed.err);
    let names: Vec<&str> = listed.out.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(names, ["APP", "bank", "counter"], "{}", listed.out);

    assert_eq!(server.value("counter/a%2Fb/add", "7"), 7, "a key with a slash");
    let all = run(&["state", "counter:counter/a/b"]);
    assert_eq!(all.out.trim_end(), r#"{"value":7}"#, "{}", all.err);
    assert_eq!(run(&["state", "counter/a/b", "value"]).out, "7", "a pipe gets the field and nothing else");
    assert_eq!(run(&["state", "counter/a/b", "--prefix", "w"]).out.trim_end(), "{}");
    let none = run(&["state", "counter"]);
    assert_eq!((none.code, none.err.contains("is not service/key")), (Some(1), true), "{}", none.err);

    let removed = run(&["apps", "remove", "counter"]);
    assert!(removed.out.contains("removed counter"), "{}", removed.err);
    assert!(!run(&["apps"]).out.contains("counter"));
    let again = run(&["apps", "remove", "counter"]);
    assert_eq!((again.code, again.err.contains("404")), (Some(1), true), "{}", again.err);
    let counter = repository().join("examples/counter");
    assert_eq!(run(&["deploy", text(&counter)]).code, Some(0));
    assert_eq!(server.value("counter/a%2Fb/value", ""), 7, "its state was kept");
}
