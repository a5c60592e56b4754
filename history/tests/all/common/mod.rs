//! A serial execution in memory, told with overlapping times: what the clients of a sound server see.

use std::collections::BTreeMap;

use millrace_history::{Access, Fact, Found, History, Operation, Outcome};

/// SplitMix64.
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit.max(1)
    }

    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// The operations of the execution.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Workload {
    Lists,
    Registers,
    /// Several registers in each transaction.
    RegisterTransactions,
    Bank,
    /// Transfers reply with both balances.
    BankReplies,
    Counters,
}

#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub workload: Workload,
    pub operations: usize,
    pub keys: u64,
    /// About how many operations are open at once.
    pub concurrency: u64,
    pub failed_percent: u64,
    pub unknown_percent: u64,
    /// A list or register is replaced by a new one after so many operations; 0 for never.
    pub rotate: u64,
}

#[derive(Clone, Default)]
pub struct State {
    lists: BTreeMap<String, Vec<i64>>,
    registers: BTreeMap<String, i64>,
    balances: BTreeMap<String, i64>,
    counters: BTreeMap<String, i64>,
}

/// Each operation takes effect at its own instant. The instants are this far apart.
const STRIDE: u64 = 100;

pub fn generate(plan: &Plan, seed: u64) -> History {
    let mut rng = Rng(seed);
    let mut state = State::default();
    let accounts: BTreeMap<String, i64> = (0..plan.keys.max(2)).map(|key| (format!("a{key}"), 100)).collect();
    let is_bank = matches!(plan.workload, Workload::Bank | Workload::BankReplies);
    if is_bank {
        state.balances.clone_from(&accounts);
    }
    let mut operations = Vec::new();
    for index in 0..plan.operations {
        let steps = steps(plan, &mut rng, index as u64);
        let instant = (index as u64 + 1 + plan.concurrency) * STRIDE;
        let reach = plan.concurrency * STRIDE / 2;
        let begin = instant - rng.below(reach + 1);
        let end = Some(instant + rng.below(reach + 1));
        let is_failed = rng.chance(plan.failed_percent);
        let is_unknown = !is_failed && rng.chance(plan.unknown_percent);
        let is_lost = is_failed || (is_unknown && rng.chance(50));
        let before = state.clone_if(is_lost);
        let found = run(&mut state, &steps, plan.workload == Workload::BankReplies);
        if let Some(before) = before {
            state = before;
        }
        let outcome = match found {
            // An operation that cannot be done is aborted.
            None => Outcome::Fail("refused".to_owned()),
            Some(_) if is_failed => Outcome::Fail("aborted".to_owned()),
            Some(_) if is_unknown => Outcome::Unknown("lost".to_owned()),
            Some(found) => Outcome::Ok(found),
        };
        operations.push(Operation { id: 0, process: 0, begin, end, steps, outcome });
    }
    let mut history = told(operations);
    match plan.workload {
        _ if is_bank => history.note(Fact::Accounts(accounts)),
        Workload::Counters => history.note(Fact::Counters(state.counters)),
        _ => {}
    }
    history
}

/// The operations in the order of their begins. Each is given to a client that is free.
fn told(mut operations: Vec<Operation>) -> History {
    operations.sort_by_key(|operation| operation.begin);
    let mut free_from: Vec<u64> = Vec::new();
    for (id, operation) in operations.iter_mut().enumerate() {
        operation.id = id;
        let process = free_from.iter().position(|free| *free < operation.begin).unwrap_or_else(|| {
            free_from.push(0);
            free_from.len() - 1
        });
        free_from[process] = operation.end.expect("all have one");
        operation.process = process as u64;
    }
    History { operations, facts: vec![] }
}

fn steps(plan: &Plan, rng: &mut Rng, index: u64) -> Vec<Access> {
    let generation = index.checked_div(plan.rotate).unwrap_or(0);
    let key = |rng: &mut Rng| format!("k{}g{generation}", rng.below(plan.keys));
    let value = |at: u64| (index * 10 + at + 1) as i64;
    let count = 1 + rng.below(3);
    match plan.workload {
        Workload::Lists => (0..count)
            .map(|at| if rng.chance(50) { Access::append(key(rng), value(at)) } else { Access::read_list(key(rng)) })
            .collect(),
        Workload::Registers => {
            vec![if rng.chance(40) { Access::write(key(rng), value(0)) } else { Access::read(key(rng)) }]
        }
        Workload::RegisterTransactions => (0..count)
            .map(|at| if rng.chance(40) { Access::write(key(rng), value(at)) } else { Access::read(key(rng)) })
            .collect(),
        Workload::Counters => (0..count)
            .map(|_| if rng.chance(70) { Access::increment(key(rng)) } else { Access::count(key(rng)) })
            .collect(),
        Workload::Bank | Workload::BankReplies => {
            let accounts = plan.keys.max(2);
            let from = rng.below(accounts);
            let to = (from + 1 + rng.below(accounts - 1)) % accounts;
            match rng.below(10) {
                0 => vec![Access::Balance(format!("a{from}"))],
                1 | 2 => vec![Access::Balances],
                _ => vec![Access::transfer(format!("a{from}"), format!("a{to}"), 1 + rng.below(30) as i64)],
            }
        }
    }
}

/// Does the steps. If one cannot be done, does nothing and returns `None`.
fn run(state: &mut State, steps: &[Access], has_replies: bool) -> Option<Vec<Found>> {
    let mut found = Vec::new();
    for step in steps {
        found.push(match step {
            Access::Append(key, millrace_history::Value::Number(value)) => {
                state.lists.entry(key.clone()).or_default().push(*value);
                Found::Done
            }
            Access::ReadList(key) => Found::list(state.lists.get(key).cloned().unwrap_or_default()),
            Access::Write(key, millrace_history::Value::Number(value)) => {
                state.registers.insert(key.clone(), *value);
                Found::Done
            }
            Access::Read(key) => Found::Value(state.registers.get(key).map(|value| (*value).into())),
            Access::Increment(key) => {
                let counter = state.counters.entry(key.clone()).or_default();
                *counter += 1;
                Found::Number(*counter - 1)
            }
            Access::Count(key) => Found::Number(state.counters.get(key).copied().unwrap_or(0)),
            Access::Transfer { from, to, amount } => {
                if state.balances[from] < *amount {
                    return None;
                }
                *state.balances.entry(from.clone()).or_default() -= amount;
                *state.balances.entry(to.clone()).or_default() += amount;
                let both = [from, to].map(|key| (key.as_str(), state.balances[key]));
                if has_replies { Found::balances(both) } else { Found::Done }
            }
            Access::Balance(key) => Found::Number(state.balances[key]),
            Access::Balances => Found::Balances(state.balances.clone()),
            other => unreachable!("{other} is not generated"),
        });
    }
    Some(found)
}

impl State {
    /// A copy to return to, where it is needed. Copying every time would cost more than checking.
    fn clone_if(&self, is_needed: bool) -> Option<Self> {
        is_needed.then(|| self.clone())
    }
}
