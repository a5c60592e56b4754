//! The inbox alone: order, turns, windows, and what arrives twice.

use super::*;
use crate::testing::{Bench, START, message, sequence};

fn receive(inbox: &mut Inbox, bench: &mut Bench, due: UnixMillis) -> Box<[u8]> {
    let field = inbox_field(due, Sequence { lsn: bench.rows.next_lsn(), index: 0 });
    let write = inbox.write(&field, &message("k", due));
    bench.context().append(vec![write]);
    field.into()
}

#[test]
fn messages_start_by_due_time_and_none_before_it() {
    let (mut inbox, mut bench) = (Inbox::new(), Bench::new(1));
    let late = receive(&mut inbox, &mut bench, START.plus(10));
    let now = receive(&mut inbox, &mut bench, START);
    assert_eq!(inbox.next_due(), Some(UnixMillis(0)), "the rows have yet to be read");
    assert_eq!(inbox.start_next(&mut bench.context()), Some(now));
    assert_eq!(inbox.start_next(&mut bench.context()), None);
    assert_eq!(inbox.next_due(), Some(START.plus(10)));
    bench.now = START.plus(10);
    inbox.set_paused(true);
    assert_eq!((inbox.next_due(), inbox.start_next(&mut bench.context())), (None, None));
    inbox.set_paused(false);
    assert_eq!(inbox.start_next(&mut bench.context()), Some(late.clone()));
    assert_eq!(inbox.message(&late, &mut bench.rows).expect("it is there").key, b"k");
}

#[test]
fn one_message_at_a_time_runs_for_an_entity() {
    let (mut inbox, mut bench) = (Inbox::new(), Bench::new(1));
    let receiver = EntityKey::internal("x", b"1");
    let fields: Vec<_> = (0..3).map(|_| receive(&mut inbox, &mut bench, START)).collect();
    for field in &fields {
        assert_eq!(inbox.start_next(&mut bench.context()).as_ref(), Some(field));
        assert_eq!(inbox.has_turn(field, &receiver), *field == fields[0]);
    }
    inbox.ended(&fields[0], true);
    assert_eq!(inbox.start_next(&mut bench.context()).as_ref(), Some(&fields[1]), "its turn has come");
    assert!(inbox.has_turn(&fields[1], &receiver));
    // It is to be started again: whoever stands behind it waits for that.
    inbox.ended(&fields[1], false);
    inbox.put_back(&fields[1]);
    assert_eq!(inbox.start_next(&mut bench.context()).as_ref(), Some(&fields[1]));
    assert!(!inbox.forget(&fields[1]), "it runs");
    assert!(inbox.forget(&fields[2]), "it does not");
}

#[test]
fn what_arrives_is_taken_in_order_once_and_acknowledged_when_it_is_durable() {
    let (mut inbox, mut bench) = (Inbox::new(), Bench::new(2));
    let from = ShardId(1);
    let (first, second, third) = (sequence(1, 0), sequence(2, 0), sequence(3, 0));
    assert!(!inbox.is_new(from, (second, first), &mut bench.context()), "one before it is missing");
    for sequence in [first, second] {
        assert!(inbox.is_new(from, (sequence, Sequence::default()), &mut bench.context()));
        let write = inbox.received_write(from, sequence);
        let lsn = bench.context().append(vec![write]);
        inbox.received(from, sequence, lsn);
    }
    inbox.release_acknowledgements(&mut bench.context());
    assert_eq!(bench.outputs.acknowledged, []);
    bench.sync();
    inbox.release_acknowledgements(&mut bench.context());
    assert_eq!(bench.outputs.acknowledged, [(from, second)]);
    assert!(!inbox.is_new(from, (first, Sequence::default()), &mut bench.context()), "it has come before");
    inbox.release_acknowledgements(&mut bench.context());
    assert_eq!(bench.outputs.acknowledged, [(from, second); 2], "its sender has not heard that");
    assert!(inbox.is_new(from, (third, second), &mut bench.context()));
}
