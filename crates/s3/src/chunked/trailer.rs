//! The headers behind the last chunk.

use millrace_api::objects::ChecksumAlgorithm;
use sha2::{Digest as _, Sha256};

use crate::algorithm::by_header;
use crate::checksum;
use crate::error::{Code, S3Error};
use crate::signature::{Seed, hex};

/// Bytes of one line: a checksum's name and value take at most 120.
pub(super) const LINE_BYTES: usize = 512;

/// Empty lines before the trailer is whole.
const BLANK_LINES: u8 = 2;

const SIGNATURE: &str = "x-amz-trailer-signature";

/// What the head announced in `x-amz-trailer`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrailerRules {
    /// The checksum that follows, if any.
    pub checksum: Option<ChecksumAlgorithm>,
}

/// What came.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trailer {
    /// The checksum, which the caller compares with that of the data.
    pub checksum: Option<(ChecksumAlgorithm, Vec<u8>)>,
    /// The lines as they are signed.
    canonical: String,
    signature: Option<String>,
    blank_lines: u8,
}

impl Trailer {
    pub(super) fn push(&mut self, line: &[u8], rules: Option<&TrailerRules>) -> Result<(), S3Error> {
        if line.is_empty() {
            return self.blank();
        }
        let Some(rules) = rules else { return Err(malformed("Trailing headers were not announced.")) };
        let text = std::str::from_utf8(line).map_err(|_| malformed("A trailing header is not text."))?;
        let (name, value) = text.split_once(':').ok_or_else(|| malformed("A trailing header has no colon."))?;
        let (name, value) = (name.to_ascii_lowercase(), value.trim());
        if self.signature.is_some() {
            return Err(malformed("A trailing header follows the signature."));
        }
        if name == SIGNATURE {
            self.signature = Some(value.to_owned());
            return Ok(());
        }
        let algorithm = by_header(&name).filter(|algorithm| rules.checksum == Some(*algorithm));
        let algorithm = algorithm.ok_or_else(|| malformed("A trailing header was not announced."))?;
        if self.checksum.is_some() {
            return Err(malformed("A trailing header was sent twice."));
        }
        let (bytes, parts) = checksum::value(algorithm, value)?;
        if parts.is_some() {
            return Err(malformed("A trailing checksum is that of parts."));
        }
        self.canonical = format!("{name}:{value}\n");
        self.checksum = Some((algorithm, bytes));
        Ok(())
    }

    /// An empty line before the trailer is whole. Some clients send one before it, and one behind the checksum.
    fn blank(&mut self) -> Result<(), S3Error> {
        self.blank_lines += 1;
        if self.blank_lines <= BLANK_LINES && self.signature.is_none() {
            return Ok(());
        }
        Err(malformed("The trailing headers end too early."))
    }

    pub(super) fn is_whole(&self, rules: &TrailerRules, is_signed: bool) -> bool {
        self.checksum.is_some() == rules.checksum.is_some() && self.signature.is_some() == is_signed
    }

    pub(super) fn check_signature(&self, seed: &Seed) -> Result<(), S3Error> {
        let Seed { key, timestamp, scope, signature } = seed;
        let hash = hex::encode(&Sha256::digest(&self.canonical));
        let text = format!("AWS4-HMAC-SHA256-TRAILER\n{timestamp}\n{scope}\n{signature}\n{hash}");
        if key.is_signed(text.as_bytes(), self.signature.as_deref().unwrap_or_default()) {
            return Ok(());
        }
        Err(Code::SignatureDoesNotMatch.into())
    }
}

fn malformed(message: &str) -> S3Error {
    S3Error::new(Code::MalformedTrailer, message)
}
