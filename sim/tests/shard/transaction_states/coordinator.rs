//! A coordinator in each of its states.

use millrace_shard::Token;

use super::*;

/// While it runs, when it ends, and when it has decided.
const STATES: [&[&str]; 3] = [
    &["running", "lingering", "taking back", "parked"],
    &["voting", "delegated", "failing"],
    &["deciding", "decided", "confirmed", "over"],
];

pub const INPUTS: [&str; 23] = [
    "Reserved",
    "Call",
    "Lingers",
    "Over",
    "Result",
    "TakeBack",
    "TakenBack",
    "Died",
    "Failed",
    "Prepared",
    "ReadOnly",
    "ReadOnly (let go)",
    "Committed",
    "Spent",
    "CommittedAlone",
    "Ended",
    "Inquire",
    "Lost",
    "two ticks",
    "time is up",
    "stop",
    RESTARTS[0],
    RESTARTS[1],
];

/// A coordinator, and what it has said so far.
struct Coordinator {
    rig: Rig,
    token: Token,
    id: TransactionId,
    number: u32,
    told: Vec<PeerMessage>,
    heard: Vec<String>,
    /// Whatever it writes is durable before anything else happens.
    is_durable: bool,
}

impl Coordinator {
    fn new(state: &str) -> Self {
        let mut rig = Rig::new(2);
        let (here, beside, there) =
            (rig.key_in(COORDINATOR.0, "a"), rig.key_in(COORDINATOR.0, "d"), rig.key_in(PARTICIPANT.0, "b"));
        let call = s().call(run("note", &there, add()));
        let script = match state {
            "delegated" => call,
            "failing" => add().join(call).abort("no"),
            "taking back" => add().try_call(run("note", &beside, call.fail("planned"))),
            _ => add().join(call),
        };
        let token = rig.run("note", &here, script);
        let id = rig.peers[0].1.transaction;
        let mut found = Self { rig, token, id, number: 0, told: Vec::new(), heard: Vec::new(), is_durable: true };
        found.listen();
        let steps: &[&str] = match state {
            "running" => &[],
            "lingering" => &["Lingers", "Result"],
            "parked" => &["Died"],
            "voting" | "failing" | "delegated" | "taking back" => &["Result"],
            "deciding" | "decided" => &["Result", "Prepared"],
            "confirmed" => &["Result", "Prepared", "Ended"],
            "over" => &["Result", "Prepared", "Ended", "two ticks"],
            _ => panic!("{state} is no state"),
        };
        for (index, step) in steps.iter().enumerate() {
            found.is_durable = !(index + 1 == steps.len() && state == "deciding");
            found.hear(step);
        }
        assert_eq!(found.state(), state);
        found
    }

    fn listen(&mut self) {
        let said = take_said(&mut self.rig, COORDINATOR, self.is_durable);
        if let Some(message) = said.last()
            && message.transaction != self.id
        {
            (self.id, self.number) = (message.transaction, 0);
        }
        self.told.extend(said);
    }

    /// The call that it has made last.
    fn called(&self) -> u64 {
        let called = self.told.iter().rev().find_map(|message| match &message.body {
            PeerBody::ToParticipation(_, ToParticipation::Call(_, call)) => Some(call.number),
            _ => None,
        });
        called.expect("it has called")
    }

    fn hear(&mut self, input: &str) {
        match input {
            "two ticks" => {
                self.rig.tick(1);
                self.rig.tick(1);
            }
            "time is up" => self.rig.tick(10_000),
            "stop" => self.rig.stop(COORDINATOR),
            "restart" | "restart, nothing lost" => restart(&mut self.rig, input),
            _ => self.hear_message(input),
        }
        self.heard.push(input.to_owned());
        self.listen();
    }

    fn hear_message(&mut self, input: &str) {
        let message = match input {
            "Reserved" => ToCoordinator::Reserved,
            "Call" => {
                let here = self.rig.key_in(COORDINATOR.0, "c");
                ToCoordinator::Call(call_of(&self.rig, 71, "run", &here, &add()))
            }
            "Lingers" => ToCoordinator::Lingers(self.called()),
            "Over" => ToCoordinator::Over(self.called()),
            "Result" => ToCoordinator::Result(self.called(), Ok(Bytes::from_static(b"1"))),
            "TakeBack" => ToCoordinator::TakeBack(72),
            "TakenBack" => ToCoordinator::TakenBack,
            "Died" => {
                let there = self.rig.key_in(PARTICIPANT.0, "b");
                ToCoordinator::Died { entity: entity_of(&there), is_exclusive: true }
            }
            "Failed" => ToCoordinator::Failed(Error::new(ErrorCode::FunctionFailed, "it failed")),
            "Prepared" => ToCoordinator::Prepared,
            "ReadOnly" => ToCoordinator::ReadOnly { has_let_go: false, hold_ms: None },
            "ReadOnly (let go)" => ToCoordinator::ReadOnly { has_let_go: true, hold_ms: None },
            "Committed" => ToCoordinator::Committed,
            "Spent" => ToCoordinator::Spent(1),
            _ => return self.tell(input, unnumbered(input)),
        };
        self.number += 1;
        self.tell(
            input,
            PeerBody::ToCoordinator(self.number, FromParticipation { participation_id: 5, incarnation: 1, message }),
        );
    }

    fn tell(&mut self, input: &str, body: PeerBody) {
        assert_eq!(word(&body), input);
        self.rig.peer(COORDINATOR, PeerMessage { from: PARTICIPANT, transaction: self.id, body });
    }

    fn state(&mut self) -> &'static str {
        let rows = self.rig.bookkeeping_rows("decision");
        let shard = &self.rig.core.shards[&COORDINATOR];
        let has_said = |word: &str| has_said(&self.told, word);
        let has_heard = |input: &str| self.heard.iter().any(|heard| heard == input);
        let last_said = self.told.iter().rev().map(|message| word(&message.body)).find(|word| *word != "Heard");
        match shard.figures().waiting {
            _ if shard.is_stopped() => "stopped",
            0 if shard.figures().unfinished > 0 && shard.figures().held_replies > 0 => "deciding",
            0 if shard.figures().unfinished > 0 => "decided",
            0 if rows > 0 => "confirmed",
            0 => "over",
            _ if last_said == Some("Reserve") => "parked",
            _ if has_said("Abort?") => "failing",
            _ if has_said("Prepare") => "voting",
            _ if has_said("Prepare (alone)") => "delegated",
            _ if has_said("TakeBack") && !has_heard("TakenBack") => "taking back",
            _ if has_heard("Lingers") && has_heard("Result") => "lingering",
            _ => "running",
        }
    }

    fn cell(state: &str, input: &str) -> String {
        let mut coordinator = Self::new(state);
        let before = coordinator.told.len();
        let was_answered = coordinator.rig.reply(coordinator.token).is_some();
        coordinator.hear(input);
        let state = coordinator.state();
        let told = coordinator.told[before..].to_vec();
        let later = take_said(&mut coordinator.rig, COORDINATOR, true);
        let answers = match coordinator.rig.reply(coordinator.token) {
            Some(Ok(_)) if !was_answered => "; answers".to_owned(),
            Some(Err(error)) if !was_answered => format!("; answers `{}`", error.code.as_str()),
            _ => String::new(),
        };
        format!("{state}{}{answers}", tells(&told, &later))
    }
}

fn unnumbered(input: &str) -> PeerBody {
    match input {
        "CommittedAlone" => PeerBody::CommittedAlone,
        "Ended" => PeerBody::Ended,
        "Inquire" => PeerBody::Inquire,
        "Lost" => PeerBody::Lost(Error::new(ErrorCode::ShardStopped, "it has stopped")),
        _ => panic!("{input} cannot be heard"),
    }
}

#[test]
fn a_coordinator_does_what_the_table_says_in_every_state_while_it_runs() {
    assert_documented(&rows(STATES[0], &INPUTS, Coordinator::cell));
}

#[test]
fn a_coordinator_does_what_the_table_says_in_every_state_when_it_ends() {
    assert_documented(&rows(STATES[1], &INPUTS, Coordinator::cell));
}

#[test]
fn a_coordinator_does_what_the_table_says_in_every_state_when_it_has_decided() {
    assert_documented(&rows(STATES[2], &INPUTS, Coordinator::cell));
}
