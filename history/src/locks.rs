//! At rest nothing is held: no lock of a transaction that is over, no work half done.
//!
//! The number comes from the node (its metric, or an audit handler); the checker sees to it that
//! it was asked for and that it is zero.

use crate::anomaly::{Anomaly, AnomalyKind};
use crate::history::{Fact, History};

const CHECKER: &str = "locks";

/// Checks everything that was counted at rest.
///
/// # Errors
/// What is left, and how much of it.
pub fn check(history: &History) -> Result<(), Anomaly> {
    history.validate()?;
    for fact in &history.facts {
        if let Fact::AtRest { what, count } = fact
            && *count != 0
        {
            return Err(Anomaly::new(
                CHECKER,
                AnomalyKind::LeftAtRest,
                format!("{count} {what} at rest, expected none"),
            ));
        }
    }
    Ok(())
}
