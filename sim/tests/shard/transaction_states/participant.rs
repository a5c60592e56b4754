//! A participant in each of its states.

use super::*;

/// While it runs, and when it ends.
const STATES: [&[&str]; 2] = [
    &["unknown", "queued", "reading", "running", "calling", "taking back"],
    &["voted", "preparing", "prepared", "committed"],
];

pub const INPUTS: [&str; 19] = [
    "Reserve",
    "Call",
    "the first message again",
    "Result",
    "TakeBack",
    "TakenBack",
    "Prepare",
    "Prepare (query)",
    "Prepare (alone)",
    "Commit",
    "Abort?",
    "Abort",
    "Forget",
    "Recall",
    "Heard",
    "tick",
    "stop",
    RESTARTS[0],
    RESTARTS[1],
];

/// The call that began it.
const FIRST_CALL: u64 = 70;

/// A participant, and what it has said so far.
struct Participant {
    rig: Rig,
    key: String,
    /// Transactions in the shard that are none of its own.
    others: usize,
    heard: u32,
    told: Vec<PeerMessage>,
    /// Whatever it writes is durable before anything else happens.
    is_durable: bool,
    is_asked_alone: bool,
    /// Whether the call that it has passed on is answered, and what it wanted taken back is.
    is_answered: bool,
    is_taken_back: bool,
}

impl Participant {
    fn new(state: &str) -> Self {
        let rig = Rig::new(2);
        let key = rig.key_in(PARTICIPANT.0, "b");
        let mut found = Self {
            rig,
            key,
            others: 0,
            heard: 0,
            told: Vec::new(),
            is_durable: true,
            is_asked_alone: false,
            is_answered: false,
            is_taken_back: false,
        };
        if state == "queued" {
            let key = found.key.clone();
            found.rig.run("note", &key, s().hash());
            found.others = 1;
        }
        let steps: &[&str] = match state {
            "unknown" => &[],
            "queued" => &["Reserve"],
            "reading" => &["Call of a query"],
            "running" => &["Call"],
            "calling" => &["Call that calls"],
            "taking back" => &["Call that takes back", "Result"],
            "voted" => &["Call of a query", "Prepare"],
            "prepared" | "preparing" => &["Call", "Prepare"],
            "committed" => &["Call", "Prepare (alone)"],
            _ => panic!("{state} is no state"),
        };
        for (index, step) in steps.iter().enumerate() {
            let is_last = index + 1 == steps.len();
            found.is_durable = !(is_last && matches!(state, "preparing" | "committed"));
            found.hear(step);
        }
        assert_eq!(found.rough_state(), if state == "reading" { "running" } else { state });
        found
    }

    fn script(&self, input: &str) -> Script {
        let elsewhere = run("note", &self.rig.key_in(COORDINATOR.0, "a"), add());
        match input {
            "Call that calls" => add().call(elsewhere),
            "Call that takes back" => {
                let beside = self.rig.key_in(PARTICIPANT.0, "d");
                add().try_call(run("note", &beside, s().call(elsewhere).fail("planned")))
            }
            "Call of a query" => s().get("n"),
            _ => add(),
        }
    }

    /// The call that it has passed on, or some other.
    fn passed_on(&self) -> u64 {
        let passed_on = self.told.iter().find_map(|message| match &message.body {
            PeerBody::ToCoordinator(_, FromParticipation { message: ToCoordinator::Call(call), .. }) => {
                Some(call.number)
            }
            _ => None,
        });
        passed_on.unwrap_or(1_000)
    }

    fn participation_id(&self) -> u64 {
        let of_one_that_runs = self.told.iter().rev().filter(|message| word(&message.body) != "Committed");
        let participation_id = of_one_that_runs.into_iter().find_map(|message| match &message.body {
            PeerBody::ToCoordinator(_, said) => Some(said.participation_id),
            _ => None,
        });
        participation_id.unwrap_or_default()
    }

    fn hear(&mut self, input: &str) {
        match input {
            "tick" => self.rig.tick(1),
            "stop" => {
                self.rig.stop(PARTICIPANT);
                self.others = 0;
            }
            "restart" | "restart, nothing lost" => {
                self.told.clear();
                self.others = 0;
                restart(&mut self.rig, input);
            }
            _ => self.hear_message(input),
        }
        let said = take_said(&mut self.rig, PARTICIPANT, self.is_durable);
        self.told.extend(said);
    }

    fn hear_message(&mut self, input: &str) {
        let begin = begin(&self.rig);
        let is_known = self.rig.core.shards[&PARTICIPANT].figures().waiting > self.others;
        let call = |handler: &str| {
            let number = FIRST_CALL + u64::from(self.heard);
            ToParticipation::Call(begin, call_of(&self.rig, number, handler, &self.key, &self.script(input)))
        };
        let prepare = |is_delegated, is_query| ToParticipation::Prepare {
            participation_id: self.participation_id(),
            is_delegated,
            hold_ms: None,
            is_query,
        };
        let message = match input {
            "Reserve" => ToParticipation::Reserve { begin, entity: entity_of(&self.key), is_exclusive: true },
            "Call" | "Call that calls" | "Call that takes back" | "the first message again" => call("run"),
            "Call of a query" => call("read"),
            "Result" => ToParticipation::Result(self.passed_on(), Ok(Bytes::from_static(b"1"))),
            "TakeBack" => ToParticipation::TakeBack(FIRST_CALL),
            "TakenBack" => ToParticipation::TakenBack,
            "Prepare" => prepare(false, false),
            "Prepare (query)" => prepare(false, true),
            "Prepare (alone)" => prepare(true, false),
            _ => return self.tell(input, self.unnumbered(input)),
        };
        // What is no beginning comes as if its beginning were still on the way.
        let is_beginning = matches!(message, ToParticipation::Reserve { .. } | ToParticipation::Call(..));
        self.is_answered |= input == "Result";
        self.is_taken_back |= input == "TakenBack";
        self.is_asked_alone |= input == "Prepare (alone)";
        let number = match input {
            "the first message again" => 1,
            _ if is_beginning => self.heard + 1,
            _ => self.heard.max(1) + 1,
        };
        self.heard = if input == "the first message again" && is_known { self.heard } else { number };
        self.tell(input, PeerBody::ToParticipation(number, message));
    }

    fn unnumbered(&self, input: &str) -> PeerBody {
        match input {
            "Commit" => PeerBody::Commit,
            "Recall" => PeerBody::Recall,
            "Heard" => PeerBody::Heard,
            "Abort?" => PeerBody::Abort { is_answered: true, heard: None },
            "Abort" => PeerBody::Abort { is_answered: false, heard: None },
            "Forget" => PeerBody::Forget(b"a result that is not kept"[..].into()),
            _ => panic!("{input} cannot be heard"),
        }
    }

    fn tell(&mut self, input: &str, body: PeerBody) {
        let is_as_named = input.starts_with(word(&body)) || input == "the first message again";
        assert!(is_as_named, "{input} is {}", word(&body));
        let transaction = TransactionId { coordinator: COORDINATOR, incarnation: 99, number: 7 };
        self.rig.peer(PARTICIPANT, PeerMessage { from: COORDINATOR, transaction, body });
    }

    /// Its state; *running* for *reading*.
    fn rough_state(&self) -> &'static str {
        let shard = &self.rig.core.shards[&PARTICIPANT];
        let has_said = |word: &str| has_said(&self.told, word);
        let holds_something_back = shard.figures().held_replies > 0;
        match shard.figures().waiting - self.others {
            _ if shard.is_stopped() => "stopped",
            _ if shard.figures().unfinished > 0 && holds_something_back => "preparing",
            _ if shard.figures().unfinished > 0 => "prepared",
            0 if self.is_asked_alone && holds_something_back => "committed",
            0 => "unknown",
            _ if has_said("ReadOnly") => "voted",
            _ if has_said("TakeBack") && !self.is_taken_back => "taking back",
            _ if has_said("Call") && !self.is_answered => "calling",
            _ if has_said("Result") || has_said("Reserved") => "running",
            _ => "queued",
        }
    }

    /// Whether it has written anything shows in its vote.
    fn would_only_read(&mut self) -> bool {
        let before = self.told.len();
        self.is_durable = true;
        self.hear("Prepare");
        match said(&self.told[before..]).as_str() {
            "ReadOnly" => true,
            "Prepared" => false,
            other => panic!("asked for its vote, it says {other}"),
        }
    }

    fn cell(state: &str, input: &str) -> String {
        let mut participant = Self::new(state);
        let before = participant.told.len();
        participant.hear(input);
        let before = if RESTARTS.contains(&input) { 0 } else { before };
        let state = participant.rough_state();
        let at_once = participant.told[before..].to_vec();
        let later = take_said(&mut participant.rig, PARTICIPANT, true);
        participant.told.extend(later.clone());
        let key = participant.key.clone();
        let is_applied = state != "stopped" && !participant.rig.field("note", &key, "n").is_null();
        let state = if state == "running" && participant.would_only_read() { "reading" } else { state };
        format!("{state}{}{}", tells(&at_once, &later), if is_applied { "; applied" } else { "" })
    }
}

#[test]
fn a_participant_does_what_the_table_says_in_every_state_while_it_runs() {
    assert_documented(&rows(STATES[0], &INPUTS, Participant::cell));
}

#[test]
fn a_participant_does_what_the_table_says_in_every_state_when_it_ends() {
    assert_documented(&rows(STATES[1], &INPUTS, Participant::cell));
}
