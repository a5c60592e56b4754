//! The verdict: runs every checker that a history gives something to look at.

use std::fmt;

use crate::anomaly::{Anomaly, AnomalyKind};
use crate::history::{Fact, History};
use crate::operation::Access;
use crate::{bank, counters, list_append, locks, register, set_equal};

/// The answers of the checkers about one history.
#[derive(Debug)]
pub struct Verdict {
    /// The numbers of acknowledged, failed and unknown operations.
    pub outcomes: (usize, usize, usize),
    /// Each checker that had something to look at, and its answer.
    pub checks: Vec<(&'static str, Result<(), Anomaly>)>,
}

impl Verdict {
    /// Whether every checker is content, and at least one ran.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        !self.checks.is_empty() && self.checks.iter().all(|(_, result)| result.is_ok())
    }

    /// The first anomaly.
    #[must_use]
    pub fn anomaly(&self) -> Option<&Anomaly> {
        self.checks.iter().find_map(|(_, result)| result.as_ref().err())
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (ok, failed, unknown) = self.outcomes;
        writeln!(formatter, "{} operations: {ok} ok, {failed} failed, {unknown} unknown", ok + failed + unknown)?;
        for (name, result) in &self.checks {
            match result {
                Ok(()) => writeln!(formatter, "{name}: sound")?,
                Err(anomaly) => writeln!(formatter, "{anomaly}")?,
            }
        }
        Ok(())
    }
}

/// Runs every checker whose steps or facts occur. A history with nothing to check is an anomaly.
#[must_use]
pub fn verdict(history: &History) -> Verdict {
    let mut checks: Vec<(&'static str, Result<(), Anomaly>)> = Vec::new();
    if let Err(anomaly) = history.validate() {
        checks.push(("history", Err(anomaly)));
        return Verdict { outcomes: history.outcomes(), checks };
    }
    let step = |is: fn(&Access) -> bool| history.operations.iter().any(|operation| operation.steps.iter().any(is));
    let fact = |is: fn(&Fact) -> bool| history.facts.iter().any(is);
    if step(|step| matches!(step, Access::Append(..) | Access::ReadList(_))) {
        checks.push(("list_append", list_append::check(history)));
    }
    if step(|step| matches!(step, Access::Read(_) | Access::Write(..))) {
        checks.push(("register", register::check(history)));
    }
    if step(|step| matches!(step, Access::Transfer { .. } | Access::Balance(_) | Access::Balances)) {
        checks.push(("bank", bank::check(history)));
    }
    let is_counted = fact(|fact| matches!(fact, Fact::Counters(_)));
    if is_counted || step(|step| matches!(step, Access::Increment(_) | Access::Count(_))) {
        checks.push(("counters", counters::check(history)));
    }
    let is_audited = fact(|fact| matches!(fact, Fact::Stocks { .. } | Fact::Stores(_) | Fact::StoreSizes(_)));
    if is_audited || step(|step| matches!(step, Access::Reserve(_) | Access::Publish)) {
        checks.push(("set_equal", set_equal::check(history)));
    }
    if fact(|fact| matches!(fact, Fact::AtRest { .. })) {
        checks.push(("locks", locks::check(history)));
    }
    if checks.is_empty() {
        let nothing = Anomaly::new("history", AnomalyKind::Malformed, "there is nothing in it to check");
        checks.push(("history", Err(nothing)));
    }
    Verdict { outcomes: history.outcomes(), checks }
}
