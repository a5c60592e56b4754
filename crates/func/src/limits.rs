//! What an app's functions may use. Each field is a key of `[limits]` in the app's `millrace.toml`.

use millrace_base::limits;
use serde::Deserialize;

/// The limits of one app. Defaults come from `millrace_base::limits`, which gives the reasons.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// CPU time of one transaction: all turns of its handler and of whatever that calls. Of a workflow, which may take
    /// thousands of turns over months and takes them again after a restart, of each turn.
    pub cpu_ms: u64,
    /// Heap of one service on one core.
    pub memory_bytes: usize,
    /// Native stack of one turn.
    pub stack_bytes: usize,
    /// How deep `ctx.call` nests.
    pub call_depth: usize,
    /// An entity's key.
    pub key_bytes: usize,
    /// JSON input of a call.
    pub input_bytes: usize,
    /// JSON output of a call, or body of a route's reply.
    pub output_bytes: usize,
    /// Fields one transaction may write.
    pub writes_per_call: usize,
    /// One field's value.
    pub value_bytes: usize,
    /// Operations one activation may have open.
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
            key_bytes: limits::KEY_BYTES,
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

impl Limits {
    /// Refuses limits that no function could run within: the name of the first such, and what is wrong with it.
    pub(crate) fn check(&self) -> Result<(), (&'static str, String)> {
        // Below these an empty service cannot even be loaded; above them one app could take the
        // whole node, which only the operator may allow by other means.
        let ranges: [(&'static str, u64, u64, u64); 4] = [
            ("cpu_ms", self.cpu_ms, 1, 60_000),
            ("memory_bytes", self.memory_bytes as u64, 1 << 20, 4 << 30),
            ("stack_bytes", self.stack_bytes as u64, 64 << 10, 1 << 20),
            ("value_bytes", self.value_bytes as u64, 16, limits::ENTRY_BYTES as u64),
        ];
        for (name, value, low, high) in ranges {
            if !(low..=high).contains(&value) {
                return Err((name, format!("limits.{name} = {value} is outside {low} to {high}")));
            }
        }
        Ok(())
    }
}
