//! Turns text into tokens, one at a time.

use crate::PathError;

/// One token. Borrowed text is the path's own.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Token<'t> {
    /// A field's name, or a word such as `true`.
    Name(&'t str),
    /// A string with its escapes undone.
    Text(String),
    /// `~` and a string: a regular expression.
    Pattern(String),
    /// Digits: a whole number.
    Integer(&'t str),
    /// A number with a fraction or an exponent.
    Float(&'t str),
    /// `$name`.
    Parameter(&'t str),
    /// An operator or bracket.
    Symbol(&'static str),
    /// The end of the text.
    End,
}

/// The longest symbol that fits is taken, so longer ones come before their beginnings.
const SYMBOLS: [&str; 35] = [
    "===", "!==", "^==", "$==", "*==", "==", "!=", "^=", "$=", "*=", "<=", ">=", "||", "&&", "..", ".", "^", "[", "]",
    "{", "}", "(", ")", "|", "<", ">", "+", "-", "*", "/", "%", "!", ":", "~", ",",
];

pub(crate) struct Lexer<'t> {
    text: &'t str,
    /// In bytes, always between characters.
    at: usize,
}

impl<'t> Lexer<'t> {
    pub(crate) fn new(text: &'t str) -> Self {
        Self { text, at: 0 }
    }

    /// Where the last token ended.
    pub(crate) fn position(&self) -> usize {
        self.at
    }

    /// An error about the text at `at`.
    pub(crate) fn error(&self, at: usize, message: impl Into<String>) -> PathError {
        PathError { position: self.text[..at].chars().count() + 1, message: message.into() }
    }

    /// The next token and where it begins.
    pub(crate) fn next(&mut self) -> Result<(usize, Token<'t>), PathError> {
        self.skip_spaces();
        let start = self.at;
        let Some(first) = self.rest().chars().next() else { return Ok((start, Token::End)) };
        let second = self.rest().chars().nth(1);
        let token = match first {
            '"' | '\'' => Token::Text(self.string(first)?),
            '~' => self.pattern()?,
            _ if first.is_ascii_digit() => self.number(),
            // As in jspath, `.5` is a number: no name begins with a digit.
            '.' if second.is_some_and(|c| c.is_ascii_digit()) => self.number(),
            '$' if second.is_some_and(begins_name) => {
                self.at += 1;
                Token::Parameter(self.name())
            }
            _ if begins_name(first) => Token::Name(self.name()),
            _ => self.symbol(first)?,
        };
        Ok((start, token))
    }

    fn rest(&self) -> &'t str {
        &self.text[self.at..]
    }

    fn skip_spaces(&mut self) {
        self.at = self.text.len() - self.rest().trim_start_matches([' ', '\t', '\r', '\n']).len();
    }

    fn take_while(&mut self, holds: impl Fn(char) -> bool) -> &'t str {
        let rest = self.rest();
        let taken = &rest[..rest.find(|c| !holds(c)).unwrap_or(rest.len())];
        self.at += taken.len();
        taken
    }

    fn name(&mut self) -> &'t str {
        self.take_while(continues_name)
    }

    fn symbol(&mut self, first: char) -> Result<Token<'t>, PathError> {
        match SYMBOLS.into_iter().find(|symbol| self.rest().starts_with(symbol)) {
            Some(symbol) => {
                self.at += symbol.len();
                Ok(Token::Symbol(symbol))
            }
            None => Err(self.error(self.at, format!("`{}` has no meaning here", first.escape_debug()))),
        }
    }

    /// Digits, fraction, exponent. The sign is an operator.
    fn number(&mut self) -> Token<'t> {
        let start = self.at;
        let digit = |c: char| c.is_ascii_digit();
        self.take_while(digit);
        let mut whole = true;
        if self.rest().starts_with('.') && self.rest()[1..].starts_with(digit) {
            self.at += 1;
            self.take_while(digit);
            whole = false;
        }
        if let Some(after) = self.rest().strip_prefix(['e', 'E']) {
            let sign = usize::from(after.starts_with(['+', '-']));
            if after[sign..].starts_with(digit) {
                self.at += 1 + sign;
                self.take_while(digit);
                whole = false;
            }
        }
        let number = &self.text[start..self.at];
        if whole { Token::Integer(number) } else { Token::Float(number) }
    }

    /// A quoted string with the escapes of JSON, and an escape for either quote.
    fn string(&mut self, quote: char) -> Result<String, PathError> {
        let start = self.at;
        let mut text = String::new();
        self.at += 1;
        while let Some(next) = self.rest().chars().next() {
            let at = self.at;
            self.at += next.len_utf8();
            match next {
                '\\' => text.push(self.escape(at)?),
                _ if next == quote => return Ok(text),
                _ => text.push(next),
            }
        }
        Err(self.error(start, "this string has no end"))
    }

    /// The escape after the backslash at `at`.
    fn escape(&mut self, at: usize) -> Result<char, PathError> {
        let escaped = self.rest().chars().next();
        self.at += escaped.map_or(0, char::len_utf8);
        Ok(match escaped {
            Some('"' | '\'' | '\\' | '/') => escaped.unwrap_or_default(),
            Some('n') => '\n',
            Some('t') => '\t',
            Some('r') => '\r',
            Some('b') => '\u{8}',
            Some('f') => '\u{c}',
            Some('u') => return self.unicode(at),
            _ => return Err(self.error(at, "expected an escape of JSON after `\\`, such as `\\\"`, `\\\\` or `\\n`")),
        })
    }

    /// Four hexadecimal digits, or two such groups if one character takes two.
    fn unicode(&mut self, at: usize) -> Result<char, PathError> {
        let first = self.four_digits(at)?;
        let code = match first {
            0xd800..=0xdbff if self.rest().starts_with("\\u") => {
                self.at += 2;
                let second = self.four_digits(at)?;
                let low = second.wrapping_sub(0xdc00);
                if low >= 0x400 { None } else { char::from_u32(0x1_0000 + ((first - 0xd800) << 10) + low) }
            }
            _ => char::from_u32(first),
        };
        code.ok_or_else(|| self.error(at, "this escape names no character"))
    }

    fn four_digits(&mut self, at: usize) -> Result<u32, PathError> {
        let digits = self.rest().get(..4).filter(|four| four.bytes().all(|byte| byte.is_ascii_hexdigit()));
        let code = digits.and_then(|four| u32::from_str_radix(four, 16).ok());
        self.at += if code.is_some() { 4 } else { 0 };
        code.ok_or_else(|| self.error(at, "expected four hexadecimal digits after `\\u`"))
    }

    /// `~` and a string. A backslash in it is the regular expression's own, except before the quote.
    fn pattern(&mut self) -> Result<Token<'t>, PathError> {
        self.at += 1;
        self.skip_spaces();
        let start = self.at;
        let quote = match self.rest().chars().next() {
            Some(quote @ ('"' | '\'')) => quote,
            _ => return Err(self.error(start, "expected a quoted regular expression after `~`")),
        };
        let mut text = String::new();
        let mut characters = self.rest().char_indices().skip(1).peekable();
        while let Some((offset, next)) = characters.next() {
            let follows = characters.peek().map(|(_, c)| *c);
            if next == quote {
                self.at = start + offset + quote.len_utf8();
                return Ok(Token::Pattern(text));
            }
            if next != '\\' {
                text.push(next);
                continue;
            }
            if follows != Some(quote) {
                text.push('\\');
            }
            if let Some((_, escaped)) = characters.next() {
                text.push(escaped);
            }
        }
        Err(self.error(start, "this regular expression has no end"))
    }
}

pub(crate) fn begins_name(c: char) -> bool {
    c == '_' || c.is_alphabetic()
}

pub(crate) fn continues_name(c: char) -> bool {
    c == '_' || c.is_alphanumeric()
}
