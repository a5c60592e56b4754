//! Idle connections, by server and runtime, each kept for a short while.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use millrace_func::FetchOrigin;
use tokio::runtime;

use crate::Options;
use crate::connect::{Aborted, Connection};

/// What a kept connection may be used for. Its driver runs on one runtime. If a runtime on another core used it, that
/// would depend on how busy the first core is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub(crate) runtime: runtime::Id,
    pub(crate) origin: FetchOrigin,
    pub(crate) protocol: Protocol,
}

/// How the version of HTTP is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Protocol {
    /// HTTP/1.1; over TLS what the server chooses of those offered.
    Negotiated,
    /// HTTP/2, which the caller knows that the server speaks.
    Http2,
}

impl Protocol {
    /// `is_http2`: the caller knows that the server speaks it.
    pub(crate) fn of(is_http2: bool) -> Self {
        if is_http2 { Self::Http2 } else { Self::Negotiated }
    }
}

/// The idle connections of all runtimes.
pub(crate) struct Pool {
    idle: Mutex<Idle>,
    idle_per_key: usize,
    idle_time: Duration,
}

#[derive(Default)]
struct Idle {
    /// Oldest first: ids grow.
    kept: BTreeMap<u64, Kept>,
    /// Oldest first.
    by_key: HashMap<Key, Vec<u64>>,
    next_id: u64,
}

struct Kept {
    key: Key,
    connection: Connection,
    _timer: Aborted,
}

impl Idle {
    fn remove(&mut self, id: u64) -> Option<Kept> {
        let kept = self.kept.remove(&id)?;
        if let Some(ids) = self.by_key.get_mut(&kept.key) {
            ids.retain(|other| *other != id);
            if ids.is_empty() {
                self.by_key.remove(&kept.key);
            }
        }
        Some(kept)
    }

    /// Forgets the oldest ones, as long as they are closed. Either the server closed them, or their runtime, and with
    /// it their timer, has ended.
    fn forget_closed(&mut self) {
        while let Some((id, kept)) = self.kept.first_key_value()
            && kept.connection.sender.is_closed()
        {
            let id = *id;
            self.remove(id);
        }
    }
}

impl Pool {
    pub(crate) fn new(options: &Options) -> Self {
        Self {
            idle: Mutex::default(),
            idle_per_key: options.idle_per_host,
            idle_time: Duration::from_millis(options.idle_ms),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Idle> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The connection used last, which is the likeliest to be alive.
    pub(crate) fn take(&self, key: &Key) -> Option<Connection> {
        loop {
            let kept = {
                let mut idle = self.lock();
                let id = *idle.by_key.get(key)?.last()?;
                idle.remove(id)?
            };
            if kept.connection.sender.is_ready() {
                return Some(kept.connection);
            }
        }
    }

    /// The connection that has been idle for longest, whichever server it leads to. It skips closed ones, because they
    /// make no room.
    pub(crate) fn take_oldest(&self) -> Option<Connection> {
        let mut idle = self.lock();
        idle.forget_closed();
        let id = *idle.kept.first_key_value()?.0;
        idle.remove(id).map(|kept| kept.connection)
    }

    /// Keeps a connection that is ready for another request. If another exchange wants it at once, it is kept even
    /// beyond the allowed number of idle ones. Many exchanges may end in one turn of the runtime, before those that
    /// wait for them begin.
    pub(crate) fn put(self: &Arc<Self>, key: Key, connection: Connection, is_wanted: bool) {
        if self.idle_per_key == 0 {
            return;
        }
        let mut idle = self.lock();
        idle.forget_closed();
        let id = idle.next_id;
        idle.next_id += 1;
        let (pool, idle_time) = (Arc::downgrade(self), self.idle_time);
        let timer = tokio::spawn(async move {
            tokio::time::sleep(idle_time).await;
            if let Some(pool) = pool.upgrade() {
                let expired = pool.lock().remove(id);
                drop(expired);
            }
        });
        let ids = idle.by_key.entry(key.clone()).or_default();
        ids.push(id);
        let surplus = (ids.len() > self.idle_per_key && !is_wanted).then(|| ids[0]);
        idle.kept.insert(id, Kept { key, connection, _timer: Aborted(timer.abort_handle()) });
        let surplus = surplus.and_then(|id| idle.remove(id));
        drop(idle);
        drop(surplus);
    }
}
