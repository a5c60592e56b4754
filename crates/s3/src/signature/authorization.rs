//! The pieces of an `Authorization` header.

use crate::error::{Code, S3Error};

pub(super) const ALGORITHM: &str = "AWS4-HMAC-SHA256";
pub(super) const ASYMMETRIC: &str = "AWS4-ECDSA-P256-SHA256";

/// Characters of what a client sent that an answer repeats.
const SAID_CHARACTERS: usize = 64;

/// Bytes of an access key's name. IAM allows 128.
const ACCESS_KEY_BYTES: usize = 128;

/// Headers that a signature may name: as many as a request may have.
const SIGNED_HEADERS: usize = 256;

/// Who signed, and for what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credential<'a> {
    /// The name of the key.
    pub access_key: &'a str,
    /// `YYYYMMDD`.
    pub date: &'a str,
    /// The region.
    pub region: &'a str,
    /// All behind the name of the key.
    pub scope: &'a str,
}

impl<'a> Credential<'a> {
    /// Reads `KEY/DATE/REGION/s3/aws4_request`. `refuse` makes the error from a sentence.
    ///
    /// # Errors
    ///
    /// If a piece is missing or wrong.
    pub fn parse(text: &'a str, region: &str, refuse: &dyn Fn(&str) -> S3Error) -> Result<Self, S3Error> {
        // The name of a key may have slashes, the scope has four.
        let mut pieces = text.rsplitn(5, '/');
        let (terminal, service) = (pieces.next(), pieces.next());
        let (Some(own_region), Some(date), Some(access_key)) = (pieces.next(), pieces.next(), pieces.next()) else {
            let form = "the Credential is mal-formed; expecting \"<YOUR-AKID>/YYYYMMDD/REGION/SERVICE/aws4_request\".";
            return Err(refuse(form));
        };
        if access_key.is_empty() || access_key.len() > ACCESS_KEY_BYTES {
            return Err(Code::InvalidAccessKeyId.into());
        }
        let said = |text: Option<&str>| text.unwrap_or_default().chars().take(SAID_CHARACTERS).collect::<String>();
        if service != Some("s3") {
            let message = format!("incorrect service \"{}\". This endpoint belongs to \"s3\".", said(service));
            return Err(refuse(&message));
        }
        if terminal != Some("aws4_request") {
            let message = format!("incorrect terminal \"{}\". This endpoint uses \"aws4_request\".", said(terminal));
            return Err(refuse(&message));
        }
        if date.len() != 8 || !date.bytes().all(|byte| byte.is_ascii_digit()) {
            let form = "This date in the credential must be in the format \"yyyyMMdd\".";
            return Err(refuse(&format!("incorrect date format \"{}\". {form}", said(Some(date)))));
        }
        if own_region != region {
            let message = format!("the region '{}' is wrong; expecting '{region}'", said(Some(own_region)));
            return Err(refuse(&message).with("Region", region));
        }
        Ok(Self { access_key, date, region: own_region, scope: &text[access_key.len() + 1..] })
    }
}

/// The fields behind the algorithm's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderFields<'a> {
    /// `Credential`.
    pub credential: &'a str,
    /// `SignedHeaders`.
    pub signed_headers: Vec<&'a str>,
    /// `Signature`.
    pub signature: &'a str,
}

impl<'a> HeaderFields<'a> {
    /// Reads `Credential=…, SignedHeaders=…, Signature=…` in any order.
    ///
    /// # Errors
    ///
    /// If one is missing, unknown, or there twice.
    pub fn parse(text: &'a str) -> Result<Self, S3Error> {
        let (mut credential, mut headers, mut signature) = (None, None, None);
        for piece in text.split(',') {
            let Some((name, value)) = piece.trim().split_once('=') else {
                return Err(malformed("a component has no value."));
            };
            let slot = match name {
                "Credential" => &mut credential,
                "SignedHeaders" => &mut headers,
                "Signature" => &mut signature,
                _ => return Err(malformed("a component is unknown.")),
            };
            if slot.replace(value).is_some() {
                return Err(malformed("a component is there twice."));
            }
        }
        let missing = |name: &str| malformed(&format!("it requires {name}."));
        Ok(Self {
            credential: credential.ok_or_else(|| missing("Credential"))?,
            signed_headers: signed_headers(headers.ok_or_else(|| missing("SignedHeaders"))?)
                .ok_or_else(|| malformed("SignedHeaders is mal-formed."))?,
            signature: signature.ok_or_else(|| missing("Signature"))?,
        })
    }
}

/// Splits a list of names. `None` if it is too long, or if a name is empty, has upper-case letters or comes twice.
pub(super) fn signed_headers(text: &str) -> Option<Vec<&str>> {
    let names: Vec<_> = text.split(';').take(SIGNED_HEADERS + 1).collect();
    let mut sorted = names.clone();
    sorted.sort_unstable();
    let is_plain = |name: &&str| !name.is_empty() && !name.bytes().any(|byte| byte.is_ascii_uppercase());
    let is_list = names.len() <= SIGNED_HEADERS && names.iter().all(is_plain) && sorted.is_sorted_by(|a, b| a < b);
    is_list.then_some(names)
}

pub(super) fn malformed(problem: &str) -> S3Error {
    S3Error::new(Code::AuthorizationHeaderMalformed, format!("The authorization header is malformed; {problem}"))
}
