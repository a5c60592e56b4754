//! The queue of one entity, and who waits for whom.

use super::*;

fn entity() -> EntityKey {
    EntityKey::internal("x", b"1")
}

fn waiter(nonce: u64, is_exclusive: bool) -> Waiter {
    Waiter { nonce, age: (0, nonce), is_exclusive, holds_any: false }
}

fn holding(nonce: u64) -> Waiter {
    Waiter { holds_any: true, ..waiter(nonce, true) }
}

#[test]
fn sharers_go_together_and_a_writer_goes_alone() {
    let mut locks = Locks::default();
    locks.hold(&entity(), 1, (0, 1), true);
    for (nonce, is_exclusive) in [(2, false), (3, false), (4, true), (5, false)] {
        assert_eq!(locks.check(&entity(), nonce, (0, nonce), is_exclusive, false), Grant::Wait);
        locks.queue(&entity(), waiter(nonce, is_exclusive));
    }
    assert_eq!(locks.runnable(&entity()), None);
    locks.release(&entity(), 1);
    assert_eq!(locks.runnable(&entity()), Some(2));
    locks.take(&entity(), 2, (0, 2), false);
    assert_eq!(locks.runnable(&entity()), Some(3));
    locks.take(&entity(), 3, (0, 3), false);
    assert_eq!(locks.runnable(&entity()), None);
    locks.release(&entity(), 2);
    locks.release(&entity(), 3);
    assert_eq!(locks.runnable(&entity()), Some(4));
}

#[test]
fn a_sharer_that_wants_it_alone_comes_before_the_queue() {
    let mut locks = Locks::default();
    locks.hold(&entity(), 1, (0, 1), false);
    locks.hold(&entity(), 2, (0, 2), false);
    locks.queue(&entity(), waiter(3, true));
    locks.queue(&entity(), waiter(1, false));
    locks.queue(&entity(), waiter(1, true));
    locks.release(&entity(), 2);
    assert_eq!(locks.runnable(&entity()), Some(1));
    locks.hold(&entity(), 1, (0, 1), false);
    assert_eq!(locks.runnable(&entity()), Some(1), "holding it does not end its wait");
    locks.take(&entity(), 1, (0, 1), true);
    assert_eq!((locks.runnable(&entity()), locks.queued(&entity())), (None, 1));
    locks.leave_queue(&entity(), 3);
    locks.release(&entity(), 1);
    assert!(locks.is_empty());
}

#[test]
fn nobody_overtakes_the_queue() {
    let mut locks = Locks::default();
    locks.hold(&entity(), 1, (0, 1), false);
    locks.queue(&entity(), waiter(2, true));
    assert_eq!(locks.check(&entity(), 3, (0, 3), false, false), Grant::Wait);
    assert_eq!(locks.check(&entity(), 1, (0, 1), false, true), Grant::Free, "a holder keeps what it has");
}

#[test]
fn an_older_one_comes_before_younger_ones_that_hold_nothing() {
    let mut locks = Locks::default();
    locks.hold(&entity(), 9, (0, 9), true);
    for nonce in [4, 6, 8] {
        locks.queue(&entity(), waiter(nonce, true));
    }
    assert_eq!(locks.check(&entity(), 3, (0, 3), true, true), Grant::Wait);
    locks.queue(&entity(), holding(3));
    locks.queue(&entity(), waiter(5, true));
    // 3 holds something: who is older must not make it wait for an older one.
    assert_eq!(locks.check(&entity(), 2, (0, 2), true, true), Grant::Wait);
    locks.queue(&entity(), holding(2));
    locks.release(&entity(), 9);
    for nonce in [3, 2, 4, 5, 6, 8] {
        assert_eq!(locks.runnable(&entity()), Some(nonce));
        locks.take(&entity(), nonce, (0, nonce), true);
        locks.release(&entity(), nonce);
    }
    assert!(locks.is_empty());
}

#[test]
fn who_holds_something_comes_before_an_older_one_that_holds_nothing_but_not_for_ever() {
    let mut locks = Locks::default();
    locks.hold(&entity(), 9, (0, 9), true);
    locks.queue(&entity(), waiter(1, true));
    for nonce in 3..3 + u64::from(OVERTAKEN) {
        assert_eq!(locks.check(&entity(), nonce, (0, nonce), true, true), Grant::Wait);
        locks.queue(&entity(), holding(nonce));
        locks.release(&entity(), nonce);
    }
    assert_eq!(locks.check(&entity(), 8, (0, 8), true, true), Grant::Die);
    locks.queue(&entity(), waiter(8, true));
    locks.release(&entity(), 9);
    assert_eq!(locks.runnable(&entity()), Some(1));
}

#[test]
fn who_shares_with_the_holders_comes_before_an_older_one_no_more_often() {
    let mut locks = Locks::default();
    locks.hold(&entity(), 5, (0, 5), false);
    locks.queue(&entity(), waiter(1, true));
    for nonce in 6..6 + u64::from(OVERTAKEN) {
        assert_eq!(locks.check(&entity(), nonce, (0, nonce), false, true), Grant::Free);
        locks.hold(&entity(), nonce, (0, nonce), false);
        locks.hold(&entity(), nonce, (0, nonce), false);
        locks.release(&entity(), nonce - 1);
    }
    let last = 5 + u64::from(OVERTAKEN);
    assert_eq!(locks.check(&entity(), last + 1, (0, last + 1), false, true), Grant::Die);
    locks.release(&entity(), last);
    assert_eq!(locks.runnable(&entity()), Some(1));
}

#[test]
fn anybody_may_wait_for_a_holder_that_wants_nothing_more() {
    let mut locks = Locks::default();
    locks.hold(&entity(), 2, (0, 2), false);
    locks.hold(&entity(), 5, (0, 5), false);
    assert_eq!(locks.check(&entity(), 9, (0, 9), true, true), Grant::Die);
    locks.mark_wants_nothing(&entity(), 5);
    assert_eq!(locks.check(&entity(), 9, (0, 9), true, true), Grant::Die, "2 may still want what 9 holds");
    locks.mark_wants_nothing(&entity(), 2);
    assert_eq!(locks.check(&entity(), 9, (0, 9), true, true), Grant::Wait);
    locks.release(&entity(), 2);
    locks.release(&entity(), 5);
    locks.hold(&entity(), 2, (0, 2), true);
    assert_eq!(locks.check(&entity(), 9, (0, 9), true, true), Grant::Die, "it has begun again");
    locks.mark_prepared(&entity());
    assert_eq!(locks.check(&entity(), 9, (0, 9), true, true), Grant::Wait);
}

#[test]
fn the_younger_one_dies_only_if_it_holds_something() {
    let mut locks = Locks::default();
    locks.hold(&entity(), 5, (0, 5), true);
    assert_eq!(locks.check(&entity(), 9, (0, 9), true, true), Grant::Die);
    assert_eq!(locks.check(&entity(), 9, (0, 9), true, false), Grant::Wait);
    assert_eq!(locks.check(&entity(), 2, (0, 2), true, true), Grant::Wait);
}

#[test]
fn a_free_entity_costs_nothing() {
    let mut locks = Locks::default();
    locks.hold(&entity(), 1, (0, 1), true);
    locks.release(&entity(), 1);
    assert!(locks.is_empty());
    assert_eq!(locks.check(&entity(), 2, (0, 2), true, true), Grant::Free);
}
