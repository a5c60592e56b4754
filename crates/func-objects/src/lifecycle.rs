//! Lifecycle: which rules are valid, and what vanishes when.
//!
//! Days are counted as S3 documents it: a rule's days are added, and the result is rounded up to the next midnight UTC.
//! Must not know how versions are removed, nor whether a lock keeps them: whoever removes them asks that.

use std::collections::BTreeSet;

use millrace_api::objects::{Expiry, LifecycleConfiguration, LifecycleFilter, LifecycleRule, Refusal, Tag};
use millrace_base::Error;

use crate::{limits, tagging};

/// A day of S3. Rules can be tried with a shorter one.
pub const DAY_MS: u64 = 24 * 60 * 60 * 1000;

/// A bucket's rules, and how long a day of theirs is.
#[derive(Clone, Copy)]
pub struct Rules<'r> {
    /// The rules, checked.
    pub configuration: &'r LifecycleConfiguration,
    /// Milliseconds, more than none.
    pub day_ms: u64,
}

impl Rules<'_> {
    /// The time of a rule's days: they are added, and rounded up to the next end of a day.
    fn after_days(self, from_ms: u64, days: u32) -> u64 {
        let passed_ms = from_ms.saturating_add(u64::from(days).saturating_mul(self.day_ms));
        passed_ms.div_ceil(self.day_ms).saturating_mul(self.day_ms)
    }
}

/// Checks a configuration before it is kept, and names the rules that have no name.
///
/// # Errors
/// `MalformedXML`, `InvalidArgument` or `InvalidRequest`.
pub fn check(mut configuration: LifecycleConfiguration) -> Result<LifecycleConfiguration, Error> {
    let rules = &mut configuration.rules;
    if rules.is_empty() || rules.len() > limits::LIFECYCLE_RULES {
        let message = format!("A lifecycle configuration has 1 to {} rules", limits::LIFECYCLE_RULES);
        return Err(Refusal::MalformedXml.error(message));
    }
    let mut ids = BTreeSet::new();
    for rule in rules.iter().filter(|rule| !rule.id.is_empty()) {
        if rule.id.chars().count() > limits::RULE_ID_CHARACTERS {
            let message = format!("ID length should not exceed allowed limit of {}", limits::RULE_ID_CHARACTERS);
            return Err(Refusal::InvalidArgument.error(message));
        }
        if !ids.insert(rule.id.clone()) {
            return Err(Refusal::InvalidArgument.error("Rule ID must be unique. Found same ID for more than one rule"));
        }
    }
    let mut number = 0_usize;
    for rule in rules {
        while rule.id.is_empty() {
            number += 1;
            let id = format!("rule-{number}");
            if ids.insert(id.clone()) {
                rule.id = id;
            }
        }
        check_rule(rule)?;
    }
    Ok(configuration)
}

fn check_rule(rule: &LifecycleRule) -> Result<(), Error> {
    let invalid = |message: &str| Err(Refusal::InvalidArgument.error(message));
    let malformed = |message: &str| Err(Refusal::MalformedXml.error(message));
    let has_action = rule.expiration.is_some()
        || rule.expired_object_delete_marker
        || rule.noncurrent_days.is_some()
        || rule.abort_upload_days.is_some();
    if !has_action {
        return Err(Refusal::InvalidRequest.error("At least one action needs to be specified in a rule"));
    }
    if rule.newer_noncurrent_versions.is_some() && rule.noncurrent_days.is_none() {
        return malformed("NewerNoncurrentVersions needs NoncurrentDays");
    }
    if rule.newer_noncurrent_versions.is_some_and(|count| count == 0 || count > limits::NEWER_NONCURRENT_VERSIONS) {
        return invalid("'NewerNoncurrentVersions' must be a positive integer of at most 100");
    }
    let expiration_days = match rule.expiration {
        Some(Expiry::Days(days)) => Some(days),
        Some(Expiry::Date(date_ms)) if date_ms % DAY_MS != 0 => return invalid("'Date' must be at midnight GMT"),
        _ => None,
    };
    for (days, message) in [
        (expiration_days, "'Days' for Expiration action must be a positive integer"),
        (rule.noncurrent_days, "'NoncurrentDays' for NoncurrentVersionExpiration action must be a positive integer"),
        (
            rule.abort_upload_days,
            "'DaysAfterInitiation' for AbortIncompleteMultipartUpload action must be a positive integer",
        ),
    ] {
        if days.is_some_and(|days| days == 0 || days > limits::RULE_DAYS) {
            return invalid(message);
        }
    }
    let filter = &rule.filter;
    if rule.expired_object_delete_marker {
        if rule.expiration.is_some() {
            return malformed("ExpiredObjectDeleteMarker cannot be specified with Days or Date");
        }
        if !filter.tags.is_empty() {
            return Err(Refusal::InvalidRequest.error("Tag based filter cannot be used with ExpiredObjectDeleteMarker"));
        }
    }
    if rule.abort_upload_days.is_some() && (!filter.tags.is_empty() || has_size(filter)) {
        let message = "A filter by tag or size cannot be used with AbortIncompleteMultipartUpload";
        return Err(Refusal::InvalidRequest.error(message));
    }
    check_filter(filter)
}

fn has_size(filter: &LifecycleFilter) -> bool {
    filter.size_greater_than.is_some() || filter.size_less_than.is_some()
}

fn check_filter(filter: &LifecycleFilter) -> Result<(), Error> {
    tagging::check_object_tags(&filter.tags)?;
    if filter.prefix.as_ref().is_some_and(|prefix| prefix.len() > limits::OBJECT_KEY_BYTES) {
        return Err(Refusal::InvalidArgument.error("The maximum size of a prefix is 1024"));
    }
    match (filter.size_greater_than, filter.size_less_than) {
        (Some(greater), Some(less)) if greater.checked_add(1).is_none_or(|smallest| smallest >= less) => {
            let message = "'ObjectSizeLessThan' has to be a value greater than 'ObjectSizeGreaterThan'";
            Err(Refusal::InvalidRequest.error(message))
        }
        _ => Ok(()),
    }
}

/// What rules look at in one version of an object.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'a> {
    /// The content's bytes.
    pub size_bytes: u64,
    /// Unix milliseconds.
    pub modified_ms: u64,
    /// Its tags.
    pub tags: &'a [Tag],
    /// Whether it says that the object is gone.
    pub is_delete_marker: bool,
}

/// What is due with one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// The current version expires: a deletion without a version, as a client would ask for it.
    Expire,
    /// This version is to be removed for good: its place in what was given.
    Remove(usize),
}

fn is_for(rule: &LifecycleRule, key: &str) -> bool {
    rule.is_enabled && rule.filter.prefix.as_ref().is_none_or(|prefix| key.starts_with(prefix.as_str()))
}

fn is_for_version(rule: &LifecycleRule, key: &str, candidate: &Candidate<'_>) -> bool {
    let filter = &rule.filter;
    is_for(rule, key)
        && filter.tags.iter().all(|tag| candidate.tags.contains(tag))
        && filter.size_greater_than.is_none_or(|size_bytes| candidate.size_bytes > size_bytes)
        && filter.size_less_than.is_none_or(|size_bytes| candidate.size_bytes < size_bytes)
}

/// When a current version expires by which rule: the earliest counts. The header `x-amz-expiration` says it.
#[must_use]
pub fn expires<'r>(rules: Rules<'r>, key: &str, candidate: &Candidate<'_>) -> Option<(u64, &'r str)> {
    if candidate.is_delete_marker {
        return None;
    }
    let matching = rules.configuration.rules.iter().filter(|rule| is_for_version(rule, key, candidate));
    let times = matching.filter_map(|rule| {
        let time_ms = match rule.expiration? {
            Expiry::Days(days) => rules.after_days(candidate.modified_ms, days),
            Expiry::Date(date_ms) => date_ms,
        };
        Some((time_ms, rule.id.as_str()))
    });
    times.min_by_key(|(time_ms, _)| *time_ms)
}

/// When an upload that is not completed is aborted by which rule.
#[must_use]
pub fn aborts<'r>(rules: Rules<'r>, key: &str, began_ms: u64) -> Option<(u64, &'r str)> {
    let matching = rules.configuration.rules.iter().filter(|rule| is_for(rule, key));
    let times =
        matching.filter_map(|rule| Some((rules.after_days(began_ms, rule.abort_upload_days?), rule.id.as_str())));
    times.min_by_key(|(time_ms, _)| *time_ms)
}

/// What is due with an object at a time. `versions` are all of them, the newest first; the first is the current one.
#[must_use]
pub fn due(rules: Rules<'_>, key: &str, versions: &[Candidate<'_>], now_ms: u64) -> Vec<Due> {
    let Some(current) = versions.first() else { return Vec::new() };
    let mut due = Vec::new();
    if current.is_delete_marker && versions.len() == 1 {
        if is_marker_due(rules, key, current, now_ms) {
            due.push(Due::Remove(0));
        }
    } else if expires(rules, key, current).is_some_and(|(time_ms, _)| time_ms <= now_ms) {
        due.push(Due::Expire);
    }
    for (index, pair) in versions.windows(2).enumerate() {
        let [newer, candidate] = pair else { continue };
        // A version is noncurrent since the next newer one was made. As many newer noncurrent ones stand before it as
        // its place says, without the current one.
        let is_due = |rule: &LifecycleRule| {
            let Some(days) = rule.noncurrent_days else { return false };
            let kept = rule.newer_noncurrent_versions.unwrap_or(0) as usize;
            index >= kept && rules.after_days(newer.modified_ms, days) <= now_ms
        };
        let mut matching = rules.configuration.rules.iter().filter(|rule| is_for_version(rule, key, candidate));
        if matching.any(is_due) {
            due.push(Due::Remove(index + 1));
        }
    }
    due
}

/// Whether a delete marker with no version behind it goes: where a rule says so, or where the rule's days are over.
fn is_marker_due(rules: Rules<'_>, key: &str, marker: &Candidate<'_>, now_ms: u64) -> bool {
    rules.configuration.rules.iter().filter(|rule| is_for_version(rule, key, marker)).any(|rule| {
        rule.expired_object_delete_marker
            || match rule.expiration {
                Some(Expiry::Days(days)) => rules.after_days(marker.modified_ms, days) <= now_ms,
                Some(Expiry::Date(date_ms)) => date_ms <= now_ms,
                None => false,
            }
    })
}

#[cfg(test)]
#[path = "lifecycle_tests.rs"]
mod tests;
