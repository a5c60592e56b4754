//! The search for one order of operations that explains all replies.
//!
//! Wing & Gong's algorithm (1993), with the memory of states already tried that Lowe (2017) adds. It takes any
//! operation that no other must precede and that the model allows, and goes on. If nothing fits, it takes the
//! operation back. Two savings keep sound histories near one pass. A read that fits is taken at once and never taken
//! back: it changes nothing, so taking it now can only help. And the model may say that a state leads nowhere.
//!
//! The problem is NP-complete, so the work is bounded. Running out of it is an answer of its own.

use std::collections::HashSet;

use crate::operation::{Operation, Time};

/// The effect of operations on a state. The caller numbers operations in order of their begins.
pub(crate) trait Model {
    /// Whether an operation changes nothing.
    fn is_read_only(&self, operation: usize) -> bool;
    /// Does an operation if it may happen in this state.
    fn apply(&mut self, operation: usize) -> bool;
    /// Takes back the last operation done.
    fn undo(&mut self, operation: usize);
    /// Tells states apart. It may leave out what the set of done operations already tells.
    fn fingerprint(&self) -> u128;
    /// Sorts the operations that may be tried next, the most promising last. `reads` are open beside them and do not
    /// fit yet. `pressing`, one or the other, must come before all that begins later.
    fn prefer(&mut self, candidates: &mut [usize], reads: &[usize], pressing: usize);
    /// Leaves out choices that are most likely wrong, and says whether it left any out. The search uses it at first
    /// only.
    fn narrow(&self, candidates: &mut Vec<usize>) -> bool {
        let _ = candidates;
        false
    }
    /// Why `pressing` cannot be done, and other operations that the reason concerns.
    fn obstacle(&self, pressing: usize) -> (String, Vec<usize>);
    /// Whether no choice among `candidates` can ever make `pressing` possible.
    fn is_hopeless(&self, candidates: &[usize], pressing: usize) -> bool {
        let _ = (candidates, pressing);
        false
    }
}

/// The time in which an operation may take effect.
pub(crate) struct Interval {
    pub begin: Time,
    /// `None` where it may take effect at any later time, or never.
    pub end: Option<Time>,
}

/// Where the search got furthest.
#[derive(Debug, Default)]
pub(crate) struct Furthest {
    pub taken: usize,
    /// The operations taken last.
    pub last: Vec<usize>,
    /// The operation that had to come next and could not: the one with the earliest end.
    pub pressing: Option<usize>,
    /// Why it could not, and operations that the reason concerns.
    pub obstacle: (String, Vec<usize>),
    /// The operations that might have come instead.
    pub candidates: Vec<usize>,
}

/// The result of a search.
#[derive(Debug)]
pub(crate) enum Answer {
    Explained,
    Impossible(Furthest),
    /// The bound on work was reached.
    Undecided(Furthest),
}

/// The number of steps that are tried before the search gives up. A sound history takes about one an operation. Each
/// costs some 16 bytes of memory and under a microsecond.
pub(crate) const DEFAULT_WORK: usize = 4_000_000;

struct Frame {
    operation: usize,
    /// The other operations that could have been tried in its place.
    rest: Vec<usize>,
}

/// How many of the last operations an explanation shows.
const SHOWN: usize = 4;

struct Search<'a, M> {
    model: &'a mut M,
    intervals: &'a [Interval],
    /// A circular list of the operations not yet taken, by begin. The last index is its head.
    next: Vec<usize>,
    previous: Vec<usize>,
    required: usize,
    all_required: usize,
    taken_set: u128,
    frames: Vec<Frame>,
    tried: HashSet<u128>,
    furthest: Furthest,
    work: usize,
    /// Whether the search leaves out what is unlikely.
    is_hasty: bool,
    /// Whether the search has left something out. Then not finding an order proves nothing.
    has_gaps: bool,
}

/// Searches an order of all operations that have an end, and any of the others. `intervals` are sorted by begin.
///
/// Searches first in haste, without what is unlikely: an order found in this way is as good as any. Only the claim
/// that there is no order needs everything.
pub(crate) fn explain_by_order<M: Model>(model: &mut M, intervals: &[Interval], work: usize) -> Answer {
    let hasty = match Search::new(model, intervals, work / 2, true).run() {
        Answer::Undecided(furthest) => furthest,
        decided => return decided,
    };
    match Search::new(model, intervals, work - work / 2, false).run() {
        Answer::Undecided(furthest) if furthest.taken < hasty.taken => Answer::Undecided(hasty),
        answer => answer,
    }
}

impl<'a, M: Model> Search<'a, M> {
    fn new(model: &'a mut M, intervals: &'a [Interval], work: usize, is_hasty: bool) -> Self {
        let count = intervals.len();
        let required = intervals.iter().filter(|interval| interval.end.is_some()).count();
        Self {
            model,
            intervals,
            next: (0..=count).map(|index| (index + 1) % (count + 1)).collect(),
            previous: (0..=count).map(|index| (index + count) % (count + 1)).collect(),
            required,
            all_required: required,
            taken_set: 0,
            frames: Vec::new(),
            tried: HashSet::new(),
            furthest: Furthest::default(),
            work,
            is_hasty,
            has_gaps: false,
        }
    }

    fn run(mut self) -> Answer {
        let mut candidates = Vec::new();
        while self.required > 0 {
            let Some(pressing) = self.candidates(&mut candidates) else {
                break;
            };
            let (reads, mut choices): (Vec<usize>, Vec<usize>) =
                candidates.iter().partition(|&&operation| self.model.is_read_only(operation));
            let frames = self.frames.len();
            for &read in &reads {
                if self.model.apply(read) {
                    self.take(read, Vec::new());
                }
            }
            if self.frames.len() > frames {
                continue;
            }
            if self.is_hasty {
                self.has_gaps |= self.model.narrow(&mut choices);
            }
            if self.model.is_hopeless(&choices, pressing) {
                choices.clear();
            }
            self.model.prefer(&mut choices, &reads, pressing);
            if !self.descend(choices) {
                let furthest = std::mem::take(&mut self.furthest);
                // The model is left as it was found.
                while let Some(frame) = self.frames.pop() {
                    self.give_back(frame.operation);
                }
                let is_decided = self.work > 0 && !self.has_gaps;
                return if is_decided { Answer::Impossible(furthest) } else { Answer::Undecided(furthest) };
            }
        }
        Answer::Explained
    }

    /// The operations that may come next, and the one that ends first among all that are left.
    fn candidates(&self, into: &mut Vec<usize>) -> Option<usize> {
        into.clear();
        let head = self.intervals.len();
        let mut earliest: Option<(Time, usize)> = None;
        let mut operation = self.next[head];
        while operation != head {
            let interval = &self.intervals[operation];
            if earliest.is_some_and(|(end, _)| interval.begin > end) {
                break;
            }
            into.push(operation);
            if let Some(end) = interval.end
                && earliest.is_none_or(|(least, _)| end < least)
            {
                earliest = Some((end, operation));
            }
            operation = self.next[operation];
        }
        earliest.map(|(_, operation)| operation)
    }

    /// Takes the best choice that leads to a state not tried before. It goes back as far as needed.
    fn descend(&mut self, mut choices: Vec<usize>) -> bool {
        loop {
            while let Some(operation) = choices.pop() {
                if self.work == 0 {
                    return false;
                }
                self.work -= 1;
                if !self.model.apply(operation) {
                    continue;
                }
                let state = self.taken_set ^ mix(operation as u64, 1) ^ self.model.fingerprint();
                if self.tried.insert(state) {
                    self.take(operation, choices);
                    return true;
                }
                self.model.undo(operation);
            }
            self.note_furthest();
            let Some(frame) = self.frames.pop() else {
                return false;
            };
            self.give_back(frame.operation);
            choices = frame.rest;
        }
    }

    /// The number of taken operations with a reply. The others are no progress.
    fn taken(&self) -> usize {
        self.all_required - self.required
    }

    fn take(&mut self, operation: usize, rest: Vec<usize>) {
        let (before, after) = (self.previous[operation], self.next[operation]);
        self.next[before] = after;
        self.previous[after] = before;
        self.required -= usize::from(self.intervals[operation].end.is_some());
        self.taken_set ^= mix(operation as u64, 1);
        self.frames.push(Frame { operation, rest });
    }

    /// Operations are given back in the reverse order, so their neighbours are still right.
    fn give_back(&mut self, operation: usize) {
        let (before, after) = (self.previous[operation], self.next[operation]);
        self.next[before] = operation;
        self.previous[after] = operation;
        self.required += usize::from(self.intervals[operation].end.is_some());
        self.taken_set ^= mix(operation as u64, 1);
        self.model.undo(operation);
    }

    /// Called when nothing fits, before going back.
    fn note_furthest(&mut self) {
        if self.furthest.pressing.is_some() && self.taken() <= self.furthest.taken {
            return;
        }
        let mut candidates = Vec::new();
        let Some(pressing) = self.candidates(&mut candidates) else {
            return;
        };
        candidates.retain(|&other| other != pressing);
        let shown = self.frames.len().saturating_sub(SHOWN);
        self.furthest = Furthest {
            taken: self.taken(),
            last: self.frames[shown..].iter().map(|frame| frame.operation).collect(),
            pressing: Some(pressing),
            obstacle: self.model.obstacle(pressing),
            candidates,
        };
    }
}

impl Furthest {
    /// The explanation in words, with the operations it names. `id_of` turns a number into an operation's id.
    pub fn explain(&self, all: &[Operation], id_of: &dyn Fn(usize) -> usize) -> (String, Vec<Operation>) {
        let name = |numbers: &[usize]| {
            let names: Vec<String> = numbers.iter().map(|&number| format!("T{}", id_of(number))).collect();
            names.join(", ")
        };
        let mut what = format!("at best {} operations can be put in an order", self.taken);
        if !self.last.is_empty() {
            what.push_str(&format!(" (the last: {})", name(&self.last)));
        }
        let mut numbers = self.last.clone();
        if let Some(pressing) = self.pressing {
            let (why, others) = &self.obstacle;
            what.push_str(&format!("; then T{} must come and cannot: {why}", id_of(pressing)));
            numbers.push(pressing);
            numbers.extend(others);
        }
        let shown = &self.candidates[..self.candidates.len().min(SHOWN)];
        if !shown.is_empty() {
            what.push_str(&format!("; beside it were open: {}", name(shown)));
            if self.candidates.len() > SHOWN {
                what.push_str(&format!(" and {} more", self.candidates.len() - SHOWN));
            }
            numbers.extend(shown);
        }
        let mut is_shown = HashSet::new();
        numbers.retain(|&number| is_shown.insert(number));
        (what, numbers.into_iter().map(|number| all[id_of(number)].clone()).collect())
    }
}

/// 128 bits that differ for different inputs (two rounds of SplitMix64). Sets and states are told apart by the
/// exclusive or of these bits. Of four million states two collide with probability 10⁻²⁶.
pub(crate) fn mix(first: u64, second: u64) -> u128 {
    let round = |seed: u64| {
        let mut bits = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    };
    let low = round(round(first) ^ second);
    let high = round(low ^ round(second.wrapping_add(0x5851_f42d_4c95_7f2d)) ^ first.rotate_left(32));
    u128::from(high) << 64 | u128::from(low)
}

#[cfg(test)]
#[path = "search_tests.rs"]
mod tests;
