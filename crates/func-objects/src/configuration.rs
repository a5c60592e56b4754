//! Settings of a bucket: those that every request needs stand in its row, the others in fields of their own.

use millrace_api::objects::{AccessList, Configuration, ConfigurationKind, ObjectReply, Refusal, Versioning};
use millrace_base::{Error, Value, ValueKind};

use crate::access::acl::{self, List, Owners};
use crate::access::{Ask, Policy};
use crate::rows::{LIFECYCLE, NOTIFICATION, POLICY, from_value, to_value};
use crate::settings::Settings;
use crate::turn::{Progress, Turn};
use crate::{cors, expire, lifecycle, lock, notify, slices, tagging};

const CORS: &[u8] = b"cors";
const TAGGING: &[u8] = b"tagging";

/// The field of a setting that does not stand in the row.
fn field(kind: ConfigurationKind) -> Option<&'static [u8]> {
    match kind {
        ConfigurationKind::Cors => Some(CORS),
        ConfigurationKind::Lifecycle => Some(LIFECYCLE),
        ConfigurationKind::Tagging => Some(TAGGING),
        ConfigurationKind::Notification => Some(NOTIFICATION),
        _ => None,
    }
}

fn absent(kind: ConfigurationKind) -> Error {
    match kind {
        ConfigurationKind::Cors => Refusal::NoSuchCorsConfiguration.error("The CORS configuration does not exist"),
        ConfigurationKind::Lifecycle => {
            Refusal::NoSuchLifecycleConfiguration.error("The lifecycle configuration does not exist")
        }
        ConfigurationKind::Policy => Refusal::NoSuchBucketPolicy.error("The bucket policy does not exist"),
        ConfigurationKind::Tagging => Refusal::NoSuchTagSet.error("The TagSet does not exist"),
        ConfigurationKind::Ownership => {
            Refusal::OwnershipControlsNotFoundError.error("The bucket ownership controls were not found")
        }
        ConfigurationKind::PublicAccess => {
            Refusal::NoSuchPublicAccessBlockConfiguration.error("The public access block configuration was not found")
        }
        ConfigurationKind::ObjectLock => Refusal::ObjectLockConfigurationNotFoundError
            .error("Object Lock configuration does not exist for this bucket"),
        _ => Refusal::NoSuchConfiguration.error("The specified configuration does not exist."),
    }
}

/// Reads a setting.
pub(crate) fn get(turn: &mut Turn<'_>, settings: &Settings, kind: ConfigurationKind) -> Result<ObjectReply, Error> {
    let row = &settings.row;
    let found = match kind {
        ConfigurationKind::Versioning => Some(Configuration::Versioning(row.versioning)),
        ConfigurationKind::Policy => settings.policy_text.clone().map(Configuration::Policy),
        ConfigurationKind::Access => {
            let list = AccessList { owner: row.owner.clone(), grants: row.grants.clone() };
            return Ok(ObjectReply::Access(list));
        }
        ConfigurationKind::Ownership => row.ownership.map(Configuration::Ownership),
        ConfigurationKind::PublicAccess => row.public_access.map(Configuration::PublicAccess),
        ConfigurationKind::ObjectLock => row.object_lock.map(Configuration::ObjectLock),
        ConfigurationKind::RequestPayment => Some(Configuration::RequestPayment(row.requester_pays)),
        ConfigurationKind::Notification => {
            let kept = kept(turn, kind)?;
            Some(kept.unwrap_or(Configuration::Notification(Default::default())))
        }
        ConfigurationKind::Cors | ConfigurationKind::Lifecycle | ConfigurationKind::Tagging => kept(turn, kind)?,
    };
    found.map(ObjectReply::Configuration).ok_or_else(|| absent(kind))
}

fn kept(turn: &mut Turn<'_>, kind: ConfigurationKind) -> Result<Option<Configuration>, Error> {
    let Some(field) = field(kind) else { return Ok(None) };
    turn.host.get(field)?.map(from_value).transpose()
}

/// Replaces a setting.
pub(crate) fn put(turn: &mut Turn<'_>, ask: &Ask<'_>, configuration: &Configuration) -> Result<Progress, Error> {
    let settings = ask.settings;
    let mut row = settings.row.clone();
    match configuration {
        Configuration::Versioning(versioning) => {
            if row.object_lock.is_some() && *versioning != Versioning::Enabled {
                return Err(Refusal::InvalidBucketState.error("An Object Lock configuration is present on this bucket, so the versioning state cannot be changed."));
            }
            row.versioning = *versioning;
        }
        Configuration::Policy(text) => {
            let policy = Policy::parse(text, ask.request.bucket)?;
            let blocks = row.public_access.is_some_and(|block| block.block_public_policy);
            if blocks && policy.is_public() {
                return Err(Refusal::AccessDenied.error("Access Denied"));
            }
            turn.host.set(POLICY, Value::new(ValueKind::Bytes, text.as_bytes()))?;
            row.policy_number = Some(turn.host.random());
        }
        Configuration::Access(access) => {
            let owners = Owners { owner: &settings.row.owner, bucket_owner: None };
            row.grants = acl::replaced(access, owners, ask.rules())?.grants;
        }
        Configuration::Ownership(ownership) => {
            acl::check_ownership(List { owner: &row.owner, grants: &row.grants }, *ownership)?;
            row.ownership = Some(*ownership);
        }
        Configuration::PublicAccess(block) => row.public_access = Some(*block),
        Configuration::ObjectLock(lock) => {
            if row.versioning != Versioning::Enabled {
                return Err(Refusal::InvalidBucketState
                    .error("Versioning must be 'Enabled' on the bucket to apply a Object Lock configuration"));
            }
            lock::check_lock(lock)?;
            row.object_lock = Some(*lock);
        }
        Configuration::RequestPayment(pays) => row.requester_pays = *pays,
        Configuration::Lifecycle(rules) => {
            let checked = lifecycle::check(rules.clone())?;
            turn.host.set(LIFECYCLE, to_value(&Configuration::Lifecycle(checked)))?;
            // Messages of older rules find another number.
            let number = turn.host.random();
            row.lifecycle_number = Some(number);
            expire::begin(turn, number)?;
        }
        Configuration::Cors(rules) => {
            cors::check(rules)?;
            turn.host.set(CORS, to_value(configuration))?;
        }
        Configuration::Tagging(tags) => {
            tagging::check_bucket_tags(tags)?;
            turn.host.set(TAGGING, to_value(configuration))?;
        }
        Configuration::Notification(notification) => {
            let checked = notify::check(turn, ask.request.bucket, notification)?;
            turn.host.set(NOTIFICATION, to_value(&Configuration::Notification(checked)))?;
            row.has_notifications = !notification.rules.is_empty();
        }
    }
    slices::keep(turn, settings, &row)
}

/// Takes a setting away.
pub(crate) fn delete(turn: &mut Turn<'_>, settings: &Settings, kind: ConfigurationKind) -> Result<Progress, Error> {
    let mut row = settings.row.clone();
    match kind {
        ConfigurationKind::Policy => {
            turn.host.delete(POLICY)?;
            row.policy_number = None;
        }
        ConfigurationKind::Ownership => row.ownership = None,
        ConfigurationKind::PublicAccess => row.public_access = None,
        ConfigurationKind::Lifecycle => row.lifecycle_number = None,
        ConfigurationKind::Notification => row.has_notifications = false,
        ConfigurationKind::Cors | ConfigurationKind::Tagging => {}
        _ => return Err(Refusal::InvalidRequest.error("this setting cannot be taken away")),
    }
    if let Some(field) = field(kind) {
        turn.host.delete(field)?;
    }
    slices::keep(turn, settings, &row)
}

/// What a browser may do from a page.
pub(crate) fn cors(turn: &mut Turn<'_>, origin: &str, method: &str, headers: &[String]) -> Result<ObjectReply, Error> {
    let Some(Configuration::Cors(configuration)) = kept(turn, ConfigurationKind::Cors)? else {
        return Ok(ObjectReply::Cors(None));
    };
    Ok(ObjectReply::Cors(cors::answer(&configuration, origin, method, headers)))
}
