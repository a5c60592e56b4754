//! Why bytes are not a frame.

use std::fmt;

/// What is wrong with a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerFrameError {
    /// It ends too early, or has bytes left over.
    Length,
    /// Its payload is larger than any frame's.
    TooLarge(u32),
    /// Its type is not known, or the other side's.
    Kind(u8),
    /// A flag that has no meaning there is set, or the reserved bytes are not zero.
    Flags(u8),
    /// A text is not UTF-8.
    Text,
    /// A byte that chooses between forms has none of the known values.
    Form(u8),
    /// It stands where it may not: behind the end of a turn, or RESUMED behind another frame.
    Place(u8),
}

impl fmt::Display for WorkerFrameError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length => formatter.write_str("a frame's lengths contradict each other"),
            Self::TooLarge(bytes) => write!(formatter, "a frame's payload has {bytes} bytes, over the limit"),
            Self::Kind(kind) => write!(formatter, "a frame has the type {kind:#04x}, which is not known here"),
            Self::Flags(flags) => {
                write!(formatter, "a frame has flags or reserved bits set that mean nothing: {flags:#04x}")
            }
            Self::Text => formatter.write_str("a frame's text is not UTF-8"),
            Self::Form(form) => write!(formatter, "a frame has the byte {form:#04x} where a form is chosen"),
            Self::Place(kind) => write!(formatter, "a frame of the type {kind:#04x} stands where it may not"),
        }
    }
}

impl std::error::Error for WorkerFrameError {}
