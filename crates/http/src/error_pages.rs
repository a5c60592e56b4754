//! The pages of `docs/errors/`, built in: `GET /errors/<code>` answers them, so the `type` of a
//! problem document leads to its explanation on the very server that sent it. The match below is
//! exhaustive: a code without a page does not compile.

use millrace_base::ErrorCode;

macro_rules! page {
    ($code:literal) => {
        include_str!(concat!("../../../docs/errors/", $code, ".md"))
    };
}

/// The page about `code`: Markdown.
#[must_use]
pub fn error_page(code: ErrorCode) -> &'static str {
    match code {
        ErrorCode::Aborted => page!("aborted"),
        ErrorCode::AmbiguousService => page!("ambiguous-service"),
        ErrorCode::AppRefused => page!("app-refused"),
        ErrorCode::BadRequest => page!("bad-request"),
        ErrorCode::Cancelled => page!("cancelled"),
        ErrorCode::CpuLimit => page!("cpu-limit"),
        ErrorCode::DepthLimit => page!("depth-limit"),
        ErrorCode::Diverged => page!("diverged"),
        ErrorCode::FetchFailed => page!("fetch-failed"),
        ErrorCode::FetchRefused => page!("fetch-refused"),
        ErrorCode::Forbidden => page!("forbidden"),
        ErrorCode::FunctionFailed => page!("function-failed"),
        ErrorCode::HeadersTooLarge => page!("headers-too-large"),
        ErrorCode::IdempotencyMismatch => page!("idempotency-mismatch"),
        ErrorCode::IncompatibleSchema => page!("incompatible-schema"),
        ErrorCode::Internal => page!("internal"),
        ErrorCode::InvalidInput => page!("invalid-input"),
        ErrorCode::InvalidPath => page!("invalid-path"),
        ErrorCode::InvalidSchema => page!("invalid-schema"),
        ErrorCode::MajorityLost => page!("majority-lost"),
        ErrorCode::MemoryLimit => page!("memory-limit"),
        ErrorCode::MethodNotAllowed => page!("method-not-allowed"),
        ErrorCode::NoMatch => page!("no-match"),
        ErrorCode::NodeRemoved => page!("node-removed"),
        ErrorCode::NotAcceptable => page!("not-acceptable"),
        ErrorCode::NotYetSupported => page!("not-yet-supported"),
        ErrorCode::ObjectRefused => page!("object-refused"),
        ErrorCode::OperationLimit => page!("operation-limit"),
        ErrorCode::Overloaded => page!("overloaded"),
        ErrorCode::PreconditionFailed => page!("precondition-failed"),
        ErrorCode::ReadOnly => page!("read-only"),
        ErrorCode::RequestTimeout => page!("request-timeout"),
        ErrorCode::ResultUnknown => page!("result-unknown"),
        ErrorCode::ShardStopped => page!("shard-stopped"),
        ErrorCode::ShuttingDown => page!("shutting-down"),
        ErrorCode::SizeLimit => page!("size-limit"),
        ErrorCode::StackLimit => page!("stack-limit"),
        ErrorCode::Stalled => page!("stalled"),
        ErrorCode::TestFailed => page!("test-failed"),
        ErrorCode::TooLarge => page!("too-large"),
        ErrorCode::TypeInUse => page!("type-in-use"),
        ErrorCode::Unauthorized => page!("unauthorized"),
        ErrorCode::UnknownApp => page!("unknown-app"),
        ErrorCode::UnknownField => page!("unknown-field"),
        ErrorCode::UnknownHandler => page!("unknown-handler"),
        ErrorCode::UnknownInvocation => page!("unknown-invocation"),
        ErrorCode::UnknownRecord => page!("unknown-record"),
        ErrorCode::UnknownRoute => page!("unknown-route"),
        ErrorCode::UnknownSchema => page!("unknown-schema"),
        ErrorCode::UnknownService => page!("unknown-service"),
        ErrorCode::UnknownState => page!("unknown-state"),
        ErrorCode::UnknownType => page!("unknown-type"),
        ErrorCode::UnsupportedMediaType => page!("unsupported-media-type"),
        ErrorCode::WaitLimit => page!("wait-limit"),
        ErrorCode::WorkerFailed => page!("worker-failed"),
        ErrorCode::WorkerTimeout => page!("worker-timeout"),
        ErrorCode::WorkerUnavailable => page!("worker-unavailable"),
        ErrorCode::WorkflowEnded => page!("workflow-ended"),
        ErrorCode::WorkflowRunning => page!("workflow-running"),
        ErrorCode::WrongType => page!("wrong-type"),
    }
}
