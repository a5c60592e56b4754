//! Just enough of Rust's syntax to count lines and find words: comments and the contents of
//! strings blanked out, and the extent of functions and of test-only items.
//!
//! Not a parser: it works on text that does not compile, sees inside macros, and costs nothing
//! to build. What it must get right is where strings, characters, lifetimes and comments end.

use std::ops::Range;

/// A Rust file, taken apart.
pub struct Source {
    /// The text with every comment and every string's or character's content replaced by spaces.
    /// Bytes keep their place and lines their number; quotes stay.
    pub code: String,
    /// Where its comments are, in order.
    pub comments: Vec<Range<usize>>,
}

/// Takes a text apart.
pub fn source_of(text: &str) -> Source {
    let mut scanner = Scanner { bytes: text.as_bytes(), at: 0, out: text.as_bytes().to_vec(), comments: Vec::new() };
    while scanner.at < scanner.bytes.len() {
        scanner.token();
    }
    // Only whole multi-byte characters are blanked, so this is still UTF-8.
    Source { code: String::from_utf8_lossy(&scanner.out).into_owned(), comments: scanner.comments }
}

struct Scanner<'a> {
    bytes: &'a [u8],
    at: usize,
    out: Vec<u8>,
    comments: Vec<Range<usize>>,
}

impl<'a> Scanner<'a> {
    fn rest(&self) -> &'a [u8] {
        &self.bytes[self.at.min(self.bytes.len())..]
    }

    fn token(&mut self) {
        let rest = self.rest();
        if rest.starts_with(b"//") {
            let end = self.at + rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
            self.comment_to(end);
        } else if rest.starts_with(b"/*") {
            self.block_comment();
        } else if rest[0] == b'"' {
            self.string();
        } else if rest[0] == b'\'' {
            self.quote();
        } else if is_word(rest[0]) {
            self.word();
        } else {
            self.at += 1;
        }
    }

    fn comment_to(&mut self, end: usize) {
        self.comments.push(self.at..end);
        self.blank_to(end);
    }

    fn blank_to(&mut self, end: usize) {
        let end = end.min(self.bytes.len());
        for index in self.at..end {
            if self.bytes[index] != b'\n' {
                self.out[index] = b' ';
            }
        }
        self.at = end;
    }

    fn block_comment(&mut self) {
        let mut depth = 0;
        let mut end = self.at;
        while end < self.bytes.len() {
            let rest = &self.bytes[end..];
            if rest.starts_with(b"/*") {
                depth += 1;
                end += 2;
            } else if rest.starts_with(b"*/") {
                depth -= 1;
                end += 2;
                if depth == 0 {
                    break;
                }
            } else {
                end += 1;
            }
        }
        self.comment_to(end);
    }

    /// From an opening `"` past the closing one, over escapes.
    fn string(&mut self) {
        self.at += 1;
        let mut end = self.at;
        while end < self.bytes.len() && self.bytes[end] != b'"' {
            end += if self.bytes[end] == b'\\' { 2 } else { 1 };
        }
        self.blank_to(end);
        self.at += 1;
    }

    /// A character literal, or a lifetime or label, which has no closing quote.
    fn quote(&mut self) {
        let rest = &self.rest()[1..];
        let width = match rest.first() {
            Some(b'\\') => 2 + rest.iter().skip(2).position(|byte| *byte == b'\'').unwrap_or_default(),
            Some(first) => utf8_width(*first),
            None => 0,
        };
        self.at += 1;
        if width > 0 && rest.get(width) == Some(&b'\'') {
            let end = self.at + width;
            self.blank_to(end);
            self.at += 1;
        }
    }

    /// A word, which may be the prefix of a raw string.
    fn word(&mut self) {
        let rest = self.rest();
        let length = rest.iter().position(|byte| !is_word(*byte)).unwrap_or(rest.len());
        let (word, after) = rest.split_at(length);
        let hashes = after.iter().take_while(|byte| **byte == b'#').count();
        let is_raw = matches!(word, b"r" | b"br" | b"cr") && after.get(hashes) == Some(&b'"');
        self.at += length;
        if is_raw {
            self.at += hashes + 1;
            let close: Vec<u8> = std::iter::once(b'"').chain(std::iter::repeat_n(b'#', hashes)).collect();
            let rest = self.rest();
            let end = rest.windows(close.len()).position(|window| window == close).unwrap_or(rest.len());
            self.blank_to(self.at + end);
            self.at += close.len();
        }
    }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}

fn utf8_width(first: u8) -> usize {
    match first {
        0xF0.. => 4,
        0xE0.. => 3,
        0xC0.. => 2,
        _ => 1,
    }
}

/// Counts from 1.
pub fn line_of(text: &str, offset: usize) -> usize {
    1 + text.as_bytes()[..offset].iter().filter(|byte| **byte == b'\n').count()
}

/// Every offset at which `needle` stands in `code` and does not continue a longer word.
pub fn find_all<'a>(code: &'a str, needle: &'a str) -> impl Iterator<Item = usize> + 'a {
    let starts_with_word = needle.bytes().next().is_some_and(is_word);
    let ends_with_word = needle.bytes().last().is_some_and(is_word);
    code.match_indices(needle).map(|(offset, _)| offset).filter(move |offset| {
        let before = offset.checked_sub(1).is_some_and(|index| is_word(code.as_bytes()[index]));
        let after = code.as_bytes().get(offset + needle.len()).is_some_and(|byte| is_word(*byte));
        !(starts_with_word && before || ends_with_word && after)
    })
}

/// A function with a body.
#[derive(Debug, PartialEq, Eq)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// The line of its `fn`, from 1.
    pub line: usize,
    /// Lines from `fn` to the closing brace, both counted.
    pub lines: usize,
}

/// The functions of a source's code.
pub fn functions(code: &str) -> Vec<Function> {
    let mut found = Vec::new();
    for offset in find_all(code, "fn") {
        let name: String =
            code[offset + 2..].trim_start().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        // Without a name it is the type of a function pointer.
        if name.is_empty() {
            continue;
        }
        if let Some(body) = body_after(code, offset) {
            let line = line_of(code, offset);
            found.push(Function { name, line, lines: line_of(code, body.end - 1) - line + 1 });
        }
    }
    found
}

/// The braces that belong to the item at `offset`; `None` when the item ends with `;` instead.
fn body_after(code: &str, offset: usize) -> Option<Range<usize>> {
    let bytes = code.as_bytes();
    let mut nested = 0_usize;
    let mut at = offset;
    while at < bytes.len() {
        match bytes[at] {
            b'(' | b'[' => nested += 1,
            b')' | b']' => nested = nested.saturating_sub(1),
            b';' if nested == 0 => return None,
            b'{' if nested == 0 => return Some(at..closing_brace(bytes, at)),
            _ => {}
        }
        at += 1;
    }
    None
}

/// One past the brace that closes the one at `open`; the end of the text if none does.
fn closing_brace(bytes: &[u8], open: usize) -> usize {
    let mut depth = 0_usize;
    for (index, byte) in bytes.iter().enumerate().skip(open) {
        match byte {
            b'{' => depth += 1,
            b'}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return index + 1;
        }
    }
    bytes.len()
}

/// A source's code with every `#[cfg(test)]` item blanked out, and the names of the modules
/// that such items declare in other files.
pub fn without_tests(code: &str) -> (String, Vec<String>) {
    let mut out = code.as_bytes().to_vec();
    let mut modules = Vec::new();
    for attribute in ["#[cfg(test)]", "#[cfg(all(test", "#[test]"] {
        for (offset, _) in code.match_indices(attribute) {
            let item = offset + attribute.len();
            let end = match body_after(code, item) {
                Some(body) => body.end,
                None => {
                    let end = item + code[item..].find(';').unwrap_or(code.len() - item);
                    if let Some((_, name)) = code[item..end].rsplit_once("mod ") {
                        modules.push(name.trim().to_owned());
                    }
                    end
                }
            };
            for byte in &mut out[offset..end] {
                if *byte != b'\n' {
                    *byte = b' ';
                }
            }
        }
    }
    (String::from_utf8_lossy(&out).into_owned(), modules)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code_of(text: &str) -> String {
        source_of(text).code
    }

    #[test]
    fn comments_are_found_and_what_looks_like_one_in_a_string_is_not() {
        let text = "a(); // b\n/* c /* d */\n */ e(\"// f\", r#\"/* \"#, '/'); /// g";
        let found: Vec<_> = source_of(text).comments.into_iter().map(|comment| &text[comment]).collect();
        assert_eq!(found, ["// b", "/* c /* d */\n */", "/// g"]);
        assert_eq!(source_of("/* open").comments.first(), Some(&(0..7)));
    }

    #[test]
    fn comments_strings_and_characters_are_blanked_and_lines_kept() {
        let cases = [
            ("a // } {\nb", "a       \nb"),
            ("/* { /* } */ { */ x", "                  x"),
            (r#"f("{\"}", '{', '\'', '\u{7b}')"#, r#"f("    ", ' ', '  ', '      ')"#),
            ("r#\"{ \" }\"# br\"\\\" r#type", "r#\"     \"# br\" \" r#type"),
            (
                "fn f<'a>(x: &'a str) -> &'static str { 'l: loop {} }",
                "fn f<'a>(x: &'a str) -> &'static str { 'l: loop {} }",
            ),
            ("'é' '}' b'{' \"\n{\"", "'  ' ' ' b' ' \"\n \""),
            ("\"unterminated {", "\"              "),
        ];
        for (text, code) in cases {
            assert_eq!(code_of(text), code, "{text}");
        }
    }

    #[test]
    fn functions_are_measured_from_their_fn_to_their_brace() {
        let text = "trait T { fn declared(&self) -> [u8; 2]; }\nfn one() { let f: fn(u8) = g; }\nconst fn two(a: [u8; 3])\nwhere\n    A: B,\n{\n    // }\n    fn inner() {}\n}\n";
        let found = functions(&code_of(text));
        let seen: Vec<_> = found.iter().map(|f| (f.name.as_str(), f.line, f.lines)).collect();
        assert_eq!(seen, [("one", 2, 1), ("two", 3, 7), ("inner", 8, 1)]);
    }

    #[test]
    fn test_items_disappear_and_their_modules_are_named() {
        let text = "a();\n#[cfg(test)]\nmod tests { b(); }\n#[cfg(test)]\npub(crate) mod helpers;\nc();\n#[test]\nfn d() { e(); }";
        let (code, modules) = without_tests(&code_of(text));
        assert!(code.contains("a()") && code.contains("c()"));
        assert!(!code.contains("b()") && !code.contains("e()"), "{code}");
        assert_eq!(modules, ["helpers"]);
    }

    #[test]
    fn words_are_found_whole() {
        assert_eq!(find_all("panic!(); core::panic!(); my_panic!()", "panic!").collect::<Vec<_>>(), [0, 16]);
        assert_eq!(find_all("fnord fn defn", "fn").collect::<Vec<_>>(), [6]);
    }
}
