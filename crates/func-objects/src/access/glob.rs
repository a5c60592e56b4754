//! Patterns in which `*` stands for any text and `?` for one character, as policies and CORS rules have them.
//!
//! Matching takes at most the pattern's length times the text's, whatever a stranger writes.

/// One piece of a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece<'a> {
    /// This text.
    Text(&'a str),
    /// One character.
    One,
    /// Any text.
    Any,
}

/// The pieces of a pattern.
pub fn pieces(pattern: &str) -> impl Iterator<Item = Piece<'_>> {
    let mut rest = pattern;
    std::iter::from_fn(move || {
        let (piece, length) = match rest.as_bytes().first()? {
            b'*' => (Piece::Any, 1),
            b'?' => (Piece::One, 1),
            _ => {
                let length = rest.find(['*', '?']).unwrap_or(rest.len());
                (Piece::Text(&rest[..length]), length)
            }
        };
        rest = &rest[length..];
        Some(piece)
    })
}

/// Whether the whole text matches the pieces.
#[must_use]
pub fn matches(pieces: &[Piece<'_>], text: &str) -> bool {
    // The last `Any` and the text that it has not taken yet. Only the last has to be tried again: an earlier one that
    // took more would leave less for the rest.
    let mut retry: Option<(usize, &str)> = None;
    let (mut index, mut rest) = (0, text);
    loop {
        let step = match pieces.get(index) {
            Some(Piece::Any) => {
                retry = Some((index, rest));
                Some(rest)
            }
            Some(Piece::One) => behind_first(rest),
            Some(Piece::Text(own)) => rest.strip_prefix(own),
            None if rest.is_empty() => return true,
            None => None,
        };
        if let Some(behind) = step {
            index += 1;
            rest = behind;
            continue;
        }
        let Some((any, from)) = retry else { return false };
        let Some(from) = behind_first(from) else { return false };
        retry = Some((any, from));
        (index, rest) = (any + 1, from);
    }
}

/// Whether the whole text matches the pattern.
#[must_use]
pub fn is_match(pattern: &str, text: &str) -> bool {
    matches(&pieces(pattern).collect::<Vec<_>>(), text)
}

fn behind_first(text: &str) -> Option<&str> {
    let mut characters = text.chars();
    characters.next()?;
    Some(characters.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_follow_the_table() {
        for (pattern, text, expected) in [
            ("", "", true),
            ("", "a", false),
            ("*", "", true),
            ("*", "a/b", true),
            ("?", "", false),
            ("?", "ü", true),
            ("?", "ab", false),
            ("a*", "abc", true),
            ("a*", "ba", false),
            ("*a", "cba", true),
            ("*a", "ab", false),
            ("a*c", "abcbc", true),
            ("a*c", "abcb", false),
            ("a*b*c", "a-b-b-c", true),
            ("a*b?c", "abxbxc", true),
            ("**a**", "xay", true),
            ("*?", "", false),
            ("?*", "ü", true),
            ("ab", "ab", true),
            ("ab", "aB", false),
        ] {
            assert_eq!(is_match(pattern, text), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn evil_patterns_end_soon() {
        let text = "a".repeat(1_024);
        assert!(!is_match(&"*a".repeat(1_024), &text[..1_000]));
        assert!(!is_match(&format!("{}b", "a*".repeat(500)), &text));
    }
}
