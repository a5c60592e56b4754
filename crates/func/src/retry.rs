//! When something that failed is tried again.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use millrace_base::limits;
use serde::Deserialize;

/// How often something that fails is tried, and with which pauses. Pure: the same attempt waits the same time wherever
/// it is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// How often it is tried in all; `None` is without end.
    pub attempts: Option<u32>,
    /// The pause after the first attempt. Each further one is twice as long as the one before it.
    pub first_ms: u64,
    /// The longest pause.
    pub longest_ms: u64,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            attempts: Some(limits::RETRY_ATTEMPTS),
            first_ms: limits::RETRY_FIRST_MS,
            longest_ms: limits::RETRY_LONGEST_MS,
        }
    }
}

impl RetryPolicy {
    /// The pause after the `attempts`-th failure.
    #[must_use]
    pub fn pause_ms(&self, attempts: u32) -> u64 {
        let doublings = attempts.saturating_sub(1).min(63);
        let is_too_long = self.first_ms > self.longest_ms >> doublings;
        if is_too_long { self.longest_ms } else { self.first_ms << doublings }
    }

    /// The same; `None` if that was the last attempt.
    #[must_use]
    pub fn next_pause_ms(&self, attempts: u32) -> Option<u64> {
        self.attempts.is_none_or(|most| attempts < most).then(|| self.pause_ms(attempts))
    }
}

/// How often something is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged, expecting = "attempts is a number from 1 on, or \"unlimited\"")]
pub enum Attempts {
    /// So often.
    Count(u32),
    /// Without end.
    Unlimited(Unlimited),
}

/// The word for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Unlimited {
    /// The word.
    Unlimited,
}

/// What an author changes of a policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RetryOptions {
    /// How often it is tried in all: a number, or `"unlimited"`.
    pub attempts: Option<Attempts>,
    /// The pause after the first attempt.
    pub first_ms: Option<u64>,
    /// The longest pause.
    pub longest_ms: Option<u64>,
}

impl RetryOptions {
    /// `policy` with what is said here.
    #[must_use]
    pub fn over(&self, policy: RetryPolicy) -> RetryPolicy {
        let attempts = match self.attempts {
            None => policy.attempts,
            Some(Attempts::Count(most)) => Some(most),
            Some(Attempts::Unlimited(_)) => None,
        };
        let first_ms = self.first_ms.unwrap_or(policy.first_ms);
        RetryPolicy { attempts, first_ms, longest_ms: self.longest_ms.unwrap_or(policy.longest_ms) }
    }

    /// Refuses numbers that nobody can mean: what is wrong.
    ///
    /// # Errors
    /// A sentence that names the first such number.
    pub fn check(&self) -> Result<(), String> {
        let within = |name: &str, value: Option<u64>, range: &RangeInclusive<u64>| match value {
            Some(value) if !range.contains(&value) => {
                Err(format!("{name} = {value} is outside {} to {}", range.start(), range.end()))
            }
            _ => Ok(()),
        };
        let count = if let Some(Attempts::Count(count)) = self.attempts { Some(u64::from(count)) } else { None };
        within("attempts", count, &(1..=u64::from(u32::MAX)))?;
        within("first_ms", self.first_ms, &limits::RETRY_PAUSE_MS)?;
        within("longest_ms", self.longest_ms, &limits::RETRY_PAUSE_MS)
    }
}

/// `[retry]` of an app's `millrace.toml`: how messages, and calls and code of workflows, are tried again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RetrySettings {
    /// As of [`RetryOptions`], for the whole app.
    pub attempts: Option<Attempts>,
    /// As of [`RetryOptions`].
    pub first_ms: Option<u64>,
    /// As of [`RetryOptions`].
    pub longest_ms: Option<u64>,
    /// Whether paused workflows and dead letters go on when another version of the app is deployed.
    pub resume_on_deploy: bool,
    /// What differs for a handler, by `service/handler`.
    pub handlers: BTreeMap<String, RetryOptions>,
}

impl RetrySettings {
    /// How a handler is tried: calls of it, messages to it, and its own code if it is a workflow.
    #[must_use]
    pub fn policy(&self, service: &str, handler: &str) -> RetryPolicy {
        let policy = self.of_app().over(RetryPolicy::default());
        if self.handlers.is_empty() {
            return policy;
        }
        self.handlers.get(&format!("{service}/{handler}")).map_or(policy, |options| options.over(policy))
    }

    fn of_app(&self) -> RetryOptions {
        RetryOptions { attempts: self.attempts, first_ms: self.first_ms, longest_ms: self.longest_ms }
    }

    /// Refuses numbers that nobody can mean, and names that are no handler's: what is wrong.
    pub(crate) fn check(&self) -> Result<(), String> {
        self.of_app().check().map_err(|message| format!("retry.{message}"))?;
        for (name, options) in &self.handlers {
            if name.split('/').count() != 2 {
                return Err(format!("retry.handlers: {name:?} is not like \"service/handler\""));
            }
            options.check().map_err(|message| format!("retry.handlers.{name:?}.{message}"))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_author_says_of_an_app_and_of_a_handler_is_changed_and_nothing_else() {
        let text = "attempts = 3\nfirst_ms = 7\n[handlers.\"mail/deliver\"]\nattempts = \"unlimited\"\nlongest_ms = 9";
        let settings: RetrySettings = toml::from_str(text).expect("valid");
        let app = RetryPolicy { attempts: Some(3), first_ms: 7, ..RetryPolicy::default() };
        assert_eq!(settings.policy("mail", "other"), app);
        assert_eq!(settings.policy("mail", "deliver"), RetryPolicy { attempts: None, first_ms: 7, longest_ms: 9 });
        assert_eq!(settings.check(), Ok(()));
        let wrong = toml::from_str::<RetrySettings>("attempts = -1").expect_err("no number of attempts");
        assert!(wrong.to_string().contains("a number from 1 on, or \"unlimited\""), "{wrong}");
    }

    #[test]
    fn pauses_double_up_to_the_longest_and_end_with_the_attempts() {
        let policy = RetryPolicy::default();
        let pauses: Vec<_> = (1..=17).map(|attempts| policy.next_pause_ms(attempts)).collect();
        let doubled = (0..10).map(|doublings| Some(100 << doublings));
        let expected: Vec<_> = doubled.chain([Some(60_000); 5]).chain([None; 2]).collect();
        assert_eq!(pauses, expected);
        let endless = RetryPolicy { attempts: None, first_ms: 0, ..policy };
        assert_eq!((endless.next_pause_ms(u32::MAX), endless.next_pause_ms(1)), (Some(0), Some(0)));
        let odd = RetryPolicy { first_ms: u64::MAX, longest_ms: u64::MAX, ..policy };
        assert_eq!((odd.pause_ms(1), odd.pause_ms(70)), (u64::MAX, u64::MAX));
        assert_eq!(RetryPolicy { first_ms: 9, longest_ms: 5, ..policy }.pause_ms(1), 5);
    }
}
