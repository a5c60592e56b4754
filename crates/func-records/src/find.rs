//! The operation `Find`: the records of all shards that match a query, page by page.
//!
//! Every shard gives its first records, and how far it has looked. The nearest of these places is the end of the page,
//! because all shards have looked up to it. Records beyond it wait for the next page.
//!
//! A query takes at most [`limits::QUERY_STEPS`] steps for a page. All shards may take some of them at the same time,
//! as they mostly do. The shard whose end is nearest takes the others. So records that take many steps are looked at in
//! the page's order. However many they take, each page gets past at least one record.

use std::collections::VecDeque;
use std::rc::Rc;

use bytes::Bytes;
use millrace_api::{Form, RecordQuery, RecordReply};
use millrace_avpath::{Budget, EvaluationError};
use millrace_base::{Error, ErrorCode, limits};
use serde_json::json;

use crate::changes::page_limit;
use crate::effects::id_member;
use crate::get_many::wave;
use crate::merge::Merge;
use crate::page_cursor;
use crate::plan::{Plan, leaves, plan};
use crate::program::{READ, RecordProgram, RecordType, SCAN};
use crate::read::check_json;
use crate::rows::Position;
use crate::turn::{Calls, Gathers, Progress, Shared, Turn};
use crate::values::{self, Parameters};
use crate::wire::{Ask, Probe, Probed, Range, Scan, Scanned, Verdict, decode, decode_all, encode, encode_ask};

/// Steps that a visit of a shard may take at least, and its own cost beside what it looks at.
const VISIT_STEPS: usize = 1000;

/// Bytes of a record, or of parameters, that take a step to read.
const RECORD_PER_STEP: usize = 16;
const PARAMETERS_PER_STEP: usize = 4;

/// Whether a record matches a query, and where it stands in its order, within so many steps.
pub(crate) fn probe(
    shared: &Shared,
    of: &RecordType,
    value: &[u8],
    probe: &Probe<'_>,
    steps: usize,
) -> Result<Probed, Error> {
    let mut budget = Budget::new(steps);
    let verdict = match judge(shared, of, value, probe, &mut budget) {
        Err(Judged::Evaluation(EvaluationError::BudgetSpent)) => Verdict::Unknown,
        Err(Judged::Evaluation(error)) => return Err(error.into()),
        Err(Judged::Error(error)) => return Err(error),
        Ok(verdict) => verdict,
    };
    Ok(Probed { steps: steps - budget.left(), verdict })
}

/// Why nothing could be said of a record.
enum Judged {
    Evaluation(EvaluationError),
    Error(Error),
}

impl From<EvaluationError> for Judged {
    fn from(error: EvaluationError) -> Self {
        Self::Evaluation(error)
    }
}

impl From<Error> for Judged {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

fn judge(
    shared: &Shared,
    of: &RecordType,
    value: &[u8],
    probe: &Probe<'_>,
    budget: &mut Budget,
) -> Result<Verdict, Judged> {
    budget.charge(value.len() / RECORD_PER_STEP)?;
    if !probe.predicate.is_empty() {
        budget.charge(probe.parameters.len() / PARAMETERS_PER_STEP)?;
        let predicate = shared.predicate(probe.predicate)?;
        let parameters = Parameters::parse(probe.parameters).map_err(Error::from)?;
        if !predicate.matches_within(&of.schema, value, &parameters, budget)? {
            return Ok(Verdict::No);
        }
    }
    if probe.order.is_empty() {
        return Ok(Verdict::Yes(Vec::new()));
    }
    budget.charge(value.len() / RECORD_PER_STEP)?;
    let path = shared.path(probe.order)?;
    let keys = values::order_keys(&path, &of.schema, value, (false, true))?;
    Ok(keys.and_then(|keys| keys.into_iter().next()).map_or(Verdict::No, Verdict::Yes))
}

/// A query as asked, kept while it waits.
struct Query {
    predicate: String,
    parameters: String,
    order: String,
    prefix: Vec<u8>,
    form: Form,
    ids_only: bool,
}

/// The question to the shards.
struct Plot {
    query: Query,
    ranges: Vec<Range>,
    order_index: Option<usize>,
    limit: usize,
    is_explained: bool,
}

/// One visit of a shard.
struct Visit {
    after: Option<Position>,
    until: Option<Position>,
    steps: usize,
    is_patient: bool,
}

impl Plot {
    /// The path to order by, and whether the order is descending.
    fn order(&self) -> (&str, bool) {
        order_of(&self.query.order)
    }

    fn input(&self, visit: Visit) -> Bytes {
        let Query { predicate, parameters, prefix, .. } = &self.query;
        let (order, is_descending) = self.order();
        encode(&Scan {
            probe: Probe { predicate, parameters, order, is_descending },
            prefix,
            ranges: self.ranges.clone(),
            order_index: self.order_index,
            after: visit.after.map(Position::into_pair),
            limit: self.limit,
            explain: self.is_explained,
            steps: visit.steps,
            until: visit.until.map(Position::into_pair),
            is_patient: visit.is_patient,
        })
    }

    /// The steps that all shards may take at first. Sorting ends within them or not at all. Otherwise most steps are
    /// kept for going on where it helps.
    fn first_steps(&self, shards: usize) -> usize {
        let share = if self.query.order.is_empty() { limits::QUERY_STEPS / 4 } else { limits::QUERY_STEPS };
        (share / shards.max(1)).clamp(VISIT_STEPS, limits::QUERY_VISIT_STEPS)
    }
}

/// The path of `-.path`, and whether it has the sign.
fn order_of(order: &str) -> (&str, bool) {
    order.strip_prefix('-').map_or((order, false), |order| (order, true))
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
    let (order, is_descending) = order_of(query.order);
    let order_index = check_order(turn.shared, of, order, is_descending)?;
    let found = match query.predicate {
        "" => Plan { ranges: Vec::new(), why_not: Vec::new() },
        text => {
            let predicate = turn.shared.predicate(text)?;
            predicate.check_parameters(&parameters)?;
            plan(of, &predicate, &parameters)?
        }
    };
    let plot = Plot {
        query: Query {
            predicate: query.predicate.to_owned(),
            parameters: query.parameters.to_owned(),
            order: query.order.to_owned(),
            prefix: query.prefix.to_vec(),
            form: query.form,
            ids_only: query.ids_only,
        },
        ranges: found.ranges.clone(),
        order_index,
        limit: page_limit(query.limit),
        is_explained: query.explain,
    };
    let shards = turn.shared.shard_keys.len();
    let steps = plot.first_steps(shards);
    let input = plot.input(Visit { after: after.clone(), until: None, steps, is_patient: false });
    let calls = turn.call_shards((of.shard_service, SCAN), std::iter::repeat(input))?;
    if query.explain {
        let mut plan = found;
        if !query.order.is_empty() && order_index.is_none() {
            plan.why_not.push(format!("no index has the order of {order}"));
        }
        let (program, order) = (Rc::clone(&program), query.order.to_owned());
        return Ok(Progress::Wait(Box::new(Explain { program, type_index, plan, order, calls })));
    }
    let merge = Merge::new(shards, after, plot.limit, is_descending);
    let find = Find {
        program: Rc::clone(&program),
        type_index,
        plot,
        merge,
        steps: limits::QUERY_STEPS,
        visited: None,
        calls,
    };
    Ok(Progress::Wait(Box::new(find)))
}

/// Checks what to order by. Returns the index that has that order, if there is one.
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

/// Waits for shards.
struct Find {
    program: Rc<RecordProgram>,
    type_index: usize,
    plot: Plot,
    merge: Merge,
    /// Steps that are left.
    steps: usize,
    /// The shard that is waited for; `None` for all.
    visited: Option<usize>,
    calls: Calls,
}

impl Find {
    fn add(&mut self, results: Vec<Result<Bytes, Error>>) -> Result<(), Error> {
        let first = self.visited.unwrap_or(0);
        for (shard, result) in (first..).zip(results) {
            let scanned = decode::<Scanned>(&result?)?;
            if scanned.is_too_many || scanned.is_too_much {
                return Err(refuse_sorting(&self.program.types[self.type_index], &self.plot, &scanned));
            }
            self.steps = self.steps.saturating_sub(scanned.steps);
            self.merge.add(shard, scanned);
        }
        Ok(())
    }

    /// Lets a shard look farther, if that helps and steps are left. Otherwise reads the page.
    fn go_on(mut self: Box<Self>, turn: &mut Turn<'_>) -> Result<Progress, Error> {
        if let Some(on) = self.merge.go_on()
            && (on.is_needed || self.steps > 0)
        {
            self.steps = self.steps.saturating_sub(VISIT_STEPS);
            let steps = limits::QUERY_VISIT_STEPS.min(self.steps.max(VISIT_STEPS));
            let input = self.plot.input(Visit { after: on.after, until: on.until, steps, is_patient: true });
            let key = turn.shared.shard_keys[on.shard].clone();
            let service = self.program.types[self.type_index].shard_service;
            self.calls.push(turn.call((service, SCAN), &key, input)?);
            self.visited = Some(on.shard);
            return Ok(Progress::Wait(self));
        }
        let (found, next) = self.merge.page();
        let read = Read {
            type_index: self.type_index,
            type_name: self.program.types[self.type_index].name.as_str().to_owned(),
            query: self.plot.query,
            left: found.into(),
            next,
            wave: Vec::new(),
            last: None,
            calls: Calls::default(),
            body: b"{\"records\":[".to_vec(),
            read: 0,
            count: 0,
        };
        read.next(turn)
    }
}

impl Gathers for Find {
    fn calls(&mut self) -> &mut Calls {
        &mut self.calls
    }

    fn gathered(
        mut self: Box<Self>,
        turn: &mut Turn<'_>,
        results: Vec<Result<Bytes, Error>>,
    ) -> Result<Progress, Error> {
        self.add(results)?;
        self.go_on(turn)
    }
}

/// Only an order without an index makes a shard look at everything at once.
fn refuse_sorting(of: &RecordType, plot: &Plot, shard: &Scanned) -> Error {
    let (order, _) = plot.order();
    let building = shard.incomplete.iter().filter_map(|at| of.indexes.get(*at)).map(|index| index.name.as_str());
    let building: Vec<&str> = building.collect();
    let what_to_do = if building.is_empty() {
        format!("declare an index on {order}, or narrow the query down")
    } else {
        format!("the index {} is still being built: try again later", building.join(", "))
    };
    let why = if shard.is_too_many {
        format!("more than {} records of a shard would have to be sorted by {order}", limits::QUERY_SCANNED)
    } else {
        format!("all records have to be looked at to sort them by {order}, and that takes more than a query may take")
    };
    Error::new(ErrorCode::BadRequest, format!("{why}: {what_to_do}"))
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
    /// Records asked for so far, and how many of them are on the page.
    read: usize,
    count: u32,
}

impl Read {
    fn next(mut self, turn: &mut Turn<'_>) -> Result<Progress, Error> {
        if self.body.len() > limits::OUTPUT_BYTES && !self.left.is_empty() {
            // Enough for one page: the rest is for the next one.
            self.left.clear();
            self.next = self.last.take();
        }
        let most = wave(self.read, self.body.len());
        self.wave = self.left.drain(..self.left.len().min(most)).collect();
        self.read += self.wave.len();
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

impl Gathers for Read {
    fn calls(&mut self) -> &mut Calls {
        &mut self.calls
    }

    fn gathered(
        mut self: Box<Self>,
        turn: &mut Turn<'_>,
        results: Vec<Result<Bytes, Error>>,
    ) -> Result<Progress, Error> {
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

impl Gathers for Explain {
    fn calls(&mut self) -> &mut Calls {
        &mut self.calls
    }

    fn gathered(mut self: Box<Self>, _: &mut Turn<'_>, results: Vec<Result<Bytes, Error>>) -> Result<Progress, Error> {
        let shards: Vec<Scanned> = decode_all(results)?;
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
