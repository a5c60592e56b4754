//! A snapshot: the document that lists all files of one backup with their chunks.
//!
//! One line with a checksum, then JSON. A snapshot that was cut or changed is noticed before anything is read by it.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use crate::archive::{Missing, is_path};
use crate::chunks::{ChunkName, hash};
use crate::limits::CHUNK_BYTES;

const MAGIC: &str = "millrace-snapshot";

/// The version of a snapshot in which nothing is missing.
const VERSION: u32 = 1;

/// The version of one with parts that are missing. A program that does not know of them must not take it for whole.
const VERSION_WITH_MISSING: u32 = 2;

/// One backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Snapshot {
    /// Names it in its place: the moment that it shows, in UTC.
    pub id: String,
    /// That moment, Unix milliseconds.
    pub taken_ms: u64,
    /// The version of the node's program.
    pub server: String,
    /// Which data directory it is of: 32 hexadecimal digits.
    pub identity: String,
    /// Folders that may hold no file.
    pub folders: Vec<String>,
    /// All files, in the order of their paths.
    pub files: Vec<FileRecord>,
    /// What could not be read, and is not in it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<Missing>,
}

/// One file of a backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileRecord {
    /// Where it lies in the data directory.
    pub path: String,
    /// Its length.
    pub bytes: u64,
    /// Its chunks: each but the last has 4 MiB.
    pub chunks: Vec<ChunkName>,
}

impl FileRecord {
    /// The file's chunks, each with its length.
    pub(crate) fn parts(&self) -> impl Iterator<Item = (&ChunkName, u64)> {
        let whole = CHUNK_BYTES as u64;
        self.chunks
            .iter()
            .zip((0..).step_by(CHUNK_BYTES))
            .map(move |(name, begin): (&ChunkName, u64)| (name, self.bytes.saturating_sub(begin).min(whole)))
    }
}

impl Snapshot {
    /// Bytes of all files.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }

    /// The document's bytes.
    pub(crate) fn encode(&self) -> Result<Vec<u8>, serde_json::Error> {
        let body = serde_json::to_vec_pretty(self)?;
        let version = if self.missing.is_empty() { VERSION } else { VERSION_WITH_MISSING };
        let mut bytes = format!("{MAGIC} {version} {} {}\n", body.len(), hash(&body)).into_bytes();
        bytes.extend_from_slice(&body);
        bytes.push(b'\n');
        Ok(bytes)
    }

    /// Reads the document's bytes.
    ///
    /// # Errors
    /// What is wrong, in a sentence.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, String> {
        let broken = || "its first line is not a snapshot's".to_owned();
        let end = bytes.iter().take(160).position(|byte| *byte == b'\n').ok_or_else(broken)?;
        let line = std::str::from_utf8(&bytes[..end]).map_err(|_| broken())?;
        let words: Vec<&str> = line.split(' ').collect();
        let [MAGIC, version, length, sum] = words[..] else { return Err(broken()) };
        if ![Ok(VERSION), Ok(VERSION_WITH_MISSING)].contains(&version.parse()) {
            let known = format!("{VERSION} and {VERSION_WITH_MISSING}");
            return Err(format!("version {version} is not known to this program, which reads {known}"));
        }
        let length: usize = length.parse().map_err(|_| broken())?;
        let body = bytes.get(end + 1..).and_then(|rest| rest.get(..length)).ok_or("it is cut short")?;
        if hash(body).as_str() != sum {
            return Err("its checksum is wrong".to_owned());
        }
        let snapshot: Snapshot = serde_json::from_slice(body).map_err(|error| error.to_string())?;
        snapshot.check()?;
        Ok(snapshot)
    }

    fn check(&self) -> Result<(), String> {
        if let Some(wrong) = self.folders.iter().find(|path| !is_path(path)) {
            return Err(format!("it lists a folder that no data directory has: {wrong:?}"));
        }
        for file in &self.files {
            if !is_path(&file.path) {
                return Err(format!("it lists a file that no data directory has: {:?}", file.path));
            }
            if file.chunks.len() as u64 != file.bytes.div_ceil(CHUNK_BYTES as u64) {
                return Err(format!("{} has {} bytes, and other chunks than that", file.path, file.bytes));
            }
        }
        Ok(())
    }
}

/// A moment as an id: UTC, to the millisecond, of characters that file names and URLs may have.
pub(crate) fn id_of(taken_ms: u64) -> String {
    let (days, ms) = (taken_ms / 86_400_000, taken_ms % 86_400_000);
    let (year, month, day) = date_of(days);
    let mut id = String::new();
    // Writing to a text does not fail.
    let _ = write!(
        id,
        "{year:04}-{month:02}-{day:02}T{:02}-{:02}-{:02}.{:03}Z",
        ms / 3_600_000,
        ms / 60_000 % 60,
        ms / 1000 % 60,
        ms % 1000
    );
    id
}

/// Year, month and day of a day since 1970-01-01, by counting from March of the year 0, when leap days come last.
fn date_of(days: u64) -> (u64, u64, u64) {
    const DAYS_BEFORE_1970: u64 = 719_468;
    const DAYS_OF_400_YEARS: u64 = 146_097;
    let days = days.saturating_add(DAYS_BEFORE_1970);
    let (era, day) = (days / DAYS_OF_400_YEARS, days % DAYS_OF_400_YEARS);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let march = (5 * day + 2) / 153;
    let month = if march < 10 { march + 3 } else { march - 9 };
    (era * 400 + year + u64::from(month <= 2), month, day - (153 * march + 2) / 5 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot() -> Snapshot {
        Snapshot {
            id: "2026-01-02T03-04-05.678Z".to_owned(),
            taken_ms: 1_767_323_045_678,
            server: "0.2.0".to_owned(),
            identity: "000102030405060708090a0b0c0d0e0f".to_owned(),
            folders: vec!["log".to_owned()],
            files: vec![
                FileRecord { path: "node.json".to_owned(), bytes: 2, chunks: vec![hash(b"{}")] },
                FileRecord { path: "secret".to_owned(), bytes: 0, chunks: Vec::new() },
            ],
            missing: Vec::new(),
        }
    }

    #[test]
    fn the_documented_bytes_are_written_and_read() {
        let golden = include_bytes!("../tests/golden/snapshot-v1");
        assert_eq!(Snapshot::decode(golden), Ok(snapshot()));
        assert_eq!(snapshot().encode().expect("JSON"), golden);
    }

    #[test]
    fn what_is_missing_is_kept_in_a_version_of_its_own() {
        let object = Some(("photos".to_owned(), "large".to_owned()));
        let missing = vec![Missing { shard: 3, body: "3-7".to_owned(), object }];
        let snapshot = Snapshot { missing, ..snapshot() };
        let bytes = snapshot.encode().expect("JSON");
        assert!(bytes.starts_with(b"millrace-snapshot 2 "));
        assert_eq!(Snapshot::decode(&bytes), Ok(snapshot.clone()));
        assert_eq!(snapshot.missing[0].to_string(), "content of photos/large (shard 3, body 3-7)");
    }

    #[test]
    fn a_changed_document_is_refused_wherever_it_was_changed() {
        let bytes = snapshot().encode().expect("JSON");
        // The last byte is a line's end for people.
        for at in 0..bytes.len() - 1 {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            assert!(Snapshot::decode(&changed).is_err(), "byte {at}");
            assert!(Snapshot::decode(&bytes[..at]).is_err(), "cut at {at}");
        }
    }

    #[test]
    fn paths_and_lengths_are_checked() {
        for (path, bytes) in [("../secret", 2), ("node.json", 0), ("node.json", 5 << 20)] {
            let mut wrong = snapshot();
            wrong.files[0].path = path.to_owned();
            wrong.files[0].bytes = bytes;
            assert!(Snapshot::decode(&wrong.encode().expect("JSON")).is_err(), "{path} {bytes}");
        }
    }

    #[test]
    fn ids_are_dates() {
        for (taken_ms, id) in [
            (0, "1970-01-01T00-00-00.000Z"),
            (951_782_400_000, "2000-02-29T00-00-00.000Z"),
            (951_868_800_000, "2000-03-01T00-00-00.000Z"),
            (1_767_323_045_678, "2026-01-02T03-04-05.678Z"),
            (4_107_542_399_999, "2100-02-28T23-59-59.999Z"),
            (4_107_542_400_000, "2100-03-01T00-00-00.000Z"),
        ] {
            assert_eq!(id_of(taken_ms), id);
        }
    }

    #[test]
    fn parts_have_their_lengths() {
        let chunks = vec![hash(b"a"), hash(b"b"), hash(b"c")];
        let file = FileRecord { path: "a".to_owned(), bytes: (8 << 20) + 5, chunks };
        let lengths: Vec<u64> = file.parts().map(|(_, bytes)| bytes).collect();
        assert_eq!(lengths, [4 << 20, 4 << 20, 5]);
    }
}
