//! Threads for what would hold a core: reading rows, and reading, writing and hashing bodies.
//!
//! Their number is fixed and jobs wait in the order in which they came. Whoever brings jobs bounds the queue: each body on
//! its way has one job at a time and one read ahead. Must not know what the jobs do.

use std::collections::VecDeque;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;

use millrace_base::{Error, ErrorCode};
use tokio::sync::oneshot;

type Job = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    is_closed: bool,
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    has_come: Condvar,
}

/// A handle to the threads; clones are the same threads.
#[derive(Clone)]
pub(crate) struct Pool {
    shared: Arc<Shared>,
}

impl Pool {
    /// Starts so many threads with this name, nicer than the cores by so much.
    ///
    /// # Errors
    /// The operating system's, when it gives no thread.
    pub(crate) fn start(name: &str, threads: usize, niceness: i32) -> std::io::Result<(Self, Vec<JoinHandle<()>>)> {
        let shared = Arc::new(Shared::default());
        let start = |index| {
            let shared = Arc::clone(&shared);
            std::thread::Builder::new().name(format!("{name}-{index}")).spawn(move || {
                // For Linux it is this thread's own. Where it is refused, all works as well, but the cores get less of the CPU.
                if let Err(error) = rustix::process::nice(niceness) {
                    let thread = std::thread::current();
                    tracing::warn!(%error, thread = thread.name(), "a thread that should give way has the priority of cores");
                }
                run(&shared);
            })
        };
        let handles = (0..threads).map(start).collect::<Result<Vec<_>, _>>()?;
        Ok((Self { shared }, handles))
    }

    /// Runs a job; its result comes to whoever waits. One that nobody waits for any more runs all the same.
    pub(crate) fn run<T: Send + 'static, J: FnOnce() -> T + Send + 'static>(
        &self,
        job: J,
    ) -> impl Future<Output = Result<T, Error>> + Send + use<T, J> {
        let (sender, receiver) = oneshot::channel();
        let job = move || {
            // A panic is a bug in what the job does. It ends the job, and whoever waits is told.
            if let Ok(result) = catch_unwind(AssertUnwindSafe(job)) {
                let _ = sender.send(result);
            }
        };
        let mut queue = self.shared.queue.lock().unwrap_or_else(PoisonError::into_inner);
        if !queue.is_closed {
            queue.jobs.push_back(Box::new(job));
            self.shared.has_come.notify_one();
        }
        drop(queue);
        async move { receiver.await.map_err(|_| Error::new(ErrorCode::Internal, "a job with a body ended early")) }
    }

    /// Takes no more jobs; the threads end when those that wait are done.
    pub(crate) fn close(&self) {
        self.shared.queue.lock().unwrap_or_else(PoisonError::into_inner).is_closed = true;
        self.shared.has_come.notify_all();
    }
}

fn run(shared: &Shared) {
    loop {
        let mut queue = shared.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let job = loop {
            if let Some(job) = queue.jobs.pop_front() {
                break job;
            }
            if queue.is_closed {
                return;
            }
            queue = shared.has_come.wait(queue).unwrap_or_else(PoisonError::into_inner);
        };
        drop(queue);
        job();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_threads_give_way_and_the_others_of_the_process_do_not() {
        let own = || rustix::process::getpriority_process(None).expect("a priority");
        let before = own();
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let (pool, threads) = Pool::start("body", 1, 5).expect("a thread");
        assert_eq!(runtime.block_on(pool.run(own)), Ok((before + 5).min(19)));
        assert_eq!(own(), before);
        pool.close();
        for thread in threads {
            thread.join().expect("it does not panic");
        }
    }

    #[test]
    fn a_job_that_panics_ends_alone_and_the_rest_is_done_before_the_end() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let (pool, threads) = Pool::start("body", 2, 0).expect("threads");
        let bad = pool.run(|| panic!("planted"));
        let good: Vec<_> = (0..100_u64).map(|number| pool.run(move || number * 2)).collect();
        pool.close();
        let after: Result<(), Error> = runtime.block_on(pool.run(|| ()));
        assert_eq!(after.map_err(|error| error.code), Err(ErrorCode::Internal), "it takes no more");
        let bad: Result<(), Error> = runtime.block_on(bad);
        assert!(bad.is_err());
        for (number, job) in (0..).zip(good) {
            assert_eq!(runtime.block_on(job), Ok(number * 2));
        }
        for thread in threads {
            thread.join().expect("it does not panic");
        }
    }
}
