//! Requests that have come and wait to be read: a line of connections, from which a core calls as many as it can run.
//!
//! Promises: called in the order in which they came; never more called at a time than [`CALLED`], so that what is read
//! runs soon. Must not know what they ask for.

use std::collections::VecDeque;
use std::task::{Context, Poll, Waker};

use millrace_api::Admission;

/// Requests that are called and have not come yet: some more than run in a round, of a few microseconds each, and
/// still few enough for what they touch to stay in a core's own cache.
const CALLED: usize = 64;

#[derive(Default)]
pub(crate) struct Admissions {
    /// Since when each waits, and whom to call; `None` has withdrawn.
    waiting: VecDeque<(u64, Option<Waker>)>,
    /// The first one's number; the others' follow.
    first: u64,
    /// How many were called and have not come.
    called: usize,
}

impl Admissions {
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Since when the first one waits.
    pub(crate) fn since_ns(&self) -> Option<u64> {
        self.waiting.front().map(|(since_ns, _)| *since_ns)
    }

    pub(crate) fn ask(&mut self, since_ns: u64, context: &Context<'_>) -> Admission {
        let number = self.first + self.waiting.len() as u64;
        self.waiting.push_back((since_ns, Some(context.waker().clone())));
        Admission { number, since_ns }
    }

    /// Ready once it was called, and then no more.
    pub(crate) fn poll(&mut self, admission: &Admission, context: &Context<'_>) -> Poll<()> {
        match self.entry(admission) {
            None => {
                self.called -= 1;
                Poll::Ready(())
            }
            Some(waker) => {
                match waker {
                    Some(waker) => waker.clone_from(context.waker()),
                    None => *waker = Some(context.waker().clone()),
                }
                Poll::Pending
            }
        }
    }

    pub(crate) fn withdraw(&mut self, admission: &Admission) {
        match self.entry(admission) {
            None => self.called -= 1,
            Some(waker) => *waker = None,
        }
    }

    /// Calls the first one; false where enough are called, or none waits.
    pub(crate) fn call(&mut self) -> bool {
        while self.called < CALLED
            && let Some((_, waker)) = self.waiting.pop_front()
        {
            self.first += 1;
            if let Some(waker) = waker {
                self.called += 1;
                waker.wake();
                return true;
            }
        }
        false
    }

    /// Whom to call for an admission; `None`: it was called.
    fn entry(&mut self, admission: &Admission) -> Option<&mut Option<Waker>> {
        let index = admission.number.checked_sub(self.first)?;
        self.waiting.get_mut(usize::try_from(index).ok()?).map(|(_, waker)| waker)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Calls(AtomicUsize);

    impl Wake for Calls {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Admissions asked for by somebody who counts how often he is called.
    fn admissions(count: usize) -> (Admissions, Vec<Admission>, Arc<Calls>, Waker) {
        let calls = Arc::new(Calls::default());
        let waker = Waker::from(Arc::clone(&calls));
        let mut admissions = Admissions::default();
        let taken = (0..count).map(|since_ns| admissions.ask(since_ns as u64, &Context::from_waker(&waker))).collect();
        (admissions, taken, calls, waker)
    }

    #[test]
    fn only_so_many_are_called_and_in_their_order() {
        let (mut admissions, taken, calls, waker) = admissions(CALLED + 2);
        let context = Context::from_waker(&waker);
        while admissions.call() {}
        assert_eq!((calls.0.load(Ordering::Relaxed), admissions.len()), (CALLED, 2));
        assert_eq!(admissions.since_ns(), Some(CALLED as u64));
        assert!(admissions.poll(&taken[CALLED], &context).is_pending());
        assert!(admissions.poll(&taken[1], &context).is_ready());
        assert!(admissions.call() && !admissions.call());
        assert!(admissions.poll(&taken[CALLED], &context).is_ready());
        assert!(admissions.poll(&taken[CALLED + 1], &context).is_pending());
    }

    #[test]
    fn who_withdraws_is_passed_over_before_its_call_and_after() {
        let (mut admissions, taken, calls, waker) = admissions(CALLED + 3);
        admissions.withdraw(&taken[0]);
        admissions.withdraw(&taken[2]);
        while admissions.call() {}
        assert_eq!((calls.0.load(Ordering::Relaxed), admissions.len()), (CALLED, 1));
        assert!(!admissions.call());
        // Called, and never comes.
        admissions.withdraw(&taken[1]);
        assert!(admissions.call());
        assert!(admissions.poll(&taken[CALLED + 2], &Context::from_waker(&waker)).is_ready());
        assert!(admissions.is_empty());
        for admission in &taken[3..CALLED + 2] {
            admissions.withdraw(admission);
        }
        assert_eq!(admissions.called, 0);
    }
}
