//! Users of S3 and their access keys, for administrators.
//!
//! Promises: a change is durable before it is answered, and no core waits for the disk meanwhile. Must not know how
//! users are kept or requests of S3 signed: `millrace_access` does.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::header::CACHE_CONTROL;
use http::{HeaderValue, StatusCode};
use millrace_access::{AccessKey, NewKey, NewSecret, NewUser, StoreError, UserError, UserSummary, Users};
use millrace_api::{Object, Permission, Principal};
use millrace_base::{Error, ErrorCode};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::backend::Backend;
use crate::handle::{Input, Reply, Session};
use crate::operations::{Kind, Parameter};
use crate::reply;

/// Characters of a parser's message that are shown: it may quote what it met.
const SHOWN_CHARACTERS: usize = 200;

/// Whether an operation is one of this module.
pub(crate) fn manages(kind: Kind) -> bool {
    use Kind::{S3AddKey, S3AddUser, S3Keys, S3RemoveUser, S3RevokeKey, S3Users};
    matches!(kind, S3AddUser | S3Users | S3RemoveUser | S3AddKey | S3Keys | S3RevokeKey)
}

/// Runs one of the operations of this module.
pub(crate) async fn manage<B: Backend>(
    session: &Session<B>,
    who: &Principal,
    kind: Kind,
    mut input: Input<'_>,
) -> Reply {
    if !who.may(Permission::Admin) {
        return Err(Error::new(ErrorCode::Forbidden, "users of S3 need the role admin"));
    }
    let users = session.state.local.front.users();
    let users = users.ok_or_else(|| Error::new(ErrorCode::NotYetSupported, "this node has no users of S3"))?;
    let users = Arc::clone(users);
    // A node of a cluster that has just started may know old users.
    if let Some(Err(error)) = session.backend.guidance() {
        return Err(error);
    }
    match kind {
        Kind::S3Users => list(&users),
        Kind::S3AddUser => {
            let new: NewUser = read(&input.body(&session.state).await?, r#"{"name": "…"}"#)?;
            let (user, secret) = change(move || users.add_user(&new, now_ms())).await?;
            with_secret(&NewUserReply::new(&user, &secret))
        }
        Kind::S3RemoveUser => {
            let user = input.name(Parameter::User)?.into_owned();
            change(move || users.remove_user(&user)).await?;
            Ok(reply::empty(StatusCode::NO_CONTENT))
        }
        Kind::S3Keys => keys(&users, &input.name(Parameter::User)?),
        Kind::S3AddKey => {
            let user = input.name(Parameter::User)?.into_owned();
            let body = input.body(&session.state).await?;
            let new = if body.is_empty() { NewKey::default() } else { read(&body, "{} or nothing")? };
            with_secret(&change(move || users.add_key(&user, &new, now_ms())).await?)
        }
        _ => {
            let (user, key) = (input.name(Parameter::User)?, input.name(Parameter::AccessKey)?);
            let (user, key) = (user.into_owned(), key.into_owned());
            change(move || users.revoke_key(&user, &key, now_ms())).await?;
            Ok(reply::empty(StatusCode::NO_CONTENT))
        }
    }
}

fn list(users: &Users) -> Reply {
    #[derive(Serialize)]
    struct Body {
        users: Vec<UserSummary>,
    }
    reply::json_value(StatusCode::OK, &Body { users: users.list() })
}

fn keys(users: &Users, user: &str) -> Reply {
    #[derive(Serialize)]
    struct Body {
        keys: Vec<AccessKey>,
    }
    reply::json_value(StatusCode::OK, &Body { keys: users.keys(user).map_err(|error| refused(&error))? })
}

/// A user who was just made, with the only look at the secret.
#[derive(Serialize)]
struct NewUserReply<'a> {
    id: &'a str,
    display_name: &'a str,
    email: &'a str,
    #[serde(flatten)]
    secret: &'a NewSecret,
}

impl<'a> NewUserReply<'a> {
    fn new(user: &'a UserSummary, secret: &'a NewSecret) -> Self {
        Self { id: &user.id, display_name: &user.display_name, email: &user.email, secret }
    }
}

/// No cache on the way may keep a secret.
fn with_secret(value: &impl Serialize) -> Reply {
    let mut response = reply::json_value(StatusCode::CREATED, value)?;
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

/// Runs a change where it may wait for the disk.
async fn change<T: Send + 'static>(change: impl FnOnce() -> Result<T, UserError> + Send + 'static) -> Result<T, Error> {
    let ended = tokio::task::spawn_blocking(change).await;
    let ended = ended.map_err(|_| Error::new(ErrorCode::Internal, "the change of the users of S3 failed"))?;
    ended.map_err(|error| refused(&error))
}

/// The payload's codes are those that IAM of AWS documents.
fn refused(error: &UserError) -> Error {
    let refusal = |code: &str| {
        let detail = Some(format!(r#"{{"code":"{code}"}}"#));
        Error { detail, ..Error::new(ErrorCode::ObjectRefused, error.to_string()) }
    };
    match error {
        UserError::Refused(_) => Error::new(ErrorCode::BadRequest, error.to_string()),
        UserError::Taken(_) => refusal("EntityAlreadyExists"),
        UserError::Unknown(_) => refusal("NoSuchEntity"),
        UserError::Full(_) => refusal("LimitExceeded"),
        UserError::Store(StoreError::Cluster(cause)) => cause.clone(),
        UserError::Store(StoreError::Changed) => Error::new(ErrorCode::Overloaded, error.to_string()),
        UserError::Store(StoreError::Io(cause)) if is_out_of_space(cause) => {
            Error::new(ErrorCode::ReadOnly, error.to_string())
        }
        UserError::Malformed(_) | UserError::Store(_) => Error::new(ErrorCode::Internal, error.to_string()),
    }
}

fn is_out_of_space(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded)
}

fn read<T: DeserializeOwned>(body: &Bytes, form: &str) -> Result<T, Error> {
    let Object::<T>(value) = serde_json::from_slice(body).map_err(|error| {
        let code = if error.is_data() { ErrorCode::BadRequest } else { ErrorCode::InvalidInput };
        let why: String = error.to_string().chars().take(SHOWN_CHARACTERS).collect();
        Error::new(code, format!("this is sent as {form}: {why}"))
    })?;
    Ok(value)
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
