//! A bucket of S3 as a place of backups.
//!
//! One list at the beginning tells what is there, so a look at a length costs no request. Others may change the bucket
//! meanwhile: they add files, and whoever removes some does so when nobody else is there, because a bucket has no locks.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use clap::Args;
use millrace_backup::Place;
use millrace_client::{ClientError, Credentials, S3Bucket};
use tokio::runtime::Runtime;

use crate::Failure;

/// Where the bucket's server is, and who asks. The variables are those of other clients of S3.
#[derive(Args, Debug, Clone)]
pub(crate) struct BucketArgs {
    /// For s3://…: the address of the server, if it is not Amazon's
    #[arg(long, value_name = "URL", env = "AWS_ENDPOINT_URL")]
    s3_endpoint: Option<String>,
    /// For s3://…: the region
    #[arg(long, value_name = "NAME", env = "AWS_REGION", default_value = "us-east-1")]
    s3_region: String,
    /// For s3://…: the access key
    #[arg(long, value_name = "KEY", env = "AWS_ACCESS_KEY_ID")]
    s3_access_key: Option<String>,
    /// For s3://…: its secret
    #[arg(long, value_name = "SECRET", env = "AWS_SECRET_ACCESS_KEY", hide_env_values = true)]
    s3_secret_key: Option<String>,
    /// For s3://…: trust the certificate authorities in this file (PEM) instead of the system's
    #[arg(long, value_name = "FILE", env = "AWS_CA_BUNDLE")]
    s3_ca: Option<std::path::PathBuf>,
}

/// See the module's documentation.
pub(crate) struct BucketPlace {
    runtime: Runtime,
    bucket: S3Bucket,
    name: String,
    /// Before the names of files: empty, or ends with a slash.
    prefix: String,
    files: Mutex<BTreeMap<String, u64>>,
}

impl BucketPlace {
    /// The place `s3://bucket/prefix`. `place` is what follows `s3://`.
    ///
    /// # Errors
    /// What is missing, or what the server answers.
    pub(crate) fn open(place: &str, args: &BucketArgs) -> Result<Self, Failure> {
        let (bucket, prefix) = place.split_once('/').unwrap_or((place, ""));
        let prefix = prefix.trim_matches('/');
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_' | b'/');
        if bucket.is_empty() || !bucket.bytes().chain(prefix.bytes()).all(is_plain) {
            return Err(format!(
                "s3://{place} is not s3://BUCKET or s3://BUCKET/PREFIX, of letters, digits and . - _ /"
            )
            .into());
        }
        let missing = |what| format!("s3://{place} needs {what}");
        let access_key = args.s3_access_key.clone().ok_or_else(|| missing("AWS_ACCESS_KEY_ID (--s3-access-key)"))?;
        let secret_key =
            args.s3_secret_key.clone().ok_or_else(|| missing("AWS_SECRET_ACCESS_KEY (--s3-secret-key)"))?;
        let region = args.s3_region.clone();
        let endpoint = args.s3_endpoint.clone().unwrap_or_else(|| format!("https://s3.{region}.amazonaws.com"));
        let credentials = Credentials { access_key, secret_key, region };
        let bucket = S3Bucket::new(&endpoint, args.s3_ca.as_deref(), bucket, credentials)?;
        let prefix = if prefix.is_empty() { String::new() } else { format!("{prefix}/") };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let name = format!("s3://{place}");
        let listed = runtime.block_on(bucket.list(&prefix)).map_err(|error| format!("{name}: {error}"))?;
        let below = |key: &str| key.strip_prefix(&prefix).map(str::to_owned);
        let files = listed.into_iter().filter_map(|object| Some((below(&object.key)?, object.bytes))).collect();
        Ok(Self { runtime, bucket, name, prefix, files: Mutex::new(files) })
    }

    fn files(&self) -> MutexGuard<'_, BTreeMap<String, u64>> {
        // Every change is one insertion or one removal.
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ask<T>(&self, request: impl Future<Output = Result<T, ClientError>>) -> io::Result<T> {
        self.runtime.block_on(request).map_err(|error| io::Error::other(error.to_string()))
    }
}

impl Place for BucketPlace {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn is_durable_at_once(&self) -> bool {
        true
    }

    fn refusal(&self) -> io::Result<Option<String>> {
        let is_empty = self.files().is_empty();
        Ok((!is_empty).then(|| "is not empty and holds no backups: name another prefix".to_owned()))
    }

    fn create_folder(&self, _name: &str) -> io::Result<()> {
        Ok(())
    }

    fn list(&self, name: &str, _unfinished: bool) -> io::Result<Vec<String>> {
        let folder = format!("{name}/");
        let files = self.files();
        let below = files.keys().filter_map(|file| file.strip_prefix(&folder));
        let mut names: Vec<String> = below.map(|rest| rest.split('/').next().unwrap_or(rest).to_owned()).collect();
        names.dedup();
        Ok(names)
    }

    fn length(&self, name: &str) -> io::Result<Option<u64>> {
        Ok(self.files().get(name).copied())
    }

    fn read(&self, name: &str, limit: u64) -> io::Result<Vec<u8>> {
        let found = self.ask(self.bucket.get(&format!("{}{name}", self.prefix)))?;
        let bytes = found.ok_or(io::ErrorKind::NotFound)?;
        if bytes.len() as u64 > limit { Err(io::ErrorKind::FileTooLarge.into()) } else { Ok(bytes.into()) }
    }

    fn write(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.ask(self.bucket.put(&format!("{}{name}", self.prefix), Bytes::copy_from_slice(bytes)))?;
        self.files().insert(name.to_owned(), bytes.len() as u64);
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.ask(self.bucket.delete(&format!("{}{name}", self.prefix)))?;
        self.files().remove(name);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn lock(&self, _name: &str, _is_alone: bool) -> io::Result<Box<dyn Send>> {
        Ok(Box::new(()))
    }
}
