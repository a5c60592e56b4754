//! The TOML file of settings, as text: its keys, its values' spelling, nothing of their meaning.
//!
//! Promises: reading never panics and is bounded by the text's length; what is refused says why.
//! Must not know the command line or the node: only `serde`, `toml` and the standard library, so
//! that the fuzz target can include this file by itself.

use std::net::SocketAddr;
use std::path::PathBuf;

use serde::Deserialize;

/// The TOML file: each key is a flag of `millrace serve` with `_` for `-`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct SettingsFile {
    #[serde(rename = "app")]
    pub apps: Vec<PathBuf>,
    pub data: Option<PathBuf>,
    pub http: Option<SocketAddr>,
    pub cores: Option<usize>,
    pub shards: Option<u16>,
    pub memory: Option<String>,
    pub durability: Option<FileDurability>,
    pub keys: Option<PathBuf>,
    pub allowed_hosts: Option<Vec<String>>,
    pub cors_origins: Option<Vec<String>>,
    pub tls_certificate: Option<PathBuf>,
    pub tls_key: Option<PathBuf>,
    pub retention_hours: Option<u64>,
    pub queue_ms: Option<u64>,
    pub connections: Option<usize>,
    pub log: Option<String>,
    pub log_json: Option<bool>,
}

/// The names of durability levels in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum FileDurability {
    Fsync,
    Os,
    None,
}

impl SettingsFile {
    /// Reads the file's text.
    ///
    /// # Errors
    /// Names the place and what is wrong there.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        toml::from_str(text).map_err(|error| error.to_string())
    }
}

/// Reads `67108864`, `64MiB`, `64M`, `1.5GiB`. Units are powers of 1024, whatever their spelling.
pub(crate) fn parse_size(text: &str) -> Result<usize, String> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor: f64 = match unit.trim().to_ascii_lowercase().trim_end_matches("ib").trim_end_matches('b') {
        "" => 1.0,
        "k" => 1024.0,
        "m" => 1024.0 * 1024.0,
        "g" => 1024.0 * 1024.0 * 1024.0,
        "t" => 1024.0 * 1024.0 * 1024.0 * 1024.0,
        _ => return Err(format!("{unit:?} is not a unit: use KiB, MiB, GiB or TiB")),
    };
    let number: f64 = number.parse().map_err(|_| "not a size: write it as 512MiB".to_owned())?;
    let bytes = number * factor;
    let smallest = 16.0 * 1024.0 * 1024.0;
    if !(smallest..=1e15).contains(&bytes) {
        return Err("outside 16MiB to 1000TB".to_owned());
    }
    Ok(bytes as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_powers_of_1024() {
        for (text, bytes) in [("64MiB", 64 << 20), ("64m", 64 << 20), ("1.5 GiB", 3 << 29), ("67108864", 64 << 20)] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for text in ["", "MiB", "1", "-1GiB", "1PiBx", "1e3GiB", "999999TiB"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn durability_has_three_names() {
        for (name, durability) in
            [("fsync", FileDurability::Fsync), ("os", FileDurability::Os), ("none", FileDurability::None)]
        {
            let file = SettingsFile::parse(&format!("durability = \"{name}\"")).expect(name);
            assert_eq!(file.durability, Some(durability));
        }
        assert!(SettingsFile::parse("durability = \"Fsync\"").is_err());
    }
}
