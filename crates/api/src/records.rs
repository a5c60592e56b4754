//! Records as a front reads and writes them.

use std::future::Future;

use crate::{Begun, Error, ErrorCode, Principal, RecordReply, RecordRequest};

/// Operations of the built-in app of records. A backend that keeps no records need not say so.
pub trait Records: Clone + 'static {
    /// Runs an operation on a record as one transaction.
    fn record(&self, _principal: &Principal, request: RecordRequest<'_>) -> Begun<RecordReply> {
        Begun::Ended(Err(unknown_type(request.type_name)))
    }

    /// Has every shard bring the records of a type up to its present definition, in the background.
    /// Answered once that is durably on its way.
    fn record_sweep(&self, _principal: &Principal, type_name: &str) -> impl Future<Output = Result<(), Error>> {
        let error = unknown_type(type_name);
        async move { Err(error) }
    }

    /// Whether any record of a type is there, or about to be.
    fn has_records(&self, _principal: &Principal, _type_name: &str) -> impl Future<Output = Result<bool, Error>> {
        async { Ok(false) }
    }

    /// Whether `name` is a type of records, and no deployed app has a service of this name: then a front may give
    /// short names to its records. Asked once a request, so it must be cheap.
    fn is_record_type(&self, _name: &str) -> bool {
        false
    }
}

fn unknown_type(name: &str) -> Error {
    Error::new(ErrorCode::UnknownType, format!("there is no type of records named {name:?}"))
}
