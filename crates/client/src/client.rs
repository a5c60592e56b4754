//! The published HTTP contract as methods.

use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::{Method, Request};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::transport::{Reply, Transport};
use crate::{ClientError, Problem, pack_directory};

/// Bytes that a path segment encodes. `{` and `}` of a key's tag are among them.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// The longest pause between two attempts, even if the server asks for more.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// The pause before the first repetition if the server names none. It doubles each time.
const FIRST_PAUSE: Duration = Duration::from_millis(50);

/// Which of an entity's fields [`Client::state_page`] reads, in the order of their names.
#[derive(Clone, Copy, Debug, Default)]
pub struct FieldFilter<'a> {
    /// Only fields whose names begin so.
    pub prefix: Option<&'a str>,
    /// Only fields behind this one.
    pub after: Option<&'a str>,
    /// At most so many; all when `None`.
    pub limit: Option<usize>,
}

/// How a [`Client`] behaves.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// Sent as `Authorization: Bearer …`.
    pub api_key: Option<String>,
    /// A file of certificate authorities (PEM), trusted for `https` instead of those of the operating system.
    pub authorities: Option<PathBuf>,
    /// Bounds a request with all its repetitions.
    pub timeout: Duration,
    /// The most repetitions of a request with an idempotency key.
    pub retries: u32,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self { api_key: None, authorities: None, timeout: Duration::from_secs(30), retries: 8 }
    }
}

/// One call of one handler, to be called now or sent for later.
#[derive(Clone, Debug)]
pub struct Call<'a> {
    app: Option<&'a str>,
    service: &'a str,
    key: &'a str,
    handler: &'a str,
    input: Bytes,
    idempotency_key: Option<&'a str>,
    delay: Duration,
    id: Option<&'a str>,
}

impl<'a> Call<'a> {
    /// A call without input.
    #[must_use]
    pub fn new(service: &'a str, key: &'a str, handler: &'a str) -> Self {
        Self {
            app: None,
            service,
            key,
            handler,
            input: Bytes::new(),
            idempotency_key: None,
            delay: Duration::ZERO,
            id: None,
        }
    }

    /// Names the app. A call needs it while several apps have a service of this name.
    #[must_use]
    pub fn app(self, app: &'a str) -> Self {
        Self { app: Some(app), ..self }
    }

    /// The input, as JSON text.
    #[must_use]
    pub fn json(self, text: impl Into<Bytes>) -> Self {
        Self { input: text.into(), ..self }
    }

    /// The input, as a value.
    ///
    /// # Errors
    /// If the value has no JSON form.
    pub fn input<T: Serialize + ?Sized>(self, value: &T) -> Result<Self, ClientError> {
        match serde_json::to_vec(value) {
            Ok(text) => Ok(self.json(text)),
            Err(error) => Err(ClientError::BadRequest(format!("the input has no JSON form: {error}"))),
        }
    }

    /// The call takes effect once, however often it is sent, and the client may repeat it.
    #[must_use]
    pub fn idempotency_key(self, key: &'a str) -> Self {
        Self { idempotency_key: Some(key), ..self }
    }

    /// For [`Client::send`]: how long the server waits before it runs the handler.
    #[must_use]
    pub fn delay(self, delay: Duration) -> Self {
        Self { delay, ..self }
    }

    /// For [`Client::send`]: the id that the workflow is to have. It is started unless it has been.
    #[must_use]
    pub fn id(self, id: &'a str) -> Self {
        Self { id: Some(id), ..self }
    }

    fn path(&self, verb: &str) -> String {
        let tail = format!("/{verb}/{}/{}/{}", segment(self.service), segment(self.key), segment(self.handler));
        match self.app {
            Some(app) => format!("/apps/{}{tail}", segment(app)),
            None => tail,
        }
    }
}

/// Whether the node serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Health {
    /// Requests would be served.
    pub is_serving: bool,
}

/// A client of one node. Cheap to share behind an `Arc`; needs a tokio runtime.
pub struct Client {
    pub(crate) transport: Transport,
    authorization: Option<HeaderValue>,
    pub(crate) options: ClientOptions,
}

impl Client {
    /// A client of the node at `base_url`, such as `http://127.0.0.1:8080` or `https://db.example.org`. Connects on
    /// first use; for `https` it reads the certificate authorities now.
    ///
    /// # Errors
    /// If the URL, the API key or the certificate authorities cannot be used.
    pub fn new(base_url: &str, options: ClientOptions) -> Result<Self, ClientError> {
        let transport = Transport::new(base_url, options.authorities.as_deref())?;
        let authorization = match &options.api_key {
            None => None,
            Some(key) => {
                let mut value = HeaderValue::from_str(&format!("Bearer {key}"))
                    .map_err(|_| ClientError::BadRequest("the API key holds characters no header may hold".into()))?;
                value.set_sensitive(true);
                Some(value)
            }
        };
        Ok(Self { transport, authorization, options })
    }

    /// Whether others can read the API key on its way: it goes to another machine without TLS.
    #[must_use]
    pub fn exposes_key(&self) -> bool {
        self.authorization.is_some() && self.transport.can_be_overheard()
    }

    /// Runs a handler as one transaction; the output is JSON text.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn call(&self, call: &Call<'_>) -> Result<Bytes, ClientError> {
        let reply = self.post_call(call, &call.path("call")).await?;
        Ok(reply.body)
    }

    /// [`Client::call`], with the output as a value.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn call_value<T: DeserializeOwned>(&self, call: &Call<'_>) -> Result<T, ClientError> {
        parse(&self.call(call).await?)
    }

    /// Enqueues a call. Returns its invocation id when it is durable.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn send(&self, call: &Call<'_>) -> Result<String, ClientError> {
        #[derive(Deserialize)]
        struct Sent {
            id: String,
        }
        let mut path = call.path("send");
        if !call.delay.is_zero() {
            path.push_str(&format!("?delay_ms={}", call.delay.as_millis()));
        }
        if let Some(id) = call.id {
            path.push_str(&format!("{}id={}", if path.contains('?') { '&' } else { '?' }, segment(id)));
        }
        let reply = self.post_call(call, &path).await?;
        parse::<Sent>(&reply.body).map(|sent| sent.id)
    }

    /// An entity's committed state: all fields as a JSON object, or one field as it is stored.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn state(
        &self,
        app: Option<&str>,
        service: &str,
        key: &str,
        field: Option<&str>,
    ) -> Result<Bytes, ClientError> {
        let suffix = field.map(|field| format!("/{}", segment(field))).unwrap_or_default();
        Ok(self.get(&(state_path(app, service, key) + &suffix)).await?.body)
    }

    /// Some of an entity's fields, as a JSON object. Others may write between two pages.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn state_page(
        &self,
        app: Option<&str>,
        service: &str,
        key: &str,
        fields: &FieldFilter<'_>,
    ) -> Result<Bytes, ClientError> {
        let limit = fields.limit.map(|limit| limit.to_string());
        let parameters = [("prefix", fields.prefix), ("after", fields.after), ("limit", limit.as_deref())];
        Ok(self.get(&with_query(&state_path(app, service, key), &parameters)).await?.body)
    }

    /// Deploys the app in `directory`. Returns the server's description of it.
    ///
    /// # Errors
    /// See [`ClientError`]; a refused app is a [`ClientError::Problem`] naming file, line and column.
    pub async fn deploy(&self, app: &str, directory: &Path) -> Result<serde_json::Value, ClientError> {
        self.deploy_archive(app, pack_directory(directory)?.into()).await
    }

    /// Deploys an app from a tar archive, such as [`pack_directory`] makes.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn deploy_archive(&self, app: &str, archive: Bytes) -> Result<serde_json::Value, ClientError> {
        let request = Prepared {
            method: Method::PUT,
            path: &format!("/apps/{}", segment(app)),
            content_type: "application/x-tar",
            body: archive,
            idempotency_key: None,
        };
        parse(&self.request(&request).await?.body)
    }

    /// Deploys an app whose handlers run in workers: one of them is at `worker`. Without it, workers that have dialled in get
    /// other settings. Requests to them are signed with `secret`, or as `signature` says. `settings` are what `millrace.toml` says of an app whose handlers run in the server.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn deploy_worker(
        &self,
        app: &str,
        worker: Option<&str>,
        (secret, signature): (Option<&str>, Option<&str>),
        settings: Option<&str>,
    ) -> Result<serde_json::Value, ClientError> {
        let mut body = serde_json::json!({ "worker": worker, "secret": secret });
        // Older servers do not know the member.
        if let Some(signature) = signature {
            body["signature"] = signature.into();
        }
        if let Some(settings) = settings {
            body["settings"] = settings.into();
        }
        let body = body.to_string();
        let request = Prepared {
            method: Method::PUT,
            path: &format!("/apps/{}", segment(app)),
            content_type: "application/json",
            body: body.into(),
            idempotency_key: None,
        };
        parse(&self.request(&request).await?.body)
    }

    /// The public key with which workers of an app verify requests, as the server describes it.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn worker_key(&self, app: &str) -> Result<serde_json::Value, ClientError> {
        parse(&self.get(&format!("/apps/{}/worker-key", segment(app))).await?.body)
    }

    /// Removes an app; its state stays and comes back with the app.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn remove_app(&self, app: &str) -> Result<(), ClientError> {
        let path = format!("/apps/{}", segment(app));
        self.request(&Prepared { method: Method::DELETE, ..Prepared::get(&path) }).await.map(|_| ())
    }

    /// The deployed apps, as the server describes them.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn apps(&self) -> Result<serde_json::Value, ClientError> {
        parse(&self.get("/apps").await?.body)
    }

    /// An app with its versions and what runs in each, as the server describes it.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn app_versions(&self, app: &str) -> Result<serde_json::Value, ClientError> {
        parse(&self.get(&format!("/apps?app={}", segment(app))).await?.body)
    }

    /// Whether the node serves. A reply that says "not now" is no error. A missing reply is one.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn health(&self) -> Result<Health, ClientError> {
        match self.get("/healthz").await {
            Ok(_) => Ok(Health { is_serving: true }),
            Err(ClientError::Problem(problem)) if problem.status == 503 => Ok(Health { is_serving: false }),
            Err(error) => Err(error),
        }
    }

    /// Whether the node serves writes too; in a cluster, whether it knows who owns what. As [`Client::health`] otherwise.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn is_ready(&self) -> Result<bool, ClientError> {
        match self.get("/readyz").await {
            Ok(_) => Ok(true),
            Err(ClientError::Problem(problem)) if problem.status == 503 => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The guidance of the node's cluster, as the server gives it.
    ///
    /// # Errors
    /// See [`ClientError`]; `unknown-route` for a node by itself.
    pub async fn guidance(&self) -> Result<serde_json::Value, ClientError> {
        parse(&self.get("/cluster").await?.body)
    }

    /// Makes room in the node's cluster for one more node, which will serve and hear others at these addresses. It may stand in a
    /// rack. Gives its number, and what it has to know, as the server says it. Repeated for the same addresses it gives the same
    /// number.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn add_node(&self, http: &str, peer: &str, rack: Option<&str>) -> Result<serde_json::Value, ClientError> {
        let mut body = serde_json::json!({ "http": http, "peer": peer });
        if let Some(rack) = rack {
            body["rack"] = rack.into();
        }
        let request = Prepared {
            method: Method::POST,
            path: "/cluster/nodes",
            content_type: "application/json",
            body: body.to_string().into(),
            idempotency_key: None,
        };
        parse(&self.request(&request).await?.body)
    }

    /// Has what a node holds moved to others, or no longer. [`Client::guidance`] shows how far that is.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn drain_node(&self, node: u16, is_draining: bool) -> Result<(), ClientError> {
        let path = format!("/cluster/nodes/{node}/{}", if is_draining { "drain" } else { "keep" });
        self.request(&Prepared { method: Method::POST, ..Prepared::get(&path) }).await.map(|_| ())
    }

    /// Removes a node that holds nothing any more, for good.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn remove_node(&self, node: u16) -> Result<(), ClientError> {
        let path = format!("/cluster/nodes/{node}");
        self.request(&Prepared { method: Method::DELETE, ..Prepared::get(&path) }).await.map(|_| ())
    }

    pub(crate) async fn get(&self, path: &str) -> Result<Reply, ClientError> {
        self.request(&Prepared::get(path)).await
    }

    async fn post_call(&self, call: &Call<'_>, path: &str) -> Result<Reply, ClientError> {
        let request = Prepared {
            method: Method::POST,
            path,
            content_type: "application/json",
            body: call.input.clone(),
            idempotency_key: call.idempotency_key,
        };
        self.request(&request).await
    }

    /// Sends a request, and repeats it until the deadline if that is safe.
    pub(crate) async fn request(&self, prepared: &Prepared<'_>) -> Result<Reply, ClientError> {
        let deadline = Instant::now() + self.options.timeout;
        let mut tries = 0;
        loop {
            let request = self.build(prepared)?;
            let outcome = self.transport.exchange(request, deadline, self.options.timeout).await;
            let (error, wish) = match outcome {
                Ok(reply) if (200..300).contains(&reply.status) => return Ok(reply),
                Ok(reply) => (ClientError::Problem(Box::new(problem_of(&reply))), reply.retry_after),
                Err(error) => (error, None),
            };
            let may_repeat = prepared.idempotency_key.is_some() && error.is_retryable() && tries < self.options.retries;
            let pause = wish.unwrap_or_else(|| backoff(tries)).min(LONGEST_PAUSE);
            if !may_repeat || Instant::now() + pause >= deadline {
                return Err(error);
            }
            tokio::time::sleep(pause).await;
            tries += 1;
        }
    }

    pub(crate) fn build(&self, prepared: &Prepared<'_>) -> Result<Request<Full<Bytes>>, ClientError> {
        let mut request = Request::builder().method(&prepared.method).uri(prepared.path);
        if let Some(value) = &self.authorization {
            request = request.header(AUTHORIZATION, value);
        }
        if !prepared.content_type.is_empty() {
            request = request.header(CONTENT_TYPE, prepared.content_type);
        }
        if let Some(key) = prepared.idempotency_key {
            request = request.header(IDEMPOTENCY_KEY, key);
        }
        request
            .body(Full::new(prepared.body.clone()))
            .map_err(|error| ClientError::BadRequest(format!("the request cannot be sent: {error}")))
    }
}

/// A request that can be built for each attempt.
pub(crate) struct Prepared<'a> {
    pub(crate) method: Method,
    pub(crate) path: &'a str,
    pub(crate) content_type: &'static str,
    pub(crate) body: Bytes,
    pub(crate) idempotency_key: Option<&'a str>,
}

impl<'a> Prepared<'a> {
    pub(crate) fn get(path: &'a str) -> Self {
        Self { method: Method::GET, path, content_type: "", body: Bytes::new(), idempotency_key: None }
    }
}

fn state_path(app: Option<&str>, service: &str, key: &str) -> String {
    let prefix = app.map(|app| format!("/apps/{}", segment(app))).unwrap_or_default();
    format!("{prefix}/state/{}/{}", segment(service), segment(key))
}

/// `path` with those parameters that have a value.
pub(crate) fn with_query(path: &str, parameters: &[(&str, Option<&str>)]) -> String {
    let mut text = path.to_owned();
    let mut separator = '?';
    for (name, value) in parameters {
        if let Some(value) = value {
            text.push_str(&format!("{separator}{name}={}", segment(value)));
            separator = '&';
        }
    }
    text
}

pub(crate) fn segment(text: &str) -> String {
    match text {
        // Programs on the way would take a path of dots for a relative one.
        "." => "%2E".to_owned(),
        ".." => "%2E%2E".to_owned(),
        _ => utf8_percent_encode(text, SEGMENT).to_string(),
    }
}

pub(crate) fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, ClientError> {
    serde_json::from_slice(body).map_err(|error| ClientError::BadReply(format!("{error} in {}", excerpt(body))))
}

/// The server's problem document. If something else answered, a problem made from its reply.
pub(crate) fn problem_of(reply: &Reply) -> Problem {
    let parsed = reply.content_type.contains("json").then(|| serde_json::from_slice::<Problem>(&reply.body).ok());
    let mut problem = parsed.flatten().unwrap_or_else(|| Problem {
        title: "The server answered without a problem document".to_owned(),
        detail: excerpt(&reply.body),
        ..Problem::default()
    });
    problem.status = reply.status;
    problem
}

fn excerpt(body: &[u8]) -> String {
    String::from_utf8_lossy(&body[..body.len().min(200)]).into_owned()
}

/// Doubles each time, plus a random part of up to the same length, so that callers spread.
fn backoff(tries: u32) -> Duration {
    let base = FIRST_PAUSE * (1 << tries.min(8));
    base + base.mul_f64(rand::random::<f64>())
}
