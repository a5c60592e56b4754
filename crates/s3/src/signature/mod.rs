//! Who signed a request: AWS Signature Version 4 in headers and in the query, and Version 2 behind a switch.
//!
//! Promises: a request is accepted only if its signature covers the method, the path, the query, the host and every
//! `x-amz-*` header. Signatures are compared in constant time. Must not know operations, and has no clock.

mod authorization;
pub mod canonical;
pub mod date;
pub mod hex;
pub mod key;
pub mod payload;
mod v2;
mod v4;

pub use authorization::{Credential, HeaderFields};
pub use key::{SigningKey, SigningKeys};
pub use payload::Payload;

use crate::error::{Code, S3Error};

/// Seconds that a client's clock may be off, as S3 documents it.
pub const CLOCK_SKEW_S: u64 = 15 * 60;

/// Seconds that a presigned URL may be valid, as S3 documents it.
pub const PRESIGNED_S: u64 = 7 * 24 * 60 * 60;

/// A request's head, as it was sent.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The method.
    pub method: &'a str,
    /// The path, still encoded.
    pub path: &'a str,
    /// The query, still encoded, without its question mark.
    pub query: &'a str,
    /// The host, from its header or from `:authority`.
    pub host: &'a str,
    /// The bucket, if the host names it. Version 2 signs it.
    pub bucket_in_host: Option<&'a str>,
    /// Names in lower case, with values. A name may come twice.
    pub headers: &'a [(&'a str, &'a [u8])],
}

impl<'a> Request<'a> {
    /// The first value of a header, without spaces around it. `None` if it is absent or not text.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&'a str> {
        let value = self.headers.iter().find(|(own, _)| *own == name)?.1;
        std::str::from_utf8(value).ok().map(str::trim)
    }

    fn count(&self, name: &str) -> usize {
        self.headers.iter().filter(|(own, _)| *own == name).count()
    }
}

/// What a server accepts.
#[derive(Clone, Debug)]
pub struct Rules {
    /// The region that scopes must name.
    pub region: String,
    /// Whether Version 2 signatures are accepted.
    pub allows_version_2: bool,
}

/// Whose a key is, and its secret.
#[derive(Clone)]
pub struct KnownKey<I> {
    /// The secret.
    pub secret: String,
    /// Who it stands for.
    pub identity: I,
}

/// Finds a key's secret. A closure will do.
pub trait FindKey<I> {
    /// The key with this name.
    fn find(&self, access_key: &str) -> Option<KnownKey<I>>;
}

impl<I, F: Fn(&str) -> Option<KnownKey<I>>> FindKey<I> for F {
    fn find(&self, access_key: &str) -> Option<KnownKey<I>> {
        self(access_key)
    }
}

/// A request whose signature is right.
#[derive(Clone, Debug)]
pub struct Signed<I> {
    /// The name of the key.
    pub access_key: String,
    /// Who it stands for.
    pub identity: I,
    /// What was signed about the body.
    pub payload: Payload,
    /// Whether the signature stands in the query.
    pub is_presigned: bool,
    /// What the signatures of chunks begin with. Version 2 has none.
    pub seed: Option<Seed>,
}

/// What the signatures of chunks begin with.
#[derive(Clone, Debug)]
pub struct Seed {
    /// The key that signs.
    pub key: SigningKey,
    /// The request's time, as it was sent.
    pub timestamp: String,
    /// The scope: date, region, service and `aws4_request`.
    pub scope: String,
    /// The request's own signature, in lower-case hexadecimal.
    pub signature: String,
}

/// Checks a request at this time, in Unix seconds. `None` is a request that nobody signed.
///
/// # Errors
///
/// With the code that S3 documents, if it is signed but not rightly.
pub fn verify<I>(
    request: &Request<'_>,
    now_s: u64,
    rules: &Rules,
    keys: &impl FindKey<I>,
    cache: &mut SigningKeys,
) -> Result<Option<Signed<I>>, S3Error> {
    let in_header = request.count("authorization");
    let in_query = v4::is_presigned(request.query);
    match (in_header, in_query) {
        (0, false) if is_presigned_v2(request.query) && rules.allows_version_2 => {
            v2::verify_query(request, now_s, keys).map(|checked| Some(signed_v2(checked, true)))
        }
        (0, false) if is_presigned_v2(request.query) => Err(unsupported()),
        (0, false) => Ok(None),
        (0, true) => v4::verify_query(request, now_s, rules, keys, cache).map(Some),
        (1, false) => verify_header(request, now_s, rules, keys, cache).map(Some),
        (1, true) => Err(S3Error::new(
            Code::InvalidArgument,
            "Only one auth mechanism allowed; only the X-Amz-Algorithm query parameter, Signature query string \
             parameter or the Authorization header should be specified",
        )),
        _ => Err(S3Error::new(Code::InvalidArgument, "The header Authorization was sent more than once.")),
    }
}

fn verify_header<I>(
    request: &Request<'_>,
    now_s: u64,
    rules: &Rules,
    keys: &impl FindKey<I>,
    cache: &mut SigningKeys,
) -> Result<Signed<I>, S3Error> {
    let value = request.header("authorization").unwrap_or_default();
    let (scheme, fields) = value.split_once(' ').unwrap_or((value, ""));
    match scheme {
        "" => Err(Code::AccessDenied.into()),
        authorization::ALGORITHM => v4::verify_header(request, fields, now_s, rules, keys, cache),
        authorization::ASYMMETRIC => {
            Err(S3Error::new(Code::NotImplemented, "Signatures with asymmetric keys are not implemented."))
        }
        "AWS" if rules.allows_version_2 => {
            v2::verify_header(request, fields, now_s, keys).map(|checked| signed_v2(checked, false))
        }
        "AWS" => Err(unsupported()),
        _ => Err(S3Error::new(Code::InvalidArgument, "Unsupported Authorization Type")),
    }
}

/// Version 2 says nothing about the body.
fn signed_v2<I>((access_key, identity): (String, I), is_presigned: bool) -> Signed<I> {
    Signed { access_key, identity, payload: Payload::Unsigned, is_presigned, seed: None }
}

fn is_presigned_v2(query: &str) -> bool {
    query.split('&').any(|piece| piece.starts_with("AWSAccessKeyId="))
}

pub(crate) fn unsupported() -> S3Error {
    let message = "The authorization mechanism you have provided is not supported. Please use AWS4-HMAC-SHA256.";
    S3Error::new(Code::InvalidRequest, message)
}
