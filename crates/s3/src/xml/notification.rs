//! `NotificationConfiguration`: which handler is told of what.
//!
//! S3 knows queues, topics and functions. Here a rule names a handler of an app, as the function's ARN
//! `arn:millrace:function:APP:SERVICE:HANDLER`. All three kinds of element are accepted with it.

use millrace_api::objects::{NotificationConfiguration, NotificationRule};

use super::{Element, Writer, read};
use crate::error::{Code, S3Error};
use crate::limits;

const ARN: &str = "arn:millrace:function:";
const KINDS: [(&str, &str); 3] =
    [("CloudFunctionConfiguration", "CloudFunction"), ("QueueConfiguration", "Queue"), ("TopicConfiguration", "Topic")];
const EVENTS: [&str; 4] = ["s3:ObjectCreated:", "s3:ObjectRemoved:", "s3:LifecycleExpiration:", "s3:ObjectTagging:"];

/// Reads it. An empty one takes all rules away.
///
/// # Errors
/// `MalformedXML`, `InvalidArgument` for an event or a destination that is not known.
pub fn read_notification(document: &[u8]) -> Result<NotificationConfiguration, S3Error> {
    let root = read(document, "NotificationConfiguration")?;
    let mut rules = Vec::new();
    for element in &root.children {
        if rules.len() == limits::NOTIFICATION_RULES {
            return Err(Code::MalformedXml.into());
        }
        let Some((_, target)) = KINDS.iter().find(|(kind, _)| *kind == element.name) else {
            return Err(match element.name.as_str() {
                "EventBridgeConfiguration" => Code::NotImplemented.into(),
                _ => Code::MalformedXml.into(),
            });
        };
        let mut rule = read_rule(element, target)?;
        if rule.id.is_empty() {
            rule.id = format!("rule-{}", rules.len());
        }
        rules.push(rule);
    }
    Ok(NotificationConfiguration { rules })
}

fn read_rule(element: &Element, target: &str) -> Result<NotificationRule, S3Error> {
    let mut names = element.needed(target)?.trim().strip_prefix(ARN).unwrap_or_default().split(':');
    let (Some(app), Some(service), Some(handler), None) = (names.next(), names.next(), names.next(), names.next())
    else {
        let message = format!("Unable to validate the destination: it is {ARN}APP:SERVICE:HANDLER");
        return Err(S3Error::new(Code::InvalidArgument, message));
    };
    let events: Vec<String> = element.all("Event").map(|event| event.text.trim().to_owned()).collect();
    if events.is_empty() {
        return Err(Code::MalformedXml.into());
    }
    if !events.iter().all(|event| EVENTS.iter().any(|known| event.starts_with(known))) {
        return Err(S3Error::new(Code::InvalidArgument, "The event is not supported for notifications"));
    }
    let mut rule = NotificationRule {
        id: element.text_of("Id").unwrap_or_default().to_owned(),
        app: app.to_owned(),
        service: service.to_owned(),
        handler: handler.to_owned(),
        events,
        ..NotificationRule::default()
    };
    let Some(key) = element.child("Filter").and_then(|filter| filter.child("S3Key")) else { return Ok(rule) };
    for filter in key.all("FilterRule") {
        let value = filter.needed("Value")?.to_owned();
        match filter.needed("Name")?.to_ascii_lowercase().as_str() {
            "prefix" => rule.prefix = value,
            "suffix" => rule.suffix = value,
            _ => return Err(S3Error::new(Code::InvalidArgument, "filter rule name must be either prefix or suffix")),
        }
    }
    Ok(rule)
}

/// Writes it.
#[must_use]
pub fn write_notification(configuration: &NotificationConfiguration) -> String {
    let mut writer = Writer::new("NotificationConfiguration");
    for rule in &configuration.rules {
        writer.open("CloudFunctionConfiguration").text("Id", &rule.id);
        for event in &rule.events {
            writer.text("Event", event);
        }
        if !rule.prefix.is_empty() || !rule.suffix.is_empty() {
            writer.open("Filter").open("S3Key");
            for (name, value) in [("prefix", &rule.prefix), ("suffix", &rule.suffix)] {
                if !value.is_empty() {
                    writer.open("FilterRule").text("Name", name).text("Value", value).close();
                }
            }
            writer.close().close();
        }
        let target = format!("{ARN}{}:{}:{}", rule.app, rule.service, rule.handler);
        writer.text("CloudFunction", &target).close();
    }
    writer.finish()
}
