//! HTTP/2 connections. Many exchanges share one, each as a stream of its own.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use hyper::client::conn::http2::SendRequest;
use millrace_base::limits;
use tokio::time::Instant;

use crate::Options;
use crate::connect::{Aborted, Connection2, Socket};
use crate::outgoing::Outgoing;
use crate::pool::Key;

/// The HTTP/2 connections of all runtimes.
pub(crate) struct Shares {
    places: Mutex<Places>,
    idle_time: Duration,
}

#[derive(Default)]
struct Places {
    by_key: HashMap<Key, ServerShares>,
    next_id: u64,
}

/// What is known of one server.
#[derive(Default)]
struct ServerShares {
    open: Vec<Share>,
    /// Held while a connection is opened, so that requests that come together open one.
    opening: Arc<tokio::sync::Mutex<()>>,
    /// It chose HTTP/1.1 the last time. Its connections serve one exchange each, so they are opened side by side.
    is_http1: bool,
}

struct Share {
    id: u64,
    connection: Connection2,
    streams: usize,
    /// How many more it gets.
    left: usize,
    /// It gets no further streams, and is closed after its last.
    is_retired: bool,
    used: Instant,
    _reaper: Aborted,
}

/// One stream's place on a connection. Dropping it gives the place back.
pub(crate) struct Lease {
    shares: Arc<Shares>,
    key: Key,
    pub(crate) id: u64,
    pub(crate) sender: SendRequest<Outgoing>,
    pub(crate) socket: Arc<Socket>,
}

impl Lease {
    /// Gives its connection no further streams.
    pub(crate) fn retire(&self) {
        self.shares.retire(&self.key, self.id);
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.shares.change(&self.key, self.id, |share| {
            share.streams -= 1;
            share.used = Instant::now();
        });
    }
}

impl Shares {
    pub(crate) fn new(options: &Options) -> Self {
        Self { places: Mutex::default(), idle_time: Duration::from_millis(options.idle_ms) }
    }

    fn lock(&self) -> MutexGuard<'_, Places> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A stream on a connection that has room for one.
    pub(crate) fn take(self: &Arc<Self>, key: &Key) -> Option<Lease> {
        let mut places = self.lock();
        let open = &mut places.by_key.get_mut(key)?.open;
        open.retain(|share| !share.connection.sender.is_closed());
        let has_room = |share: &&mut Share| !share.is_retired && share.streams < limits::FETCH_HTTP2_STREAMS;
        let share = open.iter_mut().find(has_room)?;
        share.streams += 1;
        share.left -= 1;
        share.is_retired = share.left == 0;
        let (id, sender, socket) = (share.id, share.connection.sender.clone(), Arc::clone(&share.connection.socket));
        drop(places);
        Some(Lease { shares: Arc::clone(self), key: key.clone(), id, sender, socket })
    }

    /// Who holds this lock opens the next connection; `None` if the server speaks HTTP/1.1.
    pub(crate) fn opening(&self, key: &Key) -> Option<Arc<tokio::sync::Mutex<()>>> {
        let mut places = self.lock();
        let place = places.by_key.entry(key.clone()).or_default();
        (!place.is_http1).then(|| Arc::clone(&place.opening))
    }

    /// Takes note of the version that the server chose.
    pub(crate) fn chose_http1(&self, key: &Key, is_http1: bool) {
        self.lock().by_key.entry(key.clone()).or_default().is_http1 = is_http1;
    }

    /// Shares a new connection, and gives its first stream.
    pub(crate) fn add(self: &Arc<Self>, key: &Key, connection: Connection2) -> Lease {
        let mut places = self.lock();
        let id = places.next_id;
        places.next_id += 1;
        let reaper = tokio::spawn(close_when_idle(Arc::downgrade(self), key.clone(), id, self.idle_time));
        let (sender, socket) = (connection.sender.clone(), Arc::clone(&connection.socket));
        let _reaper = Aborted(reaper.abort_handle());
        let left = limits::FETCH_HTTP2_REQUESTS - 1;
        let share = Share { id, connection, streams: 1, left, is_retired: false, used: Instant::now(), _reaper };
        places.by_key.entry(key.clone()).or_default().open.push(share);
        drop(places);
        Lease { shares: Arc::clone(self), key: key.clone(), id, sender, socket }
    }

    /// Gives a connection no further streams. Those it has may end.
    pub(crate) fn retire(&self, key: &Key, id: u64) {
        self.change(key, id, |share| share.is_retired = true);
    }

    /// Changes a connection, if it is there, and closes it if it is retired and has no streams then.
    fn change(&self, key: &Key, id: u64, change: impl FnOnce(&mut Share)) {
        let mut places = self.lock();
        let Some(place) = places.by_key.get_mut(key) else { return };
        let Some(index) = place.open.iter().position(|share| share.id == id) else { return };
        let share = &mut place.open[index];
        change(share);
        let ended = (share.is_retired && share.streams == 0).then(|| place.open.swap_remove(index));
        drop(places);
        drop(ended);
    }

    /// Closes a connection without streams, whichever server it leads to, of those that are counted so. It says whether there
    /// was one.
    pub(crate) fn close_idle(&self, is_for_streams: bool) -> bool {
        let mut places = self.lock();
        let idle = |share: &Share| share.streams == 0 && share.connection.socket.is_for_streams() == is_for_streams;
        let found = places.by_key.values_mut().find_map(|place| {
            let index = place.open.iter().position(idle)?;
            Some(place.open.swap_remove(index))
        });
        drop(places);
        found.is_some()
    }

    /// Closes a connection that has been without streams for the idle time. Else says how long to wait, if it is there.
    fn close_if_idle(&self, key: &Key, id: u64) -> Option<Duration> {
        let mut places = self.lock();
        let open = &mut places.by_key.get_mut(key)?.open;
        let index = open.iter().position(|share| share.id == id)?;
        let idle = if open[index].streams == 0 { open[index].used.elapsed() } else { Duration::ZERO };
        if idle < self.idle_time {
            return Some(self.idle_time - idle);
        }
        let closed = open.swap_remove(index);
        drop(places);
        drop(closed);
        None
    }
}

/// Closes a connection that nobody has used for a while.
async fn close_when_idle(shares: Weak<Shares>, key: Key, id: u64, idle_time: Duration) {
    let mut wait = idle_time;
    loop {
        tokio::time::sleep(wait).await;
        let Some(shares) = shares.upgrade() else { return };
        let Some(left) = shares.close_if_idle(&key, id) else { return };
        wait = left;
    }
}
