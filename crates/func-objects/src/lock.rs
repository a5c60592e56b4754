//! Object lock: what a retention and a legal hold keep from being deleted, and who may change them.
//!
//! Must not know who has which permission: the caller says whether governance is bypassed, that is, asked for and
//! allowed.

use millrace_api::objects::{ObjectLock, Refusal, Retention, RetentionMode, RetentionPeriod};
use millrace_base::Error;

use crate::limits;

const DAY_MS: u64 = 24 * 60 * 60 * 1000;
const YEAR_DAYS: u64 = 365;

/// Checks the default retention of a bucket before it is kept.
///
/// # Errors
/// `InvalidRetentionPeriod`.
pub fn check_lock(lock: &ObjectLock) -> Result<(), Error> {
    let Some(default) = &lock.default_retention else { return Ok(()) };
    let (count, limit) = match default.period {
        RetentionPeriod::Days(days) => (days, limits::RULE_DAYS),
        RetentionPeriod::Years(years) => (years, limits::RULE_DAYS / 365),
    };
    if count == 0 {
        return Err(Refusal::InvalidRetentionPeriod.error("Default retention period must be a positive integer value"));
    }
    if count > limit {
        return Err(Refusal::InvalidRetentionPeriod.error("Default retention period is too large"));
    }
    Ok(())
}

/// The retention of a new version that says nothing else.
#[must_use]
pub fn default_retention(lock: Option<&ObjectLock>, now_ms: u64) -> Option<Retention> {
    let default = lock?.default_retention?;
    let days = match default.period {
        RetentionPeriod::Days(days) => u64::from(days),
        RetentionPeriod::Years(years) => u64::from(years) * YEAR_DAYS,
    };
    Some(Retention { mode: default.mode, until_ms: now_ms.saturating_add(days * DAY_MS) })
}

/// Checks the retention that a new version is to have.
///
/// # Errors
/// `InvalidArgument` for a time that is past.
pub fn check_new(retention: Retention, now_ms: u64) -> Result<(), Error> {
    if retention.until_ms > now_ms {
        return Ok(());
    }
    Err(Refusal::InvalidArgument.error("The retain until date must be in the future!"))
}

/// Checks a change of the retention of a version.
///
/// # Errors
/// `InvalidArgument` for a time that is past, `AccessDenied` for a change that weakens what still holds.
pub fn check_change(old: Option<Retention>, new: Option<Retention>, bypass: bool, now_ms: u64) -> Result<(), Error> {
    if let Some(new) = new {
        check_new(new, now_ms)?;
    }
    let Some(old) = old.filter(|old| old.until_ms > now_ms) else { return Ok(()) };
    let is_kept = new.is_some_and(|new| new.mode == old.mode && new.until_ms >= old.until_ms);
    let may_weaken = bypass && old.mode == RetentionMode::Governance;
    if is_kept || may_weaken { Ok(()) } else { Err(protected()) }
}

/// Whether a version may be removed for good.
///
/// # Errors
/// `AccessDenied`.
pub fn check_delete(
    retention: Option<Retention>,
    legal_hold: Option<bool>,
    bypass: bool,
    now_ms: u64,
) -> Result<(), Error> {
    if legal_hold == Some(true) {
        return Err(protected());
    }
    match retention.filter(|retention| retention.until_ms > now_ms).map(|retention| retention.mode) {
        None => Ok(()),
        Some(RetentionMode::Governance) if bypass => Ok(()),
        Some(_) => Err(protected()),
    }
}

fn protected() -> Error {
    Refusal::AccessDenied.error("Access Denied because object protected by object lock.")
}

#[cfg(test)]
mod tests {
    use RetentionMode::{Compliance, Governance};
    use millrace_api::objects::DefaultRetention;

    use super::*;

    const NOW: u64 = 1_000;

    fn kept(mode: RetentionMode, until_ms: u64) -> Option<Retention> {
        Some(Retention { mode, until_ms })
    }

    #[test]
    fn changes_follow_the_table() {
        // The old one, the new one; allowed without bypass, with it.
        let table = [
            (None, kept(Governance, 2_000), true, true),
            (None, kept(Compliance, 2_000), true, true),
            (None, None, true, true),
            // Longer is always allowed, the same too.
            (kept(Governance, 2_000), kept(Governance, 3_000), true, true),
            (kept(Governance, 2_000), kept(Governance, 2_000), true, true),
            (kept(Compliance, 2_000), kept(Compliance, 3_000), true, true),
            // Shorter, none, another mode.
            (kept(Governance, 3_000), kept(Governance, 2_000), false, true),
            (kept(Governance, 3_000), None, false, true),
            (kept(Governance, 3_000), kept(Compliance, 4_000), false, true),
            (kept(Governance, 3_000), kept(Compliance, 2_000), false, true),
            (kept(Compliance, 3_000), kept(Compliance, 2_000), false, false),
            (kept(Compliance, 3_000), None, false, false),
            (kept(Compliance, 3_000), kept(Governance, 4_000), false, false),
            // What is over holds nothing.
            (kept(Compliance, 1_000), None, true, true),
            (kept(Compliance, 500), kept(Governance, 2_000), true, true),
        ];
        for (old, new, plain, bypassed) in table {
            assert_eq!(check_change(old, new, false, NOW).is_ok(), plain, "{old:?} {new:?}");
            assert_eq!(check_change(old, new, true, NOW).is_ok(), bypassed, "{old:?} {new:?} bypassed");
        }
        let past = check_change(None, kept(Governance, 1_000), true, NOW).expect_err("it is past");
        assert_eq!(Refusal::of(&past), Some(Refusal::InvalidArgument));
        let weakened = check_change(kept(Compliance, 3_000), None, true, NOW).expect_err("it holds");
        assert_eq!(Refusal::of(&weakened), Some(Refusal::AccessDenied));
    }

    #[test]
    fn deletions_follow_the_table() {
        // Retention, hold; allowed without bypass, with it.
        let table = [
            (None, None, true, true),
            (None, Some(false), true, true),
            (None, Some(true), false, false),
            (kept(Governance, 2_000), None, false, true),
            (kept(Governance, 2_000), Some(true), false, false),
            (kept(Governance, 1_000), None, true, true),
            (kept(Governance, 1_000), Some(true), false, false),
            (kept(Compliance, 2_000), None, false, false),
            (kept(Compliance, 1_000), Some(false), true, true),
        ];
        for (retention, hold, plain, bypassed) in table {
            assert_eq!(check_delete(retention, hold, false, NOW).is_ok(), plain, "{retention:?} {hold:?}");
            assert_eq!(check_delete(retention, hold, true, NOW).is_ok(), bypassed, "{retention:?} {hold:?} bypassed");
        }
    }

    #[test]
    fn defaults_are_checked_and_applied() {
        let lock = |period| ObjectLock { default_retention: Some(DefaultRetention { mode: Governance, period }) };
        for (period, is_valid) in [
            (RetentionPeriod::Days(1), true),
            (RetentionPeriod::Days(36_500), true),
            (RetentionPeriod::Years(100), true),
            (RetentionPeriod::Days(0), false),
            (RetentionPeriod::Years(0), false),
            (RetentionPeriod::Days(36_501), false),
            (RetentionPeriod::Years(101), false),
            (RetentionPeriod::Years(u32::MAX), false),
        ] {
            let refusal = check_lock(&lock(period)).err().and_then(|error| Refusal::of(&error));
            assert_eq!(refusal, (!is_valid).then_some(Refusal::InvalidRetentionPeriod), "{period:?}");
        }
        assert_eq!(check_lock(&ObjectLock::default()), Ok(()));
        let of = |lock: &ObjectLock| default_retention(Some(lock), NOW);
        assert_eq!(of(&lock(RetentionPeriod::Days(1))), kept(Governance, NOW + 86_400_000));
        assert_eq!(of(&lock(RetentionPeriod::Years(1))), kept(Governance, NOW + 365 * 86_400_000));
        assert_eq!(of(&ObjectLock::default()), None);
        assert_eq!(default_retention(None, NOW), None);
    }
}
