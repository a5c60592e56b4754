//! What an app's functions may use. Each field is a key of `[limits]` in the app's `millrace.toml`.

use std::fmt;

use millrace_base::limits;
use serde::Deserialize;

/// The limits of one app. Defaults come from `millrace_base::limits`, which gives the reasons.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// CPU time of one frame, all its turns together.
    pub cpu_ms: u64,
    /// Heap of one service on one core.
    pub memory_bytes: usize,
    /// Native stack of one turn.
    pub stack_bytes: usize,
    /// How deep `ctx.call` nests.
    pub call_depth: usize,
    /// JSON input of a call.
    pub input_bytes: usize,
    /// JSON output of a call, or body of a route's reply.
    pub output_bytes: usize,
    /// Fields one transaction may write.
    pub writes_per_call: usize,
    /// One field's value.
    pub value_bytes: usize,
    /// Operations one frame may have open.
    pub pending_operations: usize,
    /// Messages one transaction may send.
    pub messages_per_call: usize,
    /// How long an invocation may wait in all for what it awaits.
    pub wait_ms: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            cpu_ms: limits::CPU_MS,
            memory_bytes: limits::SERVICE_MEMORY_BYTES,
            stack_bytes: limits::STACK_BYTES,
            call_depth: limits::CALL_DEPTH,
            input_bytes: limits::INPUT_BYTES,
            output_bytes: limits::OUTPUT_BYTES,
            writes_per_call: limits::WRITES_PER_CALL,
            value_bytes: limits::VALUE_BYTES,
            pending_operations: limits::PENDING_OPERATIONS,
            messages_per_call: limits::MESSAGES_PER_CALL,
            wait_ms: limits::CALL_WAIT_MS,
        }
    }
}

/// A `millrace.toml` that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitsError(pub String);

impl fmt::Display for LimitsError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "millrace.toml: {}", self.0)
    }
}

impl std::error::Error for LimitsError {}

#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
struct File {
    limits: Limits,
}

impl Limits {
    /// Reads the `[limits]` of a `millrace.toml`; what it does not name keeps its default.
    ///
    /// # Errors
    /// [`LimitsError`] with line and column for text that is not such a file, and for limits that
    /// no function could run within.
    pub fn from_toml(text: &str) -> Result<Self, LimitsError> {
        let file: File = toml::from_str(text).map_err(|error| LimitsError(error.to_string()))?;
        file.limits.check()
    }

    fn check(self) -> Result<Self, LimitsError> {
        // Below these an empty service cannot even be loaded; above them one app could take the
        // whole node, which only the operator may allow by other means.
        let ranges: [(&str, u64, u64, u64); 4] = [
            ("cpu_ms", self.cpu_ms, 1, 60_000),
            ("memory_bytes", self.memory_bytes as u64, 1 << 20, 4 << 30),
            ("stack_bytes", self.stack_bytes as u64, 64 << 10, 1 << 20),
            ("value_bytes", self.value_bytes as u64, 16, limits::ENTRY_BYTES as u64),
        ];
        for (name, value, low, high) in ranges {
            if !(low..=high).contains(&value) {
                return Err(LimitsError(format!("limits.{name} = {value} is outside {low} to {high}")));
            }
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn named_limits_change_and_others_keep_their_default() {
        let read = Limits::from_toml("[limits]\ncpu_ms = 7\n").expect("valid");
        assert_eq!(read, Limits { cpu_ms: 7, ..Limits::default() });
        assert_eq!(Limits::from_toml(""), Ok(Limits::default()));
    }

    #[test]
    fn a_wrong_file_is_refused_with_its_place() {
        for text in ["[limits]\ncpu = 7", "[limits]\ncpu_ms = 0", "[limit]", "[limits\n", "[limits]\ncpu_ms = \"x\""] {
            let error = Limits::from_toml(text).expect_err(text);
            assert!(error.to_string().starts_with("millrace.toml: "), "{error}");
        }
    }
}
