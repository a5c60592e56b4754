//! An app's `millrace.toml`, read whole.

use std::fmt;

use serde::Deserialize;

use crate::{FetchPolicy, Limits, RecordPolicy};

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
}

impl AppSettings {
    /// Reads the file.
    ///
    /// # Errors
    /// [`SettingsError`] with line and column for text that is not such a file, and for limits that
    /// no function could run within.
    pub fn from_toml(text: &str) -> Result<Self, SettingsError> {
        let settings: Self = toml::from_str(text).map_err(|error| SettingsError(error.to_string()))?;
        settings.limits.check()?;
        Ok(settings)
    }
}

/// A `millrace.toml` that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingsError(pub String);

impl fmt::Display for SettingsError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "millrace.toml: {}", self.0)
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
        for text in [
            "[limits]\ncpu = 7",
            "[limits]\ncpu_ms = 0",
            "[limit]",
            "[limits\n",
            "[limits]\ncpu_ms = \"x\"",
            "[fetch]\nallowed = []",
            "[records]\ntype = []",
            "[records]\ntypes = [\"a--b\"]",
            "[fetch]\nallow = \"https://a\"",
            "[fetch]\nallow = [\"https://a\", \"ftp://a\"]",
        ] {
            let error = AppSettings::from_toml(text).expect_err(text);
            assert!(error.to_string().starts_with("millrace.toml: "), "{error}");
        }
        let error = AppSettings::from_toml("[fetch]\nallow = [\n  \"https://a\",\n  \"ftp://a\",\n]").expect_err("ftp");
        assert!(error.0.contains("line 2") && error.0.contains("\"ftp://a\": only http and https"), "{error}");
    }
}
