//! Threads that read rows of the checkpoint, for requests whose entity memory does not hold.
//!
//! Their priority is that of the cores: somebody waits for each read.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;

use millrace_store::{ColdRead, ColdRows};

use crate::pool::Pool;

/// Threads for each core. They mostly wait, and disks are fast with several reads at once.
const THREADS_PER_CORE: usize = 4;

/// See the module's documentation.
pub(crate) struct Readers {
    pool: Pool,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Readers {
    /// Starts the threads for a node with so many cores.
    ///
    /// # Errors
    /// The operating system's, when it gives no thread.
    pub(crate) fn start(cores: usize) -> io::Result<Self> {
        let (pool, threads) = Pool::start("read", cores * THREADS_PER_CORE, 0)?;
        Ok(Self { pool, threads: Mutex::new(threads) })
    }

    /// Reads, and hands over what it has read.
    pub(crate) fn read(&self, read: ColdRead, hand_over: impl FnOnce(ColdRows) + Send + 'static) {
        // The core hears what comes of it by a message.
        drop(self.pool.run(move || {
            // If reading panics, the core reads by itself. Its panic stops the shard.
            let otherwise = read.without_result();
            let rows = catch_unwind(AssertUnwindSafe(|| read.read()));
            hand_over(rows.unwrap_or(otherwise));
        }));
    }

    /// Ends the threads. The cores have ended before.
    pub(crate) fn stop(&self) {
        self.pool.close();
        for thread in std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner)) {
            drop(thread.join());
        }
    }
}
