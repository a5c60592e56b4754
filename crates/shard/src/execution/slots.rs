//! Messages and calls of workflows that run on workers: each takes a slot there before its first lock.
//!
//! Requests wait for theirs before they come to the shard. Nobody waits for a message, so it looks again after a while, and
//! that counts as no attempt.

use std::collections::BTreeMap;

use millrace_func::HandlerId;

use super::origin::Origin;
use super::start::{begun as begun_now, root_call};
use super::{Execution, ExecutionContext, Role};

/// How soon one looks again.
const LOOKS_AGAIN_MS: u64 = 20;

/// Transactions without a slot, by when they look again by the monotonic clock, and their nonces.
pub(crate) type WithoutSlot = BTreeMap<(u64, u64), Origin>;

/// What a message or a workflow's call runs, if it runs on workers.
fn on_workers(origin: &Origin, context: &mut ExecutionContext<'_, '_>) -> Option<HandlerId> {
    if !context.world.catalog.has_workers() {
        return None;
    }
    // What cannot be read fails where it runs.
    let handler = root_call(origin, context).ok()?.handler;
    context.world.catalog.program(handler.program).filter(|loaded| loaded.is_on_workers).map(|_| handler)
}

impl Execution {
    /// The transaction with its slot, if it needs one. `None`: there is none now, and it begins later.
    pub(super) fn with_slot(&mut self, mut origin: Origin, context: &mut ExecutionContext<'_, '_>) -> Option<Origin> {
        let Some(handler) = on_workers(&origin, context) else { return Some(origin) };
        let Some(taken) = context.world.engine.enter(handler) else {
            let due_ms = context.world.monotonic_ms.saturating_add(LOOKS_AGAIN_MS);
            self.without_slot.insert((due_ms, origin.nonce()), origin);
            return None;
        };
        if let Origin::Message { slot, .. } | Origin::WorkflowCall { slot, .. } = &mut origin {
            *slot = taken;
        }
        Some(origin)
    }

    /// Those whose time has come look for a slot again. They begin only now: what they waited is not taken off their time.
    pub(super) fn look_for_slots(&mut self, context: &mut ExecutionContext<'_, '_>) {
        while let Some(entry) = self.without_slot.first_entry()
            && entry.key().0 <= context.world.monotonic_ms
        {
            let mut origin = entry.remove();
            if let Origin::Message { begun, .. } | Origin::WorkflowCall { begun, .. } = &mut origin {
                *begun = begun_now(context.world);
            }
            if let Some(origin) = self.with_slot(origin, context) {
                // One that did not start has been answered, or waits for its entity.
                let _ = self.starts_again(origin, Vec::new(), Role::Alone, context);
            }
        }
    }
}

#[cfg(test)]
#[path = "slots_tests.rs"]
mod tests;
