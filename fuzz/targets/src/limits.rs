//! An app's `millrace.toml`: refused with a reason, or limits inside their ranges.
#![no_main]

use libfuzzer_sys::fuzz_target;
use millrace_func::AppSettings;

fuzz_target!(|text: &str| {
    match AppSettings::from_toml(text) {
        Ok(AppSettings { limits, .. }) => {
            assert!(limits.cpu_ms > 0 && limits.memory_bytes > 0 && limits.stack_bytes > 0);
        }
        Err(error) => assert!(error.to_string().starts_with("millrace.toml: ")),
    }
});
