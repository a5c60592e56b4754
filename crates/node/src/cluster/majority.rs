//! When to tell the operator that this node hears no majority of the nodes, and that it hears one again: once each.

/// How long no majority was heard before it is said. A short pause is no news: calls wait for that long, too.
const PATIENCE_NS: u64 = 2_000_000_000;

/// What is to be said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    Lost,
    Back { after_ms: u64 },
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct MajorityWatch {
    /// Since when no majority is heard.
    since_ns: Option<u64>,
    is_said: bool,
}

impl MajorityWatch {
    /// Something may have changed. Links that come and go often make one line in two seconds at most.
    pub(super) fn look(&mut self, now_ns: u64, is_heard: bool) -> Option<Turn> {
        if is_heard {
            let since_ns = self.since_ns.take()?;
            let after_ms = (now_ns - since_ns) / 1_000_000;
            return std::mem::take(&mut self.is_said).then_some(Turn::Back { after_ms });
        }
        let since_ns = *self.since_ns.get_or_insert(now_ns);
        let is_due = !self.is_said && now_ns >= since_ns + PATIENCE_NS;
        self.is_said |= is_due;
        is_due.then_some(Turn::Lost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_loss_and_each_return_is_said_once_and_a_short_pause_is_not() {
        let mut watch = MajorityWatch::default();
        let mut said = Vec::new();
        // A look each 100 ms. No majority is heard for 1 s, and later for 5 s.
        for step in 0..200_u64 {
            let is_heard = !(10..20).contains(&step) && !(50..100).contains(&step);
            said.extend(watch.look(step * 100_000_000, is_heard).map(|turn| (step, turn)));
        }
        assert_eq!(said, [(70, Turn::Lost), (100, Turn::Back { after_ms: 5_000 })]);
    }
}
