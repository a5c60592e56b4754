//! A cursor over JSON text.

use crate::error::{ValueError, ValueErrorKind};
use crate::shape::Class;
use crate::text::plain_run;
use std::borrow::Cow;

/// A cursor over JSON text that is known to be UTF-8.
#[derive(Clone)]
pub(crate) struct Cursor<'j> {
    text: &'j str,
    position: usize,
}

impl<'j> Cursor<'j> {
    pub(crate) fn new(json: &'j [u8]) -> Result<Cursor<'j>, ValueError> {
        match std::str::from_utf8(json) {
            Ok(text) => Ok(Cursor { text, position: 0 }),
            Err(error) => Err(not_json("is not UTF-8", error.valid_up_to())),
        }
    }

    #[cold]
    pub(crate) fn fail<T>(&self, message: &str) -> Result<T, ValueError> {
        Err(not_json(message, self.position))
    }

    /// The text from here to another cursor.
    pub(crate) fn slice_to(&self, end: &Cursor<'j>) -> &'j str {
        self.text.get(self.position..end.position).unwrap_or_default()
    }

    fn bytes(&self) -> &'j [u8] {
        self.text.as_bytes()
    }

    /// The next byte that is not white space.
    #[inline]
    pub(crate) fn peek(&mut self) -> Option<u8> {
        loop {
            match self.bytes().get(self.position) {
                Some(b' ' | b'\n' | b'\r' | b'\t') => self.position += 1,
                other => return other.copied(),
            }
        }
    }

    /// Moves behind this byte, if it comes next.
    #[inline]
    pub(crate) fn take(&mut self, byte: u8) -> bool {
        let is_there = self.peek() == Some(byte);
        self.position += usize::from(is_there);
        is_there
    }

    /// The class of the next value, without moving behind it.
    #[inline]
    pub(crate) fn class(&mut self) -> Result<Class, ValueError> {
        match self.peek() {
            Some(b'"') => Ok(Class::String),
            Some(b'{') => Ok(Class::Object),
            Some(b'[') => Ok(Class::Array),
            Some(b'0'..=b'9' | b'-') => {
                let number = self.clone().number()?;
                Ok(if number.bytes().any(|byte| matches!(byte, b'.' | b'e' | b'E')) {
                    Class::Number
                } else {
                    Class::Integer
                })
            }
            Some(b't' | b'f') => Ok(Class::Boolean),
            Some(b'n') => Ok(Class::Null),
            Some(_) => self.fail("a value is expected"),
            None => self.fail("the text ends where a value is expected"),
        }
    }

    /// Moves behind `true`, `false` or `null`, if it comes next.
    #[inline]
    pub(crate) fn word(&mut self, word: &str) -> bool {
        self.peek();
        let is_there = self.bytes()[self.position..].starts_with(word.as_bytes());
        if is_there {
            self.position += word.len();
        }
        is_there
    }

    /// The text of a number.
    pub(crate) fn number(&mut self) -> Result<&'j str, ValueError> {
        self.peek();
        let bytes = self.bytes();
        let start = self.position;
        let digits = |from: usize| bytes[from..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        let mut end = start + usize::from(bytes.get(start) == Some(&b'-'));
        let whole = digits(end);
        if whole == 0 || whole > 1 && bytes[end] == b'0' {
            return self.fail("a number is expected");
        }
        end += whole;
        if bytes.get(end) == Some(&b'.') {
            let fraction = digits(end + 1);
            if fraction == 0 {
                return self.fail("a number ends with its point");
            }
            end += 1 + fraction;
        }
        if let Some(b'e' | b'E') = bytes.get(end) {
            let sign = usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
            let exponent = digits((end + 1 + sign).min(bytes.len()));
            if exponent == 0 {
                return self.fail("a number ends with its exponent's sign");
            }
            end += 1 + sign + exponent;
        }
        self.position = end;
        Ok(&self.text[start..end])
    }

    /// A string's content.
    #[inline]
    pub(crate) fn string(&mut self) -> Result<Cow<'j, str>, ValueError> {
        if !self.take(b'"') {
            return self.fail("a string is expected");
        }
        let start = self.position;
        self.position += plain_run(self.bytes(), start);
        if self.bytes().get(self.position) == Some(&b'"') {
            self.position += 1;
            return Ok(Cow::Borrowed(&self.text[start..self.position - 1]));
        }
        self.escaped_string(start).map(Cow::Owned)
    }

    fn escaped_string(&mut self, start: usize) -> Result<String, ValueError> {
        let mut content = self.text[start..self.position].to_owned();
        loop {
            match self.bytes().get(self.position) {
                Some(b'"') => {
                    self.position += 1;
                    return Ok(content);
                }
                Some(b'\\') => {
                    self.position += 1;
                    let letter = self.escape()?;
                    content.push(letter);
                }
                Some(_) => return self.fail("a control character in a string"),
                None => return self.fail("the text ends within a string"),
            }
            let run = plain_run(self.bytes(), self.position);
            content.push_str(&self.text[self.position..self.position + run]);
            self.position += run;
        }
    }

    /// The escape after a `\`.
    fn escape(&mut self) -> Result<char, ValueError> {
        let Some(&byte) = self.bytes().get(self.position) else { return self.fail("the text ends within a string") };
        let letter = match byte {
            b'"' | b'\\' | b'/' => char::from(byte),
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => return self.unicode_escape(),
            _ => return self.fail("an unknown escape in a string"),
        };
        self.position += 1;
        Ok(letter)
    }

    fn unicode_escape(&mut self) -> Result<char, ValueError> {
        let first = self.four_digits()?;
        if !(0xd800..0xdc00).contains(&first) {
            return char::from_u32(first).map_or_else(|| self.fail("half of a surrogate pair"), Ok);
        }
        if self.bytes().get(self.position) != Some(&b'\\') {
            return self.fail("half of a surrogate pair");
        }
        self.position += 1;
        let second = self.four_digits()?;
        if !(0xdc00..0xe000).contains(&second) {
            return self.fail("half of a surrogate pair");
        }
        let letter = 0x1_0000 + ((first - 0xd800) << 10) + (second - 0xdc00);
        char::from_u32(letter).map_or_else(|| self.fail("half of a surrogate pair"), Ok)
    }

    /// `u` and four hexadecimal digits.
    fn four_digits(&mut self) -> Result<u32, ValueError> {
        let digits = self.bytes().get(self.position..self.position + 5);
        let Some([b'u', digits @ ..]) = digits else { return self.fail("a wrong escape in a string") };
        let mut number = 0;
        for digit in digits {
            match char::from(*digit).to_digit(16) {
                Some(digit) => number = number << 4 | digit,
                None => return self.fail("a wrong escape in a string"),
            }
        }
        self.position += 5;
        Ok(number)
    }

    /// Moves behind a value that will be read later: brackets are counted, not matched.
    pub(crate) fn skip(&mut self) -> Result<(), ValueError> {
        let mut open = 0_usize;
        loop {
            match self.peek() {
                Some(b'"') => self.skip_string()?,
                Some(b'{' | b'[') => {
                    self.position += 1;
                    open += 1;
                    continue;
                }
                Some(b'}' | b']') if open > 0 => {
                    self.position += 1;
                    open -= 1;
                }
                Some(b',' | b':') if open > 0 => {
                    self.position += 1;
                    continue;
                }
                Some(b'}' | b']' | b',' | b':') => return self.fail("a value is expected"),
                Some(_) => self.skip_word()?,
                None => return self.fail("the text ends within a value"),
            }
            if open == 0 {
                return Ok(());
            }
        }
    }

    /// A number or a word, and nothing that sticks to it. A later reader looks no farther than it goes.
    fn skip_word(&mut self) -> Result<(), ValueError> {
        let ends =
            |byte: &u8| matches!(byte, b',' | b':' | b'}' | b']' | b'{' | b'[' | b'"' | b' ' | b'\n' | b'\r' | b'\t');
        let rest = &self.bytes()[self.position..];
        let length = rest.iter().position(ends).unwrap_or(rest.len());
        let is_whole = match &rest[..length] {
            b"true" | b"false" | b"null" => true,
            _ => self.clone().number()?.len() == length,
        };
        if !is_whole {
            return self.fail("a value is expected");
        }
        self.position += length;
        Ok(())
    }

    fn skip_string(&mut self) -> Result<(), ValueError> {
        self.position += 1;
        loop {
            self.position += plain_run(self.bytes(), self.position);
            match self.bytes().get(self.position) {
                Some(b'"') => {
                    self.position += 1;
                    return Ok(());
                }
                Some(b'\\') if self.position + 1 < self.bytes().len() => {
                    // Whatever is escaped, its first byte neither ends the string nor escapes. It may be the first of
                    // several bytes, but the others are plain.
                    self.position += 2;
                }
                Some(b'\\') | None => return self.fail("the text ends within a string"),
                Some(_) => return self.fail("a control character in a string"),
            }
        }
    }
}

#[cold]
fn not_json(message: &str, position: usize) -> ValueError {
    ValueError::new(ValueErrorKind::NotJson, format!("not JSON at byte {position}: {message}"))
}
