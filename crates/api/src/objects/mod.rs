//! Operations on buckets and objects, as the S3 front, functions and the engine that keeps objects agree on them.
//!
//! An operation travels as the input of an ordinary call, and its reply as that call's output, as operations on records
//! do. So objects have everything calls have: transactions, idempotency keys, durability. The encoding (postcard) is a
//! stored format, as messages and replies are kept: variants and fields are only ever added at the end.
//!
//! Bodies do not travel so. A front writes a body with [`Objects::begin_body`] first, and then says with an operation
//! what it is: the operation makes it visible. A read gives the metadata, and the body beside it.
//!
//! Must not know HTTP, XML or how bodies lie on the disk.

mod access;
mod body;
mod checksum;
mod configuration;
mod encoding;
mod function;
mod operation;
mod refusal;
mod reply;
mod requester;
mod slices;
mod store;
mod target;
mod version;

use millrace_base::{Error, ErrorCode, limits};

use crate::{Allows, BuiltInApp, Setting};

pub use access::{
    AccessInput, AccessList, CannedAccess, Grant, Grantee, Group, Ownership, Permission, PublicAccessBlock,
};
pub use body::{BodyDigests, BodyName, BodyOwner, Content, PartBody, WrittenBody};
pub use checksum::{Checksum, ChecksumAlgorithm, ChecksumKind};
pub use configuration::{
    Configuration, ConfigurationKind, CorsConfiguration, CorsRule, DefaultRetention, Expiry, LifecycleConfiguration,
    LifecycleFilter, LifecycleRule, NotificationConfiguration, NotificationRule, ObjectLock, Retention, RetentionMode,
    RetentionPeriod, Versioning,
};
pub use function::FunctionPut;
pub use operation::{
    CompletePart, CopyInput, DeleteOne, ListRequest, ObjectOperation, PartInput, PutInput, ReadConditions, UploadInput,
    WriteConditions,
};
pub use refusal::{Refusal, body_lost, is_body_lost};
pub use reply::{
    BucketInfo, Deleted, DeletedOne, ListPage, ListedObject, ListedPart, ListedUpload, ListedVersion, ObjectReply,
    PartsPage, PolicyStatus, Usage,
};
pub use requester::{ObjectRequest, Requester, app_id};
pub use slices::{Slices, moved, moved_to};
pub use store::{BodyRead, BodyWrite, BodyWritten, ObjectAdministration, ObjectRead, Objects};
pub use target::Target;
pub use version::{ObjectInfo, PartInfo, Tag, VersionId};

/// The app whose services keep buckets and objects. Users cannot deploy an app of this name.
pub const OBJECTS_APP: &str = "objects";

/// Its row among the built-in apps. It has no files, as its engine is its code. It is always there, so that what buckets
/// keep goes on to be looked after, whether or not anybody asks over S3.
pub(crate) static APP: BuiltInApp = BuiltInApp {
    name: OBJECTS_APP,
    files: None,
    key_bytes: limits::BUILT_IN_KEY_BYTES,
    // Buckets say themselves who may what.
    open_services: &[BUCKET_SERVICE, OBJECT_SERVICE],
    setting: Setting {
        name: "notifications",
        allows: Allows::SettingOff,
        most_lines: limits::NOTIFYING_BUCKETS,
        is_line: is_bucket_line,
        names: "bucket",
        refused: |name| format!("the app does not let the bucket {name:?} call its handlers"),
    },
    reached: "its buckets are reached over S3",
    no_service: |name| {
        Error::new(ErrorCode::UnknownService, format!("the built-in app {OBJECTS_APP:?} has no service {name:?}"))
    },
};

/// Whether buckets can have a name like this, or one that begins like it where a star is behind.
fn is_bucket_line(line: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
    let start = line.strip_suffix('*').unwrap_or(line);
    !line.is_empty() && start.len() <= 63 && start.bytes().all(is_part)
}

/// One entity a slice of a bucket. Of the first the key is `{bucket}`: its settings, who may what, how much is in it. The
/// others have the key `{bucket/n}`: a copy of the settings, and how much is in them.
pub const BUCKET_SERVICE: &str = "bucket";

/// One entity an object, with the key `{bucket}key`, or `{bucket/n}key`: its versions. It lies in its slice's shard.
pub const OBJECT_SERVICE: &str = "object";

/// One entity an upload, with the key `{bucket}key`, a zero byte and the upload's id: its parts.
pub const UPLOAD_SERVICE: &str = "upload";

/// One entity a user, with the canonical id as its key: which buckets are theirs.
pub const ACCOUNT_SERVICE: &str = "account";
