//! The operation `Find`: records of all shards that belong to a query, page by page.
//!
//! Every shard gives the first that it has, and how far it has looked. What lies beyond the nearest place
//! to which all have looked has to wait for the next page; the rest, in order, is this one.

use std::collections::VecDeque;
use std::rc::Rc;

use bytes::Bytes;
use millrace_api::{Form, RecordQuery, RecordReply};
use millrace_base::{Error, ErrorCode, limits};
use millrace_func::OperationId;
use serde_json::json;

use crate::changes::page_limit;
use crate::effects::id_member;
use crate::page_cursor;
use crate::plan::{Plan, leaves, plan};
use crate::program::{READ, RecordProgram, RecordType, SCAN};
use crate::read::check_json;
use crate::rows::Position;
use crate::turn::{Calls, Progress, Shared, Task, Turn};
use crate::values::{self, Parameters};
use crate::wire::{Ask, Probe, Range, Scan, Scanned, decode, encode, encode_ask};

/// Records read together: what they answer is in memory at once.
const WAVE: usize = 64;

/// Whether a record belongs to a query, and where it stands in its order.
pub(crate) fn probe(
    shared: &Shared,
    of: &RecordType,
    value: &[u8],
    probe: &Probe<'_>,
) -> Result<Option<Vec<u8>>, Error> {
    if !probe.predicate.is_empty() {
        let predicate = shared.predicate(probe.predicate)?;
        if !predicate.matches(&of.schema, value, &Parameters::parse(probe.parameters)?)? {
            return Ok(None);
        }
    }
    if probe.order.is_empty() {
        return Ok(Some(Vec::new()));
    }
    let path = shared.path(probe.order)?;
    let keys = values::order_keys(&path, &of.schema, value, (false, true))?;
    Ok(keys.and_then(|keys| keys.into_iter().next()))
}

/// A query as it was asked, kept while it waits.
struct Query {
    predicate: String,
    parameters: String,
    order: String,
    prefix: Vec<u8>,
    form: Form,
    ids_only: bool,
}

impl Query {
    fn as_asked(&self) -> RecordQuery<'_> {
        RecordQuery {
            predicate: &self.predicate,
            parameters: &self.parameters,
            order: &self.order,
            prefix: &self.prefix,
            ..RecordQuery::default()
        }
    }
}

pub(crate) fn start(turn: &mut Turn<'_>, type_index: usize, query: &RecordQuery<'_>) -> Result<Progress, Error> {
    check_json(query.form)?;
    let program = Rc::clone(turn.program);
    let of = &program.types[type_index];
    let after = page_cursor::read(of.name.as_str(), query)?;
    let parameters = Parameters::parse(query.parameters)?;
    let (order, is_descending) = match query.order.strip_prefix('-') {
        Some(order) => (order, true),
        None => (query.order, false),
    };
    let order_index = check_order(turn.shared, of, order, is_descending)?;
    let found = match query.predicate {
        "" => Plan { ranges: Vec::new(), why_not: Vec::new() },
        text => {
            let predicate = turn.shared.predicate(text)?;
            plan(of, &predicate, &parameters)?
        }
    };
    let limit = page_limit(query.limit);
    let probe = Probe { predicate: query.predicate, parameters: query.parameters, order, is_descending };
    let scan = Scan {
        probe,
        prefix: query.prefix,
        ranges: found.ranges.clone(),
        order_index,
        after: after.map(Position::into_pair),
        limit,
        explain: query.explain,
    };
    let input = encode(&scan);
    let mut calls = Calls::default();
    for key in turn.shared.shard_keys.clone() {
        calls.push(turn.call((of.shard_service, SCAN), &key, input.clone())?);
    }
    if query.explain {
        let explain =
            Explain { program: Rc::clone(&program), type_index, plan: found, order: query.order.to_owned(), calls };
        return Ok(Progress::Wait(Box::new(explain)));
    }
    let query = Query {
        predicate: query.predicate.to_owned(),
        parameters: query.parameters.to_owned(),
        order: query.order.to_owned(),
        prefix: query.prefix.to_vec(),
        form: query.form,
        ids_only: query.ids_only,
    };
    Ok(Progress::Wait(Box::new(Find { program: Rc::clone(&program), type_index, query, is_descending, limit, calls })))
}

/// Checks what to order by; gives the index that has that order, if there is one.
fn check_order(shared: &Shared, of: &RecordType, order: &str, is_descending: bool) -> Result<Option<usize>, Error> {
    if order.is_empty() {
        if is_descending {
            let message =
                "order: a path follows the -, as in -.age; without a path, records come in the order of their ids";
            return Err(Error::new(ErrorCode::InvalidPath, message));
        }
        return Ok(None);
    }
    let path = shared.path(order)?;
    let is_single = path.is_simple() && !path.text().contains('[');
    if !is_single || leaves(&of.schema, path.text()).is_none() {
        let message =
            format!("order: {} does not lead to one scalar: name fields only, as in .address.city", path.text());
        return Err(Error::new(ErrorCode::InvalidPath, message));
    }
    Ok(of.index_in_order_of(&path))
}

/// Waits for the shards.
struct Find {
    program: Rc<RecordProgram>,
    type_index: usize,
    query: Query,
    is_descending: bool,
    limit: usize,
    calls: Calls,
}

impl Task for Find {
    fn resume(
        mut self: Box<Self>,
        turn: &mut Turn<'_>,
        operation: OperationId,
        result: Result<Bytes, Error>,
    ) -> Result<Progress, Error> {
        let Some(results) = self.calls.ended(operation, result)? else {
            return Ok(Progress::Wait(self));
        };
        let mut shards = Vec::with_capacity(results.len());
        for result in results {
            shards.push(decode::<Scanned>(&result?)?);
        }
        let of = &self.program.types[self.type_index];
        if let Some(shard) = shards.iter().find(|shard| shard.is_too_many) {
            return Err(too_many(of, &self.query, shard));
        }
        let (found, next) = merge(shards, self.limit, self.is_descending);
        let read = Read {
            type_index: self.type_index,
            type_name: of.name.as_str().to_owned(),
            query: self.query,
            left: found.into(),
            next,
            wave: Vec::new(),
            last: None,
            calls: Calls::default(),
            body: b"{\"records\":[".to_vec(),
            count: 0,
        };
        read.next(turn)
    }
}

fn too_many(of: &RecordType, query: &Query, shard: &Scanned) -> Error {
    let order = query.order.trim_start_matches('-');
    let building = shard.incomplete.iter().filter_map(|at| of.indexes.get(*at)).map(|index| index.name.as_str());
    let building: Vec<&str> = building.collect();
    let what_to_do = if building.is_empty() {
        format!("declare an index on {order}, or narrow the query down")
    } else {
        format!("the index {} is still being built: try again later", building.join(", "))
    };
    let message = format!(
        "more than {} records of a shard would have to be sorted by {order}: {what_to_do}",
        limits::QUERY_SCANNED
    );
    Error::new(ErrorCode::BadRequest, message)
}

/// The page, and where the next one begins.
fn merge(shards: Vec<Scanned>, limit: usize, is_descending: bool) -> (Vec<Position>, Option<Position>) {
    let is_behind = |a: &Position, b: &Position| if is_descending { a < b } else { a > b };
    let mut nearest: Option<Position> = None;
    for shard in &shards {
        if let Some(frontier) = shard.frontier.clone().map(Position::of_pair)
            && nearest.as_ref().is_none_or(|nearest| is_behind(nearest, &frontier))
        {
            nearest = Some(frontier);
        }
    }
    let found = shards.into_iter().flat_map(|shard| shard.found).map(Position::of_pair);
    let mut found: Vec<Position> =
        found.filter(|position| nearest.as_ref().is_none_or(|nearest| !is_behind(position, nearest))).collect();
    found.sort_unstable();
    if is_descending {
        found.reverse();
    }
    if found.len() > limit {
        found.truncate(limit);
        nearest = found.last().cloned();
    }
    (found, nearest)
}

/// Reads the page's records.
struct Read {
    type_index: usize,
    type_name: String,
    query: Query,
    left: VecDeque<Position>,
    next: Option<Position>,
    wave: Vec<Position>,
    last: Option<Position>,
    calls: Calls,
    body: Vec<u8>,
    count: u32,
}

impl Read {
    fn next(mut self, turn: &mut Turn<'_>) -> Result<Progress, Error> {
        if self.body.len() > limits::OUTPUT_BYTES && !self.left.is_empty() {
            // Enough for one page: the rest is the next one's.
            self.left.clear();
            self.next = self.last.take();
        }
        self.wave = self.left.drain(..self.left.len().min(WAVE)).collect();
        if self.wave.is_empty() {
            return Ok(self.end());
        }
        let ask = encode_ask(&Ask::Fetch { form: self.query.form, ids_only: self.query.ids_only });
        let service = turn.record_type(self.type_index).service;
        for position in &self.wave {
            self.calls.push(turn.call((service, READ), &position.id, ask.clone())?);
        }
        Ok(Progress::Wait(Box::new(self)))
    }

    fn add(&mut self, id: &[u8], result: Result<Bytes, Error>) -> Result<(), Error> {
        let members = match result {
            // It has expired, or was never committed.
            Ok(members) if members.is_empty() => return Ok(()),
            Ok(members) => members,
            Err(error) if error.code == ErrorCode::WrongType => {
                let said = json!({ "code": error.code.as_str(), "detail": error.message });
                Bytes::from(format!("{},\"error\":{said}", id_member(id)))
            }
            Err(error) => return Err(error),
        };
        if self.count > 0 {
            self.body.push(b',');
        }
        self.body.push(b'{');
        self.body.extend_from_slice(&members);
        self.body.push(b'}');
        self.count += 1;
        Ok(())
    }

    fn end(mut self) -> Progress {
        let cursor = match &self.next {
            Some(position) => {
                let cursor = page_cursor::write(&self.type_name, &self.query.as_asked(), position);
                format!("],\"cursor\":\"{cursor}\"}}")
            }
            None => "],\"cursor\":null}".to_owned(),
        };
        self.body.extend_from_slice(cursor.as_bytes());
        let reply = RecordReply { matched: self.count, body: Bytes::from(self.body), ..RecordReply::default() };
        Progress::Done(reply.to_bytes())
    }
}

impl Task for Read {
    fn resume(
        mut self: Box<Self>,
        turn: &mut Turn<'_>,
        operation: OperationId,
        result: Result<Bytes, Error>,
    ) -> Result<Progress, Error> {
        let Some(results) = self.calls.ended(operation, result)? else {
            return Ok(Progress::Wait(self));
        };
        for (position, result) in std::mem::take(&mut self.wave).into_iter().zip(results) {
            self.add(&position.id, result)?;
            self.last = Some(position);
        }
        self.next(turn)
    }
}

/// Says how a query would run.
struct Explain {
    program: Rc<RecordProgram>,
    type_index: usize,
    plan: Plan,
    order: String,
    calls: Calls,
}

impl Task for Explain {
    fn resume(
        mut self: Box<Self>,
        _: &mut Turn<'_>,
        operation: OperationId,
        result: Result<Bytes, Error>,
    ) -> Result<Progress, Error> {
        let Some(results) = self.calls.ended(operation, result)? else {
            return Ok(Progress::Wait(self));
        };
        let mut shards = Vec::with_capacity(results.len());
        for result in results {
            shards.push(decode::<Scanned>(&result?)?);
        }
        let body = Bytes::from(self.describe(&shards).to_string());
        Ok(Progress::Done(RecordReply { body, ..RecordReply::default() }.to_bytes()))
    }
}

impl Explain {
    fn describe(&mut self, shards: &[Scanned]) -> serde_json::Value {
        let of = &self.program.types[self.type_index];
        let mut why_not = std::mem::take(&mut self.plan.why_not);
        for (at, index) in of.indexes.iter().enumerate() {
            let building = shards.iter().filter(|shard| shard.incomplete.contains(&at)).count();
            if building > 0 {
                why_not.push(format!(
                    "the index {:?} is still being built in {building} of {} shards",
                    index.name,
                    shards.len()
                ));
            }
        }
        let scans = shards.iter().filter(|shard| shard.index.is_none()).count();
        let index = shards.iter().find_map(|shard| shard.index).filter(|_| scans == 0);
        if let Some(used) = index
            && shards.iter().any(|shard| shard.index != Some(used))
        {
            why_not.push("shards use different indexes, as their numbers of records differ".to_owned());
        }
        if shards.iter().any(|shard| shard.is_too_many) {
            why_not.push(format!("more than {} records of a shard would have to be sorted", limits::QUERY_SCANNED));
        }
        let range = |at: usize| -> Option<&Range> { self.plan.ranges.iter().find(|range| range.index == at) };
        let order = match self.order.as_str() {
            "" => json!({ "by": "id" }),
            path => json!({ "by": path, "sorts": shards.iter().any(|shard| shard.sorts || shard.is_too_many) }),
        };
        json!({
            "plan": if index.is_some() { "index" } else { "scan" },
            "index": index.map(|at| of.indexes[at].name.as_str()),
            "range": index.and_then(range).map(|range| range.demands.join(" && ")),
            "order": order,
            "shards": shards.len(),
            "why_not": why_not,
        })
    }
}
