//! Names of apps, services and handlers.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

use crate::limits;

/// For each byte, whether a name may hold it.
const IS_ALLOWED: [bool; 256] = {
    let mut is_allowed = [false; 256];
    let mut byte = 0u8;
    while byte < 128 {
        is_allowed[byte as usize] = byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
        byte += 1;
    }
    is_allowed
};

/// A validated name: one to [`limits::NAME_BYTES`] bytes of `A-Z a-z 0-9 _ -`, not starting with a digit or `-`. Cheap
/// to clone. It contains no NUL and no `/`; entity keys and URLs rely on that.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Arc<str>);

/// Why a text is not a [`Name`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameError {
    /// The refused text, cut to a printable length.
    pub text: String,
}

impl fmt::Display for NameError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{:?} is not a name: use 1 to {} of the characters A-Z a-z 0-9 _ -, not starting with a digit or -",
            self.text,
            limits::NAME_BYTES
        )
    }
}

impl std::error::Error for NameError {}

impl Name {
    /// Checks `text` and keeps it.
    ///
    /// # Errors
    /// [`NameError`] if `text` is empty, too long or has another character.
    pub fn new(text: &str) -> Result<Self, NameError> {
        if Self::is_valid(text) {
            Ok(Self(Arc::from(text)))
        } else {
            let text = text.chars().take(limits::NAME_BYTES).collect();
            Err(NameError { text })
        }
    }

    /// Whether `text` would be accepted by [`Name::new`].
    #[must_use]
    pub fn is_valid(text: &str) -> bool {
        let bytes = text.as_bytes();
        let Some(first) = bytes.first() else {
            return false;
        };
        bytes.len() <= limits::NAME_BYTES
            && (first.is_ascii_alphabetic() || *first == b'_')
            && bytes.iter().all(|byte| IS_ALLOWED[usize::from(*byte)])
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for Name {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:?}", &*self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_names_and_refuses_everything_else() {
        for good in ["a", "_x", "cart-2", &"n".repeat(limits::NAME_BYTES)] {
            assert!(Name::new(good).is_ok(), "{good}");
        }
        for bad in ["", "1a", "-a", "a/b", "a\0b", "ä", "a b", &"n".repeat(limits::NAME_BYTES + 1)] {
            assert!(Name::new(bad).is_err(), "{bad}");
        }
    }
}
