//! What a run does: its servers, its cells and its limits.

use std::net::SocketAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use millrace_signing::Credentials;

/// A server to measure.
#[derive(Clone, Debug)]
pub struct Target {
    /// Its name in results.
    pub name: String,
    /// Where to connect.
    pub address: SocketAddr,
    /// The `Host` header.
    pub host: String,
    /// Who asks.
    pub credentials: Credentials,
}

/// What clients do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Operation {
    /// Read whole objects.
    Get,
    /// Write objects, over earlier ones after a while.
    Put,
    /// List pages of 1,000 keys.
    List,
    /// List pages of 1,000 common prefixes.
    ListDelimiter,
    /// Delete objects.
    Delete,
    /// Of 100 requests 70 get, 20 put, 5 list and 5 delete.
    Mixed,
}

impl Operation {
    /// As in results and on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Operation::Get => "get",
            Operation::Put => "put",
            Operation::List => "list",
            Operation::ListDelimiter => "list-delimiter",
            Operation::Delete => "delete",
            Operation::Mixed => "mixed",
        }
    }

    /// Whether it needs objects that are there before the run.
    pub(super) fn reads(self) -> bool {
        matches!(self, Operation::Get | Operation::List | Operation::ListDelimiter | Operation::Mixed)
    }
}

/// One measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cell {
    /// What is done.
    pub operation: Operation,
    /// The size of the objects.
    pub size: u64,
    /// How many clients do it at the same time.
    pub clients: usize,
    /// Clients that write objects of this size meanwhile and are not measured.
    pub writers: Option<(usize, u64)>,
}

impl Cell {
    /// A cell without further writers.
    #[must_use]
    pub fn new(operation: Operation, size: u64, clients: usize) -> Self {
        Self { operation, size, clients, writers: None }
    }
}

/// The limits of a run.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The bucket. It is made if it is missing.
    pub bucket: String,
    /// The measured time of a cell.
    pub duration: Duration,
    /// The time before the measurement.
    pub warm_up: Duration,
    /// Objects of each size, at most.
    pub objects: u64,
    /// Bytes of one size's objects on the server, at most; four objects in any case.
    pub data_bytes: u64,
    /// After this long without progress a request has failed.
    pub timeout: Duration,
    /// Where bodies and random keys come from.
    pub seed: u64,
    /// Whether the hash of bodies up to 16 MiB is signed.
    pub signs_bodies: bool,
    /// Longer objects are written in parts of this size.
    pub part_bytes: u64,
    /// How often all servers run each cell, in turn.
    pub rounds: usize,
    /// Whether objects and bucket stay.
    pub keeps_objects: bool,
}

/// The longest body that S3 takes in one request.
pub(super) const ONE_PUT_BYTES: u64 = 5 << 30;

impl Default for Settings {
    fn default() -> Self {
        Self {
            bucket: "millrace-bench".to_owned(),
            duration: Duration::from_secs(10),
            warm_up: Duration::from_secs(1),
            objects: 10_000,
            data_bytes: 1 << 30,
            timeout: Duration::from_secs(60),
            seed: rand::random(),
            signs_bodies: true,
            part_bytes: ONE_PUT_BYTES,
            rounds: 1,
            keeps_objects: false,
        }
    }
}

impl Settings {
    /// How many objects of a size there are.
    pub(super) fn objects_of(&self, size: u64) -> u64 {
        self.objects.min((self.data_bytes / size.max(1)).max(4)).max(1)
    }
}

/// `0`, `1KB`, `16KiB`, `50GB`: in every spelling a power of 1024, as the sizes of objects are usually meant.
pub(super) fn parse_size(text: &str) -> Result<u64, String> {
    let end = text.find(|char: char| !char.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let number: u64 = number.parse().map_err(|_| "write a number and a unit, such as 16KB".to_owned())?;
    let shift = match unit.trim().to_ascii_uppercase().trim_end_matches('B').trim_end_matches('I') {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        _ => return Err(format!("{unit:?} is not a unit; there are B, KB, MB, GB, TB")),
    };
    number.checked_mul(1 << shift).filter(|size| *size <= 5 << 40).ok_or("an object has at most 5 TB".to_owned())
}

/// The size as a person writes it.
#[must_use]
pub fn size_text(size: u64) -> String {
    let units = [(40, "TB"), (30, "GB"), (20, "MB"), (10, "KB")];
    let fitting = units.into_iter().find(|(shift, _)| size >= 1 << shift && size.is_multiple_of(1 << shift));
    fitting.map_or_else(|| format!("{size} B"), |(shift, unit)| format!("{} {unit}", size >> shift))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_and_written() {
        for (text, size) in [("0", 0), ("7b", 7), ("1KB", 1024), ("16 KiB", 16_384), ("256m", 256 << 20)] {
            assert_eq!(parse_size(text), Ok(size), "{text}");
        }
        for text in ["", "KB", "1X", "-1", "9999999999TB", "6TB"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
        assert_eq!((size_text(1000), size_text(50 << 30)), ("1000 B".to_owned(), "50 GB".to_owned()));
    }

    #[test]
    fn the_limit_of_data_bounds_the_objects_but_leaves_four() {
        let settings = Settings { objects: 100, data_bytes: 1 << 20, ..Settings::default() };
        assert_eq!([0, 1024, 65_536, 1 << 30].map(|size| settings.objects_of(size)), [100, 100, 16, 4]);
    }
}
