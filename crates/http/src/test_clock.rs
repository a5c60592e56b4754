//! The clock of a node for tests: moved ahead by an administrator.

use http::StatusCode;
use millrace_api::{Object, Permission, Principal};
use millrace_base::{Error, ErrorCode};
use serde::Deserialize;

use crate::backend::Backend;
use crate::handle::{Input, Reply, Session};
use crate::reply;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Advance {
    advance_ms: u64,
}

/// `POST /clock.json`.
pub(crate) async fn advance<B: Backend>(session: &Session<B>, who: &Principal, mut input: Input<'_>) -> Reply {
    who.require(Permission::Admin)?;
    let body = input.body(&session.state).await?;
    let Object::<Advance>(Advance { advance_ms }) = serde_json::from_slice(&body).map_err(|_| {
        Error::new(ErrorCode::BadRequest, r#"a clock is moved by {"advance_ms": NUMBER}, which is not negative"#)
    })?;
    reply::json_value(StatusCode::OK, &session.backend.advance_clock(who, advance_ms)?)
}
