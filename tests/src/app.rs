//! Apps that a test makes, and the tar archives in which it sends them. The writer checks nothing, so that a test can
//! send archives that no honest tool would write.

use std::path::{Path, PathBuf};

use crate::{Reply, Server, repository};

/// One entry of an archive.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Its path, as written; at most 100 bytes.
    pub path: String,
    /// The type flag: `0` a file, `1` a hard link, `2` a symbolic link, `3` a device, `5` a folder.
    pub kind: u8,
    /// The target of a link.
    pub target: String,
    /// A file's bytes.
    pub content: Vec<u8>,
}

impl Entry {
    /// A file.
    #[must_use]
    pub fn file(path: &str, content: impl Into<Vec<u8>>) -> Self {
        Self { path: path.into(), kind: b'0', target: String::new(), content: content.into() }
    }

    /// An entry that is not a regular file.
    #[must_use]
    pub fn special(path: &str, kind: u8, target: &str) -> Self {
        Self { path: path.into(), kind, target: target.into(), content: Vec::new() }
    }
}

/// Writes a tar archive (ustar).
///
/// # Panics
/// When the path or target does not fit into its header.
#[must_use]
pub fn tar(entries: &[Entry]) -> Vec<u8> {
    let mut archive = Vec::new();
    for entry in entries {
        let mut header = [0u8; 512];
        header[..entry.path.len()].copy_from_slice(entry.path.as_bytes());
        header[100..108].copy_from_slice(b"0000644\0");
        header[108..124].copy_from_slice(b"0000000\x000000000\0");
        header[124..136].copy_from_slice(format!("{:011o}\0", entry.content.len()).as_bytes());
        header[136..148].copy_from_slice(b"00000000000\0");
        header[148..156].copy_from_slice(b"        ");
        header[156] = entry.kind;
        header[157..157 + entry.target.len()].copy_from_slice(entry.target.as_bytes());
        header[257..265].copy_from_slice(b"ustar\x0000");
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        archive.extend_from_slice(&header);
        archive.extend_from_slice(&entry.content);
        archive.resize(archive.len().next_multiple_of(512), 0);
    }
    archive.resize(archive.len() + 1024, 0);
    archive
}

/// An app made of text.
#[derive(Clone, Debug, Default)]
pub struct TestApp {
    files: Vec<(String, String)>,
}

impl TestApp {
    /// An app with one file.
    #[must_use]
    pub fn with(path: &str, text: &str) -> Self {
        Self::default().and(path, text)
    }

    /// Reads the files of a bundled example.
    ///
    /// # Panics
    /// When they cannot be read.
    #[must_use]
    pub fn example(name: &str) -> Self {
        let folder = repository().join("examples").join(name);
        let files = std::fs::read_dir(folder).expect("the example").map(|entry| entry.expect("an entry").path());
        let is_part = |path: &PathBuf| path.extension().is_some_and(|kind| kind == "ts" || kind == "toml");
        let read = |path: PathBuf| {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            (name, std::fs::read_to_string(path).expect("read"))
        };
        Self { files: files.filter(is_part).map(read).collect() }
    }

    /// Adds one more file.
    #[must_use]
    pub fn and(mut self, path: &str, text: &str) -> Self {
        self.files.push((path.to_owned(), text.to_owned()));
        self
    }

    /// Replaces one text with another in the file that holds it.
    ///
    /// # Panics
    /// When no such file holds it.
    #[must_use]
    pub fn changed(mut self, path: &str, from: &str, to: &str) -> Self {
        let file = self.files.iter_mut().find(|(name, text)| name == path && text.contains(from));
        let (_, text) = file.unwrap_or_else(|| panic!("{path} holds no {from:?}"));
        *text = text.replace(from, to);
        self
    }

    /// The app as a tar archive.
    #[must_use]
    pub fn tar(&self) -> Vec<u8> {
        let entries: Vec<Entry> = self.files.iter().map(|(path, text)| Entry::file(path, text.as_str())).collect();
        tar(&entries)
    }

    /// Writes the app's files into a folder.
    ///
    /// # Panics
    /// When they cannot be written.
    pub fn write(&self, folder: &Path) {
        for (path, text) in &self.files {
            let path = folder.join(path);
            std::fs::create_dir_all(path.parent().expect("a file has a folder")).expect("made");
            std::fs::write(path, text).expect("written");
        }
    }

    /// Deploys the app: `PUT /apps/{name}`.
    #[must_use]
    pub fn deploy(&self, server: &Server, name: &str) -> Reply {
        server.request("PUT", &format!("/apps/{name}"), &[], &self.tar())
    }
}
