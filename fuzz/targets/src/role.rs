//! Roles of API keys: what is read is written back the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use millrace_api::Role;

fuzz_target!(|text: &str| {
    if let Ok(role) = Role::parse(text) {
        assert_eq!(role.to_string(), text);
    }
});
