//! An app's `millrace.toml`, read whole.

use std::fmt;

use serde::Deserialize;

use crate::{FetchPolicy, Limits, ObjectPolicy, RecordPolicy, RetrySettings, WorkerSettings};

/// What an app's `millrace.toml` says; what it does not name keeps its default.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AppSettings {
    /// `[limits]`: what its functions may use.
    pub limits: Limits,
    /// `[fetch]`: which servers outside it may reach.
    pub fetch: FetchPolicy,
    /// `[records]`: which types of records it may use.
    pub records: RecordPolicy,
    /// `[objects]`: which buckets may tell its handlers.
    pub objects: ObjectPolicy,
    /// `[workers]`: how much of it runs on workers at once.
    pub workers: WorkerSettings,
    /// `[retry]`: how what fails is tried again.
    pub retry: RetrySettings,
}

impl AppSettings {
    /// Reads the file.
    ///
    /// # Errors
    /// [`SettingsError`] with line and column for text that is not such a file, and for limits that
    /// no function could run within.
    pub fn from_toml(text: &str) -> Result<Self, SettingsError> {
        let settings: Self = toml::from_str(text).map_err(|error| {
            let offset = error.span().map_or(0, |span| span.start);
            SettingsError::at(text, offset, error.message().to_owned())
        })?;
        if let Err((name, message)) = settings.limits.check() {
            return Err(SettingsError::at(text, offset_of(text, "limits", Some(name)), message));
        }
        if let Err(message) = settings.retry.check() {
            return Err(SettingsError::at(text, offset_of(text, "retry", None), message));
        }
        Ok(settings)
    }
}

/// Where a table, or a value of it, begins in a file that was read.
fn offset_of(text: &str, table: &str, name: Option<&str>) -> usize {
    let read = toml::de::DeTable::parse(text).ok();
    let found = read.as_ref().and_then(|read| {
        let table = read.get_ref().get(table)?;
        match name {
            Some(name) => table.get_ref().get(name),
            None => Some(table),
        }
    });
    found.map_or(0, |value| value.span().start)
}

/// A `millrace.toml` that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingsError {
    /// The line where what is wrong begins, from 1.
    pub line: usize,
    /// And the column, in characters, from 1.
    pub column: usize,
    /// What is wrong.
    pub message: String,
}

impl SettingsError {
    fn at(text: &str, offset: usize, message: String) -> Self {
        let before = text.get(..offset).unwrap_or_default();
        let start = before.rfind('\n').map_or(0, |newline| newline + 1);
        Self { line: before.matches('\n').count() + 1, column: before[start..].chars().count() + 1, message }
    }
}

impl fmt::Display for SettingsError {
    /// As errors in an app's sources read.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "millrace.toml:{}:{}: {}", self.line, self.column, self.message)
    }
}

impl std::error::Error for SettingsError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_named_changes_and_the_rest_keeps_its_default() {
        let read = AppSettings::from_toml("[limits]\ncpu_ms = 7\n").expect("valid");
        assert_eq!(read, AppSettings { limits: Limits { cpu_ms: 7, ..Limits::default() }, ..AppSettings::default() });
        assert_eq!(AppSettings::from_toml(""), Ok(AppSettings::default()));
        let read = AppSettings::from_toml("[fetch]\nallow = [\"https://api.example.com\"]\n").expect("valid");
        assert_eq!(read.limits, Limits::default());
        assert_eq!(read.fetch.allows("https://api.example.com/x"), Ok(()));
        assert!(AppSettings::default().fetch.allows("https://api.example.com/x").is_err());
        let read = AppSettings::from_toml("[records]\ntypes = [\"personinfo\"]\n").expect("valid");
        assert_eq!(read.records.allows("personinfo"), Ok(()));
    }

    #[test]
    fn a_wrong_file_is_refused_with_its_place() {
        for (text, place, word) in [
            ("[limits]\ncpu = 7", "2:1", "cpu_ms"),
            ("[limits]\ncpu_ms = 0", "2:10", "limits.cpu_ms = 0 is outside 1 to 60000"),
            ("limits.cpu_ms = 0", "1:17", "limits.cpu_ms"),
            ("limits = { wait_ms = 1, stack_bytes = 1 } # ä", "1:39", "limits.stack_bytes"),
            ("[fetch]\r\nallow = []\r\n[limits]\r\n\tvalue_bytes = 1\r\n", "4:16", "limits.value_bytes"),
            ("[limit]", "1:2", "limits"),
            ("[limits\n", "1:8", "]"),
            ("[limits]\ncpu_ms = \"x\"", "2:10", "u64"),
            ("[limits]\n# ä\nmemory_bytes = -1", "3:16", "usize"),
            ("[fetch]\nallowed = []", "2:1", "allow"),
            ("[retry]\nattempts = 0", "1:1", "retry.attempts = 0 is outside 1 to"),
            ("[retry]\ntries = 3", "2:1", "attempts"),
            ("[retry.handlers.deliver]\nattempts = 3", "1:2", "service/handler"),
            ("[records]\ntype = []", "2:1", "types"),
            ("[records]\ntypes = [\"a--b\"]", "2:9", "a--b"),
            ("[fetch]\nallow = \"https://a\"", "2:9", "sequence"),
            ("[fetch]\nallow = [\n  \"https://a\",\n  \"ftp://a\",\n]", "2:9", "\"ftp://a\": only http and https"),
        ] {
            let error = AppSettings::from_toml(text).expect_err(text).to_string();
            assert!(error.starts_with(&format!("millrace.toml:{place}: ")), "{text:?}: {error}");
            assert!(error.contains(word), "{text:?}: {error}");
        }
    }
}
