//! Requests that have come and wait to be read: a line of connections. The core calls as many of them as it can run.
//!
//! Promises: connections are called in the order in which they came. At most [`CALLED`] are called and not read, so that
//! what is read runs soon. Must not know what requests ask for.

use std::collections::VecDeque;

use millrace_api::Admission;

use crate::platform::Waiter;

/// The most requests that are called and have not come yet. A round runs fewer: each takes a few microseconds. What
/// this many requests touch stays in a core's own cache.
const CALLED: usize = 64;

pub(crate) struct Admissions<W> {
    /// Since when each waits, and whom to call; `None` has withdrawn.
    waiting: VecDeque<(u64, Option<W>)>,
    /// The first one's number; the others' follow.
    first: u64,
    /// How many were called and have not come.
    called: usize,
}

impl<W> Default for Admissions<W> {
    fn default() -> Self {
        Self { waiting: VecDeque::new(), first: 0, called: 0 }
    }
}

impl<W: Waiter> Admissions<W> {
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

    pub(crate) fn ask(&mut self, since_ns: u64, waiter: &W) -> Admission {
        let number = self.first + self.waiting.len() as u64;
        self.waiting.push_back((since_ns, Some(waiter.clone())));
        Admission { number, since_ns }
    }

    /// Whether it was called. It may be asked until it was, and no more.
    pub(crate) fn is_called(&mut self, admission: &Admission, waiter: &W) -> bool {
        match self.entry(admission) {
            None => {
                self.called -= 1;
                true
            }
            Some(known) => {
                if !known.as_ref().is_some_and(|known| known.will_wake(waiter)) {
                    *known = Some(waiter.clone());
                }
                false
            }
        }
    }

    pub(crate) fn withdraw(&mut self, admission: &Admission) {
        match self.entry(admission) {
            None => self.called -= 1,
            Some(waiter) => *waiter = None,
        }
    }

    /// Calls the first one; false where enough are called, or none waits.
    pub(crate) fn call(&mut self) -> bool {
        while self.called < CALLED
            && let Some((_, waiter)) = self.waiting.pop_front()
        {
            self.first += 1;
            if let Some(waiter) = waiter {
                self.called += 1;
                waiter.wake();
                return true;
            }
        }
        false
    }

    /// Whom to call for an admission; `None`: it was called.
    fn entry(&mut self, admission: &Admission) -> Option<&mut Option<W>> {
        let index = admission.number.checked_sub(self.first)?;
        self.waiting.get_mut(usize::try_from(index).ok()?).map(|(_, waiter)| waiter)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use super::*;

    /// Counts how often it is called.
    #[derive(Clone, Default)]
    struct Calls(Rc<Cell<usize>>);

    impl Waiter for Calls {
        fn wake(self) {
            self.0.set(self.0.get() + 1);
        }

        fn will_wake(&self, other: &Self) -> bool {
            Rc::ptr_eq(&self.0, &other.0)
        }
    }

    /// So many admissions, all asked for by one waiter.
    fn admissions(count: usize) -> (Admissions<Calls>, Vec<Admission>, Calls) {
        let calls = Calls::default();
        let mut admissions = Admissions::default();
        let taken = (0..count).map(|since_ns| admissions.ask(since_ns as u64, &calls)).collect();
        (admissions, taken, calls)
    }

    #[test]
    fn only_so_many_are_called_and_in_their_order() {
        let (mut admissions, taken, calls) = admissions(CALLED + 2);
        while admissions.call() {}
        assert_eq!((calls.0.get(), admissions.len()), (CALLED, 2));
        assert_eq!(admissions.since_ns(), Some(CALLED as u64));
        assert!(!admissions.is_called(&taken[CALLED], &calls));
        assert!(admissions.is_called(&taken[1], &calls));
        assert!(admissions.call() && !admissions.call());
        assert!(admissions.is_called(&taken[CALLED], &calls));
        assert!(!admissions.is_called(&taken[CALLED + 1], &calls));
    }

    #[test]
    fn who_withdraws_is_passed_over_before_its_call_and_after() {
        let (mut admissions, taken, calls) = admissions(CALLED + 3);
        admissions.withdraw(&taken[0]);
        admissions.withdraw(&taken[2]);
        while admissions.call() {}
        assert_eq!((calls.0.get(), admissions.len()), (CALLED, 1));
        assert!(!admissions.call());
        // Called, and never comes.
        admissions.withdraw(&taken[1]);
        assert!(admissions.call());
        assert!(admissions.is_called(&taken[CALLED + 2], &calls));
        assert!(admissions.is_empty());
        for admission in &taken[3..CALLED + 2] {
            admissions.withdraw(admission);
        }
        assert_eq!(admissions.called, 0);
    }
}
