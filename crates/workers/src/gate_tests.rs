//! The gate promises: so many transactions at once, in order, and none while nobody answers.

use super::*;

fn gate(of_worker: usize, of_services: &[Option<usize>], workers: usize) -> Arc<Gate> {
    Arc::new(Gate::new(Concurrency { of_worker, of_services: of_services.to_vec() }, vec![1; workers]))
}

fn now(gate: &Arc<Gate>, service: u16) -> WorkerSlot {
    match Gate::enter(gate, service) {
        Ok(Entered::Now(slot)) => slot,
        Ok(Entered::Waits(_)) => panic!("it waits"),
        Err(error) => panic!("{error}"),
    }
}

fn waits(gate: &Arc<Gate>, service: u16) -> oneshot::Receiver<Result<WorkerSlot, Error>> {
    match Gate::enter(gate, service) {
        Ok(Entered::Waits(granted)) => granted,
        Ok(Entered::Now(_)) => panic!("it has a slot"),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_freed_slot_goes_to_who_waits_longest() {
    let gate = gate(1, &[None], 1);
    let slot = now(&gate, 0);
    let (mut first, mut second) = (waits(&gate, 0), waits(&gate, 0));
    assert!(Gate::try_enter(&gate, 0).is_none());
    drop(slot);
    let slot = first.try_recv().expect("granted").expect("a slot");
    assert!(second.try_recv().is_err(), "there is one slot");
    drop(slot);
    assert!(second.try_recv().expect("granted").is_ok());
}

#[test]
fn who_has_gone_is_passed_over() {
    let gate = gate(1, &[None], 1);
    let slot = now(&gate, 0);
    drop(waits(&gate, 0));
    let mut second = waits(&gate, 0);
    drop(slot);
    drop(second.try_recv().expect("granted").expect("a slot"));
    drop(now(&gate, 0));
}

#[test]
fn a_full_service_holds_up_no_other() {
    let gate = gate(3, &[Some(1), None], 1);
    let of_first = now(&gate, 0);
    let mut waiting = waits(&gate, 0);
    let others = [now(&gate, 1), now(&gate, 1)];
    let mut other = waits(&gate, 1);
    drop(others);
    assert!(other.try_recv().expect("granted").is_ok());
    assert!(waiting.try_recv().is_err());
    drop(of_first);
    assert!(waiting.try_recv().expect("granted").is_ok());
}

#[test]
fn each_worker_brings_its_slots() {
    let gate = gate(2, &[None], 0);
    let error = Gate::enter(&gate, 0).err().expect("no worker is there");
    assert_eq!(error.code, ErrorCode::WorkerUnavailable);
    Gate::set_workers(&gate, vec![1]);
    let _two = [now(&gate, 0), now(&gate, 0)];
    let mut third = waits(&gate, 0);
    Gate::set_workers(&gate, vec![1; 2]);
    let _third = third.try_recv().expect("granted").expect("a slot");
    let _fourth = now(&gate, 0);
    let mut fifth = waits(&gate, 0);
    Gate::set_workers(&gate, vec![]);
    assert!(fifth.try_recv().expect("told at once").is_err());
}

#[test]
fn a_worker_of_several_nodes_brings_each_its_part() {
    let gate = gate(7, &[None], 0);
    Gate::set_workers(&gate, vec![3]);
    let two = [now(&gate, 0), now(&gate, 0)];
    drop(waits(&gate, 0));
    drop(two);
    // One that would run less than one for each node runs one.
    Gate::set_workers(&gate, vec![100]);
    let _one = now(&gate, 0);
    drop(waits(&gate, 0));
    Gate::set_workers(&gate, vec![100, 1]);
    let _more: Vec<_> = (0..7).map(|_| now(&gate, 0)).collect();
    drop(waits(&gate, 0));
}

#[test]
fn the_breaker_opens_at_once_where_nobody_listens_and_closes_after_a_turn() {
    let gate = gate(8, &[None], 1);
    let slot = now(&gate, 0);
    assert!(Gate::ended(&gate, Ended::Unsent, "nobody listens"));
    assert!(!Gate::ended(&gate, Ended::Unsent, "nobody listens"), "one probe is enough");
    let error = Gate::enter(&gate, 0).err().expect("it is open");
    assert!(error.message.contains("nobody listens"), "{error}");
    assert!(Gate::try_enter(&gate, 0).is_none());
    drop(slot);
    assert_eq!(gate.probe_wait(), Some(Duration::from_millis(100)));
    Gate::probed(&gate, false);
    assert_eq!(gate.probe_wait(), Some(Duration::from_millis(200)));
    Gate::probed(&gate, true);
    assert_eq!(gate.probe_wait(), None);
    let trial = now(&gate, 0);
    let mut second = waits(&gate, 0);
    assert!(Gate::ended(&gate, Ended::Lost, "it broke off"), "one is enough now");
    assert!(second.try_recv().expect("told at once").is_err());
    assert_eq!(gate.probe_wait(), Some(Duration::from_millis(400)));
    Gate::probed(&gate, true);
    assert!(Gate::try_enter(&gate, 0).is_none(), "the first one has its slot still");
    assert!(!Gate::ended(&gate, Ended::Turn, ""));
    let _many: Vec<WorkerSlot> = (0..7).map(|_| now(&gate, 0)).collect();
    drop(trial);
}

#[test]
fn calls_that_take_too_long_open_no_breaker() {
    let gate = gate(8, &[None], 1);
    for _ in 0..LOST_IN_A_ROW * 2 {
        assert!(!Gate::ended(&gate, Ended::Late, "its time was over"));
    }
    drop(now(&gate, 0));
    // Nor do they hide that attempts are lost.
    for _ in 0..LOST_IN_A_ROW - 1 {
        assert!(!Gate::ended(&gate, Ended::Lost, "it broke off"));
        assert!(!Gate::ended(&gate, Ended::Late, "its time was over"));
    }
    assert!(Gate::ended(&gate, Ended::Lost, "it broke off"));
}

#[test]
fn attempts_lost_in_a_row_open_the_breaker() {
    let gate = gate(8, &[None], 1);
    for _ in 0..3 {
        for _ in 0..LOST_IN_A_ROW - 1 {
            assert!(!Gate::ended(&gate, Ended::Lost, "it broke off"));
        }
        assert!(!Gate::ended(&gate, Ended::Turn, ""));
    }
    for _ in 0..LOST_IN_A_ROW - 1 {
        assert!(!Gate::ended(&gate, Ended::Lost, "it broke off"));
    }
    assert!(Gate::ended(&gate, Ended::Lost, "it broke off"));
    assert!(Gate::enter(&gate, 0).is_err());
    for _ in 0..8 {
        Gate::probed(&gate, false);
    }
    assert_eq!(gate.probe_wait(), Some(Duration::from_millis(LONGEST_PROBE_MS)));
}
