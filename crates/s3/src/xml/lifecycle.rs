//! `LifecycleConfiguration`.

use millrace_api::objects::{Expiry, LifecycleConfiguration, LifecycleFilter, LifecycleRule};

use super::tagging::{put_tags, tags_of};
use super::{Element, Writer, read};
use crate::error::{Code, S3Error};
use crate::limits;
use crate::times;

const DAY_MS: u64 = 24 * 60 * 60 * 1000;
const ID_BYTES: usize = 255;

/// Reads it.
///
/// # Errors
/// `MalformedXML`, `InvalidArgument` for values that make no sense, `NotImplemented` for transitions.
pub fn read_lifecycle(document: &[u8]) -> Result<LifecycleConfiguration, S3Error> {
    let root = read(document, "LifecycleConfiguration")?;
    let mut rules: Vec<LifecycleRule> = Vec::new();
    for (index, element) in root.all("Rule").enumerate() {
        if index == limits::LIFECYCLE_RULES {
            return Err(Code::MalformedXml.into());
        }
        let mut rule = read_rule(element)?;
        if rule.id.is_empty() {
            rule.id = format!("rule-{index}");
        }
        if rules.iter().any(|earlier| earlier.id == rule.id) {
            return Err(S3Error::new(
                Code::InvalidArgument,
                "Rule ID must be unique. Found same ID for more than one rule",
            ));
        }
        rules.push(rule);
    }
    if rules.is_empty() { Err(Code::MalformedXml.into()) } else { Ok(LifecycleConfiguration { rules }) }
}

fn read_rule(element: &Element) -> Result<LifecycleRule, S3Error> {
    if ["Transition", "NoncurrentVersionTransition"].iter().any(|name| element.child(name).is_some()) {
        return Err(S3Error::new(Code::NotImplemented, "There is one storage class, so objects cannot change theirs."));
    }
    let id = element.text_of("ID").unwrap_or_default();
    if id.len() > ID_BYTES {
        return Err(S3Error::new(Code::InvalidArgument, "ID length should not exceed allowed limit of 255"));
    }
    let mut rule = LifecycleRule { id: id.to_owned(), ..LifecycleRule::default() };
    rule.is_enabled = match element.needed("Status")? {
        "Enabled" => true,
        "Disabled" => false,
        _ => return Err(Code::MalformedXml.into()),
    };
    match (element.child("Filter"), element.text_of("Prefix")) {
        (Some(filter), None) => rule.filter = read_filter(filter)?,
        (None, Some(prefix)) => {
            rule.filter.prefix = Some(prefix.to_owned());
            rule.is_prefix_outside = true;
        }
        _ => return Err(Code::MalformedXml.into()),
    }
    if let Some(expiration) = element.child("Expiration") {
        read_expiration(expiration, &mut rule)?;
    }
    if let Some(noncurrent) = element.child("NoncurrentVersionExpiration") {
        rule.noncurrent_days = Some(positive(noncurrent.child("NoncurrentDays").ok_or(Code::MalformedXml)?)?);
        rule.newer_noncurrent_versions = noncurrent.child("NewerNoncurrentVersions").map(positive).transpose()?;
    }
    if let Some(abort) = element.child("AbortIncompleteMultipartUpload") {
        rule.abort_upload_days = Some(positive(abort.child("DaysAfterInitiation").ok_or(Code::MalformedXml)?)?);
    }
    let does_something = rule.expiration.is_some()
        || rule.expired_object_delete_marker
        || rule.noncurrent_days.is_some()
        || rule.abort_upload_days.is_some();
    if does_something { Ok(rule) } else { Err(Code::MalformedXml.into()) }
}

fn read_filter(element: &Element) -> Result<LifecycleFilter, S3Error> {
    let is_joined = element.child("And").is_some();
    if element.children.len() > 1 || (is_joined && !element.children.iter().all(|child| child.name == "And")) {
        return Err(Code::MalformedXml.into());
    }
    let inner = element.child("And").unwrap_or(element);
    let filter = LifecycleFilter {
        prefix: inner.text_of("Prefix").map(str::to_owned),
        tags: tags_of(inner)?,
        size_greater_than: inner.number_of("ObjectSizeGreaterThan")?,
        size_less_than: inner.number_of("ObjectSizeLessThan")?,
    };
    if let (Some(greater), Some(less)) = (filter.size_greater_than, filter.size_less_than)
        && greater >= less
    {
        let message = "ObjectSizeLessThan has to be a value greater than ObjectSizeGreaterThan";
        return Err(S3Error::new(Code::InvalidRequest, message));
    }
    Ok(filter)
}

fn read_expiration(element: &Element, rule: &mut LifecycleRule) -> Result<(), S3Error> {
    let kinds = ["Days", "Date", "ExpiredObjectDeleteMarker"];
    if kinds.iter().filter(|kind| element.child(kind).is_some()).count() != 1 {
        return Err(Code::MalformedXml.into());
    }
    if let Some(days) = element.child("Days") {
        rule.expiration = Some(Expiry::Days(positive(days)?));
    } else if let Some(date) = element.text_of("Date") {
        let unix_ms = times::parse_iso(date).ok_or(Code::MalformedXml)?;
        if unix_ms % DAY_MS != 0 {
            return Err(S3Error::new(Code::InvalidArgument, "'Date' must be at midnight GMT"));
        }
        rule.expiration = Some(Expiry::Date(unix_ms));
    } else {
        rule.expired_object_delete_marker = element.truth_of("ExpiredObjectDeleteMarker")?;
    }
    Ok(())
}

fn positive(element: &Element) -> Result<u32, S3Error> {
    let number: i64 = element.number()?;
    match u32::try_from(number) {
        Ok(number) if number > 0 => Ok(number),
        _ => {
            let message = format!("'{}' must be a positive integer", element.name);
            Err(S3Error::new(Code::InvalidArgument, message))
        }
    }
}

/// Writes it.
#[must_use]
pub fn write_lifecycle(configuration: &LifecycleConfiguration) -> String {
    let mut writer = Writer::new("LifecycleConfiguration");
    for rule in &configuration.rules {
        write_rule(&mut writer, rule);
    }
    writer.finish()
}

fn write_rule(writer: &mut Writer, rule: &LifecycleRule) {
    writer.open("Rule");
    if rule.expiration.is_some() || rule.expired_object_delete_marker {
        writer.open("Expiration");
        match rule.expiration {
            Some(Expiry::Days(days)) => writer.value("Days", days),
            Some(Expiry::Date(unix_ms)) => writer.text("Date", &times::iso(unix_ms)),
            None => writer.value("ExpiredObjectDeleteMarker", true),
        };
        writer.close();
    }
    writer.text("ID", &rule.id);
    if rule.is_prefix_outside {
        writer.text("Prefix", rule.filter.prefix.as_deref().unwrap_or_default());
    } else {
        write_filter(writer, &rule.filter);
    }
    writer.text("Status", if rule.is_enabled { "Enabled" } else { "Disabled" });
    if let Some(days) = rule.noncurrent_days {
        writer.open("NoncurrentVersionExpiration").value("NoncurrentDays", days);
        if let Some(versions) = rule.newer_noncurrent_versions {
            writer.value("NewerNoncurrentVersions", versions);
        }
        writer.close();
    }
    if let Some(days) = rule.abort_upload_days {
        writer.open("AbortIncompleteMultipartUpload").value("DaysAfterInitiation", days).close();
    }
    writer.close();
}

fn write_filter(writer: &mut Writer, filter: &LifecycleFilter) {
    let conditions = usize::from(filter.prefix.is_some())
        + filter.tags.len()
        + usize::from(filter.size_greater_than.is_some())
        + usize::from(filter.size_less_than.is_some());
    writer.open("Filter");
    if conditions > 1 {
        writer.open("And");
    }
    writer.some("Prefix", filter.prefix.as_deref());
    put_tags(writer, &filter.tags);
    if let Some(size) = filter.size_greater_than {
        writer.value("ObjectSizeGreaterThan", size);
    }
    if let Some(size) = filter.size_less_than {
        writer.value("ObjectSizeLessThan", size);
    }
    if conditions > 1 {
        writer.close();
    }
    writer.close();
}
