//! What the node has for bodies, shared by its cores: the files, the threads that read and write them.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

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
    kept: Mutex<Kept>,
}

/// Bodies that nothing refers to any more, and that a backup at another node may still want.
#[derive(Default)]
struct Kept {
    until: Option<Instant>,
    names: Vec<BodyName>,
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
                kept: Mutex::default(),
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

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// For so long, bodies stay that nothing refers to any more. After a crash the daily look frees them.
    pub(crate) fn keep_for(&self, time: Duration) {
        let until = Instant::now() + time;
        let mut kept = self.kept();
        kept.until = kept.until.max(Some(until));
    }

    /// Whether a body that could be freed stays for a while, and is freed later.
    pub(crate) fn keeps(&self, name: BodyName) -> bool {
        let mut kept = self.kept();
        let is_kept = kept.until.is_some_and(|until| Instant::now() < until);
        if is_kept {
            kept.names.push(name);
        }
        is_kept
    }

    /// Frees what stayed, once its time is over.
    pub(crate) fn free_kept(&self) {
        let due = {
            let mut kept = self.kept();
            let is_over = kept.until.take_if(|until| Instant::now() >= *until).is_some();
            if is_over { std::mem::take(&mut kept.names) } else { Vec::new() }
        };
        due.into_iter().for_each(|name| self.free(name));
    }

    /// Nothing refers to this body any more.
    pub(crate) fn free(&self, name: BodyName) {
        if self.keeps(name) {
            return;
        }
        let bodies = Arc::clone(&self.bodies);
        // Removing a file may wait for the disk. Nobody waits for it.
        drop(self.pool.run(move || bodies.free(name)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use millrace_base::ShardId;
    use millrace_blobs::BodyOptions;
    use millrace_io::{Disk, RealDisk};

    #[test]
    fn what_is_freed_while_it_is_kept_goes_when_that_is_over() {
        let folder = tempfile::tempdir().expect("a folder");
        let disk = HeldDisk::new(Arc::new(RealDisk::new(folder.path())));
        let opened = Bodies::open(Arc::clone(&disk) as Arc<dyn Disk>, BodyOptions::default());
        let (bodies, _) = opened.expect("an empty store opens");
        let (store, threads) = BodyStore::start(Arc::new(bodies), disk, 1).expect("threads start");
        let names = [1, 2].map(|number| {
            let name = BodyName { shard: ShardId(0), number };
            let mut writer = store.bodies.begin_named(0, name, b"owner", 4).expect("there is room");
            writer.append(b"body").expect("written");
            let written = writer.finish().expect("written");
            store.bodies.sync(0, vec![written]).pop().expect("one").expect("durable").settle();
            name
        });
        store.keep_for(Duration::from_millis(300));
        assert!(store.keeps(names[0]));
        store.free(names[1]);
        // It must not happen, and the threads have nothing else to do.
        std::thread::sleep(Duration::from_millis(100));
        store.free_kept();
        std::thread::sleep(Duration::from_millis(50));
        assert!(names.iter().all(|name| store.bodies.has(*name)), "they are kept");
        let until = Instant::now() + Duration::from_secs(20);
        while names.iter().any(|name| store.bodies.has(*name)) {
            assert!(Instant::now() < until, "they stay for ever");
            std::thread::sleep(Duration::from_millis(20));
            store.free_kept();
        }
        store.stop(threads);
    }
}
