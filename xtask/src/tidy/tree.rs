//! The repository's text files, in memory.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// The folder of copies of other projects' code.
const VENDORED: &str = "vendor/";

use super::rust_source::{Source, source_of};

/// A text file.
struct File {
    text: String,
    /// Its code and its comments, made when first asked for.
    source: OnceCell<Source>,
}

impl From<String> for File {
    fn from(text: String) -> Self {
        Self { text, source: OnceCell::new() }
    }
}

/// Every text file that is tracked, or would be once added, by its path from the root.
#[derive(Default)]
pub struct Tree {
    files: BTreeMap<String, File>,
    /// Files that are not UTF-8, or that others wrote: they exist for links, and nothing else looks at them.
    binaries: Vec<String>,
}

impl Tree {
    /// Reads what git lists: tracked files, and untracked ones that it does not ignore.
    pub fn read(root: &Path) -> Result<Self, String> {
        let listing = Command::new("git")
            // The checkout may belong to another user, as in a container that mounts it.
            .args(["-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"])
            .current_dir(root)
            .output()
            .map_err(|error| format!("git ls-files: {error}"))?;
        if !listing.status.success() {
            return Err(format!("git ls-files: {}", String::from_utf8_lossy(&listing.stderr)));
        }
        let mut tree = Self::default();
        for path in String::from_utf8_lossy(&listing.stdout).split('\0').filter(|path| !path.is_empty()) {
            // A file that is tracked but deleted, or a directory that is a link, is not there to check.
            let Ok(bytes) = std::fs::read(root.join(path)) else { continue };
            match String::from_utf8(bytes) {
                Ok(_) if path.starts_with(VENDORED) => tree.binaries.push(path.to_owned()),
                Ok(text) => drop(tree.files.insert(path.to_owned(), text.into())),
                Err(_) => tree.binaries.push(path.to_owned()),
            }
        }
        Ok(tree)
    }

    /// A tree of samples.
    #[cfg(test)]
    pub fn of(files: &[(&str, &str)]) -> Self {
        let files = files.iter().map(|(path, text)| ((*path).to_owned(), File::from((*text).to_owned()))).collect();
        Self { files, binaries: vec![] }
    }

    /// How many files there are.
    pub fn len(&self) -> usize {
        self.files.len() + self.binaries.len()
    }

    /// A file's text.
    pub fn get(&self, path: &str) -> Option<&str> {
        self.files.get(path).map(|file| file.text.as_str())
    }

    fn source(&self, path: &str) -> Option<(&str, &Source)> {
        self.files.get(path).map(|file| (file.text.as_str(), file.source.get_or_init(|| source_of(&file.text))))
    }

    /// A file's code without comments and strings; empty where there is no file.
    pub fn code(&self, path: &str) -> &str {
        self.source(path).map_or("", |(_, source)| &source.code)
    }

    /// A file's comments in order: where each begins, and its text.
    pub fn comments(&self, path: &str) -> impl Iterator<Item = (usize, &str)> {
        let found = self.source(path).into_iter();
        found.flat_map(|(text, source)| source.comments.iter().map(|at| (at.start, &text[at.clone()])))
    }

    /// Path and text of every text file, by path.
    pub fn files(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files.iter().map(|(path, file)| (path.as_str(), file.text.as_str()))
    }

    /// Path and text of the Rust sources, by path.
    pub fn rust(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files().filter(|(path, _)| path.ends_with(".rs"))
    }

    /// Whether `path` is a file, or a directory that holds one. The root is the empty path.
    pub fn exists(&self, path: &str) -> bool {
        let path = path.trim_end_matches('/');
        let below = format!("{path}/");
        let is_it = |file: &str| file == path || file.starts_with(&below);
        path.is_empty() || self.files.keys().chain(&self.binaries).any(|file| is_it(file))
    }
}

/// Whether the file says of itself, near its start, that a program wrote it.
pub fn is_generated(text: &str) -> bool {
    text.lines().take(5).any(|line| line.contains("@generated"))
}
