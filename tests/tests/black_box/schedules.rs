//! A service declares work for certain times. The work is done once for each time, and once for all times that passed
//! while nobody served. It is not done when it is no longer declared. Lists tell the next times. The clock is the
//! test's.

use std::thread::sleep;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use millrace_tests::{MovedClock, Server, ServerOptions, TestApp, assert_problem, millrace, wait_until};
use serde_json::{Value, json};

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);

/// Each shard looks at its schedules once a second. After this long everything due has been done.
const A_FEW_TICKS: Duration = Duration::from_millis(2_500);

/// Notes each call. With the flag it is declared to run hourly.
fn bells(is_scheduled: bool) -> TestApp {
    if is_scheduled { bells_at("0 * * * *") } else { bells_with("") }
}

fn bells_at(cron: &str) -> TestApp {
    bells_with(&format!(
        "export const schedules = {{
           tour: {{ cron: '30 12 * * *', key: 'tour', handler: 'walk' }},
           hourly: {{ cron: '{cron}', key: 'tower', handler: 'ring', input: 'hourly' }},
         }};"
    ))
}

fn bells_with(schedules: &str) -> TestApp {
    let source = format!(
        "import {{ service, query, workflow }} from 'millrace';
         export default service({{
           ring(ctx, what) {{ ctx.set('rung', [...(ctx.get('rung') ?? []), [what, ctx.now()]]); }},
           rung: query((ctx) => ctx.get('rung') ?? []),
           walk: workflow((ctx) => ctx.call('bells', 'walked', 'ring', 'tour')),
         }});
         {schedules}"
    );
    TestApp::with("bells.ts", &source)
}

fn rung(server: &Server, key: &str) -> Vec<Value> {
    server.value(&format!("bells/{key}/rung"), "").as_array().expect("a list").clone()
}

/// A server whose clock says half past eleven.
fn at_half_past_eleven() -> Option<(Server, MovedClock)> {
    let mut clock = MovedClock::new()?;
    let day = 24 * HOUR.as_secs();
    let of_day = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs() % day;
    clock.forward(Duration::from_secs((day + 11 * HOUR.as_secs() + 30 * 60 - of_day) % day));
    let mut options = ServerOptions::examples(&[]);
    clock.give(&mut options);
    let server = Server::start(options);
    assert_eq!(bells(true).deploy(&server, "bells").status, 201);
    sleep(A_FEW_TICKS);
    assert_eq!(rung(&server, "tower"), [] as [Value; 0], "not yet");
    Some((server, clock))
}

#[test]
fn each_time_is_one_call_and_so_are_all_that_were_missed() {
    let Some((mut server, mut clock)) = at_half_past_eleven() else { return };
    clock.forward(HOUR - 10 * MINUTE);
    wait_until("it rings at twelve", || rung(&server, "tower").len() == 1);
    sleep(A_FEW_TICKS);
    assert_eq!(rung(&server, "tower").len(), 1, "once");
    let (what, when) = (&rung(&server, "tower")[0][0], rung(&server, "tower")[0][1].as_u64().expect("a time"));
    assert_eq!((what, when / 1000 / 3600 % 24), (&json!("hourly"), 12));
    assert_eq!(rung(&server, "walked"), [] as [Value; 0]);
    clock.forward(20 * MINUTE);
    wait_until("a workflow starts at half past", || rung(&server, "walked").len() == 1);
    assert_eq!(server.invocations("status=succeeded", 10).len(), 1);

    server.kill();
    clock.forward(5 * HOUR);
    server.restart();
    wait_until("what was missed is made up for", || rung(&server, "tower").len() == 2);
    sleep(A_FEW_TICKS);
    assert_eq!(rung(&server, "tower").len(), 2, "by one call");
    server.kill();
    server.restart();
    clock.forward(HOUR);
    wait_until("and it goes on", || rung(&server, "tower").len() == 3);
    assert_eq!(rung(&server, "walked").len(), 1, "the other one is due once a day");
}

#[test]
fn what_is_no_longer_declared_is_no_longer_done() {
    let Some((server, mut clock)) = at_half_past_eleven() else { return };
    assert_eq!(bells(false).deploy(&server, "bells").status, 200);
    sleep(A_FEW_TICKS);
    clock.forward(3 * HOUR);
    sleep(A_FEW_TICKS);
    assert_eq!(rung(&server, "tower"), [] as [Value; 0]);
    assert_eq!(bells(true).deploy(&server, "bells").status, 200);
    sleep(A_FEW_TICKS);
    assert_eq!(rung(&server, "tower"), [] as [Value; 0], "it begins anew, and makes nothing up");
    clock.forward(HOUR);
    wait_until("it rings", || rung(&server, "tower").len() == 1);
}

/// Name and minute of the day of each schedule. Checks that the rest is as declared.
fn shown(server: &Server, filter: &str) -> Vec<(String, u64)> {
    let page = server.get(&format!("/schedules?{filter}"));
    let minute = |one: &Value| {
        let target =
            |one: &Value| [one["app"].clone(), one["service"].clone(), one["key"].clone(), one["handler"].clone()];
        let expected = if one["name"] == "tour" { ["tour", "walk"] } else { ["tower", "ring"] };
        assert_eq!(target(one), ["bells", "bells", expected[0], expected[1]].map(|text| json!(text)), "{one}");
        let due_ms = one["due_ms"].as_u64().expect("a time");
        assert_eq!(due_ms % 60_000, 0, "{one}");
        (one["name"].as_str().expect("a name").to_owned(), due_ms / 60_000 % (24 * 60))
    };
    page["schedules"].as_array().expect("a list").iter().map(minute).collect()
}

#[test]
fn lists_say_when_each_is_due_next() {
    let Some((mut server, mut clock)) = at_half_past_eleven() else { return };
    let expected = |hourly: u64| [("hourly".to_owned(), hourly), ("tour".to_owned(), 12 * 60 + 30)];
    assert_eq!(shown(&server, ""), expected(12 * 60));
    assert_eq!(server.get("/schedules")["schedules"][0]["cron"], "0 * * * *");
    assert_eq!(shown(&server, "app=bells&service=bells"), expected(12 * 60));
    for nothing in ["app=other", "service=other", "app=other&service=bells"] {
        assert_eq!(shown(&server, nothing), [], "{nothing}");
    }
    let first = server.get("/schedules?limit=1");
    assert_eq!((first["schedules"].as_array().map(Vec::len), &first["next"]), (Some(1), &json!("bells.bells.hourly")));
    assert_eq!(shown(&server, "after=bells.bells.hourly&limit=1"), expected(0)[1..]);
    assert_eq!(server.get("/schedules?limit=2")["next"], Value::Null);
    assert_problem(&server.request("GET", "/schedules?after=x", &[], b""), 400, "bad-request");

    clock.forward(HOUR - 10 * MINUTE);
    wait_until("it rings at twelve", || rung(&server, "tower").len() == 1);
    assert_eq!(shown(&server, ""), expected(13 * 60));
    server.kill();
    server.restart();
    assert_eq!(shown(&server, ""), expected(13 * 60), "a restart changes nothing");

    // It is twenty past twelve. The list shows the new time at once, and also after the shard has taken it over.
    assert_eq!(bells_at("15 * * * *").deploy(&server, "bells").status, 200);
    assert_eq!(shown(&server, ""), expected(13 * 60 + 15));
    sleep(A_FEW_TICKS);
    assert_eq!(shown(&server, ""), expected(13 * 60 + 15));
    assert_eq!(server.get("/schedules")["schedules"][0]["cron"], "15 * * * *");
    let text = millrace(&["schedules", "--app", "bells", "--url", &server.url()]);
    assert_eq!((text.code, text.out.lines().count()), (Some(0), 3), "{}{}", text.out, text.err);
    let row: Vec<&str> = text.out.lines().nth(1).expect("a schedule").split_whitespace().collect();
    assert_eq!(row[..7], ["hourly", "bells:bells/tower/ring", "15", "*", "*", "*", "*"]);
    assert!(row.len() == 8 && row[7].ends_with("T13:15:00.000Z"), "{row:?}");
    let as_json = millrace(&["schedules", "--service", "bells", "--json", "--url", &server.url()]);
    let as_json: Value = serde_json::from_str(&as_json.out).expect("JSON");
    assert_eq!(as_json, server.get("/schedules"));

    assert_eq!(server.request("DELETE", "/apps/bells", &[], b"").status, 204);
    assert_eq!(shown(&server, ""), [], "a removed app has none");
    assert_eq!(millrace(&["schedules", "--url", &server.url()]).out, "no schedules\n");
}
