//! Decodes aws-chunked bodies: framing, a signature per chunk, and trailing headers with theirs.
//!
//! Promises: whatever the split points, the same bytes give the same answer. It holds at most one line, or the lines of
//! one trailer. Data are handed out before their chunk's signature is known: only [`Decoder::finish`] says that all was
//! right. Must not know where the bytes come from.

mod trailer;

pub use trailer::{Trailer, TrailerRules};

use sha2::{Digest as _, Sha256};

use crate::error::{Code, S3Error};
use crate::signature::{Seed, hex};

/// Bytes of a line that begins a chunk: a size, a signature of 64 digits, and some for extensions.
const LINE_BYTES: usize = 256;

/// Bytes of one chunk: as much as one PUT may have, as S3 documents it.
const CHUNK_BYTES: u64 = 5 << 30;

/// Bytes of the text of an empty SHA-256, which stands in each chunk's string to sign.
const EMPTY_SHA256: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

/// Reads a body as it comes.
pub struct Decoder {
    state: State,
    line: Vec<u8>,
    signing: Option<Signing>,
    trailer: Option<TrailerRules>,
    read: Trailer,
    /// Bytes of data that were announced, and those that came.
    decoded_bytes: u64,
    seen_bytes: u64,
}

/// What the signature of the next chunk needs.
struct Signing {
    seed: Seed,
    hash: Sha256,
    /// The signature that the current chunk claims.
    claimed: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// In the line that begins a chunk.
    Size,
    /// In a chunk's data: so many bytes are to come.
    Data(u64),
    /// In the line end behind a chunk's data.
    DataEnd,
    /// Behind the last chunk.
    Trailer,
    /// All has come.
    Done,
}

impl Decoder {
    /// Reads a body of so many bytes of data, as `x-amz-decoded-content-length` announces it.
    ///
    /// With a seed, each chunk must have a signature. With rules for a trailer, headers follow the last chunk.
    #[must_use]
    pub fn new(seed: Option<Seed>, trailer: Option<TrailerRules>, decoded_bytes: u64) -> Self {
        let signing = seed.map(|seed| Signing { seed, hash: Sha256::new(), claimed: String::new() });
        let read = Trailer::default();
        Self { state: State::Size, line: Vec::new(), signing, trailer, read, decoded_bytes, seen_bytes: 0 }
    }

    /// Takes the front of `input` and gives the data that it held, which may be none. Call it until `input` is empty.
    ///
    /// # Errors
    ///
    /// If the framing or a signature is wrong. Nothing more can be read then.
    pub fn decode<'a>(&mut self, input: &mut &'a [u8]) -> Result<&'a [u8], S3Error> {
        while !input.is_empty() {
            match self.state {
                State::Data(left) => return self.data(input, left),
                State::Done => return Err(incomplete("Bytes follow the last chunk.")),
                State::Size | State::DataEnd | State::Trailer => {
                    if self.take_line(input)? {
                        let line = std::mem::take(&mut self.line);
                        self.line_ended(&line)?;
                    }
                }
            }
        }
        Ok(&[])
    }

    /// Ends the body.
    ///
    /// # Errors
    ///
    /// If it is not whole.
    pub fn finish(mut self) -> Result<Trailer, S3Error> {
        // Some clients leave out the empty line at the very end.
        if self.state == State::Trailer && self.line.is_empty() && self.may_end() {
            self.end_trailer()?;
        }
        match self.state {
            State::Done => Ok(self.read),
            _ => Err(incomplete("The body ends before its last chunk.")),
        }
    }

    /// Whether all has come.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.state == State::Done
    }

    fn data<'a>(&mut self, input: &mut &'a [u8], left: u64) -> Result<&'a [u8], S3Error> {
        let count = usize::try_from(left).unwrap_or(usize::MAX).min(input.len());
        let (data, rest) = input.split_at(count);
        *input = rest;
        if let Some(signing) = &mut self.signing {
            signing.hash.update(data);
        }
        let left = left - count as u64;
        self.state = if left > 0 { State::Data(left) } else { State::DataEnd };
        if left == 0 {
            self.chunk_ended()?;
        }
        Ok(data)
    }

    /// Takes bytes up to a line's end. Whether it came.
    fn take_line(&mut self, input: &mut &[u8]) -> Result<bool, S3Error> {
        let end = input.iter().position(|byte| *byte == b'\n');
        let (taken, rest) = input.split_at(end.map_or(input.len(), |end| end + 1));
        *input = rest;
        let limit = if self.state == State::Trailer { trailer::LINE_BYTES } else { LINE_BYTES };
        if self.line.len() + taken.len() > limit {
            return Err(incomplete("A line of the framing is too long."));
        }
        self.line.extend_from_slice(taken);
        Ok(end.is_some())
    }

    fn line_ended(&mut self, line: &[u8]) -> Result<(), S3Error> {
        let whole = line.strip_suffix(b"\n").unwrap_or(line);
        // The documentation ends the trailing checksum with LF alone.
        let line = match whole.strip_suffix(b"\r") {
            Some(line) => line,
            None if self.state == State::Trailer => whole,
            None => return Err(incomplete("A line of the framing does not end with CR LF.")),
        };
        match self.state {
            State::DataEnd if line.is_empty() => {
                self.state = State::Size;
                Ok(())
            }
            State::DataEnd => Err(incomplete("A chunk is longer than its size.")),
            State::Trailer if line.is_empty() && self.may_end() => self.end_trailer(),
            State::Trailer => self.read.push(line, self.trailer.as_ref()),
            _ => self.chunk_began(line),
        }
    }

    fn chunk_began(&mut self, line: &[u8]) -> Result<(), S3Error> {
        let line = std::str::from_utf8(line).map_err(|_| incomplete("The size of a chunk is not text."))?;
        let (size, extension) = line.split_once(';').map_or((line, None), |(size, rest)| (size, Some(rest)));
        let is_hexadecimal = !size.is_empty() && size.bytes().all(|byte| byte.is_ascii_hexdigit());
        let size = u64::from_str_radix(size, 16).ok().filter(|size| is_hexadecimal && *size <= CHUNK_BYTES);
        let size = size.ok_or_else(|| incomplete("The size of a chunk is not one."))?;
        if let Some(signing) = &mut self.signing {
            let claimed = extension.and_then(|rest| rest.strip_prefix("chunk-signature="));
            claimed.ok_or_else(|| incomplete("A chunk has no signature."))?.clone_into(&mut signing.claimed);
        } else if extension.is_some() {
            return Err(incomplete("A chunk has a signature that was not announced."));
        }
        self.seen_bytes = self.seen_bytes.saturating_add(size);
        if self.seen_bytes > self.decoded_bytes {
            return Err(incomplete("The chunks hold more bytes than x-amz-decoded-content-length."));
        }
        if size > 0 {
            self.state = State::Data(size);
            return Ok(());
        }
        self.state = State::Trailer;
        if self.seen_bytes < self.decoded_bytes {
            return Err(incomplete("The chunks hold fewer bytes than x-amz-decoded-content-length."));
        }
        self.chunk_ended()
    }

    fn chunk_ended(&mut self) -> Result<(), S3Error> {
        let Some(signing) = &mut self.signing else { return Ok(()) };
        let Seed { key, timestamp, scope, signature } = &mut signing.seed;
        let hash = hex::encode(&signing.hash.finalize_reset());
        let text = format!("AWS4-HMAC-SHA256-PAYLOAD\n{timestamp}\n{scope}\n{signature}\n{EMPTY_SHA256}\n{hash}");
        if !key.is_signed(text.as_bytes(), &signing.claimed) {
            return Err(Code::SignatureDoesNotMatch.into());
        }
        std::mem::swap(signature, &mut signing.claimed);
        Ok(())
    }

    /// Whether an empty line ends the body now. Some clients send one between the last chunk and the trailer too.
    fn may_end(&self) -> bool {
        self.trailer.as_ref().is_none_or(|rules| self.read.is_whole(rules, self.signing.is_some()))
    }

    fn end_trailer(&mut self) -> Result<(), S3Error> {
        if let (Some(signing), Some(_)) = (&self.signing, &self.trailer) {
            self.read.check_signature(&signing.seed)?;
        }
        self.state = State::Done;
        Ok(())
    }
}

impl std::fmt::Debug for Decoder {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Decoder").field("state", &self.state).finish_non_exhaustive()
    }
}

fn incomplete(message: &str) -> S3Error {
    S3Error::new(Code::IncompleteBody, message)
}
