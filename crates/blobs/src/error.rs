//! What can go wrong with a body.

use std::fmt;
use std::io;

use crate::BodyName;

/// Tells the caller what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BlobError {
    /// The disk is full: try again when there is space. Nothing half of it is there.
    Full,
    /// A write or sync failed: the lane takes no more until the store is opened again. Or a file could not be made: then
    /// only this body failed.
    Failed(String),
    /// There is no such body (any more).
    Gone(BodyName),
    /// The disk gives other bytes than were written.
    Rot(BodyName, String),
    /// What the caller said of the body is not what it wrote.
    Misuse(&'static str),
    /// The disk cannot be read.
    Unreadable(String),
}

impl fmt::Display for BlobError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full => formatter.write_str("the disk is full: the body was not written"),
            Self::Failed(what) => write!(formatter, "bodies cannot be written any more: {what}"),
            Self::Gone(name) => write!(formatter, "there is no body {name}"),
            Self::Rot(name, what) => write!(formatter, "the body {name} is damaged on the disk: {what}"),
            Self::Misuse(what) => formatter.write_str(what),
            Self::Unreadable(what) => write!(formatter, "bodies cannot be read: {what}"),
        }
    }
}

impl std::error::Error for BlobError {}

impl BlobError {
    /// A file could not be made or renamed. Nothing that was written before depends on it, so it stops nobody.
    pub(crate) fn not_made(error: &io::Error) -> Self {
        if millrace_io::is_out_of_space(error) { Self::Full } else { Self::Failed(error.to_string()) }
    }

    pub(crate) fn unreadable(error: &io::Error) -> Self {
        Self::Unreadable(error.to_string())
    }
}
