//! Structured logs on standard error.

use tracing_subscriber::EnvFilter;

use crate::Failure;

/// Starts logging. Standard output stays free for what commands print.
///
/// # Errors
/// When the filter does not parse.
pub(crate) fn start(filter: &str, is_json: bool) -> Result<(), Failure> {
    // The LSM library narrates its own compactions at info.
    let filter = format!("fjall=warn,lsm_tree=warn,{filter}");
    let filter = EnvFilter::try_new(&filter).map_err(|error| format!("--log {filter}: {error}"))?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let started = if is_json { builder.json().try_init() } else { builder.with_target(false).try_init() };
    started.map_err(|error| format!("logging: {error}").into())
}
