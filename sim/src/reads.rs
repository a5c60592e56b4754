//! Rows that are read beside a core: asked for, read at some later moment, handed over at another.

use millrace_store::{ColdRead, ColdRows};

/// The pool of one core.
#[derive(Default)]
pub struct Reads {
    asked: Vec<ColdRead>,
    read: Vec<ColdRows>,
}

impl Reads {
    pub fn ask(&mut self, read: ColdRead) {
        self.asked.push(read);
    }

    /// Reads one, and gives the rows of one: which ones, `choice` decides. What it gives may have been read long ago.
    pub fn go_on(&mut self, choice: u64) -> Option<ColdRows> {
        let of = |count: usize| (choice >> 8) as usize % count;
        if !self.asked.is_empty() && !choice.is_multiple_of(4) {
            let read = self.asked.swap_remove(of(self.asked.len()));
            self.read.push(read.read());
        }
        let gives = !self.read.is_empty() && !(choice >> 2).is_multiple_of(4);
        gives.then(|| self.read.swap_remove(of(self.read.len())))
    }

    /// How many are under way.
    #[must_use]
    pub fn count(&self) -> usize {
        self.asked.len() + self.read.len()
    }
}
