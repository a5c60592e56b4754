//! The file that makes an app one of workers.

use std::fmt;

use millrace_api::{Error, ErrorCode};
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

impl WorkerAddress {
    /// Refuses workers that anybody could be, or could invoke.
    ///
    /// # Errors
    /// `app-refused`, saying why.
    pub fn check(&self, secret: Option<&str>) -> Result<(), Error> {
        let refused = |message: String| Err(Error::new(ErrorCode::AppRefused, message));
        if secret.is_some_and(|secret| secret.len() < SECRET_BYTES) {
            return refused(format!("the worker's secret has fewer than {SECRET_BYTES} bytes"));
        }
        let WorkerAddress::Url(url) = self else { return Ok(()) };
        let target = match FetchTarget::parse(url) {
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
        if !is_here && secret.is_none() {
            return refused(
                "a worker on another machine needs a secret: deploy it with --worker-secret FILE".to_owned(),
            );
        }
        Ok(())
    }
}

/// What is in the file. It is stored, so members may be added, and none changes its meaning.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerDocument {
    /// Where its workers are.
    pub address: WorkerAddress,
    /// What requests to them are signed with. No answer of the server has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
    /// What they serve.
    pub discovery: Discovery,
}

/// The secret does not get into logs.
impl fmt::Debug for WorkerDocument {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { address, secret, discovery } = self;
        let secret = secret.as_ref().map(|_| "…");
        let mut shown = formatter.debug_struct("WorkerDocument");
        shown.field("address", address).field("secret", &secret).field("discovery", discovery).finish()
    }
}

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
}

#[cfg(test)]
mod tests {
    use super::super::{ProtocolRange, WorkerMode};
    use super::*;

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
            let document = WorkerDocument { address, secret: Some("very secret".into()), discovery: discovery.clone() };
            assert!(!format!("{document:?}").contains("very secret"));
            assert_eq!(WorkerDocument::from_json(&document.to_json()), Ok(document));
        }
        // Files of earlier versions are read.
        let stored = br#"{"address":{"url":"http://a"},"discovery":{"protocol":{"min":1,"max":1},"mode":"request-reply","services":[]}}"#;
        let read = WorkerDocument::from_json(stored).expect("valid");
        assert_eq!(read.to_json(), stored);
    }
}
