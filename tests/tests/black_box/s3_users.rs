//! Users of S3 by the command line: made, kept over a kill, and missed when their file is gone.

use millrace_tests::{Output, Server, ServerOptions, millrace};
use serde_json::Value;

fn s3(server: &Server, arguments: &[&str]) -> Output {
    millrace(&[&["s3"], arguments, &["--url", &server.url()]].concat())
}

/// The lines that a command prints.
fn lines(server: &Server, arguments: &[&str]) -> Vec<Value> {
    let output = s3(server, arguments);
    assert_eq!(output.code, Some(0), "{arguments:?}: {}", output.err);
    output.out.lines().map(|line| serde_json::from_str(line).expect("a line is JSON")).collect()
}

fn refused(server: &Server, arguments: &[&str], reason: &str) {
    let output = s3(server, arguments);
    assert_eq!((output.code, output.out.as_str()), (Some(1), ""), "{arguments:?}");
    assert!(output.err.contains(reason), "{}", output.err);
}

#[test]
fn users_and_keys_are_kept_and_a_lost_file_is_missed() {
    let mut server = Server::start(ServerOptions::examples(&["counter"]));
    let ann = &lines(&server, &["user", "add", "ann", "--email", "ann@example.com"])[0];
    let text = |value: &Value, name: &str| value[name].as_str().expect("text").to_owned();
    assert_eq!((text(ann, "display_name"), text(ann, "email")), ("ann".to_owned(), "ann@example.com".to_owned()));
    assert_eq!((text(ann, "id").len(), text(ann, "access_key").len(), text(ann, "secret_key").len()), (64, 20, 40));
    let chosen =
        ["--access-key", "0555b35654ad1656d804", "--secret-key", "h7GhxuBLTrlhVUyxSPUKUV8r/2EI4ngqJxD7iBdBYL=="];
    let bob = &lines(&server, &[&["user", "add", "B. Ob"], &chosen[..]].concat())[0];
    assert_eq!((text(bob, "access_key"), text(bob, "secret_key")), (chosen[1].to_owned(), chosen[3].to_owned()));
    let second = text(&lines(&server, &["key", "add", "ann"])[0], "access_key");
    lines(&server, &["key", "revoke", "ann", &text(ann, "access_key")]);
    refused(&server, &["user", "add", "ann"], "already");
    refused(&server, &["key", "list", "nobody"], "there is no user");
    assert_eq!(s3(&server, &["user", "add", "cy", "--access-key", "KEY"]).code, Some(2), "half a key");

    let listed = lines(&server, &["user", "list"]);
    let keys = lines(&server, &["key", "list", &text(ann, "id")]);
    assert_eq!(listed.len(), 2);
    let shown: Vec<_> = keys.iter().map(|key| (text(key, "access_key"), text(key, "status"))).collect();
    assert_eq!(shown, [(text(ann, "access_key"), "revoked".to_owned()), (second, "active".to_owned())]);

    server.kill();
    let file = server.data().join("s3-users.json");
    let kept = std::fs::read_to_string(&file).expect("there");
    assert!(!kept.contains(&text(ann, "secret_key")) && !kept.contains(chosen[3]));
    server.restart();
    assert_eq!(lines(&server, &["user", "list"]), listed);
    lines(&server, &["user", "remove", "B. Ob"]);
    assert_eq!(lines(&server, &["user", "list"]), listed[..1]);

    server.stop();
    let old = std::fs::read(&file).expect("there");
    std::fs::write(&file, &kept).expect("put back");
    assert!(server.restart_refuses().contains("s3-users.json"), "an older table");
    std::fs::remove_file(&file).expect("removed");
    assert!(server.restart_refuses().contains("s3-users.json"), "no table");
    std::fs::write(&file, old).expect("restored");
    server.restart();
    assert_eq!(lines(&server, &["user", "list"]), listed[..1]);
}
