//! Where a log's files lie.
//!
//! ```text
//! log/<stream>/<segment>.log      a segment; both numbers in decimal, ten digits or more
//! log/<stream>/<segment>.new      a segment being prepared: nothing in it counts
//! log/<stream>/<segment>.old      a segment whose entries are all checkpointed, kept to be overwritten
//! log/<stream>.repair/            a repaired stream being written: nothing in it counts
//! log/<stream>.damaged/           a stream set aside by a repair
//! ```

use std::io;

use millrace_format::{SEGMENT_HEADER_BYTES, SegmentHeader, SegmentHeaderError};
use millrace_io::{Disk, DiskFile};
use std::sync::Arc;

/// The directory of all streams.
pub(crate) const LOG_DIRECTORY: &str = "log";

pub(crate) const REPAIR_SUFFIX: &str = ".repair";
pub(crate) const DAMAGED_SUFFIX: &str = ".damaged";

/// The directory of a stream.
pub(crate) fn stream_directory(stream: u64) -> String {
    format!("{LOG_DIRECTORY}/{stream:010}")
}

/// The file of a segment.
pub(crate) fn segment_path(directory: &str, number: u64) -> String {
    format!("{directory}/{number:010}.log")
}

/// A segment file as found, with its header.
pub(crate) struct SegmentFile {
    pub(crate) path: String,
    pub(crate) number: u64,
    pub(crate) length: u64,
    /// The header, or why none belongs to this name.
    pub(crate) header: Result<SegmentHeader, SegmentHeaderError>,
    /// The stream and segment that the file holds, if these are not those of its name.
    pub(crate) other: Option<(u64, u64)>,
}

impl SegmentFile {
    pub(crate) fn open(&self, disk: &dyn Disk) -> io::Result<Arc<dyn DiskFile>> {
        disk.open(&self.path)
    }
}

/// A stream's files as found.
pub(crate) struct StreamFiles {
    pub(crate) stream: u64,
    pub(crate) directory: String,
    /// In order of their numbers.
    pub(crate) segments: Vec<SegmentFile>,
    /// Files without anything that counts.
    pub(crate) leftovers: Vec<String>,
}

impl StreamFiles {
    /// The run that made the stream, if any of its headers tells.
    pub(crate) fn run(&self) -> Option<u64> {
        self.segments.iter().find_map(|segment| segment.header.as_ref().ok()).map(|header| header.run)
    }
}

/// Everything in the log's directory.
#[derive(Default)]
pub(crate) struct LogFiles {
    /// In order of their numbers. A shard's entries went to them in this order.
    pub(crate) streams: Vec<StreamFiles>,
    /// Streams being repaired: directories named `.repair`.
    pub(crate) repairs: Vec<u64>,
    /// One more than the highest stream number seen, including those set aside.
    pub(crate) next_stream: u64,
}

/// Lists the log's files and reads the segments' headers.
///
/// # Errors
/// The file or directory that could not be read, and why.
pub(crate) fn list_log(disk: &dyn Disk) -> Result<LogFiles, (String, io::Error)> {
    let mut files = LogFiles { next_stream: 1, ..LogFiles::default() };
    let entries = match disk.list(LOG_DIRECTORY) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(files),
        Err(error) => return Err((LOG_DIRECTORY.to_owned(), error)),
    };
    for entry in entries.into_iter().filter(|entry| entry.is_directory) {
        let (digits, suffix) = entry.name.split_at(entry.name.find('.').unwrap_or(entry.name.len()));
        let Some(stream) = parse_number(digits) else { continue };
        files.next_stream = files.next_stream.max(stream.saturating_add(1));
        if suffix.is_empty() {
            files.streams.push(list_stream(disk, stream)?);
        } else if suffix == REPAIR_SUFFIX {
            files.repairs.push(stream);
        }
    }
    files.streams.sort_by_key(|stream| stream.stream);
    Ok(files)
}

fn list_stream(disk: &dyn Disk, stream: u64) -> Result<StreamFiles, (String, io::Error)> {
    let directory = stream_directory(stream);
    let entries = disk.list(&directory).map_err(|error| (directory.clone(), error))?;
    let mut files = StreamFiles { stream, directory, segments: Vec::new(), leftovers: Vec::new() };
    for entry in entries.into_iter().filter(|entry| !entry.is_directory) {
        let path = format!("{}/{}", files.directory, entry.name);
        let Some((digits, extension)) = entry.name.split_once('.') else { continue };
        let Some(number) = parse_number(digits) else { continue };
        match extension {
            "log" => {
                let segment = read_segment_file(disk, stream, number, path.clone());
                files.segments.push(segment.map_err(|error| (path, error))?);
            }
            "new" | "old" => files.leftovers.push(path),
            _ => {}
        }
    }
    files.segments.sort_by_key(|segment| segment.number);
    Ok(files)
}

/// Reads a segment file's header.
pub(crate) fn read_segment_file(disk: &dyn Disk, stream: u64, number: u64, path: String) -> io::Result<SegmentFile> {
    let file = disk.open(&path)?;
    let mut bytes = [0; SEGMENT_HEADER_BYTES];
    let count = file.read_at(&mut bytes, 0)?;
    let mut header = SegmentHeader::decode(&bytes[..count]);
    // A file gets its name when its header is durable. So no crash leaves a header beside another name.
    let named = header.as_ref().ok().map(|header| (header.stream, header.number));
    let other = named.filter(|named| *named != (stream, number));
    if other.is_some() {
        header = Err(SegmentHeaderError::Unreadable);
    }
    Ok(SegmentFile { path, number, length: file.length()?, header, other })
}

/// A number from a file name, in exactly the form that [`stream_directory`] and [`segment_path`] write.
fn parse_number(digits: &str) -> Option<u64> {
    let number: u64 = digits.parse().ok()?;
    (format!("{number:010}") == digits && number > 0).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_own_names_are_numbers() {
        assert_eq!(parse_number("0000000012"), Some(12));
        assert_eq!(parse_number("12345678901"), Some(12_345_678_901));
        for other in ["12", "0000000000", "000000001x", "+000000012", "", "00000000012"] {
            assert_eq!(parse_number(other), None, "{other}");
        }
    }
}
