//! What clients ask for: counters, transfers within a bank, messages between shards, queries, workflows
//! that move money, and transactions over lists and registers (`lists`).

use std::collections::BTreeSet;

use millrace_base::{Name, ShardId, shard_of_key};
use millrace_func::Schedule;
use millrace_history::Access;

use crate::ledger::{Kind, Ledger, Operation};
use crate::lists;
use crate::random::Rng;
use crate::script::{Callee, Script};

/// An operation to issue.
pub struct Drawn {
    pub kind: Kind,
    pub script: Script,
    pub idempotency_key: Option<String>,
    pub is_route: bool,
}

const ACCOUNTS: usize = 3;

/// How far below nothing an account may be for a transfer to begin, and how much one moves at most.
const CREDIT: i64 = 100;
const MOST: i64 = 50;

/// No account is ever lower than this below nothing.
pub const FLOOR: i64 = CREDIT + MOST;

/// A tag whose keys live in `shard`.
pub fn tag(shard: u64, shard_count: u16) -> String {
    let wanted = ShardId(u16::try_from(shard).expect("small"));
    let tags = (0u32..).map(|number| format!("{{t{number}}}"));
    tags.filter(|tag| shard_of_key(tag.as_bytes(), shard_count) == wanted).take(1).collect()
}

/// A counter of a shard.
pub fn counter_in(shard: ShardId, shard_count: u16) -> String {
    format!("{}counter0", tag(u64::from(shard.0), shard_count))
}

pub fn key(rng: &mut Rng, name: &str, count: usize, shard_count: u16) -> String {
    let shard = rng.below(u64::from(shard_count));
    format!("{}{name}{}", tag(shard, shard_count), rng.index(count))
}

/// The bank whose accounts are spread over all shards.
const WIDE: &str = "wide";

fn bank(rng: &mut Rng, shard_count: u16) -> String {
    if rng.chance(1, 2) { WIDE.to_owned() } else { tag(rng.below(u64::from(shard_count)), shard_count) }
}

/// The accounts of a bank.
pub fn accounts(bank: &str, shard_count: u16) -> [String; ACCOUNTS] {
    std::array::from_fn(|number| account(bank, number, shard_count))
}

/// Queries that read everything that clients have used.
pub fn last_looks(ledger: &Ledger, shard_count: u16) -> Vec<(Kind, Script)> {
    let (mut lists, mut registers, mut banks) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for operation in &ledger.operations {
        match &operation.kind {
            Kind::Transfer { bank, .. } | Kind::Audit { bank } => drop(banks.insert(bank.clone())),
            Kind::Steps { steps, .. } => steps.iter().for_each(|step| match step {
                Access::Append(key, _) | Access::ReadList(key) => drop(lists.insert(key.clone())),
                Access::Read(key) | Access::Write(key, _) => drop(registers.insert(key.clone())),
                _ => {}
            }),
            _ => {}
        }
    }
    let [lists, registers, counters] =
        [lists, registers, counters(ledger)].map(|keys| keys.into_iter().collect::<Vec<_>>());
    let audits = banks.iter().map(|bank| audit(bank, None, shard_count));
    audits.chain([lists::look_at_all(&lists, &registers, &counters)]).collect()
}

/// The counters that clients have used.
pub fn counters(ledger: &Ledger) -> BTreeSet<String> {
    let counter = |operation: &Operation| match &operation.kind {
        Kind::Add { key } | Kind::Read { key } => Some(key.clone()),
        _ => None,
    };
    ledger.operations.iter().filter_map(counter).collect()
}

/// A query of all of them.
pub fn audit(bank: &str, slow: Option<usize>, shard_count: u16) -> (Kind, Script) {
    let look = |(number, account): (usize, String)| {
        let script = if slow == Some(number) { Script::new().hash() } else { Script::new() };
        Callee::read("account", &account, script.get("balance"))
    };
    let looks = accounts(bank, shard_count).into_iter().enumerate().map(look);
    (Kind::Audit { bank: bank.to_owned() }, Script::new().all(looks))
}

fn account(bank: &str, number: usize, shard_count: u16) -> String {
    match bank {
        WIDE => format!("{}{bank}{number}", tag(number as u64 % u64::from(shard_count), shard_count)),
        _ => format!("{bank}account{number}"),
    }
}

pub fn pause(rng: &mut Rng, script: Script) -> Script {
    if rng.chance(1, 4) { script.hash() } else { script }
}

/// A schedule of the app, its times by another way than crontab's.
pub struct Recurring {
    pub name: &'static str,
    pub cron: &'static str,
    pub period_ms: u64,
    pub key: String,
    script: Script,
}

/// The service that has schedules, and the field that counts the calls of each.
pub const SCHEDULED_SERVICE: &str = "note";
pub const FIRED: &str = "fired";

/// All schedules, each in another shard. The second one calls into the first one's.
pub fn recurring(shard_count: u16) -> [Recurring; 2] {
    let key = |shard: u64| format!("{}clock", tag(shard, shard_count));
    let count = Script::new().add(FIRED, 1);
    let beside = Callee::run(SCHEDULED_SERVICE, &key(0), Script::new().add("hours", 1));
    [
        Recurring { name: "minutely", cron: "* * * * *", period_ms: 60_000, key: key(0), script: count.clone() },
        Recurring { name: "hourly", cron: "0 * * * *", period_ms: 3_600_000, key: key(1), script: count.call(beside) },
    ]
}

/// The same as the service declares them.
pub fn schedules(shard_count: u16) -> Vec<Schedule> {
    let name = |text: &str| Name::new(text).expect("a name");
    let declared = |one: Recurring| Schedule {
        name: name(one.name),
        cron: one.cron.to_owned(),
        key: one.key.into_bytes(),
        handler: name("run"),
        input: one.script.json().into(),
    };
    recurring(shard_count).into_iter().map(declared).collect()
}

/// The next operation, number `id`.
pub fn draw(rng: &mut Rng, shard_count: u16, id: usize) -> Drawn {
    let mark = format!("op{id}");
    let (kind, script) = match rng.below(20) {
        0..=3 => {
            let key = key(rng, "counter", 2, shard_count);
            (Kind::Add { key }, count(rng, id))
        }
        4..=6 => transfer(rng, shard_count, id),
        7..=8 => {
            let (from, to) = (key(rng, "note", 3, shard_count), key(rng, "note", 3, shard_count));
            let delay_ms = if rng.chance(1, 3) { rng.below(3_000) } else { 0 };
            let receive = pause(rng, Script::new()).add(&format!("got{id}"), 1);
            let script = pause(rng, Script::new().add(&mark, 1)).send(Callee::run("note", &to, receive), delay_ms);
            (Kind::Message { from, to, delay_ms }, script.returns(id))
        }
        9 => {
            let to = key(rng, "note", 3, shard_count);
            (Kind::Send { to }, pause(rng, Script::new()).add(&format!("got{id}"), 1))
        }
        10 | 11 => saga(rng, shard_count, id),
        12..=16 => crate::lists::draw(rng, shard_count, id),
        17 => again(rng, shard_count, id),
        18 => {
            let key = key(rng, "counter", 2, shard_count);
            (Kind::Read { key }, pause(rng, Script::new()).get("n"))
        }
        _ => {
            let bank = bank(rng, shard_count);
            audit(&bank, rng.chance(1, 3).then_some(1), shard_count)
        }
    };
    let is_query = kind.is_query();
    let is_workflow = matches!(kind, Kind::Saga { .. } | Kind::Again { .. });
    let is_keyed = is_workflow || !is_query && rng.chance(2, 3);
    let is_route = !is_workflow && !matches!(kind, Kind::Send { .. }) && rng.chance(1, 5);
    Drawn { kind, script, idempotency_key: is_keyed.then(|| format!("key{id}")), is_route }
}

/// Counts one up.
pub fn count(rng: &mut Rng, id: usize) -> Script {
    let script = pause(rng, Script::new().get("n"));
    pause(rng, script.add(&format!("op{id}"), 1)).add("n", 1)
}

/// Something between two steps of a workflow.
fn interlude(rng: &mut Rng, script: Script) -> Script {
    match rng.below(9) {
        0 => script.sleep(rng.below(2_000)),
        1 => script.try_wait("go", 1 + rng.below(2_000)),
        2 => script.step("some code", 1),
        3 => script.hash(),
        4 => script.fetch("there"),
        8 => script.flaky_step("flaky code", &format!("{}", rng.below(1_000_000))),
        5 => script.race(Script::new().sleep(100).wait("go", Some(50)).fetch("there")),
        _ => script,
    }
}

/// A callee that fails now and then, for nothing that its caller did.
fn flaky(rng: &mut Rng, script: Script) -> Script {
    if rng.chance(1, 4) { script.flaky(3) } else { script }
}

fn saga(rng: &mut Rng, shard_count: u16, id: usize) -> (Kind, Script) {
    let mark = format!("op{id}");
    let [from, to, via] = ["from", "to", "via"].map(|name| key(rng, &format!("saga{name}"), 2, shard_count));
    let amount = 1 + rng.below(50) as i64;
    // The undoing looks, since the call may not have been made.
    let undo = |key: &str, by: i64| {
        let undone = Script::new().get(&mark).when(1, Script::new().add("balance", by).add(&mark, -1));
        Callee::run("account", key, undone)
    };
    let withdraw = pause(rng, Script::new()).at_least("balance", -100).add("balance", -amount).add(&mark, 1);
    let withdraw = flaky(rng, withdraw);
    let deposit = pause(rng, Script::new()).add("balance", amount).add(&mark, 1);
    let deposit = flaky(rng, deposit);
    let mut script =
        interlude(rng, Script::new()).compensate(undo(&from, amount)).call(Callee::run("account", &from, withdraw));
    script = interlude(rng, script).compensate(undo(&to, -amount));
    let side = |rng: &mut Rng, side: &str| {
        let script = pause(rng, Script::new());
        let script = flaky(rng, script);
        Callee::run("account", &via, script.add(&format!("via{id}{side}"), 1))
    };
    let (a, b) = (side(rng, "a"), side(rng, "b"));
    let deposit = match rng.below(4) {
        // The callee calls on, to another shard.
        0 => deposit.call(Callee::run("note", &key(rng, "note", 3, shard_count), Script::new().add("sagas", 1))),
        _ => deposit,
    };
    script = script.call(Callee::run("account", &to, deposit));
    let noted = |what: &str| Callee::run("account", &via, Script::new().add(&format!("{what}{id}"), 1));
    script = match rng.below(4) {
        0 => interlude(rng, script.call(a)).call(b),
        1 => script.both(Script::new().call(a).call(b)),
        // Which of them ends first decides what comes next.
        2 => {
            let second = Script::new().call(noted("second")).step("not the first", 9);
            script.race(Script::new().call(a).call(b)).when(1, second).when(0, Script::new().call(noted("first")))
        }
        _ => script.all([a, b]),
    };
    if rng.chance(1, 4) {
        let told = Callee::run("note", &key(rng, "note", 3, shard_count), Script::new().add(&format!("told{id}"), 1));
        let delay_ms = rng.below(500);
        script = script.send(told.clone(), delay_ms).send(told, delay_ms);
    }
    script = match rng.below(6) {
        0 => interlude(rng, script).abort_step("planned"),
        1 => script.call(Callee::run("account", &via, pause(rng, Script::new().add("bad", 1)).abort("planned"))),
        // One of two parallel calls fails, perhaps before the other one has taken effect.
        2 => {
            let slow = Callee::run("account", &to, pause(rng, Script::new()).add(&format!("slow{id}"), 1));
            let undo = Callee::run("account", &to, Script::new().delete(&format!("slow{id}")));
            let failing = Callee::run("account", &via, pause(rng, Script::new()).abort("planned"));
            script.compensate(undo).all([slow, failing])
        }
        _ => script,
    };
    (Kind::Saga { from, to, amount, via }, script.returns(id))
}

/// The step from which a workflow may be restarted.
pub const AGAIN_FROM: &str = "again from here";

fn again(rng: &mut Rng, shard_count: u16, id: usize) -> (Kind, Script) {
    let [from, to] = ["from", "to"].map(|name| key(rng, &format!("again{name}"), 2, shard_count));
    let noted = |rng: &mut Rng, key: &str, what: &str| {
        let script = pause(rng, Script::new());
        let script = flaky(rng, script);
        Callee::run("note", key, script.add(&format!("{what}{id}"), 1))
    };
    // Nothing after which a run would end early.
    let rest = |rng: &mut Rng, script: Script| match rng.below(8) {
        0 => script.sleep(rng.below(500)),
        1 => script.try_wait("go", 1 + rng.below(500)),
        2 => script.flaky_step("flaky code", &format!("{}", rng.below(1_000_000))),
        3 => script.hash(),
        _ => script,
    };
    let told = Callee::run("note", &to, Script::new().add(&format!("told{id}"), 1));
    let script = rest(rng, Script::new()).send(told, 0).call(noted(rng, &from, "before"));
    let script = rest(rng, script).step(AGAIN_FROM, 1);
    let script = rest(rng, script).call(noted(rng, &to, "behind"));
    let script = if rng.chance(1, 3) { rest(rng, script).abort_step("planned") } else { rest(rng, script) };
    (Kind::Again { from, to }, script.returns(id))
}

fn transfer(rng: &mut Rng, shard_count: u16, id: usize) -> (Kind, Script) {
    let mark = format!("op{id}");
    let bank = bank(rng, shard_count);
    let (here, there) = (rng.index(ACCOUNTS), rng.index(ACCOUNTS - 1));
    let other = (here + 1 + there) % ACCOUNTS;
    let (from, to) = (account(&bank, here, shard_count), account(&bank, other, shard_count));
    let third = account(&bank, ACCOUNTS - here - other, shard_count);
    let amount = 1 + rng.below(MOST as u64) as i64;
    let mut script = pause(rng, Script::new()).at_least("balance", -CREDIT).add("balance", -amount).add(&mark, 1);
    if rng.chance(1, 3) {
        let failing = pause(rng, Script::new().add(&format!("bad{id}"), 1).add("balance", 1_000)).fail("planned");
        script = script.try_call(Callee::run("account", &to, failing));
    }
    let deposit = pause(rng, Script::new()).add("balance", amount).add(&mark, 1);
    let note = Callee::run("account", &third, pause(rng, Script::new()).add(&format!("via{id}"), 1));
    let script = pause(rng, script);
    let (script, via) = match rng.below(5) {
        // Two calls meet there over others.
        4 => {
            let rest = pause(rng, Script::new()).add("balance", 1);
            let less = deposit.add("balance", -1);
            let over = key(rng, "note", 3, shard_count);
            let over = Callee::run("note", &over, Script::new().call(Callee::run("account", &to, rest)));
            let via = Script::new().add(&format!("via{id}"), 1).call(Callee::run("account", &to, less));
            (script.all([Callee::run("account", &third, via), over]), Some(third))
        }
        // The callee calls on, perhaps back to where the transaction came from.
        0 => (script.call(Callee::run("account", &to, deposit.call(note))), Some(third)),
        1 => (script.all([Callee::run("account", &to, deposit), note]), Some(third)),
        2 => (script.start(note).call(Callee::run("account", &to, deposit)), Some(third)),
        _ => (script.call(Callee::run("account", &to, deposit)), None),
    };
    // What is left tells a history where among the others it stands.
    (Kind::Transfer { bank, from, to, amount, via }, script.get("balance"))
}
