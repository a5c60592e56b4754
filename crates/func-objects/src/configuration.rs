//! Settings of a bucket: those that every request needs stand in its row, the others in fields of their own.

use millrace_api::objects::{
    AccessList, Configuration, ConfigurationKind, CorsConfiguration, CorsRule, ObjectReply, ObjectRequest, Permission,
    Refusal, Versioning,
};
use millrace_base::{Error, Value, ValueKind};

use crate::access::{Need, Policy, grants_of, lists_count};
use crate::bucket::may;
use crate::object::{check_no_list, check_public};
use crate::rows::{BucketRow, INFO, POLICY, from_value, to_value};
use crate::settings::Settings;
use crate::turn::{Progress, Turn};

/// The field of a setting that does not stand in the row.
fn field(kind: ConfigurationKind) -> Option<&'static [u8]> {
    match kind {
        ConfigurationKind::Cors => Some(b"cors"),
        ConfigurationKind::Lifecycle => Some(b"lifecycle"),
        ConfigurationKind::Tagging => Some(b"tagging"),
        ConfigurationKind::Notification => Some(b"notification"),
        _ => None,
    }
}

/// What policies call reading and replacing it, and who else may.
fn asks(kind: ConfigurationKind) -> (&'static str, &'static str, Need, Need) {
    let (get, put) = match kind {
        ConfigurationKind::Versioning => ("GetBucketVersioning", "PutBucketVersioning"),
        ConfigurationKind::Cors => ("GetBucketCORS", "PutBucketCORS"),
        ConfigurationKind::Lifecycle => ("GetLifecycleConfiguration", "PutLifecycleConfiguration"),
        ConfigurationKind::Policy => ("GetBucketPolicy", "PutBucketPolicy"),
        ConfigurationKind::Tagging => ("GetBucketTagging", "PutBucketTagging"),
        ConfigurationKind::Access => {
            let needs = (Need::Bucket(Permission::ReadAcp), Need::Bucket(Permission::WriteAcp));
            return ("GetBucketAcl", "PutBucketAcl", needs.0, needs.1);
        }
        ConfigurationKind::Ownership => ("GetBucketOwnershipControls", "PutBucketOwnershipControls"),
        ConfigurationKind::PublicAccess => ("GetBucketPublicAccessBlock", "PutBucketPublicAccessBlock"),
        ConfigurationKind::ObjectLock => ("GetBucketObjectLockConfiguration", "PutBucketObjectLockConfiguration"),
        ConfigurationKind::Notification => ("GetBucketNotification", "PutBucketNotification"),
        ConfigurationKind::RequestPayment => ("GetBucketRequestPayment", "PutBucketRequestPayment"),
    };
    (get, put, Need::Owner, Need::Owner)
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
pub(crate) fn get(
    turn: &mut Turn<'_>,
    settings: &Settings,
    request: &ObjectRequest<'_>,
    kind: ConfigurationKind,
) -> Result<ObjectReply, Error> {
    let (action, _, need, _) = asks(kind);
    may(settings, request, action, need, Vec::new())?;
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
pub(crate) fn put(
    turn: &mut Turn<'_>,
    settings: &Settings,
    request: &ObjectRequest<'_>,
    configuration: &Configuration,
) -> Result<Progress, Error> {
    let kind = configuration.kind();
    let (_, action, _, need) = asks(kind);
    may(settings, request, action, need, Vec::new())?;
    let mut row = settings.row.clone();
    match configuration {
        Configuration::Versioning(versioning) => {
            if row.object_lock.is_some() && *versioning != Versioning::Enabled {
                return Err(Refusal::InvalidBucketState.error("An Object Lock configuration is present on this bucket, so the versioning state cannot be changed."));
            }
            row.versioning = *versioning;
        }
        Configuration::Policy(text) => {
            let policy = Policy::parse(text, request.bucket)?;
            let blocks = row.public_access.is_some_and(|block| block.block_public_policy);
            if blocks && policy.is_public() {
                return Err(Refusal::AccessDenied.error("Access Denied"));
            }
            turn.host.set(POLICY, Value::new(ValueKind::Bytes, text.as_bytes()))?;
            row.policy_number = Some(turn.host.random());
        }
        Configuration::Access(access) => {
            if !lists_count(settings) {
                check_no_list(access)?;
            }
            let grants = grants_of(access, &row.owner, &row.owner)?;
            check_public(settings, &grants)?;
            row.grants = grants;
        }
        Configuration::Ownership(ownership) => {
            let only_owner = grants_of(&Default::default(), &row.owner, &row.owner)?;
            if *ownership == millrace_api::objects::Ownership::BucketOwnerEnforced && row.grants != only_owner {
                return Err(Refusal::InvalidRequest
                    .error("Bucket cannot have ACLs set with ObjectOwnership's BucketOwnerEnforced setting"));
            }
            row.ownership = Some(*ownership);
        }
        Configuration::PublicAccess(block) => row.public_access = Some(*block),
        Configuration::ObjectLock(lock) => {
            if row.versioning != Versioning::Enabled {
                return Err(Refusal::InvalidBucketState
                    .error("Versioning must be 'Enabled' on the bucket to apply a Object Lock configuration"));
            }
            row.object_lock = Some(*lock);
        }
        Configuration::RequestPayment(pays) => row.requester_pays = *pays,
        Configuration::Lifecycle(_)
        | Configuration::Cors(_)
        | Configuration::Tagging(_)
        | Configuration::Notification(_) => {
            let field = field(kind).expect("these settings have fields of their own");
            turn.host.set(field, to_value(configuration))?;
        }
    }
    match configuration {
        Configuration::Lifecycle(lifecycle) => row.has_lifecycle = !lifecycle.rules.is_empty(),
        Configuration::Notification(notification) => row.has_notifications = !notification.rules.is_empty(),
        _ => {}
    }
    finish(turn, settings, &row)
}

/// Takes a setting away.
pub(crate) fn delete(
    turn: &mut Turn<'_>,
    settings: &Settings,
    request: &ObjectRequest<'_>,
    kind: ConfigurationKind,
) -> Result<Progress, Error> {
    let (_, put, _, need) = asks(kind);
    let action = if kind == ConfigurationKind::Policy { "DeleteBucketPolicy" } else { put };
    may(settings, request, action, need, Vec::new())?;
    let mut row = settings.row.clone();
    match kind {
        ConfigurationKind::Policy => {
            turn.host.delete(POLICY)?;
            row.policy_number = None;
        }
        ConfigurationKind::Ownership => row.ownership = None,
        ConfigurationKind::PublicAccess => row.public_access = None,
        ConfigurationKind::Lifecycle => row.has_lifecycle = false,
        ConfigurationKind::Notification => row.has_notifications = false,
        ConfigurationKind::Cors | ConfigurationKind::Tagging => {}
        _ => return Err(Refusal::InvalidRequest.error("this setting cannot be taken away")),
    }
    if let Some(field) = field(kind) {
        turn.host.delete(field)?;
    }
    finish(turn, settings, &row)
}

fn finish(turn: &mut Turn<'_>, settings: &Settings, row: &BucketRow) -> Result<Progress, Error> {
    if *row != settings.row {
        turn.host.set(INFO, to_value(row))?;
    }
    Ok(Progress::Done(ObjectReply::Done.to_bytes(b"")))
}

/// What a browser may do from a page.
pub(crate) fn cors(turn: &mut Turn<'_>, origin: &str, method: &str, headers: &[String]) -> Result<ObjectReply, Error> {
    let Some(Configuration::Cors(CorsConfiguration { rules })) = kept(turn, ConfigurationKind::Cors)? else {
        return Ok(ObjectReply::Cors(None));
    };
    let answer = rules.iter().find_map(|rule| cors_answer(rule, origin, method, headers));
    Ok(ObjectReply::Cors(answer))
}

/// Whether a text fits one that may hold a star.
fn fits_star(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((before, behind)) => {
            text.len() >= before.len() + behind.len() && text.starts_with(before) && text.ends_with(behind)
        }
    }
}

fn cors_answer(rule: &CorsRule, origin: &str, method: &str, headers: &[String]) -> Option<Vec<(String, String)>> {
    let allowed = rule.allowed_origins.iter().find(|allowed| fits_star(allowed, origin))?;
    rule.allowed_methods.iter().find(|allowed| *allowed == method)?;
    let is_allowed = |header: &String| {
        rule.allowed_headers
            .iter()
            .any(|allowed| fits_star(&allowed.to_ascii_lowercase(), &header.to_ascii_lowercase()))
    };
    if !headers.iter().all(is_allowed) {
        return None;
    }
    let shown = if allowed == "*" { "*" } else { origin };
    let mut answer = vec![
        ("access-control-allow-origin".to_owned(), shown.to_owned()),
        ("access-control-allow-methods".to_owned(), rule.allowed_methods.join(", ")),
    ];
    if !headers.is_empty() {
        answer.push(("access-control-allow-headers".to_owned(), headers.join(", ")));
    }
    if !rule.expose_headers.is_empty() {
        answer.push(("access-control-expose-headers".to_owned(), rule.expose_headers.join(", ")));
    }
    if let Some(age_s) = rule.max_age_s {
        answer.push(("access-control-max-age".to_owned(), age_s.to_string()));
    }
    if shown != "*" {
        answer.push(("access-control-allow-credentials".to_owned(), "true".to_owned()));
    }
    Some(answer)
}
