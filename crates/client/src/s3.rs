//! A bucket of S3, as far as whoever keeps files in it needs one: get, put, list, delete.
//!
//! Buckets are in the path (`/bucket/key`), which every server of S3 takes. Each request is signed, with the hash of its
//! body, and repeated if that can help: all four have the same effect the second time.

use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::Request;
use millrace_signing::{Credentials, Signer, Unsigned, encode, hex};
use sha2::{Digest, Sha256};
use tokio::time::{Instant, sleep};

use crate::transport::{Reply, Transport};
use crate::{ClientError, Problem};

/// Bounds one attempt.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Attempts of one request.
const ATTEMPTS: u32 = 6;

/// The pause before the second attempt. It doubles each time.
const PAUSE: Duration = Duration::from_millis(100);

/// An object, as a list shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct S3Object {
    /// Its key.
    pub key: String,
    /// Its length.
    pub bytes: u64,
}

/// One bucket.
pub struct S3Bucket {
    transport: Transport,
    signer: Mutex<Signer>,
    bucket: String,
}

/// What differs between the four requests.
struct Operation<'a> {
    method: &'static str,
    key: &'a str,
    /// Percent-encoded, names in order.
    query: &'a str,
    body: &'a Bytes,
    /// The statuses that are answers.
    wanted: &'a [u16],
}

impl S3Bucket {
    /// A bucket at `endpoint`, such as `https://s3.eu-central-1.amazonaws.com`. `authorities` is a file of trusted ones.
    ///
    /// # Errors
    /// If the endpoint or the authorities cannot be used.
    pub fn new(
        endpoint: &str,
        authorities: Option<&Path>,
        bucket: &str,
        credentials: Credentials,
    ) -> Result<Self, ClientError> {
        let transport = Transport::new(endpoint, authorities)?;
        Ok(Self { transport, signer: Mutex::new(Signer::new(credentials)), bucket: bucket.to_owned() })
    }

    /// An object's bytes; `None` where there is none.
    ///
    /// # Errors
    /// See [`ClientError`]; what the server answers is a [`ClientError::Problem`] with the code of S3.
    pub async fn get(&self, key: &str) -> Result<Option<Bytes>, ClientError> {
        let operation = Operation { method: "GET", key, query: "", body: &Bytes::new(), wanted: &[200, 404] };
        let reply = self.request(&operation).await?;
        if reply.status == 200 {
            return Ok(Some(reply.body));
        }
        let problem = problem_of(&operation, &reply);
        if problem.code == "NoSuchKey" { Ok(None) } else { Err(ClientError::Problem(Box::new(problem))) }
    }

    /// Makes or replaces an object; it is durable when this returns.
    ///
    /// # Errors
    /// As [`S3Bucket::get`].
    pub async fn put(&self, key: &str, body: Bytes) -> Result<(), ClientError> {
        let operation = Operation { method: "PUT", key, query: "", body: &body, wanted: &[200] };
        self.request(&operation).await.map(|_| ())
    }

    /// Deletes an object, if it is there.
    ///
    /// # Errors
    /// As [`S3Bucket::get`].
    pub async fn delete(&self, key: &str) -> Result<(), ClientError> {
        let operation = Operation { method: "DELETE", key, query: "", body: &Bytes::new(), wanted: &[200, 204] };
        self.request(&operation).await.map(|_| ())
    }

    /// All objects whose keys begin so, by key.
    ///
    /// # Errors
    /// As [`S3Bucket::get`].
    pub async fn list(&self, prefix: &str) -> Result<Vec<S3Object>, ClientError> {
        let mut objects = Vec::new();
        let mut token: Option<String> = None;
        loop {
            let from = token.as_ref().map(|token| format!("continuation-token={}&", encode(token))).unwrap_or_default();
            let query = format!("{from}list-type=2&prefix={}", encode(prefix));
            let operation = Operation { method: "GET", key: "", query: &query, body: &Bytes::new(), wanted: &[200] };
            let reply = self.request(&operation).await?;
            let text = String::from_utf8_lossy(&reply.body);
            let mut rest = &text[..];
            while let Some((contents, after)) = element(rest, "Contents") {
                let key = element(contents, "Key").map(|(key, _)| plain(key));
                let bytes = element(contents, "Size").and_then(|(size, _)| size.parse().ok());
                let (Some(key), Some(bytes)) = (key, bytes) else {
                    return Err(ClientError::BadReply("a list of objects without keys or sizes".to_owned()));
                };
                objects.push(S3Object { key, bytes });
                rest = after;
            }
            token = element(&text, "NextContinuationToken").map(|(token, _)| plain(token));
            if token.is_none() {
                return Ok(objects);
            }
        }
    }

    async fn request(&self, operation: &Operation<'_>) -> Result<Reply, ClientError> {
        let mut pause = PAUSE;
        for attempt in 1.. {
            let error = match self.attempt(operation).await {
                Ok(reply) if operation.wanted.contains(&reply.status) => return Ok(reply),
                Ok(reply) => ClientError::Problem(Box::new(problem_of(operation, &reply))),
                Err(error) => error,
            };
            let is_passing =
                error.is_retryable() || error.status().is_some_and(|status| status >= 500 || status == 429);
            if !is_passing || attempt >= ATTEMPTS {
                return Err(error);
            }
            sleep(pause).await;
            pause *= 2;
        }
        Err(ClientError::Timeout(TIMEOUT))
    }

    async fn attempt(&self, operation: &Operation<'_>) -> Result<Reply, ClientError> {
        let Operation { method, key, query, body, .. } = *operation;
        let slash = if key.is_empty() { "" } else { "/" };
        let path =
            format!("/{}{slash}{}", encode(&self.bucket), key.split('/').map(encode).collect::<Vec<_>>().join("/"));
        let payload = hex(&Sha256::digest(body));
        let host = self.transport.authority();
        let signed = {
            let mut signer = self.signer.lock().unwrap_or_else(PoisonError::into_inner);
            signer.sign(&Unsigned { method, path: &path, query, host, payload: &payload })
        };
        let mark = if query.is_empty() { "" } else { "?" };
        let request = Request::builder()
            .method(method)
            .uri(format!("{path}{mark}{query}"))
            .header("x-amz-content-sha256", payload)
            .header("x-amz-date", signed.date)
            .header("authorization", signed.authorization)
            .body(Full::new(body.clone()))
            .map_err(|error| ClientError::BadRequest(format!("the request cannot be sent: {error}")))?;
        self.transport.exchange(request, Instant::now() + TIMEOUT, TIMEOUT).await
    }
}

/// What stands in the first element of this name, and what follows it.
fn element<'a>(text: &'a str, name: &str) -> Option<(&'a str, &'a str)> {
    let (_, inside) = text.split_once(&format!("<{name}>"))?;
    inside.split_once(&format!("</{name}>"))
}

/// Text without the escapes of XML.
fn plain(text: &str) -> String {
    text.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&apos;", "'").replace("&amp;", "&")
}

/// The server's answer with the code and the sentence that servers of S3 give.
fn problem_of(operation: &Operation<'_>, reply: &Reply) -> Problem {
    let text = String::from_utf8_lossy(&reply.body);
    let of = |name| element(&text, name).map(|(text, _)| plain(text)).unwrap_or_default();
    Problem {
        status: reply.status,
        code: of("Code"),
        title: "The bucket's server refused a request".to_owned(),
        detail: match operation.key {
            "" => of("Message"),
            key => format!("{} {key:?}: {}", operation.method, of("Message")),
        },
        ..Problem::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_found_with_their_text() {
        let text = "<A><Contents><Key>a&amp;lt;</Key><Size>5</Size></Contents><Contents><Key>b</Key></Contents></A>";
        let (first, rest) = element(text, "Contents").expect("the first");
        assert_eq!(element(first, "Key").map(|(key, _)| plain(key)), Some("a&lt;".to_owned()));
        assert_eq!(element(first, "Size").map(|(size, _)| size), Some("5"));
        let (second, rest) = element(rest, "Contents").expect("the second");
        assert_eq!(element(second, "Key").map(|(key, _)| key), Some("b"));
        assert_eq!(element(second, "Size"), None);
        assert_eq!(element(rest, "Contents"), None);
    }
}
