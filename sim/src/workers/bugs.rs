//! Bugs planted in how the server's end treats attempts: it lets something of a voided attempt count, or something twice.

use std::collections::BTreeMap;

use bytes::Bytes;
use millrace_format::worker::{
    AttemptToken, FrameHeader, StartFrame, WORKER_FRAME_HEADER_BYTES, WorkerFrame, set_stream,
};

use crate::bugs::PlantedBug;

/// What an attempt is about. Another attempt at the same has the same.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct About {
    entity: (String, Bytes),
    handler: String,
    invocation: String,
    input: Bytes,
}

impl About {
    pub(super) fn new(start: &StartFrame) -> Self {
        Self {
            entity: (start.service.clone(), start.key.clone()),
            handler: start.handler.clone(),
            invocation: start.invocation.clone(),
            input: start.input.clone(),
        }
    }
}

/// The bug, and what it remembers.
pub(super) struct Bugs {
    bug: Option<PlantedBug>,
    about: BTreeMap<AttemptToken, About>,
    /// Writes of attempts that have not ended.
    writes: BTreeMap<AttemptToken, Vec<Vec<u8>>>,
    /// Writes that will count with the next attempt at an entity: before its own, and behind them.
    before: BTreeMap<(String, Bytes), Vec<Vec<u8>>>,
    behind: BTreeMap<(String, Bytes), Vec<Vec<u8>>>,
    late: BTreeMap<About, Bytes>,
    is_doubled: bool,
}

fn decoded(frame: &[u8]) -> Option<WorkerFrame> {
    let header = FrameHeader::read(frame).ok().flatten()?;
    WorkerFrame::decode(header, Bytes::copy_from_slice(frame.get(WORKER_FRAME_HEADER_BYTES..)?)).ok()
}

/// Where the last frame begins.
fn last(turn: &[u8]) -> Option<usize> {
    let (mut at, mut last) = (0, None);
    while at < turn.len() {
        let header = FrameHeader::read(&turn[at..]).ok().flatten()?;
        (last, at) = (Some(at), at + header.frame_bytes());
    }
    last
}

impl Bugs {
    pub(super) fn new(bug: Option<PlantedBug>) -> Self {
        Self {
            bug,
            about: BTreeMap::new(),
            writes: BTreeMap::new(),
            before: BTreeMap::new(),
            behind: BTreeMap::new(),
            late: BTreeMap::new(),
            is_doubled: false,
        }
    }

    pub(super) fn has(&self, bug: PlantedBug) -> bool {
        self.bug == Some(bug)
    }

    fn is_about_writes(&self) -> bool {
        self.has(PlantedBug::KeepVoidWrites) || self.has(PlantedBug::OutputCountsTwice)
    }

    pub(super) fn begins(&mut self, attempt: AttemptToken, about: About) {
        self.about.insert(attempt, about);
    }

    /// Whether two attempts are at the same.
    pub(super) fn is_the_same(&self, one: AttemptToken, other: AttemptToken) -> bool {
        one != other && self.about.get(&one).is_some_and(|about| Some(about) == self.about.get(&other))
    }

    /// A frame of an attempt has come.
    pub(super) fn saw(&mut self, attempt: AttemptToken, frame: &[u8]) {
        if self.is_about_writes()
            && matches!(decoded(frame), Some(WorkerFrame::Set { .. } | WorkerFrame::Delete { .. }))
        {
            let mut frame = frame.to_vec();
            set_stream(&mut frame, 0, 0);
            self.writes.entry(attempt).or_default().push(frame);
        }
    }

    /// An attempt counts no more.
    pub(super) fn voided(&mut self, attempt: AttemptToken) {
        let Some(writes) = self.writes.remove(&attempt) else { return };
        if let Some(about) = self.about.get(&attempt).filter(|_| self.has(PlantedBug::KeepVoidWrites)) {
            self.before.entry(about.entity.clone()).or_default().extend(writes);
        }
    }

    /// The end of the attempt's turn has come, or will come, twice.
    pub(super) fn doubled(&mut self, attempt: AttemptToken) {
        let Some(about) = self.about.get(&attempt).filter(|_| self.has(PlantedBug::OutputCountsTwice)) else { return };
        if let Some(writes) = self.writes.get(&attempt) {
            self.behind.insert(about.entity.clone(), writes.clone());
            self.is_doubled = true;
        }
    }

    /// What counts as the turn that came.
    pub(super) fn turn(&mut self, attempt: AttemptToken, turn: Bytes) -> Bytes {
        let Some(at) = last(&turn).filter(|_| self.is_about_writes()) else { return turn };
        if !matches!(decoded(&turn[at..]), Some(WorkerFrame::Output(_))) {
            return turn;
        }
        let own = self.writes.remove(&attempt).unwrap_or_default();
        let Some(entity) = self.about.get(&attempt).map(|about| about.entity.clone()) else { return turn };
        // One that only reads may not write, and its failure would give the bug away too early.
        if own.is_empty() || std::mem::take(&mut self.is_doubled) {
            return turn;
        }
        let before = self.before.remove(&entity).unwrap_or_default().concat();
        let behind = self.behind.remove(&entity).unwrap_or_default().concat();
        let (frames, output) = turn.split_at(at);
        [&before[..], frames, &behind[..], output].concat().into()
    }

    /// An answer that was lost, or came when nobody waited for it.
    pub(super) fn came_late(&mut self, attempt: AttemptToken, turn: Bytes) {
        if let Some(about) = self.about.get(&attempt).filter(|_| self.has(PlantedBug::OldAttemptIsAnswer)) {
            self.late.insert(about.clone(), turn);
        }
    }

    /// What counts as the answer of another attempt.
    pub(super) fn late_answer(&mut self, attempt: AttemptToken) -> Option<Bytes> {
        self.about.get(&attempt).and_then(|about| self.late.remove(about))
    }
}
