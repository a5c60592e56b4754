//! What the manifest says, and its bytes: one line with a checksum, then JSON, then zeros.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

/// The version this build writes and reads.
const VERSION: u32 = 1;

const MAGIC: &str = "millrace-manifest";

/// Everything the manifest lists.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Contents {
    /// Drawn when the directory was made.
    #[serde(with = "hexadecimal")]
    pub identity: [u8; 16],
    /// Counts changes of the manifest.
    pub generation: u64,
    /// Log streams by number; `None` until a first recovery has listed them.
    pub streams: Option<BTreeMap<u64, StreamRecord>>,
    /// `None` until the checkpoint has been made.
    pub checkpoint: Option<CheckpointRecord>,
    /// Whole files by path. One that is being replaced has two states that are right.
    pub files: BTreeMap<String, FileRecord>,
    /// Files that others write: they must be there, with whatever bytes.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub expected: BTreeSet<String>,
    /// Folders that must be there, with whatever in them.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub folders: BTreeSet<String>,
}

/// The segments of one log stream that must be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StreamRecord {
    /// The lowest segment number that has not been removed.
    pub first: u64,
    /// The highest segment number that may hold a batch.
    pub last: u64,
    /// Whether every batch was synced before it was acknowledged.
    pub is_synced: bool,
    /// The number of the closing batch, once the stream has one.
    pub closed: Option<u64>,
}

/// How the checkpoint must be found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CheckpointRecord {
    /// Its count of flushes when log segments were last removed because of it.
    pub mark: u64,
    /// Files without which the checkpoint would be taken for a new one.
    pub files: Vec<String>,
}

/// The fingerprints that a file may have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileRecord {
    /// What was written last; `None`: no file.
    pub now: Option<u64>,
    /// While the file is being replaced or removed: what it will be then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<Next>,
}

/// What a file is about to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Next {
    /// The fingerprint; `None`: the file goes.
    pub fingerprint: Option<u64>,
}

impl Contents {
    pub(crate) fn new(identity: [u8; 16]) -> Self {
        Self {
            identity,
            generation: 0,
            streams: None,
            checkpoint: None,
            files: BTreeMap::new(),
            expected: BTreeSet::new(),
            folders: BTreeSet::new(),
        }
    }

    /// The file's bytes.
    ///
    /// # Panics
    /// Never: numbers, texts and maps with text keys are always JSON.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let body = serde_json::to_string_pretty(self).expect("numbers, texts and maps with text keys are always JSON");
        let mut bytes = header(body.as_bytes()).into_bytes();
        bytes.extend_from_slice(body.as_bytes());
        bytes.push(b'\n');
        bytes
    }

    /// Reads the file's bytes; what follows the body is space kept for the next manifest.
    ///
    /// # Errors
    /// What is wrong, in a sentence.
    pub fn decode(bytes: &[u8]) -> Result<Self, String> {
        let broken = || "its first line is not a manifest's".to_owned();
        let end = bytes.iter().take(128).position(|byte| *byte == b'\n').ok_or_else(broken)?;
        let line = std::str::from_utf8(&bytes[..end]).map_err(|_| broken())?;
        let words: Vec<&str> = line.split(' ').collect();
        let [MAGIC, version, length, sum] = words[..] else { return Err(broken()) };
        let version: u32 = version.parse().map_err(|_| broken())?;
        if version != VERSION {
            return Err(format!("version {version} is not known to this build, which reads {VERSION}"));
        }
        let length: usize = length.parse().map_err(|_| broken())?;
        let body = bytes[end + 1..].get(..length).ok_or("it is cut short")?;
        if sum != sum_of(body) {
            return Err("its checksum is wrong".to_owned());
        }
        serde_json::from_slice(body).map_err(|error| error.to_string())
    }
}

fn header(body: &[u8]) -> String {
    format!("{MAGIC} {VERSION} {} {}\n", body.len(), sum_of(body))
}

fn sum_of(body: &[u8]) -> String {
    format!("{:08x}", crc_fast::crc32_iscsi(body))
}

/// 16 bytes as 32 hexadecimal digits.
mod hexadecimal {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(bytes: &[u8; 16], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&format!("{:032x}", u128::from_be_bytes(*bytes)))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<[u8; 16], D::Error> {
        let text = String::deserialize(deserializer)?;
        let number = u128::from_str_radix(&text, 16).ok().filter(|_| text.len() == 32 && !text.starts_with('+'));
        number.map(u128::to_be_bytes).ok_or_else(|| D::Error::custom("identity is not 32 hexadecimal digits"))
    }
}
