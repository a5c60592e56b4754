//! One running transaction: its activations, what it has touched, and what it would write.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use millrace_base::{EntityKey, Error, ErrorCode, Lsn, Value};
use millrace_format::Write;
use millrace_func::{ActivationId, HandlerKind, Limits, NestedCall, OperationId, Output, Program, TurnResult};

pub(super) use super::activations::{Action, Activation, AwayCall, Instance, Owner, Parent, PendingCall, Undo};
use super::cpu::Cpu;
use super::origin::Origin;
use crate::locks::Age;
use crate::outgoing::Outgoing;
use crate::peer::CallNumber;
use crate::world::World;

/// An entity this transaction has touched.
pub(super) struct Touched {
    pub entity: EntityKey,
    /// Whether a handler that may write has run on it.
    pub is_exclusive: bool,
    /// Whether it holds the entity in the lock table, and if so, whether alone.
    pub held_alone: Option<bool>,
    /// How often its buffered writes have changed.
    pub changes: u64,
    /// Buffered writes: field → new value, or `None` for a deletion.
    pub writes: BTreeMap<Box<[u8]>, Option<Value>>,
}

pub(super) struct Transaction {
    pub origin: Origin,
    /// The app version its root runs in. Calls stay within one app, but for operations of built-in apps.
    pub program: Program,
    pub limits: Limits,
    /// Handlers and routes that run or wait, in the order they were started.
    pub activations: Vec<Activation>,
    pub touched: Vec<Touched>,
    pub messages: Vec<Outgoing>,
    /// Bodies that nothing refers to once it is committed. A participation forgets them: a later look at all bodies finds
    /// them.
    pub released_bodies: Vec<u64>,
    /// Changes in order, with whose failure takes them back.
    pub undo: Vec<(Option<Owner>, Undo)>,
    pub ready: VecDeque<Action>,
    /// What work outside has given a route, in the order of the requests.
    pub known: Vec<Result<Bytes, Error>>,
    /// How much of that this attempt has used.
    pub known_used: usize,
    /// Operations that somebody outside the shard works on.
    pub outside: Vec<(Instance, OperationId)>,
    /// Other shards have a part in this attempt.
    pub is_spread: bool,
    /// What is to be done here when nothing is being taken back elsewhere.
    deferred: VecDeque<Action>,
    /// Whether it has called a handler of another shard that may write.
    pub writes_away: bool,
    /// It is a workflow's call, which another shard has committed alone, keeping its result.
    pub is_kept_away: bool,
    /// Calls made from here to other shards whose effects still stand.
    pub away: Vec<AwayCall>,
    /// Such calls whose effects other shards have to take back.
    pub to_take_back: Vec<CallNumber>,
    pub cpu: Cpu,
    pub call_count: usize,
    pub write_count: usize,
    pub write_bytes: usize,
    pub random_index: u32,
    /// The newest entry it has read beside those of the entities it touched.
    pub newest_read: Lsn,
    /// How long its root may take on a worker, once it has begun there.
    pub worker_ms: Option<u64>,
    /// It has been suspended or started again: even its queries respect locks from then on.
    pub takes_locks: bool,
    /// It is a query that has read all of its entity and waits for a worker that needs no more: it holds nothing meanwhile.
    pub is_unlocked: bool,
    /// Entities it holds in the lock table.
    pub held: Vec<EntityKey>,
    /// It held nothing when it began to queue, so that whom it waits for may be older.
    pub may_wait_for_older: bool,
    /// Calls that other shards have made to this one, with the calls they are nested in, where that was told.
    pub callers: BTreeMap<CallNumber, Vec<CallNumber>>,
    /// Calls that wait until what runs on their entity in this very transaction has ended, or for rows.
    pub put_aside: Vec<PendingCall>,
    /// Calls that wait for an entity.
    pub blocked: Vec<(EntityKey, PendingCall)>,
    /// Entities it need not wait for any more, because who wanted them has failed.
    pub unwanted: Vec<EntityKey>,
    /// What the root gave, once it has ended.
    pub result: Option<Result<Output, Error>>,
}

impl Transaction {
    /// On the heap: it moves between the shard's tables and its turns.
    pub(crate) fn new(mut origin: Origin, program: Program, limits: Limits) -> Box<Self> {
        let known = if let Origin::Route(_, call) = &mut origin { std::mem::take(&mut call.known) } else { Vec::new() };
        Box::new(Self {
            origin,
            program,
            limits,
            activations: Vec::with_capacity(2),
            touched: Vec::with_capacity(1),
            messages: Vec::new(),
            released_bodies: Vec::new(),
            undo: Vec::new(),
            ready: VecDeque::new(),
            known,
            known_used: 0,
            outside: Vec::new(),
            is_spread: false,
            deferred: VecDeque::new(),
            writes_away: false,
            is_kept_away: false,
            away: Vec::new(),
            to_take_back: Vec::new(),
            cpu: Cpu::default(),
            call_count: 0,
            write_count: 0,
            write_bytes: 0,
            random_index: 0,
            newest_read: Lsn::ZERO,
            worker_ms: None,
            takes_locks: false,
            is_unlocked: false,
            held: Vec::new(),
            may_wait_for_older: false,
            callers: BTreeMap::new(),
            put_aside: Vec::new(),
            blocked: Vec::new(),
            unwanted: Vec::new(),
            result: None,
        })
    }

    /// What to start it again from: a route brings along what work outside has given it.
    pub(crate) fn into_origin(self: Box<Self>) -> Origin {
        let mut origin = self.origin;
        if let Origin::Route(_, call) = &mut origin {
            call.known = self.known;
        }
        origin
    }

    pub(crate) fn age(&self) -> Age {
        self.origin.age()
    }

    pub(crate) fn nonce(&self) -> u64 {
        self.origin.nonce()
    }

    pub(crate) fn activation(&self, activation: ActivationId) -> Option<&Activation> {
        self.activations.iter().find(|state| state.activation == activation)
    }

    pub(crate) fn activation_mut(&mut self, activation: ActivationId) -> Option<&mut Activation> {
        self.activations.iter_mut().find(|state| state.activation == activation)
    }

    /// The activation of this instance, if it has not ended.
    pub(crate) fn live_activation(&self, instance: Instance) -> Option<ActivationId> {
        self.activations.iter().find(|state| state.instance == instance).map(|state| state.activation)
    }

    /// Index of `entity` among the touched ones, if it is.
    pub(crate) fn touched_index(&self, entity: &EntityKey) -> Option<usize> {
        self.touched.iter().position(|touched| touched.entity == *entity)
    }

    /// Adds `entity`, or makes its touch exclusive.
    pub(crate) fn touch(&mut self, entity: EntityKey, is_exclusive: bool) -> usize {
        if let Some(index) = self.touched_index(&entity) {
            self.touched[index].is_exclusive |= is_exclusive;
            return index;
        }
        self.touched.push(Touched { entity, is_exclusive, held_alone: None, changes: 0, writes: BTreeMap::new() });
        self.touched.len() - 1
    }

    /// Adds the root's activation.
    pub(crate) fn add_root(&mut self, entity: Option<usize>, kind: HandlerKind, world: &mut World<'_>) -> ActivationId {
        self.add_activation(Activation {
            activation: world.activations.take(),
            instance: world.take_nonce(),
            program: self.program,
            entity,
            kind,
            parent: None,
            owner: None,
            depth: 0,
            next_operation: 0,
            is_on_worker: false,
        })
    }

    /// Adds the activation of a callee.
    pub(crate) fn add_callee(
        &mut self,
        entity: usize,
        kind: HandlerKind,
        call: &PendingCall,
        world: &mut World<'_>,
    ) -> ActivationId {
        self.add_activation(Activation {
            activation: world.activations.take(),
            instance: world.take_nonce(),
            program: call.call.handler.program,
            entity: Some(entity),
            kind,
            parent: Some(call.parent),
            owner: call.owner,
            depth: call.depth,
            next_operation: 0,
            is_on_worker: false,
        })
    }

    fn add_activation(&mut self, state: Activation) -> ActivationId {
        let activation = state.activation;
        self.activations.push(state);
        activation
    }

    /// Takes note of how a turn of `activation` ended: a finished activation resumes its parent, or gives
    /// the transaction its result.
    ///
    /// # Panics
    /// When the activation that had the turn is not one of the transaction's.
    pub(crate) fn stepped(&mut self, activation: ActivationId, step: TurnResult, world: &mut World<'_>) {
        let TurnResult::Done(result) = step else {
            return; // It waits.
        };
        world.activations.give_back(activation);
        let index = self.activations.iter().position(|state| state.activation == activation);
        let index = index.expect("the frame that has had its turn is one of the transaction's");
        let ended = self.activations.remove(index);
        self.take_up_put_aside();
        if let Err(error) = &result
            && (matches!(error.code, ErrorCode::CpuLimit | ErrorCode::MemoryLimit) || error.code.is_lost_attempt())
        {
            // Nobody catches these: each callee would have the whole limit to itself, and the next. A lost attempt is no
            // answer of the callee: all of the transaction begins again.
            self.result = Some(Err(error.clone()));
        }
        if result.is_ok() {
            self.hand_over(ended.instance, ended.owner);
        } else {
            self.fail(ended.instance, world);
        }
        let Some(parent) = ended.parent else {
            self.result = Some(result);
            return;
        };
        let result = result.and_then(|output| match output {
            Output::Value(json) => Ok(json),
            Output::Response(_) => Err(Error::new(ErrorCode::Internal, "a handler answered as a route")),
        });
        self.ready.push_back(Action::answer(parent, result));
    }

    /// What an activation that succeeded was answerable for becomes its owner's: its changes, and
    /// whatever it started and did not await.
    fn hand_over(&mut self, ended: Instance, owner: Option<Owner>) {
        let owners = self.undo.iter_mut().map(|(owner, _)| owner);
        let owners = owners.chain(self.activations.iter_mut().map(|state| &mut state.owner));
        let owners = owners.chain(self.put_aside.iter_mut().map(|call| &mut call.owner));
        let owners = owners.chain(self.blocked.iter_mut().map(|(_, call)| &mut call.owner));
        let owners = owners.chain(self.away.iter_mut().map(|call| &mut call.owner));
        let owners = owners.chain(self.ready.iter_mut().filter_map(|action| match action {
            Action::Call(call) => Some(&mut call.owner),
            Action::Resume { .. } | Action::Answer(..) | Action::End(_) => None,
        }));
        for one in owners.filter(|one| **one == Some(ended)) {
            *one = owner;
        }
    }

    /// An activation, here or elsewhere, failed: takes back the changes it was answerable for, and ends
    /// everything that runs on its behalf.
    pub(crate) fn fail(&mut self, failed: Owner, world: &mut World<'_>) {
        // Owners were started before what they own, so one pass finds them all.
        let mut ended = vec![failed];
        for state in &self.activations {
            if state.owner.is_some_and(|owner| ended.contains(&owner)) {
                ended.push(state.instance);
            }
        }
        let is_owned = |owner: Option<Owner>| owner.is_some_and(|owner| ended.contains(&owner));
        self.activations.retain(|state| {
            let is_ended = ended.contains(&state.instance);
            if is_ended {
                world.engine.cancel(state.activation);
                world.activations.give_back(state.activation);
            }
            !is_ended
        });
        self.ready.retain(|action| match action {
            Action::Call(call) => !is_owned(call.owner),
            Action::Resume { activation, .. } => !ended.contains(activation),
            // Whoever made the call has failed, or hears that it has been taken back.
            Action::Answer(number, _) => !ended.contains(number),
            Action::End(_) => true,
        });
        let away = std::mem::take(&mut self.away).into_iter();
        let (taken_back, away) = away.partition(|call| is_owned(call.owner));
        self.away = away;
        let taken_back: Vec<AwayCall> = taken_back;
        self.to_take_back.extend(taken_back.into_iter().map(|call| call.number));
        self.put_aside.retain(|call| !is_owned(call.owner));
        self.outside.retain(|(instance, _)| !ended.contains(instance));
        let (dropped, blocked) =
            std::mem::take(&mut self.blocked).into_iter().partition(|(_, call)| is_owned(call.owner));
        self.blocked = blocked;
        let dropped: Vec<(EntityKey, PendingCall)> = dropped;
        self.unwanted.extend(dropped.into_iter().map(|(entity, _)| entity));
        self.take_back(&ended);
    }

    /// Takes back what the `ended` activations changed, newest first. Activations that ran in parallel and
    /// wrote the same field after them keep their write: theirs is the newer one.
    fn take_back(&mut self, ended: &[Owner]) {
        let mut kept = Vec::with_capacity(self.undo.len());
        let mut removed_messages = Vec::new();
        let mut message_index = self.messages.len();
        let mut body_index = self.released_bodies.len();
        while let Some((owner, undo)) = self.undo.pop() {
            if matches!(undo, Undo::Message) {
                message_index -= 1;
            }
            if matches!(undo, Undo::ReleasedBody) {
                body_index -= 1;
            }
            if !owner.is_some_and(|owner| ended.contains(&owner)) {
                kept.push((owner, undo));
                continue;
            }
            match undo {
                Undo::Message => removed_messages.push(message_index),
                // Newest first, so the indexes of those before it stay.
                Undo::ReleasedBody => drop(self.released_bodies.remove(body_index)),
                Undo::Write { touched, field, before } => {
                    if let Some(newer) = oldest_newer(&mut kept, touched, &field) {
                        *newer = before;
                        continue;
                    }
                    self.touched[touched].changes += 1;
                    let writes = &mut self.touched[touched].writes;
                    match before {
                        Some(value) => writes.insert(field, value),
                        None => writes.remove(&field),
                    };
                }
            }
        }
        kept.reverse();
        self.undo = kept;
        for index in removed_messages {
            self.messages.remove(index);
        }
    }

    /// A call to another shard has ended: resumes who awaits it.
    pub(crate) fn away_ended(&mut self, number: CallNumber, result: Result<Bytes, Error>) {
        let Some(index) = self.away.iter().position(|call| call.number == number) else {
            return; // Taken back meanwhile: its caller has failed.
        };
        let awaited_by = self.away[index].awaited_by.take();
        if result.is_err() {
            self.away.remove(index);
        }
        if let Some(parent) = awaited_by {
            self.ready.push_back(Action::answer(parent, result));
        }
    }

    /// Whether something that `owner` is answerable for runs here, or waits to.
    pub(crate) fn runs_for(&self, owner: CallNumber) -> bool {
        let is_for = |action: &Action| matches!(action, Action::Call(call) if call.owner == Some(owner));
        self.activations.iter().any(|state| state.owner == Some(owner))
            || self.blocked.iter().any(|(_, call)| call.owner == Some(owner))
            || self.put_aside.iter().any(|call| call.owner == Some(owner))
            || self.ready.iter().any(is_for)
    }

    /// Puts off whatever is ready: something is being taken back elsewhere.
    pub(crate) fn put_off(&mut self) {
        self.deferred.append(&mut self.ready);
    }

    /// Looks again at the calls that were put aside.
    pub(crate) fn take_up_put_aside(&mut self) {
        self.ready.extend(self.put_aside.drain(..).map(Action::Call));
    }

    /// Whether a call waits for rows of its entity.
    pub(crate) fn waits_for_rows(&self) -> bool {
        self.put_aside.iter().any(|call| call.waits_for_rows)
    }

    /// Takes up again what was put off.
    pub(crate) fn take_up(&mut self) {
        self.deferred.append(&mut self.ready);
        std::mem::swap(&mut self.deferred, &mut self.ready);
    }

    /// Whether something was put off.
    pub(crate) fn is_put_off(&self) -> bool {
        !self.deferred.is_empty()
    }

    /// Drops every live activation: the transaction will not go on.
    pub(crate) fn drop_activations(&self, world: &mut World<'_>) {
        for state in &self.activations {
            world.engine.cancel(state.activation);
            world.activations.give_back(state.activation);
        }
    }

    /// Nothing of it runs any more, and it holds nothing.
    pub(crate) fn clear(&mut self) {
        self.activations.clear();
        self.ready.clear();
        self.outside.clear();
        self.put_aside.clear();
        self.blocked.clear();
        self.held.clear();
        self.cpu.has_yielded = false;
    }

    /// Whether something of `program` runs in it or is about to.
    pub(crate) fn needs_program(&self, program: Program) -> bool {
        let is_called = |call: &PendingCall| call.call.handler.program == program;
        let is_next = |action: &Action| matches!(action, Action::Call(call) if is_called(call));
        self.program == program
            || self.activations.iter().any(|state| state.program == program)
            || self.blocked.iter().any(|(_, call)| is_called(call))
            || self.put_aside.iter().any(is_called)
            || self.ready.iter().any(is_next)
    }

    /// The first of the calls that have yet to start.
    pub(crate) fn first_call(&self) -> Option<&NestedCall> {
        self.ready.iter().find_map(|action| match action {
            Action::Call(call) => Some(&call.call),
            Action::Resume { .. } | Action::Answer(..) | Action::End(_) => None,
        })
    }

    /// Whether committing would change anything.
    pub(crate) fn has_effects(&self) -> bool {
        !self.messages.is_empty() || self.touched.iter().any(|touched| !touched.writes.is_empty())
    }

    /// What it would write here, in the order of entities and fields.
    pub(crate) fn take_writes(&mut self) -> Vec<Write> {
        let mut writes = Vec::with_capacity(self.write_count + 2);
        for touched in &mut self.touched {
            for (field, value) in std::mem::take(&mut touched.writes) {
                writes.push(Write { entity: touched.entity.clone(), field, value });
            }
        }
        writes
    }

    /// Whether only queries have run in it.
    pub(crate) fn is_query(&self) -> bool {
        !self.writes_away && self.touched.iter().all(|touched| !touched.is_exclusive)
    }

    /// Whether another run of the same request can change nothing either. A route that has only called
    /// queries may do more after it has read something else.
    pub(crate) fn is_always_query(&self) -> bool {
        self.is_query() && !matches!(self.origin, Origin::Route(..))
    }

    /// Whether it reads only what no suspended transaction is changing.
    pub(crate) fn needs_locks(&self) -> bool {
        self.takes_locks || !self.is_query()
    }

    /// Whether waiting for an entity could close a circle: it holds something, or will when it is
    /// suspended, or queues for something and will hold that.
    pub(crate) fn may_block_others(&self) -> bool {
        self.is_spread || !self.touched.is_empty() || !self.held.is_empty() || !self.blocked.is_empty()
    }

    /// Whether one of its calls to other shards has yet to end.
    pub(crate) fn awaits_away(&self) -> bool {
        self.away.iter().any(|call| call.awaited_by.is_some())
    }

    /// Whether nothing of it runs here, or waits to.
    pub(crate) fn is_quiet(&self) -> bool {
        self.activations.is_empty()
            && self.ready.is_empty()
            && self.put_aside.is_empty()
            && self.blocked.is_empty()
            && self.outside.is_empty()
            && !self.awaits_away()
    }
}

/// What the oldest of the newer writes of a field would restore. `kept` is newest first. That
/// write saw the value that is being taken back; when it is undone later it must restore what was
/// there before that.
fn oldest_newer<'a>(
    kept: &'a mut [(Option<Owner>, Undo)],
    wanted: usize,
    wanted_field: &[u8],
) -> Option<&'a mut Option<Option<Value>>> {
    kept.iter_mut().rev().find_map(|(_, undo)| match undo {
        Undo::Write { touched, field, before } if *touched == wanted && **field == *wanted_field => Some(before),
        _ => None,
    })
}
