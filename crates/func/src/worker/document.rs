//! The file that makes an app one of workers.

use std::borrow::Cow;
use std::fmt;

use millrace_api::{Error, ErrorCode, WorkerSignature};
use millrace_base::fingerprint;
use serde::{Deserialize, Serialize};

use super::Discovery;
use crate::{FetchHost, FetchTarget};

/// Secrets are not to be guessed.
const SECRET_BYTES: usize = 16;

/// The file's name. No service has it: names of files that begin with `_` are no services.
pub const WORKER_FILE: &str = "_worker.json";

/// Where workers are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WorkerAddress {
    /// The server dials this URL.
    Url(String),
    /// They dial the server.
    DialIn,
}

impl fmt::Display for WorkerAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WorkerAddress::Url(url) => formatter.write_str(url),
            WorkerAddress::DialIn => formatter.write_str("dial-in"),
        }
    }
}

/// The URL that a worker's requests go to, and whether they are HTTP/2 from the first byte on. A worker's URL may have the
/// scheme `h2c`: HTTP/2 without TLS, as Knative and Cloud Run call it.
#[must_use]
pub fn worker_http_url(url: &str) -> (Cow<'_, str>, bool) {
    match url.split_once("://") {
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case("h2c") => (format!("http://{rest}").into(), true),
        _ => (url.into(), false),
    }
}

/// Whether requests to a worker at this URL may be HTTP/2. Over TLS the worker chooses.
#[must_use]
pub fn worker_may_be_http2(url: &str) -> bool {
    let (url, is_http2) = worker_http_url(url);
    is_http2 || url.split_once("://").is_some_and(|(scheme, _)| scheme.eq_ignore_ascii_case("https"))
}

impl WorkerAddress {
    /// As [`worker_may_be_http2`]; those that dial in are not asked.
    #[must_use]
    pub fn may_be_http2(&self) -> bool {
        matches!(self, WorkerAddress::Url(url) if worker_may_be_http2(url))
    }

    /// Refuses workers that anybody could be, or could invoke.
    ///
    /// # Errors
    /// `app-refused`, saying why.
    pub fn check(&self, signing: &RequestSigning) -> Result<(), Error> {
        let refused = |message: String| Err(Error::new(ErrorCode::AppRefused, message));
        if let Err(message) = signing.check() {
            return refused(message);
        }
        let WorkerAddress::Url(url) = self else { return Ok(()) };
        let target = match FetchTarget::parse(&worker_http_url(url).0) {
            Ok(target) => target,
            Err(error) => return refused(format!("the worker's URL: {}", error.message)),
        };
        if target.path_and_query().contains('?') {
            return refused("the worker's URL has a query".to_owned());
        }
        let is_here = match &target.origin().host {
            FetchHost::Address(address) => address.is_loopback(),
            FetchHost::Name(name) => name == "localhost",
        };
        if !is_here && signing.is_none() {
            let message = "a worker on another machine takes signed requests only: deploy it with --worker-secret FILE, or \
                           with --worker-signature ed25519";
            return refused(message.to_owned());
        }
        Ok(())
    }
}

/// What requests to workers are signed with: a secret that both ends have, or the server's own key, or nothing.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestSigning {
    /// No answer of the server has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
    /// Without a secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signature: Option<WorkerSignature>,
}

/// The secret does not get into logs.
impl fmt::Debug for RequestSigning {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let secret = self.secret.as_ref().map(|_| "…");
        formatter.debug_struct("RequestSigning").field("secret", &secret).field("signature", &self.signature).finish()
    }
}

impl RequestSigning {
    /// Refuses a secret that can be guessed, and two ways at once.
    fn check(&self) -> Result<(), String> {
        match &self.secret {
            Some(_) if self.signature.is_some() => {
                Err("requests are signed with a secret or with ed25519, not with both".to_owned())
            }
            Some(secret) if secret.len() < SECRET_BYTES => {
                Err(format!("the worker's secret has fewer than {SECRET_BYTES} bytes"))
            }
            _ => Ok(()),
        }
    }

    fn is_none(&self) -> bool {
        self.secret.is_none() && self.signature.is_none()
    }
}

/// What is in the file. It is stored, so members may be added, and none changes its meaning.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerDocument {
    /// Where its workers are.
    pub address: WorkerAddress,
    /// What requests to them are signed with.
    #[serde(flatten)]
    pub signing: RequestSigning,
    /// What they serve.
    pub discovery: Discovery,
    /// Versions of workers that dial in which this one has replaced, by their [`WorkerDocument::version`], the oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub replaces: Vec<u64>,
    /// The app's `millrace.toml`, if its workers dial in: their next versions keep it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settings: Option<String>,
}

/// How many replaced versions are remembered. A worker of an older one counts as new.
const REPLACED_VERSIONS: usize = 64;

impl WorkerDocument {
    /// Reads the file.
    ///
    /// # Errors
    /// What is wrong, with its place.
    pub fn from_json(json: &[u8]) -> Result<Self, String> {
        serde_json::from_slice(json).map_err(|error| format!("{WORKER_FILE}: {error}"))
    }

    /// The file's content: the same for equal documents.
    #[must_use]
    pub fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// What tells its workers from others of the app: made of the file's content without what it has replaced, and without settings.
    #[must_use]
    pub fn version(&self) -> u64 {
        fingerprint(&[&Self { replaces: Vec::new(), settings: None, ..self.clone() }.to_json()])
    }

    /// Whether its workers dial the server.
    #[must_use]
    pub fn dials_in(&self) -> bool {
        self.address == WorkerAddress::DialIn
    }

    /// The same document, which remembers that it has replaced `before`, and keeps its settings.
    #[must_use]
    pub fn replacing(mut self, before: &Self) -> Self {
        let own = self.version();
        self.settings.clone_from(&before.settings);
        self.replaces.clone_from(&before.replaces);
        self.replaces.push(before.version());
        self.replaces.retain(|version| *version != own);
        let oldest = self.replaces.len().saturating_sub(REPLACED_VERSIONS);
        self.replaces.drain(..oldest);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::super::{ProtocolRange, WorkerMode};
    use super::*;

    #[test]
    fn http2_needs_a_url_that_says_so_or_tls() {
        let may_be = |url: &str| WorkerAddress::Url(url.to_owned()).may_be_http2();
        assert!(may_be("h2c://127.0.0.1:1") && may_be("H2C://a") && may_be("HTTPS://a") && may_be("https://a/b"));
        assert!(!may_be("http://a") && !may_be("127.0.0.1") && !WorkerAddress::DialIn.may_be_http2());
    }

    fn signed_with(secret: &str) -> RequestSigning {
        RequestSigning { secret: Some(secret.to_owned()), signature: None }
    }

    #[test]
    fn a_document_comes_back_and_its_secret_is_not_shown() {
        let discovery = Discovery {
            protocol: ProtocolRange { min: 1, max: 1 },
            mode: WorkerMode::RequestReply,
            sdk: String::new(),
            concurrency: None,
            services: vec![],
        };
        for address in [WorkerAddress::Url("http://127.0.0.1:1".into()), WorkerAddress::DialIn] {
            let signing = signed_with("very secret");
            let document =
                WorkerDocument { address, signing, discovery: discovery.clone(), replaces: vec![], settings: None };
            assert!(!format!("{document:?}").contains("very secret"));
            assert_eq!(WorkerDocument::from_json(&document.to_json()), Ok(document));
        }
        // Files of earlier versions are read, and what is new is a member of its own.
        for signing in ["", r#""secret":"s","#, r#""signature":"ed25519","#] {
            let stored = format!(
                r#"{{"address":{{"url":"http://a"}},{signing}"discovery":{{"protocol":{{"min":1,"max":1}},"mode":"request-reply","services":[]}}}}"#
            );
            let read = WorkerDocument::from_json(stored.as_bytes()).expect("valid");
            assert_eq!(read.to_json(), stored.as_bytes());
        }
    }

    #[test]
    fn a_url_may_say_http2_without_tls_and_is_checked_like_others() {
        assert_eq!(worker_http_url("H2C://a:1/b"), ("http://a:1/b".into(), true));
        assert_eq!(worker_http_url("https://a/h2c://b"), ("https://a/h2c://b".into(), false));
        let check = |url: &str, signing: &RequestSigning| WorkerAddress::Url(url.to_owned()).check(signing);
        let unsigned = RequestSigning::default();
        assert_eq!(check("h2c://127.0.0.1:8081", &unsigned), Ok(()));
        assert_eq!(check("h2c://example.com", &signed_with("0123456789abcdef")), Ok(()));
        let ed25519 = RequestSigning { secret: None, signature: Some(WorkerSignature::Ed25519) };
        assert_eq!(check("h2c://example.com", &ed25519), Ok(()));
        let both = RequestSigning { signature: ed25519.signature, ..signed_with("0123456789abcdef") };
        assert!(check("h2c://example.com", &both).expect_err("one of both").message.contains("not with both"));
        for (url, reason) in [
            ("h2c://example.com", "takes signed requests only"),
            ("h2c://localhost/?a", "has a query"),
            ("h2://localhost", "the worker's URL"),
        ] {
            let error = check(url, &unsigned).expect_err(url);
            assert!(error.message.contains(reason), "{url}: {}", error.message);
        }
    }

    #[test]
    fn a_document_remembers_what_it_has_replaced() {
        let version = |sdk: &str| WorkerDocument {
            address: WorkerAddress::DialIn,
            signing: RequestSigning::default(),
            discovery: Discovery {
                protocol: ProtocolRange { min: 1, max: 1 },
                mode: WorkerMode::RequestReply,
                sdk: sdk.to_owned(),
                concurrency: None,
                services: vec![],
            },
            replaces: vec![],
            settings: None,
        };
        let (first, second) = (version("1"), version("2"));
        let now = second.clone().replacing(&first);
        assert_eq!((now.replaces.clone(), now.version()), (vec![first.version()], second.version()));
        assert_eq!(WorkerDocument::from_json(&now.to_json()), Ok(now.clone()));

        let back = first.clone().replacing(&now);
        assert_eq!(back.replaces, [second.version()], "what serves again is not among the replaced");

        let many = (3..200).fold(back, |before, number| version(&number.to_string()).replacing(&before));
        assert_eq!(many.replaces.len(), REPLACED_VERSIONS);
    }

    #[test]
    fn settings_stay_with_the_next_version_and_are_no_version_of_their_own() {
        let document = |sdk: &str| {
            let text = format!(
                r#"{{"address":"dial-in","discovery":{{"protocol":{{"min":1,"max":1}},"mode":"request-reply","sdk":"{sdk}","services":[]}}}}"#
            );
            WorkerDocument::from_json(text.as_bytes()).expect("valid")
        };
        let settings = Some("[workers]\nconcurrency = 2\n".to_owned());
        let first = WorkerDocument { settings: settings.clone(), ..document("1") };
        assert_eq!(first.version(), document("1").version());
        assert_eq!(WorkerDocument::from_json(&first.to_json()), Ok(first.clone()));
        assert_eq!(document("2").replacing(&first).settings, settings);
    }
}
