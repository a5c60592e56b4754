//! Reads `multipart/form-data` as it comes.

use super::form::Form;
use crate::error::{Code, S3Error};

/// Bytes of one field's value, as S3 documents it for the whole form without its file.
const FIELD_BYTES: usize = 20 << 10;

/// Bytes of all fields, with their names.
const FIELDS_BYTES: usize = 1 << 20;

/// Fields of a form: 2 KiB of metadata can be some 200 short ones.
const FIELDS: usize = 256;

/// Bytes of the headers of one part.
const HEADERS_BYTES: usize = 4 << 10;

/// The boundary that a `Content-Type` names.
///
/// # Errors
///
/// If the type is another, or the boundary breaks the rules of RFC 2046.
pub fn boundary(content_type: &str) -> Result<String, S3Error> {
    let mut pieces = content_type.split(';');
    if !pieces.next().unwrap_or_default().trim().eq_ignore_ascii_case("multipart/form-data") {
        return Err(Code::RequestIsNotMultiPartContent.into());
    }
    let named = pieces.filter_map(|piece| piece.split_once('='));
    let value = named.filter(|(name, _)| name.trim().eq_ignore_ascii_case("boundary")).map(|(_, value)| value).next();
    let value = value.unwrap_or_default().trim().trim_matches('"');
    if value.is_empty() || value.len() > 70 || !value.bytes().all(|byte| (0x20..0x7f).contains(&byte)) {
        return Err(malformed("The boundary is missing or not valid."));
    }
    Ok(value.to_owned())
}

/// What comes next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// More bytes are needed.
    NeedsMore,
    /// All fields are there, and the file begins. [`FormReader::form`] has them.
    FileBegins,
    /// Bytes of the file.
    File(Vec<u8>),
    /// The file is whole. What follows it does not count.
    End,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    Preamble,
    AfterDelimiter,
    Headers,
    Field(String),
    File,
    End,
}

/// Reads a form. Push bytes, then ask for events until it needs more.
#[derive(Debug)]
pub struct FormReader {
    state: State,
    delimiter: Vec<u8>,
    buffer: Vec<u8>,
    form: Form,
    field_bytes: usize,
}

impl FormReader {
    /// Reads parts that this boundary separates.
    #[must_use]
    pub fn new(boundary: &str) -> Self {
        Self {
            state: State::Preamble,
            delimiter: format!("\r\n--{boundary}").into_bytes(),
            // So that the first boundary, which no line precedes, looks like the others.
            buffer: b"\r\n".to_vec(),
            form: Form::default(),
            field_bytes: 0,
        }
    }

    /// The fields so far.
    #[must_use]
    pub fn form(&self) -> &Form {
        &self.form
    }

    /// Takes the next bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.state != State::End {
            self.buffer.extend_from_slice(bytes);
        }
    }

    /// What the bytes so far hold.
    ///
    /// # Errors
    ///
    /// If the form is malformed or too large. Nothing more can be read then.
    pub fn next_event(&mut self) -> Result<Event, S3Error> {
        loop {
            let stepped = match self.state.clone() {
                State::Preamble => self.preamble()?,
                State::AfterDelimiter => self.after_delimiter()?,
                State::Headers => self.headers()?,
                State::Field(name) => self.field(name)?,
                State::File => return Ok(self.file()),
                State::End => return Ok(Event::End),
            };
            match stepped {
                false => return Ok(Event::NeedsMore),
                true if self.state == State::File => return Ok(Event::FileBegins),
                true => {}
            }
        }
    }

    /// Ends the body.
    ///
    /// # Errors
    ///
    /// If the file is not whole.
    pub fn finish(self) -> Result<Form, S3Error> {
        match self.state {
            State::End => Ok(self.form),
            State::File => Err(S3Error::new(Code::IncompleteBody, "The body ends within the file.")),
            _ => Err(malformed("The body ends before the file.")),
        }
    }

    /// Drops the front of the buffer up to the end of `pattern`. Gives what was before it.
    fn take_until(&mut self, pattern: &[u8]) -> Option<Vec<u8>> {
        let at = find(&self.buffer, pattern)?;
        let before = self.buffer[..at].to_vec();
        self.buffer.drain(..at + pattern.len());
        Some(before)
    }

    fn preamble(&mut self) -> Result<bool, S3Error> {
        let delimiter = self.delimiter.clone();
        let is_found = self.take_until(&delimiter).is_some();
        if is_found {
            self.state = State::AfterDelimiter;
        } else if self.buffer.len() > HEADERS_BYTES {
            return Err(malformed("The body does not begin with its boundary."));
        }
        Ok(is_found)
    }

    fn after_delimiter(&mut self) -> Result<bool, S3Error> {
        match self.buffer.get(..2) {
            None => Ok(false),
            Some(b"\r\n") => {
                // The line end stays: headers that are missing then end at once.
                self.state = State::Headers;
                Ok(true)
            }
            Some(b"--") => Err(Code::IncorrectNumberOfFilesInPostRequest.into()),
            Some(_) => Err(malformed("A boundary does not end its line.")),
        }
    }

    fn headers(&mut self) -> Result<bool, S3Error> {
        let end = find(&self.buffer, b"\r\n\r\n");
        if end.unwrap_or(self.buffer.len()) > HEADERS_BYTES {
            return Err(malformed("The headers of a part are too large."));
        }
        let Some(headers) = self.take_until(b"\r\n\r\n") else { return Ok(false) };
        let part = Part::parse(&headers)?;
        if part.name.eq_ignore_ascii_case("file") {
            self.form.file_began(part.file_name, part.content_type);
            self.state = State::File;
        } else {
            self.field_bytes += part.name.len();
            self.state = State::Field(part.name);
        }
        Ok(true)
    }

    fn field(&mut self, name: String) -> Result<bool, S3Error> {
        let delimiter = self.delimiter.clone();
        let end = find(&self.buffer, &delimiter);
        // A value may be followed by the beginning of a delimiter.
        let least = end.unwrap_or_else(|| self.buffer.len().saturating_sub(delimiter.len()));
        if least > FIELD_BYTES || self.field_bytes + least > FIELDS_BYTES || self.form.len() >= FIELDS {
            return Err(Code::MaxPostPreDataLengthExceeded.into());
        }
        let Some(value) = self.take_until(&delimiter) else { return Ok(false) };
        self.field_bytes += value.len();
        let value = String::from_utf8(value).map_err(|_| malformed("A field is not text."))?;
        self.form.push(&name, value)?;
        self.state = State::AfterDelimiter;
        Ok(true)
    }

    fn file(&mut self) -> Event {
        if let Some(end) = find(&self.buffer, &self.delimiter) {
            if end > 0 {
                return Event::File(self.buffer.drain(..end).collect());
            }
            self.state = State::End;
            self.buffer = Vec::new();
            return Event::End;
        }
        // The last bytes may be the beginning of a delimiter.
        let count = self.buffer.len().saturating_sub(self.delimiter.len() - 1);
        if count == 0 { Event::NeedsMore } else { Event::File(self.buffer.drain(..count).collect()) }
    }
}

/// The headers of a part.
struct Part {
    name: String,
    file_name: Option<String>,
    content_type: Option<String>,
}

impl Part {
    fn parse(headers: &[u8]) -> Result<Self, S3Error> {
        let text = std::str::from_utf8(headers).map_err(|_| malformed("The headers of a part are not text."))?;
        let (mut name, mut file_name, mut content_type) = (None, None, None);
        for line in text.split("\r\n").filter(|line| !line.is_empty()) {
            let (header, value) = line.split_once(':').ok_or_else(|| malformed("A header of a part has no colon."))?;
            if header.eq_ignore_ascii_case("content-disposition") {
                (name, file_name) = (parameter(value, "name"), parameter(value, "filename"));
            } else if header.eq_ignore_ascii_case("content-type") {
                content_type = Some(value.trim().to_owned());
            }
        }
        let name = name.filter(|name| !name.is_empty()).ok_or_else(|| malformed("A part has no name."))?;
        Ok(Self { name, file_name, content_type })
    }
}

/// A parameter of `Content-Disposition`, quoted or not. Browsers write a quote in a name as `%22` or `\"`.
fn parameter(header: &str, wanted: &str) -> Option<String> {
    let mut rest = header;
    while let Some(at) = rest.find(';') {
        rest = rest[at + 1..].trim_start();
        let (name, value) = rest.split_once('=')?;
        let (value, behind) = match value.strip_prefix('"') {
            Some(quoted) => unquote(quoted)?,
            None => {
                let end = value.find(';').unwrap_or(value.len());
                (value[..end].trim().to_owned(), &value[end..])
            }
        };
        if name.trim().eq_ignore_ascii_case(wanted) {
            return Some(value);
        }
        rest = behind;
    }
    None
}

/// The text up to the closing quote, and what is behind it.
fn unquote(quoted: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut characters = quoted.char_indices().peekable();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Some((value, &quoted[at + 1..])),
            // Only a quote is escaped: old browsers send paths with backslashes.
            '\\' if characters.peek().is_some_and(|(_, next)| *next == '"') => {
                value.push('"');
                characters.next();
            }
            _ => value.push(character),
        }
    }
    None
}

fn find(bytes: &[u8], pattern: &[u8]) -> Option<usize> {
    let mut from = 0;
    while let Some(at) = bytes[from..].iter().position(|byte| *byte == pattern[0]) {
        if bytes[from + at..].starts_with(pattern) {
            return Some(from + at);
        }
        from += at + 1;
    }
    None
}

pub(super) fn malformed(message: &str) -> S3Error {
    S3Error::new(Code::MalformedPostRequest, message)
}
