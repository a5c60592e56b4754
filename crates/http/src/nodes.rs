//! The nodes of a cluster, for administrators: which there are.
//!
//! Must not know how a cluster agrees on that.

use http::{HeaderMap, StatusCode};
use millrace_api::{NodeChange, Object, Permission, Principal};
use millrace_base::{Error, ErrorCode};
use serde::Deserialize;

use crate::backend::Backend;
use crate::handle::{Input, Reply, Session};
use crate::operations::{Kind, Parameter};
use crate::reply;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Added {
    http: String,
    peer: String,
    #[serde(default)]
    rack: String,
}

/// Changes which nodes there are.
pub(crate) async fn change<B: Backend>(
    session: &Session<B>,
    who: &Principal,
    kind: Kind,
    mut input: Input<'_>,
) -> Reply {
    who.require(Permission::Admin)?;
    if kind == Kind::AddNode {
        let body = input.body(&session.state).await?;
        let Object::<Added>(Added { http, peer, rack }) = serde_json::from_slice(&body).map_err(|_| {
            Error::new(
                ErrorCode::BadRequest,
                r#"a node is added as {"http": "HOST:PORT", "peer": "HOST:PORT"}, with a "rack" if it stands in one"#,
            )
        })?;
        let added = session.backend.change_nodes(who, NodeChange::Add { http, peer, rack }).await?;
        return Ok(reply::json(HeaderMap::new(), added));
    }
    let text = input.name(Parameter::Id)?;
    let node: u16 = text.parse().map_err(|_| {
        Error::new(ErrorCode::BadRequest, format!("{text:?} is no number of a node: `GET /cluster` lists them"))
    })?;
    let change = match kind {
        Kind::DrainNode => NodeChange::Drain(node),
        Kind::KeepNode => NodeChange::Keep(node),
        _ => NodeChange::Remove(node),
    };
    session.backend.change_nodes(who, change).await?;
    Ok(reply::empty(StatusCode::NO_CONTENT))
}
