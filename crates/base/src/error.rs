//! What can go wrong, as the caller sees it. There are few kinds of errors, and each tells the caller what to do. The
//! details are in the message.

use std::fmt;

/// A stable error code. Its text is part of the public contract and names a page in `docs/errors/`. Each front says it
/// in its own way, such as an HTTP status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the title of each in TABLE says what it means")]
pub enum ErrorCode {
    Aborted,
    AmbiguousService,
    AppRefused,
    BadRequest,
    Cancelled,
    CpuLimit,
    DepthLimit,
    Diverged,
    FetchFailed,
    FetchRefused,
    Forbidden,
    FunctionFailed,
    HeadersTooLarge,
    IdempotencyMismatch,
    IncompatibleSchema,
    Internal,
    InvalidInput,
    InvalidPath,
    InvalidSchema,
    MajorityLost,
    MemoryLimit,
    MethodNotAllowed,
    NoMatch,
    NodeRemoved,
    NotAcceptable,
    NotYetSupported,
    ObjectRefused,
    OperationLimit,
    Overloaded,
    PreconditionFailed,
    ReadOnly,
    RequestTimeout,
    ResultUnknown,
    ShardStopped,
    ShuttingDown,
    SizeLimit,
    StackLimit,
    Stalled,
    TestFailed,
    TooLarge,
    TypeInUse,
    Unauthorized,
    UnknownApp,
    UnknownField,
    UnknownHandler,
    UnknownInvocation,
    UnknownRecord,
    UnknownRoute,
    UnknownSchema,
    UnknownService,
    UnknownState,
    UnknownType,
    UnsupportedMediaType,
    WaitLimit,
    WorkerFailed,
    WorkerTimeout,
    WorkerUnavailable,
    WorkflowEnded,
    WorkflowRunning,
    WrongType,
}

/// One row of the table of codes: code, text, title.
type Row = (ErrorCode, &'static str, &'static str);

const TABLE: [Row; 60] = {
    use ErrorCode::*;
    [
        (Aborted, "aborted", "The function refused the call"),
        (AmbiguousService, "ambiguous-service", "Several apps have a service of this name"),
        (AppRefused, "app-refused", "The app cannot be deployed as it is"),
        (BadRequest, "bad-request", "The request is malformed"),
        (Cancelled, "cancelled", "The workflow was cancelled"),
        (CpuLimit, "cpu-limit", "The function used up its CPU time"),
        (DepthLimit, "depth-limit", "Calls nest too deeply"),
        (Diverged, "diverged", "A workflow's code does not follow what it did before"),
        (FetchFailed, "fetch-failed", "The server outside gave no usable response"),
        (FetchRefused, "fetch-refused", "The app may not make this request to the outside"),
        (Forbidden, "forbidden", "This is not allowed"),
        (FunctionFailed, "function-failed", "The function threw an error"),
        (HeadersTooLarge, "headers-too-large", "The request's headers are too large"),
        (IdempotencyMismatch, "idempotency-mismatch", "This idempotency key was used for another request"),
        (IncompatibleSchema, "incompatible-schema", "The schema breaks the subject's compatibility rule"),
        (Internal, "internal", "The server failed"),
        (InvalidInput, "invalid-input", "The input is not what the handler takes"),
        (InvalidPath, "invalid-path", "The path or predicate cannot be read"),
        (InvalidSchema, "invalid-schema", "The schema is not a valid Avro schema"),
        (MajorityLost, "majority-lost", "A majority of the nodes has lost its data"),
        (MemoryLimit, "memory-limit", "The function used up its memory"),
        (MethodNotAllowed, "method-not-allowed", "The path exists, but not with this method"),
        (NoMatch, "no-match", "The path matches nothing in the record"),
        (NodeRemoved, "node-removed", "This node was removed from its cluster"),
        (NotAcceptable, "not-acceptable", "The reply has none of the forms that are accepted"),
        (NotYetSupported, "not-yet-supported", "The server cannot do this yet"),
        (ObjectRefused, "object-refused", "The operation on a bucket or object was refused"),
        (OperationLimit, "operation-limit", "The function exceeded a count limit"),
        (Overloaded, "overloaded", "The server cannot take it now; try again"),
        (PreconditionFailed, "precondition-failed", "The record is not as the condition says"),
        (ReadOnly, "read-only", "The disk is full; the server only reads until space returns"),
        (RequestTimeout, "request-timeout", "The request took too long to arrive"),
        (ResultUnknown, "result-unknown", "Nobody can say yet whether the call took effect"),
        (ShardStopped, "shard-stopped", "The shard stopped after a failed write and needs a restart"),
        (ShuttingDown, "shutting-down", "The server is starting or stopping"),
        (SizeLimit, "size-limit", "The function exceeded a size limit"),
        (StackLimit, "stack-limit", "The function's calls nest too deeply for its stack"),
        (Stalled, "stalled", "The function awaits a promise that can never settle"),
        (TestFailed, "test-failed", "A test in the patch does not hold"),
        (TooLarge, "too-large", "The request is too large"),
        (TypeInUse, "type-in-use", "The type still has records, or others refer to it"),
        (Unauthorized, "unauthorized", "A valid API key is needed"),
        (UnknownApp, "unknown-app", "No app of this name is deployed"),
        (UnknownField, "unknown-field", "The record has no such field"),
        (UnknownHandler, "unknown-handler", "The service has no handler of this name"),
        (UnknownInvocation, "unknown-invocation", "No invocation with this id is known"),
        (UnknownRecord, "unknown-record", "There is no such record"),
        (UnknownRoute, "unknown-route", "Nothing is mounted at this path"),
        (UnknownSchema, "unknown-schema", "There is no such subject, version or schema"),
        (UnknownService, "unknown-service", "No app has a service of this name"),
        (UnknownState, "unknown-state", "The entity or field does not exist"),
        (UnknownType, "unknown-type", "There is no such type of records"),
        (UnsupportedMediaType, "unsupported-media-type", "The body is in a form that is not taken here"),
        (WaitLimit, "wait-limit", "The call waited too long"),
        (WorkerFailed, "worker-failed", "The worker broke off, or broke the protocol"),
        (WorkerTimeout, "worker-timeout", "The worker did not answer in time"),
        (WorkerUnavailable, "worker-unavailable", "No worker takes the call"),
        (WorkflowEnded, "workflow-ended", "The workflow has ended"),
        (WorkflowRunning, "workflow-running", "The workflow has yet to end"),
        (WrongType, "wrong-type", "The value does not fit the schema"),
    ]
};

impl ErrorCode {
    /// Every code, in alphabetical order.
    pub fn all() -> impl Iterator<Item = ErrorCode> {
        TABLE.iter().map(|row| row.0)
    }

    fn row(self) -> &'static Row {
        // TABLE is in the order of the variants; a test checks this.
        &TABLE[self as usize]
    }

    /// The stable text, as in `"code": "aborted"`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.row().1
    }

    /// A sentence that holds for every error of this code.
    #[must_use]
    pub fn title(self) -> &'static str {
        self.row().2
    }

    /// The code whose text is `text`.
    #[must_use]
    pub fn parse(text: &str) -> Option<ErrorCode> {
        TABLE.iter().find(|row| row.1 == text).map(|row| row.0)
    }

    /// Whether a function, the server or a server outside failed. Otherwise the request is wrong, or was refused.
    #[must_use]
    pub fn is_failure(self) -> bool {
        use ErrorCode::*;
        matches!(
            self,
            CpuLimit
                | DepthLimit
                | Diverged
                | FetchFailed
                | FetchRefused
                | FunctionFailed
                | Internal
                | MajorityLost
                | MemoryLimit
                | NotYetSupported
                | OperationLimit
                | Overloaded
                | ReadOnly
                | ResultUnknown
                | ShardStopped
                | ShuttingDown
                | SizeLimit
                | StackLimit
                | Stalled
                | WaitLimit
                | WorkerFailed
                | WorkerTimeout
                | WorkerUnavailable
        )
    }

    /// Whether the same request may succeed later without being changed.
    #[must_use]
    pub fn is_retryable(self) -> bool {
        use ErrorCode::*;
        matches!(
            self,
            MajorityLost | Overloaded | ReadOnly | ResultUnknown | ShardStopped | ShuttingDown | WorkerUnavailable
        )
    }

    /// Whether an attempt on a worker was lost: nothing of it counts, and it may be made again.
    #[must_use]
    pub fn is_lost_attempt(self) -> bool {
        matches!(self, ErrorCode::WorkerFailed | ErrorCode::WorkerTimeout | ErrorCode::WorkerUnavailable)
    }
}

/// An error as the caller sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// What kind of error; tells the caller what to do.
    pub code: ErrorCode,
    /// What happened, for a person.
    pub message: String,
    /// More for a program: JSON text, such as the payload of a user's `Abort`.
    pub detail: Option<String>,
}

impl Error {
    /// An error without detail.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), detail: None }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.code.as_str(), self.message)
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_the_order_of_the_variants_and_of_the_texts() {
        for (index, row) in TABLE.iter().enumerate() {
            assert_eq!(row.0 as usize, index, "{}", row.1);
            assert_eq!(ErrorCode::parse(row.1), Some(row.0));
        }
        assert!(TABLE.windows(2).all(|pair| pair[0].1 < pair[1].1));
    }
}
