//! Calls of handlers and routes as they are counted and shown.

use std::io::Write as _;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use millrace_api::{Begun, RecordReply, RouteReply};
use millrace_base::Error;
use millrace_driver::Submitted;
use millrace_shard::{ReplyTo, TypedReply};

use crate::backend::CoreHandle;
use crate::core::{Core, ReplyFuture};
use crate::metrics::HandlerMetric;

impl CoreHandle {
    /// The reply to a request that was started, as `read` translates it, counted and printed.
    pub(crate) fn watched<R: TypedReply + 'static, T: WatchedCall + 'static>(
        &self,
        core: &Core,
        started: Submitted<R, ReplyTo<R>>,
        watch: CallWatch,
        read: fn(R) -> Result<T, Error>,
    ) -> Begun<T> {
        let to = match started {
            Submitted::Answered(result) => {
                let result = result.and_then(read);
                watch.ended(core, &result);
                return Begun::Ended(result);
            }
            Submitted::Pending(to) => to,
        };
        let reply = ReplyFuture::new(Rc::clone(self.core()), to);
        let core = Rc::clone(self.core());
        Begun::waits(async move {
            let result = reply.await.and_then(read);
            watch.ended(&core.borrow(), &result);
            result
        })
    }
}

/// What a call that went well is shown as, where calls are printed.
pub(crate) trait WatchedCall {
    fn invocation_result(&self) -> String {
        "ok".to_owned()
    }
}

impl WatchedCall for Bytes {}

impl WatchedCall for RecordReply {}

impl WatchedCall for RouteReply {
    fn invocation_result(&self) -> String {
        self.status.to_string()
    }
}

/// Counts a call of a handler or route that has ended, and prints it if calls are printed.
pub(crate) fn ended<T: WatchedCall>(
    core: &Core,
    (metric, began_ns): (Option<&HandlerMetric>, u64),
    result: &Result<T, Error>,
    what: impl FnOnce() -> String,
) {
    let now_ns = core.platform.shared.clock.monotonic_ns();
    let took_ns = now_ns - began_ns;
    if let Some(metric) = metric {
        metric.latency_ns.record(took_ns);
        if let Err(error) = result {
            metric.errors.increment();
            metric.failures.note(error, now_ns);
        }
    }
    if prints_calls(core) {
        let invocation_result = match result {
            Ok(reply) => reply.invocation_result(),
            Err(error) => error.to_string(),
        };
        let line = format!("{:>9.3} ms  {}  {invocation_result}\n", took_ns as f64 / 1e6, what());
        // A closed standard output is not a reason to fail a call.
        let _ = std::io::stdout().write_all(line.as_bytes());
    }
}

/// Measures one call of a handler or route.
pub(crate) struct CallWatch {
    pub metric: Option<Arc<HandlerMetric>>,
    pub began_ns: u64,
    /// The call in one line, where calls are printed.
    pub shown: Option<String>,
}

impl CallWatch {
    pub(crate) fn ended<T: WatchedCall>(self, core: &Core, result: &Result<T, Error>) {
        ended(core, (self.metric.as_deref(), self.began_ns), result, || self.shown.unwrap_or_default());
    }
}

pub(crate) fn prints_calls(core: &Core) -> bool {
    core.platform.shared.options.prints_calls
}
