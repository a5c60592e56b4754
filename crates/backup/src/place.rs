//! Where backups are kept: files by their names, in a folder or in a bucket.

use std::io;

/// A place for files. Names have `/` between folders.
///
/// A name that is there has all of its bytes, unless the power failed before [`Place::sync`].
pub trait Place: Send + Sync {
    /// Where it is, for people.
    fn name(&self) -> String;

    /// Whether a written file is durable at once, so that its length tells that it is whole.
    fn is_durable_at_once(&self) -> bool;

    /// Why no place may be made here, such as other files; `None` if one may.
    ///
    /// # Errors
    /// What the place answers.
    fn refusal(&self) -> io::Result<Option<String>>;

    /// Makes the folder `name` and those above it, for their owner only.
    ///
    /// # Errors
    /// What the place answers.
    fn create_folder(&self, name: &str) -> io::Result<()>;

    /// The names in the folder `name`, sorted: of files that are whole, and of folders. With `unfinished` also of files that
    /// somebody writes or has given up. None where there is no such folder.
    ///
    /// # Errors
    /// What the place answers.
    fn list(&self, name: &str, unfinished: bool) -> io::Result<Vec<String>>;

    /// A file's length; `None` where there is none.
    ///
    /// # Errors
    /// What the place answers.
    fn length(&self, name: &str) -> io::Result<Option<u64>>;

    /// A file's bytes, if they are no more than `limit`.
    ///
    /// # Errors
    /// `NotFound`; `FileTooLarge`; what the place answers.
    fn read(&self, name: &str, limit: u64) -> io::Result<Vec<u8>>;

    /// Writes a file, or replaces it. It is durable after [`Place::sync`].
    ///
    /// # Errors
    /// What the place answers.
    fn write(&self, name: &str, bytes: &[u8]) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    /// What the place answers.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Makes durable whatever was written so far.
    ///
    /// # Errors
    /// What the place answers.
    fn sync(&self) -> io::Result<()>;

    /// Waits until nobody removes anything; or, alone, until nobody else does anything. The lock ends with what is given.
    /// A place without locks gives something else.
    ///
    /// # Errors
    /// What the place answers.
    fn lock(&self, name: &str, is_alone: bool) -> io::Result<Box<dyn Send>>;
}
