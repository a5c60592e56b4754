//! What a client says of its body, and whether the body is that.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use millrace_api::objects::{BodyDigests, Checksum, ChecksumAlgorithm, ChecksumKind};

use super::Head;
use crate::error::{Code, S3Error};
use crate::{algorithm, checksum};

/// What a client says of a body.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claims {
    /// `Content-MD5`.
    pub md5: Option<[u8; 16]>,
    /// A checksum in a header.
    pub checksum: Option<Checksum>,
    /// The algorithm of the checksum that comes behind the body.
    pub trailer: Option<ChecksumAlgorithm>,
    /// The SHA-256 that was signed.
    pub sha256: Option<[u8; 32]>,
}

impl Claims {
    /// Reads the headers.
    ///
    /// # Errors
    /// `InvalidDigest`, `InvalidRequest`.
    pub fn read(head: &Head<'_>) -> Result<Self, S3Error> {
        let checksum = header(head)?;
        let trailer = trailer(head)?;
        if checksum.is_some() && trailer.is_some() {
            return Err(S3Error::new(
                Code::InvalidRequest,
                "Expecting a single x-amz-checksum- header. Multiple checksum Types are not allowed.",
            ));
        }
        let claimed = checksum.as_ref().map(|checksum| checksum.algorithm).or(trailer);
        if let Some(name) = head.header("x-amz-sdk-checksum-algorithm")? {
            let named = checksum::algorithm(name)?;
            match claimed {
                Some(claimed) if claimed == named => {}
                Some(_) => {
                    let message = "Value for x-amz-sdk-checksum-algorithm header is invalid.";
                    return Err(S3Error::new(Code::InvalidRequest, message));
                }
                None => {
                    return Err(S3Error::new(
                        Code::InvalidRequest,
                        "x-amz-sdk-checksum-algorithm specified, but no corresponding x-amz-checksum-* or x-amz-trailer \
                         headers were found.",
                    ));
                }
            }
        }
        let md5 = match head.header("content-md5")? {
            None => None,
            Some(text) => Some(checksum::content_md5(text)?),
        };
        Ok(Self { md5, checksum, trailer, sha256: None })
    }

    /// Whether anything is said of the body.
    #[must_use]
    pub fn says_something(&self) -> bool {
        self.md5.is_some() || self.checksum.is_some() || self.trailer.is_some()
    }

    /// The algorithm whose value is to be kept with the object: the client's, if it has one.
    #[must_use]
    pub fn kept(&self) -> Option<ChecksumAlgorithm> {
        self.checksum.as_ref().map(|checksum| checksum.algorithm).or(self.trailer)
    }

    /// Which checksums of the body have to be computed, beside MD5. `kept` is one of them.
    #[must_use]
    pub fn needed(&self, kept: Option<ChecksumAlgorithm>) -> Vec<ChecksumAlgorithm> {
        let mut needed = vec![kept.unwrap_or(ChecksumAlgorithm::Crc64Nvme)];
        let signed = self.sha256.is_some().then_some(ChecksumAlgorithm::Sha256);
        for algorithm in self.kept().into_iter().chain(signed) {
            if !needed.contains(&algorithm) {
                needed.push(algorithm);
            }
        }
        needed
    }

    /// Compares with what the body gave. `trailer` is the value that came behind it.
    ///
    /// # Errors
    /// `BadDigest`, `XAmzContentSHA256Mismatch`, `InvalidRequest` for a trailer that was announced and did not come.
    pub fn check(&self, digests: &BodyDigests, trailer: Option<&[u8]>) -> Result<(), S3Error> {
        if let Some(md5) = self.md5
            && md5 != digests.md5
        {
            return Err(S3Error::new(Code::BadDigest, "The Content-MD5 you specified did not match what we received.")
                .with("ExpectedDigest", STANDARD.encode(md5))
                .with("CalculatedDigest", STANDARD.encode(digests.md5)));
        }
        if let Some(sha256) = self.sha256
            && digests.of(ChecksumAlgorithm::Sha256).is_none_or(|checksum| checksum.value != sha256)
        {
            let message = "The provided 'x-amz-content-sha256' header does not match what was computed.";
            return Err(S3Error::new(Code::XAmzContentSha256Mismatch, message));
        }
        if let Some(claimed) = &self.checksum {
            compare(claimed.algorithm, &claimed.value, digests)?;
        }
        if let Some(algorithm) = self.trailer {
            let Some(value) = trailer else {
                let name = algorithm::names(algorithm).header;
                let message = format!("Value for {name} trailing header is invalid.");
                return Err(S3Error::new(Code::InvalidRequest, message));
            };
            compare(algorithm, value, digests)?;
        }
        Ok(())
    }
}

fn compare(algorithm: ChecksumAlgorithm, value: &[u8], digests: &BodyDigests) -> Result<(), S3Error> {
    if digests.of(algorithm).is_some_and(|checksum| checksum.value == value) {
        return Ok(());
    }
    let name = algorithm::names(algorithm).name;
    Err(S3Error::new(Code::BadDigest, format!("The {name} you specified did not match the calculated checksum.")))
}

/// The checksum in a header, if there is one.
///
/// # Errors
/// `InvalidRequest` for more than one, or a value that cannot be.
pub fn header(head: &Head<'_>) -> Result<Option<Checksum>, S3Error> {
    let mut found = None;
    for names in &algorithm::ALL {
        let Some(text) = head.header(names.header)? else { continue };
        if found.replace(checksum::read(names.algorithm, text)?).is_some() {
            return Err(S3Error::new(
                Code::InvalidRequest,
                "Expecting a single x-amz-checksum- header. Multiple checksum Types are not allowed.",
            ));
        }
    }
    Ok(found)
}

fn trailer(head: &Head<'_>) -> Result<Option<ChecksumAlgorithm>, S3Error> {
    head.header("x-amz-trailer")?.map(checksum::trailer).transpose()
}

/// A checksum of a whole body.
#[must_use]
pub fn whole(algorithm: ChecksumAlgorithm, value: Vec<u8>) -> Checksum {
    Checksum { algorithm, kind: ChecksumKind::FullObject, value }
}
