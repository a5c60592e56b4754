//! Users of S3 and their access keys.

use bytes::Bytes;
use hyper::Method;
use serde_json::{Map, Value};

use crate::client::{Prepared, parse, segment};
use crate::{Client, ClientError};

/// A user to be made. The access key and its secret are drawn by the server unless both are given.
#[derive(Clone, Default)]
pub struct NewS3User<'a> {
    /// The name.
    pub name: &'a str,
    /// The e-mail address.
    pub email: Option<&'a str>,
    /// The first access key.
    pub access_key: Option<&'a str>,
    /// Its secret.
    pub secret_key: Option<&'a str>,
}

impl Client {
    /// Makes a user of S3. The answer is as the server describes it, with the secret key, which is shown this once.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn add_s3_user(&self, new: &NewS3User<'_>) -> Result<Value, ClientError> {
        let body = object(&[
            ("name", Some(new.name)),
            ("email", new.email),
            ("access_key", new.access_key),
            ("secret_key", new.secret_key),
        ]);
        self.post("/s3/users", body).await
    }

    /// The users of S3, as the server describes them.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn s3_users(&self) -> Result<Value, ClientError> {
        parse(&self.get("/s3/users").await?.body)
    }

    /// Removes the user of S3 with this name or id.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn remove_s3_user(&self, user: &str) -> Result<(), ClientError> {
        self.delete(&format!("/s3/users/{}", segment(user))).await
    }

    /// Makes one more access key for a user of S3. The secret key is shown this once.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn add_s3_key(
        &self,
        user: &str,
        access_key: Option<&str>,
        secret_key: Option<&str>,
    ) -> Result<Value, ClientError> {
        let body = object(&[("access_key", access_key), ("secret_key", secret_key)]);
        self.post(&format!("/s3/users/{}/keys", segment(user)), body).await
    }

    /// The access keys of a user of S3, as the server describes them.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn s3_keys(&self, user: &str) -> Result<Value, ClientError> {
        parse(&self.get(&format!("/s3/users/{}/keys", segment(user))).await?.body)
    }

    /// Revokes an access key for good.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn revoke_s3_key(&self, user: &str, access_key: &str) -> Result<(), ClientError> {
        self.delete(&format!("/s3/users/{}/keys/{}", segment(user), segment(access_key))).await
    }

    /// The buckets of S3 of all users.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn s3_buckets(&self) -> Result<Value, ClientError> {
        parse(&self.get("/s3/buckets").await?.body)
    }

    /// What is in a bucket of S3, and its quota.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn s3_bucket(&self, bucket: &str) -> Result<Value, ClientError> {
        parse(&self.get(&format!("/s3/buckets/{}", segment(bucket))).await?.body)
    }

    /// Sets how many bytes a bucket of S3 may hold; `None` takes the bound away.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn set_s3_quota(&self, bucket: &str, quota_bytes: Option<u64>) -> Result<(), ClientError> {
        let path = format!("/s3/buckets/{}/quota", segment(bucket));
        self.put(&path, &serde_json::json!({ "quota_bytes": quota_bytes })).await
    }

    /// Gives a bucket of S3 to an app, whose functions may use it then; `None`: to none.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn set_s3_app(&self, bucket: &str, app: Option<&str>) -> Result<(), ClientError> {
        let path = format!("/s3/buckets/{}/app", segment(bucket));
        self.put(&path, &serde_json::json!({ "app": app })).await
    }

    /// Spreads an empty bucket of S3 over so many slices, on as many cores.
    ///
    /// # Errors
    /// See [`ClientError`]; `object-refused` for a bucket that is not empty.
    pub async fn set_s3_slices(&self, bucket: &str, slices: u16) -> Result<(), ClientError> {
        let path = format!("/s3/buckets/{}/slices", segment(bucket));
        self.put(&path, &serde_json::json!({ "slices": slices })).await
    }

    /// The API keys that the nodes of a cluster agree on, and their version.
    ///
    /// # Errors
    /// See [`ClientError`]; `unknown-route` for a node whose keys are in a file of its own.
    pub async fn cluster_keys(&self) -> Result<Value, ClientError> {
        parse(&self.get("/cluster/keys").await?.body)
    }

    /// Replaces the API keys of a cluster, if they still have the version that they name.
    ///
    /// # Errors
    /// See [`ClientError`]; `precondition-failed` if they have another one.
    pub async fn replace_cluster_keys(&self, keys: &Value) -> Result<(), ClientError> {
        self.put("/cluster/keys", keys).await
    }

    async fn put(&self, path: &str, body: &Value) -> Result<(), ClientError> {
        let (content_type, body) = ("application/json", Bytes::from(body.to_string()));
        let method = Method::PUT;
        self.request(&Prepared { method, content_type, body, ..Prepared::get(path) }).await.map(drop)
    }

    async fn post(&self, path: &str, body: Bytes) -> Result<Value, ClientError> {
        let content_type = "application/json";
        parse(&self.request(&Prepared { method: Method::POST, content_type, body, ..Prepared::get(path) }).await?.body)
    }

    async fn delete(&self, path: &str) -> Result<(), ClientError> {
        self.request(&Prepared { method: Method::DELETE, ..Prepared::get(path) }).await.map(|_| ())
    }
}

/// A JSON object of the members that are there.
fn object(members: &[(&str, Option<&str>)]) -> Bytes {
    let there = members.iter().filter_map(|(name, value)| Some(((*name).to_owned(), Value::from((*value)?))));
    Value::Object(there.collect::<Map<_, _>>()).to_string().into()
}
