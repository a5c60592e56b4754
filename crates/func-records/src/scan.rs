//! `T--shard/_scan`: the records of one shard that belong to a query, in its order.
//!
//! Either it *streams*: what it goes through is in the order asked for, so it stops when it has enough.
//! Or it *sorts*: it looks at all that may belong, if they are few, and puts them in order. Whatever way
//! it takes here, and whatever other shards do, positions mean the same, so pages fit together.

use std::collections::{BTreeSet, VecDeque};
use std::rc::Rc;

use bytes::Bytes;
use millrace_base::{Error, ErrorCode, limits};
use millrace_func::{OperationId, ScanRequest};

use crate::last_rows::{Between, last_rows};
use crate::program::{READ, RecordType};
use crate::rows::{Position, complete_field, index_prefix, index_row, read_index_row, read_number, successor};
use crate::turn::{Calls, Progress, Task, Turn};
use crate::wire::{Ask, Probe, Range, Scan, Scanned, decode, encode, encode_ask};

/// Records looked at together.
const WAVE: usize = 64;

/// Where candidates come from.
enum Source {
    /// All keys, in order.
    Keys { after: Option<Vec<u8>> },
    /// Rows of an index, between two names that are not themselves rows.
    Rows { prefix: Vec<u8>, low: Vec<u8>, high: Vec<u8>, is_descending: bool },
    /// These.
    List(VecDeque<Position>),
}

struct Way {
    source: Source,
    /// They have to be put in order.
    sorts: bool,
    /// The index gone through.
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
    /// The input of `_read` that asks whether a record belongs; none: all do.
    probe: Option<Bytes>,
    found: Vec<Position>,
    looked_at: usize,
    last: Option<Position>,
    wave: Vec<Position>,
    calls: Calls,
    scanned: Scanned,
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
        probe: if is_plain { None } else { Some(probe_input(&scan.probe)) },
        found: Vec::new(),
        looked_at: 0,
        last: None,
        wave: Vec::new(),
        calls: Calls::default(),
        scanned,
        way,
    };
    scanning.next(turn)
}

fn probe_input(probe: &Probe<'_>) -> Bytes {
    encode_ask(&Ask::Probe(probe.clone()))
}

/// The best way that is open here; `None` when only sorting too much would do.
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
            && let Some(list) = few(turn, of, range, scan.prefix)?
        {
            return Ok(Some(Way { source: Source::List(list), sorts: true, index: Some(range.index) }));
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

/// Names between which the rows of a range lie.
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

/// Rows of an index in its order, those before or behind the position the page begins with.
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

/// The records of a range, each once, if they are few enough to be sorted.
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
    /// The next candidates; none are left when there are none.
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
        loop {
            let most = limits::QUERY_SCANNED.max(self.limit + 1);
            let is_enough = !self.way.sorts && self.found.len() > self.limit;
            if is_enough || self.looked_at >= most {
                return self.end(false);
            }
            let count = if self.probe.is_some() { WAVE } else { self.limit + 1 }.min(most - self.looked_at);
            let service = turn.record_type(self.type_index).service;
            let candidates = self.way.source.next(turn, service, &self.prefix, count)?;
            let Some(last) = candidates.last() else {
                return self.end(true);
            };
            self.looked_at += candidates.len();
            self.last = Some(self.position(last));
            let wanted = candidates.into_iter().filter(|candidate| candidate.id.starts_with(&self.prefix));
            match &self.probe {
                None => {
                    let found: Vec<Position> = wanted.map(|candidate| self.position(&candidate)).collect();
                    self.found.extend(found);
                }
                Some(probe) => {
                    self.wave = wanted.collect();
                    for candidate in &self.wave {
                        self.calls.push(turn.call((service, READ), &candidate.id, probe.clone())?);
                    }
                    if !self.calls.is_empty() {
                        return Ok(Progress::Wait(Box::new(self)));
                    }
                }
            }
        }
    }

    /// Where a candidate stands in the order asked for, as far as its source knows.
    fn position(&self, candidate: &Position) -> Position {
        let key = if self.has_keys { candidate.key.clone() } else { Vec::new() };
        Position { key, id: candidate.id.clone() }
    }

    fn looked(&mut self, results: Vec<Result<Bytes, Error>>) -> Result<(), Error> {
        for (candidate, result) in std::mem::take(&mut self.wave).into_iter().zip(results) {
            let answer = match result {
                // What no schema can read meets no demand.
                Err(error) if error.code == ErrorCode::WrongType => continue,
                answer => answer?,
            };
            // The first byte says that it belongs; the key follows.
            let Some((_, key)) = answer.split_first() else {
                continue;
            };
            let position = Position { key: key.to_vec(), id: candidate.id.clone() };
            if self.way.sorts {
                let is_behind = self
                    .after
                    .as_ref()
                    .is_none_or(|after| if self.is_descending { position < *after } else { position > *after });
                if is_behind {
                    self.found.push(position);
                }
            } else if !self.has_keys || position.key == candidate.key {
                self.found.push(position);
            }
        }
        Ok(())
    }

    fn end(mut self, is_exhausted: bool) -> Result<Progress, Error> {
        if self.way.sorts {
            self.found.sort_unstable();
            if self.is_descending {
                self.found.reverse();
            }
        }
        if self.found.len() > self.limit {
            self.found.truncate(self.limit);
            self.scanned.frontier = self.found.last().cloned().map(Position::into_pair);
        } else if !is_exhausted && !self.way.sorts {
            self.scanned.frontier = self.last.map(Position::into_pair);
        }
        self.scanned.found = self.found.into_iter().map(Position::into_pair).collect();
        Ok(Progress::Done(encode(&self.scanned)))
    }
}

impl Task for Scanning {
    fn resume(
        mut self: Box<Self>,
        turn: &mut Turn<'_>,
        operation: OperationId,
        result: Result<Bytes, Error>,
    ) -> Result<Progress, Error> {
        let Some(results) = self.calls.ended(operation, result)? else {
            return Ok(Progress::Wait(self));
        };
        self.looked(results)?;
        self.next(turn)
    }
}
