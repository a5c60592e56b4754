//! Who asks for an operation on objects, and from where.

use std::net::IpAddr;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::ObjectOperation;

/// Who asks. Fronts have authenticated them; policies and access lists decide what they may do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Requester<'a> {
    /// The canonical id; `None`: anonymous.
    pub id: Option<&'a str>,
    /// The user's name, as policies may name it.
    pub name: &'a str,
    /// The node itself or its administrator: no policy is asked.
    pub is_system: bool,
    /// From where the request came.
    pub address: Option<IpAddr>,
    /// Whether the connection is encrypted.
    pub is_encrypted: bool,
    /// The header `referer`, or empty.
    pub referer: &'a str,
    /// The header `user-agent`, or empty.
    pub user_agent: &'a str,
    /// The canonical id that the bucket's owner must have; empty: any.
    pub expected_bucket_owner: &'a str,
    /// How it was signed, as policies may ask: `REST-HEADER`, `REST-QUERY-STRING`, `POST`, or empty.
    pub auth_kind: &'a str,
    /// The signature's version, as policies may ask: `AWS4-HMAC-SHA256`, `AWS`, or empty.
    pub signature_version: &'a str,
}

/// What the id of a function begins with. No user's does: theirs are hexadecimal.
const APP: &str = "app:";

/// The id under which functions of an app ask.
#[must_use]
pub fn app_id(app: &str) -> String {
    [APP, app].concat()
}

impl<'a> Requester<'a> {
    /// A function of an app, by the id that [`app_id`] gave. It has no name, so that no policy takes it for a user.
    #[must_use]
    pub fn function(id: &'a str) -> Self {
        // What it asks for does not leave the process.
        Self { id: Some(id), is_encrypted: true, ..Self::default() }
    }

    /// The app, if a function asks.
    #[must_use]
    pub fn app(&self) -> Option<&'a str> {
        self.id?.strip_prefix(APP)
    }
}

/// An operation as fronts ask for it.
#[derive(Clone, Debug)]
pub struct ObjectRequest<'a> {
    /// Who asks.
    pub requester: Requester<'a>,
    /// The bucket; empty only for [`ObjectOperation::ListBuckets`].
    pub bucket: &'a str,
    /// The object's key, decoded; empty for operations on the bucket.
    pub key: &'a str,
    /// What to do.
    pub operation: ObjectOperation,
    /// A small body that travels with [`ObjectOperation::Put`] or [`ObjectOperation::PutPart`].
    pub body: Bytes,
}
