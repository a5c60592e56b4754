//! What a form may hold.

use serde_json::{Map, Value};

use super::form::Form;
use crate::algorithm;
use crate::error::{Code, S3Error};
use crate::signature::date;

/// A policy document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    expiration_s: u64,
    conditions: Vec<Condition>,
}

/// Names of fields are in lower case.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Condition {
    Equals(String, String),
    StartsWith(String, String),
    SizeBetween(u64, u64),
}

/// Fields that no condition needs to name. Neither does a checksum: it can only refuse what the policy allows.
const EXEMPT: [&str; 5] = ["awsaccesskeyid", "file", "policy", "signature", "x-amz-signature"];

impl Policy {
    /// Reads the document.
    ///
    /// # Errors
    ///
    /// `InvalidPolicyDocument` if it is not JSON of the documented shape.
    pub fn parse(json: &[u8]) -> Result<Self, S3Error> {
        let document: Map<String, Value> = serde_json::from_slice(json).map_err(|_| invalid("Invalid JSON."))?;
        let expiration = document.get("expiration").and_then(Value::as_str);
        let expiration = expiration.ok_or_else(|| invalid("Policy missing expiration."))?;
        let expiration_s = time(expiration).ok_or_else(|| invalid("Invalid 'expiration' value."))?;
        let conditions = document.get("conditions").and_then(Value::as_array);
        let conditions = conditions.ok_or_else(|| invalid("Policy missing conditions."))?;
        let mut read = Vec::new();
        for condition in conditions {
            match condition {
                Value::Object(pairs) if !pairs.is_empty() => {
                    for (name, value) in pairs {
                        let value = value.as_str().ok_or_else(|| invalid("A value is not a string."))?;
                        read.push(Condition::Equals(name.to_ascii_lowercase(), value.to_owned()));
                    }
                }
                Value::Array(items) => read.push(Condition::parse(items)?),
                _ => return Err(invalid("A condition is neither an object with fields nor a list.")),
            }
        }
        Ok(Self { expiration_s, conditions: read })
    }

    /// Checks the form, all but the file's size.
    ///
    /// # Errors
    ///
    /// `AccessDenied` if the policy has expired, a condition does not hold, or a field has none.
    pub fn check(&self, form: &Form, bucket: &str, now_s: u64) -> Result<(), S3Error> {
        if now_s >= self.expiration_s {
            return Err(denied("Policy expired."));
        }
        let value_of = |name: &str| if name == "bucket" { Some(bucket) } else { form.get(name) };
        for condition in &self.conditions {
            let (Condition::Equals(name, _) | Condition::StartsWith(name, _)) = condition else { continue };
            if !value_of(name).is_some_and(|value| condition.holds(value)) {
                return Err(denied(&format!("Policy Condition failed: {}", condition.text())));
            }
        }
        let names = form.iter().map(|(name, _)| name).chain(["bucket"]);
        let is_exempt = |name: &str| {
            EXEMPT.contains(&name) || name.starts_with("x-ignore-") || algorithm::by_header(name).is_some()
        };
        let mut extra = names.filter(|name| !is_exempt(name));
        match extra.find(|name| !self.conditions.iter().any(|condition| condition.is_about(name))) {
            Some(name) => Err(denied(&format!("Extra input fields: {name}"))),
            None => Ok(()),
        }
    }

    /// The largest size that all conditions allow, to stop an upload early.
    #[must_use]
    pub fn largest_bytes(&self) -> u64 {
        self.ranges().map(|(_, largest)| largest).min().unwrap_or(u64::MAX)
    }

    /// Checks the file's size.
    ///
    /// # Errors
    ///
    /// `EntityTooLarge` or `EntityTooSmall`.
    pub fn check_size(&self, size_bytes: u64) -> Result<(), S3Error> {
        if size_bytes > self.largest_bytes() {
            return Err(S3Error::new(Code::EntityTooLarge, "Your proposed upload exceeds the maximum allowed size"));
        }
        if self.ranges().any(|(least, _)| size_bytes < least) {
            let message = "Your proposed upload is smaller than the minimum allowed size";
            return Err(S3Error::new(Code::EntityTooSmall, message));
        }
        Ok(())
    }

    fn ranges(&self) -> impl Iterator<Item = (u64, u64)> {
        self.conditions.iter().filter_map(|condition| match condition {
            Condition::SizeBetween(least, largest) => Some((*least, *largest)),
            _ => None,
        })
    }
}

impl Condition {
    fn parse(items: &[Value]) -> Result<Self, S3Error> {
        let [operator, first, second] = items else {
            return Err(invalid("A condition that is a list needs three items."));
        };
        let operator = operator.as_str().unwrap_or_default().to_ascii_lowercase();
        if operator == "content-length-range" {
            let (Some(least), Some(largest)) = (size(first), size(second)) else {
                return Err(invalid("A content-length-range needs two sizes."));
            };
            return Ok(Self::SizeBetween(least, largest));
        }
        let name = first.as_str().and_then(|name| name.strip_prefix('$'));
        let name = name.ok_or_else(|| invalid("The name of a field does not begin with $."))?.to_ascii_lowercase();
        let value = second.as_str().ok_or_else(|| invalid("A value is not a string."))?.to_owned();
        match operator.as_str() {
            "eq" => Ok(Self::Equals(name, value)),
            "starts-with" => Ok(Self::StartsWith(name, value)),
            _ => Err(invalid("A condition is unknown.")),
        }
    }

    fn is_about(&self, field: &str) -> bool {
        matches!(self, Self::Equals(name, _) | Self::StartsWith(name, _) if name == field)
    }

    fn holds(&self, value: &str) -> bool {
        match self {
            Self::Equals(_, wanted) => value == wanted,
            // A list of types: each of them must hold.
            Self::StartsWith(name, prefix) if name == "content-type" && !prefix.contains(',') => {
                value.split(',').all(|item| item.trim_start().starts_with(prefix.as_str()))
            }
            Self::StartsWith(_, prefix) => value.starts_with(prefix.as_str()),
            Self::SizeBetween(..) => true,
        }
    }

    fn text(&self) -> String {
        match self {
            Self::Equals(name, value) => format!("[\"eq\", \"${name}\", \"{value}\"]"),
            Self::StartsWith(name, value) => format!("[\"starts-with\", \"${name}\", \"{value}\"]"),
            Self::SizeBetween(least, largest) => format!("[\"content-length-range\", {least}, {largest}]"),
        }
    }
}

fn size(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| value.as_str()?.parse().ok())
}

/// Unix seconds of `2015-12-30T12:00:00.000Z`, with or without the fraction.
fn time(text: &str) -> Option<u64> {
    let (whole, fraction) = text.strip_suffix('Z')?.split_at_checked(19)?;
    let is_fraction = fraction.is_empty()
        || fraction.strip_prefix('.').is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()));
    let separators = whole.bytes().enumerate().filter(|(_, byte)| matches!(byte, b'-' | b':'));
    let is_shape = separators.map(|(at, _)| at).eq([4, 7, 13, 16]);
    (is_fraction && is_shape).then(|| date::parse(&format!("{}Z", whole.replace(['-', ':'], ""))))?
}

fn invalid(message: &str) -> S3Error {
    S3Error::new(Code::InvalidPolicyDocument, format!("Invalid Policy: {message}"))
}

fn denied(message: &str) -> S3Error {
    S3Error::new(Code::AccessDenied, format!("Invalid according to Policy: {message}"))
}
