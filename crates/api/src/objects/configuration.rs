//! Settings of a bucket, and the lock of an object.

use serde::{Deserialize, Serialize};

use super::{AccessInput, Ownership, PublicAccessBlock, Tag};

/// Which setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ConfigurationKind {
    /// Whether versions are kept.
    Versioning,
    /// Which web pages may use the bucket.
    Cors,
    /// What vanishes when.
    Lifecycle,
    /// The bucket policy.
    Policy,
    /// Tags of the bucket.
    Tagging,
    /// The access list.
    Access,
    /// Who owns objects.
    Ownership,
    /// What keeps it from being public.
    PublicAccess,
    /// Object lock.
    ObjectLock,
    /// Which handler is told of what.
    Notification,
    /// Who pays; kept and otherwise without meaning.
    RequestPayment,
}

/// One setting of a bucket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Configuration {
    /// See [`ConfigurationKind::Versioning`].
    Versioning(Versioning),
    /// See [`ConfigurationKind::Cors`].
    Cors(CorsConfiguration),
    /// See [`ConfigurationKind::Lifecycle`].
    Lifecycle(LifecycleConfiguration),
    /// JSON text as it was given.
    Policy(String),
    /// See [`ConfigurationKind::Tagging`].
    Tagging(Vec<Tag>),
    /// Read: always [`AccessInput::List`].
    Access(AccessInput),
    /// See [`ConfigurationKind::Ownership`].
    Ownership(Ownership),
    /// See [`ConfigurationKind::PublicAccess`].
    PublicAccess(PublicAccessBlock),
    /// See [`ConfigurationKind::ObjectLock`].
    ObjectLock(ObjectLock),
    /// See [`ConfigurationKind::Notification`].
    Notification(NotificationConfiguration),
    /// Whether the requester pays.
    RequestPayment(bool),
}

impl Configuration {
    /// Which setting it is.
    #[must_use]
    pub fn kind(&self) -> ConfigurationKind {
        match self {
            Self::Versioning(_) => ConfigurationKind::Versioning,
            Self::Cors(_) => ConfigurationKind::Cors,
            Self::Lifecycle(_) => ConfigurationKind::Lifecycle,
            Self::Policy(_) => ConfigurationKind::Policy,
            Self::Tagging(_) => ConfigurationKind::Tagging,
            Self::Access(_) => ConfigurationKind::Access,
            Self::Ownership(_) => ConfigurationKind::Ownership,
            Self::PublicAccess(_) => ConfigurationKind::PublicAccess,
            Self::ObjectLock(_) => ConfigurationKind::ObjectLock,
            Self::Notification(_) => ConfigurationKind::Notification,
            Self::RequestPayment(_) => ConfigurationKind::RequestPayment,
        }
    }
}

/// Whether a bucket keeps versions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Versioning {
    /// Never was switched on.
    #[default]
    Off,
    /// Each write makes a version.
    Enabled,
    /// Writes replace the version `null`; older ones stay.
    Suspended,
}

/// Rules for web pages of other origins.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CorsConfiguration {
    /// The first that fits counts; at most 100.
    pub rules: Vec<CorsRule>,
}

/// One rule of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CorsRule {
    /// A name, if it was given one.
    pub id: Option<String>,
    /// `GET`, `PUT`, `POST`, `DELETE`, `HEAD`.
    pub allowed_methods: Vec<String>,
    /// Each with at most one `*`.
    pub allowed_origins: Vec<String>,
    /// Each with at most one `*`.
    pub allowed_headers: Vec<String>,
    /// Headers that the page may read.
    pub expose_headers: Vec<String>,
    /// How long a browser may keep the answer.
    pub max_age_s: Option<u32>,
}

/// What vanishes when.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LifecycleConfiguration {
    /// At most 1,000.
    pub rules: Vec<LifecycleRule>,
}

/// One rule of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LifecycleRule {
    /// Unique in the configuration; given one if it has none.
    pub id: String,
    /// Whether it counts.
    pub is_enabled: bool,
    /// Which objects.
    pub filter: LifecycleFilter,
    /// When current versions expire.
    pub expiration: Option<Expiry>,
    /// Remove delete markers behind which no version is left.
    pub expired_object_delete_marker: bool,
    /// Days after which a version that is not current is removed.
    pub noncurrent_days: Option<u32>,
    /// So many newer versions that are not current stay in any case.
    pub newer_noncurrent_versions: Option<u32>,
    /// Days after which an upload that was not completed is aborted.
    pub abort_upload_days: Option<u32>,
    /// The prefix stands outside a filter, as old documents have it. Matters only for how it is shown again.
    pub is_prefix_outside: bool,
}

/// Which objects a rule is for. All that is said must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LifecycleFilter {
    /// How keys begin.
    pub prefix: Option<String>,
    /// Tags that the object has.
    pub tags: Vec<Tag>,
    /// Bytes that it has more than.
    pub size_greater_than: Option<u64>,
    /// Bytes that it has less than.
    pub size_less_than: Option<u64>,
}

/// When current versions expire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Expiry {
    /// So many days after they were made, at the next midnight UTC.
    Days(u32),
    /// From this time on, Unix milliseconds, a midnight UTC.
    Date(u64),
}

/// Object lock of a bucket. It cannot be switched off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectLock {
    /// What new versions get that say nothing else.
    pub default_retention: Option<DefaultRetention>,
}

/// What new versions get.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DefaultRetention {
    /// Which kind.
    pub mode: RetentionMode,
    /// How long.
    pub period: RetentionPeriod,
}

/// A length of retention.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RetentionPeriod {
    /// Days.
    Days(u32),
    /// Years of 365 days.
    Years(u32),
}

/// Who may end a retention early.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RetentionMode {
    /// Who has the permission and says so.
    Governance,
    /// Nobody.
    Compliance,
}

/// Until when a version cannot be deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retention {
    /// Which kind.
    pub mode: RetentionMode,
    /// Unix milliseconds.
    pub until_ms: u64,
}

/// Which handler is told of what.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotificationConfiguration {
    /// At most 100.
    pub rules: Vec<NotificationRule>,
}

/// One rule of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotificationRule {
    /// A name; given one if it has none.
    pub id: String,
    /// The app whose handler it is.
    pub app: String,
    /// The service.
    pub service: String,
    /// The handler. It is called with the object's key as the entity's key.
    pub handler: String,
    /// Such as `s3:ObjectCreated:*`.
    pub events: Vec<String>,
    /// How keys begin.
    pub prefix: String,
    /// How keys end.
    pub suffix: String,
}
