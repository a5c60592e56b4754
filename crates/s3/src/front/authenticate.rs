//! Whose request it is.

use http::request::Parts;
use millrace_api::objects::Objects;

use super::{Front, now_s};
use crate::error::{Code, S3Error};
use crate::route::Target;
use crate::signature::{self, FindKey, KnownKey, Payload, Request, Rules, Seed};
use crate::users::{KnownUser, Users};

/// Who asks, and what was signed of the body.
#[derive(Debug)]
pub(crate) struct Identity {
    /// The canonical id; `None`: anonymous.
    pub(crate) id: Option<String>,
    /// The display name.
    pub(crate) name: String,
    pub(crate) auth_kind: &'static str,
    pub(crate) signature_version: &'static str,
    pub(crate) payload: Payload,
    /// What signatures of chunks begin with.
    pub(crate) seed: Option<Seed>,
}

impl Identity {
    /// Nobody.
    pub(crate) fn anonymous(payload: Payload) -> Self {
        Self { id: None, name: String::new(), auth_kind: "", signature_version: "", payload, seed: None }
    }
}

/// Nobody in particular, who gives an unsigned body.
fn null_identity(request: &Request<'_>) -> Result<Identity, S3Error> {
    match request.header("x-amz-content-sha256").map_or(Ok(Payload::Unsigned), Payload::parse)? {
        Payload::Chunked { is_signed: true, .. } => {
            Err(S3Error::new(Code::NotImplemented, "The null store takes no bodies whose chunks are signed."))
        }
        Payload::Sha256(_) => Ok(Identity::anonymous(Payload::Unsigned)),
        payload => Ok(Identity::anonymous(payload)),
    }
}

impl<B: Objects, U: Users> Front<B, U> {
    /// Checks the signature.
    pub(crate) fn authenticate(&self, parts: &Parts, target: &Target, host: &str) -> Result<Identity, S3Error> {
        let headers: Vec<(&str, &[u8])> =
            parts.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
        let request = Request {
            method: parts.method.as_str(),
            path: parts.uri.path(),
            query: parts.uri.query().unwrap_or_default(),
            host,
            bucket_in_host: target.is_virtual_host.then_some(target.bucket.as_str()),
            headers: &headers,
        };
        if self.options.is_null_store {
            return null_identity(&request);
        }
        if !self.users.are_known() {
            let message = "The node has started and does not follow its cluster yet. Try again, or at another node.";
            return Err(S3Error::new(Code::ServiceUnavailable, message));
        }
        let cache = &mut *self.signing_keys.borrow_mut();
        let (rules, find) = (self.rules(), self.find_key());
        let Some(signed) = signature::verify::<KnownUser>(&request, now_s(), &rules, &find, cache)? else {
            let payload = request.header("x-amz-content-sha256").map_or(Ok(Payload::Unsigned), Payload::parse)?;
            return Ok(Identity::anonymous(payload));
        };
        Ok(Identity {
            id: Some(signed.identity.id),
            name: signed.identity.name,
            auth_kind: if signed.is_presigned { "REST-QUERY-STRING" } else { "REST-HEADER" },
            signature_version: if signed.seed.is_some() { "AWS4-HMAC-SHA256" } else { "AWS" },
            payload: signed.payload,
            seed: signed.seed,
        })
    }

    /// What signatures have to keep to.
    pub(crate) fn rules(&self) -> Rules {
        Rules { region: self.options.region.clone(), allows_version_2: self.options.allows_signature_version_2 }
    }

    /// Looks keys up.
    pub(crate) fn find_key(&self) -> impl FindKey<KnownUser> {
        |access_key: &str| {
            let user = self.users.find(access_key)?;
            Some(KnownKey { secret: user.secret.clone(), identity: user })
        }
    }
}
