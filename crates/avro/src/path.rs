//! Where a value lies within another, as paths are written: `.devApps("a").n[3]`.

use crate::error::{Malformed, ValueError, ValueErrorKind};
use std::fmt::Write;

/// Letters of a map's key that an error shows.
const KEY_LETTERS: usize = 64;

pub(crate) fn push_field(path: &mut String, name: &str) {
    path.push('.');
    path.push_str(name);
}

pub(crate) fn push_index(path: &mut String, index: usize) {
    write!(path, "[{index}]").expect("a string takes whatever is written");
}

/// Appends the key as a JSON string, so that it can be read back.
pub(crate) fn push_key(path: &mut String, key: &str) {
    path.push('(');
    path.push_str(&serde_json::Value::from(key).to_string());
    path.push(')');
}

impl ValueError {
    #[cold]
    pub(crate) fn new(kind: ValueErrorKind, message: impl Into<String>) -> ValueError {
        ValueError { kind, path: ".".to_owned(), message: message.into() }
    }

    /// The same fault, seen from the value around it.
    fn inside(mut self, step: String) -> ValueError {
        // A whole value is written `.`, but only a path on its own needs that.
        self.path = if self.path == "." { step } else { step + &self.path };
        self
    }

    #[cold]
    pub(crate) fn in_field(self, name: &str) -> ValueError {
        self.inside(format!(".{name}"))
    }

    #[cold]
    pub(crate) fn in_item(self, index: usize) -> ValueError {
        self.inside(format!("[{index}]"))
    }

    #[cold]
    pub(crate) fn in_entry(self, key: &str) -> ValueError {
        let mut step = String::new();
        match key.char_indices().nth(KEY_LETTERS) {
            Some((end, _)) => push_key(&mut step, &format!("{}…", &key[..end])),
            None => push_key(&mut step, key),
        }
        self.inside(step)
    }
}

impl From<Malformed> for ValueError {
    fn from(malformed: Malformed) -> ValueError {
        let message = format!("{} at byte {}", malformed.message, malformed.position);
        ValueError::new(ValueErrorKind::Malformed, message)
    }
}
