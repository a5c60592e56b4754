//! How calls and steps of workflows are tried again, as a worker says it.

use bytes::Bytes;
use millrace_base::{Error, ErrorCode};
use millrace_func::{Host, RetryOptions};

/// Has the next call or step of the workflow tried again by this policy, JSON text as `[retry]` of `millrace.toml`. Nothing
/// leaves it to the app.
///
/// # Errors
/// It is not such a policy, or the caller is no workflow: whoever sent a message tries that again, and transactions end.
pub(crate) fn retry_next(policy: &Bytes, host: &mut dyn Host) -> Result<(), Error> {
    if policy.is_empty() {
        return Ok(());
    }
    let refused = |why: String| Error::new(ErrorCode::FunctionFailed, format!("the retry policy: {why}"));
    let options: RetryOptions = serde_json::from_slice(policy).map_err(|error| refused(error.to_string()))?;
    options.check().map_err(refused)?;
    host.in_workflow("retry")?.retry_next(options);
    Ok(())
}
