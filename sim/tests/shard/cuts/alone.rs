//! One shard fails alone at every message and every append of a transaction, and is opened again while the others run on.
//! Nobody sends anything again: the transaction ends by itself, unless the shard that decides is the one that failed.

use super::*;

/// What the others hear, and when.
#[derive(Clone, Copy, Debug, PartialEq)]
enum News {
    /// At once that the shard is open again; what was said to it and by it before is lost.
    AtOnce,
    /// The same, and then all that was on its way comes late.
    AndEchoes,
    /// What was on its way comes first, and then that the shard is open again.
    AfterEchoes,
    /// Ticks have passed by then.
    Late,
}

const NEWS: [News; 4] = [News::AtOnce, News::AndEchoes, News::AfterEchoes, News::Late];

/// How long shards hold what they have locked: ticks are as long.
const HOLD_MS: u64 = 1;

/// The shard that decides.
fn coordinator(course: &Course) -> ShardId {
    ShardId(if course.case.is_bare && course.way != Way::Route { 2 } else { 0 })
}

fn open_again(rig: &mut Rig, shard: ShardId, news: News, lost: Vec<OnItsWay>) {
    rig.open(shard);
    match news {
        News::AtOnce => rig.tell_opened(shard),
        News::AndEchoes => {
            rig.tell_opened(shard);
            lost.into_iter().for_each(|message| rig.hand_over(message));
        }
        News::AfterEchoes => {
            lost.into_iter().for_each(|message| rig.hand_over(message));
            rig.tell_opened(shard);
        }
        News::Late => {
            rig.settle();
            rig.tell_opened(shard);
        }
    }
    rig.settle();
}

fn fail_alone(course: &Course, steps: usize, (shard, kept): (ShardId, usize), news: News) -> Cut {
    let Course { case, order, way, .. } = *course;
    let context = || {
        let head = format!("{}, in order {order:?}, {way:?}", case.name);
        format!("{head}, shard {shard} fails after {steps} steps, kept {kept}, {news:?}")
    };
    let Running { mut rig, keys, token, .. } = course.run(steps);
    let lost = rig.lose(shard, kept);
    let echoes = if news == News::AtOnce { 0 } else { lost.len() };
    open_again(&mut rig, shard, news, lost);
    let first = rig.reply(token).cloned();
    match &first {
        None => assert_eq!(shard, coordinator(course), "{}: nobody is answered", context()),
        Some(answer) => assert!(is_final(answer), "{}: {answer:?}", context()),
    }
    let is_refused = first.as_ref().is_some_and(|answer| !says_done(answer));
    assert!(!is_refused || case.relieve.is_some(), "{}: {first:?}", context());
    let seen = Observed { first, before: Vec::new() };
    let left = Some(audit(course, &mut rig, &keys, &seen, &context));
    if let Some(relieve) = case.relieve {
        relieve(&mut rig, &keys);
    }
    let again = case.begin(&mut rig, &keys, way);
    rig.settle();
    let second = rig.reply(again).cloned().unwrap_or_else(|| panic!("{}: not answered again", context()));
    audit_retry(course, &mut rig, &keys, (&seen, left, &second), &context);
    assert_eq!(rig.bookkeeping_rows("delegated"), 0, "{}", context());
    Cut { was_refused: is_refused, is_done_later: says_done(&second), is_amid_tail: false, echoes }
}

#[test]
fn a_shard_that_fails_alone_anywhere_leaves_all_or_nothing_and_nobody_waiting() {
    let mut all = Total::default();
    for case in &CASES {
        let mut total = Total::default();
        every_course(case, EACH_ITS_OWN, |course| {
            // The others differ in when ticks and disks come, and here a shard that fails decides that.
            if !matches!(course.order, Order::Messages | Order::NewestMessages) || course.is_behind {
                return;
            }
            let course = Course { hold_ms: Some(HOLD_MS), ..*course };
            for steps in 0.. {
                let running = course.run(steps);
                for (shard, tail) in (0..).map(ShardId).zip(running.rig.tails()) {
                    for (kept, news) in (0..=tail).flat_map(|kept| NEWS.map(|news| (kept, news))) {
                        total.add(&fail_alone(&course, steps, (shard, kept), news));
                    }
                }
                if !running.has_more {
                    return;
                }
            }
        });
        println!("{}: {total:?}", case.name);
        assert!(total.points > 300 && total.done_later > 0, "{}: {total:?}", case.name);
        all.echoes += total.echoes;
    }
    assert!(all.echoes > 3_000, "{all:?}");
}
