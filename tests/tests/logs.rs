//! The log: for people a line of text for each event, for programs with `--log-json` the same as a JSON object.

use millrace_tests::{Server, ServerOptions, TestApp, wait_until};
use serde_json::Value;

const SOURCE: &str = r#"
import { service } from "millrace";
export default service({
  say(ctx, text: string) { console.info(text); console.warn({ list: [1, "x"] }, text.length); },
  fail() { throw new Error("a mistake"); },
});
"#;

/// Lines of its own, quotes, and what steers a terminal.
const TEXT: &str = "\"he said \\\"no\\\" =\\n2026 ERROR forged\\u001b[2J ä\"";

/// What a life of the server has logged, from its first line to its last.
fn life(server: &mut Server) -> Vec<String> {
    server.restart();
    assert_eq!(server.call("talk/k/say", TEXT).status, 200);
    assert_eq!(server.call("talk/k/fail", "null").code(), "function-failed");
    wait_until("the failure is logged", || server.errors().contains("a mistake"));
    assert!(server.stop(), "{}", server.errors());
    server.errors().lines().map(str::to_owned).collect()
}

/// A value as text shows it: as it is, or as a literal.
fn shown(value: &Value) -> [String; 2] {
    match value {
        Value::String(text) => {
            let escape = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
            [text.chars().map(escape).collect(), format!("{text:?}")]
        }
        other => [other.to_string(), other.to_string()],
    }
}

/// An event's line of text begins with time, level and message, and then has every other field and nothing else.
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
    // Both lives begin over the same data.
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
