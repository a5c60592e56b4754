//! Buckets of S3, for administrators: whose they are, what is in them, how much may be.
//!
//! Must not know how buckets are kept, nor who may do what over S3: this asks in the name of the node.

use bytes::Bytes;
use http::StatusCode;
use millrace_api::objects::{ListRequest, ObjectOperation, ObjectReply, ObjectRequest, Refusal, Requester};
use millrace_api::{Object, Permission, Principal};
use millrace_base::{Error, ErrorCode};
use serde::{Deserialize, Serialize};

use crate::backend::Backend;
use crate::handle::{Input, Reply, Session};
use crate::operations::{Kind, Parameter};
use crate::reply;

/// Buckets asked for at a time.
const PAGE: u16 = 1000;

/// Whether an operation is one of this module.
pub(crate) fn manages(kind: Kind) -> bool {
    matches!(kind, Kind::S3Buckets | Kind::S3Bucket | Kind::S3SetQuota | Kind::S3SetApp | Kind::S3SetSlices)
}

/// Runs one of the operations of this module.
pub(crate) async fn manage<B: Backend>(
    session: &Session<B>,
    who: &Principal,
    kind: Kind,
    mut input: Input<'_>,
) -> Reply {
    if !who.may(Permission::Admin) {
        return Err(Error::new(ErrorCode::Forbidden, "buckets of S3 need the role admin"));
    }
    match kind {
        Kind::S3Buckets => list(session).await,
        Kind::S3Bucket => usage(session, &input.name(Parameter::Bucket)?).await,
        Kind::S3SetApp => {
            let bucket = input.name(Parameter::Bucket)?.into_owned();
            let body = input.body(&session.state).await?;
            let Object::<Owner>(owner) = serde_json::from_slice(&body).map_err(|_| {
                Error::new(ErrorCode::BadRequest, r#"this is sent as {"app": "NAME"} or {"app": null}"#)
            })?;
            ask(session, "", &bucket, ObjectOperation::SetApp(owner.app)).await?;
            Ok(reply::empty(StatusCode::NO_CONTENT))
        }
        Kind::S3SetSlices => {
            let bucket = input.name(Parameter::Bucket)?.into_owned();
            let body = input.body(&session.state).await?;
            let Object::<Spread>(spread) = serde_json::from_slice(&body)
                .map_err(|_| Error::new(ErrorCode::BadRequest, r#"this is sent as {"slices": NUMBER}"#))?;
            ask(session, "", &bucket, ObjectOperation::SetSlices(spread.slices)).await?;
            Ok(reply::empty(StatusCode::NO_CONTENT))
        }
        _ => {
            let bucket = input.name(Parameter::Bucket)?.into_owned();
            let body = input.body(&session.state).await?;
            let Object::<Quota>(quota) = serde_json::from_slice(&body).map_err(|_| {
                Error::new(ErrorCode::BadRequest, r#"this is sent as {"quota_bytes": NUMBER} or {"quota_bytes": null}"#)
            })?;
            ask(session, "", &bucket, ObjectOperation::SetQuota(quota.quota_bytes)).await?;
            Ok(reply::empty(StatusCode::NO_CONTENT))
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Quota {
    /// `null`: without a bound.
    #[serde(deserialize_with = "Option::deserialize")]
    quota_bytes: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Owner {
    /// `null`: of no app.
    #[serde(deserialize_with = "Option::deserialize")]
    app: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Spread {
    slices: u16,
}

#[derive(Serialize)]
struct Listed {
    name: String,
    owner: String,
    owner_name: String,
    created_ms: u64,
    /// The app that it belongs to.
    app: Option<String>,
}

/// The buckets of all users, in the order of users and names.
async fn list<B: Backend>(session: &Session<B>) -> Reply {
    #[derive(Serialize)]
    struct Body {
        buckets: Vec<Listed>,
    }
    let users = session.state.local.front.users();
    let users = users.ok_or_else(|| Error::new(ErrorCode::NotYetSupported, "this node has no users of S3"))?.list();
    let mut buckets = Vec::new();
    for user in users {
        let mut request = ListRequest { limit: PAGE, ..ListRequest::default() };
        loop {
            let asked = ObjectOperation::ListBuckets(request.clone());
            let ObjectReply::Buckets(page) = ask(session, &user.id, "", asked).await? else { return Err(unexpected()) };
            for bucket in page.items {
                let app = match ask(session, "", &bucket.name, ObjectOperation::HeadBucket).await {
                    Ok(ObjectReply::Bucket(info)) => info.app,
                    Ok(_) => return Err(unexpected()),
                    // It went meanwhile.
                    Err(error) if error.code == ErrorCode::UnknownState => continue,
                    Err(error) => return Err(error),
                };
                buckets.push(Listed {
                    name: bucket.name,
                    owner: user.id.clone(),
                    owner_name: user.display_name.clone(),
                    created_ms: bucket.created_ms,
                    app,
                });
            }
            match page.next {
                Some((after, _)) => request.after = after,
                None => break,
            }
        }
    }
    reply::json_value(StatusCode::OK, &Body { buckets })
}

/// What is in a bucket.
async fn usage<B: Backend>(session: &Session<B>, bucket: &str) -> Reply {
    #[derive(Serialize)]
    struct Body {
        name: String,
        owner: String,
        created_ms: u64,
        objects: u64,
        size_bytes: u64,
        quota_bytes: Option<u64>,
        app: Option<String>,
        slices: u16,
    }
    let ObjectReply::Bucket(info) = ask(session, "", bucket, ObjectOperation::HeadBucket).await? else {
        return Err(unexpected());
    };
    let ObjectReply::Usage(usage) = ask(session, "", bucket, ObjectOperation::GetUsage).await? else {
        return Err(unexpected());
    };
    let body = Body {
        name: info.name,
        owner: info.owner,
        created_ms: info.created_ms,
        objects: usage.objects,
        size_bytes: usage.size_bytes,
        quota_bytes: usage.quota_bytes,
        app: info.app,
        slices: info.slices,
    };
    reply::json_value(StatusCode::OK, &body)
}

/// Asks in the name of the node, about a user's account where one is named.
async fn ask<B: Backend>(
    session: &Session<B>,
    user: &str,
    bucket: &str,
    operation: ObjectOperation,
) -> Result<ObjectReply, Error> {
    let id = (!user.is_empty()).then_some(user);
    let requester = Requester { id, is_system: true, ..Requester::default() };
    let request = ObjectRequest { requester, bucket, key: "", operation, body: Bytes::new() };
    session.backend.administer(request).reply().await.map_err(|error| match Refusal::of(&error) {
        Some(Refusal::NoSuchBucket) => {
            Error::new(ErrorCode::UnknownState, format!("the bucket {bucket:?} does not exist"))
        }
        _ => error,
    })
}

fn unexpected() -> Error {
    Error::new(ErrorCode::Internal, "a question about buckets was answered with something else")
}
