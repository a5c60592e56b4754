//! The type of the reply to each kind of request.
//!
//! Whoever asks waits under a [`ReplyTo`] of the reply's type, and the part that answers is handed the same type. So neither
//! can take one kind of reply for another. [`Reply`] is what travels between cores, where types are gone.

use std::fmt;
use std::marker::PhantomData;

use bytes::Bytes;
use millrace_base::{UnixMillis, Value};
use millrace_format::{DeadLetterRecord, FailureRecord, InvocationResult};
use millrace_func::RouteReply;

use crate::request::{InvocationId, ListedWorkflow, Reply, Token, WorkflowView};

/// What one kind of request is answered with.
pub trait TypedReply: Sized {
    /// The reply as it travels.
    fn into_reply(self) -> Reply;

    /// The reply as it was before it travelled; `None` if it is of another kind.
    fn from_reply(reply: Reply) -> Option<Self>;
}

/// A token that takes a reply of the type `T`.
pub struct ReplyTo<T> {
    token: Token,
    reply: PhantomData<fn(T)>,
}

impl<T> ReplyTo<T> {
    /// The token of a request whose reply has this type. A driver makes it for the request that it hands over.
    #[must_use]
    pub fn of(token: Token) -> Self {
        Self { token, reply: PhantomData }
    }

    /// The token alone.
    #[must_use]
    pub fn token(self) -> Token {
        self.token
    }
}

impl<T> Clone for ReplyTo<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for ReplyTo<T> {}

impl<T> fmt::Debug for ReplyTo<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("ReplyTo").field(&self.token.0).finish()
    }
}

/// What became of an invocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundInvocation {
    /// Its result, or that it has none yet.
    pub result: InvocationResult,
    /// What is known of a workflow beside its result; `None` for other invocations.
    pub workflow: Option<Box<WorkflowView>>,
    /// What of it failed and has not ended.
    pub failures: Vec<FailureRecord>,
}

/// One page of a list in one shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed<T> {
    /// The items.
    pub items: Vec<T>,
    /// Whether there are more behind them.
    pub has_more: bool,
}

/// A dead letter by the field it is kept under.
pub type DeadLetter = (Box<[u8]>, DeadLetterRecord);

/// The committed state of an entity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntityState {
    /// Fields in their order.
    Fields(Vec<(Box<[u8]>, Value)>),
    /// The one field that was asked for.
    Field(Value),
}

/// A type that is all that its kind of reply holds.
macro_rules! typed_replies {
    ($($type:ty => $kind:ident),* $(,)?) => {$(
        impl TypedReply for $type {
            fn into_reply(self) -> Reply {
                Reply::$kind(self)
            }

            fn from_reply(reply: Reply) -> Option<Self> {
                if let Reply::$kind(held) = reply { Some(held) } else { None }
            }
        }
    )*};
}

typed_replies!(
    // A handler's output: JSON text.
    Bytes => Value,
    RouteReply => Route,
    // A call that was sent.
    InvocationId => Sent,
    Box<DeadLetterRecord> => DeadLetter,
    // Whether a service has any entity.
    bool => HasEntities,
    // When each of the schedules is due, in the order in which they were asked about.
    Vec<Option<UnixMillis>> => Schedules,
);

/// What was asked for is done.
impl TypedReply for () {
    fn into_reply(self) -> Reply {
        Reply::Done
    }

    fn from_reply(reply: Reply) -> Option<Self> {
        (reply == Reply::Done).then_some(())
    }
}

impl TypedReply for FoundInvocation {
    fn into_reply(self) -> Reply {
        // Nodes of earlier versions know only the first form.
        match self.failures.is_empty() {
            true => Reply::Invocation(self.result, self.workflow),
            false => Reply::FailingInvocation(self.result, self.workflow, self.failures),
        }
    }

    fn from_reply(reply: Reply) -> Option<Self> {
        match reply {
            Reply::Invocation(result, workflow) => Some(Self { result, workflow, failures: Vec::new() }),
            Reply::FailingInvocation(result, workflow, failures) => Some(Self { result, workflow, failures }),
            _ => None,
        }
    }
}

impl TypedReply for Listed<ListedWorkflow> {
    fn into_reply(self) -> Reply {
        let Self { mut items, has_more } = self;
        let mut failures = Vec::new();
        for (place, item) in (0..).zip(&mut items) {
            failures.extend(std::mem::take(&mut item.failures).into_iter().map(|failure| (place, failure)));
        }
        match failures.is_empty() {
            true => Reply::Workflows(items, has_more),
            false => Reply::FailingWorkflows(items, has_more, failures),
        }
    }

    fn from_reply(reply: Reply) -> Option<Self> {
        match reply {
            Reply::Workflows(items, has_more) => Some(Self { items, has_more }),
            Reply::FailingWorkflows(mut items, has_more, failures) => {
                for (place, failure) in failures {
                    items.get_mut(place as usize)?.failures.push(failure);
                }
                Some(Self { items, has_more })
            }
            _ => None,
        }
    }
}

impl TypedReply for Listed<DeadLetter> {
    fn into_reply(self) -> Reply {
        Reply::DeadLetters(self.items, self.has_more)
    }

    fn from_reply(reply: Reply) -> Option<Self> {
        if let Reply::DeadLetters(items, has_more) = reply { Some(Self { items, has_more }) } else { None }
    }
}

impl TypedReply for EntityState {
    fn into_reply(self) -> Reply {
        match self {
            EntityState::Fields(fields) => Reply::Fields(fields),
            EntityState::Field(value) => Reply::Field(value),
        }
    }

    fn from_reply(reply: Reply) -> Option<Self> {
        match reply {
            Reply::Fields(fields) => Some(EntityState::Fields(fields)),
            Reply::Field(value) => Some(EntityState::Field(value)),
            _ => None,
        }
    }
}
