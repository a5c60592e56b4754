//! Histories as JSON lines, so that a failing history can be kept and judged again.
//!
//! Each operation is one line, in order, and each fact is one line.

use std::fmt;
use std::io::{self, BufRead, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::history::{Fact, History};
use crate::operation::Operation;

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    Operation(Operation),
    Fact(Fact),
}

/// Like [`Line`], borrowed.
#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum LineRef<'a> {
    Operation(&'a Operation),
    Fact(&'a Fact),
}

/// The reason why a file is not a history.
#[derive(Debug)]
pub enum LineError {
    /// The file could not be read.
    Io(io::Error),
    /// The line, counted from 1, and the error in it.
    Bad(usize, serde_json::Error),
}

impl fmt::Display for LineError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => write!(formatter, "cannot be read: {error}"),
            Self::Bad(line, error) => write!(formatter, "line {line} is not of a history: {error}"),
        }
    }
}

impl std::error::Error for LineError {}

impl History {
    /// Writes the history as JSON lines.
    ///
    /// # Errors
    /// The error of the writer.
    pub fn write_lines(&self, mut writer: impl Write) -> io::Result<()> {
        let operations = self.operations.iter().map(LineRef::Operation);
        for line in operations.chain(self.facts.iter().map(LineRef::Fact)) {
            serde_json::to_writer(&mut writer, &line)?;
            writer.write_all(b"\n")?;
        }
        writer.flush()
    }

    /// Reads JSON lines and skips empty ones.
    ///
    /// # Errors
    /// The reason why they are not a history.
    pub fn read_lines(reader: impl BufRead) -> Result<Self, LineError> {
        let mut history = Self::new();
        for (index, line) in reader.lines().enumerate() {
            let line = line.map_err(LineError::Io)?;
            if line.trim().is_empty() {
                continue;
            }
            match serde_json::from_str(&line).map_err(|error| LineError::Bad(index + 1, error))? {
                Line::Operation(operation) => history.operations.push(operation),
                Line::Fact(fact) => history.facts.push(fact),
            }
        }
        Ok(history)
    }

    /// Judges the history. If it is not sound, keeps it in a file.
    ///
    /// # Errors
    /// Every anomaly, and where the history is kept.
    pub fn check_or_keep(&self, path: &Path) -> Result<crate::Verdict, String> {
        let verdict = crate::verdict(self);
        if verdict.is_sound() {
            return Ok(verdict);
        }
        let kept = std::fs::File::create(path).map(io::BufWriter::new).and_then(|file| self.write_lines(file));
        Err(match kept {
            Ok(()) => {
                let path = path.display();
                format!("{verdict}kept in {path}; judge it again: cargo run --release -p millrace-history -- {path}")
            }
            Err(error) => format!("{verdict}not kept: {}: {error}", path.display()),
        })
    }
}
