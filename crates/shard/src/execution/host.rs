//! The world as one activation sees it during one turn.
//!
//! Reads see the transaction's own buffered writes over the store. Writes are buffered; nothing
//! reaches the store before the commit.

use std::collections::BTreeMap;

use bytes::Bytes;
use millrace_base::{EntityKey, Error, ErrorCode, ShardId, UnixMillis, Value, limits};
use millrace_func::{
    ActivationId, AttemptToken, BuiltInCall, BuiltInHost, EntityScan, EntityVisitor, FetchRequest, HandlerId,
    HandlerKind, Host, Loaded, LogLevel, Message, NestedCall, Offload, OperationId, Program, ScanRequest, WorkerHost,
    WorkerTurn,
};
use millrace_store::{Store, StoreError};

use super::keys::{KeyRange, entity_keys, visit_rows};
use super::lost::ends_ms;
use super::origin::Origin;
use super::transaction::{Action, Instance, Parent, PendingCall, Touched, Transaction, Undo};
use crate::built_in::{built_in_call, check_built_in, find_elsewhere};
use crate::checks::{check_callee, check_key, may_fetch, refused};
use crate::context::store_failed;
use crate::outgoing::{Outgoing, signal_target, started_workflow, told_id};
use crate::participation::Participations;
use crate::request::{OffloadTicket, Sequence};
use crate::world::{Outputs, World};

/// The shard a transaction runs in: its id, its store, and what others have prepared there.
pub(super) struct OwnShard<'a> {
    pub shard: ShardId,
    pub store: &'a mut Store,
    pub participations: &'a Participations,
}

pub(super) struct TurnHost<'a, 'w> {
    /// `None` while a route has no shard yet.
    pub own: Option<OwnShard<'a>>,
    pub shard_count: u16,
    pub transaction: &'a mut Transaction,
    pub world: &'a mut World<'w>,
    pub activation: ActivationId,
}

impl TurnHost<'_, '_> {
    /// The activation's entity, as an index into the touched ones.
    fn entity(&self) -> Result<usize, Error> {
        self.transaction
            .activation(self.activation)
            .and_then(|state| state.entity)
            .ok_or_else(|| refused("a route has no entity of its own: reach one with ctx.call"))
    }

    fn check_may_write(&self) -> Result<(), Error> {
        match self.transaction.activation(self.activation).map(|state| state.kind) {
            Some(HandlerKind::Transaction) => Ok(()),
            _ => Err(refused("a query cannot change anything")),
        }
    }

    /// The activation's instance and depth, and the number of its next operation.
    fn next_operation(&mut self) -> Result<(u64, usize, OperationId), Error> {
        let state = self.transaction.activation_mut(self.activation).ok_or_else(|| refused("the call has ended"))?;
        state.next_operation += 1;
        Ok((state.instance, state.depth, OperationId(state.next_operation)))
    }

    /// Whether something may be taken back without the whole transaction: not with a single activation.
    fn may_be_taken_back(&self) -> bool {
        self.transaction.activations.len() > 1 || self.transaction.is_spread
    }

    /// Remembers what `field` was buffered as, so that a failing nested call can be taken back.
    fn remember(&mut self, touched: usize, field: &[u8]) {
        if self.may_be_taken_back() {
            let before = self.transaction.touched[touched].writes.get(field).cloned();
            let owner = self.transaction.activation(self.activation).map(|state| state.instance);
            self.transaction.undo.push((owner, Undo::Write { touched, field: field.into(), before }));
        }
    }

    /// The app version that the activation runs in.
    fn program(&self) -> Program {
        self.transaction.activation(self.activation).map_or(self.transaction.program, |state| state.program)
    }

    /// How large a field's value may be: each app says so for its own entities.
    fn value_bytes(&self) -> usize {
        let own = Some(self.program()).filter(|program| *program != self.transaction.program);
        let loaded = own.and_then(|program| self.world.catalog.program(program));
        loaded.map_or(self.transaction.limits.value_bytes, |loaded| loaded.limits.value_bytes)
    }

    fn check_may_send(&self) -> Result<(), Error> {
        let is_route = self.transaction.activation(self.activation).is_some_and(|state| state.entity.is_none());
        if is_route { Ok(()) } else { self.check_may_write() }
    }

    fn add_outgoing(&mut self, outgoing: Outgoing, size_bytes: usize) -> Result<(), Error> {
        // A message's place in its entry is a u16.
        let limit = self.transaction.limits.messages_per_call.min(usize::from(u16::MAX));
        if self.transaction.messages.len() >= limit {
            return Err(Error::new(
                ErrorCode::OperationLimit,
                format!("more than {limit} messages in one transaction"),
            ));
        }
        self.transaction.write_bytes += size_bytes + MESSAGE_BYTES;
        if self.transaction.write_bytes > limits::ENTRY_BYTES {
            let message = format!("what one transaction writes is over {} bytes", limits::ENTRY_BYTES);
            return Err(Error::new(ErrorCode::SizeLimit, message));
        }
        if self.may_be_taken_back() {
            let owner = self.transaction.activation(self.activation).map(|state| state.instance);
            self.transaction.undo.push((owner, Undo::Message));
        }
        self.transaction.messages.push(outgoing);
        Ok(())
    }

    /// Begins work outside the shard, unless a route did so before it had to start again: then
    /// what it gave is known.
    fn begin_outside(&mut self, begin: impl FnOnce(&mut dyn Outputs, OffloadTicket)) -> Result<OperationId, Error> {
        let (instance, _, operation) = self.next_operation()?;
        let is_route = self.transaction.activation(self.activation).is_some_and(|state| state.entity.is_none());
        if is_route {
            let asked = self.transaction.known_used;
            self.transaction.known_used += 1;
            if let Some(result) = self.transaction.known.get(asked).cloned() {
                self.transaction.ready.push_back(Action::Resume { activation: instance, operation, result });
                return Ok(operation);
            }
        }
        let ticket = self.ticket(instance, operation);
        begin(self.world.outputs, ticket);
        Ok(operation)
    }

    /// Under what comes back what somebody outside the shard works on from now on.
    fn ticket(&mut self, instance: Instance, operation: OperationId) -> OffloadTicket {
        self.transaction.outside.push((instance, operation));
        OffloadTicket {
            shard: self.own.as_ref().map(|own| own.shard),
            nonce: self.transaction.nonce(),
            activation: self.activation,
            instance,
            operation,
        }
    }

    fn write(&mut self, field: &[u8], value: Option<Value>) -> Result<(), Error> {
        self.check_may_write()?;
        let touched = self.entity()?;
        let size_bytes = value.as_ref().map_or(0, |value| value.content().len());
        let value_bytes = self.value_bytes();
        let app_limits = &self.transaction.limits;
        let over =
            |what: &str, limit: usize| Err(Error::new(ErrorCode::SizeLimit, format!("{what} is over {limit} bytes")));
        if field.len() > limits::FIELD_BYTES {
            return over("a field's name", limits::FIELD_BYTES);
        }
        if size_bytes > value_bytes {
            return over(&format!("the value of field {:?}", String::from_utf8_lossy(field)), value_bytes);
        }
        if self.transaction.write_count >= app_limits.writes_per_call {
            let message = format!("more than {} writes in one transaction", app_limits.writes_per_call);
            return Err(Error::new(ErrorCode::OperationLimit, message));
        }
        // What is overwritten later still counts: the bound holds for the work, not only the entry.
        self.transaction.write_bytes += field.len() + size_bytes;
        if self.transaction.write_bytes > limits::ENTRY_BYTES {
            return over("what one transaction writes", limits::ENTRY_BYTES);
        }
        self.transaction.write_count += 1;
        self.remember(touched, field);
        let touched = &mut self.transaction.touched[touched];
        touched.changes += 1;
        touched.writes.insert(field.into(), value);
        Ok(())
    }
}

impl Host for TurnHost<'_, '_> {
    fn get(&mut self, field: &[u8]) -> Result<Option<&Value>, Error> {
        let index = self.entity()?;
        let touched = &self.transaction.touched[index];
        if !touched.writes.is_empty()
            && let Some(buffered) = touched.writes.get(field)
        {
            return Ok(buffered.as_ref());
        }
        let Some(own) = &mut self.own else {
            return Err(refused("a route has no entity of its own: reach one with ctx.call"));
        };
        own.store.get(&touched.entity, field).map_err(|error| store_failed(&error))
    }

    fn set(&mut self, field: &[u8], value: Value) -> Result<(), Error> {
        self.write(field, Some(value))
    }

    fn delete(&mut self, field: &[u8]) -> Result<bool, Error> {
        let was_there = self.get(field)?.is_some();
        self.write(field, None)?;
        Ok(was_there)
    }

    fn scan(&mut self, request: &ScanRequest) -> Result<Vec<(Vec<u8>, Value)>, Error> {
        let index = self.entity()?;
        let Some(own) = &mut self.own else {
            return Err(refused("a route has no entity of its own: reach one with ctx.call"));
        };
        let touched = &self.transaction.touched[index];
        let limit = request.limit.min(limits::SCAN_ROWS);
        let (rows, is_cut) = merged_scan(own.store, touched, request, limit).map_err(|error| store_failed(&error))?;
        if is_cut {
            let message = format!("the fields asked for have more than {} bytes: ask for fewer", limits::SCAN_BYTES);
            return Err(Error::new(ErrorCode::SizeLimit, message));
        }
        Ok(rows)
    }

    fn keys(&mut self, service: u16, prefix: &[u8], after: Option<&[u8]>, limit: usize) -> Result<Vec<Vec<u8>>, Error> {
        self.entity()?;
        let program = self.program();
        let Some(own) = &mut self.own else {
            return Err(refused("a route has no shard of its own: reach entities with ctx.call"));
        };
        let loaded = world_program(self.world, program)?;
        let service = loaded.services.get(usize::from(service));
        let service = service.ok_or_else(|| Error::new(ErrorCode::UnknownService, "the app has no such service"))?;
        let (app, service) = (&loaded.app, &service.name);
        let limit = limit.min(limits::SCAN_ROWS);
        let range = KeyRange { app, service, prefix, after, limit };
        let (found, seen) = entity_keys(own, self.transaction, &range).map_err(|error| store_failed(&error))?;
        self.transaction.newest_read = self.transaction.newest_read.max(seen);
        Ok(found)
    }

    fn operate(&mut self, call: BuiltInCall<'_>) -> Result<OperationId, Error> {
        let own = self.entity().ok().map(|index| self.transaction.touched[index].entity.parts().key);
        // Any shard can answer. A repeated route has to choose the same, or it would not find its
        // own result.
        let any = || {
            let origin = &self.transaction.origin;
            origin.route_key().unwrap_or(origin.nonce()).to_string().into_bytes()
        };
        let call = built_in_call(self.program(), call, || own.unwrap_or_else(any), self.world)?;
        self.call(call)
    }

    fn call(&mut self, call: NestedCall) -> Result<OperationId, Error> {
        let state = self.transaction.activation(self.activation).ok_or_else(|| refused("the call has ended"))?;
        let depth_limit = self.transaction.limits.call_depth;
        if state.depth + 1 > depth_limit {
            return Err(Error::new(ErrorCode::DepthLimit, format!("calls nest deeper than {depth_limit}")));
        }
        let is_query = state.kind == HandlerKind::Query && state.entity.is_some();
        if is_query && self.world.catalog.kind(call.handler) == HandlerKind::Transaction {
            return Err(refused("a query can call queries only"));
        }
        check_callee(&call, &self.transaction.limits, self.world)?;
        if self.transaction.call_count >= limits::CALLS_PER_TRANSACTION {
            let message = format!("more than {} calls in one transaction", limits::CALLS_PER_TRANSACTION);
            return Err(Error::new(ErrorCode::OperationLimit, message));
        }
        self.transaction.call_count += 1;
        let (caller, depth, operation) = self.next_operation()?;
        let parent = Parent::ActivationId(caller, operation);
        let call = PendingCall::new(parent, Some(caller), depth + 1, call);
        self.transaction.ready.push_back(Action::Call(call));
        Ok(operation)
    }

    fn send(&mut self, message: Message) -> Result<Option<String>, Error> {
        self.check_may_send()?;
        check_key(&message.key, self.transaction.limits.key_bytes)?;
        let started = started_workflow(&message, self.shard_count, self.world)?;
        let workflow = started.map(|started| started.id(|| Sequence::drawn([self.random(), self.random()])));
        let size_bytes = message.key.len() + message.input.len();
        let told = told_id(&message, workflow);
        self.add_outgoing(Outgoing::Message(message, workflow), size_bytes)?;
        Ok(told)
    }

    fn offload(&mut self, work: Offload) -> Result<OperationId, Error> {
        self.begin_outside(|outputs, ticket| outputs.offload(ticket, work))
    }

    fn signal(&mut self, invocation: &str, name: &str, payload: Bytes) -> Result<(), Error> {
        self.check_may_send()?;
        if self.program() != self.transaction.program {
            // It would go out in the caller's name, whose workflows are none of the callee's business.
            return Err(refused("what runs for a built-in app sends no signals: have a message do it"));
        }
        let to = signal_target(invocation, self.shard_count)?;
        check_key(name.as_bytes(), limits::KEY_BYTES)?;
        let size_bytes = name.len() + payload.len();
        self.add_outgoing(Outgoing::Signal { to, name: name.to_owned(), payload }, size_bytes)
    }

    fn fetch(&mut self, request: FetchRequest) -> Result<OperationId, Error> {
        let transaction = &*self.transaction;
        let activation = transaction.activation(self.activation);
        if activation.is_none_or(|state| state.entity.is_some()) {
            return Err(refused("ctx.fetch is for routes and workflows: a transaction must not wait for the outside"));
        }
        if transaction.call_count > 0 {
            return Err(refused(
                "ctx.fetch comes before a route's first ctx.call: entities would stay locked meanwhile",
            ));
        }
        may_fetch(transaction.program, &request, self.world)?;
        self.begin_outside(|outputs, ticket| outputs.fetch(ticket, request))
    }

    fn cpu_spent_ns(&self) -> u64 {
        self.transaction.cpu.spent_ns()
    }

    fn spend_cpu(&mut self, turn_ns: u64) {
        self.transaction.cpu.spend(turn_ns);
        self.world.cpu_ns = self.world.cpu_ns.saturating_add(turn_ns);
    }

    fn built_in(&mut self) -> Result<&mut dyn BuiltInHost, Error> {
        check_built_in(self.program(), self.world)?;
        Ok(self)
    }

    fn worker(&mut self) -> Result<&mut dyn WorkerHost, Error> {
        Ok(self)
    }

    fn now(&self) -> UnixMillis {
        self.transaction.origin.time()
    }

    fn random(&mut self) -> u64 {
        let index = self.transaction.random_index;
        self.transaction.random_index = index.wrapping_add(1);
        match self.transaction.origin.route_key() {
            // A repeated route must choose the same keys, or it would not find its own result.
            Some(key) => self.world.entropy.draw_keyed(key, index),
            None => match &self.transaction.origin {
                Origin::Participation { begin, .. } => self.world.entropy.draw(begin.seed, index),
                origin => self.world.entropy.draw(origin.nonce(), index),
            },
        }
    }

    fn log(&mut self, level: LogLevel, line: &str) {
        let loaded = self.world.catalog.program(self.program());
        let app = loaded.map_or("", |loaded| loaded.app.as_str());
        let entity = self.transaction.activation(self.activation).and_then(|state| state.entity);
        let service = entity.map(|index| self.transaction.touched[index].entity.parts().service).unwrap_or_default();
        self.world.outputs.log(app, &service, level, line);
    }
}

impl WorkerHost for TurnHost<'_, '_> {
    fn exchange(&mut self, turn: WorkerTurn) -> Result<OperationId, Error> {
        let (instance, _, operation) = self.next_operation()?;
        let transaction = &mut *self.transaction;
        let is_alone = transaction.activations.len() == 1 && transaction.touched.len() == 1;
        if let Some(state) = transaction.activation_mut(self.activation) {
            state.is_on_worker = true;
        }
        transaction.is_unlocked = turn.needs_no_lock && is_alone && !transaction.takes_locks;
        let ticket = self.ticket(instance, operation);
        self.world.outputs.exchange(ticket, turn);
        Ok(operation)
    }

    fn attempt(&mut self) -> AttemptToken {
        // No run of the process takes a nonce twice, so no attempt has another's bits.
        let instance = self.transaction.activation(self.activation).map(|state| state.instance);
        self.world.attempt_token(instance.unwrap_or_default())
    }

    fn left_ms(&mut self, timeout_ms: u64) -> u64 {
        if self.transaction.activation(self.activation).is_some_and(|state| state.parent.is_none()) {
            self.transaction.worker_ms = Some(timeout_ms);
        }
        ends_ms(self.transaction).saturating_sub(self.world.monotonic_ms).min(timeout_ms)
    }

    fn entity_changes(&self) -> u64 {
        self.entity().map_or(0, |index| self.transaction.touched[index].changes)
    }

    fn whole(&mut self, max_bytes: usize) -> Result<Option<Vec<(Vec<u8>, Value)>>, Error> {
        let index = self.entity()?;
        let Some(own) = &mut self.own else {
            return Err(refused("a route has no entity of its own: reach one with ctx.call"));
        };
        whole_entity(own.store, &self.transaction.touched[index], max_bytes).map_err(|error| store_failed(&error))
    }
}

impl BuiltInHost for TurnHost<'_, '_> {
    fn visit_entities(&mut self, scan: &EntityScan, visit: &mut EntityVisitor<'_>) -> Result<(), Error> {
        self.entity()?;
        let program = self.program();
        let Some(own) = &mut self.own else {
            return Err(refused("a route has no shard of its own: reach entities with ctx.call"));
        };
        let loaded = world_program(self.world, program)?;
        let service = loaded.services.get(usize::from(scan.service));
        let service = service.ok_or_else(|| Error::new(ErrorCode::UnknownService, "the app has no such service"))?;
        let names = (&loaded.app, &service.name);
        let seen = visit_rows(own, self.transaction, names, scan, visit).map_err(|error| store_failed(&error))?;
        self.transaction.newest_read = self.transaction.newest_read.max(seen);
        Ok(())
    }

    fn release_body(&mut self, number: u64) -> Result<(), Error> {
        self.check_may_write()?;
        if self.may_be_taken_back() {
            let owner = self.transaction.activation(self.activation).map(|state| state.instance);
            self.transaction.undo.push((owner, Undo::ReleasedBody));
        }
        self.transaction.released_bodies.push(number);
        Ok(())
    }

    fn shard_count(&self) -> u16 {
        self.shard_count
    }

    fn find(&mut self, names: [&str; 3], on_behalf_of: Option<&str>) -> Result<HandlerId, Error> {
        find_elsewhere(self.program(), names, on_behalf_of, self.world)
    }
}

fn world_program<'w>(world: &World<'w>, program: Program) -> Result<&'w Loaded, Error> {
    let gone = || Error::new(ErrorCode::UnknownApp, "the app is not loaded any more");
    world.catalog.program(program).ok_or_else(gone)
}

/// What a message takes in an entry beside key and input, about.
const MESSAGE_BYTES: usize = 64;

pub(super) type Row = (Vec<u8>, Value);

/// Merges the transaction's buffered writes over the store's rows, in field order. Says whether rows are missing because
/// there were too many bytes.
pub(crate) fn merged_scan(
    store: &mut Store,
    touched: &Touched,
    request: &ScanRequest,
    limit: usize,
) -> Result<(Vec<Row>, bool), StoreError> {
    let after = request.after.as_deref();
    let is_wanted = |field: &[u8]| field.starts_with(&request.prefix) && after.is_none_or(|after| field > after);
    let buffered: BTreeMap<&[u8], Option<&Value>> = touched
        .writes
        .iter()
        .filter(|(field, _)| is_wanted(field))
        .map(|(field, value)| (&**field, value.as_ref()))
        .collect();
    // Each buffered deletion can hide one stored row, so that many more are asked for.
    let deletions = buffered.values().filter(|value| value.is_none()).count();
    let (stored, is_cut) = unhidden_rows(store, &touched.entity, request, limit + deletions, &buffered)?;
    // What comes behind the last row that was read may come behind others that were not.
    let end = stored.last().map(|(field, _)| field.clone()).filter(|_| is_cut);
    let mut merged: BTreeMap<Vec<u8>, Value> = stored.into_iter().collect();
    for (field, value) in buffered {
        if let Some(value) = value {
            merged.insert(field.to_vec(), value.clone());
        }
    }
    let is_known = |field: &Vec<u8>| end.as_ref().is_none_or(|end| field <= end);
    let rows: Vec<Row> = merged.into_iter().take_while(|(field, _)| is_known(field)).take(limit).collect();
    let is_short = is_cut && rows.len() < limit;
    Ok((rows, is_short))
}

/// All fields of an entity with the transaction's buffered writes, if they have at most `max_bytes`.
fn whole_entity(store: &mut Store, touched: &Touched, max_bytes: usize) -> Result<Option<Vec<Row>>, StoreError> {
    let (stored, is_cut) =
        store.scan_fields_within(&touched.entity, b"", None, limits::SCAN_ROWS, max_bytes.saturating_add(1))?;
    // What the transaction deletes could make room; such an entity was small before, or is not sent as a whole.
    if is_cut || stored.len() >= limits::SCAN_ROWS {
        return Ok(None);
    }
    let mut rows: BTreeMap<Vec<u8>, Value> =
        stored.into_iter().map(|(field, value)| (field.into_vec(), value)).collect();
    for (field, value) in &touched.writes {
        match value {
            Some(value) => rows.insert(field.to_vec(), value.clone()),
            None => rows.remove(&**field),
        };
    }
    let size_bytes: usize = rows.iter().map(|(field, value)| field.len() + value.content().len()).sum();
    Ok((size_bytes <= max_bytes).then(|| rows.into_iter().collect()))
}

/// Up to `limit` of the store's rows, those left out that a transaction has written or deleted itself; and whether
/// they ended because they have too many bytes. What is left out has none of these.
fn unhidden_rows(
    store: &mut Store,
    entity: &EntityKey,
    request: &ScanRequest,
    limit: usize,
    buffered: &BTreeMap<&[u8], Option<&Value>>,
) -> Result<(Vec<Row>, bool), StoreError> {
    let mut after = request.after.clone();
    let (mut rows, mut left, mut left_bytes) = (Vec::new(), limit, limits::SCAN_BYTES);
    loop {
        let found = store.scan_fields_within(entity, &request.prefix, after.as_deref(), left, left_bytes)?;
        let (found, is_cut) = found;
        left -= found.len();
        after = found.last().map(|(field, _)| field.to_vec());
        for (field, value) in found {
            if !buffered.contains_key(&*field) {
                left_bytes = left_bytes.saturating_sub(field.len() + value.encoded().len());
                rows.push((field.into_vec(), value));
            }
        }
        if !is_cut || left == 0 || left_bytes == 0 {
            return Ok((rows, is_cut && left_bytes == 0));
        }
    }
}
