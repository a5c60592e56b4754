//! Requests for entities that memory does not hold. They wait beside the queue while a pool reads the rows, and the core
//! serves others. Routes wait so for the entity that they call first.
//!
//! A read that finds its blocks in a cache takes some 10 µs, and the way to the pool and back takes 20. So the core reads by
//! itself as long as that is quick ([`Pace`]). A core that creates entities looks for rows that are not there, and would
//! take twice as long for each with the pool.
//!
//! A request that comes for the same entity meanwhile waits for the same read. Whoever comes when the rows are in memory
//! does not wait for those that came before: requests that are under way together have no order.

use std::collections::BTreeMap;

use millrace_base::{EntityKey, ShardId, limits};
use millrace_func::{HandlerId, Program};
use millrace_shard::{Token, UnplacedRoute};
use millrace_store::{ColdRead, ColdRows};

use crate::core::Core;
use crate::message::Job;
use crate::outputs::Event;
use crate::platform::Platform;
use crate::queue::Queued;

/// Who waits for rows.
enum Cold {
    Request(Box<Queued>),
    Route(UnplacedRoute),
}

/// Reads of the core itself that take longer than this on average are slow: a disk takes twice as long for one block.
const SLOW_NS: u64 = 50_000;

/// What a read counts at most. One that took longer may have waited for the CPU, as happens to one read of many where other
/// programs want it, too.
const LONGEST_NS: u64 = 8 * SLOW_NS;

/// For how long the pool reads then, before the core tries again. So one slow read a second holds it.
const POOL_NS: u64 = 1_000_000_000;

/// How quick the core's own reads are.
struct Pace {
    average_ns: u64,
    pool_until_ns: u64,
}

impl Default for Pace {
    /// The first read decides.
    fn default() -> Self {
        Self { average_ns: SLOW_NS, pool_until_ns: 0 }
    }
}

impl Pace {
    fn is_slow(&self, now_ns: u64) -> bool {
        now_ns < self.pool_until_ns
    }

    fn took(&mut self, duration_ns: u64, now_ns: u64) {
        self.average_ns = self.average_ns - self.average_ns / 16 + duration_ns.min(LONGEST_NS) / 16;
        if self.average_ns > SLOW_NS {
            *self = Self { average_ns: SLOW_NS, pool_until_ns: now_ns + POOL_NS };
        }
    }
}

/// Requests that wait for rows, by the entity that is being read.
#[derive(Default)]
pub(crate) struct ColdReads {
    waiting: BTreeMap<(ShardId, EntityKey), Vec<Cold>>,
    count: usize,
    pace: Pace,
}

impl ColdReads {
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    fn is_full(&self) -> bool {
        self.count >= limits::COLD_REQUESTS
    }

    /// Whether anybody waits who runs in a program.
    pub(crate) fn need(&self, program: Program) -> bool {
        self.waiting.values().flatten().any(|cold| match cold {
            Cold::Request(request) => request.job.program() == Some(program),
            Cold::Route(unplaced) => unplaced.program() == program,
        })
    }

    /// Lets somebody wait. Says whether the entity is not being read yet.
    fn add(&mut self, (shard, entity): (ShardId, &EntityKey), cold: Cold) -> bool {
        self.count += 1;
        let waiting = self.waiting.entry((shard, entity.clone())).or_default();
        waiting.push(cold);
        waiting.len() == 1
    }

    fn take(&mut self, (shard, entity): (ShardId, &EntityKey)) -> Vec<Cold> {
        let waiting = self.waiting.remove(&(shard, entity.clone())).unwrap_or_default();
        self.count -= waiting.len();
        waiting
    }
}

impl<P: Platform> Core<P> {
    /// What the pool has to read before a call can begin.
    fn cold_read(&mut self, shard: ShardId, handler: HandlerId, key: &[u8]) -> Option<ColdRead> {
        let reader = self.shards.get(usize::from(shard.0)).and_then(Option::as_ref)?;
        let read = reader.cold_read(handler, key, &self.programs.catalog)?;
        let began_ns = self.platform.monotonic_ns();
        if self.cold_reads.pace.is_slow(began_ns) {
            return Some(read);
        }
        let loaded = self.with_world(Some(shard), |shard, _| {
            if let Some(shard) = shard {
                shard.store().take_rows(read.read());
            }
        });
        if let Err(reason) = loaded {
            self.stop_shard(shard, &reason);
        }
        let now_ns = self.platform.monotonic_ns();
        self.cold_reads.pace.took(now_ns.saturating_sub(began_ns), now_ns);
        None
    }

    /// Lets a request wait whose entity has to be read first. Gives back one that can begin.
    pub(crate) fn put_aside(&mut self, job: Job, token: Token) -> Option<(Job, Token)> {
        let Job::Invoke(shard, invoke) = &job else { return Some((job, token)) };
        let Some(read) = self.cold_read(*shard, invoke.handler, &invoke.key) else {
            return Some((job, token));
        };
        if self.cold_reads.is_full() {
            let refusal = self.shed();
            self.answer(token, Err(refusal));
            return None;
        }
        let since_ns = self.platform.monotonic_ns();
        self.read_for(read, Cold::Request(Box::new(Queued { since_ns, job, token, are_rows_read: false })));
        None
    }

    /// Lets a route wait that calls an entity first which has to be read. Gives back one that can go on.
    pub(crate) fn put_route_aside(&mut self, unplaced: UnplacedRoute, shard: ShardId) -> Option<UnplacedRoute> {
        // What it awaits beside the call would find it neither among the unplaced routes nor in the shard.
        if unplaced.awaits_offload() || self.cold_reads.is_full() {
            return Some(unplaced);
        }
        let read = unplaced.first_call().and_then(|(handler, key)| self.cold_read(shard, handler, key));
        let Some(read) = read else { return Some(unplaced) };
        self.read_for(read, Cold::Route(unplaced));
        None
    }

    fn read_for(&mut self, read: ColdRead, cold: Cold) {
        if self.cold_reads.add(read.of(), cold) {
            self.platform.read_rows(read);
        }
    }

    /// What [`Platform::read_rows`] was to read is there: who waits for it gets its turn.
    ///
    /// If the rows do not count, or are evicted before that, the core reads them itself. The blocks that they are in were
    /// read a moment ago. To wait once more could go on for ever.
    pub fn rows_read(&mut self, rows: ColdRows) {
        self.begin_round();
        let (id, waiting) = (rows.of().0, self.cold_reads.take(rows.of()));
        if let Some(shard) = self.shard_mut(id) {
            shard.store().take_rows(rows);
        }
        for cold in waiting {
            match cold {
                Cold::Request(request) => self.queue.push(Queued { are_rows_read: true, ..*request }),
                Cold::Route(unplaced) => self.events.push_back(Event::Adopt(unplaced, id)),
            }
        }
        self.platform.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_core_reads_while_that_is_quick_and_tries_again_after_a_while() {
        let mut pace = Pace::default();
        assert!(!pace.is_slow(0), "the first read decides");
        for _ in 0..1000 {
            pace.took(10_000, 1);
        }
        assert!(!pace.is_slow(1));
        pace.took(20_000_000, 1);
        assert!(!pace.is_slow(1), "one that waits for its turn on the CPU decides nothing");
        for _ in 0..10 {
            pace.took(150_000, 2);
        }
        assert!(pace.is_slow(3) && pace.is_slow(2 + POOL_NS - 1));
        assert!(!pace.is_slow(2 + POOL_NS));
        pace.took(100_000, 2 + POOL_NS);
        assert!(pace.is_slow(2 + POOL_NS), "one read tells that it is slow yet");
    }
}
