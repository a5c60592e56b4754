//! Chunks: bytes under the name of their hash.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize};
use sha2::{Digest, Sha256};

/// The name of a chunk: SHA-256 of its bytes, as 64 hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct ChunkName(Box<str>);

impl ChunkName {
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// Where the chunk lies in its place. The two digits spread a million of them over folders.
    pub(crate) fn path(&self) -> String {
        format!("chunks/{}/{}", &self.0[..2], self.0)
    }

    /// The name, if this is one.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        (text.len() == 64 && text.bytes().all(is_digit)).then(|| Self(text.into()))
    }
}

impl fmt::Display for ChunkName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for ChunkName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| serde::de::Error::custom("a chunk's name is 64 hexadecimal digits"))
    }
}

/// The name of these bytes.
pub(crate) fn hash(bytes: &[u8]) -> ChunkName {
    let digits: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    ChunkName(digits.into())
}
