//! The server's TOML file. It is refused with a reason, or its values can be read.

use settings_file::{SettingsFile, parse_size};

// The server is a program and not a library, but this file of it stands alone.
#[allow(dead_code, reason = "the fields are read by the server only")]
#[path = "../../../crates/server/src/settings_file.rs"]
mod settings_file;

pub(crate) fn run(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    check_size(text);
    match SettingsFile::parse(text) {
        Ok(file) => file.memory.iter().for_each(|memory| check_size(memory)),
        Err(why) => assert!(!why.is_empty()),
    }
}

fn check_size(text: &str) {
    match parse_size(text) {
        Ok(bytes) => assert!((16 << 20..=1_000_000_000_000_000).contains(&bytes)),
        Err(why) => assert!(!why.is_empty()),
    }
}
