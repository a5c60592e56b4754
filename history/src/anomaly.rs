//! The findings of a checker, in words for a person.

use std::fmt;

use crate::operation::Operation;

/// The kinds of dependencies in a cycle, by Adya's names. Later kinds are weaker breaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CycleClass {
    /// Only writes: the writes of transactions are interleaved.
    G0,
    /// Writes and reads of writes: information flows in a circle.
    G1c,
    /// Exactly one read of a value that was overwritten: read skew.
    GSingle,
    /// Two such reads or more: write skew.
    G2,
}

/// The order that a cycle needs beside the data. Without it, the history would be serializable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Order {
    /// No further order: the data alone contradicts itself.
    Data,
    /// The order of one client's operations.
    Process,
    /// The order of operations of which one ended before the other began.
    Realtime,
}

/// The kind of a breach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnomalyKind {
    /// The history makes no sense. The test is wrong, not the server.
    Malformed,
    /// Deciding is too much work: the history is neither sound nor broken.
    Undecided,
    /// A transaction does not see its own effects, or sees a key change under it.
    Internal,
    /// A value that nobody wrote.
    Phantom,
    /// A value that only a failed transaction wrote: aborted read.
    G1a,
    /// A value that its own transaction overwrote: intermediate read.
    G1b,
    /// One element is there twice: exactly once is broken.
    DuplicateElement,
    /// Two reads that no single order of appends explains.
    IncompatibleOrder,
    /// An acknowledged append that a later read does not see.
    LostAppend,
    /// Dependencies form a circle.
    Cycle(CycleClass, Order),
    /// No order of the operations explains all replies.
    NotSerializable,
    /// Money was made or lost.
    WrongTotal,
    /// An account is below zero.
    NegativeBalance,
    /// A counter is smaller than its acknowledged increments.
    LostIncrement,
    /// A counter, stock or store shows more effects than there were operations.
    ExtraEffect,
    /// Two operations have the same reply, though each must have its own.
    RepeatedReply,
    /// A reply outside of the possible values.
    ImpossibleReply,
    /// Keys are missing that should be there, or the reverse.
    WrongKeys,
    /// Stores differ that should hold the same: a transaction took effect in part.
    Unequal,
    /// An acknowledged effect is missing.
    LostEffect,
    /// A refusal without its reason.
    WrongRefusal,
    /// Locks or work left at rest.
    LeftAtRest,
}

impl AnomalyKind {
    /// The kind's name, as in the literature where it has one.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Malformed => "malformed history",
            Self::Undecided => "undecided",
            Self::Internal => "internal inconsistency",
            Self::Phantom => "phantom value",
            Self::G1a => "G1a (aborted read)",
            Self::G1b => "G1b (intermediate read)",
            Self::DuplicateElement => "duplicate element",
            Self::IncompatibleOrder => "incompatible order",
            Self::LostAppend => "lost append",
            Self::Cycle(class, order) => cycle_name(class, order),
            Self::NotSerializable => "not strictly serializable",
            Self::WrongTotal => "wrong total",
            Self::NegativeBalance => "negative balance",
            Self::LostIncrement => "lost increment",
            Self::ExtraEffect => "extra effect",
            Self::RepeatedReply => "repeated reply",
            Self::ImpossibleReply => "impossible reply",
            Self::WrongKeys => "wrong keys",
            Self::Unequal => "unequal stores",
            Self::LostEffect => "lost effect",
            Self::WrongRefusal => "wrong refusal",
            Self::LeftAtRest => "left at rest",
        }
    }
}

fn cycle_name(class: CycleClass, order: Order) -> &'static str {
    match (class, order) {
        (CycleClass::G0, Order::Data) => "G0",
        (CycleClass::G0, Order::Process) => "G0-process",
        (CycleClass::G0, Order::Realtime) => "G0-realtime",
        (CycleClass::G1c, Order::Data) => "G1c",
        (CycleClass::G1c, Order::Process) => "G1c-process",
        (CycleClass::G1c, Order::Realtime) => "G1c-realtime",
        (CycleClass::GSingle, Order::Data) => "G-single",
        (CycleClass::GSingle, Order::Process) => "G-single-process",
        (CycleClass::GSingle, Order::Realtime) => "G-single-realtime",
        (CycleClass::G2, Order::Data) => "G2",
        (CycleClass::G2, Order::Process) => "G2-process",
        (CycleClass::G2, Order::Realtime) => "G2-realtime",
    }
}

/// One breach, and the operations that prove it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Anomaly {
    /// The checker that found it.
    pub checker: &'static str,
    /// The kind of the breach.
    pub kind: AnomalyKind,
    /// What is wrong, in a sentence or a few lines.
    pub what: String,
    /// The operations involved, in the order of the explanation.
    pub operations: Vec<Operation>,
}

impl Anomaly {
    pub(crate) fn new(checker: &'static str, kind: AnomalyKind, what: impl Into<String>) -> Self {
        Self { checker, kind, what: what.into(), operations: Vec::new() }
    }

    /// The same breach, with operations that prove it.
    pub(crate) fn with<'a>(mut self, operations: impl IntoIterator<Item = &'a Operation>) -> Self {
        self.operations.extend(operations.into_iter().cloned());
        self
    }
}

impl fmt::Display for Anomaly {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}: {}", self.checker, self.kind.name(), self.what)?;
        self.operations.iter().try_for_each(|operation| write!(formatter, "\n  {operation}"))
    }
}

impl std::error::Error for Anomaly {}
