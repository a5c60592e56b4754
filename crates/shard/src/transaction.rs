//! One running transaction: its frames, what it has touched, and what it would write.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use millrace_base::{EntityKey, Error, Value};
use millrace_func::{Frame, HandlerKind, Limits, Message, NestedCall, OperationId, Output, Program};

use crate::request::Origin;

/// When a transaction was born: lower is older. The order that wait-die decides by.
pub(crate) type Age = (u64, u64);

/// An entity this transaction has touched.
pub(crate) struct Touched {
    pub entity: EntityKey,
    /// Whether a handler that may write has run on it.
    pub is_exclusive: bool,
    /// Buffered writes: field → new value, or `None` for a deletion.
    pub writes: BTreeMap<Box<[u8]>, Option<Value>>,
}

/// One running handler or route of the transaction.
pub(crate) struct FrameState {
    pub frame: Frame,
    /// Index into `Transaction::touched`; a route has no entity.
    pub entity: Option<usize>,
    /// The entity's key, as the function sees it.
    pub kind: HandlerKind,
    /// Who waits for it; the root has none.
    pub parent: Option<(Frame, OperationId)>,
    pub depth: usize,
    pub next_operation: u32,
    pub open_operations: usize,
}

/// How to take one buffered change back, if the frame that made it fails.
pub(crate) enum Undo {
    Write { touched: usize, field: Box<[u8]>, before: Option<Option<Value>> },
    Message,
}

/// What the transaction does next.
pub(crate) enum Action {
    /// Start the callee of an operation.
    Call { caller: Frame, operation: OperationId, call: NestedCall },
    /// Go on with a frame.
    Resume { frame: Frame, operation: OperationId, result: Result<Bytes, Error> },
}

pub(crate) struct Transaction {
    pub origin: Origin,
    /// The app version all its frames run in: calls stay within one app.
    pub program: Program,
    pub limits: Limits,
    /// Frames that run or wait; the root is first.
    pub frames: Vec<FrameState>,
    pub touched: Vec<Touched>,
    pub messages: Vec<Message>,
    /// Changes in order, with the frame they would be taken back with.
    pub undo: Vec<(Frame, Undo)>,
    pub ready: VecDeque<Action>,
    /// Operations that somebody outside the shard works on, or that wait for an entity.
    pub outside_operations: usize,
    pub write_count: usize,
    pub write_bytes: usize,
    pub random_index: u32,
    /// It has been suspended or started again: even its queries respect locks from then on.
    pub takes_locks: bool,
    /// Entities it holds in the lock table.
    pub held: Vec<EntityKey>,
    /// Calls that wait for an entity.
    pub blocked: Vec<(EntityKey, Action)>,
    /// What the root gave, once it has ended.
    pub result: Option<Result<Output, Error>>,
}

impl Transaction {
    pub(crate) fn new(origin: Origin, program: Program, limits: Limits) -> Self {
        Self {
            origin,
            program,
            limits,
            frames: Vec::with_capacity(2),
            touched: Vec::with_capacity(1),
            messages: Vec::new(),
            undo: Vec::new(),
            ready: VecDeque::new(),
            outside_operations: 0,
            write_count: 0,
            write_bytes: 0,
            random_index: 0,
            takes_locks: false,
            held: Vec::new(),
            blocked: Vec::new(),
            result: None,
        }
    }

    pub(crate) fn age(&self) -> Age {
        let info = self.origin.info();
        (info.time.0, info.nonce)
    }

    pub(crate) fn nonce(&self) -> u64 {
        self.origin.info().nonce
    }

    pub(crate) fn frame(&self, frame: Frame) -> Option<&FrameState> {
        self.frames.iter().find(|state| state.frame == frame)
    }

    pub(crate) fn frame_mut(&mut self, frame: Frame) -> Option<&mut FrameState> {
        self.frames.iter_mut().find(|state| state.frame == frame)
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
        self.touched.push(Touched { entity, is_exclusive, writes: BTreeMap::new() });
        self.touched.len() - 1
    }

    pub(crate) fn add_frame(
        &mut self,
        frame: Frame,
        entity: Option<usize>,
        kind: HandlerKind,
        parent: Option<(Frame, OperationId)>,
    ) {
        let depth = parent.and_then(|(parent, _)| self.frame(parent)).map_or(0, |parent| parent.depth + 1);
        self.frames.push(FrameState { frame, entity, kind, parent, depth, next_operation: 0, open_operations: 0 });
    }

    /// Ends a frame. Its changes become its parent's, or are taken back if it failed.
    pub(crate) fn end_frame(&mut self, frame: Frame, has_succeeded: bool) -> Option<FrameState> {
        let index = self.frames.iter().position(|state| state.frame == frame)?;
        let ended = self.frames.remove(index);
        match (has_succeeded, ended.parent) {
            (true, Some((parent, _))) => {
                for (owner, _) in &mut self.undo {
                    if *owner == frame {
                        *owner = parent;
                    }
                }
            }
            (true, None) => {}
            (false, _) => self.take_back(frame),
        }
        Some(ended)
    }

    /// Takes back what `frame` changed, newest first. Sibling frames that ran in parallel and
    /// wrote the same field after it keep their write: theirs is the newer one.
    fn take_back(&mut self, frame: Frame) {
        let mut kept = Vec::with_capacity(self.undo.len());
        let mut removed_messages = Vec::new();
        let mut message_index = self.messages.len();
        while let Some((owner, undo)) = self.undo.pop() {
            if matches!(undo, Undo::Message) {
                message_index -= 1;
            }
            if owner != frame {
                kept.push((owner, undo));
                continue;
            }
            match undo {
                Undo::Message => removed_messages.push(message_index),
                Undo::Write { touched, field, before } => {
                    let newer = kept.iter().rev().find_map(|(_, other)| match other {
                        Undo::Write { touched: t, field: f, .. } if *t == touched && *f == field => Some(()),
                        _ => None,
                    });
                    if newer.is_some() {
                        replace_before(&mut kept, touched, &field, before);
                        continue;
                    }
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

    /// Whether committing would change anything.
    pub(crate) fn has_effects(&self) -> bool {
        !self.messages.is_empty() || self.touched.iter().any(|touched| !touched.writes.is_empty())
    }

    /// Whether only queries have run in it.
    pub(crate) fn is_query(&self) -> bool {
        self.touched.iter().all(|touched| !touched.is_exclusive)
    }

    /// Whether it reads only what no suspended transaction is changing.
    pub(crate) fn needs_locks(&self) -> bool {
        self.takes_locks || !self.is_query()
    }
}

/// A newer write of the same field by another frame stays; undoing *it* later must then restore
/// what was there before the write that is taken back now. `kept` is newest first; the oldest
/// of the newer writes is the one that saw the value being taken back.
fn replace_before(kept: &mut [(Frame, Undo)], wanted: usize, wanted_field: &[u8], value: Option<Option<Value>>) {
    let oldest = kept.iter_mut().rev().find_map(|(_, undo)| match undo {
        Undo::Write { touched, field, before } if *touched == wanted && **field == *wanted_field => Some(before),
        _ => None,
    });
    if let Some(before) = oldest {
        *before = value;
    }
}
