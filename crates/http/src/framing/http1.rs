//! HTTP/1: where requests begin and end.
//!
//! Follows the framing of every request (RFC 9112, 6 and 7.1) and refuses what could be read in two ways. It takes less
//! than hyper does: so hyper never finds an end where this finds none.

use millrace_base::{Error, ErrorCode};

use super::Refusal;

/// The longest name of a header that counts here.
const NAME_BYTES: usize = b"transfer-encoding".len();

/// What comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// Lines of a head. `false` until the request line has come.
    Head { has_request_line: bool },
    /// So many bytes of a body.
    Body(u64),
    /// The digits of a chunk's size, and how many have come.
    Size { bytes: u64, digits: u8 },
    /// Spaces behind a chunk's size: only an extension may follow them (RFC 9112, 7.1.1).
    SizeSpace { bytes: u64 },
    /// The rest of the line with a chunk's size.
    Extension { bytes: u64 },
    /// So many bytes of a chunk.
    Chunk(u64),
    /// The end of the line behind a chunk.
    ChunkEnd,
    /// Lines behind the last chunk.
    Trailers,
}

/// What a line of a head has been so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    /// The beginning of its name, in lower case.
    Name([u8; NAME_BYTES]),
    /// The value of `Content-Length`.
    Length {
        bytes: Option<u64>,
        has_ended: bool,
    },
    Other,
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Http1 {
    /// The longest body that any operation takes.
    most_bytes: u64,
    part: Part,
    field: Field,
    /// Bytes of the line so far, without its end.
    line_bytes: usize,
    is_after_cr: bool,
    length: Option<u64>,
    is_chunked: bool,
    /// Bytes of the chunks so far.
    chunks_bytes: u64,
}

const NO_SIZE: &str = "the size of a chunk of the request's body is not a hexadecimal number";

fn bad(message: &str) -> Error {
    Error::new(ErrorCode::BadRequest, message)
}

fn too_large(most_bytes: u64) -> Error {
    Error::new(ErrorCode::TooLarge, format!("the request announces a body of more than {most_bytes} bytes"))
}

const NO_NAME: Field = Field::Name([0; NAME_BYTES]);

impl Http1 {
    /// For bytes that begin with a request.
    pub(crate) fn new(most_bytes: u64) -> Self {
        Self {
            most_bytes,
            part: Part::Head { has_request_line: false },
            field: NO_NAME,
            line_bytes: 0,
            is_after_cr: false,
            length: None,
            is_chunked: false,
            chunks_bytes: 0,
        }
    }

    /// Looks at what came next.
    ///
    /// # Errors
    /// How many bytes come before the one that is refused, and why it is.
    pub(crate) fn look(&mut self, bytes: &[u8]) -> Result<(), (usize, Refusal)> {
        let mut at = 0;
        while at < bytes.len() {
            match &mut self.part {
                Part::Body(left) | Part::Chunk(left) => {
                    let here = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len() - at);
                    *left -= here as u64;
                    at += here;
                    if *left == 0 {
                        self.content_ends();
                    }
                }
                part => {
                    let is_in_body = !matches!(part, Part::Head { .. });
                    self.take(bytes[at]).map_err(|error| (at, Refusal { error, is_in_body }))?;
                    at += 1;
                }
            }
        }
        Ok(())
    }

    fn content_ends(&mut self) {
        match self.part {
            Part::Chunk(_) => self.part = Part::ChunkEnd,
            _ => self.request_ends(),
        }
    }

    fn request_ends(&mut self) {
        *self = Self::new(self.most_bytes);
    }

    /// A byte that is not part of the content.
    fn take(&mut self, byte: u8) -> Result<(), Error> {
        if byte == b'\n' {
            if !std::mem::take(&mut self.is_after_cr) {
                return Err(bad("a line of the request ends with LF alone: lines end with CR LF"));
            }
            return self.line_ends();
        }
        if self.is_after_cr {
            return Err(bad("the request has a CR that no LF follows: lines end with CR LF"));
        }
        if byte == b'\r' {
            self.is_after_cr = true;
            return Ok(());
        }
        match self.part {
            Part::Head { has_request_line: true } => self.take_of_field(byte)?,
            // Servers disagree on whether it belongs to the path (RFC 9112, 3.2: it is not part of a target).
            Part::Head { .. } if byte == b'#' => return Err(bad("the request's target has a fragment")),
            Part::Size { .. } => self.take_of_size(byte)?,
            Part::SizeSpace { bytes } => match byte {
                b' ' | b'\t' => {}
                b';' => self.part = Part::Extension { bytes },
                _ => return Err(bad(NO_SIZE)),
            },
            Part::ChunkEnd => return Err(bad("a chunk of the request's body is longer than its size says")),
            _ => {}
        }
        self.line_bytes = self.line_bytes.saturating_add(1);
        Ok(())
    }

    fn take_of_field(&mut self, byte: u8) -> Result<(), Error> {
        match &mut self.field {
            Field::Name(name) if byte == b':' => {
                let name = name.get(..self.line_bytes).unwrap_or_default();
                self.field = match name {
                    b"content-length" => Field::Length { bytes: None, has_ended: false },
                    b"transfer-encoding" => {
                        self.is_chunked = true;
                        Field::Other
                    }
                    _ => Field::Other,
                };
            }
            Field::Name(name) => match name.get_mut(self.line_bytes) {
                Some(place) => *place = byte.to_ascii_lowercase(),
                None => self.field = Field::Other,
            },
            Field::Length { bytes, has_ended } => match byte {
                b'0'..=b'9' if !*has_ended => {
                    let digit = u64::from(byte - b'0');
                    let so_far = bytes.unwrap_or(0);
                    let longer = so_far.checked_mul(10).and_then(|tens| tens.checked_add(digit));
                    *bytes = Some(longer.filter(|bytes| *bytes <= self.most_bytes).ok_or(too_large(self.most_bytes))?);
                }
                b' ' | b'\t' => *has_ended = bytes.is_some(),
                _ => return Err(bad("the request's Content-Length is not one decimal number")),
            },
            Field::Other => {}
        }
        Ok(())
    }

    fn take_of_size(&mut self, byte: u8) -> Result<(), Error> {
        let Part::Size { bytes, digits } = &mut self.part else { return Ok(()) };
        let Some(digit) = char::from(byte).to_digit(16) else {
            let bytes = *bytes;
            self.part = match byte {
                b';' if *digits > 0 => Part::Extension { bytes },
                b' ' | b'\t' if *digits > 0 => Part::SizeSpace { bytes },
                _ => return Err(bad(NO_SIZE)),
            };
            return Ok(());
        };
        let longer = bytes.checked_mul(16).and_then(|bytes| bytes.checked_add(digit.into()));
        *bytes = longer.ok_or_else(|| bad("the size of a chunk of the request's body overflows"))?;
        *digits = digits.saturating_add(1);
        if self.chunks_bytes.saturating_add(*bytes) > self.most_bytes {
            return Err(too_large(self.most_bytes));
        }
        Ok(())
    }

    fn line_ends(&mut self) -> Result<(), Error> {
        let is_empty = std::mem::take(&mut self.line_bytes) == 0;
        let field = std::mem::replace(&mut self.field, NO_NAME);
        match self.part {
            // Some clients send an empty line behind the body before (RFC 9112, 2.2).
            Part::Head { has_request_line: false } if is_empty => {}
            Part::Head { .. } if is_empty => return self.head_ends(),
            Part::Head { .. } => {
                self.part = Part::Head { has_request_line: true };
                return self.field_ends(field);
            }
            Part::Size { digits: 0, .. } | Part::SizeSpace { .. } => return Err(bad(NO_SIZE)),
            Part::Size { bytes: 0, .. } | Part::Extension { bytes: 0 } => self.part = Part::Trailers,
            Part::Size { bytes, .. } | Part::Extension { bytes } => {
                self.chunks_bytes = self.chunks_bytes.saturating_add(bytes);
                self.part = Part::Chunk(bytes);
            }
            Part::ChunkEnd => self.part = Part::Size { bytes: 0, digits: 0 },
            Part::Trailers if is_empty => self.request_ends(),
            Part::Trailers | Part::Body(_) | Part::Chunk(_) => {}
        }
        Ok(())
    }

    fn field_ends(&mut self, field: Field) -> Result<(), Error> {
        let Field::Length { bytes, .. } = field else { return Ok(()) };
        let bytes = bytes.ok_or_else(|| bad("the request's Content-Length is empty"))?;
        if self.length.replace(bytes).is_some() {
            return Err(bad("the request has more than one Content-Length"));
        }
        Ok(())
    }

    fn head_ends(&mut self) -> Result<(), Error> {
        if self.is_chunked && self.length.is_some() {
            return Err(bad("the request has both Content-Length and Transfer-Encoding: it may have one of them"));
        }
        match (self.is_chunked, self.length) {
            (true, _) => self.part = Part::Size { bytes: 0, digits: 0 },
            (false, Some(bytes)) if bytes > 0 => self.part = Part::Body(bytes),
            (false, _) => self.request_ends(),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MOST: u64 = 1 << 20;

    /// Looks at all bytes at once, and one by one: the answer is the same.
    fn refused(bytes: &[u8]) -> Option<(usize, Refusal)> {
        let whole = Http1::new(MOST).look(bytes).err();
        let mut check = Http1::new(MOST);
        let single = bytes.iter().enumerate().find_map(|(at, byte)| {
            let refused = check.look(&[*byte]).err();
            refused.map(|(_, refusal)| (at, refusal))
        });
        assert_eq!(whole, single, "{}", String::from_utf8_lossy(bytes));
        whole
    }

    fn code(text: &str) -> Option<(ErrorCode, bool)> {
        refused(text.as_bytes()).map(|(_, refusal)| (refusal.error.code, refusal.is_in_body))
    }

    #[test]
    fn what_clients_send_passes() {
        for text in [
            "GET / HTTP/1.1\r\nhost: x\r\n\r\n",
            "\r\nGET / HTTP/1.1\r\nhost: x\r\n\r\nGET / HTTP/1.0\r\n\r\n",
            "POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\n\n\n\nGET / HTTP/1.1\r\n\r\n",
            "POST / HTTP/1.1\r\ncontent-length:3 \r\n\r\nabcGET / HTTP/1.1\r\n\r\n",
            "POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n3\r\na\nb\r\n0\r\n\r\nGET / HTTP/1.1\r\n\r\n",
            "POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n00a;x=y\r\n0123456789\r\n0 ; z\r\nx-sum: 1\r\n\r\nGET",
            "POST / HTTP/1.1\r\ncontent-length: 0\r\n\r\nGET / HTTP/1.1\r\n\r\n",
            "POST / HTTP/1.1\r\nx-content-length: no number\r\nx: content-length: 7\r\n\r\nGET / HTTP/1.1\r\n\r\n",
        ] {
            assert_eq!(code(text), None, "{text}");
        }
    }

    #[test]
    fn a_head_that_could_be_read_in_two_ways_is_refused() {
        let bad = Some((ErrorCode::BadRequest, false));
        for text in [
            "GET / HTTP/1.1\nhost: x\n\n",
            "GET / HTTP/1.1\r\nhost: x\n\r\n",
            "GET / HTTP/1.1\r\nhost: x\r\n\n",
            "\nGET / HTTP/1.1\r\n\r\n",
            "GET / HTTP/1.1\r\nx: a\rb\r\n\r\n",
            "POST / HTTP/1.1\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n",
            "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n",
            "POST / HTTP/1.1\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n",
            "POST / HTTP/1.1\r\ncontent-length: 1\r\ncontent-length: 1\r\n\r\n",
            "GET /a#b HTTP/1.1\r\n\r\n",
            "POST / HTTP/1.1\r\ncontent-length: 1, 1\r\n\r\n",
            "POST / HTTP/1.1\r\ncontent-length: 1 1\r\n\r\n",
            "POST / HTTP/1.1\r\ncontent-length: +1\r\n\r\n",
            "POST / HTTP/1.1\r\ncontent-length: \r\n\r\n",
        ] {
            assert_eq!(code(text), bad, "{text}");
            let second = format!("POST / HTTP/1.1\r\ncontent-length: 3\r\n\r\nabc{text}");
            assert_eq!(code(&second), bad, "{second}");
        }
    }

    #[test]
    fn too_long_a_body_is_refused_with_the_digit_that_makes_it_so() {
        for length in [MOST + 1, u64::MAX] {
            let head = format!("POST / HTTP/1.1\r\ncontent-length: {length}");
            assert_eq!(code(&head), Some((ErrorCode::TooLarge, false)));
            let chunk = format!("POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n{length:x}");
            assert_eq!(code(&chunk), Some((ErrorCode::TooLarge, true)));
        }
        assert_eq!(code(&format!("POST / HTTP/1.1\r\ncontent-length: {MOST}\r\n\r\n")), None);
        assert_eq!(
            code("POST / HTTP/1.1\r\ncontent-length: 99999999999999999999999"),
            Some((ErrorCode::TooLarge, false))
        );
        let half = MOST / 2 + 1;
        let chunk = format!("{half:x}\r\n{}\r\n", "x".repeat(usize::try_from(half).expect("small")));
        let two = format!("POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n{chunk}{chunk}");
        assert_eq!(code(&two), Some((ErrorCode::TooLarge, true)), "the chunks together");
    }

    #[test]
    fn a_chunk_that_is_not_one_is_refused() {
        for chunk in [
            "x\r\n",
            "\r\n",
            "-1\r\n",
            "3\nabc",
            "3;a\nb\r\n",
            "3\r\nabcd\r\n",
            "3\r\nabc\n",
            "0\r\nx: y\n",
            "3 \r\n",
            "3\t\r\n",
            "3 3\r\n",
        ] {
            let text = format!("POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n{chunk}");
            assert_eq!(code(&text), Some((ErrorCode::BadRequest, true)), "{text}");
        }
    }

    #[test]
    fn what_comes_before_a_refused_request_is_told() {
        let first = "GET / HTTP/1.1\r\n\r\n";
        let text = format!("{first}GET / HTTP/1.1\n");
        let (at, _) = refused(text.as_bytes()).expect("refused");
        assert_eq!(at, text.len() - 1);
    }

    proptest! {
        #[test]
        fn bytes_may_come_in_any_parts(bytes in prop::collection::vec(any::<u8>(), 0..64), pick in 0..4usize) {
            let begins = [
                "",
                "GET / HTTP/1.1\r\n",
                "POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n",
                "POST / HTTP/1.1\r\ncontent-length: ",
            ];
            refused(&[begins[pick].as_bytes(), &bytes].concat());
        }
    }
}
