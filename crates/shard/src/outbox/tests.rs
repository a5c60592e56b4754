//! The outbox alone: what is carried over, when, and what happens if nobody answers.

use super::*;
use crate::testing::{Bench, START, message, sequence};

const TO: ShardId = ShardId(1);

fn send(outbox: &mut Outbox, bench: &mut Bench) -> Sequence {
    let sequence = Sequence { lsn: bench.rows.next_lsn(), index: 0 };
    let write = outbox.write(TO, sequence, &message("k", START));
    bench.context().append(vec![write]);
    sequence
}

fn delivered(bench: &mut Bench) -> Vec<(Sequence, Sequence)> {
    std::mem::take(&mut bench.outputs.deliveries).into_iter().map(|(_, it)| (it.after, it.sequence)).collect()
}

#[test]
fn what_is_durable_is_delivered_over_in_order_and_deleted_when_it_has_arrived() {
    let (mut outbox, mut bench) = (Outbox::new(), Bench::new(2));
    let (first, second) = (send(&mut outbox, &mut bench), send(&mut outbox, &mut bench));
    outbox.deliver(&mut bench.context());
    assert_eq!(delivered(&mut bench), []);
    bench.sync();
    outbox.deliver(&mut bench.context());
    assert_eq!(delivered(&mut bench), [(Sequence::default(), first), (first, second)]);
    outbox.deliver(&mut bench.context());
    assert_eq!(delivered(&mut bench), [], "they are on their way");
    outbox.acknowledged(TO, second, &mut bench.context());
    let entries = bench.outputs.entries;
    bench.is_read_only = true;
    outbox.forget_acknowledged(&mut bench.context());
    assert_eq!(bench.outputs.entries, entries, "the disk is full");
    bench.is_read_only = false;
    outbox.forget_acknowledged(&mut bench.context());
    assert_eq!(bench.outputs.entries, entries + 1);
    let third = send(&mut outbox, &mut bench);
    bench.sync();
    outbox.deliver(&mut bench.context());
    assert_eq!(delivered(&mut bench), [(second, third)]);
}

#[test]
fn a_receiver_that_says_nothing_gets_one_message_again_less_and_less_often() {
    let (mut outbox, mut bench) = (Outbox::new(), Bench::new(2));
    let first = send(&mut outbox, &mut bench);
    send(&mut outbox, &mut bench);
    bench.sync();
    outbox.deliver(&mut bench.context());
    assert_eq!(delivered(&mut bench).len(), 2);
    for silence_ms in [SILENCE_MS, 2 * SILENCE_MS, 4 * SILENCE_MS] {
        bench.now = bench.now.plus(silence_ms - 1);
        outbox.forget_acknowledged(&mut bench.context());
        outbox.deliver(&mut bench.context());
        assert_eq!(delivered(&mut bench), []);
        bench.now = bench.now.plus(1);
        outbox.forget_acknowledged(&mut bench.context());
        outbox.deliver(&mut bench.context());
        assert_eq!(delivered(&mut bench), [(Sequence::default(), first)]);
    }
}

#[test]
fn what_is_due_goes_as_due_at_once_and_what_is_not_by_the_machines_time() {
    let (mut outbox, mut bench) = (Outbox::new(), Bench::new(2));
    // The machine's clock is behind what the shard has used.
    let behind_ms = 300_000;
    bench.rows.clock_mut().look(START, 0);
    bench.now = bench.rows.clock_mut().look(UnixMillis(START.0 - behind_ms), 0);
    for delay_ms in [0, 20] {
        let sequence = Sequence { lsn: bench.rows.next_lsn(), index: 0 };
        let write = outbox.write(TO, sequence, &message("k", bench.now.plus(delay_ms)));
        bench.context().append(vec![write]);
    }
    bench.sync();
    outbox.deliver(&mut bench.context());
    let due = |delivery: &Delivery| MessageRecord::decode(&delivery.message).expect("a message").due;
    let sent: Vec<UnixMillis> = bench.outputs.deliveries.iter().map(|(_, delivery)| due(delivery)).collect();
    assert_eq!(sent, [UnixMillis(0), UnixMillis(START.0 + 20 - behind_ms)]);
}

#[test]
fn a_start_finds_the_receivers_that_have_yet_to_get_something() {
    let mut bench = Bench::new(2);
    let sent = send(&mut Outbox::new(), &mut bench);
    bench.sync();
    Outbox::new().deliver(&mut bench.context());
    assert_eq!(delivered(&mut bench), [(sequence(0, 0), sent)]);
}
