//! What functions ask of built-in apps.

use bytes::Bytes;
use millrace_api::BuiltInReply;

/// An operation of a built-in app: a call of one of its handlers, which any app may ask for that has the right to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuiltInCall<'a> {
    /// The built-in app.
    pub app: &'static str,
    /// One of its services.
    pub service: &'a str,
    /// A handler of the service.
    pub handler: &'static str,
    /// The entity's key. `None`: any entity will do, at best one in the caller's shard.
    pub key: Option<&'a [u8]>,
    /// The operation, as the built-in app encodes it.
    pub input: Bytes,
}

/// What a query gave that was answered at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The output of the call.
    Value(Bytes),
    /// The same of an operation of a built-in app: whoever asked from near by need not read it.
    BuiltIn(BuiltInReply),
}

impl Answer {
    /// The output of the call.
    #[must_use]
    pub fn into_value(self) -> Bytes {
        match self {
            Answer::Value(output) => output,
            Answer::BuiltIn(reply) => reply.to_bytes(),
        }
    }
}
