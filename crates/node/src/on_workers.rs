//! Requests for handlers that run on workers: each waits for its slot before its shard hears of it.

use bytes::Bytes;
use millrace_api::{Begun, RouteReply};
use millrace_base::{Error, ErrorCode, ShardId};
use millrace_driver::{Call, Request};
use millrace_func::Program;
use millrace_shard::{Invoke, RouteCall, TypedReply};
use tokio::sync::oneshot;

use crate::backend::CoreHandle;
use crate::core::Core;
use crate::watch::{CallWatch, WatchedCall};

/// Whether a program runs on workers.
pub(crate) fn is_on_workers(core: &Core, program: Program) -> bool {
    core.programs.catalog.program(program).is_some_and(|loaded| loaded.is_on_workers)
}

impl CoreHandle {
    /// A call of a handler that runs on workers.
    pub(crate) fn call_on_worker(&self, shard: ShardId, mut invoke: Invoke, watch: CallWatch) -> Begun<Bytes> {
        let place = (invoke.handler.program, invoke.handler.service);
        self.begin_on_worker(place, watch, move |core| {
            // Its time begins with its slot.
            core.begins_now(&mut invoke.info);
            Call { shard, invoke }
        })
    }

    /// A request for a route that runs on workers.
    pub(crate) fn route_on_worker(&self, mut call: RouteCall, watch: CallWatch) -> Begun<RouteReply> {
        let place = (call.route.id.program, call.route.id.service);
        self.begin_on_worker(place, watch, move |core| {
            core.begins_now(&mut call.info);
            call
        })
    }

    fn begin_on_worker<Q, T>(
        &self,
        (program, service): (Program, u16),
        watch: CallWatch,
        request: impl FnOnce(&mut Core) -> Q + 'static,
    ) -> Begun<T>
    where
        Q: Request<Reply = T>,
        T: TypedReply + WatchedCall + 'static,
    {
        let node = self.clone();
        let entering = self.core().borrow().platform.shared.outside.workers.enter(program, service);
        Begun::waits(async move {
            let slot = match entering.await {
                Ok(slot) => slot,
                Err(error) => {
                    let result = Err(error);
                    watch.ended(&node.core().borrow(), &result);
                    return result;
                }
            };
            let begun = {
                let mut core = node.core().borrow_mut();
                let arrival = core.enter();
                let request = request(&mut core);
                let started = core.request(request, arrival);
                node.watched(&core, started, watch, Ok)
            };
            // The slot is the transaction's, even if its client goes away.
            let (ended, reply) = oneshot::channel();
            tokio::task::spawn_local(async move {
                let result = begun.reply().await;
                drop(slot);
                let _ = ended.send(result);
            });
            reply.await.unwrap_or_else(|_| Err(Error::new(ErrorCode::ShuttingDown, "the node is stopping")))
        })
    }
}
