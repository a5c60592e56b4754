//! `node.json`: what is fixed when a data directory is created.
//!
//! Promises: reading never panics and is bounded by the file's length; what is refused says why. Must
//! not know the node: only `millrace_base`, `serde` and `serde_json`, so that the fuzz target can
//! include this file by itself.

use millrace_base::limits;
use serde::{Deserialize, Serialize};

/// The version this build writes: the directory has a manifest.
const FORMAT: u32 = 3;

/// A version it reads, whose directory gets its manifest at its first start.
const UNLISTED_FORMAT: u32 = 2;

/// A version it reads: without a manifest, and without a key, so that results have plain names.
const PLAIN_NAMES_FORMAT: u32 = 1;

/// What the file says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NodeFile {
    pub(crate) shards: u16,
    /// The key of results' names; `None` in directories of an earlier version. Here, and not in a file of its own
    /// that could be lost by itself: under another key nothing that was done would be known any more.
    pub(crate) outcome_key: Option<[u8; 16]>,
    /// Whether the directory has a manifest, and never opens without it.
    pub(crate) has_manifest: bool,
}

#[derive(Serialize, Deserialize)]
struct Json {
    format: u32,
    shards: u16,
    /// 32 hexadecimal digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    outcome_key: Option<String>,
}

impl NodeFile {
    /// # Errors
    /// What is wrong with the file.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, String> {
        let json: Json = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        let outcome_key = json.outcome_key()?;
        if !(1..=limits::SHARDS).contains(&json.shards) {
            return Err(format!("{} shards are outside 1 to {}", json.shards, limits::SHARDS));
        }
        Ok(Self { shards: json.shards, outcome_key, has_manifest: json.format == FORMAT })
    }

    /// # Errors
    /// None that could be met: numbers and text are always JSON.
    pub(crate) fn to_json(self) -> Result<Vec<u8>, String> {
        let format = match (self.has_manifest, self.outcome_key) {
            (true, _) => FORMAT,
            (false, Some(_)) => UNLISTED_FORMAT,
            (false, None) => PLAIN_NAMES_FORMAT,
        };
        let outcome_key = self.outcome_key.map(|key| format!("{:032x}", u128::from_be_bytes(key)));
        let json = Json { format, shards: self.shards, outcome_key };
        serde_json::to_vec_pretty(&json).map_err(|error| error.to_string())
    }
}

impl Json {
    fn outcome_key(&self) -> Result<Option<[u8; 16]>, String> {
        match (self.format, &self.outcome_key) {
            (PLAIN_NAMES_FORMAT | FORMAT, None) => Ok(None),
            (UNLISTED_FORMAT | FORMAT, Some(key)) => {
                let number = u128::from_str_radix(key, 16).ok().filter(|_| key.len() == 32 && !key.starts_with('+'));
                let number = number.ok_or_else(|| "outcome_key is not 32 hexadecimal digits".to_owned())?;
                Ok(Some(number.to_be_bytes()))
            }
            (UNLISTED_FORMAT, None) => Err("outcome_key is missing: restore the file from a backup".to_owned()),
            (PLAIN_NAMES_FORMAT, Some(_)) => Err(format!("format {PLAIN_NAMES_FORMAT} has no outcome_key")),
            (format, _) => {
                Err(format!("format {format} is not known to this build, which reads {PLAIN_NAMES_FORMAT} to {FORMAT}"))
            }
        }
    }
}
