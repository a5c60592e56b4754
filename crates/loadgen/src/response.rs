//! HTTP/1.1 replies, parsed as they arrive.
//!
//! Promises: strict, because a broken server must be seen. A reply that RFC 9112 forbids or leaves open is an error.
//! Memory is bounded, no bytes make it panic, and a reply that arrives whole is not copied.
//!
//! A server sends the same head again and again, except for a date that changes once a second. So the parser keeps the
//! last head. A reply that starts with the same bytes has the same meaning, and a comparison replaces the parsing.

use super::codec::{ParseError, Reply};

/// Bytes of a reply's head; also of a chunked body's extensions and trailers.
const HEAD_BYTES: usize = 64 << 10;

/// Bytes of a body kept to be checked.
const KEPT_BODY_BYTES: usize = 64 << 20;

/// The body as the head announces it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Head {
    status: u16,
    keep_alive: bool,
    length: Length,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Length {
    /// No `Content-Length` and not chunked.
    Unknown,
    Known(u64),
    Chunked,
}

/// The last head that parsed; one per thread.
#[derive(Debug, Default)]
pub(super) struct HeadCache {
    bytes: Vec<u8>,
    head: Option<Head>,
}

impl HeadCache {
    fn find(&self, input: &[u8]) -> Option<(Head, usize)> {
        let head = self.head?;
        input.starts_with(&self.bytes).then_some((head, self.bytes.len()))
    }

    fn keep(&mut self, bytes: &[u8], head: Head) {
        self.bytes.clear();
        self.bytes.extend_from_slice(bytes);
        self.head = Some(head);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Head,
    Body { remaining: u64 },
    Chunked(Chunk),
}

/// The position of the next byte in a chunked body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Chunk {
    Size { value: u64, digits: u8 },
    Extension { value: u64 },
    SizeEnd { value: u64 },
    Data { remaining: u64 },
    DataEnd,
    DataEndLine,
    Trailer { is_line_start: bool },
    TrailerEndLine,
    EndLine,
}

/// The parser of one connection's replies.
#[derive(Debug)]
pub(super) struct ResponseParser {
    /// The request is HEAD, so replies have no body in spite of their heads.
    is_bodyless: bool,
    keeps_body: bool,
    state: State,
    head: Head,
    /// A head that has not arrived whole.
    partial: Vec<u8>,
    /// A body that did not arrive with its head; only if it is to be checked.
    body: Vec<u8>,
    /// Bytes of extensions and trailers seen, to bound them.
    overhead: usize,
}

impl ResponseParser {
    pub(super) fn new(is_bodyless: bool, keeps_body: bool) -> Self {
        let head = Head { status: 0, keep_alive: true, length: Length::Unknown };
        Self { is_bodyless, keeps_body, state: State::Head, head, partial: Vec::new(), body: Vec::new(), overhead: 0 }
    }

    /// Whether some of a reply has arrived, but not all.
    pub(super) fn is_inside_reply(&self) -> bool {
        self.state != State::Head || !self.partial.is_empty()
    }

    /// Takes bytes. Returns the number of used bytes, and the reply if they complete one. Without a reply, all bytes are
    /// used.
    pub(super) fn feed<'a>(
        &'a mut self,
        input: &'a [u8],
        cache: &mut HeadCache,
    ) -> Result<(usize, Option<Reply<'a>>), ParseError> {
        let mut used = 0;
        if self.state == State::Head {
            self.body.clear();
            match self.take_head(input, cache)? {
                None => return Ok((input.len(), None)),
                Some(length) => used = length,
            }
            if let Some(length) = self.start_body(&input[used..])? {
                let reply = self.reply(&input[used..used + length]);
                return Ok((used + length, Some(reply)));
            }
        }
        while used < input.len() {
            let (taken, is_complete) = self.continue_body(&input[used..])?;
            used += taken;
            if is_complete {
                self.state = State::Head;
                return Ok((used, Some(self.reply(&[]))));
            }
        }
        Ok((used, None))
    }

    /// The finished reply. Its body is `whole` or the kept part.
    fn reply<'a>(&'a self, whole: &'a [u8]) -> Reply<'a> {
        let body = if whole.is_empty() { self.body.as_slice() } else { whole };
        Reply { status: self.head.status, keep_alive: self.head.keep_alive, body }
    }

    /// The bytes of `input` that belong to the head, once it is whole.
    fn take_head(&mut self, input: &[u8], cache: &mut HeadCache) -> Result<Option<usize>, ParseError> {
        let mut used = 0;
        loop {
            let rest = &input[used..];
            let taken =
                if self.partial.is_empty() { self.head_in_place(rest, cache)? } else { self.head_in_parts(rest)? };
            let Some(taken) = taken else { return Ok(None) };
            used += taken;
            match self.head.status {
                101 => return Err(ParseError("the server switched protocols unasked")),
                // An interim reply; the real one follows.
                100..=199 if used < input.len() => {}
                100..=199 => return Ok(None),
                _ => return Ok(Some(used)),
            }
        }
    }

    fn head_in_place(&mut self, input: &[u8], cache: &mut HeadCache) -> Result<Option<usize>, ParseError> {
        if let Some((head, length)) = cache.find(input) {
            self.head = head;
            return Ok(Some(length));
        }
        match head_end(input, 0) {
            Some(end) if end <= HEAD_BYTES => {
                self.head = parse_head(&input[..end])?;
                cache.keep(&input[..end], self.head);
                Ok(Some(end))
            }
            None if input.len() < HEAD_BYTES => {
                self.partial.extend_from_slice(input);
                Ok(None)
            }
            _ => Err(ParseError("the reply's head is too large")),
        }
    }

    fn head_in_parts(&mut self, input: &[u8]) -> Result<Option<usize>, ParseError> {
        let known = self.partial.len();
        self.partial.extend_from_slice(input);
        match head_end(&self.partial, known.saturating_sub(3)) {
            Some(end) if end <= HEAD_BYTES => {
                self.head = parse_head(&self.partial[..end])?;
                self.partial.clear();
                Ok(Some(end - known))
            }
            None if self.partial.len() < HEAD_BYTES => Ok(None),
            _ => Err(ParseError("the reply's head is too large")),
        }
    }

    /// The body's length if `rest` has all of it, otherwise `None`.
    fn start_body(&mut self, rest: &[u8]) -> Result<Option<usize>, ParseError> {
        if self.is_bodyless || matches!(self.head.status, 204 | 304) {
            return Ok(Some(0));
        }
        match self.head.length {
            Length::Unknown => Err(ParseError("the reply has neither Content-Length nor chunked transfer coding")),
            Length::Known(length) if length <= rest.len() as u64 => Ok(Some(length as usize)),
            Length::Known(length) => {
                if self.keeps_body && length > KEPT_BODY_BYTES as u64 {
                    return Err(ParseError("the reply's body is too large to be checked"));
                }
                self.state = State::Body { remaining: length };
                Ok(None)
            }
            Length::Chunked => {
                self.overhead = 0;
                self.state = State::Chunked(Chunk::Size { value: 0, digits: 0 });
                Ok(None)
            }
        }
    }

    /// Bytes used, at least one, and whether the body is complete.
    fn continue_body(&mut self, input: &[u8]) -> Result<(usize, bool), ParseError> {
        match self.state {
            State::Head => Err(ParseError("a body without a head")),
            State::Body { remaining } => {
                let taken = self.take_data(input, remaining)?;
                let remaining = remaining - taken as u64;
                self.state = State::Body { remaining };
                Ok((taken, remaining == 0))
            }
            State::Chunked(Chunk::Data { remaining }) => {
                let taken = self.take_data(input, remaining)?;
                let remaining = remaining - taken as u64;
                let next = if remaining == 0 { Chunk::DataEnd } else { Chunk::Data { remaining } };
                self.state = State::Chunked(next);
                Ok((taken, false))
            }
            State::Chunked(chunk) => {
                let Some(&byte) = input.first() else { return Ok((0, false)) };
                self.overhead += 1;
                let next = next_chunk_state(chunk, byte)?;
                if let Chunk::Data { .. } = next {
                    self.overhead = 0;
                }
                if self.overhead > HEAD_BYTES {
                    return Err(ParseError("a chunk's extension or the trailer is too large"));
                }
                self.state = State::Chunked(next);
                Ok((1, chunk == Chunk::EndLine))
            }
        }
    }

    fn take_data(&mut self, input: &[u8], remaining: u64) -> Result<usize, ParseError> {
        let taken = usize::try_from(remaining).map_or(input.len(), |remaining| remaining.min(input.len()));
        if self.keeps_body {
            if self.body.len() + taken > KEPT_BODY_BYTES {
                return Err(ParseError("the reply's body is too large to be checked"));
            }
            self.body.extend_from_slice(&input[..taken]);
        }
        Ok(taken)
    }
}

/// The state after `byte`; the last byte of a body is the one taken in [`Chunk::EndLine`].
fn next_chunk_state(chunk: Chunk, byte: u8) -> Result<Chunk, ParseError> {
    let expect = |wanted: u8, next: Chunk| {
        if byte == wanted { Ok(next) } else { Err(ParseError("a chunk does not end where its size says")) }
    };
    match chunk {
        Chunk::Size { value, digits } => match (byte as char).to_digit(16) {
            Some(digit) if digits < 15 => Ok(Chunk::Size { value: value << 4 | u64::from(digit), digits: digits + 1 }),
            Some(_) => Err(ParseError("a chunk's size is too large")),
            None if digits == 0 => Err(ParseError("a chunk has no size")),
            None if byte == b'\r' => Ok(Chunk::SizeEnd { value }),
            None if matches!(byte, b';' | b' ' | b'\t') => Ok(Chunk::Extension { value }),
            None => Err(ParseError("a chunk's size is not hexadecimal")),
        },
        Chunk::Extension { value } if byte == b'\r' => Ok(Chunk::SizeEnd { value }),
        Chunk::Extension { .. } if byte == b'\n' => Err(ParseError("a line of the chunked body ends without CR")),
        Chunk::Extension { value } => Ok(Chunk::Extension { value }),
        Chunk::SizeEnd { value: 0 } => expect(b'\n', Chunk::Trailer { is_line_start: true }),
        Chunk::SizeEnd { value } => expect(b'\n', Chunk::Data { remaining: value }),
        // The caller takes data in pieces before this call.
        Chunk::Data { .. } => Ok(chunk),
        Chunk::DataEnd => expect(b'\r', Chunk::DataEndLine),
        Chunk::DataEndLine => expect(b'\n', Chunk::Size { value: 0, digits: 0 }),
        Chunk::Trailer { is_line_start } => match byte {
            b'\r' if is_line_start => Ok(Chunk::EndLine),
            b'\r' => Ok(Chunk::TrailerEndLine),
            b'\n' => Err(ParseError("a line of the chunked body ends without CR")),
            _ => Ok(Chunk::Trailer { is_line_start: false }),
        },
        Chunk::TrailerEndLine => expect(b'\n', Chunk::Trailer { is_line_start: true }),
        Chunk::EndLine => expect(b'\n', Chunk::EndLine),
    }
}

/// The length of the head in `bytes` with its empty line. The head does not end before `from`.
fn head_end(bytes: &[u8], from: usize) -> Option<usize> {
    bytes[from..].windows(4).position(|window| window == b"\r\n\r\n").map(|index| from + index + 4)
}

/// `bytes` ends with the empty line.
fn parse_head(bytes: &[u8]) -> Result<Head, ParseError> {
    let mut lines = bytes[..bytes.len() - 4].split(|byte| *byte == b'\n');
    let status_line = strip_cr(lines.next().unwrap_or_default(), lines.clone().next().is_none())?;
    let (status, is_http_11) = parse_status_line(status_line)?;
    let mut head = Head { status, keep_alive: is_http_11, length: Length::Unknown };
    let mut is_chunked = false;
    while let Some(line) = lines.next() {
        let line = strip_cr(line, lines.clone().next().is_none())?;
        let colon = line.iter().position(|byte| *byte == b':').ok_or(ParseError("a header line has no colon"))?;
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        if name.is_empty() || !name.iter().all(|byte| is_token(*byte)) {
            return Err(ParseError("a header's name holds characters it may not"));
        }
        if value.iter().any(|byte| (*byte < 0x20 && *byte != b'\t') || *byte == 0x7F) {
            return Err(ParseError("a header's value holds control characters"));
        }
        if name.eq_ignore_ascii_case(b"content-length") {
            let length = Length::Known(parse_length(value)?);
            if head.length != Length::Unknown && head.length != length {
                return Err(ParseError("the reply has two different lengths"));
            }
            head.length = length;
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            if is_chunked || !value.eq_ignore_ascii_case(b"chunked") {
                return Err(ParseError("the transfer coding is not chunked"));
            }
            is_chunked = true;
        } else if name.eq_ignore_ascii_case(b"connection") {
            let has = |word: &[u8]| {
                value.split(|byte| *byte == b',').any(|part| part.trim_ascii().eq_ignore_ascii_case(word))
            };
            head.keep_alive = !has(b"close") && (head.keep_alive || has(b"keep-alive"));
        }
    }
    match (is_chunked, head.length) {
        (true, Length::Unknown) => Ok(Head { length: Length::Chunked, ..head }),
        (true, _) => Err(ParseError("the reply has both a length and a transfer coding")),
        (false, _) => Ok(head),
    }
}

/// Lines end with CR LF. The last line lost its CR LF together with the empty line.
fn strip_cr(line: &[u8], is_last: bool) -> Result<&[u8], ParseError> {
    if is_last {
        return Ok(line);
    }
    line.strip_suffix(b"\r").ok_or(ParseError("a line of the head ends without CR"))
}

fn parse_status_line(line: &[u8]) -> Result<(u16, bool), ParseError> {
    let refuse = ParseError("the reply does not start with an HTTP/1.x status line");
    let rest = line.strip_prefix(b"HTTP/1.").ok_or(refuse)?;
    let [minor @ (b'0' | b'1'), b' ', digits @ ..] = rest else { return Err(refuse) };
    let ([hundreds @ b'1'..=b'9', tens @ b'0'..=b'9', ones @ b'0'..=b'9'], tail) =
        digits.split_first_chunk::<3>().ok_or(refuse)?
    else {
        return Err(refuse);
    };
    if !tail.is_empty() && tail[0] != b' ' {
        return Err(refuse);
    }
    let digit = |byte: &u8| u16::from(byte - b'0');
    Ok((digit(hundreds) * 100 + digit(tens) * 10 + digit(ones), *minor == b'1'))
}

fn parse_length(value: &[u8]) -> Result<u64, ParseError> {
    // 18 digits are below 2^63: sums of lengths cannot overflow.
    if value.is_empty() || value.len() > 18 || !value.iter().all(u8::is_ascii_digit) {
        return Err(ParseError("Content-Length is not a number of bytes"));
    }
    Ok(value.iter().fold(0, |length, digit| length * 10 + u64::from(digit - b'0')))
}

fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
#[path = "response_tests.rs"]
mod tests;
