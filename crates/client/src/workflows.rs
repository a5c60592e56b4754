//! Sent calls, workflows, dead letters and schedules: following, listing, steering.

use std::fmt;

use bytes::Bytes;
use hyper::Method;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::client::{Prepared, parse, segment, with_query};
use crate::{Client, ClientError, Problem};

/// Longest time that a server lets a request wait for an invocation's end, in milliseconds.
const LONGEST_WAIT_MS: u128 = 60_000;

/// The state of a sent call. Only workflows have more than id, status, output and error.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Invocation {
    /// As returned by [`Client::send`].
    pub id: String,
    /// `pending`, `running`, `paused`, `succeeded`, `failed` or `cancelled`.
    pub status: String,
    /// The app.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub app: Option<String>,
    /// The service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<String>,
    /// The entity's key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<EntityKey>,
    /// The handler.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handler: Option<String>,
    /// When it began, Unix milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub began_ms: Option<u64>,
    /// When a pending invocation begins, Unix milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due_ms: Option<u64>,
    /// Its input. Not in lists.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub input: Option<Value>,
    /// The length of the input, if the reply leaves out a large one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_bytes: Option<u64>,
    /// Its output, if it has succeeded. Not in lists.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub output: Option<Value>,
    /// The length of the output, if the reply leaves out a large one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_bytes: Option<u64>,
    /// The error, if it has failed or was cancelled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Problem>,
    /// What failed of it and is tried again, or waits for somebody.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<Failure>,
    /// Its journal, in the order in which operations ended. Not in lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub journal: Option<Vec<JournalStep>>,
    /// The operations that it waits for now. Not in lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<Vec<String>>,
}

/// What failed of a workflow and has not ended.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Failure {
    /// Its number, in the order in which the workflow asked; 0 is the workflow's own code.
    pub operation: u64,
    /// `call`, `step`, `compensation`, or `code` for the workflow's own code.
    pub kind: String,
    /// Which one: a call's target or a step's name.
    pub name: String,
    /// The number of attempts.
    pub attempts: u32,
    /// When the last attempt failed, Unix milliseconds.
    pub failed_ms: u64,
    /// When it is tried again, Unix milliseconds, unless it waits for somebody.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_try_ms: Option<u64>,
    /// The error of the last attempt.
    pub error: Problem,
}

/// One operation of a workflow.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct JournalStep {
    /// Its number, in the order in which the workflow asked.
    pub operation: u64,
    /// `call`, `step`, `sleep`, `fetch`, `wait` and the like.
    pub kind: String,
    /// Which one: a call's target, a step's or signal's name, a fetch's URL.
    pub name: String,
    /// When it ended, Unix milliseconds.
    pub ended_ms: u64,
    /// Its output, unless it failed.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub output: Option<Value>,
    /// The length of the output, if the reply leaves out a large one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_bytes: Option<u64>,
    /// The error, if it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Problem>,
}

/// An entity's key, as replies show it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum EntityKey {
    /// A key that is text.
    Text(String),
    /// A key that is not UTF-8.
    Binary {
        /// Its bytes.
        base64: String,
    },
}

impl fmt::Display for EntityKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => formatter.write_str(text),
            Self::Binary { base64 } => write!(formatter, "base64:{base64}"),
        }
    }
}

/// A message that failed too often.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeadLetter {
    /// Names it.
    pub id: String,
    /// The app.
    pub app: String,
    /// The service.
    pub service: String,
    /// The entity's key.
    pub key: EntityKey,
    /// The handler.
    pub handler: String,
    /// The input of the handler.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub input: Option<Value>,
    /// The length of the input, if the reply leaves out a large one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_bytes: Option<u64>,
    /// The number of attempts.
    pub attempts: u32,
    /// When it is tried again, Unix milliseconds, if it is not a dead letter yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_try_ms: Option<u64>,
    /// The error of the last attempt, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Problem>,
}

/// A repeated call that a deployed service declares.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Schedule {
    /// The app.
    pub app: String,
    /// The service.
    pub service: String,
    /// Its name in the service.
    pub name: String,
    /// The key of the entity that it calls.
    pub key: EntityKey,
    /// The handler that it calls.
    pub handler: String,
    /// When, in UTC, as the service declares it.
    pub cron: String,
    /// When it is due next, Unix milliseconds. If that time has passed, the call is about to run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due_ms: Option<u64>,
}

/// A page of workflows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InvocationPage {
    /// The workflows.
    pub invocations: Vec<Invocation>,
    /// The value of `after` for the next page; `None` after the last page.
    pub next: Option<String>,
}

/// A page of dead letters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeadLetterPage {
    /// The dead letters.
    pub dead_letters: Vec<DeadLetter>,
    /// The value of `after` for the next page; `None` after the last page.
    pub next: Option<String>,
}

/// A page of schedules.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SchedulePage {
    /// The schedules.
    pub schedules: Vec<Schedule>,
    /// The value of `after` for the next page; `None` after the last page.
    pub next: Option<String>,
}

/// Which schedules [`Client::schedules`] lists. The default: the first page of all.
#[derive(Clone, Copy, Debug, Default)]
pub struct ScheduleFilter<'a> {
    /// Only this app's.
    pub app: Option<&'a str>,
    /// Only this service's.
    pub service: Option<&'a str>,
    /// Only those after this one, as the last page said.
    pub after: Option<&'a str>,
    /// At most so many; the server's default when `None`.
    pub limit: Option<usize>,
}

/// Which workflows [`Client::invocations`] lists. The default: the first page of all.
#[derive(Clone, Copy, Debug, Default)]
pub struct InvocationFilter<'a> {
    /// Only this app's.
    pub app: Option<&'a str>,
    /// Only this service's.
    pub service: Option<&'a str>,
    /// Only those of entities with this key.
    pub key: Option<&'a str>,
    /// Only this handler's.
    pub handler: Option<&'a str>,
    /// Only those with this status.
    pub status: Option<&'a str>,
    /// Only those after this one, as the last page said.
    pub after: Option<&'a str>,
    /// At most so many; the server's default when `None`.
    pub limit: Option<usize>,
}

/// A member that is `null` differs from a missing member.
fn present<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

impl Client {
    /// The state of a sent call, for a workflow with its journal.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn invocation(&self, id: &str) -> Result<Invocation, ClientError> {
        parse(&self.get(&format!("/invocations/{}", segment(id))).await?.body)
    }

    /// The state of a sent call when it has ended. The client asks until then.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn ended_invocation(&self, id: &str) -> Result<Invocation, ClientError> {
        // The server must reply before the client's timeout ends the request.
        let wait_ms = (self.options.timeout / 2).as_millis().min(LONGEST_WAIT_MS);
        let path = format!("/invocations/{}?wait_ms={wait_ms}", segment(id));
        loop {
            let found: Invocation = parse(&self.get(&path).await?.body)?;
            if !matches!(found.status.as_str(), "pending" | "running" | "paused") {
                return Ok(found);
            }
        }
    }

    /// A page of the workflows that the API key may see.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn invocations(&self, filter: &InvocationFilter<'_>) -> Result<InvocationPage, ClientError> {
        let limit = filter.limit.map(|limit| limit.to_string());
        let path = with_query(
            "/invocations",
            &[
                ("app", filter.app),
                ("service", filter.service),
                ("key", filter.key),
                ("handler", filter.handler),
                ("status", filter.status),
                ("after", filter.after),
                ("limit", limit.as_deref()),
            ],
        );
        parse(&self.get(&path).await?.body)
    }

    /// Cancels a workflow. Returns when the request is durable. A workflow that has ended stays as it is.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn cancel(&self, id: &str) -> Result<(), ClientError> {
        self.order(Method::POST, &format!("/invocations/{}/cancel", segment(id))).await
    }

    /// Ends a workflow at once. Nothing that it has done is undone. A workflow that has ended stays as it is.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn kill(&self, id: &str) -> Result<(), ClientError> {
        self.order(Method::POST, &format!("/invocations/{}/kill", segment(id))).await
    }

    /// Tries again now what failed of a workflow, from the first attempt.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn resume(&self, id: &str) -> Result<(), ClientError> {
        self.order(Method::POST, &format!("/invocations/{}/resume", segment(id))).await
    }

    /// Begins a workflow again that has ended or is paused: from the first step named `from`, or from its beginning; in
    /// the newest version of its app if `on_newest`.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn restart(&self, id: &str, from: Option<&str>, on_newest: bool) -> Result<(), ClientError> {
        let from = from.map(|name| format!("&from={}", segment(name))).unwrap_or_default();
        self.order(Method::POST, &format!("/invocations/{}/restart?on_newest={on_newest}{from}", segment(id))).await
    }

    /// Sends a signal to a workflow. Returns when it is durable. With an idempotency key it counts once, however often it
    /// is sent, and the client may repeat it.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn signal<T: Serialize + ?Sized>(
        &self,
        id: &str,
        name: &str,
        payload: &T,
        idempotency_key: Option<&str>,
    ) -> Result<(), ClientError> {
        #[derive(Serialize)]
        struct Signal<'a, T: ?Sized> {
            name: &'a str,
            payload: &'a T,
        }
        let body = serde_json::to_vec(&Signal { name, payload })
            .map_err(|error| ClientError::BadRequest(format!("the payload has no JSON form: {error}")))?;
        let request = Prepared {
            method: Method::POST,
            path: &format!("/invocations/{}/signal", segment(id)),
            content_type: "application/json",
            body: body.into(),
            idempotency_key,
        };
        self.request(&request).await.map(|_| ())
    }

    /// A page of the messages that failed too often; `after` as the last page said.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn dead_letters(&self, after: Option<&str>, limit: Option<usize>) -> Result<DeadLetterPage, ClientError> {
        let limit = limit.map(|limit| limit.to_string());
        let path = with_query("/dead-letters", &[("after", after), ("limit", limit.as_deref())]);
        parse(&self.get(&path).await?.body)
    }

    /// A page of the messages that failed and are tried again; `after` as the last page said.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn failing_messages(
        &self,
        after: Option<&str>,
        limit: Option<usize>,
    ) -> Result<DeadLetterPage, ClientError> {
        let limit = limit.map(|limit| limit.to_string());
        let parameters = [("waiting", Some("true")), ("after", after), ("limit", limit.as_deref())];
        parse(&self.get(&with_query("/dead-letters", &parameters)).await?.body)
    }

    /// Tries a dead letter again, from its first attempt.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn retry_dead_letter(&self, id: &str) -> Result<(), ClientError> {
        self.order(Method::POST, &format!("/dead-letters/{}/retry", segment(id))).await
    }

    /// Drops a dead letter.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn drop_dead_letter(&self, id: &str) -> Result<(), ClientError> {
        self.order(Method::DELETE, &format!("/dead-letters/{}", segment(id))).await
    }

    /// A page of the schedules of the services that the API key may call.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn schedules(&self, filter: &ScheduleFilter<'_>) -> Result<SchedulePage, ClientError> {
        let limit = filter.limit.map(|limit| limit.to_string());
        let parameters =
            [("app", filter.app), ("service", filter.service), ("after", filter.after), ("limit", limit.as_deref())];
        parse(&self.get(&with_query("/schedules", &parameters)).await?.body)
    }

    /// A request without a body. Its reply has no content.
    async fn order(&self, method: Method, path: &str) -> Result<(), ClientError> {
        let request = Prepared { method, path, content_type: "", body: Bytes::new(), idempotency_key: None };
        self.request(&request).await.map(|_| ())
    }
}
