//! Requests and their replies.

use std::sync::Arc;

use millrace_format::DecodeError;
use millrace_func::{HandlerId, HeaderSource, Program, RouteId, RouteMatch, RouteReply};
use millrace_shard::{
    InvocationId, Invoke, ListedWorkflow, Reply, RequestInfo, RouteCall, Sequence, Token, WorkflowView,
};

use super::wire::{Item, Reader, Wire, wire_enum, wire_newtype, wire_struct};
use crate::message::Job;

wire_newtype!(Token(u64), Program(u32));
wire_struct!(HandlerId { program, service, handler });
wire_struct!(RouteId { program, service, route });
wire_struct!(RouteMatch { id, parameters });
wire_struct!(Invoke { info, handler, key, input });
wire_struct!(RouteCall { info, route, method, path, query, headers, body, known, scope });
wire_struct!(RouteReply { status, headers, body });
wire_struct!(Sequence { lsn, index });
wire_struct!(InvocationId { shard, sequence });
wire_struct!(WorkflowView { record, due, journal, waits_for });

wire_enum!(Job {
    1 => Invoke(shard, invoke),
    2 => Send { shard, invoke, delay_ms },
    3 => Route(call),
    4 => Ask { shard, question },
});
wire_enum!(Reply {
    1 => Value(output),
    2 => Route(reply),
    3 => Sent(id),
    4 => Invocation(invocation_result, view),
    5 => Workflows(rows, has_more),
    6 => DeadLetters(dead_letters, has_more),
    7 => Schedules(due),
    8 => Done,
    9 => Fields(fields),
    10 => Field(value),
    11 => DeadLetter(dead_letter),
    12 => HasEntities(is_any),
    13 => FailingInvocation(invocation_result, view, failures),
    14 => FailingWorkflows(rows, has_more, failures),
});

/// `began_ms` stays behind, as it means nothing on another machine: whoever takes the request sets it.
///
/// Eight bytes that mean nothing come first. Earlier programs put a token there and wrote over it on arrival, so nodes of
/// both kinds understand each other.
impl Wire for RequestInfo {
    fn put(&self, out: &mut Vec<u8>) {
        let Self { time, began_ms: _, nonce, idempotency_key } = self;
        0u64.put(out);
        time.put(out);
        nonce.put(out);
        idempotency_key.put(out);
    }

    fn get(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        u64::get(reader)?;
        let (time, nonce) = (Wire::get(reader)?, Wire::get(reader)?);
        Ok(Self { time, began_ms: 0, nonce, idempotency_key: Wire::get(reader)? })
    }
}

/// What failed of it travels beside the page.
impl Wire for ListedWorkflow {
    fn put(&self, out: &mut Vec<u8>) {
        let Self { id, record, due, invocation_result, failures: _ } = self;
        id.put(out);
        record.put(out);
        due.put(out);
        invocation_result.put(out);
    }

    fn get(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (id, record) = (Wire::get(reader)?, Wire::get(reader)?);
        let (due, invocation_result) = (Wire::get(reader)?, Wire::get(reader)?);
        Ok(Self { id, record, due, invocation_result, failures: Vec::new() })
    }
}

impl Item for ListedWorkflow {}
impl Item for String {}
impl<T: Wire> Item for Option<T> {}
impl<T: Wire> Item for Result<T, millrace_base::Error> {}

impl<T: Wire> Wire for Box<T> {
    fn put(&self, out: &mut Vec<u8>) {
        (**self).put(out);
    }

    fn get(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        T::get(reader).map(Box::new)
    }
}

/// Headers that came over the network: names are in lower case.
struct Headers(Vec<(String, String)>);

impl HeaderSource for Headers {
    fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    fn each(&self, visit: &mut dyn FnMut(&str, &str)) {
        self.0.iter().for_each(|(name, value)| visit(name, value));
    }
}

impl Wire for Arc<dyn HeaderSource> {
    fn put(&self, out: &mut Vec<u8>) {
        let mut headers = Vec::new();
        self.each(&mut |name, value| headers.push((name.to_owned(), value.to_owned())));
        headers.put(out);
    }

    fn get(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Arc::new(Headers(Wire::get(reader)?)))
    }
}
