//! A node whose handlers run in workers.

use std::rc::Rc;

use millrace_base::UnixMillis;
use millrace_func::{App, Engine};
use millrace_shard::Shard;

use super::{Driven, Machine, Node};
use crate::engine::ScriptEngine;
use crate::random::Rng;
use crate::workload;

/// The longest pause of a transaction between two attempts.
const LONGEST_PAUSE_MS: u64 = 1_000;

impl Machine {
    /// Time that has passed, whatever the clock was set to.
    pub(super) fn passed_ms(&self) -> u64 {
        self.clock.monotonic_ns() / 1_000_000
    }
}

impl Node {
    /// The engine of a core: that of scripts, or that of workers which run scripts.
    pub(super) fn engine(&self, scripts: &Rc<ScriptEngine>) -> Box<dyn Engine> {
        match &self.workers {
            Some(workers) => Box::new(workers.engine()),
            None => Box::new(Rc::clone(scripts)),
        }
    }

    pub(super) fn app(&self, app: App) -> App {
        match &self.workers {
            Some(workers) => workers.app(app, &workload::schedules(self.machine.shard_count)),
            None => app,
        }
    }

    /// What a core has for workers is on its way.
    pub(super) fn hand_to_workers(&mut self, index: usize) {
        let now_ms = self.machine.passed_ms();
        let Some(workers) = &mut self.workers else { return };
        for (ticket, turn) in std::mem::take(&mut self.cores[index].core.platform.exchanges) {
            workers.begin(index, ticket, turn, now_ms);
        }
        workers.hear_given_up();
    }

    /// Something happens on the way to the workers, and cores hear of what has come. Says whether anything did.
    pub fn carry_for_workers(&mut self, rng: &mut Rng, is_calm: bool) -> bool {
        let now_ms = self.machine.passed_ms();
        let Some(workers) = &mut self.workers else { return false };
        let has_gone_on = workers.go_on(rng, now_ms, is_calm);
        self.tell_turns();
        has_gone_on
    }

    fn tell_turns(&mut self) {
        while let Some((index, ticket, result)) = self.workers.as_mut().and_then(|workers| workers.next_turn()) {
            self.cores[index].core.exchanged(ticket, result);
            self.finish_step(index);
        }
        if let Some(workers) = &mut self.workers {
            self.output.happened.add(&std::mem::take(&mut workers.happened));
        }
    }

    pub(super) fn workers_pass_time(&mut self) {
        let now_ms = self.machine.passed_ms();
        if let Some(workers) = &mut self.workers {
            workers.pass_time(now_ms);
        }
        self.tell_turns();
    }

    /// Whether handlers run in workers.
    #[must_use]
    pub fn has_workers(&self) -> bool {
        self.workers.is_some()
    }

    /// Whether anything may begin again soon whose attempt on a worker was lost.
    #[must_use]
    pub fn may_begin_again(&self) -> bool {
        let soon = UnixMillis(self.machine.clock.now()).plus(LONGEST_PAUSE_MS);
        let soon_ms = self.monotonic_ms() + LONGEST_PAUSE_MS;
        let is_due = |shard: &Shard| shard.is_due(soon, soon_ms);
        let has_requests = |driven: &Driven| driven.core.open_requests() > 0;
        self.workers.is_some() && (self.shards().any(is_due) || self.cores.iter().any(has_requests))
    }

    /// Nobody waits for workers that are gone.
    ///
    /// # Errors
    /// Somebody does.
    pub fn check_workers(&self) -> Result<(), String> {
        self.workers.as_ref().map_or(Ok(()), |workers| workers.check(self.machine.passed_ms()))
    }

    pub(super) fn has_idle_workers(&self) -> bool {
        self.workers.as_ref().is_none_or(|workers| workers.is_idle())
    }
}
