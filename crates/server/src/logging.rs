//! Structured logs on standard error.
//!
//! A core must never wait for whoever reads the log, so lines go through a bounded queue to a
//! thread of its own; what does not fit is dropped.

use tracing_appender::non_blocking::{NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::EnvFilter;

use crate::Failure;

/// Starts logging. Standard output stays free for what commands print. Lines still queued are
/// written when the guard is dropped.
///
/// # Errors
/// When the filter does not parse.
pub(crate) fn start(filter: &str, is_json: bool) -> Result<WorkerGuard, Failure> {
    // The LSM library narrates its own compactions at info.
    let filter = format!("fjall=warn,lsm_tree=warn,{filter}");
    let filter = EnvFilter::try_new(&filter).map_err(|error| format!("--log {filter}: {error}"))?;
    let (writer, guard) = NonBlockingBuilder::default().lossy(true).finish(std::io::stderr());
    let is_terminal = std::io::IsTerminal::is_terminal(&std::io::stderr());
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(is_terminal).with_writer(writer);
    let started = if is_json { builder.json().try_init() } else { builder.with_target(false).try_init() };
    started.map_err(|error| format!("logging: {error}"))?;
    Ok(guard)
}
