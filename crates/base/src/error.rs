//! What can go wrong, as the caller sees it. There are few kinds of errors, and each tells the caller what to do. The
//! details are in the message.

use std::fmt;

/// A stable error code. Its text is part of the public contract and names a page in `docs/errors/`. Its status is the
/// HTTP status that fronts answer with.
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
    MemoryLimit,
    MethodNotAllowed,
    NoMatch,
    NotAcceptable,
    NotYetSupported,
    OperationLimit,
    Overloaded,
    PreconditionFailed,
    ReadOnly,
    RequestTimeout,
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
    WorkflowEnded,
    WrongType,
}

/// One row of the table of codes: code, text, HTTP status, title.
type Row = (ErrorCode, &'static str, u16, &'static str);

const TABLE: [Row; 52] = {
    use ErrorCode::*;
    [
        (Aborted, "aborted", 409, "The function refused the call"),
        (AmbiguousService, "ambiguous-service", 409, "Several apps have a service of this name"),
        (AppRefused, "app-refused", 422, "The app cannot be deployed as it is"),
        (BadRequest, "bad-request", 400, "The request is malformed"),
        (Cancelled, "cancelled", 409, "The workflow was cancelled"),
        (CpuLimit, "cpu-limit", 500, "The function used up its CPU time"),
        (DepthLimit, "depth-limit", 500, "Calls nest too deeply"),
        (Diverged, "diverged", 500, "A workflow's code does not follow what it did before"),
        (FetchFailed, "fetch-failed", 502, "The server outside gave no usable response"),
        (FetchRefused, "fetch-refused", 500, "The app may not make this request to the outside"),
        (Forbidden, "forbidden", 403, "This is not allowed"),
        (FunctionFailed, "function-failed", 500, "The function threw an error"),
        (HeadersTooLarge, "headers-too-large", 431, "The request's headers are too large"),
        (IdempotencyMismatch, "idempotency-mismatch", 422, "This idempotency key was used for another request"),
        (IncompatibleSchema, "incompatible-schema", 409, "The schema breaks the subject's compatibility rule"),
        (Internal, "internal", 500, "The server failed"),
        (InvalidInput, "invalid-input", 400, "The input is not valid JSON"),
        (InvalidPath, "invalid-path", 400, "The path or predicate cannot be read"),
        (InvalidSchema, "invalid-schema", 422, "The schema is not a valid Avro schema"),
        (MemoryLimit, "memory-limit", 500, "The function used up its memory"),
        (MethodNotAllowed, "method-not-allowed", 405, "The path exists, but not with this method"),
        (NoMatch, "no-match", 404, "The path matches nothing in the record"),
        (NotAcceptable, "not-acceptable", 406, "The reply has none of the forms that are accepted"),
        (NotYetSupported, "not-yet-supported", 501, "The server cannot do this yet"),
        (OperationLimit, "operation-limit", 500, "The function exceeded a count limit"),
        (Overloaded, "overloaded", 503, "The server is past its capacity; try again"),
        (PreconditionFailed, "precondition-failed", 412, "The record is not as the condition says"),
        (ReadOnly, "read-only", 503, "The disk is full; the server only reads until space returns"),
        (RequestTimeout, "request-timeout", 408, "The request took too long to arrive"),
        (ShardStopped, "shard-stopped", 503, "The shard stopped after a failed write and needs a restart"),
        (ShuttingDown, "shutting-down", 503, "The server is stopping"),
        (SizeLimit, "size-limit", 500, "The function exceeded a size limit"),
        (StackLimit, "stack-limit", 500, "The function's calls nest too deeply for its stack"),
        (Stalled, "stalled", 500, "The function awaits a promise that can never settle"),
        (TestFailed, "test-failed", 409, "A test in the patch does not hold"),
        (TooLarge, "too-large", 413, "The request is too large"),
        (TypeInUse, "type-in-use", 409, "The type still has records, or others refer to it"),
        (Unauthorized, "unauthorized", 401, "A valid API key is needed"),
        (UnknownApp, "unknown-app", 404, "No app of this name is deployed"),
        (UnknownField, "unknown-field", 422, "The record has no such field"),
        (UnknownHandler, "unknown-handler", 404, "The service has no handler of this name"),
        (UnknownInvocation, "unknown-invocation", 404, "No invocation with this id is known"),
        (UnknownRecord, "unknown-record", 404, "There is no such record"),
        (UnknownRoute, "unknown-route", 404, "Nothing is mounted at this path"),
        (UnknownSchema, "unknown-schema", 404, "There is no such subject, version or schema"),
        (UnknownService, "unknown-service", 404, "No app has a service of this name"),
        (UnknownState, "unknown-state", 404, "The entity or field does not exist"),
        (UnknownType, "unknown-type", 404, "There is no such type of records"),
        (UnsupportedMediaType, "unsupported-media-type", 415, "The body is in a form that is not taken here"),
        (WaitLimit, "wait-limit", 504, "The call waited too long"),
        (WorkflowEnded, "workflow-ended", 409, "The workflow has ended"),
        (WrongType, "wrong-type", 422, "The value does not fit the schema"),
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

    /// The HTTP status.
    #[must_use]
    pub fn status(self) -> u16 {
        self.row().2
    }

    /// A sentence that holds for every error of this code.
    #[must_use]
    pub fn title(self) -> &'static str {
        self.row().3
    }

    /// The code whose text is `text`.
    #[must_use]
    pub fn parse(text: &str) -> Option<ErrorCode> {
        TABLE.iter().find(|row| row.1 == text).map(|row| row.0)
    }

    /// Whether the same request may succeed later without being changed.
    #[must_use]
    pub fn is_retryable(self) -> bool {
        matches!(self, ErrorCode::Overloaded | ErrorCode::ReadOnly | ErrorCode::ShardStopped | ErrorCode::ShuttingDown)
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
            assert!((400..600).contains(&row.2));
        }
        assert!(TABLE.windows(2).all(|pair| pair[0].1 < pair[1].1));
    }
}
