//! A bank. Transfers make and lose no money, nobody goes below zero, and the readings fit one strict serial order.
//!
//! Totals and signs are checked exactly. A search finds the order (see `search`). Every acknowledged transfer happens
//! once within its time. An unknown transfer happens once or never. Each reading of balances fits the state at its
//! place. If the work runs out, the answer is [`AnomalyKind::Undecided`], never a pass.

use std::collections::BTreeMap;

use crate::anomaly::{Anomaly, AnomalyKind};
use crate::bank_plan::{Open, choose};
use crate::history::{Fact, History};
use crate::operation::{Access, Found, Key, Operation};
use crate::search::{Answer, DEFAULT_WORK, Interval, Model, explain_by_order};

const CHECKER: &str = "bank";

/// Checks the accounts of a history.
///
/// # Errors
/// The first anomaly found, [`AnomalyKind::Undecided`] included.
pub fn check(history: &History) -> Result<(), Anomaly> {
    check_within(history, DEFAULT_WORK)
}

/// Like [`check`], with a bound on the steps of the search.
///
/// # Errors
/// The first anomaly found, [`AnomalyKind::Undecided`] included.
pub fn check_within(history: &History, work: usize) -> Result<(), Anomaly> {
    history.validate()?;
    let accounts = history.facts.iter().find_map(|fact| match fact {
        Fact::Accounts(accounts) => Some(accounts),
        _ => None,
    });
    let Some(accounts) = accounts else {
        return Err(Anomaly::new(CHECKER, AnomalyKind::Malformed, "what accounts held at first is not noted"));
    };
    for operation in &history.operations {
        for (step, found) in operation.results() {
            check_balances(accounts, operation, step, found)?;
        }
    }
    let numbers: BTreeMap<&str, usize> = accounts.keys().enumerate().map(|(at, key)| (key.as_str(), at)).collect();
    let mut entries = Vec::new();
    for operation in &history.operations {
        let entry = compile(&numbers, operation)?;
        let is_unknown_read = operation.is_unknown() && entry.acts.iter().all(|act| !matches!(act, Act::Move { .. }));
        if !operation.is_failed() && !entry.acts.is_empty() && !is_unknown_read {
            entries.push(entry);
        }
    }
    check_order(history, accounts, entries, work)
}

/// No balance that was read is below zero. All of them together are what they were at first.
fn check_balances(
    accounts: &BTreeMap<Key, i64>,
    operation: &Operation,
    step: &Access,
    found: Option<&Found>,
) -> Result<(), Anomaly> {
    let anomaly = |kind, what: String| Err(Anomaly::new(CHECKER, kind, what).with([operation]));
    let balances = match (step, found) {
        (Access::Balance(key), Some(Found::Number(balance))) if *balance < 0 => {
            return anomaly(AnomalyKind::NegativeBalance, format!("account {key} was read as {balance}"));
        }
        (Access::Balances | Access::Transfer { .. }, Some(Found::Balances(balances))) => balances,
        _ => return Ok(()),
    };
    if let Some((key, balance)) = balances.iter().find(|(_, balance)| **balance < 0) {
        return anomaly(AnomalyKind::NegativeBalance, format!("account {key} was read as {balance}"));
    }
    if let Some(key) = balances.keys().find(|key| !accounts.contains_key(*key)) {
        return anomaly(AnomalyKind::WrongKeys, format!("there is no account {key}"));
    }
    if matches!(step, Access::Transfer { .. }) {
        return Ok(());
    }
    if let Some(key) = accounts.keys().find(|key| !balances.contains_key(*key)) {
        return anomaly(AnomalyKind::WrongKeys, format!("account {key} is missing"));
    }
    let sum = |balances: &BTreeMap<Key, i64>| balances.values().map(|&balance| i128::from(balance)).sum::<i128>();
    let (total, read) = (sum(accounts), sum(balances));
    if read != total {
        return anomaly(AnomalyKind::WrongTotal, format!("all accounts sum up to {read}, there is {total}"));
    }
    Ok(())
}

/// One step in the form of the search, with accounts by number.
enum Act {
    Move { from: usize, to: usize, amount: i64 },
    See(Vec<(usize, i64)>),
}

struct Entry {
    id: usize,
    acts: Vec<Act>,
}

fn compile(numbers: &BTreeMap<&str, usize>, operation: &Operation) -> Result<Entry, Anomaly> {
    let number = |key: &str| {
        numbers.get(key).copied().ok_or_else(|| {
            Anomaly::new(CHECKER, AnomalyKind::WrongKeys, format!("there is no account {key}")).with([operation])
        })
    };
    let mut acts = Vec::new();
    for (step, found) in operation.results() {
        match step {
            Access::Transfer { from, to, amount } if *amount >= 0 => {
                acts.push(Act::Move { from: number(from)?, to: number(to)?, amount: *amount });
            }
            Access::Transfer { amount, .. } => {
                let what = format!("a transfer of {amount}");
                return Err(Anomaly::new(CHECKER, AnomalyKind::Malformed, what).with([operation]));
            }
            Access::Balance(key) => {
                let number = number(key)?;
                if let Some(Found::Number(balance)) = found {
                    acts.push(Act::See(vec![(number, *balance)]));
                }
            }
            _ => {}
        }
        if let (Access::Transfer { .. } | Access::Balances, Some(Found::Balances(balances))) = (step, found) {
            let seen: Result<Vec<(usize, i64)>, Anomaly> =
                balances.iter().map(|(key, balance)| Ok((number(key)?, *balance))).collect();
            acts.push(Act::See(seen?));
        }
    }
    Ok(Entry { id: operation.id, acts })
}

fn check_order(
    history: &History,
    accounts: &BTreeMap<Key, i64>,
    mut entries: Vec<Entry>,
    work: usize,
) -> Result<(), Anomaly> {
    entries.sort_by_key(|entry| (history.operations[entry.id].begin, entry.id));
    let interval = |entry: &Entry| {
        let operation = &history.operations[entry.id];
        Interval { begin: operation.begin, end: operation.effect_by() }
    };
    let intervals: Vec<Interval> = entries.iter().map(interval).collect();
    let names: Vec<&str> = accounts.keys().map(String::as_str).collect();
    let balances = accounts.values().copied().collect();
    let mut model = Balances { names: &names, entries: &entries, intervals: &intervals, balances, plan: Vec::new() };
    let (kind, furthest) = match explain_by_order(&mut model, &intervals, work) {
        Answer::Explained => return Ok(()),
        Answer::Impossible(furthest) => (AnomalyKind::NotSerializable, furthest),
        Answer::Undecided(furthest) => (AnomalyKind::Undecided, furthest),
    };
    let (what, operations) = furthest.explain(&history.operations, &|number| entries[number].id);
    let what = match kind {
        AnomalyKind::Undecided => format!("gave up after {work} steps: {what}"),
        _ => format!("no order of {} operations explains the replies: {what}", entries.len()),
    };
    Err(Anomaly { operations, ..Anomaly::new(CHECKER, kind, what) })
}

/// The number of choices tried for one plan. Most plans are found within a hundred.
const PLAN_BUDGET: usize = 5_000;

/// The number of unknown transfers that are considered first, the newest. A transfer that took effect mostly did so
/// soon.
const LIKELY_UNKNOWN: usize = 4;

/// The accounts in the search. The balances follow from the set of transfers done, so they need no
/// fingerprint.
struct Balances<'a> {
    names: &'a [&'a str],
    entries: &'a [Entry],
    intervals: &'a [Interval],
    balances: Vec<i64>,
    /// The transfers that should come next.
    plan: Vec<usize>,
}

impl Balances<'_> {
    fn do_act(&mut self, act: &Act) -> bool {
        match act {
            Act::Move { from, to, amount } => {
                let is_covered = self.balances[*from] >= *amount;
                if is_covered {
                    self.balances[*from] -= amount;
                    self.balances[*to] = self.balances[*to].saturating_add(*amount);
                }
                is_covered
            }
            Act::See(seen) => seen.iter().all(|(account, balance)| self.balances[*account] == *balance),
        }
    }

    fn undo_act(&mut self, act: &Act) {
        if let Act::Move { from, to, amount } = act {
            self.balances[*to] -= amount;
            self.balances[*from] += amount;
        }
    }

    fn moves(&self, entry: usize) -> impl Iterator<Item = (usize, usize, i64)> {
        self.entries[entry].acts.iter().filter_map(|act| match act {
            Act::Move { from, to, amount } => Some((*from, *to, *amount)),
            Act::See(_) => None,
        })
    }

    /// How much each account that an operation has seen must change before the operation fits.
    fn needed(&self, operation: usize) -> Vec<Option<i64>> {
        let mut needed = vec![None; self.balances.len()];
        let mut own = vec![0i64; self.balances.len()];
        for act in &self.entries[operation].acts {
            match act {
                Act::Move { from, to, amount } => {
                    own[*from] -= amount;
                    own[*to] += amount;
                }
                Act::See(seen) => {
                    for (account, balance) in seen {
                        let off = balance.saturating_sub(own[*account]).saturating_sub(self.balances[*account]);
                        needed[*account].get_or_insert(off);
                    }
                }
            }
        }
        needed
    }

    /// Makes a plan that leads to one of the readings of all accounts, the nearest first, or to the pressing
    /// operation.
    fn make_plan(&mut self, candidates: &[usize], reads: &[usize], pressing: usize) {
        let mut needs: Vec<Vec<Option<i64>>> = reads.iter().map(|&read| self.needed(read)).collect();
        needs.retain(|needed| needed.iter().all(Option::is_some));
        needs.sort_by_key(|needed| needed.iter().flatten().map(|off| off.unsigned_abs()).fold(0, u64::saturating_add));
        needs.push(self.needed(pressing));
        self.plan.retain(|operation| candidates.contains(operation));
        let mut planned = vec![0i64; self.balances.len()];
        for (from, to, amount) in self.plan.iter().flat_map(|&operation| self.moves(operation)) {
            planned[from] -= amount;
            planned[to] += amount;
        }
        let leads_to = |needed: &Vec<Option<i64>>| {
            needed.iter().zip(&planned).all(|(needed, planned)| needed.is_none_or(|needed| needed == *planned))
        };
        if !self.plan.is_empty() && needs.iter().any(leads_to) {
            return;
        }
        self.plan.clear();
        let (required, mut unknown): (Vec<usize>, Vec<usize>) = candidates
            .iter()
            .filter(|&&operation| operation != pressing && self.moves(operation).count() == 1)
            .partition(|&&operation| self.intervals[operation].end.is_some());
        let mut options = required;
        options.sort_by_key(|&operation| self.intervals[operation].end);
        let mut open = self.open(&options);
        let mut budget = PLAN_BUDGET;
        let mut chosen = needs.iter().find_map(|needed| choose(needed, &open, &mut budget));
        // Transfers that may not have happened are asked only if the rest is not enough: the newest, most likely.
        if chosen.is_none() && !unknown.is_empty() {
            unknown.reverse();
            unknown.truncate(LIKELY_UNKNOWN);
            open.extend(self.open(&unknown));
            options.extend(unknown);
            chosen = needs.iter().find_map(|needed| choose(needed, &open, &mut budget));
        }
        self.plan = chosen.unwrap_or_default().into_iter().map(|option| options[option]).collect();
    }

    fn open(&self, operations: &[usize]) -> Vec<Open> {
        let open = |&operation: &usize| {
            let is_unknown = self.intervals[operation].end.is_none();
            self.moves(operation).map(move |(from, to, amount)| Open { from, to, amount, is_unknown }).next()
        };
        operations.iter().filter_map(open).collect()
    }
}

impl Model for Balances<'_> {
    fn is_read_only(&self, operation: usize) -> bool {
        self.entries[operation].acts.iter().all(|act| matches!(act, Act::See(_)))
    }

    fn apply(&mut self, operation: usize) -> bool {
        let entries = self.entries;
        let acts = &entries[operation].acts;
        let Some(bad) = acts.iter().position(|act| !self.do_act(act)) else {
            return true;
        };
        acts[..bad].iter().rev().for_each(|act| self.undo_act(act));
        false
    }

    fn undo(&mut self, operation: usize) {
        let entries = self.entries;
        entries[operation].acts.iter().rev().for_each(|act| self.undo_act(act));
    }

    fn fingerprint(&self) -> u128 {
        0
    }

    fn narrow(&self, candidates: &mut Vec<usize>) -> bool {
        let is_unknown = |operation: usize| self.intervals[operation].end.is_none();
        let count = candidates.iter().filter(|&&operation| is_unknown(operation)).count();
        let mut unlikely = count.saturating_sub(LIKELY_UNKNOWN);
        let has_unlikely = unlikely > 0;
        candidates.retain(|&operation| {
            let is_left_out = is_unknown(operation) && unlikely > 0;
            unlikely -= usize::from(is_left_out);
            !is_left_out
        });
        has_unlikely
    }

    /// Ranks by four rules in turn: planned transfers; those that happened before those that may have; those that
    /// bring the balances nearest to the pressing operation; those that end first.
    fn prefer(&mut self, candidates: &mut [usize], reads: &[usize], pressing: usize) {
        self.make_plan(candidates, reads, pressing);
        let needed = self.needed(pressing);
        let gain = |account: usize, change: i64| {
            needed[account].map_or(0, |off: i64| off.saturating_abs() - off.saturating_sub(change).saturating_abs())
        };
        let rank = |&operation: &usize| {
            let moves = self.moves(operation).filter(|(from, to, _)| from != to);
            let gains = moves.map(|(from, to, amount)| gain(from, -amount).saturating_add(gain(to, amount)));
            let end = self.intervals[operation].end;
            let gains = gains.fold(0, i64::saturating_add);
            let is_planned = self.plan.contains(&operation);
            match end {
                Some(end) => (is_planned, true, gains, std::cmp::Reverse(end)),
                // Operations are numbered by their begins.
                None => (is_planned, false, operation as i64, std::cmp::Reverse(0)),
            }
        };
        candidates.sort_by_cached_key(rank);
    }

    /// The pressing operation is out of reach if all open transfers together cannot move some account far enough.
    fn is_hopeless(&self, candidates: &[usize], pressing: usize) -> bool {
        let needed = self.needed(pressing);
        let mut reach = vec![(0i64, 0i64); self.balances.len()];
        let others = candidates.iter().filter(|&&candidate| candidate != pressing);
        for (from, to, amount) in others.flat_map(|&candidate| self.moves(candidate)) {
            reach[from].0 = reach[from].0.saturating_sub(amount);
            reach[to].1 = reach[to].1.saturating_add(amount);
        }
        needed.iter().zip(reach).any(|(off, (least, most))| off.is_some_and(|off| !(least..=most).contains(&off)))
    }

    fn obstacle(&self, pressing: usize) -> (String, Vec<usize>) {
        let name = |account: usize| self.names.get(account).copied().unwrap_or_default();
        let needed = self.needed(pressing).into_iter().enumerate();
        let off = needed.filter_map(|(account, off)| off.filter(|off| *off != 0).map(|off| (account, off)));
        let off = off.map(|(account, off)| {
            let balance = self.balances[account];
            format!("{} holds {balance} and not {}", name(account), balance.saturating_add(off))
        });
        let off: Vec<String> = off.collect();
        if !off.is_empty() {
            return (off.join(", "), Vec::new());
        }
        let short = self.moves(pressing).find(|(from, _, amount)| self.balances[*from] < *amount);
        let why = short.map_or("what it leaves has been tried".to_owned(), |(from, _, amount)| {
            format!("{} holds {}, less than {amount}", name(from), self.balances[from])
        });
        (why, Vec::new())
    }
}
