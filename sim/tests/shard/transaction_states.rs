//! The tables of states in `docs/internals/transactions.md`, as the shard really behaves: each state of a participant
//! and of a coordinator, and in each whatever can be heard there.
//!
//! A message that is added does not compile before it has a word in [`messages`]. A test fails before it has a row in a
//! table.

mod coordinator;
mod participant;

use bytes::Bytes;
use millrace_base::{EntityKey, Error, Name, TransactionId, UnixMillis};
use millrace_func::NestedCall;
use millrace_shard::{Begin, FromParticipation, PeerBody, PeerCall, PeerMessage, ToCoordinator, ToParticipation};

use crate::*;

const COORDINATOR: ShardId = ShardId(0);
const PARTICIPANT: ShardId = ShardId(1);

/// A restart loses what is not durable, or finds everything that was written.
const RESTARTS: [&str; 2] = ["restart", "restart, nothing lost"];

fn add() -> Script {
    s().add("n", 1)
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Hears {
    Participation,
    Coordinator,
}

/// Names every message, and who hears it. There is no arm for the rest, and no flag goes unnamed.
macro_rules! messages {
    ($($hears:ident $word:literal: $message:pat,)*) => {
        fn word(body: &PeerBody) -> &'static str {
            match body {
                $($message => $word,)*
                PeerBody::AwaitResult(_) | PeerBody::AwaitedResult(_) => "about no transaction",
            }
        }

        const MESSAGES: &[(Hears, &str)] = &[$((Hears::$hears, $word)),*];
    };
}

messages! {
    Participation "Reserve": PeerBody::ToParticipation(_, ToParticipation::Reserve { begin: _, entity: _, is_exclusive: _ }),
    Participation "Call": PeerBody::ToParticipation(_, ToParticipation::Call(_, _)),
    Participation "Result": PeerBody::ToParticipation(_, ToParticipation::Result(_, _)),
    Participation "TakeBack": PeerBody::ToParticipation(_, ToParticipation::TakeBack(_)),
    Participation "TakenBack": PeerBody::ToParticipation(_, ToParticipation::TakenBack),
    Participation "Prepare": PeerBody::ToParticipation(_, ToParticipation::Prepare { participation_id: _, hold_ms: _, is_delegated: false, is_query: false }),
    Participation "Prepare (query)": PeerBody::ToParticipation(_, ToParticipation::Prepare { participation_id: _, hold_ms: _, is_delegated: false, is_query: true }),
    Participation "Prepare (alone)": PeerBody::ToParticipation(_, ToParticipation::Prepare { participation_id: _, hold_ms: _, is_delegated: true, is_query: _ }),
    Participation "Commit": PeerBody::Commit,
    Participation "Abort?": PeerBody::Abort { is_answered: true, heard: _ },
    Participation "Abort": PeerBody::Abort { is_answered: false, heard: _ },
    Participation "Forget": PeerBody::Forget(_),
    Participation "Recall": PeerBody::Recall,
    Participation "Heard": PeerBody::Heard,
    Coordinator "Reserved": PeerBody::ToCoordinator(_, FromParticipation { participation_id: _, incarnation: _, message: ToCoordinator::Reserved }),
    Coordinator "Call": PeerBody::ToCoordinator(_, FromParticipation { participation_id: _, incarnation: _, message: ToCoordinator::Call(_) }),
    Coordinator "Lingers": PeerBody::ToCoordinator(_, FromParticipation { participation_id: _, incarnation: _, message: ToCoordinator::Lingers(_) }),
    Coordinator "Over": PeerBody::ToCoordinator(_, FromParticipation { participation_id: _, incarnation: _, message: ToCoordinator::Over(_) }),
    Coordinator "Result": PeerBody::ToCoordinator(_, FromParticipation { participation_id: _, incarnation: _, message: ToCoordinator::Result(_, _) }),
    Coordinator "TakeBack": PeerBody::ToCoordinator(_, FromParticipation { participation_id: _, incarnation: _, message: ToCoordinator::TakeBack(_) }),
    Coordinator "TakenBack": PeerBody::ToCoordinator(_, FromParticipation { participation_id: _, incarnation: _, message: ToCoordinator::TakenBack }),
    Coordinator "Died": PeerBody::ToCoordinator(_, FromParticipation { participation_id: _, incarnation: _, message: ToCoordinator::Died { entity: _, is_exclusive: _ } }),
    Coordinator "Failed": PeerBody::ToCoordinator(_, FromParticipation { participation_id: _, incarnation: _, message: ToCoordinator::Failed(_) }),
    Coordinator "Prepared": PeerBody::ToCoordinator(_, FromParticipation { participation_id: _, incarnation: _, message: ToCoordinator::Prepared }),
    Coordinator "ReadOnly": PeerBody::ToCoordinator(_, FromParticipation { participation_id: _, incarnation: _, message: ToCoordinator::ReadOnly { has_let_go: false, hold_ms: _ } }),
    Coordinator "ReadOnly (let go)": PeerBody::ToCoordinator(_, FromParticipation { participation_id: _, incarnation: _, message: ToCoordinator::ReadOnly { has_let_go: true, hold_ms: _ } }),
    Coordinator "Committed": PeerBody::ToCoordinator(_, FromParticipation { participation_id: _, incarnation: _, message: ToCoordinator::Committed }),
    Coordinator "Spent": PeerBody::ToCoordinator(_, FromParticipation { participation_id: _, incarnation: _, message: ToCoordinator::Spent(_) }),
    Coordinator "CommittedAlone": PeerBody::CommittedAlone,
    Coordinator "Ended": PeerBody::Ended,
    Coordinator "Inquire": PeerBody::Inquire,
    Coordinator "Lost": PeerBody::Lost(_),
}

/// What one shard says in these messages, in few words.
fn said(messages: &[PeerMessage]) -> String {
    messages.iter().map(|message| word(&message.body)).collect::<Vec<_>>().join(", ")
}

fn has_said(told: &[PeerMessage], wanted: &str) -> bool {
    told.iter().any(|message| word(&message.body) == wanted)
}

/// What is said at once, and what when everything that is written is durable.
fn tells(at_once: &[PeerMessage], later: &[PeerMessage]) -> String {
    let at_once = if at_once.is_empty() { String::new() } else { format!(": {}", said(at_once)) };
    let later = if later.is_empty() { String::new() } else { format!(" … {}", said(later)) };
    at_once + &later
}

fn take_said(rig: &mut Rig, by: ShardId, is_durable: bool) -> Vec<PeerMessage> {
    if is_durable {
        rig.make_durable();
    }
    let taken = std::mem::take(&mut rig.peers).into_iter().map(|(_, message)| message);
    taken.filter(|message| message.from == by).collect()
}

fn begin(rig: &Rig) -> Begin {
    let program = rig.core.catalog.service(Some(millrace_sim::rig::APP), "note").expect("known").0;
    Begin { program, time: rig.core.now, age: (UnixMillis(0).0, 9), seed: 1 }
}

fn call_of(rig: &Rig, number: u64, handler: &str, key: &str, script: &Script) -> PeerCall {
    let (program, service) = rig.core.catalog.service(Some(millrace_sim::rig::APP), "note").expect("known");
    let (handler, _) = rig.core.catalog.handler(program, service, handler).expect("known");
    let input = Bytes::from(script.json());
    PeerCall {
        number,
        depth: 1,
        call: NestedCall { handler, key: key.as_bytes().to_vec(), input },
        once: None,
        callers: None,
    }
}

fn entity_of(key: &str) -> EntityKey {
    let name = |text: &str| Name::new(text).expect("a name");
    EntityKey::new(&name(millrace_sim::rig::APP), &name("note"), key.as_bytes())
}

fn restart(rig: &mut Rig, input: &str) {
    rig.crash_keeping(|_| input == "restart, nothing lost");
}

fn rows(states: &[&str], inputs: &[&str], cell: impl Fn(&str, &str) -> String) -> Vec<String> {
    let row = |input: &&str| {
        let cells: Vec<String> = states.iter().map(|state| cell(state, input)).collect();
        format!("| {input} | {} |", cells.join(" | "))
    };
    let head = format!("| heard | {} |", states.join(" | "));
    std::iter::once(head).chain(inputs.iter().map(row)).collect()
}

fn assert_documented(rows: &[String]) {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/internals/transactions.md");
    let document = std::fs::read_to_string(path).expect("the document is there");
    let lines: Vec<&str> = document.lines().collect();
    let begin = lines.iter().position(|line| *line == rows[0]);
    let found = begin.map(|begin| {
        let table = lines[begin + 2..].iter().take_while(|line| line.starts_with('|'));
        std::iter::once(lines[begin]).chain(table.copied()).collect::<Vec<&str>>()
    });
    assert!(
        found.as_deref() == Some(&rows.iter().map(String::as_str).collect::<Vec<_>>()[..]),
        "the document has another table than\n{}",
        rows.join("\n")
    );
}

#[test]
fn every_message_has_a_row_in_the_table_of_who_hears_it() {
    for (hears, word) in MESSAGES {
        let inputs = match hears {
            Hears::Participation => &participant::INPUTS[..],
            Hears::Coordinator => &coordinator::INPUTS[..],
        };
        assert!(inputs.contains(word), "{word} is heard and not in the table: {hears:?}");
    }
}
