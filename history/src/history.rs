//! A history: operations in the order in which they were sent, and facts that were learnt beside them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::anomaly::{Anomaly, AnomalyKind};
use crate::operation::{Access, Found, Key, Operation, Outcome, Time, Value};

/// Names an operation of its history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OperationId(pub usize);

/// A fact beside the operations: the state at first, or the state at rest. At rest no operation is under way, and
/// none can take effect any more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fact {
    /// The values of registers at first. Registers that are not named held nothing.
    Registers(BTreeMap<Key, Value>),
    /// Every account with its balance at first.
    Accounts(BTreeMap<Key, i64>),
    /// Every existing counter with its value, at rest. All began at zero.
    Counters(BTreeMap<Key, i64>),
    /// Stocks by kind and key, and the orders placed, at rest.
    Stocks {
        /// The stocks at first.
        before: BTreeMap<String, BTreeMap<Key, i64>>,
        /// The stocks that are left.
        left: BTreeMap<String, BTreeMap<Key, i64>>,
        /// The number of orders.
        orders: i64,
    },
    /// The ids in each store, at rest.
    Stores(BTreeMap<String, Vec<Value>>),
    /// The number of elements in each store, at rest, where ids are not known.
    StoreSizes(BTreeMap<String, i64>),
    /// Something of which nothing should be left at rest: locks held, work pending.
    AtRest {
        /// The name of what is counted.
        what: String,
        /// The number found.
        count: i64,
    },
    /// The recorder was used wrongly, so the history proves nothing.
    Misuse(String),
}

/// The questions, the answers, and the facts beside them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// In order of their ids.
    pub operations: Vec<Operation>,
    /// In the order in which they were noted.
    pub facts: Vec<Fact>,
}

impl History {
    /// An empty history.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Notes that `process` is about to ask for `steps`. The operation is unknown until its outcome is noted.
    pub fn invoke(&mut self, process: u64, steps: impl IntoIterator<Item = Access>, time: Time) -> OperationId {
        let id = self.operations.len();
        self.operations.push(Operation {
            id,
            process,
            begin: time,
            end: None,
            steps: steps.into_iter().collect(),
            outcome: Outcome::Unknown("no reply yet".to_owned()),
        });
        OperationId(id)
    }

    /// Notes that an operation took effect, and that its reply held `found`, one for each step.
    pub fn ok(&mut self, id: OperationId, found: impl IntoIterator<Item = Found>, time: Time) {
        self.end(id, Outcome::Ok(found.into_iter().collect()), time);
    }

    /// Notes that an operation surely had no effect and never will.
    pub fn fail(&mut self, id: OperationId, why: impl Into<String>, time: Time) {
        self.end(id, Outcome::Fail(why.into()), time);
    }

    /// Notes that nobody will ask again, and nobody knows whether the operation took effect.
    pub fn unknown(&mut self, id: OperationId, why: impl Into<String>, time: Time) {
        self.end(id, Outcome::Unknown(why.into()), time);
    }

    /// Notes a fact.
    pub fn note(&mut self, fact: Fact) {
        self.facts.push(fact);
    }

    /// The numbers of acknowledged, failed and unknown operations. A test should look at them: a history of failures
    /// proves nothing.
    #[must_use]
    pub fn outcomes(&self) -> (usize, usize, usize) {
        let count = |is: fn(&Operation) -> bool| self.operations.iter().filter(|operation| is(operation)).count();
        (count(Operation::is_ok), count(Operation::is_failed), count(Operation::is_unknown))
    }

    fn end(&mut self, id: OperationId, outcome: Outcome, time: Time) {
        match self.operations.get_mut(id.0) {
            Some(operation) if operation.end.is_none() => {
                operation.end = Some(time);
                operation.outcome = outcome;
            }
            Some(operation) => {
                let misuse = format!("a second outcome, {outcome:?}, for {operation}");
                self.facts.push(Fact::Misuse(misuse));
            }
            None => self.facts.push(Fact::Misuse(format!("an outcome for T{}, which nobody asked for", id.0))),
        }
    }

    /// Checks that the history can be judged at all. Every checker does this first.
    ///
    /// # Errors
    /// The part of it that makes no sense.
    pub fn validate(&self) -> Result<(), Anomaly> {
        let malformed = |what: String| Err(Anomaly::new("history", AnomalyKind::Malformed, what));
        for (index, operation) in self.operations.iter().enumerate() {
            if operation.id != index {
                return malformed(format!("T{} stands at place {index}", operation.id));
            }
            if operation.end.is_some_and(|end| end < operation.begin) {
                return malformed(format!("ends before it begins: {operation}"));
            }
            let Outcome::Ok(found) = &operation.outcome else {
                continue;
            };
            let fits = operation.steps.len() == found.len()
                && operation.steps.iter().zip(found).all(|(step, found)| step.takes(found));
            if !fits || operation.end.is_none() {
                return malformed(format!("the reply does not fit what was asked: {operation}"));
            }
        }
        self.facts.iter().try_for_each(|fact| match fact {
            Fact::Misuse(what) => malformed(what.clone()),
            _ => Ok(()),
        })
    }
}
