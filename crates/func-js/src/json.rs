//! JSON text to JavaScript values and back. What most calls carry (small integers, short plain
//! strings, `true`, `false`, `null`) goes past the general parser and printer.

use millrace_base::json::is_plain_ascii;
use rquickjs::qjs;

use crate::isolate::Isolate;
use crate::js::{Kind, NULL, Raw, Thrown, Value, boolean, int, kind};
use crate::json_parse::{self, OTHER_PARSER_BYTES, Stop};
use crate::json_print::write_string;

/// What `write` was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    /// JSON text was appended.
    Json,
    /// The value has no JSON form: `undefined`, a function or a symbol. Nothing was appended.
    Nothing,
}

impl Isolate {
    /// The value of a JSON text; empty text means `null`.
    ///
    /// Runs no user code.
    #[inline]
    pub(crate) fn parse_json(&self, text: &[u8]) -> Result<Value, Thrown> {
        match parse_small(text) {
            Some(Small::Raw(raw)) => Ok(self.context.own(raw)),
            Some(Small::String(content)) => self.context.string(content),
            None => self.parse_large(text),
        }
    }

    fn parse_large(&self, text: &[u8]) -> Result<Value, Thrown> {
        if text.is_empty() {
            return Ok(self.context.own(NULL));
        }
        let Ok(utf8) = std::str::from_utf8(text) else {
            return Err(self.context.throw_type("the text is not UTF-8"));
        };
        match json_parse::parse(self, utf8) {
            Ok(value) => Ok(value),
            Err(Stop::Broken) => Err(self.throw_broken()),
            Err(Stop::Unusual) if text.len() > OTHER_PARSER_BYTES => Err(self.throw_unparsed(utf8)),
            Err(Stop::Unusual) => self.parse_unusual(text),
        }
    }

    /// As QuickJS's own parser does it, which reads any JSON and words the errors.
    pub(crate) fn parse_unusual(&self, text: &[u8]) -> Result<Value, Thrown> {
        // It wants a NUL behind the text.
        let mut buffer = self.take_scratch();
        buffer.extend_from_slice(text);
        buffer.push(0);
        // SAFETY: the buffer outlives the call, and ends with a NUL that is not counted.
        let raw = unsafe {
            qjs::JS_ParseJSON(self.context.as_ptr(), buffer.as_ptr().cast(), text.len() as _, c"json".as_ptr())
        };
        self.give_scratch(buffer);
        self.context.check(raw)
    }

    /// Throws what is wrong with a text that is too long for QuickJS's parser.
    #[cold]
    fn throw_unparsed(&self, text: &str) -> Thrown {
        match serde_json::from_str::<serde::de::IgnoredAny>(text) {
            Err(error) => self.context.throw_syntax(&error.to_string()),
            Ok(_) => self.context.throw_syntax(
                "it nests too deeply, or has half of a surrogate pair or a number out of range, for a text of its length",
            ),
        }
    }

    /// Appends the JSON text of `raw`. May run user code (`toJSON`, getters).
    #[inline]
    pub(crate) fn write_json(&self, raw: Raw, out: &mut Vec<u8>) -> Result<Written, Thrown> {
        match kind(raw) {
            Kind::Int(value) => write_int(value, out),
            Kind::Bool(value) => out.extend_from_slice(if value { b"true" } else { b"false" }),
            Kind::Null => out.extend_from_slice(b"null"),
            Kind::Undefined | Kind::Symbol => return Ok(Written::Nothing),
            Kind::Float(value) => write_float(value, out),
            Kind::String => write_string(self.context.text(raw)?.bytes(), out),
            Kind::Object | Kind::BigInt => return self.print_object(raw, out),
        }
        Ok(Written::Json)
    }
}

enum Small<'a> {
    Raw(Raw),
    /// The content of a string that contains nothing escaped.
    String(&'a [u8]),
}

#[inline]
fn parse_small(text: &[u8]) -> Option<Small<'_>> {
    let raw = match *text.first()? {
        b'0'..=b'9' | b'-' => int(parse_int(text)?),
        b'"' => {
            let content = text.get(1..text.len() - 1)?;
            let is_plain = text.last() == Some(&b'"') && is_plain_ascii(content);
            return is_plain.then_some(Small::String(content));
        }
        b't' if text == b"true" => boolean(true),
        b'f' if text == b"false" => boolean(false),
        b'n' if text == b"null" => NULL,
        _ => return None,
    };
    Some(Small::Raw(raw))
}

/// An integer of at most nine digits, in JSON's form; not `-0`, which is no integer in JavaScript.
#[inline]
fn parse_int(text: &[u8]) -> Option<i32> {
    let (is_negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    if digits.is_empty() || digits.len() > 9 || (digits[0] == b'0' && (digits.len() > 1 || is_negative)) {
        return None;
    }
    let mut value = 0;
    for digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        value = value * 10 + i32::from(digit - b'0');
    }
    Some(if is_negative { -value } else { value })
}

#[inline]
pub(crate) fn write_int(value: i32, out: &mut Vec<u8>) {
    // "-2147483648" has eleven characters.
    let mut digits = [0; 11];
    let mut at = digits.len();
    let mut rest = value.unsigned_abs();
    loop {
        at -= 1;
        // A remainder of ten fits in a byte.
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if value < 0 {
        at -= 1;
        digits[at] = b'-';
    }
    out.extend_from_slice(&digits[at..]);
}

/// A number as JavaScript writes it (ECMA-262, Number::toString). QuickJS takes 40 µs for the smallest ones, and a text may have
/// a million of them.
pub(crate) fn write_float(value: f64, out: &mut Vec<u8>) {
    if value.is_finite() {
        out.extend_from_slice(dragonbox_ecma::Buffer::new().format_finite(value).as_bytes());
    } else {
        out.extend_from_slice(b"null");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn integers_come_back(value in any::<i32>()) {
            let mut text = Vec::new();
            write_int(value, &mut text);
            prop_assert_eq!(String::from_utf8(text.clone()), Ok(value.to_string()));
            if value.unsigned_abs() < 1_000_000_000 {
                prop_assert_eq!(parse_int(&text), Some(value));
            }
        }

        #[test]
        fn the_short_way_takes_only_json(text in "[-0-9\"a\\\\]{0,6}") {
            if parse_small(text.as_bytes()).is_some() {
                prop_assert!(serde_json::from_str::<serde_json::Value>(&text).is_ok(), "{}", text);
            }
        }
    }

    #[test]
    fn what_is_not_small_goes_the_long_way() {
        for text in
            ["", "01", "-0", "-", "1.5", "1e3", "1234567890", "\"", "\"a", "\"\\n\"", "\"ä\"", "tru", "[]", " 1"]
        {
            assert!(parse_small(text.as_bytes()).is_none(), "{text}");
        }
    }
}
