//! Text with changing parts: `{{zipf:1000000:0.99}}`, compiled once, filled in per request.
//!
//! A part is one of
//!
//! | part | becomes |
//! |---|---|
//! | `{{uniform:LOW:HIGH}}` | a number from LOW up to, not including, HIGH |
//! | `{{zipf:COUNT:EXPONENT}}` | a number below COUNT, small ones most often |
//! | `{{seq}}`, `{{seq:FIRST}}` | the request's number, from 0 or FIRST; the same all over one request |
//! | `{{uuid}}` | a random UUID |
//! | `{{pick:a,b,c}}` | one of the words |
//! | `{{base64:TEXT}}` | TEXT, which may hold parts, in base64 |
//! | `{{NAME=PART}}` | what PART becomes, remembered under NAME |
//! | `{{$NAME}}` | what was remembered, for the same request |
//! | `{{open}}` | two opening braces |
//!
//! Promises: compiling never panics and is bounded in size and depth. An error names its place. Rendering cannot fail.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::random::Random;
use super::zipf::Zipf;

/// Bytes of one template: enough for a large request body.
const TEMPLATE_BYTES: usize = 16 << 20;

/// Parts inside parts.
const DEPTH: usize = 8;

/// Names that one request may remember.
const NAMES: usize = 64;

/// The reason why a template cannot be compiled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TemplateError {
    /// The place in bytes from the start of the template.
    pub position: usize,
    /// The reason for a person.
    pub message: String,
}

impl fmt::Display for TemplateError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "at byte {}: {}", self.position, self.message)
    }
}

impl std::error::Error for TemplateError {}

/// A compiled text.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Template {
    segments: Vec<Segment>,
}

#[derive(Clone, Debug, PartialEq)]
enum Segment {
    Literal(Vec<u8>),
    Uniform { low: u64, count: u64 },
    Zipf(Zipf),
    Sequence { first: u64 },
    Uuid,
    Pick(Vec<Vec<u8>>),
    Base64(Template),
    Remember { slot: usize, part: Box<Segment> },
    Recall { slot: usize },
}

/// The state for filling in templates; one for each thread.
#[derive(Clone, Debug)]
pub struct Scope {
    /// The source of random parts.
    pub random: Random,
    sequence: u64,
    stride: u64,
    remembered: Vec<Vec<u8>>,
}

impl Scope {
    /// The scope of thread `index` of `count`. Threads of one run have different sequence numbers.
    #[must_use]
    pub fn new(seed: u64, index: usize, count: usize) -> Self {
        let stride = count.max(1) as u64;
        // Far apart in the generator's sequence, so that threads do not send the same keys.
        let random = Random::new(seed.wrapping_add((index as u64).wrapping_mul(0xD1B5_4A32_D192_ED03)));
        // The first request adds the stride.
        Self { random, sequence: (index as u64).wrapping_sub(stride), stride, remembered: Vec::new() }
    }

    /// Moves on to the next request.
    pub fn next_request(&mut self) {
        self.sequence = self.sequence.wrapping_add(self.stride);
    }
}

impl Template {
    /// A text without parts.
    #[must_use]
    pub fn literal(bytes: &[u8]) -> Self {
        let mut template = Self::default();
        template.push_literal(bytes);
        template
    }

    /// Adds text without parts at the end.
    pub fn push_literal(&mut self, bytes: &[u8]) {
        match self.segments.last_mut() {
            _ if bytes.is_empty() => {}
            Some(Segment::Literal(last)) => last.extend_from_slice(bytes),
            _ => self.segments.push(Segment::Literal(bytes.to_vec())),
        }
    }

    /// Adds another template at the end.
    pub fn push(&mut self, other: &Template) {
        for segment in &other.segments {
            match segment {
                Segment::Literal(bytes) => self.push_literal(bytes),
                other => self.segments.push(other.clone()),
            }
        }
    }

    /// The whole text, if it has no changing parts.
    #[must_use]
    pub fn as_literal(&self) -> Option<&[u8]> {
        match self.segments.as_slice() {
            [] => Some(b""),
            [Segment::Literal(bytes)] => Some(bytes),
            _ => None,
        }
    }

    /// Whether it always becomes digits only.
    pub(super) fn is_decimal(&self) -> bool {
        let is_decimal = |segment: &Segment| match segment {
            Segment::Literal(bytes) => bytes.iter().all(u8::is_ascii_digit),
            Segment::Uniform { .. } | Segment::Zipf(_) | Segment::Sequence { .. } => true,
            _ => false,
        };
        !self.segments.is_empty() && self.segments.iter().all(is_decimal)
    }

    /// Appends the text for the current request.
    pub fn render(&self, scope: &mut Scope, out: &mut Vec<u8>) {
        for segment in &self.segments {
            segment.render(scope, out);
        }
    }

    /// Whether any text in it, at any depth, holds a byte that `is_bad` names.
    #[must_use]
    pub fn holds(&self, is_bad: fn(u8) -> bool) -> bool {
        self.segments.iter().any(|segment| segment.holds(is_bad))
    }
}

impl Segment {
    fn holds(&self, is_bad: fn(u8) -> bool) -> bool {
        match self {
            Segment::Literal(bytes) => bytes.iter().copied().any(is_bad),
            Segment::Pick(words) => words.iter().flatten().copied().any(is_bad),
            Segment::Remember { part, .. } => part.holds(is_bad),
            // The result always consists of digits, letters and `+/=-`.
            Segment::Uniform { .. } | Segment::Zipf(_) | Segment::Sequence { .. } => false,
            Segment::Uuid | Segment::Base64(_) | Segment::Recall { .. } => false,
        }
    }

    fn render(&self, scope: &mut Scope, out: &mut Vec<u8>) {
        match self {
            Segment::Literal(bytes) => out.extend_from_slice(bytes),
            Segment::Uniform { low, count } => {
                let number = low.wrapping_add(scope.random.below(*count));
                push_decimal(out, number);
            }
            Segment::Zipf(zipf) => push_decimal(out, zipf.sample(&mut scope.random)),
            Segment::Sequence { first } => push_decimal(out, first.wrapping_add(scope.sequence)),
            Segment::Uuid => push_uuid(out, &mut scope.random),
            Segment::Pick(words) => {
                let index = scope.random.below(words.len() as u64) as usize;
                out.extend_from_slice(words.get(index).map_or(&[], Vec::as_slice));
            }
            Segment::Base64(inner) => {
                let mut plain = Vec::new();
                inner.render(scope, &mut plain);
                push_base64(out, &plain);
            }
            Segment::Remember { slot, part } => {
                let start = out.len();
                part.render(scope, out);
                if scope.remembered.len() <= *slot {
                    scope.remembered.resize_with(*slot + 1, Vec::new);
                }
                let kept = &mut scope.remembered[*slot];
                kept.clear();
                kept.extend_from_slice(&out[start..]);
            }
            Segment::Recall { slot } => {
                out.extend_from_slice(scope.remembered.get(*slot).map_or(&[], Vec::as_slice));
            }
        }
    }
}

fn push_base64(out: &mut Vec<u8>, plain: &[u8]) {
    let start = out.len();
    // Four characters for three bytes, rounded up.
    out.resize(start + plain.len().div_ceil(3) * 4, 0);
    let written = STANDARD.encode_slice(plain, &mut out[start..]).expect("the space is the encoded length");
    out.truncate(start + written);
}

/// Appends a number in decimal.
pub(super) fn push_decimal(out: &mut Vec<u8>, mut number: u64) {
    // 20 digits hold 2^64.
    let mut digits = [0u8; 20];
    let mut start = digits.len();
    loop {
        start -= 1;
        digits[start] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[start..]);
}

fn push_uuid(out: &mut Vec<u8>, random: &mut Random) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let mut bytes = (u128::from(random.next_u64()) << 64 | u128::from(random.next_u64())).to_be_bytes();
    // Version 4, variant 1.
    bytes[6] = bytes[6] & 0x0F | 0x40;
    bytes[8] = bytes[8] & 0x3F | 0x80;
    for (index, byte) in bytes.iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            out.push(b'-');
        }
        out.push(HEX[usize::from(byte >> 4)]);
        out.push(HEX[usize::from(byte & 15)]);
    }
}

/// Compiles the templates of one request in the order in which they are filled in. So a later template can recall a name
/// of an earlier one.
#[derive(Clone, Debug, Default)]
pub struct Compiler {
    names: Vec<String>,
}

impl Compiler {
    /// Compiles one template.
    ///
    /// # Errors
    /// Names the place and what is wrong there.
    pub fn compile(&mut self, text: &str) -> Result<Template, TemplateError> {
        if text.len() > TEMPLATE_BYTES {
            let message = format!("the template is longer than {TEMPLATE_BYTES} bytes");
            return Err(TemplateError { position: 0, message });
        }
        Parser { text, position: 0, names: &mut self.names }.template(0)
    }
}

struct Parser<'a> {
    text: &'a str,
    position: usize,
    names: &'a mut Vec<String>,
}

impl<'a> Parser<'a> {
    /// Reads to the end of the text, or inside a part to its closing braces.
    fn template(&mut self, depth: usize) -> Result<Template, TemplateError> {
        let mut template = Template::default();
        loop {
            let rest = &self.text[self.position..];
            let open = rest.find("{{");
            let close = if depth > 0 { rest.find("}}") } else { None };
            let end = match (open, close) {
                (Some(open), Some(close)) => open.min(close),
                (Some(index), None) | (None, Some(index)) => index,
                (None, None) => rest.len(),
            };
            template.push_literal(&rest.as_bytes()[..end]);
            self.position += end;
            if open != Some(end) {
                return Ok(template);
            }
            match self.part(depth)? {
                Segment::Literal(bytes) => template.push_literal(&bytes),
                segment => template.segments.push(segment),
            }
        }
    }

    /// One part, from its opening to its closing braces.
    fn part(&mut self, depth: usize) -> Result<Segment, TemplateError> {
        let start = self.position;
        if depth >= DEPTH {
            return Err(error(start, format!("parts nest more than {DEPTH} deep")));
        }
        self.position += 2;
        let segment = self.part_inside(start, depth)?;
        if !self.text[self.position..].starts_with("}}") {
            return Err(error(start, "the part that opens here is not closed with }}"));
        }
        self.position += 2;
        Ok(segment)
    }

    fn part_inside(&mut self, start: usize, depth: usize) -> Result<Segment, TemplateError> {
        let rest = &self.text[self.position..];
        if let Some(after) = rest.strip_prefix('$') {
            let name = &after[..word_length(after)];
            self.position += 1 + name.len();
            return match self.names.iter().position(|known| known == name) {
                Some(slot) => Ok(Segment::Recall { slot }),
                None => Err(error(start, format!("nothing before this is remembered as {name:?}"))),
            };
        }
        let word = &rest[..word_length(rest)];
        if !word.is_empty() && rest[word.len()..].starts_with('=') {
            self.position += word.len() + 1;
            return self.remember(start, word, depth);
        }
        if let Some(inner) = rest.strip_prefix("base64:") {
            self.position += rest.len() - inner.len();
            return Ok(Segment::Base64(self.template(depth + 1)?));
        }
        let Some(end) = rest.find("}}") else {
            return Err(error(start, "the part that opens here is not closed with }}"));
        };
        self.position += end;
        simple_part(&rest[..end]).map_err(|message| error(start, message))
    }

    fn remember(&mut self, start: usize, name: &str, depth: usize) -> Result<Segment, TemplateError> {
        if depth + 1 >= DEPTH {
            return Err(error(start, format!("parts nest more than {DEPTH} deep")));
        }
        let part = Box::new(self.part_inside(start, depth + 1)?);
        if self.names.iter().any(|known| known == name) {
            return Err(error(start, format!("{name:?} is remembered twice")));
        }
        if self.names.len() >= NAMES {
            return Err(error(start, format!("more than {NAMES} names are remembered")));
        }
        self.names.push(name.to_owned());
        Ok(Segment::Remember { slot: self.names.len() - 1, part })
    }
}

fn error(position: usize, message: impl Into<String>) -> TemplateError {
    TemplateError { position, message: message.into() }
}

fn word_length(text: &str) -> usize {
    text.bytes().take_while(|byte| byte.is_ascii_alphanumeric() || *byte == b'_').count()
}

/// A part without parts inside. `text` is the content of the braces.
fn simple_part(text: &str) -> Result<Segment, String> {
    let (kind, arguments) = match text.split_once(':') {
        Some((kind, arguments)) => (kind, Some(arguments)),
        None => (text, None),
    };
    match (kind, arguments) {
        ("seq", None) => Ok(Segment::Sequence { first: 0 }),
        ("seq", Some(first)) => Ok(Segment::Sequence { first: number(first)? }),
        ("uuid", None) => Ok(Segment::Uuid),
        ("open", None) => Ok(Segment::Literal(b"{{".to_vec())),
        ("pick", Some(words)) => Ok(Segment::Pick(words.split(',').map(|word| word.as_bytes().to_vec()).collect())),
        ("uniform", Some(bounds)) => {
            let (low, high) = bounds.split_once(':').ok_or("uniform needs two bounds: {{uniform:LOW:HIGH}}")?;
            let (low, high) = (number(low)?, number(high)?);
            let count = high.checked_sub(low).filter(|count| *count > 0);
            let count = count.ok_or_else(|| format!("there is no number from {low} up to, not including, {high}"))?;
            Ok(Segment::Uniform { low, count })
        }
        ("zipf", Some(arguments)) => {
            let (count, exponent) =
                arguments.split_once(':').ok_or("zipf needs a count and an exponent: {{zipf:1000000:0.99}}")?;
            let exponent: f64 = exponent.parse().map_err(|_| format!("{exponent:?} is not a number"))?;
            let zipf = Zipf::new(number(count)?, exponent);
            let range = || format!("zipf needs a count from 1 to {} and an exponent above 0, up to 10", Zipf::COUNT);
            Ok(Segment::Zipf(zipf.ok_or_else(range)?))
        }
        ("uuid" | "open", Some(_)) => Err(format!("{kind} takes no arguments")),
        ("pick", None) => Err("pick needs words: {{pick:a,b,c}}".to_owned()),
        ("uniform", None) => Err("uniform needs two bounds: {{uniform:LOW:HIGH}}".to_owned()),
        ("zipf", None) => Err("zipf needs a count and an exponent: {{zipf:1000000:0.99}}".to_owned()),
        ("base64", None) => Err("base64 needs a text: {{base64:TEXT}}".to_owned()),
        _ => {
            let shown: String = kind.chars().take(40).collect();
            Err(format!(
                "{shown:?} is not a part; there are uniform, zipf, seq, uuid, pick, base64, open, NAME=, $NAME"
            ))
        }
    }
}

fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| {
        let shown: String = text.chars().take(40).collect();
        format!("{shown:?} is not a whole number")
    })
}

#[cfg(test)]
#[path = "template_tests.rs"]
mod tests;
