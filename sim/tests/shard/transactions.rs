//! Whatever transactions over several shards do, they end within their limits and leave nothing held; and
//! each step of them is what the document's tables say. That they happen as a whole or not at all is in `cuts`.

use millrace_func::Limits;
use millrace_shard::Token;

use crate::*;

fn add() -> Script {
    s().add("n", 1)
}

/// Keys in three shards.
fn keys(rig: &Rig) -> [String; 3] {
    [0, 1, 2].map(|shard| rig.key_in(shard, "k"))
}

#[test]
fn work_that_never_ends_is_given_up_in_every_shard_when_time_is_up() {
    for kind in 0..5 {
        let mut rig = Rig::new(3);
        let [a, b, c] = keys(&rig);
        let never = match kind {
            0 => s().call(run("note", &b, add().hash())),
            1 => add().call(run("note", &b, add())).hash(),
            2 => add().call(run("note", &b, add().call(run("note", &c, add().hash())))),
            // Its call has ended, and its work has not: nobody but the other shard could commit it.
            3 => s().call(run("note", &b, add().start_hash())),
            _ => add().call(run("note", &b, add().start_hash())).call(run("note", &c, add())),
        };
        let token = rig.run("note", &a, never);
        let behind = rig.run("note", &b, s().add("m", 1));
        let rest = |rig: &mut Rig| {
            for _ in 0..20 {
                rig.carry_peers();
                rig.make_durable();
            }
        };
        rest(&mut rig);
        assert!(rig.reply(token).is_none());
        for _ in 0..4 {
            rig.tick(5_000);
            rest(&mut rig);
        }
        assert_eq!(rig.error(token), ErrorCode::WaitLimit, "kind {kind}");
        assert!(rig.reply(behind).is_some(), "kind {kind}");
        rig.assert_at_rest();
        while !rig.offloads.is_empty() {
            rig.finish_offload();
        }
        rig.settle();
        for key in [&a, &b, &c] {
            assert_eq!(rig.field("note", key, "n"), Json::Null, "kind {kind}");
        }
        rig.assert_at_rest();
    }
}

#[test]
fn a_transaction_that_opens_too_many_entities_is_refused_and_lets_go() {
    let mut rig = Rig::new(3);
    let root = rig.key_in(0, "root");
    let calls = |from: usize| (from..from + 900).map(|index| run("note", &format!("k{index}"), s()));
    let group = |index: usize| run("note", &format!("g{index}"), s().all(calls(index * 900)));
    let token = rig.run("note", &root, (0..40).fold(s(), |script, index| script.call(group(index))));
    let begun = std::time::Instant::now();
    while rig.carry_peer() {}
    println!("refused after {:?}", begun.elapsed());
    rig.settle();
    assert_eq!(rig.error(token), ErrorCode::OperationLimit);
    rig.assert_at_rest();
}

#[test]
fn a_cycle_of_calls_over_shards_ends_at_the_depth_limit() {
    let limits = Limits { call_depth: 8, ..Limits::default() };
    let mut rig = Rig::with_limits(3, limits);
    let keys = keys(&rig);
    let cycle =
        |depth: usize| (1..depth).rev().fold(add(), |inner, index| add().call(run("note", &keys[index % 3], inner)));
    let token = rig.run("note", &keys[0], cycle(20));
    rig.settle();
    assert_eq!(rig.error(token), ErrorCode::DepthLimit);
    assert!(keys.iter().all(|key| rig.field("note", key, "n").is_null()));
    let caught = (1..8).rev().fold(s().try_call(run("note", &keys[0], cycle(9))), |inner, index| {
        add().call(run("note", &keys[index % 3], inner))
    });
    let token = rig.run("note", &keys[0], caught);
    rig.settle();
    assert!(rig.reply(token).is_some_and(Result::is_ok), "what is caught is only taken back");
    rig.assert_at_rest();
}

/// The rows of the tables of states in the document, as the shard really behaves.
mod tables {
    use bytes::Bytes;
    use millrace_base::{Error, TransactionId, UnixMillis};
    use millrace_func::NestedCall;
    use millrace_shard::{Begin, FromBranch, PeerBody, PeerCall, PeerMessage, ToBranch, ToHome};

    use super::*;

    const HOME: ShardId = ShardId(0);
    const PARTICIPANT: ShardId = ShardId(1);

    fn begin(rig: &Rig) -> Begin {
        let program = rig.core.catalog.service(Some(millrace_sim::rig::APP), "note").expect("known").0;
        Begin { program, time: rig.core.now, age: (UnixMillis(0).0, 9), seed: 1 }
    }

    fn call_of(rig: &Rig, number: u64, handler: &str, key: &str, script: &Script) -> PeerCall {
        let (program, service) = rig.core.catalog.service(Some(millrace_sim::rig::APP), "note").expect("known");
        let (handler, _) = rig.core.catalog.handler(program, service, handler).expect("known");
        let input = Bytes::from(script.json());
        PeerCall { number, depth: 1, call: NestedCall { handler, key: key.as_bytes().to_vec(), input }, once: None }
    }

    /// What one shard says in these messages, in few words.
    fn said(messages: &[PeerMessage]) -> String {
        let words: Vec<&str> = messages
            .iter()
            .map(|message| match &message.body {
                PeerBody::ToBranch(_, ToBranch::Reserve { .. }) => "Reserve",
                PeerBody::ToBranch(_, ToBranch::Call(..)) => "Call",
                PeerBody::ToBranch(_, ToBranch::Result(..)) => "Result",
                PeerBody::ToBranch(_, ToBranch::TakeBack(_)) => "TakeBack",
                PeerBody::ToBranch(_, ToBranch::TakenBack) => "TakenBack",
                PeerBody::ToBranch(_, ToBranch::Prepare { .. }) => "Prepare",
                PeerBody::ToHome(_, said) => match &said.message {
                    ToHome::Reserved => "Reserved",
                    ToHome::Call(_) => "Call",
                    ToHome::Lingers(_) => "Lingers",
                    ToHome::Over(_) => "Over",
                    ToHome::Result(..) => "Result",
                    ToHome::TakeBack(_) => "TakeBack",
                    ToHome::TakenBack => "TakenBack",
                    ToHome::Died { .. } => "Died",
                    ToHome::Failed(_) => "Failed",
                    ToHome::Prepared => "Prepared",
                    ToHome::ReadOnly { .. } => "ReadOnly",
                    ToHome::Committed => "Committed",
                },
                PeerBody::Commit => "Commit",
                PeerBody::Abort { is_answered: true } => "Abort?",
                PeerBody::Abort { is_answered: false } => "Abort",
                PeerBody::Ended => "Ended",
                PeerBody::Inquire => "Inquire",
                PeerBody::Lost(_) => "Lost",
                _ => "?",
            })
            .collect();
        words.join(", ")
    }

    fn take_said(rig: &mut Rig, by: ShardId) -> Vec<PeerMessage> {
        rig.make_durable();
        let taken = std::mem::take(&mut rig.peers).into_iter().map(|(_, message)| message);
        taken.filter(|message| message.from == by).collect()
    }

    /// A participant in one of its states, and what it has said so far.
    struct Participant {
        rig: Rig,
        key: String,
        others: usize,
        heard: u32,
        told: Vec<PeerMessage>,
    }

    impl Participant {
        const STATES: [&str; 5] = ["unknown", "queued", "running", "voted", "prepared"];
        const INPUTS: [&str; 11] = [
            "Reserve",
            "Call",
            "the first message again",
            "TakeBack",
            "Prepare",
            "Commit",
            "Abort?",
            "Abort",
            "tick",
            "stop",
            "restart",
        ];

        fn new(state: &str) -> Self {
            let rig = Rig::new(2);
            let key = rig.key_in(1, "b");
            let mut found = Self { rig, key, others: 0, heard: 0, told: Vec::new() };
            match state {
                "queued" => {
                    let key = found.key.clone();
                    found.rig.run("note", &key, s().hash());
                    found.others = 1;
                    found.hear("Reserve");
                }
                "running" => found.hear("Call"),
                "voted" => {
                    found.hear("read");
                    found.hear("Prepare");
                }
                "prepared" => {
                    found.hear("Call");
                    found.hear("Prepare");
                }
                _ => {}
            }
            assert_eq!(found.state(), state);
            found
        }

        fn hear(&mut self, input: &str) {
            let begin = begin(&self.rig);
            let life = self.told.iter().find_map(|message| match &message.body {
                PeerBody::ToHome(_, said) => Some(said.life),
                _ => None,
            });
            let numbered = |message: ToBranch, number: u32| PeerBody::ToBranch(number, message);
            let call = |handler: &str, script: Script| {
                ToBranch::Call(begin, call_of(&self.rig, 70, handler, &self.key, &script))
            };
            let next = if input == "Prepare" || input == "TakeBack" { self.heard.max(1) + 1 } else { self.heard + 1 };
            let entity = {
                let name = |text: &str| millrace_base::Name::new(text).expect("a name");
                millrace_base::EntityKey::new(&name(millrace_sim::rig::APP), &name("note"), self.key.as_bytes())
            };
            let body = match input {
                "Reserve" => numbered(ToBranch::Reserve { begin, entity, is_exclusive: true }, next),
                "Call" => numbered(call("run", add()), next),
                "read" => numbered(call("read", s().get("n")), next),
                "the first message again" => numbered(call("run", add()), 1),
                "TakeBack" => numbered(ToBranch::TakeBack(70), next),
                "Prepare" => {
                    let life = life.unwrap_or_default();
                    numbered(ToBranch::Prepare { life, is_delegated: false, is_query: false }, next)
                }
                "Commit" => PeerBody::Commit,
                "Abort?" => PeerBody::Abort { is_answered: true },
                "Abort" => PeerBody::Abort { is_answered: false },
                "tick" => {
                    self.rig.tick(1);
                    return self.listen();
                }
                "stop" => {
                    self.rig.stop(PARTICIPANT);
                    self.others = 0;
                    return self.listen();
                }
                _ => {
                    self.rig.crash();
                    self.others = 0;
                    self.told.clear();
                    return self.listen();
                }
            };
            let transaction = TransactionId { home: HOME, incarnation: 99, number: 7 };
            self.heard = next;
            self.rig.peer(PARTICIPANT, PeerMessage { from: HOME, transaction, body });
            self.listen();
        }

        fn listen(&mut self) {
            let said = take_said(&mut self.rig, PARTICIPANT);
            self.told.extend(said);
        }

        fn state(&self) -> &'static str {
            let shard = &self.rig.core.shards[&PARTICIPANT];
            let has_said = |word: &str| self.told.iter().any(|message| said(std::slice::from_ref(message)) == word);
            match shard.waiting() - self.others {
                _ if shard.is_stopped() => "stopped",
                _ if shard.unfinished() > 0 => "prepared",
                0 => "unknown",
                _ if has_said("ReadOnly") => "voted",
                _ if has_said("Result") || has_said("Reserved") => "running",
                _ => "queued",
            }
        }

        fn cell(state: &str, input: &str) -> String {
            let mut participant = Self::new(state);
            let before = participant.told.len();
            participant.hear(input);
            let told = participant.told.get(before..).unwrap_or(&participant.told);
            let told = if input == "restart" { &participant.told[..] } else { told };
            let says = if told.is_empty() { String::new() } else { format!(": {}", said(told)) };
            format!("{}{says}", participant.state())
        }
    }

    /// A home in one of its states.
    struct Home {
        rig: Rig,
        token: Token,
        id: TransactionId,
        number: u32,
        told: Vec<PeerMessage>,
    }

    impl Home {
        const STATES: [&str; 6] = ["running", "parked", "voting", "failing", "decided", "confirmed"];
        const INPUTS: [&str; 14] = [
            "Reserved",
            "Result",
            "Call",
            "TakeBack",
            "Died",
            "Failed",
            "Prepared",
            "ReadOnly",
            "Ended",
            "Inquire",
            "Lost",
            "time is up",
            "stop",
            "restart",
        ];

        fn new(state: &str) -> Self {
            let mut rig = Rig::new(2);
            let (here, there) = (rig.key_in(0, "a"), rig.key_in(1, "b"));
            let script = add().call(run("note", &there, add()));
            let script = if state == "failing" { script.abort("no") } else { script };
            let token = rig.run("note", &here, script);
            let id = rig.peers[0].1.transaction;
            let mut found = Self { rig, token, id, number: 0, told: Vec::new() };
            found.listen();
            let steps: &[&str] = match state {
                "parked" => &["Died"],
                "voting" | "failing" => &["Result"],
                "decided" => &["Result", "Prepared"],
                "confirmed" => &["Result", "Prepared", "Ended"],
                _ => &[],
            };
            for step in steps {
                found.hear(step);
            }
            assert_eq!(found.state(), state);
            found
        }

        fn listen(&mut self) {
            let said = take_said(&mut self.rig, HOME);
            if let Some(message) = said.last()
                && message.transaction != self.id
            {
                (self.id, self.number) = (message.transaction, 0);
            }
            self.told.extend(said);
        }

        fn hear(&mut self, input: &str) {
            let error = || Error::new(ErrorCode::FunctionFailed, "it failed");
            let there = self.rig.key_in(1, "b");
            let called = self.told.iter().rev().find_map(|message| match &message.body {
                PeerBody::ToBranch(_, ToBranch::Call(_, call)) => Some(call.number),
                _ => None,
            });
            let entity = {
                let name = |text: &str| millrace_base::Name::new(text).expect("a name");
                millrace_base::EntityKey::new(&name(millrace_sim::rig::APP), &name("note"), there.as_bytes())
            };
            let message = match input {
                "Reserved" => ToHome::Reserved,
                "Result" => ToHome::Result(called.expect("it has called"), Ok(Bytes::from_static(b"1"))),
                "Call" => {
                    let here = self.rig.key_in(0, "c");
                    ToHome::Call(call_of(&self.rig, 71, "run", &here, &add()))
                }
                "TakeBack" => ToHome::TakeBack(72),
                "Died" => ToHome::Died { entity, is_exclusive: true },
                "Failed" => ToHome::Failed(error()),
                "Prepared" => ToHome::Prepared,
                "ReadOnly" => ToHome::ReadOnly { has_let_go: false },
                _ => return self.hear_unnumbered(input),
            };
            self.number += 1;
            let said = FromBranch { life: 5, message };
            self.tell(PeerBody::ToHome(self.number, said));
        }

        fn hear_unnumbered(&mut self, input: &str) {
            match input {
                "Ended" => self.tell(PeerBody::Ended),
                "Inquire" => self.tell(PeerBody::Inquire),
                "Lost" => self.tell(PeerBody::Lost(Error::new(ErrorCode::ShardStopped, "it has stopped"))),
                "time is up" => {
                    self.rig.tick(10_000);
                    self.listen();
                }
                "stop" => {
                    self.rig.stop(HOME);
                    self.listen();
                }
                _ => {
                    self.rig.crash();
                    self.listen();
                }
            }
        }

        fn tell(&mut self, body: PeerBody) {
            self.rig.peer(HOME, PeerMessage { from: PARTICIPANT, transaction: self.id, body });
            self.listen();
        }

        fn state(&mut self) -> &'static str {
            let rows = self.rig.bookkeeping_rows("decision");
            let shard = &self.rig.core.shards[&HOME];
            let has_said = |word: &str| self.told.iter().any(|message| said(std::slice::from_ref(message)) == word);
            match shard.waiting() {
                _ if shard.is_stopped() => "stopped",
                0 if shard.unfinished() > 0 => "decided",
                0 if rows > 0 => "confirmed",
                0 => "over",
                _ if self.told.last().is_some_and(|last| said(std::slice::from_ref(last)) == "Reserve") => "parked",
                _ if has_said("Abort?") => "failing",
                _ if has_said("Prepare") => "voting",
                _ => "running",
            }
        }

        fn cell(state: &str, input: &str) -> String {
            let mut home = Self::new(state);
            let before = home.told.len();
            let was_answered = home.rig.reply(home.token).is_some();
            home.hear(input);
            let told = &home.told[before..];
            let says = if told.is_empty() { String::new() } else { format!(": {}", said(told)) };
            let answers = match home.rig.reply(home.token) {
                Some(Ok(_)) if !was_answered => "; answers".to_owned(),
                Some(Err(error)) if !was_answered => format!("; answers `{}`", error.code.as_str()),
                _ => String::new(),
            };
            format!("{}{says}{answers}", home.state())
        }
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
    fn a_participant_does_what_the_table_says_in_every_state() {
        assert_documented(&rows(&Participant::STATES, &Participant::INPUTS, Participant::cell));
    }

    #[test]
    fn a_home_does_what_the_table_says_in_every_state() {
        // Only what can be heard in that state: the table says so by a dash.
        let cell = |state: &str, input: &str| match (state, input) {
            ("parked" | "voting" | "failing" | "decided" | "confirmed", "Result") => "–".to_owned(),
            _ => Home::cell(state, input),
        };
        assert_documented(&rows(&Home::STATES, &Home::INPUTS, cell));
    }
}
