//! API keys that the nodes of a cluster agree on, for administrators.
//!
//! Promises: a change is on all nodes that are alive when it is answered, and no core waits for that. Must not know how keys are
//! kept or checked: `millrace_access` does. No secret passes here: who makes a key sends its hash.

use std::sync::Arc;

use http::StatusCode;
use millrace_access::{AgreeError, AgreedKeys, StoreError};
use millrace_api::{Object, Permission, Principal};
use millrace_base::{Error, ErrorCode};

use crate::backend::Backend;
use crate::handle::{Input, Reply, Session};
use crate::operations::Kind;
use crate::reply;

/// Runs one of the operations of this module.
pub(crate) async fn manage<B: Backend>(
    session: &Session<B>,
    who: &Principal,
    kind: Kind,
    mut input: Input<'_>,
) -> Reply {
    who.require(Permission::Admin)?;
    let agreement = session.state.local.front.agreement().map(Arc::clone).ok_or_else(|| {
        let message = "this node's API keys are in a file of its own: change that with millrace keys";
        Error::new(ErrorCode::UnknownRoute, message)
    })?;
    // A node of a cluster that has just started may know old keys.
    if let Some(Err(error)) = session.backend.guidance() {
        return Err(error);
    }
    if kind == Kind::ClusterKeys {
        return reply::json_value(StatusCode::OK, &agreement.held());
    }
    let body = input.body(&session.state).await?;
    let Object::<AgreedKeys>(next) = serde_json::from_slice(&body).map_err(|error| {
        let message = format!(r#"this is sent as {{"version": …, "keys": {{…}}}}, as it was read: {error}"#);
        Error::new(ErrorCode::BadRequest, message)
    })?;
    let ended = tokio::task::spawn_blocking(move || agreement.replace(&next)).await;
    match ended.map_err(|_| Error::new(ErrorCode::Internal, "the change of the keys failed"))? {
        Ok(()) => Ok(reply::empty(StatusCode::NO_CONTENT)),
        Err(AgreeError::Refused(reason)) => Err(Error::new(ErrorCode::BadRequest, reason)),
        Err(AgreeError::Store(StoreError::Cluster(error))) => Err(error),
        Err(AgreeError::Store(StoreError::Changed)) => {
            let message = "somebody else has changed the keys meanwhile: read them again";
            Err(Error::new(ErrorCode::PreconditionFailed, message))
        }
        Err(AgreeError::Store(error)) => Err(Error::new(ErrorCode::Internal, error.to_string())),
    }
}
