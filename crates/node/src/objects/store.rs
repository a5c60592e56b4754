//! What the node has for bodies, shared by its cores: the files, the threads that read and write them.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;

use millrace_base::{Error, ErrorCode};
use millrace_blobs::{Bodies, BodyName};
use millrace_io::HeldDisk;

use super::slices::KnownSlices;
use super::syncer::Syncer;
use crate::pool::Pool;

/// Bodies on their way in at once. Each has at most two pieces in memory.
const BODIES_AT_ONCE: usize = 1024;

/// Threads for each core. One waits for the disk while the other hashes.
const THREADS_PER_CORE: usize = 2;

/// How much nicer than the cores these threads are. With 16 uploads on the one CPU of a core, small reads beside them took
/// 16 times as long as alone. So a core gets three quarters of a CPU that it shares with one of the threads. With 10 it
/// would get nine tenths, and uploads would starve beside other programs.
const NICENESS: i32 = 5;

/// See the module's documentation.
pub(crate) struct BodyStore {
    pub bodies: Arc<Bodies>,
    /// Where their files are, which a backup can hold.
    pub disk: Arc<HeldDisk>,
    pub pool: Pool,
    pub syncers: Vec<Syncer>,
    /// Where bodies belong.
    pub slices: KnownSlices,
    under_way: AtomicUsize,
}

/// A place among the bodies on their way in. It is given back with this.
pub(crate) struct Turnstile {
    store: Arc<BodyStore>,
}

impl Drop for Turnstile {
    fn drop(&mut self) {
        self.store.under_way.fetch_sub(1, Ordering::Relaxed);
    }
}

impl BodyStore {
    /// Starts the threads for a node with so many cores.
    ///
    /// # Errors
    /// The operating system's, when it gives no thread.
    pub(crate) fn start(
        bodies: Arc<Bodies>,
        disk: Arc<HeldDisk>,
        cores: usize,
    ) -> io::Result<(Arc<Self>, Vec<JoinHandle<()>>)> {
        let (pool, mut threads) = Pool::start("body", cores * THREADS_PER_CORE, NICENESS)?;
        let mut syncers = Vec::with_capacity(cores);
        for core in 0..cores {
            let (syncer, thread) = Syncer::start(Arc::clone(&bodies), core)?;
            syncers.push(syncer);
            threads.push(thread);
        }
        Ok((
            Arc::new(Self {
                bodies,
                disk,
                pool,
                syncers,
                slices: KnownSlices::default(),
                under_way: AtomicUsize::new(0),
            }),
            threads,
        ))
    }

    /// A place for one more body.
    ///
    /// # Errors
    /// `overloaded`, if there is none.
    pub(crate) fn enter(self: &Arc<Self>) -> Result<Turnstile, Error> {
        let before = self.under_way.fetch_add(1, Ordering::Relaxed);
        let turnstile = Turnstile { store: Arc::clone(self) };
        if before >= BODIES_AT_ONCE {
            return Err(Error::new(ErrorCode::Overloaded, "too many bodies are on their way; try again"));
        }
        Ok(turnstile)
    }

    /// Ends the threads, and has the next start read indexes instead of segments. The cores have ended before.
    pub(crate) fn stop(&self, threads: Vec<JoinHandle<()>>) {
        self.pool.close();
        for syncer in &self.syncers {
            syncer.close();
        }
        for thread in threads {
            drop(thread.join());
        }
        if let Err(error) = self.bodies.close() {
            tracing::warn!(%error, "the next start will read more of the bodies of objects");
        }
    }

    /// Nothing refers to this body any more.
    pub(crate) fn free(&self, name: BodyName) {
        let bodies = Arc::clone(&self.bodies);
        // Removing a file may wait for the disk. Nobody waits for it.
        drop(self.pool.run(move || bodies.free(name)));
    }
}
