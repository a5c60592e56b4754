//! Who is told of what happens to objects: a message to a handler of an app for each rule that fits.
//!
//! The message is part of the transaction that writes the object. So the handler runs exactly once for what happened,
//! and never for what did not.

use millrace_api::is_built_in;
use millrace_api::objects::{
    Configuration, DeleteOne, Deleted, NotificationConfiguration, NotificationRule, ObjectOperation, ObjectReply,
    Refusal,
};
use millrace_base::{Error, ErrorCode};
use millrace_func::{HandlerId, LogLevel, Message};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::limits;
use crate::names::{BUCKET, NOTIFY};
use crate::rows::{NOTIFICATION, from_value};
use crate::turn::Turn;
use crate::wire::{decode, encode};

/// Events that happen here. A rule may also name all that begin so, with a star at the end.
const EVENTS: [&str; 8] = [
    "s3:ObjectCreated:Put",
    "s3:ObjectCreated:Copy",
    "s3:ObjectCreated:CompleteMultipartUpload",
    "s3:ObjectRemoved:Delete",
    "s3:ObjectRemoved:DeleteMarkerCreated",
    "s3:ObjectTagging:Put",
    "s3:ObjectTagging:Delete",
    "s3:ObjectAcl:Put",
];

/// Checks rules before they are kept, and names those that have no name.
///
/// # Errors
/// `InvalidArgument` for an event that never happens, for a handler that is not there, and for one whose app does not
/// allow the bucket.
pub(crate) fn check(
    turn: &mut Turn<'_>,
    bucket: &str,
    configuration: &NotificationConfiguration,
) -> Result<NotificationConfiguration, Error> {
    let mut checked = configuration.clone();
    let invalid = |message: String| Err(Refusal::InvalidArgument.error(message));
    if checked.rules.len() > limits::NOTIFICATION_RULES {
        return invalid(format!("a bucket has at most {} rules for notifications", limits::NOTIFICATION_RULES));
    }
    for (index, rule) in checked.rules.iter_mut().enumerate() {
        if rule.id.is_empty() {
            rule.id = format!("notification-{}", index + 1);
        }
        let unknown = rule.events.iter().find(|event| !EVENTS.iter().any(|known| is_event(event, known)));
        match unknown {
            Some(event) => return invalid(format!("The event '{event}' is not supported for notifications")),
            None if rule.events.is_empty() => return invalid("a rule for notifications needs an event".to_owned()),
            None => {}
        }
        if let Err(error) = find(turn, bucket, rule) {
            let message = "Unable to validate the following destination configurations";
            return invalid(format!("{message}: {}", error.message));
        }
    }
    Ok(checked)
}

/// The handler of a rule. Handlers of built-in apps, and those that apps keep to themselves, are nobody's business.
fn find(turn: &mut Turn<'_>, bucket: &str, rule: &NotificationRule) -> Result<HandlerId, Error> {
    if is_built_in(&rule.app) || rule.handler.starts_with('_') {
        return Err(Error::new(ErrorCode::Forbidden, format!("no rule may name {}.{}", rule.service, rule.handler)));
    }
    turn.host.built_in()?.find([&rule.app, &rule.service, &rule.handler], Some(bucket))
}

fn is_event(pattern: &str, event: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => event.starts_with(start) && start.ends_with(':'),
        None => pattern == event,
    }
}

fn is_about(rule: &NotificationRule, event: &str, key: &str) -> bool {
    key.starts_with(&rule.prefix)
        && key.ends_with(&rule.suffix)
        && rule.events.iter().any(|pattern| is_event(pattern, event))
}

/// The event that an operation with this reply is.
fn event_of(operation: &ObjectOperation, reply: &ObjectReply) -> Option<&'static str> {
    match (operation, reply) {
        (ObjectOperation::Put(put), _) if put.copy.is_some() => Some("s3:ObjectCreated:Copy"),
        (ObjectOperation::Put(_), _) => Some("s3:ObjectCreated:Put"),
        (ObjectOperation::CompleteUpload { .. }, _) => Some("s3:ObjectCreated:CompleteMultipartUpload"),
        (_, ObjectReply::Deleted(Deleted { is_delete_marker: true, .. })) if is_without_version(operation) => {
            Some("s3:ObjectRemoved:DeleteMarkerCreated")
        }
        (_, ObjectReply::Deleted(_)) => Some("s3:ObjectRemoved:Delete"),
        (ObjectOperation::PutTags { tags, .. }, _) if tags.is_empty() => Some("s3:ObjectTagging:Delete"),
        (ObjectOperation::PutTags { .. }, _) => Some("s3:ObjectTagging:Put"),
        (ObjectOperation::PutAccess { .. }, _) => Some("s3:ObjectAcl:Put"),
        _ => None,
    }
}

fn is_without_version(operation: &ObjectOperation) -> bool {
    matches!(operation, ObjectOperation::Delete(one) if one.version.is_none())
}

/// Tells of an operation on an object that was done.
///
/// # Errors
/// Those of the host.
pub(crate) fn tell(
    turn: &mut Turn<'_>,
    (bucket, key): (&str, &str),
    operation: &ObjectOperation,
    reply: &ObjectReply,
) -> Result<(), Error> {
    match event_of(operation, reply) {
        Some(event) => {
            let time_ms = turn.host.now().0;
            tell_event(turn, (bucket, key), (event, time_ms), reply).map(drop)
        }
        None => Ok(()),
    }
}

/// Messages after which a batch of deletions goes on in another transaction. One sends as many as a bucket has rules.
const SENT_AT_ONCE: usize = 500;

/// What a request that deletes many leaves to be told.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Untold {
    /// When it was done.
    pub time_ms: u64,
    pub deleted: Vec<UntoldOne>,
}

/// One of them.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct UntoldOne {
    pub key: String,
    /// The version that was named.
    pub version: Option<String>,
    pub reply: Deleted,
}

/// Leaves deletions to the bucket's own transactions, by a message: this one may not send as many as there are rules and
/// objects. The message is as durable as the deletions.
///
/// # Errors
/// Those of the host.
pub(crate) fn tell_later(turn: &mut Turn<'_>, untold: &Untold) -> Result<(), Error> {
    if untold.deleted.is_empty() {
        return Ok(());
    }
    let handler = HandlerId { program: turn.program, service: BUCKET, handler: NOTIFY };
    let key = turn.key.to_vec();
    turn.host.send(Message { handler, key, input: encode(untold), delay_ms: 0 })?;
    Ok(())
}

/// Tells some of what was left, and leaves the rest again.
///
/// # Errors
/// Those of the host.
pub(crate) fn run(turn: &mut Turn<'_>, bucket: &str, input: &[u8]) -> Result<(), Error> {
    let untold: Untold = decode(input)?;
    let mut left = untold.deleted.into_iter();
    let mut sent = 0;
    while sent < SENT_AT_ONCE
        && let Some(UntoldOne { key, version, reply }) = left.next()
    {
        let operation = ObjectOperation::Delete(DeleteOne { version, ..DeleteOne::default() });
        let reply = ObjectReply::Deleted(reply);
        if let Some(event) = event_of(&operation, &reply) {
            sent += tell_event(turn, (bucket, &key), (event, untold.time_ms), &reply)?;
        }
    }
    tell_later(turn, &Untold { time_ms: untold.time_ms, deleted: left.collect() })
}

/// Sends a message for each rule that fits, and says how many.
fn tell_event(
    turn: &mut Turn<'_>,
    (bucket, key): (&str, &str),
    (event, time_ms): (&str, u64),
    reply: &ObjectReply,
) -> Result<usize, Error> {
    let mut sent = 0;
    let kept = turn.host.get(NOTIFICATION)?.map(from_value).transpose()?;
    let Some(Configuration::Notification(NotificationConfiguration { rules })) = kept else { return Ok(0) };
    for rule in rules.iter().filter(|rule| is_about(rule, event, key)) {
        let handler = match find(turn, bucket, rule) {
            Ok(handler) => handler,
            Err(error) => {
                // The app was deployed without it, or allows it no more. A write must not fail for that.
                let line = format!("a notification of the bucket {bucket:?} has no handler: {}", error.message);
                turn.host.log(LogLevel::Warn, &line);
                continue;
            }
        };
        let mut input = json!({
            "event": event, "bucket": bucket, "key": key, "rule": rule.id, "time_ms": time_ms,
        });
        match reply {
            ObjectReply::Written { etag, version, size_bytes, .. } => {
                input["etag"] = json!(etag);
                input["version"] = json!(version);
                input["size_bytes"] = json!(size_bytes);
            }
            ObjectReply::Deleted(deleted) => input["version"] = json!(deleted.version),
            _ => {}
        }
        let input = input.to_string().into_bytes().into();
        turn.host.send(Message { handler, key: key.as_bytes().to_vec(), input, delay_ms: 0 })?;
        sent += 1;
    }
    Ok(sent)
}
