//! Where a connection asks the node whether to read what has come.

use std::task::{Context, Poll, ready};

use millrace_api::{Admission, Serving};

use crate::io::{Io, Stream};

/// An admission that is held and not looked after keeps others waiting: it is given up with everything that ends the wait.
pub(crate) struct Gate<'a, B: Serving> {
    backend: &'a B,
    admission: Option<Admission>,
}

impl<'a, B: Serving> Gate<'a, B> {
    pub(crate) fn new(backend: &'a B) -> Self {
        Self { backend, admission: None }
    }

    /// Whether something has come that the node has no time for yet.
    pub(crate) fn is_waiting(&self) -> bool {
        self.admission.is_some()
    }

    /// Waits until there is something to read, unless something `is_there`, and then until the node has time for it.
    pub(crate) fn poll(&mut self, io: &Io, is_there: bool, context: &mut Context<'_>) -> Poll<()> {
        let has_waited = self.is_waiting();
        if !is_there && !has_waited {
            match &io.stream {
                Stream::Plain(stream) => drop(ready!(stream.poll_read_ready(context))),
                // Whether there is anything, only reading tells: such requests wait where they were read.
                Stream::Tls(_) => return Poll::Ready(()),
            }
        }
        ready!(self.backend.poll_admission(&mut self.admission, context));
        if has_waited {
            io.state.time_begins();
        }
        Poll::Ready(())
    }

    pub(crate) fn leave(&mut self) {
        if let Some(admission) = self.admission.take() {
            self.backend.withdraw(admission);
        }
    }
}

impl<B: Serving> Drop for Gate<'_, B> {
    fn drop(&mut self) {
        self.leave();
    }
}
