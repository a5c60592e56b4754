//! What an activation was started with, borrowed during its first turn and kept if it waits.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use millrace_func::HeaderSource;
use millrace_func::HttpRequest;

/// What an activation is about.
pub(crate) enum Subject<'a> {
    /// A handler: its entity's key.
    Entity(Cow<'a, [u8]>),
    /// A route: its request.
    Request(Request<'a>),
}

/// A route's request.
pub(crate) struct Request<'a> {
    pub(crate) method: Cow<'a, str>,
    pub(crate) path: Cow<'a, str>,
    pub(crate) query: Cow<'a, str>,
    pub(crate) parameters: Cow<'a, [(String, String)]>,
    pub(crate) headers: Arc<dyn HeaderSource>,
    pub(crate) body: Bytes,
}

impl<'a> Subject<'a> {
    pub(crate) fn of_request(request: HttpRequest<'a>) -> Self {
        Subject::Request(Request {
            method: Cow::Borrowed(request.method),
            path: Cow::Borrowed(request.path),
            query: Cow::Borrowed(request.query),
            parameters: Cow::Borrowed(request.parameters),
            headers: request.headers,
            body: request.body,
        })
    }

    /// The same, owning everything.
    pub(crate) fn into_owned(self) -> Subject<'static> {
        match self {
            Subject::Entity(key) => Subject::Entity(Cow::Owned(key.into_owned())),
            Subject::Request(request) => Subject::Request(Request {
                method: Cow::Owned(request.method.into_owned()),
                path: Cow::Owned(request.path.into_owned()),
                query: Cow::Owned(request.query.into_owned()),
                parameters: Cow::Owned(request.parameters.into_owned()),
                headers: request.headers,
                body: request.body,
            }),
        }
    }
}
