//! What a service declares to be done at certain times is done then: once for each time, once for all
//! that passed while nobody served, and no more when it is no longer declared. The clock is the test's.

use std::thread::sleep;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use millrace_tests::{MovedClock, Server, ServerOptions, TestApp, wait_until};
use serde_json::{Value, json};

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);

/// Shards are looked after once a second; whatever is due has been done after this long.
const A_FEW_TICKS: Duration = Duration::from_millis(2_500);

/// Notes when it is called, hourly if so declared.
fn bells(is_scheduled: bool) -> TestApp {
    let schedules = "export const schedules = {
        hourly: { cron: '0 * * * *', key: 'tower', handler: 'ring', input: 'hourly' },
        tour: { cron: '30 12 * * *', key: 'tour', handler: 'walk' },
    };";
    let source = format!(
        "import {{ service, query, workflow }} from 'millrace';
         export default service({{
           ring(ctx, what) {{ ctx.set('rung', [...(ctx.get('rung') ?? []), [what, ctx.now()]]); }},
           rung: query((ctx) => ctx.get('rung') ?? []),
           walk: workflow((ctx) => ctx.call('bells', 'walked', 'ring', 'tour')),
         }});
         {}",
        if is_scheduled { schedules } else { "" }
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
