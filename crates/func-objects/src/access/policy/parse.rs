//! Reads the JSON of a policy, and refuses what is malformed.

use std::collections::BTreeSet;

use millrace_api::objects::{Refusal, app_id};
use millrace_base::{Error, Name};
use serde_json::{Map, Value};

use super::actions::{self, About};
use super::condition::Condition;
use super::pattern::Pattern;
use super::principal::{Principal, Principals};
use super::{Matcher, Policy, Statement, keys, public};
use crate::access::glob;
use crate::limits;

/// What is wrong with a policy, as a sentence for its author.
type Wrong = String;

impl Policy {
    /// Reads the policy of a bucket.
    ///
    /// # Errors
    /// `MalformedPolicy` or `PolicyTooLarge`, with what is wrong.
    pub fn parse(text: &str, bucket: &str) -> Result<Self, Error> {
        if text.len() > limits::POLICY_BYTES {
            let message = format!("A policy has at most {} bytes; this one has {}", limits::POLICY_BYTES, text.len());
            return Err(Refusal::PolicyTooLarge.error(message));
        }
        read(text, Some(bucket)).map_err(|wrong| Refusal::MalformedPolicy.error(wrong))
    }

    /// A policy that was checked when it was put. One that cannot be read any more denies everything.
    #[must_use]
    pub fn kept(text: &str) -> Self {
        read(text, None)
            .unwrap_or_else(|_| Self { statements: vec![Statement::denying_everything()], is_public: false })
    }
}

fn read(text: &str, bucket: Option<&str>) -> Result<Policy, Wrong> {
    if !text.trim_start().starts_with('{') {
        return Err("Policies must be valid JSON and the first byte must be '{'".to_owned());
    }
    let document: Value =
        serde_json::from_str(text).map_err(|error| format!("This policy contains invalid Json: {error}"))?;
    let document = document.as_object().ok_or("A policy is a JSON object")?;
    only(document, &["Version", "Id", "Statement"])?;
    let has_variables = match document.get("Version").map(Value::as_str) {
        Some(Some("2012-10-17")) => true,
        None | Some(Some("2008-10-17")) => false,
        Some(_) => return Err("The policy must contain a valid version string".to_owned()),
    };
    if document.get("Id").is_some_and(|id| !id.is_string()) {
        return Err("Id must be a string".to_owned());
    }
    let statements = match document.get("Statement") {
        Some(Value::Array(statements)) if !statements.is_empty() => statements.iter().collect(),
        Some(statement @ Value::Object(_)) => vec![statement],
        _ => return Err("Missing required field Statement".to_owned()),
    };
    let mut ids = BTreeSet::new();
    let mut read = Vec::new();
    for statement in statements {
        let fields = statement.as_object().ok_or("A statement is a JSON object")?;
        match fields.get("Sid") {
            None => {}
            Some(Value::String(id)) if id.is_empty() || ids.insert(id.as_str()) => {}
            Some(Value::String(_)) => return Err("Statement IDs (SID) in a single policy must be unique".to_owned()),
            Some(_) => return Err("Sid must be a string".to_owned()),
        }
        read.push(read_statement(fields, bucket, has_variables)?);
    }
    let is_public = public::is_public(&read);
    Ok(Policy { statements: read, is_public })
}

/// Refuses fields of other names: a misspelt `Condition` would give everything to everybody.
fn only(object: &Map<String, Value>, names: &[&str]) -> Result<(), Wrong> {
    match object.keys().find(|name| !names.contains(&name.as_str())) {
        Some(name) => Err(format!("Unknown field {name}")),
        None => Ok(()),
    }
}

fn read_statement(fields: &Map<String, Value>, bucket: Option<&str>, has_variables: bool) -> Result<Statement, Wrong> {
    const NAMES: [&str; 9] =
        ["Sid", "Effect", "Principal", "NotPrincipal", "Action", "NotAction", "Resource", "NotResource", "Condition"];
    only(fields, &NAMES)?;
    let allows = match fields.get("Effect").and_then(Value::as_str) {
        Some("Allow") => true,
        Some("Deny") => false,
        Some(other) => return Err(format!("Invalid effect: {other}")),
        None => return Err("Missing required field Effect".to_owned()),
    };
    let (principals, is_negated) = either(fields, "Principal", "NotPrincipal")?;
    if allows && is_negated {
        // It would allow everybody else, also without a signature. S3 refuses it, too.
        return Err("Allow with NotPrincipal is not allowed".to_owned());
    }
    let principals = Principals { is_negated, named: read_principals(principals)? };
    let (actions, is_negated) = either(fields, "Action", "NotAction")?;
    let actions = Matcher { is_negated, patterns: read_actions(actions)? };
    let (resources, is_negated) = either(fields, "Resource", "NotResource")?;
    let names = read_resources(resources, bucket)?;
    if !actions.is_negated && !is_negated {
        check_resources(&actions.patterns, &names)?;
    }
    let patterns = names.iter().map(|name| Pattern::parse(name, has_variables, true)).collect::<Result<_, _>>()?;
    let resources = Matcher { is_negated, patterns };
    let conditions = match fields.get("Condition") {
        None => Vec::new(),
        Some(conditions) => read_conditions(conditions, has_variables)?,
    };
    // One that was put earlier means what it meant.
    if bucket.is_some() && !actions.is_negated {
        check_conditions(&actions.patterns, &conditions)?;
    }
    Ok(Statement { allows, principals, actions, resources, conditions })
}

/// The value of the one of two fields that is there, and whether it is the second.
fn either<'v>(fields: &'v Map<String, Value>, name: &str, negated: &str) -> Result<(&'v Value, bool), Wrong> {
    match (fields.get(name), fields.get(negated)) {
        (Some(value), None) => Ok((value, false)),
        (None, Some(value)) => Ok((value, true)),
        (None, None) => Err(format!("Missing required field {name}")),
        (Some(_), Some(_)) => Err(format!("{name} and {negated} cannot be used together")),
    }
}

/// A string, or a list of strings with at least one.
fn texts<'v>(value: &'v Value, name: &str) -> Result<Vec<&'v str>, Wrong> {
    let texts: Option<Vec<&str>> = match value {
        Value::String(text) => Some(vec![text.as_str()]),
        Value::Array(values) if !values.is_empty() => values.iter().map(Value::as_str).collect(),
        _ => None,
    };
    let texts = texts.ok_or_else(|| format!("Policy has an invalid {name}: it is a string or a list of strings"))?;
    if texts.iter().any(|text| text.len() > limits::POLICY_PATTERN_BYTES) {
        return Err(format!("Policy has an invalid {name}: it has more than {} bytes", limits::POLICY_PATTERN_BYTES));
    }
    Ok(texts)
}

fn read_principals(value: &Value) -> Result<Vec<Principal>, Wrong> {
    if value.as_str() == Some("*") {
        return Ok(vec![Principal::Everybody]);
    }
    let kinds = value.as_object().filter(|kinds| !kinds.is_empty()).ok_or("Invalid principal in policy")?;
    let mut named = Vec::new();
    for (kind, value) in kinds {
        let texts = texts(value, "principal")?;
        let of_kind = texts.into_iter().map(|text| match kind.as_str() {
            "AWS" => Principal::parse(text),
            "CanonicalUser" if !text.is_empty() && text != "*" => Ok(Principal::Id(text.to_owned())),
            "App" if Name::new(text).is_ok() => Ok(Principal::Id(app_id(text))),
            "Service" | "Federated" if !text.is_empty() => Ok(Principal::Stranger),
            _ => Err(format!("Invalid principal in policy: \"{kind}\": \"{text}\"")),
        });
        named.extend(of_kind.collect::<Result<Vec<_>, _>>()?);
    }
    Ok(named)
}

fn read_actions(value: &Value) -> Result<Vec<String>, Wrong> {
    let read = |text: &str| {
        let pattern = text.to_ascii_lowercase();
        if actions::is_known(&pattern) { Ok(pattern) } else { Err(format!("Policy has invalid action: {text}")) }
    };
    texts(value, "action")?.into_iter().map(read).collect()
}

/// The resources without what stands before the bucket's name.
fn read_resources<'v>(value: &'v Value, bucket: Option<&str>) -> Result<Vec<&'v str>, Wrong> {
    let read = |text: &'v str| {
        let invalid = || format!("Policy has invalid resource: {text}");
        let parts: Vec<&str> = text.splitn(6, ':').collect();
        let [arn, partition, service, region, account, name] = parts[..] else { return Err(invalid()) };
        let is_open = |part: &str| matches!(part, "" | "*");
        if arn != "arn" || !partition.starts_with("aws") || service != "s3" || !is_open(region) || !is_open(account) {
            return Err(invalid());
        }
        // A star may stand for the slash, too.
        let (of_bucket, _) = name.split_once('/').unwrap_or((name, ""));
        let is_bucket = bucket.is_none_or(|bucket| {
            glob::is_match(of_bucket, bucket)
                || name.split_once('*').is_some_and(|(start, _)| !start.contains('/') && reaches(start, bucket))
        });
        if is_bucket { Ok(name) } else { Err(invalid()) }
    };
    texts(value, "resource")?.into_iter().map(read).collect()
}

/// Whether what stands before a star can be the start of the bucket's name, or of one of its objects'.
fn reaches(start: &str, bucket: &str) -> bool {
    let length = start.chars().count();
    let taken: String = bucket.chars().take(length).collect();
    taken.chars().count() == length && glob::is_match(start, &taken)
}

/// Refuses an action that can meet none of the resources: the policy does not do what its author thinks.
fn check_resources(actions: &[String], resources: &[&str]) -> Result<(), Wrong> {
    let is_met = |about: About| {
        resources.iter().any(|name| match about {
            About::Object => name.contains(['/', '*', '?', '$']),
            About::Bucket => !name.contains('/') || name.split('/').next().is_some_and(|start| start.contains('*')),
        })
    };
    match actions.iter().find(|action| actions::about(action).is_some_and(|about| !is_met(about))) {
        Some(action) => Err(format!("Action does not apply to any resource(s) in statement: {action}")),
        None => Ok(()),
    }
}

/// Refuses a condition on a key that requests for one of the actions do not have.
fn check_conditions(actions: &[String], conditions: &[Condition]) -> Result<(), Wrong> {
    let is_of_all = |condition: &Condition| actions.iter().all(|action| keys::is_of(condition.key(), action));
    match conditions.iter().find(|condition| !is_of_all(condition)) {
        Some(condition) => Err(format!(
            "Conditions do not apply to combination of actions and resources in statement: {}",
            condition.key().name
        )),
        None => Ok(()),
    }
}

fn read_conditions(value: &Value, has_variables: bool) -> Result<Vec<Condition>, Wrong> {
    let operators = value.as_object().ok_or("Condition is a JSON object")?;
    let mut conditions = Vec::new();
    for (operator, keys) in operators {
        let keys = keys.as_object().ok_or_else(|| format!("the condition {operator} is a JSON object"))?;
        for (key, values) in keys {
            let values = match values {
                Value::Array(values) => values.iter().map(scalar).collect(),
                value => scalar(value).map(|value| vec![value]),
            };
            let values: Vec<String> = values
                .ok_or_else(|| format!("the values of the condition on {key} are strings, numbers or booleans"))?;
            if values.iter().any(|value| value.len() > limits::POLICY_PATTERN_BYTES) {
                return Err(format!("a value of {key} has more than {} bytes", limits::POLICY_PATTERN_BYTES));
            }
            conditions.push(Condition::parse(operator, key, &values, has_variables)?);
        }
    }
    Ok(conditions)
}

fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(flag) => Some(flag.to_string()),
        _ => None,
    }
}
