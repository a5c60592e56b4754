//! Roles of API keys. A role that is read is written back the same.

use millrace_api::Role;

pub(crate) fn run(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(role) = Role::parse(text) {
        assert_eq!(role.to_string(), text);
    }
}
