//! Every role has an answer to every message, and it is the one in `docs/internals/replication.md`.

use std::collections::BTreeMap;

use bytes::Bytes;
use millrace_base::Lsn;

use super::disk::Disk;
use super::world::id;
use crate::event::{Command, Event, Write};
use crate::ids::{EntryId, Epoch, Promised};
use crate::message::{EntryKind, LogEntry, Message};
use crate::replica::{Replica, RoleName};
use crate::replica_set::{Change, ReplicaSet};
use crate::settings::Settings;

const PAGE: &str = include_str!("../../../../docs/internals/replication.md");
const MINE: Epoch = Epoch(5);
const NOW: u64 = 1_000_000_000_000;

fn set() -> ReplicaSet {
    ReplicaSet::of([id(1), id(2), id(3)])
}

fn entry(epoch: u64, lsn: u64) -> LogEntry {
    LogEntry { id: EntryId::new(Epoch(epoch), Lsn(lsn)), kind: EntryKind::Data, bytes: Bytes::from_static(b"x") }
}

/// Node 1 with two entries of epoch 4.
fn start(is_whole: bool, set: ReplicaSet) -> Replica {
    let mut disk = Disk::new(set);
    disk.write(&Write::Append(vec![entry(4, 1), entry(4, 2)]));
    disk.write(&Write::Promise(Promised { epoch: Epoch(4), to: id(3) }));
    disk.is_whole = is_whole;
    Replica::start(id(1), Settings::default(), 0, 7, disk.recover())
}

/// One event, and everything that becomes durable because of it.
fn handle(replica: &mut Replica, event: Event) -> Vec<Command> {
    let mut all = Vec::new();
    let mut next = Some(event);
    while let Some(event) = next.take() {
        let mut out = Vec::new();
        replica.handle(NOW, event, &mut out);
        for command in &out {
            if let Command::Write { number, .. } = command {
                next = Some(Event::Written { up_to: *number });
            }
        }
        all.extend(out);
    }
    all
}

fn receive(replica: &mut Replica, message: Message) -> Vec<Command> {
    handle(replica, Event::Received { from: id(2), message })
}

fn append(epoch: Epoch) -> Message {
    let prev = EntryId::new(Epoch(4), Lsn(2));
    Message::Append { epoch, round: 1, asks_lease: true, committed: Lsn(0), prev, entries: Vec::new() }
}

fn promise(epoch: Epoch, last: EntryId) -> Message {
    Message::Promise { epoch, last, set_lsn: Lsn(0), set: set() }
}

/// A replica in each role, in epoch 5, by the name of its column.
fn roles() -> Vec<(&'static str, Replica)> {
    let follower = || {
        let mut replica = start(true, set());
        receive(&mut replica, append(MINE));
        replica
    };
    let mut learner = {
        let learns = ReplicaSet::of([id(2), id(3)]).after(Change::AddLearner(id(1))).expect("a new learner");
        start(true, learns)
    };
    receive(&mut learner, append(MINE));
    let candidate = || {
        let mut replica = start(true, set());
        handle(&mut replica, Event::Appoint { epoch: MINE });
        replica
    };
    let mut taking = candidate();
    receive(&mut taking, promise(MINE, EntryId::new(Epoch(4), Lsn(3))));
    let owner = || {
        let mut replica = candidate();
        receive(&mut replica, promise(MINE, EntryId::new(Epoch(4), Lsn(1))));
        let message = Message::Ack { epoch: MINE, round: 1, durable: Lsn(3) };
        handle(&mut replica, Event::Received { from: id(3), message });
        replica
    };
    let mut deposed = {
        let mut replica = start(true, set());
        handle(&mut replica, Event::Appoint { epoch: Epoch(4) });
        handle(&mut replica, Event::Appoint { epoch: Epoch(5) });
        receive(&mut replica, promise(Epoch(5), EntryId::new(Epoch(4), Lsn(1))));
        receive(&mut replica, Message::Refusal { promised: Promised { epoch: Epoch(6), to: id(2) } });
        replica
    };
    // Its epoch is 5 still: it has been told of a higher one, and has not promised it. Node 2 owns 5 in the rows below.
    assert_eq!(deposed.role(), RoleName::Deposed);
    receive(&mut deposed, append(MINE));
    let all = vec![
        ("follower", follower()),
        ("learner", learner),
        ("deposed", deposed),
        ("asking", candidate()),
        ("taking", taking),
        ("owner", owner()),
        ("resyncing", start(false, set())),
    ];
    let names: Vec<RoleName> = all.iter().map(|(_, replica)| replica.role()).collect();
    let candidate = RoleName::Candidate;
    assert_eq!(
        names,
        [
            RoleName::Follower,
            RoleName::Learner,
            RoleName::Deposed,
            candidate,
            candidate,
            RoleName::Owner,
            RoleName::Resyncing
        ]
    );
    all
}

/// Every message, of a lower, the same and a higher epoch, by the name of its row.
fn messages() -> Vec<(String, Message)> {
    let mut all = Vec::new();
    for (relation, epoch) in [("lower", Epoch(3)), ("same", MINE), ("higher", Epoch(9))] {
        let last = EntryId::new(Epoch(4), Lsn(2));
        let of_epoch = [
            ("Append", append(epoch)),
            ("Ack", Message::Ack { epoch, round: 1, durable: Lsn(3) }),
            ("Lacks", Message::Lacks { epoch, round: 1, have: EntryId::new(Epoch(4), Lsn(1)) }),
            ("Refusal", Message::Refusal { promised: Promised { epoch, to: id(2) } }),
            ("PromiseRequest", Message::PromiseRequest { epoch }),
            ("Promise", promise(epoch, last)),
            ("Fetch", Message::Fetch { epoch, after: last }),
            ("Entries", Message::Entries { epoch, prev: last, entries: vec![entry(4, 3)] }),
            ("Trimmed", Message::Trimmed { epoch }),
            (
                "Snapshot",
                Message::Snapshot { epoch, round: 1, at: EntryId::new(Epoch(4), Lsn(9)), set_lsn: Lsn(0), set: set() },
            ),
            ("PreVote", Message::PreVote { epoch }),
            ("PreVoteReply", Message::PreVoteReply { epoch, is_granted: true }),
        ];
        all.extend(of_epoch.map(|(name, message)| (format!("{name}, {relation}"), message)));
    }
    let promised = Promised { epoch: MINE, to: id(2) };
    all.push(("Resync".to_owned(), Message::Resync { nonce: 1 }));
    all.push((
        "ResyncAnswer".to_owned(),
        Message::ResyncAnswer { nonce: 7, promised, owner_last: Some(EntryId::new(MINE, Lsn(4))), set: set() },
    ));
    all.sort_by_key(|(name, message)| (message.kind(), !name.ends_with("lower"), !name.ends_with("same")));
    all
}

/// What a replica did, in the words of the table.
fn answer(before: &Replica, message: &Message) -> String {
    let mut replica = before.clone();
    let mut words = Vec::new();
    let mut say = |word: &str| {
        if !words.contains(&word.to_owned()) {
            words.push(word.to_owned());
        }
    };
    let out = receive(&mut replica, message.clone());
    if replica.role() == RoleName::Owner && before.role() != RoleName::Owner {
        return "lead".to_owned();
    }
    if before.role() == RoleName::Candidate && replica.role() == RoleName::Follower {
        say("follow");
    }
    for command in &out {
        match command {
            Command::GiveUp { .. } => say("give up"),
            Command::Write { write: Write::Promise(_), .. } => say("promise"),
            Command::Write { write: Write::Reset { .. }, .. } => say("reset"),
            Command::EpochTaken { .. } | Command::AppointInstead { .. } => say("report"),
            Command::Send { message, .. } => say(name(message)),
            Command::ReadLog { .. } => say("Entries"),
            Command::Broken { .. } => say("stop"),
            _ => {}
        }
    }
    if words.is_empty() && has_counted(before, &replica) {
        return "note".to_owned();
    }
    if words.is_empty() { "–".to_owned() } else { words.join(", ") }
}

/// Whether anything changed that later answers depend on, but for the highest epoch heard of.
fn has_counted(before: &Replica, after: &Replica) -> bool {
    let text = |replica: &Replica| {
        let text = format!("{replica:?}");
        let at = text.find("seen: Epoch(").expect("a field of the core");
        let end = at + text[at..].find(')').expect("an epoch");
        format!("{}{}", &text[..at], &text[end..])
    };
    text(before) != text(after)
}

fn name(message: &Message) -> &'static str {
    match message {
        Message::Append { .. } => "Append",
        Message::Ack { .. } => "Ack",
        Message::Lacks { .. } => "Lacks",
        Message::Refusal { .. } => "Refusal",
        Message::PromiseRequest { .. } => "PromiseRequest",
        Message::Promise { .. } => "Promise",
        Message::Fetch { .. } => "Fetch",
        Message::Entries { .. } => "Entries",
        Message::Trimmed { .. } => "Trimmed",
        Message::Snapshot { .. } => "Snapshot",
        Message::PreVote { .. } => "PreVote",
        Message::PreVoteReply { .. } => "PreVoteReply",
        Message::Resync { .. } => "Resync",
        Message::ResyncAnswer { .. } => "ResyncAnswer",
    }
}

/// The rows of the page's table: from the name of a row to its cells. Followers, learners and deposed owners share a column.
fn documented() -> BTreeMap<String, Vec<String>> {
    let (_, table) = PAGE.split_once("| message | follower").expect("the page has the table");
    let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    rows.map(|row| {
        let cells: Vec<String> = row.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect();
        (cells[0].clone(), cells[1..].to_vec())
    })
    .collect()
}

#[test]
fn every_role_answers_every_message_as_documented() {
    let mut rows = BTreeMap::new();
    let mut text = String::new();
    for (row, message) in messages() {
        let answers: Vec<(&str, String)> =
            roles().iter().map(|(role, replica)| (*role, answer(replica, &message))).collect();
        let [follower, learner, deposed, others @ ..] = &answers[..] else { panic!("seven columns") };
        assert!(follower.1 == learner.1 && learner.1 == deposed.1, "{row}: one column for three roles: {answers:?}");
        let cells: Vec<String> = [follower].into_iter().chain(others).map(|(_, cell)| cell.clone()).collect();
        text.push_str(&format!("| {row} | {} |\n", cells.join(" | ")));
        rows.insert(row, cells);
    }
    assert_eq!(documented(), rows, "the table would be:\n{text}");
}
