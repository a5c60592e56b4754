//! Schedules alone: each time is one message, and missed times are made up by one.

use bytes::Bytes;
use millrace_base::Name;
use millrace_func::{App, HandlerKind, Loaded, Program, Service};

use super::*;
use crate::testing::Bench;

/// On the minute, and minutes after it.
const MINUTE_MS: u64 = 60_000;

fn catalog(cron: Option<&str>) -> Catalog {
    let name = |text: &str| Name::new(text).expect("a name");
    let schedule = |cron: &str| Schedule {
        name: name("tick"),
        cron: cron.to_owned(),
        key: b"k".to_vec(),
        handler: name("run"),
        input: Bytes::from_static(b"1"),
    };
    let handlers = vec![(name("run"), HandlerKind::Transaction)];
    let schedules = cron.map(schedule).into_iter().collect();
    let services = vec![Service { name: name("counter"), handlers, routes: Vec::new(), schedules }];
    let mut catalog = Catalog::default();
    catalog.add(Program(1), Loaded::new(&App::new(name("app")), 1, services));
    catalog.activate(Program(1));
    catalog
}

fn run(schedules: &mut Schedules, bench: &mut Bench, cron: Option<&str>) -> usize {
    let (writes, messages) = schedules.run(&catalog(cron), &mut bench.context());
    bench.context().append_any(writes);
    messages.len()
}

fn asked() -> AskedSchedule {
    AskedSchedule {
        app: "app".to_owned(),
        service: "counter".to_owned(),
        name: "tick".to_owned(),
        cron: "* * * * *".to_owned(),
    }
}

#[test]
fn each_time_is_one_message_and_missed_times_are_made_up_by_one() {
    let (mut schedules, mut bench) = (Schedules::new(), Bench::new(1));
    let every_minute = Some("* * * * *");
    bench.now = UnixMillis(10 * MINUTE_MS + 1);
    assert_eq!(run(&mut schedules, &mut bench, every_minute), 0, "it is new");
    assert_eq!(run(&mut schedules, &mut bench, every_minute), 0);
    bench.now = UnixMillis(11 * MINUTE_MS);
    assert_eq!(run(&mut schedules, &mut bench, every_minute), 1);
    assert_eq!(run(&mut schedules, &mut bench, every_minute), 0);
    // After a start, five minutes late.
    let mut schedules = Schedules::new();
    bench.now = UnixMillis(17 * MINUTE_MS);
    assert_eq!(run(&mut schedules, &mut bench, every_minute), 1);
    let due = schedules.due(&[asked()], &mut bench.context()).expect("it is read");
    assert_eq!(due, [Some(UnixMillis(18 * MINUTE_MS))]);
}

#[test]
fn a_schedule_whose_times_change_begins_anew_and_one_that_goes_is_forgotten() {
    let (mut schedules, mut bench) = (Schedules::new(), Bench::new(1));
    bench.now = UnixMillis(10 * MINUTE_MS + 1);
    run(&mut schedules, &mut bench, Some("* * * * *"));
    bench.now = UnixMillis(11 * MINUTE_MS);
    assert_eq!(run(&mut schedules, &mut bench, Some("*/5 * * * *")), 0);
    bench.now = UnixMillis(15 * MINUTE_MS);
    assert_eq!(run(&mut schedules, &mut bench, Some("*/5 * * * *")), 1);
    assert_eq!(run(&mut schedules, &mut bench, None), 0);
    bench.now = UnixMillis(20 * MINUTE_MS);
    assert_eq!(run(&mut schedules, &mut bench, Some("*/5 * * * *")), 0, "it is new again");
}
