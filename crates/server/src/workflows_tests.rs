//! Tests of the printed text and of the command line.

use clap::Parser;
use serde_json::json;

use super::*;
use crate::cli::{Cli, Command};

fn parse(line: &str) -> Result<Command, String> {
    Cli::try_parse_from(line.split(' ')).map(|cli| cli.command).map_err(|error| error.to_string())
}

#[test]
fn a_signal_is_a_name_and_perhaps_json() {
    assert_eq!(parse_signal("paid").expect("a name"), ("paid", Value::Null));
    assert_eq!(parse_signal(r#"paid={"by":"a=b"}"#).expect("JSON"), ("paid", json!({"by": "a=b"})));
    for wrong in ["paid=", "paid=ann", "paid={"] {
        let failure = parse_signal(wrong).expect_err(wrong).to_string();
        assert!(failure.contains("text needs quotes"), "{failure}");
    }
}

#[test]
fn the_command_line_takes_what_fits_together() {
    for line in [
        "millrace invocations",
        "millrace invocations --service trip --status running --app trips --limit 5 --after x --json",
        "millrace invocations ID --cancel --url http://localhost:1 --api-key k",
        "millrace invocations ID --signal paid=1 --idempotency-key k",
        "millrace invocations ID --json",
        "millrace invocations resume A B --url http://localhost:1",
        "millrace invocations cancel A",
        "millrace invocations resume --service trip --status paused",
        "millrace invocations kill --app trips",
        "millrace invocations restart A B --from charge --on-newest",
        "millrace invocations restart --status failed --service trip",
        "millrace dead-letters --waiting --limit 5 --json",
        "millrace invocations kill A --api-key k",
        "millrace dead-letters --limit 5 --json",
        "millrace dead-letters --retry ID",
        "millrace dead-letters --drop ID",
        "millrace schedules",
        "millrace schedules --app shop --service mail --limit 5 --after a.b.c --json --url http://localhost:1",
    ] {
        assert!(parse(line).is_ok(), "{line}");
    }
    for line in [
        "millrace invocations --cancel",
        "millrace invocations resume",
        "millrace invocations kill A --service trip",
        "millrace invocations kill --status failed",
        "millrace invocations restart",
        "millrace invocations restart --service trip",
        "millrace invocations restart --status running",
        "millrace invocations restart A --status failed",
        "millrace dead-letters --waiting --drop A",
        "millrace invocations kill A --json",
        "millrace invocations --signal paid",
        "millrace invocations ID --cancel --signal paid",
        "millrace invocations ID --idempotency-key k",
        "millrace invocations ID --service trip",
        "millrace invocations ID --cancel --json",
        "millrace dead-letters ID",
        "millrace dead-letters --retry A --drop B",
        "millrace schedules shop",
    ] {
        assert!(parse(line).is_err(), "{line}");
    }
    let help = parse("millrace invocations --help").err().expect("help");
    for needed in ["Examples:", "millrace invocations ID --signal", "journal", "--url", "NAME[=JSON]"] {
        assert!(help.contains(needed), "{needed} is not in\n{help}");
    }
}

fn trip() -> Invocation {
    let reply = json!({
        "id": "w1", "status": "failed", "app": "trips", "service": "trip", "key": "ann", "handler": "book",
        "began_ms": 1_700_000_000_000_u64, "input": {"room": 7}, "waits_for": [],
        "error": {"status": 409, "code": "aborted", "detail": "no \u{1b}room"},
        "journal": [
            {"operation": 2, "kind": "step", "name": "choose", "ended_ms": 1_700_000_000_002_u64, "output": [8]},
            {"operation": 1, "kind": "call", "name": "room/7/hold", "ended_ms": 1_700_000_000_001_u64,
             "error": {"status": 409, "code": "aborted", "detail": "no room"}},
            {"operation": 3, "kind": "fetch", "name": "https://a/", "ended_ms": 1_700_000_000_003_u64, "output_bytes": 9},
        ],
    });
    serde_json::from_value(reply).expect("an invocation")
}

#[test]
fn a_workflow_is_shown_with_its_journal_as_a_table() {
    let expected = "\
id         w1
status     failed
workflow   trips:trip/ann/book
began      2023-11-14T22:13:20.000Z
input      {\"room\":7}
error      aborted: no \\u{1b}room

#  KIND   NAME         ENDED                     RESULT
2  step   choose       2023-11-14T22:13:20.002Z  [8]
1  call   room/7/hold  2023-11-14T22:13:20.001Z  failed: aborted: no room
3  fetch  https://a/   2023-11-14T22:13:20.003Z  (9 bytes, too many to show)
";
    assert_eq!(render_invocation(&trip()), expected);
    let waiting = Invocation { waits_for: Some(vec!["paid".to_owned(), "sleep".to_owned()]), ..Invocation::default() };
    assert!(render_invocation(&waiting).contains("waits for  paid, sleep\n"));
    let sent = json!({"id": "i", "status": "succeeded", "output": null});
    let sent: Invocation = serde_json::from_value(sent).expect("an invocation");
    assert_eq!(render_invocation(&sent), "id         i\nstatus     succeeded\noutput     null\n");
}

#[test]
fn what_failed_is_shown_above_the_journal() {
    let reply = json!({
        "id": "w1", "status": "paused",
        "failures": [
            {"operation": 4, "kind": "call", "name": "room/7/hold", "attempts": 3, "failed_ms": 1_700_000_000_000_u64,
             "next_try_ms": 1_700_000_000_001_u64, "error": {"status": 500, "code": "function-failed", "detail": "no"}},
            {"operation": 0, "kind": "code", "name": "", "attempts": 16, "failed_ms": 1_700_000_000_000_u64,
             "error": {"status": 500, "code": "function-failed", "detail": "x"}},
        ],
    });
    let invocation: Invocation = serde_json::from_value(reply).expect("an invocation");
    let expected = "\
id         w1
status     paused

#  FAILED  NAME         ATTEMPTS  NEXT TRY                  ERROR
4  call    room/7/hold  3         2023-11-14T22:13:20.001Z  function-failed: no
0  code                 16        when resumed              function-failed: x
";
    assert_eq!(render_invocation(&invocation), expected);
}

#[test]
fn lists_are_tables_and_empty_ones_say_so() {
    let page = InvocationPage { invocations: vec![trip()], next: None };
    let expected = "\
ID  STATUS  WORKFLOW             BEGAN                     ERROR
w1  failed  trips:trip/ann/book  2023-11-14T22:13:20.000Z  aborted: no \\u{1b}room
";
    assert_eq!(render_invocations(&page), expected);
    assert_eq!(render_invocations(&InvocationPage { invocations: vec![], next: None }), "no workflows\n");
    let dead_letters = json!({"next": null, "dead_letters": [
        {"id": "d1", "app": "shop", "service": "mail", "key": {"base64": "/w=="}, "handler": "deliver", "input": [1], "attempts": 16},
    ]});
    let dead_letters: DeadLetterPage = serde_json::from_value(dead_letters).expect("a page");
    let expected = "\
ID  MESSAGE                        INPUT  ATTEMPTS  ERROR
d1  shop:mail/base64:/w==/deliver  [1]    16
";
    assert_eq!(render_dead_letters(&dead_letters), expected);
    assert_eq!(render_dead_letters(&DeadLetterPage { dead_letters: vec![], next: None }), "no dead letters\n");
    let schedules = json!({"next": null, "schedules": [
        {"app": "shop", "service": "orders", "name": "nightly", "key": "all", "handler": "report", "cron": "30 3 * * *",
         "due_ms": 1_700_000_000_000_u64},
        {"app": "shop", "service": "orders", "name": "odd", "key": {"base64": "/w=="}, "handler": "look", "cron": "@yearly"},
    ]});
    let schedules: SchedulePage = serde_json::from_value(schedules).expect("a page");
    let expected = "\
NAME     CALLS                         CRON        NEXT
nightly  shop:orders/all/report        30 3 * * *  2023-11-14T22:13:20.000Z
odd      shop:orders/base64:/w==/look  @yearly
";
    assert_eq!(render_schedules(&schedules), expected);
    assert_eq!(render_schedules(&SchedulePage { schedules: vec![], next: None }), "no schedules\n");
}
