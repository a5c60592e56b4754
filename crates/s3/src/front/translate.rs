//! Errors of the store in the words of S3.

use millrace_api::objects::Refusal;
use millrace_api::{Error, ErrorCode};

use crate::error::{Code, S3Error};

/// What a client is told.
pub(crate) fn error(error: Error) -> S3Error {
    if let Some(refusal) = Refusal::of(&error) {
        let code = Code::ALL.iter().copied().find(|code| code.as_str() == refusal.as_str());
        // Every refusal has its code: a test says so.
        return S3Error::new(code.unwrap_or(Code::InvalidRequest), error.message);
    }
    match error.code {
        ErrorCode::Overloaded => Code::SlowDown.into(),
        ErrorCode::TooLarge => S3Error::new(Code::EntityTooLarge, error.message),
        code if code.is_retryable() => S3Error::new(Code::ServiceUnavailable, error.message),
        _ => {
            tracing::error!(%error, "the store failed");
            // What failed inside is the operator's, and no stranger's.
            Code::InternalError.into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_refusal_has_its_code() {
        for refusal in Refusal::ALL {
            let told = error(refusal.error("why"));
            assert_eq!((told.code.as_str(), told.message.as_str()), (refusal.as_str(), "why"));
        }
        assert_eq!(error(Error::new(ErrorCode::Overloaded, "x")).code, Code::SlowDown);
        assert_eq!(error(Error::new(ErrorCode::Internal, "secret")).message, Code::InternalError.message());
    }
}
