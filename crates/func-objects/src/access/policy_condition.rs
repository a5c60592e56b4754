//! Conditions of a policy's statements.

use std::net::IpAddr;

use serde_json::Value;

use super::Ask;
use super::pattern::fits;

/// One condition: a key, how it is compared, and with what.
#[derive(Debug)]
pub(crate) struct Condition {
    operator: Operator,
    /// It also holds where the key has no value.
    is_if_exists: bool,
    set: Set,
    key: String,
    values: Vec<String>,
}

/// How several values of a key count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Set {
    One,
    /// All of them must fit.
    All,
    /// One of them must.
    Any,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Equals { ignores_case: bool, is_not: bool },
    Like { is_not: bool },
    Number { wants: Order },
    Date { wants: Order },
    Bool,
    Address { is_not: bool },
    Null,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl Order {
    fn holds<T: PartialOrd>(self, a: &T, b: &T) -> bool {
        match self {
            Self::Equal => a == b,
            Self::NotEqual => a != b,
            Self::Less => a < b,
            Self::LessOrEqual => a <= b,
            Self::Greater => a > b,
            Self::GreaterOrEqual => a >= b,
        }
    }

    fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "Equals" => Self::Equal,
            "NotEquals" => Self::NotEqual,
            "LessThan" => Self::Less,
            "LessThanEquals" => Self::LessOrEqual,
            "GreaterThan" => Self::Greater,
            "GreaterThanEquals" => Self::GreaterOrEqual,
            _ => return None,
        })
    }
}

impl Operator {
    fn parse(text: &str) -> Option<Self> {
        if let Some(order) = text.strip_prefix("Numeric") {
            return Order::parse(order).map(|wants| Self::Number { wants });
        }
        if let Some(order) = text.strip_prefix("Date") {
            return Order::parse(order).map(|wants| Self::Date { wants });
        }
        Some(match text {
            "StringEquals" => Self::Equals { ignores_case: false, is_not: false },
            "StringNotEquals" => Self::Equals { ignores_case: false, is_not: true },
            "StringEqualsIgnoreCase" => Self::Equals { ignores_case: true, is_not: false },
            "StringNotEqualsIgnoreCase" => Self::Equals { ignores_case: true, is_not: true },
            "StringLike" | "ArnLike" | "ArnEquals" => Self::Like { is_not: false },
            "StringNotLike" | "ArnNotLike" | "ArnNotEquals" => Self::Like { is_not: true },
            "Bool" => Self::Bool,
            "IpAddress" => Self::Address { is_not: false },
            "NotIpAddress" => Self::Address { is_not: true },
            "Null" => Self::Null,
            _ => return None,
        })
    }

    /// Whether it asks that a value is not one of those given: then all of them must differ.
    fn is_negated(self) -> bool {
        match self {
            Self::Equals { is_not, .. } | Self::Like { is_not } | Self::Address { is_not } => is_not,
            Self::Number { wants } | Self::Date { wants } => wants == Order::NotEqual,
            Self::Bool | Self::Null => false,
        }
    }

    fn fits(self, found: &str, wanted: &str) -> bool {
        match self {
            Self::Equals { ignores_case: true, is_not } => found.eq_ignore_ascii_case(wanted) != is_not,
            Self::Equals { ignores_case: false, is_not } => (found == wanted) != is_not,
            Self::Like { is_not } => fits(wanted, found) != is_not,
            Self::Number { wants } => match (found.parse::<f64>(), wanted.parse::<f64>()) {
                (Ok(found), Ok(wanted)) => wants.holds(&found, &wanted),
                _ => false,
            },
            // Times of one form compare as their texts do.
            Self::Date { wants } => wants.holds(&found, &wanted),
            Self::Bool => found.eq_ignore_ascii_case(wanted),
            Self::Address { is_not } => is_within(found, wanted) != is_not,
            Self::Null => false,
        }
    }
}

impl Condition {
    /// All conditions of a statement; every one must hold.
    ///
    /// # Errors
    /// What is wrong with them.
    pub(crate) fn all_of(value: &Value) -> Result<Vec<Self>, String> {
        let of = value.as_object().ok_or("Condition must be an object")?;
        let mut conditions = Vec::new();
        for (operator, keys) in of {
            let keys = keys.as_object().ok_or("a condition is an object of keys and values")?;
            for (key, values) in keys {
                conditions.push(Self::of(operator, key, values)?);
            }
        }
        Ok(conditions)
    }

    fn of(operator: &str, key: &str, values: &Value) -> Result<Self, String> {
        let (set, name) = match operator.split_once(':') {
            Some(("ForAllValues", name)) => (Set::All, name),
            Some(("ForAnyValue", name)) => (Set::Any, name),
            _ => (Set::One, operator),
        };
        let (name, is_if_exists) = match name.strip_suffix("IfExists") {
            Some(name) => (name, true),
            None => (name, false),
        };
        let operator = Operator::parse(name).ok_or_else(|| format!("Invalid condition type : {operator}"))?;
        let text = |value: &Value| match value {
            Value::String(text) => Some(text.clone()),
            Value::Bool(value) => Some(value.to_string()),
            Value::Number(number) => Some(number.to_string()),
            _ => None,
        };
        let values = match values {
            Value::Array(items) => items.iter().map(text).collect(),
            one => text(one).map(|one| vec![one]),
        };
        let values: Vec<String> = values.ok_or("values of a condition are texts")?;
        if matches!(operator, Operator::Address { .. }) && !values.iter().all(|value| network(value).is_some()) {
            return Err("a condition of addresses needs addresses".to_owned());
        }
        Ok(Self { operator, is_if_exists, set, key: key.to_owned(), values })
    }

    /// Whether it bounds a statement for everybody to some that somebody chose, so that it is not public.
    pub(crate) fn names_some(&self) -> bool {
        let key = self.key.to_ascii_lowercase();
        let is_fixed = !self.values.iter().any(|value| value.contains(['*', '?']) || value.contains("${"));
        let is_chosen = matches!(
            key.as_str(),
            "aws:sourcearn"
                | "aws:sourcevpc"
                | "aws:sourcevpce"
                | "aws:sourceowner"
                | "aws:sourceaccount"
                | "aws:userid"
                | "aws:principalarn"
                | "aws:principalaccount"
                | "aws:principalorgid"
                | "s3:x-amz-server-side-encryption-aws-kms-key-id"
                | "s3:dataaccesspointarn"
                | "s3:dataaccesspointaccount"
        );
        let is_network =
            key == "aws:sourceip" && self.values.iter().all(|value| network(value).is_some_and(|(_, bits)| bits >= 8));
        !self.operator.is_negated() && !self.is_if_exists && ((is_chosen && is_fixed) || is_network)
    }

    /// Whether it holds for a question.
    pub(crate) fn holds(&self, ask: &Ask<'_>) -> bool {
        let found = values_of(&self.key, ask);
        if self.operator == Operator::Null {
            let wants_absent = self.values.iter().any(|value| value.eq_ignore_ascii_case("true"));
            return found.is_empty() == wants_absent;
        }
        if found.is_empty() {
            return self.is_if_exists || self.operator.is_negated() || self.set == Set::All;
        }
        let fits_one = |found: &String| {
            if self.operator.is_negated() {
                self.values.iter().all(|wanted| self.operator.fits(found, wanted))
            } else {
                self.values.iter().any(|wanted| self.operator.fits(found, wanted))
            }
        };
        match self.set {
            Set::All => found.iter().all(fits_one),
            Set::Any | Set::One => found.iter().any(fits_one),
        }
    }
}

/// The values of a condition's key.
fn values_of(key: &str, ask: &Ask<'_>) -> Vec<String> {
    let requester = ask.requester;
    let some = |text: &str| if text.is_empty() { Vec::new() } else { vec![text.to_owned()] };
    match key.to_ascii_lowercase().as_str() {
        "aws:sourceip" => requester.address.map(|address| address.to_canonical().to_string()).into_iter().collect(),
        "aws:securetransport" => vec![requester.is_encrypted.to_string()],
        "aws:referer" => some(requester.referer),
        "aws:useragent" => some(requester.user_agent),
        "aws:username" => some(requester.name),
        "aws:userid" | "aws:principalaccount" => requester.id.map(str::to_owned).into_iter().collect(),
        "aws:principaltype" => vec![if requester.id.is_some() { "User" } else { "Anonymous" }.to_owned()],
        "aws:principalarn" => {
            requester.id.map(|id| format!("arn:aws:iam::{id}:user/{}", requester.name)).into_iter().collect()
        }
        "s3:authtype" => some(requester.auth_kind),
        "s3:signatureversion" => some(requester.signature_version),
        _ => {
            let is_it = |(name, _): &&(String, String)| name.eq_ignore_ascii_case(key);
            ask.context.iter().filter(is_it).map(|(_, value)| value.clone()).collect()
        }
    }
}

/// A network: its address and how many bits of it count.
fn network(text: &str) -> Option<(IpAddr, u32)> {
    let (address, bits) = match text.split_once('/') {
        Some((address, bits)) => (address.parse::<IpAddr>().ok()?, Some(bits.parse::<u32>().ok()?)),
        None => (text.parse::<IpAddr>().ok()?, None),
    };
    let all = if address.is_ipv4() { 32 } else { 128 };
    let bits = bits.unwrap_or(all);
    (bits <= all).then_some((address, bits))
}

fn is_within(address: &str, wanted: &str) -> bool {
    let (Ok(address), Some((network, bits))) = (address.parse::<IpAddr>(), network(wanted)) else { return false };
    match (address, network) {
        (IpAddr::V4(address), IpAddr::V4(network)) => {
            let mask = u32::MAX.checked_shl(32 - bits).unwrap_or(0);
            u32::from(address) & mask == u32::from(network) & mask
        }
        (IpAddr::V6(address), IpAddr::V6(network)) => {
            let mask = u128::MAX.checked_shl(128 - bits).unwrap_or(0);
            u128::from(address) & mask == u128::from(network) & mask
        }
        _ => false,
    }
}
