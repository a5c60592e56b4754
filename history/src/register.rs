//! Registers: strictly serializable reads and writes, of one key or of several in a transaction.
//!
//! For one key this is linearizability, decided by search (see `search`). Keys that no transaction connects are
//! searched apart. That is exact, because strict serializability, like linearizability, is local where transactions
//! do not span. If the work runs out, the answer is [`AnomalyKind::Undecided`], never a pass.

use std::collections::HashMap;

use crate::anomaly::{Anomaly, AnomalyKind};
use crate::history::{Fact, History};
use crate::operation::{Access, Found, Operation, Value};
use crate::search::{Answer, DEFAULT_WORK, Interval, Model, explain_by_order, mix};

const CHECKER: &str = "register";

/// Checks the registers of a history.
///
/// # Errors
/// The first anomaly found, [`AnomalyKind::Undecided`] included.
pub fn check(history: &History) -> Result<(), Anomaly> {
    check_within(history, DEFAULT_WORK)
}

/// Like [`check`], with a bound on the steps of the search for each group of connected keys.
///
/// # Errors
/// The first anomaly found, [`AnomalyKind::Undecided`] included.
pub fn check_within(history: &History, work: usize) -> Result<(), Anomaly> {
    history.validate()?;
    let mut registers = Registers::default();
    registers.note_initial(history);
    let mut transactions = registers.gather(history)?;
    registers.check_sources(history, &transactions)?;
    // An unknown write that nobody read changes no reply, whether it happened or not.
    transactions.retain(|transaction| {
        transaction.is_required || transaction.writes.iter().any(|write| registers.values[write.value].reads > 0)
    });
    transactions.sort_by_key(|transaction| (history.operations[transaction.id].begin, transaction.id));
    for group in registers.groups(transactions) {
        check_group(history, &registers, &group, work)?;
    }
    Ok(())
}

/// A key and one of its values.
#[derive(Clone, Copy, PartialEq)]
struct KeyedValue {
    key: usize,
    value: usize,
}

/// The effect of an operation on registers: what it must find, and what it leaves.
struct Transaction {
    id: usize,
    reads: Vec<KeyedValue>,
    writes: Vec<KeyedValue>,
    is_required: bool,
}

/// One value of one key.
#[derive(Clone, Copy, Default)]
struct ValueUse {
    /// Acknowledged reads that found the value and did not write it themselves.
    reads: usize,
    /// Operations that leave the value, without failed ones.
    writes: usize,
    /// A failed operation that would have left the value.
    failed: Option<usize>,
}

#[derive(Default)]
struct Registers<'h> {
    keys: HashMap<&'h str, usize>,
    names: Vec<&'h str>,
    ids: HashMap<(usize, Option<&'h Value>), usize>,
    values: Vec<ValueUse>,
    shown: Vec<Option<&'h Value>>,
    /// By key, the value it began with.
    initial: Vec<usize>,
    initial_of: HashMap<&'h str, &'h Value>,
    /// By key, some key that it is connected to (union-find).
    parent: Vec<usize>,
}

impl<'h> Registers<'h> {
    fn note_initial(&mut self, history: &'h History) {
        for fact in &history.facts {
            if let Fact::Registers(values) = fact {
                self.initial_of.extend(values.iter().map(|(key, value)| (key.as_str(), value)));
            }
        }
    }

    fn key(&mut self, name: &'h str) -> usize {
        if let Some(&key) = self.keys.get(name) {
            return key;
        }
        let key = self.names.len();
        self.keys.insert(name, key);
        self.names.push(name);
        self.parent.push(key);
        let initial = self.initial_of.get(name).copied();
        let initial = self.value(key, initial);
        self.initial.push(initial);
        key
    }

    fn value(&mut self, key: usize, value: Option<&'h Value>) -> usize {
        let next = self.values.len();
        let id = *self.ids.entry((key, value)).or_insert(next);
        if id == next {
            self.values.push(ValueUse::default());
            self.shown.push(value);
        }
        id
    }

    fn root(&mut self, mut key: usize) -> usize {
        while self.parent[key] != key {
            self.parent[key] = self.parent[self.parent[key]];
            key = self.parent[key];
        }
        key
    }

    fn gather(&mut self, history: &'h History) -> Result<Vec<Transaction>, Anomaly> {
        let mut transactions = Vec::new();
        for operation in &history.operations {
            let (reads, writes) = self.accesses(operation)?;
            if operation.is_failed() {
                writes.iter().for_each(|write| self.values[write.value].failed = Some(operation.id));
                continue;
            }
            reads.iter().for_each(|read| self.values[read.value].reads += 1);
            writes.iter().for_each(|write| self.values[write.value].writes += 1);
            let mut keys = reads.iter().chain(&writes).map(|access| access.key);
            if let Some(first) = keys.next() {
                let mut connected = self.root(first);
                for key in keys {
                    let root = self.root(key);
                    self.parent[root] = connected;
                    connected = self.root(connected);
                }
            }
            if operation.is_ok() && !(reads.is_empty() && writes.is_empty()) || !writes.is_empty() {
                transactions.push(Transaction { id: operation.id, reads, writes, is_required: operation.is_ok() });
            }
        }
        Ok(transactions)
    }

    /// What an operation found of others, and what it leaves. The operation must agree with itself.
    fn accesses(&mut self, operation: &'h Operation) -> Result<(Vec<KeyedValue>, Vec<KeyedValue>), Anomaly> {
        let (mut reads, mut writes): (Vec<KeyedValue>, Vec<KeyedValue>) = (Vec::new(), Vec::new());
        for (step, found) in operation.results() {
            match (step, found) {
                (Access::Write(name, value), _) => {
                    let key = self.key(name);
                    let value = self.value(key, Some(value));
                    writes.retain(|write| write.key != key);
                    writes.push(KeyedValue { key, value });
                }
                (Access::Read(name), Some(Found::Value(value))) => {
                    let key = self.key(name);
                    let read = KeyedValue { key, value: self.value(key, value.as_ref()) };
                    let mut known = writes.iter().chain(&reads);
                    match known.find(|access| access.key == key) {
                        None => reads.push(read),
                        Some(access) if *access == read => {}
                        Some(access) => {
                            let expected = self.shown(access.value);
                            let what = format!("{name} should still be {expected} to its own transaction");
                            return Err(Anomaly::new(CHECKER, AnomalyKind::Internal, what).with([operation]));
                        }
                    }
                }
                _ => {}
            }
        }
        Ok((reads, writes))
    }

    /// Every value that was read was there at first, or was left by an operation that did not fail.
    fn check_sources(&self, history: &History, transactions: &[Transaction]) -> Result<(), Anomaly> {
        for transaction in transactions {
            for read in &transaction.reads {
                let used = self.values[read.value];
                if used.writes > 0 || read.value == self.initial[read.key] {
                    continue;
                }
                let reader = &history.operations[transaction.id];
                let (name, value) = (self.names[read.key], self.shown(read.value));
                return Err(match used.failed {
                    Some(writer) => {
                        let what = format!("a failed transaction's {value} is read in {name}");
                        Anomaly::new(CHECKER, AnomalyKind::G1a, what).with([&history.operations[writer], reader])
                    }
                    None => {
                        let what = format!("no transaction left {value} in {name}");
                        Anomaly::new(CHECKER, AnomalyKind::Phantom, what).with([reader])
                    }
                });
            }
        }
        Ok(())
    }

    fn shown(&self, value: usize) -> String {
        self.shown[value].map_or("nothing".to_owned(), Value::to_string)
    }

    /// Transactions by connected keys, in the order in which the groups were first touched.
    fn groups(&mut self, transactions: Vec<Transaction>) -> Vec<Vec<Transaction>> {
        let mut groups: Vec<Vec<Transaction>> = Vec::new();
        let mut group_of: HashMap<usize, usize> = HashMap::new();
        for transaction in transactions {
            let Some(first) = transaction.reads.iter().chain(&transaction.writes).next() else {
                continue;
            };
            let root = self.root(first.key);
            let group = *group_of.entry(root).or_insert(groups.len());
            if group == groups.len() {
                groups.push(Vec::new());
            }
            groups[group].push(transaction);
        }
        groups
    }
}

fn check_group(
    history: &History,
    registers: &Registers<'_>,
    group: &[Transaction],
    work: usize,
) -> Result<(), Anomaly> {
    let interval = |transaction: &Transaction| {
        let operation = &history.operations[transaction.id];
        Interval { begin: operation.begin, end: operation.effect_by() }
    };
    let intervals: Vec<Interval> = group.iter().map(interval).collect();
    let mut keys: Vec<usize> =
        group.iter().flat_map(|it| it.reads.iter().chain(&it.writes)).map(|access| access.key).collect();
    keys.sort_unstable();
    keys.dedup();
    let state: HashMap<usize, usize> = keys.iter().map(|&key| (key, registers.initial[key])).collect();
    let mut model = Cells {
        registers,
        group,
        intervals: &intervals,
        values: registers.values.clone(),
        state,
        hash: 0,
        undo: vec![],
    };
    let (kind, furthest) = match explain_by_order(&mut model, &intervals, work) {
        Answer::Explained => return Ok(()),
        Answer::Impossible(furthest) => (AnomalyKind::NotSerializable, furthest),
        Answer::Undecided(furthest) => (AnomalyKind::Undecided, furthest),
    };
    let shown: Vec<&str> = keys.iter().take(5).map(|&key| registers.names[key]).collect();
    let (what, operations) = furthest.explain(&history.operations, &|number| group[number].id);
    let what = match kind {
        AnomalyKind::Undecided => format!("{}: gave up after {work} steps: {what}", shown.join(", ")),
        _ => format!("{}: no order of {} operations explains the replies: {what}", shown.join(", "), group.len()),
    };
    Err(Anomaly { operations, ..Anomaly::new(CHECKER, kind, what) })
}

/// The registers of one group. `values` count what is still to come.
struct Cells<'a> {
    registers: &'a Registers<'a>,
    group: &'a [Transaction],
    intervals: &'a [Interval],
    values: Vec<ValueUse>,
    state: HashMap<usize, usize>,
    hash: u128,
    /// The value that each done write replaced.
    undo: Vec<usize>,
}

impl Cells<'_> {
    /// Counts a transaction as done or, if `is_back`, as still to come.
    fn count(&mut self, transaction: &Transaction, is_back: bool) {
        let change = |number: &mut usize| if is_back { *number += 1 } else { *number -= 1 };
        transaction.reads.iter().for_each(|read| change(&mut self.values[read.value].reads));
        transaction.writes.iter().for_each(|write| change(&mut self.values[write.value].writes));
    }

    /// Whether a write replaces a value that others must still read and nobody will write again.
    fn is_needed(&self, write: &KeyedValue) -> bool {
        let before = self.state.get(&write.key).copied().unwrap_or(write.value);
        let used = self.values[before];
        before != write.value && used.reads > 0 && used.writes == 0
    }

    fn set(&mut self, key: usize, value: usize) -> usize {
        let before = self.state.insert(key, value).unwrap_or(value);
        self.hash ^= mix(key as u64, before as u64 + 2) ^ mix(key as u64, value as u64 + 2);
        before
    }
}

impl Model for Cells<'_> {
    fn is_read_only(&self, operation: usize) -> bool {
        self.group[operation].writes.is_empty()
    }

    fn apply(&mut self, operation: usize) -> bool {
        let transaction = &self.group[operation];
        if transaction.reads.iter().any(|read| self.state.get(&read.key) != Some(&read.value)) {
            return false;
        }
        self.count(transaction, false);
        if transaction.writes.iter().any(|write| self.is_needed(write)) {
            self.count(transaction, true);
            return false;
        }
        for write in &transaction.writes {
            let before = self.set(write.key, write.value);
            self.undo.push(before);
        }
        true
    }

    fn undo(&mut self, operation: usize) {
        let transaction = &self.group[operation];
        for write in transaction.writes.iter().rev() {
            if let Some(before) = self.undo.pop() {
                self.set(write.key, before);
            }
        }
        self.count(transaction, true);
    }

    fn fingerprint(&self) -> u128 {
        self.hash
    }

    /// Values that nobody reads come first, because later they can only be in the way. Then comes what ends first.
    fn prefer(&mut self, candidates: &mut [usize], _reads: &[usize], _pressing: usize) {
        let rank = |&operation: &usize| {
            let is_read = self.group[operation].writes.iter().any(|write| self.values[write.value].reads > 0);
            (is_read, self.intervals[operation].end.unwrap_or(u64::MAX))
        };
        candidates.sort_by_cached_key(|operation| std::cmp::Reverse(rank(operation)));
    }

    fn obstacle(&self, pressing: usize) -> (String, Vec<usize>) {
        let transaction = &self.group[pressing];
        let named = |access: &KeyedValue| (self.registers.names[access.key], self.registers.shown(access.value));
        for read in &transaction.reads {
            let is = self.state.get(&read.key).copied().unwrap_or(read.value);
            if is != read.value {
                let (name, value) = named(read);
                return (format!("{name} is {} and not {value}", self.registers.shown(is)), Vec::new());
            }
        }
        if let Some(write) = transaction.writes.iter().find(|write| self.is_needed(write)) {
            let value = self.state.get(&write.key).copied().unwrap_or(write.value);
            let (name, shown) = named(&KeyedValue { value, ..*write });
            // The open reads of this value have been taken, so the last one is still to come.
            let reader = self.group.iter().rposition(|it| it.reads.iter().any(|read| read.value == value));
            return (format!("it ends the {name} of {shown}, which is still to be read"), reader.into_iter().collect());
        }
        ("what it leaves has been tried".to_owned(), Vec::new())
    }
}
