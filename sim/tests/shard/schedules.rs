//! A schedule is called once at each of its times, wherever a crash cuts it off; times that pass
//! meanwhile are made up for by one call.

use millrace_base::{Lsn, Name, UnixMillis};
use millrace_func::Schedule;
use millrace_shard::Input;
use millrace_shard::question::ListSchedules;
use millrace_shard::{AskedSchedule, Reply, Token};
use millrace_sim::rig::APP;

use crate::*;

const COORDINATOR: ShardId = ShardId(0);
const MINUTE_MS: u64 = 60_000;

/// A rig whose app has a schedule, and starts with it only once it is there again.
fn rig() -> (Rig, String) {
    let mut rig = Rig::new(2);
    let key = rig.key_in(COORDINATOR.0, "clock");
    (rig.is_appless, rig.is_unstarted) = (true, true);
    start(&mut rig, &key);
    (rig, key)
}

/// Deploys the app, and starts the shards.
fn start(rig: &mut Rig, key: &str) {
    let name = |text: &str| Name::new(text).expect("a name");
    let schedule = Schedule {
        name: name("minutely"),
        cron: "* * * * *".to_owned(),
        key: key.as_bytes().to_vec(),
        handler: name("run"),
        input: s().add("n", 1).json().into(),
    };
    rig.core.engine.schedules.replace(vec![schedule]);
    rig.deploy();
    rig.tick(0);
}

fn lsn(rig: &mut Rig) -> Lsn {
    rig.core.shards.get_mut(&COORDINATOR).expect("there").store().lsn()
}

/// What is to be known of a schedule: how often it was called, and when it is due.
#[derive(Clone, Copy)]
struct Expected {
    calls: u64,
    due: UnixMillis,
}

impl Expected {
    fn declared(rig: &Rig) -> Self {
        Self { calls: 0, due: after(rig.core.now) }
    }

    /// The node could call it now. Says whether it has to.
    fn acts(&mut self, now: UnixMillis) -> bool {
        let is_due = self.due <= now;
        if is_due {
            *self = Self { calls: self.calls + 1, due: after(now) };
        }
        is_due
    }
}

/// The next full minute.
fn after(now: UnixMillis) -> UnixMillis {
    UnixMillis((now.0 / MINUTE_MS + 1) * MINUTE_MS)
}

fn pass(rig: &mut Rig, step_ms: u64, expected: &mut Expected) {
    rig.tick(step_ms);
    expected.acts(rig.core.now);
}

fn assert_called(rig: &mut Rig, key: &str, expected: Expected, what: &str) {
    rig.settle();
    let calls = rig.field("note", key, "n").as_u64().unwrap_or(0);
    assert_eq!(calls, expected.calls, "{what}");
    rig.assert_at_rest();
}

#[test]
fn each_time_is_one_call_and_missed_ones_are_one_together() {
    let (mut rig, key) = rig();
    let mut expected = Expected::declared(&rig);
    for step_ms in [1, 19_998, 1, 1, 59_998, 1, MINUTE_MS, 2 * MINUTE_MS, 10 * MINUTE_MS + 1, 1, 24 * 60 * MINUTE_MS] {
        pass(&mut rig, step_ms, &mut expected);
        let what = format!("at {:?}", rig.core.now);
        assert_called(&mut rig, &key, expected, &what);
    }
    assert_eq!(expected.calls, 6, "the times that the test is about");
}

#[test]
fn a_crash_at_any_entry_neither_doubles_nor_skips_a_call() {
    let entries = crash_after(u64::MAX, 0);
    assert!(entries >= 5, "its declaration, two calls and what they do: {entries}");
    for kept in 0..=entries {
        for down_ms in [0, 1, 20_000, MINUTE_MS, 5 * MINUTE_MS + 30_000, 60 * MINUTE_MS] {
            crash_after(kept, down_ms);
        }
    }
}

/// Two calls, and a crash that leaves so many entries; gives how many there were.
fn crash_after(kept: u64, down_ms: u64) -> u64 {
    let (mut rig, key) = rig();
    // What is to be known after each entry.
    let mut expected = Expected::declared(&rig);
    let mut after_entry = vec![None, Some(expected)];
    for step_ms in [19_999, 1, 30_000, 30_000] {
        pass(&mut rig, step_ms, &mut expected);
        after_entry.resize(usize::try_from(lsn(&mut rig).0 + 1).expect("few"), Some(expected));
    }
    let last = lsn(&mut rig);
    let kept = last.min(Lsn(kept));
    rig.core.give(COORDINATOR, Input::Durable(kept));
    rig.crash();
    rig.core.now = rig.core.now.plus(down_ms);
    start(&mut rig, &key);
    let known = after_entry[usize::try_from(kept.0).expect("few")];
    let mut expected = known.unwrap_or_else(|| Expected::declared(&rig));
    expected.acts(rig.core.now);
    let what = format!("{kept} of {last} entries are left, and {down_ms} ms pass");
    assert_called(&mut rig, &key, expected, &what);
    for _ in 0..6 {
        pass(&mut rig, 25_000, &mut expected);
        assert_called(&mut rig, &key, expected, &what);
    }
    last.0
}

/// When the shard says that the schedule is due next, if this is what is declared.
fn shown(rig: &mut Rig, cron: &str) -> Option<UnixMillis> {
    let token = Token(1 << 60 | rig.replies.len() as u64);
    let text = str::to_owned;
    let asked = AskedSchedule { app: text(APP), service: text("note"), name: text("minutely"), cron: text(cron) };
    rig.core.give(COORDINATOR, Input::Ask(token, ListSchedules { asked: vec![asked] }.into()));
    rig.make_durable();
    match rig.reply(token) {
        Some(Ok(Reply::Schedules(due))) => due[0],
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_shard_says_when_a_schedule_is_due() {
    let (mut rig, _) = rig();
    let due = after(rig.core.now);
    assert_eq!(shown(&mut rig, "* * * * *"), Some(due));
    let next_hour = UnixMillis((rig.core.now.0 / (60 * MINUTE_MS) + 1) * 60 * MINUTE_MS);
    assert_eq!(shown(&mut rig, "@hourly"), Some(next_hour), "of what was deployed just now, as the next tick will");
    rig.core.is_read_only = true;
    rig.tick(5 * MINUTE_MS);
    assert_eq!(shown(&mut rig, "* * * * *"), Some(due), "it is overdue as long as nothing can be written");
    rig.core.is_read_only = false;
    rig.tick(0);
    let now = rig.core.now;
    assert_eq!(shown(&mut rig, "* * * * *"), Some(after(now)));
}
