//! The HTTP status of each error. The match is exhaustive: a code without a status does not compile.

use http::StatusCode;
use millrace_base::ErrorCode;

/// The status that an error of this code is answered with. Part of the public contract, as the code is.
#[must_use]
pub const fn status_of(code: ErrorCode) -> StatusCode {
    use ErrorCode::*;
    match code {
        BadRequest | InvalidInput | InvalidPath => StatusCode::BAD_REQUEST,
        Unauthorized => StatusCode::UNAUTHORIZED,
        Forbidden => StatusCode::FORBIDDEN,
        NoMatch | UnknownApp | UnknownHandler | UnknownInvocation | UnknownRecord | UnknownRoute | UnknownSchema
        | UnknownService | UnknownState | UnknownType => StatusCode::NOT_FOUND,
        MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
        NodeRemoved => StatusCode::MISDIRECTED_REQUEST,
        NotAcceptable => StatusCode::NOT_ACCEPTABLE,
        RequestTimeout => StatusCode::REQUEST_TIMEOUT,
        Aborted | AmbiguousService | Cancelled | IncompatibleSchema | ObjectRefused | TestFailed | TypeInUse
        | WorkflowEnded | WorkflowRunning => StatusCode::CONFLICT,
        PreconditionFailed => StatusCode::PRECONDITION_FAILED,
        TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        UnsupportedMediaType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
        AppRefused | IdempotencyMismatch | InvalidSchema | UnknownField | WrongType => StatusCode::UNPROCESSABLE_ENTITY,
        HeadersTooLarge => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
        CpuLimit | DepthLimit | Diverged | FetchRefused | FunctionFailed | Internal | MemoryLimit | OperationLimit
        | SizeLimit | StackLimit | Stalled => StatusCode::INTERNAL_SERVER_ERROR,
        NotYetSupported => StatusCode::NOT_IMPLEMENTED,
        FetchFailed | WorkerFailed => StatusCode::BAD_GATEWAY,
        MajorityLost | Overloaded | ReadOnly | ResultUnknown | ShardStopped | ShuttingDown | WorkerUnavailable => {
            StatusCode::SERVICE_UNAVAILABLE
        }
        WaitLimit | WorkerTimeout => StatusCode::GATEWAY_TIMEOUT,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_and_nothing_else_are_server_errors() {
        for code in ErrorCode::all() {
            let status = status_of(code);
            assert!(status.is_client_error() || status.is_server_error(), "{}", code.as_str());
            assert_eq!(status.is_server_error(), code.is_failure(), "{}", code.as_str());
        }
    }
}
