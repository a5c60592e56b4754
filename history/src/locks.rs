//! At rest nothing is held: no lock of a transaction that is over, and no work half done.
//!
//! The number comes from the node (its metric, or an audit handler). The checker makes sure that a test asked for it
//! and that it is zero.

use crate::anomaly::{Anomaly, AnomalyKind};
use crate::history::{Fact, History};

const CHECKER: &str = "locks";

/// Checks everything that was counted at rest.
///
/// # Errors
/// The name of what is left, and its number.
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
