//! What the reads of lists say, key by key: the place of each append, and the reads that are impossible.
//!
//! A list that was read whole tells the order of its appends. The longest read of each key stands for that order.
//! Every other read must be a prefix of it.

use std::collections::HashMap;

use crate::anomaly::{Anomaly, AnomalyKind};
use crate::history::History;
use crate::operation::{Access, Found, Operation, Value};

const CHECKER: &str = "list_append";

/// One append.
pub(crate) struct Append {
    pub operation: usize,
    /// Whether its operation appends nothing more to this key.
    pub is_last: bool,
    /// Its place in the order, if a read saw it.
    pub position: Option<usize>,
}

/// One read by an acknowledged operation.
pub(crate) struct Read<'h> {
    pub operation: usize,
    pub list: &'h [Value],
    /// The number of its last elements that its own operation appended.
    pub own: usize,
}

impl Read<'_> {
    /// The number of elements that it saw of others.
    pub fn seen(&self) -> usize {
        self.list.len() - self.own
    }
}

/// Everything about one list.
#[derive(Default)]
pub(crate) struct List<'h> {
    pub name: &'h str,
    /// By value. `appended` has them in the order in which they were asked.
    pub appends: HashMap<&'h Value, Append>,
    pub appended: Vec<&'h Value>,
    pub reads: Vec<Read<'h>>,
    /// The operation behind each position of the longest read.
    pub order: Vec<usize>,
    longest: Option<usize>,
}

/// All lists, in the order in which they were first named.
pub(crate) struct Lists<'h> {
    pub lists: Vec<List<'h>>,
    history: &'h History,
}

/// What one operation has done to one list so far.
#[derive(Default)]
struct Progress<'h> {
    own: Vec<&'h Value>,
    /// The appends of others, once the operation has read.
    seen: Option<&'h [Value]>,
}

impl<'h> Lists<'h> {
    /// Collects appends and reads.
    ///
    /// # Errors
    /// An operation that does not see its own appends or sees a list change, or a value that is appended twice.
    pub fn gather(history: &'h History) -> Result<Self, Anomaly> {
        let mut names: HashMap<&'h str, usize> = HashMap::new();
        let mut lists = Self { lists: Vec::new(), history };
        for operation in &history.operations {
            let mut progress: HashMap<usize, Progress<'h>> = HashMap::new();
            for (step, found) in operation.results() {
                let (Access::Append(name, _) | Access::ReadList(name)) = step else {
                    continue;
                };
                let key = *names.entry(name).or_insert_with(|| {
                    lists.lists.push(List { name, ..List::default() });
                    lists.lists.len() - 1
                });
                let progress = progress.entry(key).or_default();
                match (step, found) {
                    (Access::Append(_, value), _) => lists.append(key, operation, value, progress)?,
                    (_, Some(Found::List(list))) => lists.read(key, operation, list, progress)?,
                    _ => {}
                }
            }
        }
        Ok(lists)
    }

    fn append(
        &mut self,
        key: usize,
        operation: &'h Operation,
        value: &'h Value,
        progress: &mut Progress<'h>,
    ) -> Result<(), Anomaly> {
        let list = &mut self.lists[key];
        if let Some(before) = progress.own.last().and_then(|before| list.appends.get_mut(before)) {
            before.is_last = false;
        }
        let append = Append { operation: operation.id, is_last: true, position: None };
        if let Some(other) = list.appends.insert(value, append) {
            let what =
                format!("{value} is appended to {} by two operations: reads of it cannot be told apart", list.name);
            let operations = [&self.history.operations[other.operation], operation];
            return Err(Anomaly::new(CHECKER, AnomalyKind::Malformed, what).with(operations));
        }
        list.appended.push(value);
        progress.own.push(value);
        Ok(())
    }

    fn read(
        &mut self,
        key: usize,
        operation: &'h Operation,
        found: &'h [Value],
        progress: &mut Progress<'h>,
    ) -> Result<(), Anomaly> {
        let list = &mut self.lists[key];
        let own = progress.own.len();
        let ends_with_own = found.len() >= own && found[found.len() - own..].iter().eq(progress.own.iter().copied());
        if !ends_with_own {
            let what = format!("a read of {} does not end with what its own transaction appended before", list.name);
            return Err(Anomaly::new(CHECKER, AnomalyKind::Internal, what).with([operation]));
        }
        let seen = &found[..found.len() - own];
        if progress.seen.is_some_and(|before| before != seen) {
            let what = format!("{} changed between two reads of one transaction", list.name);
            return Err(Anomaly::new(CHECKER, AnomalyKind::Internal, what).with([operation]));
        }
        progress.seen = Some(seen);
        if list.longest.is_none_or(|longest| list.reads[longest].list.len() < found.len()) {
            list.longest = Some(list.reads.len());
        }
        list.reads.push(Read { operation: operation.id, list: found, own });
        Ok(())
    }

    /// Checks every read by itself and against the longest read. So it finds the order of each list.
    ///
    /// # Errors
    /// A read that no order of appends explains.
    pub fn find_orders(&mut self) -> Result<(), Anomaly> {
        for key in 0..self.lists.len() {
            let list = &self.lists[key];
            let Some(longest) = list.longest.map(|index| &list.reads[index]) else {
                continue;
            };
            self.check_elements(list, longest)?;
            for read in &list.reads {
                if !longest.list.starts_with(read.list) {
                    self.check_elements(list, read)?;
                    let what = format!("no one order of appends to {} explains both reads", list.name);
                    return Err(self.anomaly(
                        AnomalyKind::IncompatibleOrder,
                        what,
                        [longest.operation, read.operation],
                    ));
                }
            }
            let values = longest.list;
            let list = &mut self.lists[key];
            for (position, value) in values.iter().enumerate() {
                if let Some(append) = list.appends.get_mut(value) {
                    append.position = Some(position);
                    list.order.push(append.operation);
                }
            }
            self.check_own_order(&self.lists[key])?;
            self.check_intermediate(&self.lists[key])?;
        }
        Ok(())
    }

    /// Each element was appended by an operation that did not fail, and is there once.
    fn check_elements(&self, list: &List<'_>, read: &Read<'_>) -> Result<(), Anomaly> {
        let mut places: HashMap<&Value, usize> = HashMap::new();
        for (place, value) in read.list.iter().enumerate() {
            let Some(append) = list.appends.get(value) else {
                let what = format!("nobody appended {value} to {}", list.name);
                return Err(self.anomaly(AnomalyKind::Phantom, what, [read.operation]));
            };
            if let Some(first) = places.insert(value, place) {
                let what = format!("{value} is in {} twice, at {first} and {place}, and was appended once", list.name);
                return Err(self.anomaly(AnomalyKind::DuplicateElement, what, [append.operation, read.operation]));
            }
            if self.history.operations[append.operation].is_failed() {
                let what = format!("a failed transaction's {value} is read in {}", list.name);
                return Err(self.anomaly(AnomalyKind::G1a, what, [append.operation, read.operation]));
            }
        }
        Ok(())
    }

    /// The appends of one operation stand in the order in which the operation made them, and after what it read
    /// before.
    fn check_own_order(&self, list: &List<'_>) -> Result<(), Anomaly> {
        let mut last: HashMap<usize, usize> = HashMap::new();
        for read in list.reads.iter().filter(|read| read.own == 0) {
            last.insert(read.operation, read.list.len());
        }
        for value in &list.appended {
            let Some((append, position)) = list.appends.get(value).and_then(|it| Some((it, it.position?))) else {
                continue;
            };
            let least = last.entry(append.operation).or_default();
            if position < *least {
                let what =
                    format!("{value} stands in {} before what its own transaction saw or appended first", list.name);
                let witness = list.longest.map(|index| list.reads[index].operation);
                let operations = [Some(append.operation), witness];
                return Err(self.anomaly(AnomalyKind::IncompatibleOrder, what, operations.into_iter().flatten()));
            }
            *least = position + 1;
        }
        Ok(())
    }

    /// No read ends in the middle of another transaction's appends.
    fn check_intermediate(&self, list: &List<'_>) -> Result<(), Anomaly> {
        for read in &list.reads {
            let Some(value) = read.seen().checked_sub(1).map(|last| &read.list[last]) else {
                continue;
            };
            let Some(append) = list.appends.get(value) else {
                continue;
            };
            if !append.is_last && append.operation != read.operation {
                let what =
                    format!("a read of {} sees {value}, but not what the same transaction appended next", list.name);
                return Err(self.anomaly(AnomalyKind::G1b, what, [append.operation, read.operation]));
            }
        }
        Ok(())
    }

    /// Every acknowledged append is in every read that began after its reply.
    ///
    /// The check looks only at appends that no read saw. A read that is merely too short makes a cycle with those
    /// that saw more.
    ///
    /// # Errors
    /// The append and the read.
    pub fn check_lost(&self) -> Result<(), Anomaly> {
        let begin = |read: &&Read<'_>| self.history.operations[read.operation].begin;
        for list in &self.lists {
            let Some(latest) = list.reads.iter().max_by_key(begin) else {
                continue;
            };
            for value in &list.appended {
                let Some(append) = list.appends.get(value).filter(|append| append.position.is_none()) else {
                    continue;
                };
                let end = self.history.operations[append.operation].effect_by();
                if end.is_some_and(|end| end < begin(&latest)) {
                    let what = format!("acknowledged {value} is not in {}, read later", list.name);
                    return Err(self.anomaly(AnomalyKind::LostAppend, what, [append.operation, latest.operation]));
                }
            }
        }
        Ok(())
    }

    fn anomaly(&self, kind: AnomalyKind, what: String, operations: impl IntoIterator<Item = usize>) -> Anomaly {
        let operations = operations.into_iter().map(|id| &self.history.operations[id]);
        Anomaly::new(CHECKER, kind, what).with(operations)
    }
}
