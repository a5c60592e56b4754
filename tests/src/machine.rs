//! Who uses the machine. The tests of one program run side by side. A test that measures waits until no other test
//! runs a server, and none starts one until it has ended.
//!
//! A test takes its share when it first looks for the program ([`crate::binary`]) and keeps it until its thread ends. The threads that it starts use its
//! share: a share of their own could wait for a test that waits for theirs. A test that keeps its share for too long
//! ends the program and is named, since all others would wait for it.

use std::cell::Cell;
use std::io::Write;
use std::sync::{Condvar, Mutex, MutexGuard, Once, PoisonError};
use std::thread::{current, sleep, spawn};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

/// A test that runs for more seconds hangs. None takes a minute on two idle CPUs. `MILLRACE_TEST_LIMIT_S` is another limit, for tests
/// that are told to do more.
const LIMIT_S: usize = 300;

/// What takes a second, or a sync of a few bytes, takes less than this on a machine that the tests can be run on.
const SLOW: Duration = Duration::from_secs(5);

struct Users {
    /// The tests that share the machine, or the one that has it.
    running: Vec<Running>,
    /// Whether one test has the machine.
    is_taken: bool,
    /// Tests that wait to have the machine. No other test starts before them.
    waiting: usize,
    /// Tests that had a share so far.
    number: u64,
}

struct Running {
    number: u64,
    test: String,
    since: Instant,
}

static USERS: Mutex<Users> = Mutex::new(Users { running: Vec::new(), is_taken: false, waiting: 0, number: 0 });
static CHANGED: Condvar = Condvar::new();

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Share {
    None,
    Part,
    Whole,
}

/// What the thread of a test holds. The end of the thread gives it back.
struct Held {
    share: Cell<Share>,
    number: Cell<u64>,
}

thread_local! {
    static HELD: Held = const { Held { share: Cell::new(Share::None), number: Cell::new(0) } };
}

impl Held {
    fn take(&self, users: &mut Users, share: Share, test: &str) {
        static WATCH: Once = Once::new();
        WATCH.call_once(|| drop(spawn(watch)));
        users.number += 1;
        users.running.push(Running { number: users.number, test: test.to_owned(), since: Instant::now() });
        self.number.set(users.number);
        self.share.set(share);
    }

    fn give_back(&self) {
        let share = self.share.replace(Share::None);
        if share == Share::None {
            return;
        }
        let mut users = users();
        users.is_taken &= share != Share::Whole;
        users.running.retain(|running| running.number != self.number.get());
        CHANGED.notify_all();
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.give_back();
    }
}

fn users() -> MutexGuard<'static, Users> {
    USERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits while `is_busy` holds.
fn wait_while(
    users: MutexGuard<'static, Users>,
    is_busy: impl FnMut(&mut Users) -> bool,
) -> MutexGuard<'static, Users> {
    CHANGED.wait_while(users, is_busy).unwrap_or_else(PoisonError::into_inner)
}

/// Shares the machine with other tests until the calling thread ends. A thread that has its share keeps it.
pub fn share() {
    let Some(test) = current().name().map(str::to_owned) else { return };
    HELD.with(|held| {
        if held.share.get() == Share::None {
            let mut users = wait_while(users(), |users| users.is_taken || users.waiting > 0);
            held.take(&mut users, Share::Part, &test);
        }
    });
}

/// Has the machine for the calling test alone, until its thread ends. The test says why at the call.
///
/// # Panics
/// In a thread that a test has started.
pub fn alone() {
    let test = current().name().expect("the test's own thread").to_owned();
    HELD.with(|held| {
        held.give_back();
        let mut users = users();
        users.waiting += 1;
        let mut users = wait_while(users, |users| users.is_taken || !users.running.is_empty());
        users.waiting -= 1;
        users.is_taken = true;
        held.take(&mut users, Share::Whole, &test);
    });
}

/// Looks once a second at the machine and at the tests. Tells when the machine stands still or its disk does: then tests may fail
/// although nothing is wrong with the server.
fn watch() {
    let limit = Duration::from_secs(crate::number_from_env("MILLRACE_TEST_LIMIT_S", LIMIT_S) as u64);
    spawn(use_disk);
    let mut last_told = None;
    loop {
        let began = Instant::now();
        sleep(Duration::from_secs(1));
        if began.elapsed() > SLOW {
            tell(&format!("\nthe machine stands still: a sleep of 1 s took {:?}\n", began.elapsed()));
        }
        let syncs_since = *SYNCS_SINCE.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(since) = syncs_since.filter(|since| since.elapsed() > SLOW && syncs_since != last_told) {
            tell(&format!("\nthe disk is slow: a sync of 1 byte takes {:?} and more\n", since.elapsed()));
            last_told = syncs_since;
        }
        end_if_one_hangs(limit);
    }
}

/// When the sync under way began.
static SYNCS_SINCE: Mutex<Option<Instant>> = Mutex::new(None);

/// Syncs a small file again and again. It is a thread of its own, as a sync may take for ever.
fn use_disk() {
    let Ok(mut file) = tempfile::tempfile() else { return };
    let set = |since| *SYNCS_SINCE.lock().unwrap_or_else(PoisonError::into_inner) = since;
    loop {
        set(Some(Instant::now()));
        // Only its time is of interest.
        let _ = file.write_all(&[0]).and_then(|()| file.sync_all());
        set(None);
        sleep(Duration::from_secs(10));
    }
}

/// Not a macro: the harness of the tests keeps what those print.
fn tell(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// Ends the program when a test hangs. What it has started is killed, as no test will do it.
fn end_if_one_hangs(limit: Duration) {
    let users = users();
    // With one thread for all tests, its name is not a test's, and nothing tells when a test ends.
    let Some(hangs) = users.running.iter().find(|running| running.test != "main" && running.since.elapsed() > limit)
    else {
        return;
    };
    let mut report = format!("\ntest {} hangs: it has run for {limit:?}\n", hangs.test);
    for running in &users.running {
        report.push_str(&format!("  running: {} for {:?}\n", running.test, running.since.elapsed()));
    }
    for child in children() {
        let command = std::fs::read_to_string(format!("/proc/{child}/cmdline")).unwrap_or_default();
        report.push_str(&format!("  its process {child}: {}\n", command.replace('\0', " ")));
        if let Some(child) = Pid::from_raw(child) {
            let _ = kill_process_group(child, Signal::KILL);
            let _ = kill_process(child, Signal::KILL);
        }
    }
    tell(&report);
    std::process::exit(101);
}

/// The processes that this one has started.
fn children() -> Vec<i32> {
    let threads = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let lists = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
    lists.flat_map(|list| list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>()).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread::{Builder, scope, spawn};

    use super::{alone, share};

    #[test]
    fn a_test_that_has_the_machine_runs_beside_no_other() {
        let (sharing, whole) = (AtomicUsize::new(0), AtomicUsize::new(0));
        scope(|threads| {
            for number in 0..60 {
                let (sharing, whole) = (&sharing, &whole);
                let thread = Builder::new().name(format!("test {number}"));
                let started = thread.spawn_scoped(threads, move || {
                    let (own, take): (_, fn()) =
                        if u32::is_multiple_of(number, 4) { (whole, alone) } else { (sharing, share) };
                    // A second call changes nothing.
                    take();
                    take();
                    own.fetch_add(1, Ordering::SeqCst);
                    std::thread::yield_now();
                    let (shared, taken) = (sharing.load(Ordering::SeqCst), whole.load(Ordering::SeqCst));
                    assert!(taken == 0 || (taken, shared) == (1, 0), "{taken} alone beside {shared}");
                    own.fetch_sub(1, Ordering::SeqCst);
                });
                started.expect("a thread");
            }
        });
    }

    /// Else the test that waits to be alone waits for this one, and this one for its thread.
    #[test]
    fn what_a_test_starts_waits_for_nobody() {
        share();
        let waits = Builder::new().name("waits to be alone".to_owned()).spawn(alone).expect("a thread");
        while super::users().waiting == 0 {
            std::thread::yield_now();
        }
        spawn(share).join().expect("its share is the test's");
        super::HELD.with(super::Held::give_back);
        waits.join().expect("alone at last");
    }
}
