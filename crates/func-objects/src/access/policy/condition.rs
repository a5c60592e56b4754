//! Conditions of statements: an operator, a key, and the values that it is compared with.

use std::net::IpAddr;

use super::pattern::Pattern;
use super::{ConditionKey, Request, date, keys};

/// One operator with one key.
#[derive(Clone, Debug)]
pub struct Condition {
    operator: Operator,
    set: Set,
    /// Holds where the request does not have the key.
    if_exists: bool,
    key: ConditionKey,
    values: Vec<Operand>,
}

/// How many of the request's values have to fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Set {
    /// The key has one value. If it has several, one has to fit, or, of a negated operator, all.
    Single,
    /// All, also none at all.
    All,
    /// At least one.
    Any,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Operator {
    comparison: Comparison,
    /// Whether no value may fit.
    is_negated: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    Text,
    TextIgnoringCase,
    Like,
    Numeric(Order),
    Date(Order),
    Bool,
    Address,
    Arn,
    Null,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Equal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// What a key is compared with, read as its operator needs it.
#[derive(Clone, Debug)]
enum Operand {
    Pattern(Pattern),
    /// The six parts of an ARN.
    Arn(Vec<Pattern>),
    Number(f64),
    Seconds(i64),
    Flag(bool),
    Block(Block),
}

/// Addresses that share their first bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    address: IpAddr,
    bits: u8,
}

impl Operator {
    fn parse(name: &str) -> Option<Self> {
        use Comparison::{Address, Arn, Bool, Date, Like, Null, Numeric, Text, TextIgnoringCase};
        use Order::{Equal, Greater, GreaterOrEqual, Less, LessOrEqual};
        let (comparison, is_negated) = match name {
            "StringEquals" | "BinaryEquals" => (Text, false),
            "StringNotEquals" => (Text, true),
            "StringEqualsIgnoreCase" => (TextIgnoringCase, false),
            "StringNotEqualsIgnoreCase" => (TextIgnoringCase, true),
            "StringLike" => (Like, false),
            "StringNotLike" => (Like, true),
            "NumericEquals" => (Numeric(Equal), false),
            "NumericNotEquals" => (Numeric(Equal), true),
            "NumericLessThan" => (Numeric(Less), false),
            "NumericLessThanEquals" => (Numeric(LessOrEqual), false),
            "NumericGreaterThan" => (Numeric(Greater), false),
            "NumericGreaterThanEquals" => (Numeric(GreaterOrEqual), false),
            "DateEquals" => (Date(Equal), false),
            "DateNotEquals" => (Date(Equal), true),
            "DateLessThan" => (Date(Less), false),
            "DateLessThanEquals" => (Date(LessOrEqual), false),
            "DateGreaterThan" => (Date(Greater), false),
            "DateGreaterThanEquals" => (Date(GreaterOrEqual), false),
            "Bool" => (Bool, false),
            "IpAddress" => (Address, false),
            "NotIpAddress" => (Address, true),
            "ArnEquals" | "ArnLike" => (Arn, false),
            "ArnNotEquals" | "ArnNotLike" => (Arn, true),
            "Null" => (Null, false),
            _ => return None,
        };
        Some(Self { comparison, is_negated })
    }
}

impl Condition {
    /// What it looks at.
    pub fn key(&self) -> &ConditionKey {
        &self.key
    }

    /// Reads an operator with its key and values. Names of operators count with their case, those of keys do not.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn parse(operator: &str, key: &str, values: &[String], has_variables: bool) -> Result<Self, String> {
        let unknown = || format!("Invalid Condition type : {operator}");
        let (set, name) = match operator.split_once(':') {
            None => (Set::Single, operator),
            Some(("ForAllValues", name)) => (Set::All, name),
            Some(("ForAnyValue", name)) => (Set::Any, name),
            Some(_) => return Err(unknown()),
        };
        let bare = name.strip_suffix("IfExists");
        let (name, if_exists) = (bare.unwrap_or(name), bare.is_some());
        let operator = Operator::parse(name).ok_or_else(unknown)?;
        if operator.comparison == Comparison::Null && (if_exists || set != Set::Single) {
            return Err(unknown());
        }
        let key = keys::read(key)?;
        if values.is_empty() {
            return Err(format!("the condition on {} has no values", key.name));
        }
        let operand = |value: &String| Operand::parse(operator.comparison, value, has_variables);
        let values = values.iter().map(operand).collect::<Result<Vec<_>, _>>()?;
        Ok(Self { operator, set, if_exists, key, values })
    }

    /// Whether it holds for a request.
    pub fn holds(&self, request: &dyn Request) -> bool {
        let found = request.values(&self.key).filter(|values| !values.is_empty());
        if self.operator.comparison == Comparison::Null {
            return self
                .values
                .iter()
                .any(|value| matches!(value, Operand::Flag(wanted) if *wanted == found.is_none()));
        }
        let Some(found) = found else {
            return self.if_exists
                || match self.set {
                    Set::Single => self.operator.is_negated,
                    Set::All => true,
                    Set::Any => false,
                };
        };
        let is_negated = self.operator.is_negated;
        let mut fits =
            found.iter().map(|text| self.values.iter().any(|own| self.compare(own, text, request)) != is_negated);
        match self.set {
            Set::All => fits.all(|fits| fits),
            Set::Any => fits.any(|fits| fits),
            Set::Single if is_negated => fits.all(|fits| fits),
            Set::Single => fits.any(|fits| fits),
        }
    }

    fn compare(&self, own: &Operand, text: &str, request: &dyn Request) -> bool {
        match (self.operator.comparison, own) {
            (Comparison::TextIgnoringCase, Operand::Pattern(pattern)) => {
                pattern.text(request).is_some_and(|own| own.to_lowercase() == text.to_lowercase())
            }
            (_, Operand::Pattern(pattern)) => pattern.matches(text, request),
            (_, Operand::Arn(parts)) => {
                let found: Vec<&str> = text.splitn(6, ':').collect();
                found.len() == parts.len()
                    && parts.iter().zip(found).all(|(pattern, part)| pattern.matches(part, request))
            }
            (Comparison::Numeric(order), Operand::Number(own)) => {
                text.parse::<f64>().is_ok_and(|found| order.holds(found.partial_cmp(own)))
            }
            (Comparison::Date(order), Operand::Seconds(own)) => {
                date::parse(text).is_some_and(|found| order.holds(Some(found.cmp(own))))
            }
            (_, Operand::Flag(own)) => parse_flag(text) == Some(*own),
            (_, Operand::Block(block)) => text.parse().is_ok_and(|address| block.has(address)),
            // `parse` makes no other pairs.
            _ => false,
        }
    }

    /// Whether it makes a statement's audience a fixed one, as S3 documents the meaning of "public".
    pub fn narrows(&self) -> bool {
        const FIXED: [&str; 4] = ["aws:principalarn", "aws:principalaccount", "aws:sourceip", "aws:userid"];
        let is_sure = !self.operator.is_negated && !self.if_exists && self.set != Set::All;
        is_sure && FIXED.contains(&self.key.name.as_str()) && self.values.iter().all(Operand::is_narrow)
    }
}

impl Order {
    fn holds(self, ordering: Option<std::cmp::Ordering>) -> bool {
        ordering.is_some_and(|ordering| match self {
            Self::Equal => ordering.is_eq(),
            Self::Less => ordering.is_lt(),
            Self::LessOrEqual => ordering.is_le(),
            Self::Greater => ordering.is_gt(),
            Self::GreaterOrEqual => ordering.is_ge(),
        })
    }
}

impl Operand {
    fn parse(comparison: Comparison, text: &str, has_variables: bool) -> Result<Self, String> {
        let invalid = |kind: &str| format!("\"{text}\" is not {kind}");
        Ok(match comparison {
            Comparison::Text | Comparison::TextIgnoringCase => {
                Self::Pattern(Pattern::parse(text, has_variables, false)?)
            }
            Comparison::Like => Self::Pattern(Pattern::parse(text, has_variables, true)?),
            Comparison::Arn if text == "*" => Self::Pattern(Pattern::parse(text, false, true)?),
            Comparison::Arn => {
                // A variable may hold colons: it stands for a whole ARN or for a part without them.
                let parts: Vec<&str> = text.splitn(6, ':').collect();
                if parts.len() != 6 || parts[0] != "arn" {
                    let pattern = Pattern::parse(text, has_variables, true)?;
                    return if text.contains("${") { Ok(Self::Pattern(pattern)) } else { Err(invalid("an ARN")) };
                }
                let parts = parts.into_iter().map(|part| Pattern::parse(part, has_variables, true));
                Self::Arn(parts.collect::<Result<_, _>>()?)
            }
            Comparison::Numeric(_) => {
                let number = text.parse().ok().filter(|number: &f64| number.is_finite());
                Self::Number(number.ok_or_else(|| invalid("a number"))?)
            }
            Comparison::Date(_) => Self::Seconds(date::parse(text).ok_or_else(|| invalid("a time"))?),
            Comparison::Bool | Comparison::Null => {
                Self::Flag(parse_flag(text).ok_or_else(|| invalid("true or false"))?)
            }
            Comparison::Address => Self::Block(Block::parse(text).ok_or_else(|| invalid("an address"))?),
        })
    }

    fn is_narrow(&self) -> bool {
        match self {
            Self::Pattern(pattern) => pattern.is_fixed(),
            Self::Arn(parts) => parts.iter().all(Pattern::is_fixed),
            Self::Block(block) => block.is_narrow(),
            Self::Number(_) | Self::Seconds(_) | Self::Flag(_) => false,
        }
    }
}

fn parse_flag(text: &str) -> Option<bool> {
    [("true", true), ("false", false)]
        .into_iter()
        .find(|(name, _)| text.eq_ignore_ascii_case(name))
        .map(|(_, flag)| flag)
}

/// An address as it came over IPv4, even if the listener speaks IPv6.
fn canonical(address: IpAddr) -> IpAddr {
    address.to_canonical()
}

/// The bits of an address, the first one highest, and how many there are.
fn bits_of(address: IpAddr) -> (u128, u8) {
    match address {
        IpAddr::V4(address) => (u128::from(u32::from(address)) << 96, 32),
        IpAddr::V6(address) => (u128::from(address), 128),
    }
}

impl Block {
    /// Reads an address, or an address and how many bits of it count.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (address, bits) = match text.split_once('/') {
            None => (text, None),
            Some((address, bits)) => (address, Some(bits.parse::<u8>().ok()?)),
        };
        let address: IpAddr = address.parse().ok()?;
        let (_, all) = bits_of(address);
        let bits = bits.unwrap_or(all);
        (bits <= all).then_some(Self { address, bits })
    }

    fn has(&self, address: IpAddr) -> bool {
        let ((own, all), (other, other_all)) = (bits_of(self.address), bits_of(canonical(address)));
        all == other_all && (own ^ other).checked_shr(128 - u32::from(self.bits)).unwrap_or(0) == 0
    }

    /// S3 counts larger blocks as everybody.
    fn is_narrow(&self) -> bool {
        match self.address {
            IpAddr::V4(_) => self.bits >= 8,
            IpAddr::V6(_) => self.bits >= 32,
        }
    }
}
