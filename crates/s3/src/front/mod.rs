//! Requests, answered: authenticate, translate, stream, translate back.
//!
//! One [`Front`] serves one core. A request never leaves its core before it reaches the store.

mod arriving;
mod authenticate;
mod copy;
mod cors;
mod document;
mod get;
mod options;
mod post;
mod put;
mod reply_body;
mod respond;
mod translate;

use std::cell::{Cell, RefCell};
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use http::request::Parts;
use http::{HeaderValue, Method, Request, Response};
use hyper::body::Incoming;
use millrace_api::objects::{ObjectOperation, ObjectReply, ObjectRequest, Objects, Requester};

use crate::error::{Code, S3Error};
use crate::metrics::{CoreMetrics, Kind};
use crate::operation::{Head, check_headers};
use crate::route::{Action, Query, Target, action, target};
use crate::signature::SigningKeys;
use crate::users::Users;

use arriving::Arriving;
use authenticate::Identity;
pub use options::{Options, Timeouts};
pub use reply_body::ReplyBody;

/// One core's front.
pub struct Front<B, U> {
    backend: B,
    users: U,
    options: Arc<Options>,
    signing_keys: RefCell<SigningKeys>,
    /// Makes request ids that nobody can guess from others.
    ids: RandomState,
    requests: Cell<u64>,
    host_id: String,
    metrics: Arc<CoreMetrics>,
}

/// What is known of the connection that a request came on.
#[derive(Clone, Copy, Debug)]
pub struct Peer {
    /// Its address.
    pub address: Option<IpAddr>,
    /// Whether it is encrypted.
    pub is_encrypted: bool,
}

/// A reply as hyper takes it.
pub(crate) type Reply<B> = Response<ReplyBody<<B as Objects>::BodyRead>>;

/// A request that was routed and authenticated, without its body.
pub(crate) struct RoutedRequest<'a> {
    pub(crate) action: Action,
    pub(crate) target: &'a Target,
    pub(crate) head: Head<'a>,
    pub(crate) identity: &'a Identity,
    pub(crate) peer: Peer,
    pub(crate) host: &'a str,
}

impl<'a> RoutedRequest<'a> {
    /// Who asks, as the store wants to know it.
    pub(crate) fn requester(&self) -> Result<Requester<'a>, S3Error> {
        Ok(Requester {
            id: self.identity.id.as_deref(),
            name: &self.identity.name,
            is_system: false,
            address: self.peer.address,
            is_encrypted: self.peer.is_encrypted,
            referer: self.head.header("referer").ok().flatten().unwrap_or_default(),
            user_agent: self.head.header("user-agent").ok().flatten().unwrap_or_default(),
            expected_bucket_owner: self.head.header("x-amz-expected-bucket-owner")?.unwrap_or_default(),
            auth_kind: self.identity.auth_kind,
            signature_version: self.identity.signature_version,
        })
    }
}

impl<B: Objects, U: Users> Front<B, U> {
    /// A front of this store for these users.
    #[must_use]
    pub fn new(backend: B, users: U, options: Arc<Options>) -> Rc<Self> {
        let ids = RandomState::new();
        let host_id = format!("{:016x}{:016x}", ids.hash_one("host"), ids.hash_one("id"));
        let signing_keys = RefCell::new(SigningKeys::default());
        let metrics = options.metrics.add_core();
        Rc::new(Self { backend, users, options, signing_keys, ids, requests: Cell::new(0), host_id, metrics })
    }

    /// Answers a request. Whatever is wrong becomes an error document.
    pub async fn answer(&self, request: Request<Incoming>, peer: Peer) -> Reply<B> {
        let began = Instant::now();
        let mut kind = Kind::Other;
        let count = self.requests.get().wrapping_add(1);
        self.requests.set(count);
        let request_id = format!("{:016X}", self.ids.hash_one(count));
        let (parts, body) = request.into_parts();
        let mut body = Arriving::new(body, &parts, self.options.timeouts.body_stall);
        let mut reply = match Box::pin(self.answer_or_refuse(&parts, &mut body, peer, &mut kind)).await {
            Ok(reply) => reply,
            Err(error) => {
                body.discard().await;
                respond::refusal(&error, &parts, &request_id, &self.host_id)
            }
        };
        let is_refused = reply.status().is_client_error() || reply.status().is_server_error();
        let headers = reply.headers_mut();
        if is_refused && body.is_left() {
            headers.insert("connection", HeaderValue::from_static("close"));
        }
        if let Ok(value) = HeaderValue::from_str(&request_id) {
            headers.insert("x-amz-request-id", value);
        }
        if let Ok(value) = HeaderValue::from_str(&self.host_id) {
            headers.insert("x-amz-id-2", value);
        }
        let server = if self.options.is_null_store { "Millrace null store: keeps nothing" } else { "Millrace" };
        headers.insert("server", HeaderValue::from_static(server));
        self.metrics.count_request(kind, reply.status().as_u16(), began);
        reply
    }

    pub(crate) fn metrics(&self) -> &Arc<CoreMetrics> {
        &self.metrics
    }

    async fn answer_or_refuse(
        &self,
        parts: &Parts,
        body: &mut Arriving,
        peer: Peer,
        kind: &mut Kind,
    ) -> Result<Reply<B>, S3Error> {
        let host = host_of(parts)?;
        let target = target(host, &self.options.domains, parts.uri.path())?;
        let query = Query::parse(parts.uri.query().unwrap_or_default())?;
        let head = Head { headers: &parts.headers, query: &query, region: &self.options.region };
        let action = action(&parts.method, &target, &query, &parts.headers)?;
        *kind = action.into();
        if action == Action::Preflight {
            return self.preflight(&target, &head).await;
        }
        let mut result = self.dispatch(action, parts, &target, head, host, body, peer).await;
        if !target.bucket.is_empty() && parts.headers.contains_key("origin") {
            result = match result {
                Ok(mut reply) => {
                    self.allow_origin(&target, &head, &parts.method, reply.headers_mut()).await;
                    Ok(reply)
                }
                // The page may read why its request was refused.
                Err(error) => {
                    body.discard().await;
                    let mut reply = respond::refusal(&error, parts, "", &self.host_id);
                    self.allow_origin(&target, &head, &parts.method, reply.headers_mut()).await;
                    Ok(reply)
                }
            };
        }
        result
    }

    #[expect(clippy::too_many_arguments, reason = "they are the request's parts, each borrowed from elsewhere")]
    async fn dispatch(
        &self,
        action: Action,
        parts: &Parts,
        target: &Target,
        head: Head<'_>,
        host: &str,
        body: &mut Arriving,
        peer: Peer,
    ) -> Result<Reply<B>, S3Error> {
        if action == Action::PostForm {
            return Box::pin(self.post(parts, target, host, peer, body)).await;
        }
        let identity = self.authenticate(parts, target, host)?;
        check_headers(&parts.headers)?;
        body.expect(&identity, &head)?;
        let asked = RoutedRequest { action, target, head, identity: &identity, peer, host };
        match action {
            Action::GetObject | Action::HeadObject => self.get(&asked, &parts.method).await,
            Action::PutObject | Action::UploadPart => self.put(&asked, body).await,
            Action::CopyObject | Action::UploadPartCopy => self.copy(&asked).await,
            _ => self.document(&asked, body).await,
        }
    }

    /// Asks the store for something without a body.
    pub(crate) async fn ask(
        &self,
        requester: Requester<'_>,
        bucket: &str,
        key: &str,
        operation: ObjectOperation,
    ) -> Result<ObjectReply, S3Error> {
        let request = ObjectRequest { requester, bucket, key, operation, body: bytes::Bytes::new() };
        self.backend.object(request, None).reply().await.map_err(translate::error)
    }

    /// Whether a write is allowed, before its body is read.
    pub(crate) async fn check_write(
        &self,
        asked: &RoutedRequest<'_>,
        size_bytes: u64,
        write: ObjectOperation,
    ) -> Result<(), S3Error> {
        let operation = ObjectOperation::CheckWrite { size_bytes: Some(size_bytes), write: Box::new(write) };
        let target = asked.target;
        self.ask(asked.requester()?, &target.bucket, &target.key, operation).await.map(drop)
    }
}

/// The node itself, as who asks.
pub(crate) fn system() -> Requester<'static> {
    Requester { is_system: true, ..Requester::default() }
}

fn host_of(parts: &Parts) -> Result<&str, S3Error> {
    let header = parts.headers.get("host").and_then(|value| value.to_str().ok());
    let host = header.or_else(|| parts.uri.authority().map(http::uri::Authority::as_str));
    host.ok_or_else(|| S3Error::new(Code::InvalidRequest, "The header Host is needed."))
}

fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Whether a reply to this method has no body.
pub(crate) fn is_head(method: &Method) -> bool {
    method == Method::HEAD
}
