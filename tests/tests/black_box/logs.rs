//! The log: a line of text for each event, for people. With `--log-json` the same as a JSON object, for programs.

use std::io::Read;
use std::process::Command;

use millrace_tests::{Server, ServerOptions, TestApp, wait_until};
use serde_json::Value;

const SOURCE: &str = r#"
import { service } from "millrace";
export default service({
  say(ctx, text: string) { console.info(text); console.warn({ list: [1, "x"] }, text.length); },
  fail() { throw new Error("a mistake"); },
});
"#;

/// Line breaks, quotes, and control characters of a terminal.
const TEXT: &str = "\"he said \\\"no\\\" =\\n2026 ERROR forged\\u001b[2J ä\"";

/// The log of one run of the server, from its first line to its last.
fn life(server: &mut Server) -> Vec<String> {
    server.restart();
    assert_eq!(server.call("talk/k/say", TEXT).status, 200);
    assert_eq!(server.call("talk/k/fail", "null").code(), "function-failed");
    wait_until("the failure is logged", || server.errors().contains("a mistake"));
    assert!(server.stop(), "{}", server.errors());
    server.errors().lines().map(str::to_owned).collect()
}

/// A value as text shows it: plain, or as a literal.
fn shown(value: &Value) -> [String; 2] {
    match value {
        Value::String(text) => {
            let escape = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
            [text.chars().map(escape).collect(), format!("{text:?}")]
        }
        other => [other.to_string(), other.to_string()],
    }
}

/// An event's line of text begins with time, level and message. Then it has every other field and nothing else.
fn assert_same(text: &str, event: &Value) {
    let level = event["level"].as_str().expect("a level");
    let fields = event["fields"].as_object().expect("fields");
    let (time, rest) = text.split_once(' ').expect("a time");
    assert_eq!(time.len(), event["timestamp"].as_str().expect("a time").len(), "{text}");
    let rest = rest.trim_start().strip_prefix(level).unwrap_or_else(|| panic!("no {level}: {text}"));
    let [message, _] = shown(&fields["message"]);
    let mut rest = rest.strip_prefix(' ').and_then(|rest| rest.strip_prefix(&message)).unwrap_or_else(|| {
        panic!("no {message}: {text}");
    });
    let mut left: Vec<(&String, &Value)> = fields.iter().filter(|(name, _)| *name != "message").collect();
    while !left.is_empty() {
        let field = |(name, value): &(&String, &Value)| {
            shown(value).iter().find_map(|value| rest.strip_prefix(&format!(" {name}={value}")))
        };
        let found = left.iter().enumerate().find_map(|(index, pair)| field(pair).map(|rest| (index, rest)));
        let (index, behind) = found.unwrap_or_else(|| panic!("none of {left:?} at {rest:?}: {text}"));
        left.remove(index);
        rest = behind;
    }
    assert_eq!(rest, "", "more than in {event}");
}

#[test]
fn each_line_of_the_json_log_is_an_event_with_what_the_text_tells() {
    let mut options = ServerOptions::examples(&[]);
    for (flag, value) in [("--cores", "1"), ("--log", "info")] {
        options.set(flag, value);
    }
    let mut server = Server::start(options);
    assert_eq!(TestApp::with("talk.ts", SOURCE).deploy(&server, "talk").status, 201);
    // Both runs begin over the same data.
    assert!(server.stop());
    let texts = life(&mut server);
    server.options().arguments.push("--log-json".into());
    let lines = life(&mut server);
    let events: Vec<Value> = lines.iter().map(|line| serde_json::from_str(line).expect(line)).collect();
    assert_eq!(events.len(), texts.len(), "{texts:#?} {lines:#?}");
    for (text, event) in texts.iter().zip(&events) {
        assert_same(text, event);
    }
    let said: Value = serde_json::from_str(TEXT).expect("JSON");
    let find = |message: &Value| events.iter().find(|event| event["fields"]["message"] == *message);
    let event = find(&said).expect("what the function logs, as it is");
    assert_eq!((&event["level"], &event["fields"]["app"]), (&Value::from("INFO"), &Value::from("talk")), "{event}");
    let failed = find(&Value::from("a call failed")).expect("the failure");
    assert_eq!((&failed["level"], &failed["fields"]["handler"]), (&Value::from("WARN"), &Value::from("fail")));
    assert!(find(&Value::from("stopped")).is_some());
}

const LOUD: &str = r#"
import { service } from "millrace";
export default service({ loud(ctx) { for (let n = 0; n < 40; n++) console.warn("A".repeat(16_000)); return 1; } });
"#;

/// The server's standard error is a pipe that somebody holds open and does not read.
fn unread(pipe: &std::path::Path) -> ServerOptions {
    let made = Command::new("mkfifo").arg(pipe).status().expect("mkfifo");
    assert!(made.success());
    let mut options = ServerOptions::examples(&[]);
    options.set("--cores", "1");
    options.wrapper = ["sh", "-c", "exec \"$0\" \"$@\" 2<>\"$PIPE\""].map(str::to_owned).into();
    options.environment = vec![("PIPE".into(), pipe.to_str().expect("text").into())];
    options
}

/// The program that collects the log may stall, and functions may log without end. Neither may fill the server's
/// memory or hold up calls.
#[test]
fn a_log_that_nobody_reads_takes_bounded_memory_and_tells_later_what_it_lacks() {
    const CALLS: usize = 400;
    const GROWTH_KIB: u64 = 40 << 10;
    let folder = tempfile::tempdir().expect("a folder");
    let pipe = folder.path().join("errors");
    let server = Server::start(unread(&pipe));
    assert_eq!(
        TestApp::with("talk.ts", LOUD).and("millrace.toml", "[limits]\ncpu_ms = 5000\n").deploy(&server, "talk").status,
        201
    );
    assert_eq!(server.value("talk/k/loud", ""), 1);
    let before_kib = server.status_kib("VmRSS");
    for _ in 0..CALLS {
        assert_eq!(server.value("talk/k/loud", ""), 1);
    }
    let after_kib = server.status_kib("VmRSS");
    println!("{before_kib} KiB before, {after_kib} KiB after {CALLS} calls that log 256 KiB each");
    assert!(after_kib < before_kib + GROWTH_KIB, "{before_kib} KiB before, {after_kib} KiB after");

    let mut reader = std::fs::File::open(&pipe).expect("the other end");
    let (mut text, mut part) = (Vec::new(), vec![0; 1 << 16]);
    while !String::from_utf8_lossy(&text).contains("lines of the log were left out here") {
        let count = reader.read(&mut part).expect("the server is there");
        assert!(count > 0 && text.len() < 64 << 20, "it is not told: {} bytes", text.len());
        text.extend_from_slice(&part[..count]);
    }
    let text = String::from_utf8_lossy(&text);
    assert!(text.contains("a call logs at most 1000 lines and 256 KiB"), "nor what calls left out");
    let longest = text.lines().map(str::len).max();
    assert!(longest < Some(17_000), "lines are whole");
}
