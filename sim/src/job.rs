//! What a client sends for an operation.

use millrace_base::shard_of_key;
use millrace_driver::Job;
use millrace_func::Catalog;
use millrace_shard::{Invoke, RequestInfo};

use crate::ledger::{Kind, Operation};
use crate::rig::{APP, route_call};
use crate::script::Script;

/// The request for an operation.
///
/// # Panics
/// When the app has no such handler.
pub fn job_of(operation: &Operation, info: RequestInfo, catalog: &Catalog, shard_count: u16) -> Job {
    if operation.is_route {
        let script = match operation.kind {
            Kind::Steps { is_bare: true, .. } => operation.script.clone(),
            _ => Script::new().call(operation.callee()),
        };
        return Job::Route(route_call(info, catalog, &script));
    }
    let (service, key, handler) = operation.target();
    let (program, service) = catalog.service(Some(APP), service).expect("a service");
    let (handler, _) = catalog.handler(program, service, handler).expect("a handler");
    let shard = shard_of_key(key.as_bytes(), shard_count);
    let invoke = Invoke { info, handler, key: key.as_bytes().into(), input: operation.script.json().into() };
    if operation.is_sent() { Job::Send { shard, invoke, delay_ms: 0 } } else { Job::Invoke(shard, invoke) }
}
