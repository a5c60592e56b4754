//! An app's `millrace.toml`: refused with a reason, or limits inside their ranges.

use millrace_func::AppSettings;

pub(crate) fn run(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    match AppSettings::from_toml(text) {
        Ok(AppSettings { limits, .. }) => {
            assert!(limits.cpu_ms > 0 && limits.memory_bytes > 0 && limits.stack_bytes > 0);
        }
        Err(error) => assert!(error.to_string().starts_with("millrace.toml: ")),
    }
}
