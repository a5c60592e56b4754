//! Requests that wait for the node: what is left of one, and its reply.
//!
//! A request that changes something waits for the disk, and thousands wait together. So whatever the request came with
//! is let go before: its URL, its headers, and the map that held them. The reply is made in the memory that the request
//! before it has just used. Must not hold anything of the request.

use bytes::Bytes;
use http::Response;
use millrace_api::{RecordReply, RouteReply, Waiting};

use crate::auth;
use crate::body::ReplyBody;
use crate::local::Local;
use crate::operations::Kind;
use crate::{records, reply};

/// How far an operation has come.
pub(crate) enum Progress {
    /// To its reply.
    Done(Response<ReplyBody>),
    /// It waits, and needs nothing of its request any more.
    PendingReply(PendingReply),
}

/// What is left of a request that waits.
pub(crate) enum PendingReply {
    Call(Waiting<Bytes>),
    Route(Waiting<RouteReply>),
    Write(Waiting<RecordReply>, millrace_records::Write),
}

impl PendingReply {
    pub(crate) async fn reply(self, local: &Local, kind: Kind, is_anonymous: bool) -> Response<ReplyBody> {
        let reply = match self {
            PendingReply::Call(waiting) => waiting.await.map(|output| reply::json(local.take_map(), output)),
            PendingReply::Route(waiting) => waiting.await.and_then(|answer| reply::route(local.take_map(), answer)),
            PendingReply::Write(waiting, write) => {
                let end = |answer| records::respond(local.records.end_write(write, local.take_map(), answer));
                waiting.await.map(end)
            }
        };
        reply.unwrap_or_else(|error| records::refuse(kind, &auth::ask_for_key(error, is_anonymous), false))
    }
}
