//! An app's `millrace.toml`, read whole.

use std::fmt;

use millrace_api::BUILT_IN_APPS;
use serde::Deserialize;
use toml::Spanned;
use toml::de::DeTable;

use crate::{FetchPolicy, Grants, Limits, RetrySettings, WorkerSettings};

/// What an app's `millrace.toml` says; what it does not name keeps its default.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AppSettings {
    /// `[limits]`: what its functions may use.
    pub limits: Limits,
    /// `[fetch]`: which servers outside it may reach.
    pub fetch: FetchPolicy,
    /// What it allows of built-in apps, in a section for each.
    #[serde(skip)]
    pub grants: Grants,
    /// `[workers]`: how much of it runs on workers at once.
    pub workers: WorkerSettings,
    /// `[retry]`: how what fails is tried again.
    pub retry: RetrySettings,
}

/// The sections that are not about a built-in app.
const SECTIONS: [&str; 4] = ["fetch", "limits", "retry", "workers"];

fn no_such_section(name: &str) -> String {
    let known = SECTIONS.into_iter().chain(BUILT_IN_APPS.map(|app| app.name));
    let known: Vec<String> = known.map(|name| format!("`{name}`")).collect();
    format!("unknown field `{name}`, expected one of {}", known.join(", "))
}

impl AppSettings {
    /// Reads the file.
    ///
    /// # Errors
    /// [`SettingsError`] with line and column for text that is not such a file, and for limits that
    /// no function could run within.
    pub fn from_toml(text: &str) -> Result<Self, SettingsError> {
        let misplaced = |Misplaced { offset, message }| SettingsError::at(text, offset, message);
        let mut table = DeTable::parse(text).map_err(|error| misplaced(error.into()))?;
        let grants = Grants::take_from(table.get_mut()).map_err(misplaced)?;
        if let Some(unknown) = table.get_ref().keys().find(|key| !SECTIONS.contains(&key.get_ref().as_ref())) {
            return Err(misplaced(Misplaced::at(unknown, no_such_section(unknown.get_ref()))));
        }
        let read = Self::deserialize(toml::Deserializer::from(table)).map_err(|error| misplaced(error.into()))?;
        let settings = Self { grants, ..read };
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

/// What is wrong with a text, and where in it.
pub(crate) struct Misplaced {
    pub offset: usize,
    pub message: String,
}

impl Misplaced {
    pub(crate) fn at<T>(place: &Spanned<T>, message: String) -> Self {
        Self { offset: place.span().start, message }
    }
}

impl From<toml::de::Error> for Misplaced {
    fn from(error: toml::de::Error) -> Self {
        Self { offset: error.span().map_or(0, |span| span.start), message: error.message().to_owned() }
    }
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
        for section in SECTIONS {
            assert_eq!(AppSettings::from_toml(&format!("[{section}]\n")), Ok(AppSettings::default()), "{section}");
        }
        let read = AppSettings::from_toml("[records]\ntypes = [\"personinfo\"]\n[objects]\nnotifications = []\n");
        let mut grants = Grants::default();
        grants.allow(BUILT_IN_APPS[0], vec!["personinfo".to_owned()]).expect("a name");
        grants.allow(BUILT_IN_APPS[1], Vec::new()).expect("none");
        assert_eq!(read, Ok(AppSettings { grants, ..AppSettings::default() }));
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
            ("[record]", "1:2", "`records`"),
            ("records = 5", "1:11", "types"),
            ("[objects]\nnotifications = [5]", "2:18", "string"),
            (
                "[objects]\nnotifications = [\"A\"]",
                "2:17",
                "objects.notifications: \"A\" cannot be the name of a bucket",
            ),
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
