//! An owner by itself: when a learner may be promoted.

use millrace_base::Lsn;

use crate::event::{Command, Event};
use crate::ids::{EntryId, Epoch, NodeId, Promised};
use crate::log_view::LogView;
use crate::message::Message;
use crate::replica::{Recovered, Replica};
use crate::replica_set::{Change, ReplicaSet};
use crate::settings::Settings;

const ME: NodeId = NodeId(1);
const LEARNER: NodeId = NodeId(2);
const EPOCH: Epoch = Epoch(4);

/// Later than any lease that a node before this start may have given.
const NOW_NS: u64 = 10_000_000_000;

/// Hands in an event. What is to be written is durable at once.
fn handle(replica: &mut Replica, event: Event) -> Vec<Command> {
    let mut all = Vec::new();
    let mut events = vec![event];
    while let Some(event) = events.pop() {
        let mut out = Vec::new();
        replica.handle(NOW_NS, event, &mut out);
        let number = |command: &Command| if let Command::Write { number, .. } = command { Some(*number) } else { None };
        events.extend(out.iter().filter_map(number).max().map(|up_to| Event::Written { up_to }));
        all.append(&mut out);
    }
    all
}

/// The owner of a shard that no other node holds. Its log begins behind the first `base` entries.
fn owner(base: u64) -> Replica {
    let base = if base == 0 { EntryId::ZERO } else { EntryId::new(Epoch(1), Lsn(base)) };
    let mut log = LogView::new(base, base.lsn, ReplicaSet::of([ME]));
    log.recover_committed(base.lsn);
    let recovered = Recovered { promised: Promised::default(), log, is_whole: true };
    let mut replica = Replica::start(ME, Settings::default(), 0, 1, recovered);
    let mut commands = handle(&mut replica, Event::Appoint { epoch: EPOCH });
    commands.extend(handle(&mut replica, Event::Tick));
    assert!(commands.iter().any(|command| matches!(command, Command::Serve { .. })), "{commands:?}");
    replica
}

/// A learner comes, and says that it has nothing yet.
fn with_learner(base: u64) -> (Replica, Vec<Command>) {
    let mut replica = owner(base);
    let lsn = replica.log().last().lsn.next();
    handle(&mut replica, Event::ChangeSet { lsn, change: Change::AddLearner(LEARNER) });
    let message = Message::Ack { epoch: EPOCH, round: 0, durable: Lsn::ZERO };
    let commands = handle(&mut replica, Event::Received { from: LEARNER, message });
    (replica, commands)
}

#[test]
fn a_learner_that_needs_a_snapshot_has_not_caught_up_however_few_entries_there_are() {
    let caught_up = Command::CaughtUp { learner: LEARNER };
    for (base, has_caught_up) in [(0, true), (1, false)] {
        let (replica, commands) = with_learner(base);
        assert_eq!(commands.contains(&caught_up), has_caught_up, "behind {base} entries: {commands:?}");
        // As a voter it would have to hold an entry that it gets only after the snapshot, and the snapshot waits for that entry.
        assert_eq!(replica.may_change(Change::Promote(LEARNER)), has_caught_up, "behind {base} entries");
    }
}
