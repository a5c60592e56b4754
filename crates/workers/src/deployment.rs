//! The workers of one program.

use millrace_base::{ByteBudget, Error};
use millrace_func::{FetchTarget, WorkerAddress, WorkerDocument, worker_http_url, worker_may_be_http2};

use crate::request::turns_budget;
use crate::signature::{Signer, SigningKeys};

/// Where the workers of a program are, and what they want.
#[derive(Debug)]
pub(crate) struct Deployment {
    /// Where they are dialled; `None` for those that dial in.
    pub url: Option<WorkerUrl>,
    /// What requests to them are signed with.
    pub signer: Option<Signer>,
    /// The version of the protocol that both sides have.
    pub protocol: u32,
    /// Tells those that dial in for it from others.
    pub name: DeploymentName,
    /// What their answers count for, if they are dialled.
    pub budget: ByteBudget,
}

/// The app, and the version of its workers.
pub(crate) type DeploymentName = (String, u64);

/// A worker's URL, without a slash at its end.
#[derive(Clone, Debug)]
pub(crate) struct WorkerUrl {
    text: String,
    /// As it is fetched.
    http_url: String,
    path: String,
    is_http2: bool,
}

impl WorkerUrl {
    /// Reads a URL.
    pub(crate) fn parse(text: &str) -> Result<Self, Error> {
        let text = text.trim_end_matches('/').to_owned();
        let (http_url, is_http2) = worker_http_url(&text);
        let http_url = http_url.into_owned();
        let path = FetchTarget::parse(&http_url)?.path_and_query().trim_end_matches('/').to_owned();
        Ok(Self { text, http_url, path, is_http2 })
    }

    /// URL and path of something below it.
    pub(crate) fn below(&self, path: &str) -> (String, String) {
        (format!("{}{path}", self.http_url), format!("{}{path}", self.path))
    }

    /// Whether the worker speaks HTTP/2 from the first byte on.
    pub(crate) fn is_http2(&self) -> bool {
        self.is_http2
    }

    /// Whether the worker speaks HTTP/2, or may choose it.
    pub(crate) fn may_be_http2(&self) -> bool {
        worker_may_be_http2(&self.text)
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }
}

impl Deployment {
    pub(crate) fn new(app: &str, document: &WorkerDocument, keys: &SigningKeys) -> Self {
        let url = match &document.address {
            // What cannot be read was refused when it was deployed.
            WorkerAddress::Url(url) => WorkerUrl::parse(url).ok(),
            WorkerAddress::DialIn => None,
        };
        let protocol = document.discovery.version();
        Self {
            url,
            signer: keys.signer(app, &document.signing),
            protocol,
            name: (app.to_owned(), document.version()),
            budget: turns_budget(),
        }
    }
}
