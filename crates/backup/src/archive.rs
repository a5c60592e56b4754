//! The archive that a node sends: a tar of a data directory, with a list of its files at the end.
//!
//! The list has each file's length and checksum. An archive without its list is not whole. A node that has to break off
//! sends a file with the reason in place of the list.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Read, Write};

use serde::{Deserialize, Serialize};

use crate::BackupError;
use crate::limits::{DOCUMENT_BYTES, PATH_BYTES, REASON_BYTES};

/// The version of a list of a backup in which nothing is missing.
const FORMAT: u32 = 1;

/// The version of one with parts that are missing. A program that does not know of them must not take it for whole.
const FORMAT_WITH_MISSING: u32 = 2;

/// The list, at the archive's end.
const LIST_FILE: &str = "backup.json";

/// In place of the list: why the archive breaks off.
const BROKEN_FILE: &str = "backup-broken.txt";

/// What the list says beside the files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sent {
    /// The version of the node's program.
    pub server: String,
    /// Which data directory it is: 32 hexadecimal digits.
    pub identity: String,
    /// The moment that the backup shows, Unix milliseconds.
    pub taken_ms: u64,
    /// What could not be read, and is not in it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<Missing>,
}

/// A part of the data that a backup does not have, since it could not be read anywhere.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Missing {
    /// Its shard.
    pub shard: u16,
    /// Its name within the data directory.
    pub body: String,
    /// The bucket and the key of the object it is of, where that could be read.
    pub object: Option<(String, String)>,
}

impl fmt::Display for Missing {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { shard, body, object } = self;
        match object {
            Some((bucket, key)) => write!(formatter, "content of {bucket}/{key} (shard {shard}, body {body})"),
            None => write!(formatter, "content of an object that is not known (shard {shard}, body {body})"),
        }
    }
}

#[derive(Serialize, Deserialize)]
struct List {
    format: u32,
    #[serde(flatten)]
    sent: Sent,
    /// Folders that may hold no file.
    folders: Vec<String>,
    files: Vec<Listed>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Listed {
    path: String,
    bytes: u64,
    crc32c: String,
}

/// Writes an archive.
pub struct ArchiveWriter<W: Write> {
    tar: tar::Builder<W>,
    folders: Vec<String>,
    files: Vec<Listed>,
}

impl<W: Write> ArchiveWriter<W> {
    /// An archive that is written to `out`.
    pub fn new(out: W) -> Self {
        Self { tar: tar::Builder::new(out), folders: Vec::new(), files: Vec::new() }
    }

    /// Adds a file: the first `bytes` bytes that `content` gives.
    ///
    /// # Errors
    /// What `content` or the output answers; `UnexpectedEof` if the content is shorter. The archive is of no use then.
    pub fn file(&mut self, path: &str, bytes: u64, content: impl Read) -> io::Result<()> {
        let mut checked = Checked::new(content.take(bytes));
        self.append(path, bytes, &mut checked)?;
        if checked.bytes != bytes {
            let what = format!("{path} has {} of {bytes} bytes", checked.bytes);
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, what));
        }
        self.files.push(Listed { path: path.to_owned(), bytes, crc32c: checked.sum() });
        Ok(())
    }

    /// Adds a folder that may hold no file.
    ///
    /// # Errors
    /// What the output answers.
    pub fn folder(&mut self, path: &str) -> io::Result<()> {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(tar::EntryType::Directory);
        header.set_size(0);
        header.set_mode(0o700);
        self.tar.append_data(&mut header, format!("{path}/"), io::empty())?;
        self.folders.push(path.to_owned());
        Ok(())
    }

    fn append(&mut self, path: &str, bytes: u64, content: &mut dyn Read) -> io::Result<()> {
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes);
        // It holds secrets, also where somebody unpacks it by hand.
        header.set_mode(0o600);
        self.tar.append_data(&mut header, path, content)
    }

    /// Ends the archive with its list, and gives the output back.
    ///
    /// # Errors
    /// What the output answers.
    pub fn finish(mut self, sent: Sent) -> io::Result<W> {
        let (folders, files) = (std::mem::take(&mut self.folders), std::mem::take(&mut self.files));
        let format = if sent.missing.is_empty() { FORMAT } else { FORMAT_WITH_MISSING };
        let list = List { format, sent, folders, files };
        let bytes = serde_json::to_vec(&list)?;
        self.append(LIST_FILE, bytes.len() as u64, &mut bytes.as_slice())?;
        self.tar.into_inner()
    }

    /// Ends the archive where it is, with the reason. After an error in the middle of a file nobody can read it.
    ///
    /// # Errors
    /// What the output answers.
    pub fn break_off(mut self, why: &str) -> io::Result<W> {
        self.append(BROKEN_FILE, why.len() as u64, &mut why.as_bytes())?;
        self.tar.into_inner()
    }
}

/// Takes a file: path, bytes, content.
pub type Take<'a> = dyn FnMut(&str, u64, &mut dyn Read) -> Result<(), BackupError> + 'a;

/// What a whole archive says beside its files.
pub struct Received {
    /// What its list says.
    pub sent: Sent,
    /// Folders that may hold no file.
    pub folders: Vec<String>,
}

/// Reads an archive and hands its files to `take`: path, bytes, content. `take` has to read all of the content.
///
/// # Errors
/// [`BackupError::Archive`] for an archive that broke off, or whose files are not those of its list; what `take` answers.
pub fn read(archive: impl Read, take: &mut Take<'_>) -> Result<Received, BackupError> {
    let mut tar = tar::Archive::new(archive);
    let mut seen = BTreeMap::new();
    for entry in tar.entries().map_err(|error| unreadable(&error))? {
        let mut entry = entry.map_err(|error| unreadable(&error))?;
        let bytes = entry.size();
        let path = entry.path().ok().and_then(|path| path.to_str().map(str::to_owned)).unwrap_or_default();
        if path == LIST_FILE {
            return compare(entry, bytes, &seen);
        }
        if path == BROKEN_FILE {
            return Err(BackupError::Archive(reason(entry)));
        }
        if entry.header().entry_type().is_dir() {
            // The list names it.
            continue;
        }
        if !entry.header().entry_type().is_file() || !is_path(&path) || seen.contains_key(&path) {
            return Err(BackupError::Archive(format!("the node sent a file that no backup has: {path:?}")));
        }
        let mut checked = Checked::new(&mut entry);
        take(&path, bytes, &mut checked)?;
        let found = Listed { path: path.clone(), bytes: checked.bytes, crc32c: checked.sum() };
        seen.insert(path, found);
    }
    Err(BackupError::Archive("the node ended the backup before its end; its log says why".to_owned()))
}

fn unreadable(error: &io::Error) -> BackupError {
    BackupError::Archive(format!("what the node sends cannot be read: {error}"))
}

fn reason(entry: impl Read) -> String {
    let mut bytes = Vec::new();
    // As much of it as came.
    let _ = entry.take(REASON_BYTES).read_to_end(&mut bytes);
    format!("the node broke the backup off: {}", String::from_utf8_lossy(&bytes))
}

fn compare(entry: impl Read, bytes: u64, seen: &BTreeMap<String, Listed>) -> Result<Received, BackupError> {
    if bytes > DOCUMENT_BYTES {
        return Err(BackupError::Archive("the list of the backup's files is too long".to_owned()));
    }
    let mut text = Vec::new();
    entry.take(bytes).read_to_end(&mut text).map_err(|error| unreadable(&error))?;
    let list: List = serde_json::from_slice(&text)
        .map_err(|error| BackupError::Archive(format!("the list of the backup's files cannot be read: {error}")))?;
    if ![FORMAT, FORMAT_WITH_MISSING].contains(&list.format) {
        let what = format!(
            "the node sends backups of format {}; this program reads {FORMAT} and {FORMAT_WITH_MISSING}",
            list.format
        );
        return Err(BackupError::Archive(what));
    }
    for listed in &list.files {
        if seen.get(&listed.path) != Some(listed) {
            let what = format!("{} did not come as the node sent it: back up again", listed.path);
            return Err(BackupError::Archive(what));
        }
    }
    if list.files.len() != seen.len() {
        return Err(BackupError::Archive("more files came than the node lists: back up again".to_owned()));
    }
    if let Some(wrong) = list.folders.iter().find(|path| !is_path(path)) {
        return Err(BackupError::Archive(format!("the node sent a folder that no backup has: {wrong:?}")));
    }
    Ok(Received { sent: list.sent, folders: list.folders })
}

/// Whether this is a path that a data directory may have: relative, of plain names.
pub(crate) fn is_path(path: &str) -> bool {
    let is_name = |name: &str| {
        !matches!(name, "" | "." | "..")
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_'))
    };
    path.len() <= PATH_BYTES && path.split('/').all(is_name)
}

/// Counts bytes on their way and sums them up.
struct Checked<R> {
    inner: R,
    bytes: u64,
    digest: crc_fast::Digest,
}

impl<R: Read> Checked<R> {
    fn new(inner: R) -> Self {
        Self { inner, bytes: 0, digest: crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi) }
    }

    fn sum(&self) -> String {
        format!("{:08x}", self.digest.finalize())
    }
}

impl<R: Read> Read for Checked<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.digest.update(&buffer[..count]);
        self.bytes += count as u64;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent() -> Sent {
        Sent { server: "0.2.0".to_owned(), identity: "0".repeat(32), taken_ms: 7, missing: Vec::new() }
    }

    fn archive() -> ArchiveWriter<Vec<u8>> {
        let mut writer = ArchiveWriter::new(Vec::new());
        writer.folder("checkpoint/tables").expect("written");
        writer.file("node.json", 2, &b"{}"[..]).expect("written");
        // Only its beginning counts.
        writer.file("log/0000000001/0000000001.log", 4, &b"abcdefgh"[..]).expect("written");
        writer
    }

    fn files(bytes: &[u8]) -> Result<(Sent, Vec<String>), BackupError> {
        let mut files = Vec::new();
        let received = read(bytes, &mut |path, bytes, content| {
            let mut text = String::new();
            content.read_to_string(&mut text).expect("read");
            files.push(format!("{path} {bytes} {text}"));
            Ok(())
        })?;
        assert_eq!(received.folders, ["checkpoint/tables"]);
        Ok((received.sent, files))
    }

    #[test]
    fn files_come_as_they_were_sent() {
        let bytes = archive().finish(sent()).expect("finished");
        let (found, files) = files(&bytes).expect("whole");
        assert_eq!(found, sent());
        assert_eq!(files, ["node.json 2 {}", "log/0000000001/0000000001.log 4 abcd"]);
    }

    #[test]
    fn an_archive_that_broke_off_is_refused_wherever_it_was_cut() {
        let bytes = archive().finish(sent()).expect("finished");
        // Behind the list come only the tar's own zeros.
        let whole = bytes.len() - 1024;
        for end in (0..whole - 512).step_by(101) {
            assert!(files(&bytes[..end]).is_err(), "cut at {end}");
        }
        let broken = archive().break_off("a shard has stopped").expect("ended");
        let error = files(&broken).expect_err("no list").to_string();
        assert!(error.contains("a shard has stopped"), "{error}");
    }

    #[test]
    fn a_changed_byte_is_refused_with_the_files_name() {
        let mut bytes = archive().finish(sent()).expect("finished");
        let at = bytes.windows(4).position(|four| four == b"abcd").expect("there");
        bytes[at] ^= 1;
        let error = files(&bytes).expect_err("changed").to_string();
        assert!(error.contains("log/0000000001/0000000001.log"), "{error}");
    }

    #[test]
    fn a_content_that_ends_early_is_an_error() {
        let mut writer = ArchiveWriter::new(Vec::new());
        let error = writer.file("secret", 32, &b"short"[..]).expect_err("short");
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn paths_lead_nowhere_else() {
        for path in ["node.json", "bodies/files/0001-00ab", "checkpoint/keyspaces/0/tables/12"] {
            assert!(is_path(path), "{path}");
        }
        for path in ["", "/etc/passwd", "a/../b", "..", "a//b", "a/", "a b", "a\\b", "ä", &"x".repeat(256)] {
            assert!(!is_path(path), "{path}");
        }
    }
}
