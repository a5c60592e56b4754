//! Compatibility levels and modes, named as in the Confluent Schema Registry.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::refusal::{Refusal, RefusalKind};

/// What a new schema of a subject must have in common with those before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Level {
    /// Nothing.
    None,
    /// It reads what the latest version wrote.
    #[default]
    Backward,
    /// It reads what any version wrote.
    BackwardTransitive,
    /// The latest version reads what it writes.
    Forward,
    /// Every version reads what it writes.
    ForwardTransitive,
    /// Backward and forward.
    Full,
    /// Backward and forward with every version.
    FullTransitive,
}

impl Level {
    /// Every level.
    pub const ALL: [Level; 7] = [
        Level::None,
        Level::Backward,
        Level::BackwardTransitive,
        Level::Forward,
        Level::ForwardTransitive,
        Level::Full,
        Level::FullTransitive,
    ];

    /// The level of this name, in any case of letters.
    ///
    /// # Errors
    /// If there is no such level.
    pub fn parse(text: &str) -> Result<Level, Refusal> {
        Self::ALL.into_iter().find(|level| level.as_str().eq_ignore_ascii_case(text)).ok_or_else(|| {
            let names: Vec<&str> = Self::ALL.iter().map(|level| level.as_str()).collect();
            let message = format!("a compatibility level is one of {}", names.join(", "));
            Refusal::new(RefusalKind::InvalidLevel, message)
        })
    }

    /// Its name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Level::None => "NONE",
            Level::Backward => "BACKWARD",
            Level::BackwardTransitive => "BACKWARD_TRANSITIVE",
            Level::Forward => "FORWARD",
            Level::ForwardTransitive => "FORWARD_TRANSITIVE",
            Level::Full => "FULL",
            Level::FullTransitive => "FULL_TRANSITIVE",
        }
    }

    /// Whether the new schema must read what earlier ones wrote.
    #[must_use]
    pub fn is_backward(self) -> bool {
        matches!(self, Level::Backward | Level::BackwardTransitive | Level::Full | Level::FullTransitive)
    }

    /// Whether earlier schemas must read what the new one writes.
    #[must_use]
    pub fn is_forward(self) -> bool {
        matches!(self, Level::Forward | Level::ForwardTransitive | Level::Full | Level::FullTransitive)
    }

    /// Whether it applies to all earlier versions rather than to the latest.
    #[must_use]
    pub fn is_transitive(self) -> bool {
        matches!(self, Level::BackwardTransitive | Level::ForwardTransitive | Level::FullTransitive)
    }
}

impl fmt::Display for Level {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

/// What callers may do with a subject, or with all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mode {
    /// Everything. This registry gives the ids.
    #[default]
    #[serde(rename = "READWRITE")]
    ReadWrite,
    /// Reading.
    #[serde(rename = "READONLY")]
    ReadOnly,
    /// As the global mode: only reading, whatever a subject's own mode is.
    #[serde(rename = "READONLY_OVERRIDE")]
    ReadOnlyOverride,
    /// Registering with ids and versions from elsewhere, without checks of compatibility.
    #[serde(rename = "IMPORT")]
    Import,
}

impl Mode {
    /// Every mode.
    pub const ALL: [Mode; 4] = [Mode::ReadWrite, Mode::ReadOnly, Mode::ReadOnlyOverride, Mode::Import];

    /// The mode of this name, in any case of letters.
    ///
    /// # Errors
    /// If there is no such mode.
    pub fn parse(text: &str) -> Result<Mode, Refusal> {
        Self::ALL.into_iter().find(|mode| mode.as_str().eq_ignore_ascii_case(text)).ok_or_else(|| {
            let names: Vec<&str> = Self::ALL.iter().map(|mode| mode.as_str()).collect();
            Refusal::new(RefusalKind::InvalidMode, format!("a mode is one of {}", names.join(", ")))
        })
    }

    /// Its name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Mode::ReadWrite => "READWRITE",
            Mode::ReadOnly => "READONLY",
            Mode::ReadOnlyOverride => "READONLY_OVERRIDE",
            Mode::Import => "IMPORT",
        }
    }

    /// Whether callers may change nothing.
    #[must_use]
    pub fn is_read_only(self) -> bool {
        matches!(self, Mode::ReadOnly | Mode::ReadOnlyOverride)
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}
