//! What entities of the app tell each other. It travels inside one transaction or one message, so both sides are of one
//! version; messages of an older one are read as long as members are only added at the end.

use bytes::Bytes;
use millrace_api::objects::{LifecycleConfiguration, ObjectReply};
use millrace_base::{Error, ErrorCode};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::rows::{BucketRow, VersionRow};

/// What a bucket says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SettingsOutput {
    pub row: BucketRow,
    pub policy: Option<String>,
    pub lifecycle: Option<LifecycleConfiguration>,
}

/// What a bucket's handler asks of an object or an upload.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum ChangeInput {
    /// An operation of a requester.
    Operation {
        settings: SettingsOutput,
        /// As a front wrote it.
        request: Vec<u8>,
        /// Of one of many: a refusal is an answer.
        refusal_is_answer: bool,
    },
    /// Of an object: an upload was completed.
    Completed {
        settings: SettingsOutput,
        /// As a front wrote it.
        request: Vec<u8>,
        row: Box<VersionRow>,
    },
    /// Of an object or an upload: what is due by lifecycle rules.
    Expire { settings: SettingsOutput, bucket: String, key: String },
}

/// What a bucket tells itself about its lifecycle rules.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ExpireInput {
    /// Of the rules: see [`BucketRow::lifecycle_number`].
    pub number: u64,
    /// Objects come first, then uploads.
    pub is_uploads: bool,
    /// The key of the entity where it goes on; empty: at the first.
    pub from: Vec<u8>,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ChangeOutput {
    /// How many versions with content there are more than before, and how many bytes.
    pub objects: i64,
    pub size_bytes: i64,
    /// It was done before, and is answered once more.
    pub is_repeated: bool,
    /// Or the refusal's code and message.
    pub reply: Result<ObjectReply, (String, String)>,
}

impl ChangeOutput {
    /// A reply that changes nothing of what the bucket counts.
    pub(crate) fn reply(reply: ObjectReply) -> Self {
        Self { objects: 0, size_bytes: 0, is_repeated: false, reply: Ok(reply) }
    }
}

/// Fields with the contents of their values.
pub(crate) type Fields = Vec<(Vec<u8>, Vec<u8>)>;

/// What a slice of a bucket is told by another.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum SliceInput {
    /// The bucket's settings are these fields from now on.
    Settings(Fields),
    /// The same, for a slice in which nothing may be; without fields, there is no such slice any more.
    Begin(Fields),
    /// The bucket goes.
    Remove,
    /// How much is in it? It stays so until the transaction has ended.
    Usage,
    /// So many bytes may be in it.
    Share(u64),
}

/// What a bucket asks of its owner's account.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum AccountInput {
    /// It was made.
    Add { bucket: String, created_ms: u64 },
    /// It goes.
    Remove { bucket: String },
}

/// As an input or an output.
pub(crate) fn encode(value: &impl Serialize) -> Bytes {
    Bytes::from(postcard::to_allocvec(value).expect("a vector takes whatever it is given"))
}

/// Reads it back.
///
/// # Errors
/// `internal`: only this crate writes such bytes.
pub(crate) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Error> {
    postcard::from_bytes(bytes).map_err(|error| {
        Error::new(ErrorCode::Internal, format!("what entities of objects tell each other cannot be read: {error}"))
    })
}
