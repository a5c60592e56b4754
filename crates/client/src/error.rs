//! Errors of the client, divided by what a caller can do about them.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The server's description of an error: an RFC 9457 problem document.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Problem {
    /// The HTTP status.
    #[serde(default)]
    pub status: u16,
    /// The stable code, such as `aborted`; names a page of the docs. Empty if the answer had none.
    #[serde(default)]
    pub code: String,
    /// A sentence that holds for every error of this code.
    #[serde(default)]
    pub title: String,
    /// The occurrence, for a person.
    #[serde(default)]
    pub detail: String,
    /// Every other member of the document, such as the payload of a function's `Abort`.
    #[serde(flatten)]
    pub members: serde_json::Map<String, serde_json::Value>,
}

/// Why a request has no result.
#[derive(Clone, Debug, PartialEq)]
pub enum ClientError {
    /// The base URL, a name or an input cannot be sent at all.
    BadRequest(String),
    /// No connection could be made; the request was not sent.
    Connect(String),
    /// The server's certificate was not accepted, or no authority is known. The request was not sent.
    Tls(String),
    /// The connection broke after the request was sent: it may have taken effect.
    Interrupted(String),
    /// No reply within the timeout: the request may have taken effect.
    Timeout(Duration),
    /// The server answered with an error.
    Problem(Box<Problem>),
    /// The server answered something that is not in the contract.
    BadReply(String),
    /// A folder cannot be packed for deployment.
    Pack(String),
}

impl ClientError {
    /// The problem document, if the server sent one.
    #[must_use]
    pub fn problem(&self) -> Option<&Problem> {
        match self {
            ClientError::Problem(problem) => Some(problem),
            _ => None,
        }
    }

    /// The stable error code, if the server sent one.
    #[must_use]
    pub fn code(&self) -> Option<&str> {
        self.problem().map(|problem| problem.code.as_str()).filter(|code| !code.is_empty())
    }

    /// The HTTP status of the server's answer, if it is an error.
    #[must_use]
    pub fn status(&self) -> Option<u16> {
        self.problem().map(|problem| problem.status)
    }

    /// Whether the same request may succeed later. Sending it again is safe only with an
    /// idempotency key, unless the error is [`ClientError::Connect`].
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            ClientError::Connect(_) | ClientError::Interrupted(_) | ClientError::Timeout(_) => true,
            ClientError::Problem(problem) => problem.status == 503,
            ClientError::Tls(_) | ClientError::BadRequest(_) | ClientError::BadReply(_) | ClientError::Pack(_) => false,
        }
    }
}

impl fmt::Display for ClientError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClientError::BadRequest(message)
            | ClientError::Connect(message)
            | ClientError::Tls(message)
            | ClientError::Pack(message) => formatter.write_str(message),
            ClientError::Interrupted(message) => {
                write!(formatter, "the connection broke before the reply, the request may have taken effect: {message}")
            }
            ClientError::Timeout(limit) => {
                write!(formatter, "no reply within {limit:?}, the request may have taken effect")
            }
            ClientError::Problem(problem) => {
                let code = if problem.code.is_empty() { "error" } else { &problem.code };
                let text = if problem.detail.is_empty() { &problem.title } else { &problem.detail };
                write!(formatter, "{code} ({}): {text}", problem.status)
            }
            ClientError::BadReply(message) => write!(formatter, "unexpected reply: {message}"),
        }
    }
}

impl std::error::Error for ClientError {}
