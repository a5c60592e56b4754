//! An app's `millrace.toml`. It is refused with a reason and a place in it, or its limits are inside their ranges.

use millrace_func::AppSettings;

pub(crate) fn run(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    match AppSettings::from_toml(text) {
        Ok(AppSettings { limits, .. }) => {
            assert!(limits.cpu_ms > 0 && limits.memory_bytes > 0 && limits.stack_bytes > 0);
        }
        Err(error) => {
            let line = text.split('\n').nth(error.line - 1).expect("a line of the file");
            assert!((1..=line.chars().count() + 1).contains(&error.column), "{error}");
            assert!(!error.message.is_empty());
        }
    }
}
