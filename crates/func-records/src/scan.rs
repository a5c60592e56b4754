//! `T--shard/_scan`: the records of one shard that match a query, in its order.
//!
//! It either *streams* or *sorts*. Streaming: its source is in the order asked for, so it stops when it has enough.
//! Sorting: it looks at all records that may match, if they are few, and sorts them. Positions mean the same either
//! way, and in all shards, so pages fit together.
//!
//! All of it happens within one input of the shard, so it takes a bounded number of steps. Then it gives what it has
//! found, and the place where it gave up. Sorting cannot give up, so it is refused.

use std::collections::{BTreeSet, VecDeque};
use std::rc::Rc;

use bytes::Bytes;
use millrace_base::{Error, ErrorCode, limits};
use millrace_func::ScanRequest;

use crate::last_rows::{Between, last_rows};
use crate::program::{READ, RecordType};
use crate::rows::{Position, complete_field, index_prefix, index_row, read_index_row, read_number, successor};
use crate::turn::{Calls, Gathers, Progress, Turn};
use crate::wire::{Ask, Probed, Range, Scan, Scanned, Verdict, decode, encode, encode_ask};

/// Candidates asked for together.
const WAVE: usize = 64;

/// Steps that looking at a record takes beside the predicate: a nested call.
const PROBE_STEPS: usize = 50;

/// Where candidates come from.
enum Source {
    /// All keys, in order.
    Keys { after: Option<Vec<u8>> },
    /// Rows of an index, between two names that are not rows themselves.
    Rows { prefix: Vec<u8>, low: Vec<u8>, high: Vec<u8>, is_descending: bool },
    /// These positions.
    List(VecDeque<Position>),
}

struct Way {
    source: Source,
    /// They have to be sorted.
    sorts: bool,
    /// The index that the scan uses.
    index: Option<usize>,
}

struct Scanning {
    type_index: usize,
    way: Way,
    /// Positions have keys.
    has_keys: bool,
    is_descending: bool,
    prefix: Vec<u8>,
    after: Option<Position>,
    limit: usize,
    /// The input of `_read` that asks whether a record matches. None: all do.
    probe: Option<Bytes>,
    /// Steps that are left.
    steps: usize,
    until: Option<Position>,
    found: Vec<Position>,
    looked_at: usize,
    /// The last one looked at.
    last: Option<Position>,
    /// The next ones.
    queue: VecDeque<Position>,
    /// The one that is waited for.
    asked: Option<Position>,
    calls: Calls,
    scanned: Scanned,
}

/// How a scan ended.
enum End {
    /// With the last record.
    Exhausted,
    /// It has found enough, or looked at as many as it may.
    Enough,
    /// Before this one, because no steps are left, or because no caller needs to know yet.
    Before(Position),
}

pub(crate) fn start(turn: &mut Turn<'_>, type_index: usize, input: &[u8]) -> Result<Progress, Error> {
    let scan: Scan<'_> = decode(input)?;
    let program = Rc::clone(turn.program);
    let of = &program.types[type_index];
    let mut scanned = Scanned::default();
    let way = choose(turn, of, &scan, &mut scanned)?;
    let Some(way) = way else {
        scanned.is_too_many = true;
        return Ok(Progress::Done(encode(&scanned)));
    };
    (scanned.index, scanned.sorts) = (way.index, way.sorts);
    if scan.explain {
        return Ok(Progress::Done(encode(&scanned)));
    }
    let has_keys = !scan.probe.order.is_empty();
    let is_plain = scan.probe.predicate.is_empty() && !way.sorts;
    let scanning = Scanning {
        type_index,
        has_keys,
        is_descending: scan.probe.is_descending,
        prefix: scan.prefix.to_vec(),
        after: scan.after.clone().map(Position::of_pair),
        limit: scan.limit,
        probe: if is_plain { None } else { Some(probe_input(&scan)) },
        steps: scan.steps,
        until: scan.until.clone().map(Position::of_pair),
        found: Vec::new(),
        looked_at: 0,
        last: None,
        queue: VecDeque::new(),
        asked: None,
        calls: Calls::default(),
        scanned,
        way,
    };
    scanning.next(turn)
}

/// One record may take all steps of the visit, so a visit is at most twice as long.
fn probe_input(scan: &Scan<'_>) -> Bytes {
    let steps = if scan.is_patient { usize::MAX } else { scan.steps };
    encode_ask(&Ask::Probe { probe: scan.probe.clone(), steps })
}

/// The best way that is possible here. `None` if it would have to sort too much.
fn choose(turn: &mut Turn<'_>, of: &RecordType, scan: &Scan<'_>, scanned: &mut Scanned) -> Result<Option<Way>, Error> {
    let mut is_complete = |turn: &mut Turn<'_>, at: usize| -> Result<bool, Error> {
        let Some(index) = of.indexes.get(at) else {
            return Ok(false);
        };
        let is_complete = read_number(turn.host, &complete_field(index.number))? == Some(index.definition);
        if !is_complete && !scanned.incomplete.contains(&at) {
            scanned.incomplete.push(at);
        }
        Ok(is_complete)
    };
    let has_keys = !scan.probe.order.is_empty();
    let mut in_order = None;
    if let Some(at) = scan.order_index
        && is_complete(turn, at)?
    {
        in_order = Some(at);
    }
    for range in &scan.ranges {
        if !is_complete(turn, range.index)? {
            continue;
        }
        if !has_keys && range.is_equality {
            return Ok(Some(Way { source: equal_rows(of, scan, range), sorts: false, index: Some(range.index) }));
        }
        // In its own order it can be streamed, which is no worse than sorting it.
        if in_order != Some(range.index)
            && let Some(mut list) = few(turn, of, range, scan.prefix)?
        {
            if let Some((_, after)) = scan.after.as_ref().filter(|_| !has_keys) {
                list.retain(|position| position.id > *after);
            }
            return Ok(Some(Way { source: Source::List(list), sorts: has_keys, index: Some(range.index) }));
        }
    }
    if let Some(at) = in_order {
        let range = scan.ranges.iter().find(|range| range.index == at);
        return Ok(Some(Way { source: ordered_rows(of, scan, at, range), sorts: false, index: Some(at) }));
    }
    if !has_keys {
        let after = scan.after.as_ref().map(|(_, id)| id.clone());
        return Ok(Some(Way { source: Source::Keys { after }, sorts: false, index: None }));
    }
    let keys = turn.host.keys(of.service, scan.prefix, None, limits::QUERY_SCANNED + 1)?;
    if keys.len() > limits::QUERY_SCANNED {
        return Ok(None);
    }
    let list = keys.into_iter().map(|id| Position { key: Vec::new(), id }).collect();
    Ok(Some(Way { source: Source::List(list), sorts: true, index: None }))
}

/// The names between which the rows of a range lie.
fn bounds(number: u16, low: &[u8], high: Option<&[u8]>) -> (Vec<u8>, Vec<u8>, Vec<u8>) {
    let prefix = index_prefix(number);
    let name = |key: &[u8]| [&prefix[..], key].concat();
    let end = successor(&prefix).unwrap_or_else(|| vec![0xFF; prefix.len() + 1]);
    // Rows of a key are longer than the key, so none has the name of a bound.
    (name(low), high.map_or(end, name), prefix)
}

/// Rows of one key, in the order of their ids.
fn equal_rows(of: &RecordType, scan: &Scan<'_>, range: &Range) -> Source {
    let number = of.indexes[range.index].number;
    let (mut low, high, prefix) = bounds(number, &range.low, range.high.as_deref());
    if let Some((_, id)) = &scan.after {
        low = low.max(index_row(number, &range.low, id));
    }
    Source::Rows { prefix, low, high, is_descending: false }
}

/// Rows of an index in its order, before or behind the position at which the page begins.
fn ordered_rows(of: &RecordType, scan: &Scan<'_>, at: usize, range: Option<&Range>) -> Source {
    let number = of.indexes[at].number;
    let is_descending = scan.probe.is_descending;
    let (low, high) = range.map_or((&[][..], None), |range| (&range.low[..], range.high.as_deref()));
    let (mut low, mut high, prefix) = bounds(number, low, high);
    if let Some((key, id)) = &scan.after {
        let row = index_row(number, key, id);
        if is_descending {
            high = high.min(row);
        } else {
            low = low.max(row);
        }
    }
    Source::Rows { prefix, low, high, is_descending }
}

/// The records of a range, each once and in the order of their ids, if they are few enough to be sorted.
fn few(
    turn: &mut Turn<'_>,
    of: &RecordType,
    range: &Range,
    prefix: &[u8],
) -> Result<Option<VecDeque<Position>>, Error> {
    let number = of.indexes[range.index].number;
    let (low, high, all) = bounds(number, &range.low, range.high.as_deref());
    let request = ScanRequest { prefix: all, after: Some(low), limit: limits::QUERY_SCANNED + 1 };
    let rows = turn.host.scan(&request)?;
    let rows: Vec<Vec<u8>> = rows.into_iter().map(|(field, _)| field).take_while(|field| *field < high).collect();
    if rows.len() > limits::QUERY_SCANNED {
        return Ok(None);
    }
    let ids: BTreeSet<Vec<u8>> =
        rows.iter().filter_map(|row| Some(read_index_row(row)?.id)).filter(|id| id.starts_with(prefix)).collect();
    Ok(Some(ids.into_iter().map(|id| Position { key: Vec::new(), id }).collect()))
}

impl Source {
    /// The next candidates. Empty if there are no more.
    fn next(&mut self, turn: &mut Turn<'_>, service: u16, prefix: &[u8], count: usize) -> Result<Vec<Position>, Error> {
        match self {
            Source::Keys { after } => {
                let keys = turn.host.keys(service, prefix, after.as_deref(), count)?;
                if let Some(last) = keys.last() {
                    *after = Some(last.clone());
                }
                Ok(keys.into_iter().map(|id| Position { key: Vec::new(), id }).collect())
            }
            Source::List(list) => Ok(list.drain(..list.len().min(count)).collect()),
            Source::Rows { prefix, low, high, is_descending } => {
                let rows = if *is_descending {
                    let between = Between { prefix, low: low.clone(), high: high.clone() };
                    let rows = last_rows(turn.host, between, count)?;
                    if let Some(last) = rows.last() {
                        high.clone_from(last);
                    }
                    rows
                } else {
                    let request = ScanRequest { prefix: prefix.clone(), after: Some(low.clone()), limit: count };
                    let rows = turn.host.scan(&request)?.into_iter().map(|(field, _)| field);
                    let rows: Vec<Vec<u8>> = rows.take_while(|field| field < high).collect();
                    if let Some(last) = rows.last() {
                        low.clone_from(last);
                    }
                    rows
                };
                Ok(rows.iter().filter_map(|row| read_index_row(row)).collect())
            }
        }
    }
}

impl Scanning {
    /// Looks at more candidates, or ends.
    fn next(mut self, turn: &mut Turn<'_>) -> Result<Progress, Error> {
        let service = turn.record_type(self.type_index).service;
        let most = limits::QUERY_SCANNED.max(self.limit + 1);
        loop {
            let is_enough = !self.way.sorts && self.found.len() > self.limit;
            if is_enough || self.looked_at >= most {
                return Ok(self.end(End::Enough));
            }
            let Some(candidate) = self.queue.pop_front() else {
                let count = if self.probe.is_some() { WAVE } else { self.limit + 1 }.min(most - self.looked_at);
                self.queue = self.way.source.next(turn, service, &self.prefix, count)?.into();
                if self.queue.is_empty() {
                    return Ok(self.end(End::Exhausted));
                }
                continue;
            };
            let position = self.position(&candidate);
            if self.probe.is_some() && self.looked_at > 0 && self.is_to_stop(&position) {
                return Ok(self.end(End::Before(position)));
            }
            self.looked_at += 1;
            if !candidate.id.starts_with(&self.prefix) {
                self.last = Some(position);
            } else if let Some(probe) = &self.probe {
                self.calls.push(turn.call((service, READ), &candidate.id, probe.clone())?);
                self.asked = Some(candidate);
                return Ok(Progress::Wait(Box::new(self)));
            } else {
                self.last = Some(position.clone());
                self.found.push(position);
            }
        }
    }

    /// Whether the steps are spent, or the next record is of no use.
    fn is_to_stop(&self, position: &Position) -> bool {
        let is_beyond = self
            .until
            .as_ref()
            .is_some_and(|until| if self.is_descending { position < until } else { position > until });
        self.steps == 0 || (is_beyond && !self.way.sorts)
    }

    /// Where a candidate stands in the order asked for, as far as its source knows.
    fn position(&self, candidate: &Position) -> Position {
        let key = if self.has_keys { candidate.key.clone() } else { Vec::new() };
        Position { key, id: candidate.id.clone() }
    }

    fn spend(&mut self, steps: usize) {
        self.steps = self.steps.saturating_sub(steps);
        self.scanned.steps += steps;
    }

    /// Handles the answer about a record. `false` if the record could not be judged.
    fn looked(&mut self, candidate: &Position, result: Result<Bytes, Error>) -> Result<bool, Error> {
        self.spend(PROBE_STEPS);
        let answer = match result {
            // A record that no schema can read meets no demand.
            Err(error) if error.code == ErrorCode::WrongType => return Ok(true),
            answer => answer?,
        };
        if answer.is_empty() {
            return Ok(true);
        }
        let Probed { steps, verdict } = decode(&answer)?;
        self.spend(steps);
        let key = match verdict {
            Verdict::No => return Ok(true),
            Verdict::Unknown => return Ok(false),
            Verdict::Yes(key) => key,
        };
        let position = Position { key, id: candidate.id.clone() };
        let is_wanted = if self.way.sorts {
            let is_behind = |after: &Position| if self.is_descending { position < *after } else { position > *after };
            self.after.as_ref().is_none_or(is_behind)
        } else {
            !self.has_keys || position.key == candidate.key
        };
        if is_wanted {
            self.found.push(position);
        }
        Ok(true)
    }

    fn end(mut self, end: End) -> Progress {
        self.scanned.is_exhausted = matches!(end, End::Exhausted) || self.way.sorts;
        if self.way.sorts {
            if matches!(end, End::Before(_)) {
                self.scanned.is_too_much = true;
                return Progress::Done(encode(&self.scanned));
            }
            self.found.sort_unstable();
            if self.is_descending {
                self.found.reverse();
            }
        }
        if self.found.len() > self.limit {
            self.found.truncate(self.limit);
            self.scanned.is_exhausted = false;
            self.scanned.frontier = self.found.last().cloned().map(Position::into_pair);
        } else if !self.scanned.is_exhausted {
            self.scanned.frontier = self.last.map(Position::into_pair);
            if let End::Before(next) = end {
                self.scanned.next = Some(next.into_pair());
            }
        }
        self.scanned.found = self.found.into_iter().map(Position::into_pair).collect();
        Progress::Done(encode(&self.scanned))
    }
}

impl Gathers for Scanning {
    fn calls(&mut self) -> &mut Calls {
        &mut self.calls
    }

    fn gathered(
        mut self: Box<Self>,
        turn: &mut Turn<'_>,
        mut results: Vec<Result<Bytes, Error>>,
    ) -> Result<Progress, Error> {
        let (Some(candidate), Some(result)) = (self.asked.take(), results.pop()) else {
            return Err(Error::new(ErrorCode::Internal, "a record answered that was not asked"));
        };
        let position = self.position(&candidate);
        if !self.looked(&candidate, result)? {
            return Ok(self.end(End::Before(position)));
        }
        self.last = Some(position);
        self.next(turn)
    }
}
