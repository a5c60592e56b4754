//! JSON text to JavaScript values: a parser that makes the values as it reads, for whatever is not
//! unusual. What it does not understand (errors, great depth, half of a surrogate pair) it leaves
//! to QuickJS's own parser, which reads the text again and words the error, if the text is short.
//!
//! It looks at the time as it goes: QuickJS finds names and texts by a hash that is the same everywhere, so somebody can
//! write a text whose names all fall into one chain, and each of them takes as long as there were before. QuickJS's own
//! parser cannot be interrupted.

use rquickjs::qjs;

use crate::forms::FormHash;
use crate::isolate::Isolate;
use crate::js::{Context, NULL, Raw, Value, boolean, int, number};

/// Nesting that is parsed here; deeper text is rare and goes to the other parser. A level takes some 300 bytes of stack.
const DEPTH: usize = 512;

/// Values between two looks at the time. Of the worst there are, so many take a few milliseconds.
const VALUES_BETWEEN_LOOKS: usize = 16;

/// The longest text that the other parser may read: it takes some 20 ms for the worst one.
pub(crate) const OTHER_PARSER_BYTES: usize = 64 << 10;

/// Why the parser ended early.
pub(crate) enum Stop {
    /// The text is for the other parser.
    Unusual,
    /// The turn has broken a limit, which the budget knows.
    Broken,
}

/// Parses `text`, which is UTF-8. Runs no user code. No exception is pending afterwards.
pub(crate) fn parse(isolate: &Isolate, text: &str) -> Result<Value, Stop> {
    let context = isolate.context;
    let (source, text) = (text, text.as_bytes());
    let mut parser =
        Parser { isolate, context, source, text, at: 0, elements: Vec::new(), unescaped: Vec::new(), values: 0 };
    let result = parser.value(0).and_then(|value| {
        parser.skip_space();
        if parser.at == parser.text.len() { Ok(value) } else { Err(Stop::Unusual) }
    });
    for element in parser.elements.drain(..) {
        context.free(element);
    }
    result
}

struct Parser<'a> {
    isolate: &'a Isolate,
    context: Context,
    source: &'a str,
    /// The same.
    text: &'a [u8],
    at: usize,
    /// The elements of the arrays that are open, owned.
    elements: Vec<Raw>,
    unescaped: Vec<u8>,
    /// How many have begun.
    values: usize,
}

/// A string's content: a range of the text, or what was put into `unescaped`.
enum Content {
    Range(usize, usize),
    Unescaped,
}

impl Parser<'_> {
    #[inline]
    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    #[inline]
    fn skip_space(&mut self) {
        while let Some(b' ' | b'\n' | b'\r' | b'\t') = self.peek() {
            self.at += 1;
        }
    }

    fn expect(&mut self, byte: u8) -> Result<(), Stop> {
        self.skip_space();
        if self.peek() != Some(byte) {
            return Err(Stop::Unusual);
        }
        self.at += 1;
        Ok(())
    }

    fn word(&mut self, word: &[u8], raw: Raw) -> Result<Value, Stop> {
        if !self.text[self.at..].starts_with(word) {
            return Err(Stop::Unusual);
        }
        self.at += word.len();
        Ok(self.context.own(raw))
    }

    /// Turns a failed C call into a second try by the other parser, which will fail alike.
    fn checked(&self, raw: Raw) -> Result<Value, Stop> {
        self.context.check(raw).map_err(|_| {
            drop(self.context.take_exception());
            Stop::Unusual
        })
    }

    fn value(&mut self, depth: usize) -> Result<Value, Stop> {
        self.values += 1;
        if self.values.is_multiple_of(VALUES_BETWEEN_LOOKS) && self.isolate.must_end() {
            return Err(Stop::Broken);
        }
        self.skip_space();
        match self.peek().ok_or(Stop::Unusual)? {
            b'"' => {
                let content = self.string()?;
                let bytes = self.content(&content);
                self.context.string(bytes).map_err(|_| {
                    drop(self.context.take_exception());
                    Stop::Unusual
                })
            }
            b'{' if depth < DEPTH => self.object(depth),
            b'[' if depth < DEPTH => self.array(depth),
            b'-' | b'0'..=b'9' => self.number(),
            b't' => self.word(b"true", boolean(true)),
            b'f' => self.word(b"false", boolean(false)),
            b'n' => self.word(b"null", NULL),
            _ => Err(Stop::Unusual),
        }
    }

    fn object(&mut self, depth: usize) -> Result<Value, Stop> {
        self.at += 1;
        // SAFETY: plain call.
        let object = self.checked(unsafe { qjs::JS_NewObject(self.context.as_ptr()) })?;
        self.skip_space();
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(object);
        }
        let mut form = FormHash::default();
        loop {
            self.skip_space();
            if self.peek() != Some(b'"') {
                return Err(Stop::Unusual);
            }
            let key = self.string()?;
            let key = self.key(&key)?;
            form.add(key);
            let value = self.expect(b':').and_then(|()| self.value(depth + 1));
            let value = match value {
                Ok(value) => value.into_raw(),
                Err(stop) => {
                    self.context.free_atom(key);
                    return Err(stop);
                }
            };
            let flags = qjs::JS_PROP_C_W_E as i32;
            // SAFETY: the call takes over the value's reference.
            let status = unsafe { qjs::JS_DefinePropertyValue(self.context.as_ptr(), object.raw(), key, value, flags) };
            self.context.free_atom(key);
            if status < 0 {
                drop(self.context.take_exception());
                return Err(Stop::Unusual);
            }
            self.skip_space();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b'}') => break,
                _ => return Err(Stop::Unusual),
            }
        }
        self.at += 1;
        self.isolate.note_form(object.raw(), form);
        Ok(object)
    }

    fn key(&self, key: &Content) -> Result<crate::js::Atom, Stop> {
        let key = match key {
            Content::Range(start, end) => self.source.get(*start..*end),
            // Made of characters.
            Content::Unescaped => std::str::from_utf8(&self.unescaped).ok(),
        };
        let key = key.ok_or(Stop::Unusual)?;
        match self.context.atom(key) {
            0 => {
                drop(self.context.take_exception());
                Err(Stop::Unusual)
            }
            atom => Ok(atom),
        }
    }

    fn array(&mut self, depth: usize) -> Result<Value, Stop> {
        self.at += 1;
        let first = self.elements.len();
        self.skip_space();
        if self.peek() == Some(b']') {
            self.at += 1;
        } else {
            loop {
                let element = self.value(depth + 1)?;
                self.elements.push(element.into_raw());
                self.skip_space();
                let byte = self.peek();
                self.at += 1;
                match byte {
                    Some(b',') => {}
                    Some(b']') => break,
                    _ => return Err(Stop::Unusual),
                }
            }
        }
        let elements = &self.elements[first..];
        // SAFETY: the call takes over the elements' references, also when it fails.
        let array = unsafe { qjs::JS_NewArrayFrom(self.context.as_ptr(), elements.len() as i32, elements.as_ptr()) };
        self.elements.truncate(first);
        self.checked(array)
    }

    fn number(&mut self) -> Result<Value, Stop> {
        let start = self.at;
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        let first = self.peek();
        let digits = self.digits()?;
        if first == Some(b'0') && digits > 1 {
            return Err(Stop::Unusual);
        }
        let is_integer = !matches!(self.peek(), Some(b'.' | b'e' | b'E'));
        if is_integer && digits <= 9 && !(first == Some(b'0') && self.at - start > 1) {
            let text = &self.text[start..self.at];
            let (is_negative, digits) = text.strip_prefix(b"-").map_or((false, text), |digits| (true, digits));
            let value = digits.iter().fold(0, |value, digit| value * 10 + i32::from(digit - b'0'));
            return Ok(self.context.own(int(if is_negative { -value } else { value })));
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if let Some(b'e' | b'E') = self.peek() {
            self.at += 1;
            if let Some(b'+' | b'-') = self.peek() {
                self.at += 1;
            }
            self.digits()?;
        }
        let text = std::str::from_utf8(&self.text[start..self.at]).map_err(|_| Stop::Unusual)?;
        Ok(self.context.own(number(text.parse().map_err(|_| Stop::Unusual)?)))
    }

    /// Passes over one or more digits; says how many.
    fn digits(&mut self) -> Result<usize, Stop> {
        let start = self.at;
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        if self.at == start { Err(Stop::Unusual) } else { Ok(self.at - start) }
    }

    #[inline]
    fn content(&self, content: &Content) -> &[u8] {
        match content {
            Content::Range(start, end) => &self.text[*start..*end],
            Content::Unescaped => &self.unescaped,
        }
    }

    /// Reads a string whose opening quote is next.
    #[inline]
    fn string(&mut self) -> Result<Content, Stop> {
        let start = self.at + 1;
        let rest = self.text.get(start..).ok_or(Stop::Unusual)?;
        let length = rest.iter().position(|byte| matches!(byte, b'"' | b'\\' | 0..=0x1F)).ok_or(Stop::Unusual)?;
        self.at = start + length;
        match rest[length] {
            b'"' => {
                self.at += 1;
                Ok(Content::Range(start, start + length))
            }
            b'\\' => self.escaped(start),
            _ => Err(Stop::Unusual),
        }
    }

    /// Goes on with a string that holds an escape, which is next.
    fn escaped(&mut self, start: usize) -> Result<Content, Stop> {
        self.unescaped.clear();
        self.unescaped.extend_from_slice(&self.text[start..self.at]);
        loop {
            let byte = self.peek().ok_or(Stop::Unusual)?;
            self.at += 1;
            match byte {
                b'"' => return Ok(Content::Unescaped),
                b'\\' => {
                    let character = self.escape()?;
                    let mut buffer = [0; 4];
                    self.unescaped.extend_from_slice(character.encode_utf8(&mut buffer).as_bytes());
                }
                0..=0x1F => return Err(Stop::Unusual),
                byte => self.unescaped.push(byte),
            }
        }
    }

    fn escape(&mut self) -> Result<char, Stop> {
        let byte = self.peek().ok_or(Stop::Unusual)?;
        self.at += 1;
        Ok(match byte {
            b'"' | b'\\' | b'/' => char::from(byte),
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                let unit = self.hexadecimal()?;
                if !(0xD800..0xDC00).contains(&unit) {
                    return char::from_u32(unit).ok_or(Stop::Unusual);
                }
                if !self.text[self.at..].starts_with(b"\\u") {
                    return Err(Stop::Unusual);
                }
                self.at += 2;
                let low = self.hexadecimal()?;
                if !(0xDC00..0xE000).contains(&low) {
                    return Err(Stop::Unusual);
                }
                return char::from_u32(0x1_0000 + ((unit - 0xD800) << 10) + (low - 0xDC00)).ok_or(Stop::Unusual);
            }
            _ => return Err(Stop::Unusual),
        })
    }

    fn hexadecimal(&mut self) -> Result<u32, Stop> {
        let digits = self.text.get(self.at..self.at + 4).ok_or(Stop::Unusual)?;
        self.at += 4;
        digits
            .iter()
            .try_fold(0, |value, digit| Some(value * 16 + char::from(*digit).to_digit(16)?))
            .ok_or(Stop::Unusual)
    }
}
