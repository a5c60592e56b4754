//! Who uses the machine. The tests of one program run side by side. A test that measures waits until no other test
//! runs a server, and none starts one until it has ended.
//!
//! A test takes its share with its first server and keeps it until its thread ends.

use std::cell::Cell;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A test that waits longer than this waits for a test that does not end.
const PATIENCE: Duration = Duration::from_secs(1_200);

struct Users {
    /// Tests that share the machine.
    sharing: usize,
    /// Whether one test has the machine.
    is_taken: bool,
    /// Tests that wait to have the machine. No other test starts before them.
    waiting: usize,
}

static USERS: Mutex<Users> = Mutex::new(Users { sharing: 0, is_taken: false, waiting: 0 });
static CHANGED: Condvar = Condvar::new();

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Share {
    None,
    Part,
    Whole,
}

/// What the thread of a test holds. The end of the thread gives it back.
struct Held(Cell<Share>);

thread_local! {
    static HELD: Held = const { Held(Cell::new(Share::None)) };
}

impl Held {
    fn give_back(&self) {
        let mut users = users();
        match self.0.replace(Share::None) {
            Share::None => {}
            Share::Part => users.sharing -= 1,
            Share::Whole => users.is_taken = false,
        }
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
    let waited = CHANGED.wait_timeout_while(users, PATIENCE, is_busy);
    let (users, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
    assert!(!timeout.timed_out(), "another test has the machine for {PATIENCE:?}");
    users
}

/// Shares the machine with other tests until the calling thread ends. Starting a server does this; a thread that has
/// its share keeps it.
///
/// # Panics
/// When another test keeps the machine for too long.
pub fn share() {
    HELD.with(|held| {
        if held.0.get() == Share::None {
            wait_while(users(), |users| users.is_taken || users.waiting > 0).sharing += 1;
            held.0.set(Share::Part);
        }
    });
}

/// Has the machine for the calling test alone, until its thread ends. The test says why at the call. Only the test's own thread may
/// start servers then.
///
/// # Panics
/// When other tests keep the machine for too long.
pub fn alone() {
    HELD.with(|held| {
        held.give_back();
        let mut users = users();
        users.waiting += 1;
        let mut users = wait_while(users, |users| users.is_taken || users.sharing > 0);
        users.waiting -= 1;
        users.is_taken = true;
        held.0.set(Share::Whole);
    });
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread::scope;

    use super::{alone, share};

    #[test]
    fn a_test_that_has_the_machine_runs_beside_no_other() {
        let (sharing, whole) = (AtomicUsize::new(0), AtomicUsize::new(0));
        scope(|threads| {
            for number in 0..60 {
                let (sharing, whole) = (&sharing, &whole);
                threads.spawn(move || {
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
            }
        });
    }
}
