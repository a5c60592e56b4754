//! Runs the other commands of the binary to their end.

use std::process::{Command, Stdio};

use crate::binary;

/// How a command ended.
#[derive(Clone, Debug)]
pub struct Output {
    /// The exit code, or `None` when a signal ended the command.
    pub code: Option<i32>,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
}

/// Runs `millrace` with these arguments.
///
/// # Panics
/// When it cannot be started.
#[must_use]
pub fn millrace(arguments: &[&str]) -> Output {
    let output = Command::new(binary()).args(arguments).stdin(Stdio::null()).output().expect("started");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Output { code: output.status.code(), out: text(&output.stdout), err: text(&output.stderr) }
}
