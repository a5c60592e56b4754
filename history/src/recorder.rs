//! Records from many threads, with the machine's clock.
//!
//! A call that is dropped without an outcome stays unknown. So a test that gives up or panics in the middle records
//! nothing false.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::history::{Fact, History, OperationId};
use crate::operation::{Access, Found, Time};

struct Shared {
    start: Instant,
    history: Mutex<History>,
    processes: AtomicU64,
}

impl Shared {
    fn now(&self) -> Time {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn history(&self) -> MutexGuard<'_, History> {
        // Every change is one push or one assignment, so a panic elsewhere leaves nothing half done.
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A history that many threads write.
#[derive(Clone)]
pub struct Recorder(Arc<Shared>);

impl Default for Recorder {
    fn default() -> Self {
        Self::new()
    }
}

impl Recorder {
    /// Makes an empty history. Its time begins now.
    #[must_use]
    pub fn new() -> Self {
        let shared =
            Shared { start: Instant::now(), history: Mutex::new(History::new()), processes: AtomicU64::new(0) };
        Self(Arc::new(shared))
    }

    /// Makes a client for one thread.
    #[must_use]
    pub fn client(&self) -> Client {
        Client { shared: self.0.clone(), process: self.0.processes.fetch_add(1, Ordering::Relaxed) }
    }

    /// Notes a fact.
    pub fn note(&self, fact: Fact) {
        self.0.history().note(fact);
    }

    /// The history so far. Calls that are still open are unknown in it.
    #[must_use]
    pub fn history(&self) -> History {
        self.0.history().clone()
    }
}

/// One client. It asks one thing at a time.
pub struct Client {
    shared: Arc<Shared>,
    process: u64,
}

impl Client {
    /// Notes what the client is about to ask. Call it before anything is sent. Sending the same again under the same
    /// idempotency key is part of the same call.
    pub fn invoke(&mut self, steps: impl IntoIterator<Item = Access>) -> Call<'_> {
        let time = self.shared.now();
        let id = self.shared.history().invoke(self.process, steps, time);
        Call { client: self, id: Some(id) }
    }
}

/// A call that waits for its outcome. It is unknown if dropped.
#[must_use = "dropped, its outcome is unknown"]
pub struct Call<'a> {
    client: &'a mut Client,
    id: Option<OperationId>,
}

impl Call<'_> {
    /// The call took effect. `found` is what the reply held, one for each step.
    pub fn ok(self, found: impl IntoIterator<Item = Found>) {
        self.end(|history, id, time| history.ok(id, found, time));
    }

    /// The call surely had no effect: it was aborted, refused, or never sent.
    pub fn fail(self, why: impl Into<String>) {
        self.end(|history, id, time| history.fail(id, why, time));
    }

    /// Nobody knows the outcome: a timeout, a broken connection, an error that does not say.
    pub fn unknown(self, why: impl Into<String>) {
        self.end(|history, id, time| history.unknown(id, why, time));
    }

    fn end(mut self, note: impl FnOnce(&mut History, OperationId, Time)) {
        let time = self.client.shared.now();
        if let Some(id) = self.id.take() {
            note(&mut self.client.shared.history(), id, time);
        }
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        if let Some(id) = self.id.take() {
            let time = self.client.shared.now();
            self.client.shared.history().unknown(id, "given up", time);
        }
    }
}
