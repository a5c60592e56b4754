//! Patterns of policies: `*` stands for any text, `?` for one character.

/// Whether a text fits a pattern. Takes at most their product of steps, and no memory.
pub(crate) fn fits(pattern: &str, text: &str) -> bool {
    let (pattern, text): (&[u8], &[u8]) = (pattern.as_bytes(), text.as_bytes());
    let (mut at, mut seen) = (0, 0);
    // Where to go on, should what follows the last star not fit: behind it, and one byte later in the text.
    let mut again: Option<(usize, usize)> = None;
    while seen < text.len() {
        match pattern.get(at) {
            Some(b'*') => {
                again = Some((at + 1, seen));
                at += 1;
                continue;
            }
            Some(b'?') => {
                at += 1;
                seen += 1;
                // One character, not one byte.
                while text.get(seen).is_some_and(|byte| byte & 0xC0 == 0x80) {
                    seen += 1;
                }
                continue;
            }
            Some(byte) if *byte == text[seen] => {
                at += 1;
                seen += 1;
                continue;
            }
            _ => {}
        }
        let Some((behind, from)) = again else { return false };
        again = Some((behind, from + 1));
        (at, seen) = (behind, from + 1);
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::fits;

    #[test]
    fn stars_and_question_marks_stand_for_others() {
        for (pattern, text, does) in [
            ("", "", true),
            ("", "a", false),
            ("*", "", true),
            ("a*c", "abc", true),
            ("a*c", "ac", true),
            ("a*c", "acb", false),
            ("a*b*c", "a1b2b3c", true),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("a?c", "aäc", true),
            ("*a", "aaaa", true),
            ("**", "x", true),
            ("arn:aws:s3:::b/*", "arn:aws:s3:::b/k/l", true),
            ("arn:aws:s3:::b/*", "arn:aws:s3:::b", false),
        ] {
            assert_eq!(fits(pattern, text), does, "{pattern} {text}");
        }
    }
}
