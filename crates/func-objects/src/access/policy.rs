//! Bucket policies: JSON documents as S3 has them.

use millrace_api::objects::Refusal;
use millrace_base::Error;
use serde_json::{Map, Value};

use super::Ask;
use super::pattern::fits;
use super::policy_condition::Condition;

/// Bytes of a policy. S3's bound.
const POLICY_BYTES: usize = 20 << 10;

/// What a policy says of a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    Allow,
    Deny,
    /// No statement is about it.
    None,
}

/// A bucket's policy.
#[derive(Debug, Default)]
pub(crate) struct Policy {
    statements: Vec<Statement>,
}

#[derive(Debug)]
struct Statement {
    is_allow: bool,
    /// Whom it is about, or all but them.
    principals: Principals,
    are_principals_excepted: bool,
    actions: Vec<String>,
    are_actions_excepted: bool,
    resources: Vec<String>,
    are_resources_excepted: bool,
    conditions: Vec<Condition>,
}

#[derive(Debug)]
enum Principals {
    Everybody,
    /// Ids, names, or ARNs that end with one.
    Some(Vec<String>),
}

fn malformed(what: &str) -> Error {
    Refusal::MalformedPolicy.error(what)
}

/// One text or a list of them.
fn texts(value: &Value, what: &str) -> Result<Vec<String>, Error> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let found = match value {
        Value::Array(items) => items.iter().map(text).collect(),
        other => text(other).map(|one| vec![one]),
    };
    match found {
        Some(found) if !found.is_empty() => Ok(found),
        _ => Err(malformed(&format!("{what} must be text or a list of texts"))),
    }
}

/// The member of one of two names, and whether it is the second.
fn either<'a>(of: &'a Map<String, Value>, name: &str, not: &str) -> Result<(&'a Value, bool), Error> {
    match (of.get(name), of.get(not)) {
        (Some(value), None) => Ok((value, false)),
        (None, Some(value)) => Ok((value, true)),
        (Some(_), Some(_)) => Err(malformed(&format!("a statement has either {name} or {not}"))),
        (None, None) => Err(malformed(&format!("Missing required field {name}"))),
    }
}

impl Policy {
    /// Reads and checks a policy of a bucket.
    ///
    /// # Errors
    /// `MalformedPolicy` with the reason, `PolicyTooLarge`.
    pub(crate) fn parse(text: &str, bucket: &str) -> Result<Self, Error> {
        if text.len() > POLICY_BYTES {
            return Err(Refusal::PolicyTooLarge.error(format!("a policy has at most {POLICY_BYTES} bytes")));
        }
        let value: Value = serde_json::from_str(text)
            .map_err(|_| malformed("Policies must be valid JSON and the first byte must be '{'"))?;
        let policy = Self::of(&value)?;
        let arn = format!("arn:aws:s3:::{bucket}");
        let is_of_bucket = |resource: &String| {
            let name = resource.split('/').next().unwrap_or_default();
            fits(name, &arn) || name.contains("${")
        };
        if policy.statements.iter().any(|statement| !statement.resources.iter().all(is_of_bucket)) {
            return Err(malformed("Policy has invalid resource"));
        }
        Ok(policy)
    }

    /// A policy that was checked when it was given. One that cannot be read any more denies everything.
    pub(crate) fn kept(text: &str) -> Self {
        let read = serde_json::from_str(text).ok().and_then(|value: Value| Self::of(&value).ok());
        read.unwrap_or_else(|| Self {
            statements: vec![Statement {
                is_allow: false,
                principals: Principals::Everybody,
                are_principals_excepted: false,
                actions: vec!["*".to_owned()],
                are_actions_excepted: false,
                resources: vec!["*".to_owned()],
                are_resources_excepted: false,
                conditions: Vec::new(),
            }],
        })
    }

    fn of(value: &Value) -> Result<Self, Error> {
        let document = value.as_object().ok_or_else(|| malformed("a policy is an object"))?;
        if let Some(version) = document.get("Version") {
            let is_known = matches!(version.as_str(), Some("2012-10-17" | "2008-10-17"));
            if !is_known {
                return Err(malformed("The policy must contain a valid version string"));
            }
        }
        if let Some(unknown) = document.keys().find(|key| !matches!(key.as_str(), "Version" | "Id" | "Statement")) {
            return Err(malformed(&format!("Unknown field {unknown}")));
        }
        let statements = match document.get("Statement") {
            Some(Value::Array(items)) => items.iter().map(Statement::of).collect::<Result<Vec<_>, _>>()?,
            Some(one @ Value::Object(_)) => vec![Statement::of(one)?],
            _ => return Err(malformed("Missing required field Statement")),
        };
        if statements.is_empty() {
            return Err(malformed("Could not parse the policy: Statement is empty!"));
        }
        Ok(Self { statements })
    }

    /// What it says of a question.
    pub(crate) fn evaluate(&self, ask: &Ask<'_>) -> Effect {
        let mut effect = Effect::None;
        for statement in self.statements.iter().filter(|statement| statement.is_about(ask)) {
            if !statement.is_allow {
                return Effect::Deny;
            }
            effect = Effect::Allow;
        }
        effect
    }

    /// Whether it allows something to people that nobody chose: to everybody, without a condition that names some.
    pub(crate) fn is_public(&self) -> bool {
        self.statements.iter().any(|statement| {
            let is_open = match &statement.principals {
                Principals::Everybody => true,
                Principals::Some(_) => statement.are_principals_excepted,
            };
            statement.is_allow && is_open && !statement.conditions.iter().any(Condition::names_some)
        })
    }
}

impl Statement {
    fn of(value: &Value) -> Result<Self, Error> {
        const KNOWN: [&str; 10] = [
            "Sid",
            "Effect",
            "Principal",
            "NotPrincipal",
            "Action",
            "NotAction",
            "Resource",
            "NotResource",
            "Condition",
            "Id",
        ];
        let of = value.as_object().ok_or_else(|| malformed("a statement is an object"))?;
        if let Some(unknown) = of.keys().find(|key| !KNOWN.contains(&key.as_str())) {
            return Err(malformed(&format!("Unknown field {unknown}")));
        }
        let is_allow = match of.get("Effect").and_then(Value::as_str) {
            Some("Allow") => true,
            Some("Deny") => false,
            Some(other) => return Err(malformed(&format!("Invalid effect: {other}"))),
            None => return Err(malformed("Missing required field Effect")),
        };
        let (principal, are_principals_excepted) = either(of, "Principal", "NotPrincipal")?;
        let (action, are_actions_excepted) = either(of, "Action", "NotAction")?;
        let (resource, are_resources_excepted) = either(of, "Resource", "NotResource")?;
        let actions = texts(action, "Action")?;
        if actions.iter().any(|action| action != "*" && !action.to_ascii_lowercase().starts_with("s3:")) {
            return Err(malformed("Policy has invalid action"));
        }
        let resources = texts(resource, "Resource")?;
        if resources.iter().any(|resource| resource != "*" && !resource.starts_with("arn:aws:s3:::")) {
            return Err(malformed("Policy has invalid resource"));
        }
        let conditions = match of.get("Condition") {
            None => Vec::new(),
            Some(value) => Condition::all_of(value).map_err(|what| malformed(&what))?,
        };
        Ok(Self {
            is_allow,
            principals: principals(principal)?,
            are_principals_excepted,
            actions,
            are_actions_excepted,
            resources,
            are_resources_excepted,
            conditions,
        })
    }

    fn is_about(&self, ask: &Ask<'_>) -> bool {
        let action = format!("s3:{}", ask.action).to_ascii_lowercase();
        let is_action = self.actions.iter().any(|pattern| fits(&pattern.to_ascii_lowercase(), &action));
        let arn = if ask.key.is_empty() {
            format!("arn:aws:s3:::{}", ask.bucket)
        } else {
            format!("arn:aws:s3:::{}/{}", ask.bucket, ask.key)
        };
        let is_resource = self.resources.iter().any(|pattern| fits(&with_variables(pattern, ask), &arn));
        is_action != self.are_actions_excepted
            && is_resource != self.are_resources_excepted
            && self.is_principal(ask) != self.are_principals_excepted
            && self.conditions.iter().all(|condition| condition.holds(ask))
    }

    fn is_principal(&self, ask: &Ask<'_>) -> bool {
        let Principals::Some(named) = &self.principals else { return true };
        let Some(id) = ask.requester.id else { return false };
        named.iter().any(|name| {
            // `arn:aws:iam:::user/NAME`, `arn:aws:iam::ID:root`, an id, or a name.
            let last = name.rsplit(['/', ':']).next().unwrap_or(name);
            let account = name.split(':').nth(4).unwrap_or_default();
            name == "*" || name == id || last == id || last == ask.requester.name || (last == "root" && account == id)
        })
    }
}

fn principals(value: &Value) -> Result<Principals, Error> {
    let wrong = || malformed("Invalid principal in policy");
    match value {
        Value::String(text) if text == "*" => Ok(Principals::Everybody),
        Value::Object(of) if !of.is_empty() => {
            let mut named = Vec::new();
            for (kind, value) in of {
                if !matches!(kind.as_str(), "AWS" | "CanonicalUser") {
                    return Err(wrong());
                }
                named.extend(texts(value, "Principal")?);
            }
            if named.iter().any(|name| name == "*") { Ok(Principals::Everybody) } else { Ok(Principals::Some(named)) }
        }
        _ => Err(wrong()),
    }
}

/// A pattern of a resource with what it says of the requester filled in.
fn with_variables(pattern: &str, ask: &Ask<'_>) -> String {
    if !pattern.contains("${") {
        return pattern.to_owned();
    }
    pattern
        .replace("${aws:username}", ask.requester.name)
        .replace("${aws:userid}", ask.requester.id.unwrap_or_default())
}
