//! Collection of expired results.
//!
//! Collection looks at the oldest of those in memory, in the order they were written, and stops at
//! the first that is still wanted. What memory does not hold (it has been evicted, or was there
//! before the start) is found by a sweep over the checkpoint's rows. It begins when something may
//! have expired, and not more often than twice in a retention. Both look at a bounded number each
//! tick, and at more than are added.

use std::ops::ControlFlow;

use millrace_base::{UnixMillis, limits};
use millrace_format::{InvocationResult, ResultState};

use super::Results;
use crate::context::Context;

/// Results looked at in one tick when none were added.
const SWEEP_ROWS: usize = 256;

/// How far the sweep over the checkpoint's rows has come.
#[derive(Default)]
pub(super) struct Sweep {
    is_running: bool,
    after: Option<Box<[u8]>>,
    began: UnixMillis,
    /// When the first of those seen in it, or written since it began, expires.
    first_expires: UnixMillis,
    /// The next one begins no earlier.
    next: UnixMillis,
}

impl Results {
    /// Fields of some results that have expired. Those that find no room in an entry are to be given back.
    pub(crate) fn expired(&mut self, context: &mut Context<'_>) -> Vec<Box<[u8]>> {
        let count = (SWEEP_ROWS + 2 * self.added).min(limits::SCAN_ROWS);
        self.added = self.added.saturating_sub(count / 2);
        let mut expired = self.left_over_and_expired(context);
        if expired.is_empty() {
            expired = self.oldest_expired(count, context);
            self.sweep_rows(count, context, &mut expired);
        }
        expired
    }

    /// These have expired, and found no room in the entry.
    pub(crate) fn leave_over(&mut self, fields: impl Iterator<Item = Box<[u8]>>) {
        self.left_over = fields.collect();
    }

    /// What was left over last time, without what has been written again since.
    fn left_over_and_expired(&mut self, context: &mut Context<'_>) -> Vec<Box<[u8]>> {
        let mut left_over = std::mem::take(&mut self.left_over);
        left_over.retain(|field| match self.get(field, context.rows) {
            Ok(Some(invocation_result)) => {
                invocation_result.expires <= context.now && invocation_result.result != ResultState::Pending
            }
            Ok(None) | Err(_) => false,
        });
        left_over
    }

    /// Expired results at the head of those in memory. One that is pending is written again when it
    /// is not any more; one that is kept for longer than the others is left to the sweep.
    fn oldest_expired(&self, count: usize, context: &mut Context<'_>) -> Vec<Box<[u8]>> {
        let (now, latest) = (context.now, context.now.plus(self.retention_ms));
        let mut expired = Vec::new();
        context.rows.store().visit_append_only_map(&self.entity, count, &mut |field, value| {
            match Expiry::of(value.get(1..).unwrap_or_default()) {
                Expiry::At(at) if at <= now => expired.push(field.into()),
                Expiry::At(at) if at <= latest => return ControlFlow::Break(()),
                Expiry::At(_) | Expiry::Unknown => {}
            }
            ControlFlow::Continue(())
        });
        expired
    }

    /// Adds the expired results among the next rows of the checkpoint.
    fn sweep_rows(&mut self, count: usize, context: &mut Context<'_>, expired: &mut Vec<Box<[u8]>>) {
        let (now, retention_ms) = (context.now, self.retention_ms);
        let latest = now.plus(retention_ms);
        let sweep = &mut self.sweep;
        if !sweep.is_running {
            // The clock may have been set back.
            if now < sweep.next.min(latest) {
                return;
            }
            *sweep = Sweep { is_running: true, began: now, first_expires: latest, ..Sweep::default() };
        }
        let Ok(page) = context.rows.store().scan_rows(&self.entity, sweep.after.as_deref(), count) else {
            return; // What cannot be read now is read at the next tick.
        };
        let in_memory = expired.len();
        for (field, value) in page.fields {
            match Expiry::of(value.content()) {
                Expiry::At(at) if at <= now => expired.push(field),
                Expiry::At(at) => sweep.first_expires = sweep.first_expires.min(at),
                Expiry::Unknown => {}
            }
        }
        if in_memory > 0 && expired.len() > in_memory {
            // Those in memory may have rows, too.
            expired.sort_unstable();
            expired.dedup();
        }
        sweep.is_running = page.last.is_some();
        sweep.after = page.last;
        sweep.next = sweep.first_expires.max(sweep.began.plus(retention_ms / 2));
    }
}

/// When a result may be forgotten.
enum Expiry {
    At(UnixMillis),
    /// It is pending, or cannot be read.
    Unknown,
}

impl Expiry {
    fn of(encoded: &[u8]) -> Self {
        InvocationResult::expiry(encoded).ok().flatten().map_or(Expiry::Unknown, Expiry::At)
    }
}
