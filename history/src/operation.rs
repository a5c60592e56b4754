//! Operations: lists of steps over keys, and their outcomes.
//!
//! One operation is one transaction, whatever its steps are. Its steps take effect together.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// The name of a register, list, account, counter or stock.
pub type Key = String;

/// Any clock that never goes back: steps of a simulation, nanoseconds of a test.
pub type Time = u64;

/// The values of registers and lists. Checks are sharpest when no value is written twice to one key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Value {
    /// A whole number.
    Number(i64),
    /// Any other value.
    Text(String),
}

impl From<i64> for Value {
    fn from(number: i64) -> Self {
        Self::Number(number)
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

/// Shows whole numbers and strings as they are, and every other value as its JSON text.
impl From<&serde_json::Value> for Value {
    fn from(json: &serde_json::Value) -> Self {
        match (json.as_i64(), json.as_str()) {
            (Some(number), _) => Self::Number(number),
            (_, Some(text)) => Self::Text(text.to_owned()),
            _ => Self::Text(json.to_string()),
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(formatter, "{number}"),
            Self::Text(text) => write!(formatter, "{text:?}"),
        }
    }
}

/// One step of an operation, as asked. The comment names what a reply holds for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Access {
    /// Reads a register → [`Found::Value`].
    Read(Key),
    /// Writes a register → [`Found::Done`].
    Write(Key, Value),
    /// Appends to a list → [`Found::Done`]. No value may be appended twice to one list.
    Append(Key, Value),
    /// Reads a whole list → [`Found::List`].
    ReadList(Key),
    /// Moves money → [`Found::Done`], or [`Found::Balances`] of the two accounts afterwards.
    Transfer {
        /// The account that pays.
        from: Key,
        /// The account that is paid.
        to: Key,
        /// The amount, not negative.
        amount: i64,
    },
    /// Reads one account → [`Found::Number`].
    Balance(Key),
    /// Reads every account → [`Found::Balances`].
    Balances,
    /// Adds one to a counter → [`Found::Number`], the count before, or [`Found::Done`].
    Increment(Key),
    /// Reads a counter → [`Found::Number`].
    Count(Key),
    /// Takes one of each named stock and places one order; kind of stock → key → [`Found::Accepted`].
    Reserve(BTreeMap<String, Key>),
    /// Puts one new element into every store → [`Found::Value`], its id.
    Publish,
}

impl Access {
    /// Reads a register.
    pub fn read(key: impl Into<Key>) -> Self {
        Self::Read(key.into())
    }

    /// Writes a register.
    pub fn write(key: impl Into<Key>, value: impl Into<Value>) -> Self {
        Self::Write(key.into(), value.into())
    }

    /// Appends to a list.
    pub fn append(key: impl Into<Key>, value: impl Into<Value>) -> Self {
        Self::Append(key.into(), value.into())
    }

    /// Reads a list.
    pub fn read_list(key: impl Into<Key>) -> Self {
        Self::ReadList(key.into())
    }

    /// Moves money.
    pub fn transfer(from: impl Into<Key>, to: impl Into<Key>, amount: i64) -> Self {
        Self::Transfer { from: from.into(), to: to.into(), amount }
    }

    /// Adds one to a counter.
    pub fn increment(key: impl Into<Key>) -> Self {
        Self::Increment(key.into())
    }

    /// Reads a counter.
    pub fn count(key: impl Into<Key>) -> Self {
        Self::Count(key.into())
    }

    /// Takes one of each stock: pairs of kind and key.
    pub fn reserve<'a>(stocks: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        Self::Reserve(stocks.into_iter().map(|(kind, key)| (kind.to_owned(), key.to_owned())).collect())
    }

    /// Whether a reply may hold `found` for this step.
    pub(crate) fn takes(&self, found: &Found) -> bool {
        match self {
            Self::Read(_) | Self::Publish => matches!(found, Found::Value(_)),
            Self::Write(..) | Self::Append(..) => matches!(found, Found::Done),
            Self::ReadList(_) => matches!(found, Found::List(_)),
            Self::Transfer { .. } => matches!(found, Found::Done | Found::Balances(_)),
            Self::Balances => matches!(found, Found::Balances(_)),
            Self::Balance(_) | Self::Count(_) => matches!(found, Found::Number(_)),
            Self::Increment(_) => matches!(found, Found::Done | Found::Number(_)),
            Self::Reserve(_) => matches!(found, Found::Accepted(_)),
        }
    }
}

impl fmt::Display for Access {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(key) | Self::ReadList(key) => write!(formatter, "read {key}"),
            Self::Write(key, value) => write!(formatter, "write {key} {value}"),
            Self::Append(key, value) => write!(formatter, "append {key} {value}"),
            Self::Transfer { from, to, amount } => write!(formatter, "transfer {amount} from {from} to {to}"),
            Self::Balance(key) => write!(formatter, "balance of {key}"),
            Self::Balances => formatter.write_str("all balances"),
            Self::Increment(key) => write!(formatter, "increment {key}"),
            Self::Count(key) => write!(formatter, "count of {key}"),
            Self::Reserve(stocks) => {
                formatter.write_str("reserve")?;
                stocks.iter().try_for_each(|(kind, key)| write!(formatter, " {kind} {key}"))
            }
            Self::Publish => formatter.write_str("publish"),
        }
    }
}

/// The part of a reply for one step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Found {
    /// Only that it happened.
    Done,
    /// A register's value, `None` where there is none.
    Value(Option<Value>),
    /// A list, oldest element first.
    List(Vec<Value>),
    /// A count or a balance.
    Number(i64),
    /// Balances by account.
    Balances(BTreeMap<Key, i64>),
    /// Whether a reservation was made. If it was not, the step had no effect.
    Accepted(bool),
}

impl Found {
    /// A register's value.
    pub fn value(value: impl Into<Value>) -> Self {
        Self::Value(Some(value.into()))
    }

    /// A list.
    pub fn list<V: Into<Value>>(values: impl IntoIterator<Item = V>) -> Self {
        Self::List(values.into_iter().map(Into::into).collect())
    }

    /// Balances by account.
    pub fn balances<'a>(balances: impl IntoIterator<Item = (&'a str, i64)>) -> Self {
        Self::Balances(balances.into_iter().map(|(key, balance)| (key.to_owned(), balance)).collect())
    }
}

/// A longer list is shown by its newest elements.
const SHOWN_ELEMENTS: usize = 12;

impl fmt::Display for Found {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done => Ok(()),
            Self::Value(None) => formatter.write_str(" → nothing"),
            Self::Value(Some(value)) => write!(formatter, " → {value}"),
            Self::List(values) => {
                let hidden = values.len().saturating_sub(SHOWN_ELEMENTS);
                formatter.write_str(" → [")?;
                if hidden > 0 {
                    write!(formatter, "({hidden} more) … ")?;
                }
                for (index, value) in values[hidden..].iter().enumerate() {
                    write!(formatter, "{}{value}", if index > 0 { " " } else { "" })?;
                }
                formatter.write_str("]")
            }
            Self::Number(number) => write!(formatter, " → {number}"),
            Self::Balances(balances) => write!(formatter, " → {balances:?}"),
            Self::Accepted(is_accepted) => formatter.write_str(if *is_accepted { " → made" } else { " → refused" }),
        }
    }
}

/// What the client knows of an operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It took effect; the findings, one for each step.
    Ok(Vec<Found>),
    /// It surely had no effect; the reason.
    Fail(String),
    /// It may have taken effect, may still, or may not; the reason why nobody knows.
    Unknown(String),
}

/// One operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operation {
    /// Its place in the history.
    pub id: usize,
    /// The client. It waits for each reply before it asks again.
    pub process: u64,
    /// The time when it was sent, or earlier.
    pub begin: Time,
    /// The time when its outcome was known, or later.
    pub end: Option<Time>,
    /// The steps that were asked.
    pub steps: Vec<Access>,
    /// The outcome.
    pub outcome: Outcome,
}

impl Operation {
    /// The time by which it has taken effect. Only a reply bounds that.
    #[must_use]
    pub fn effect_by(&self) -> Option<Time> {
        if self.is_ok() { self.end } else { None }
    }

    /// Whether it was acknowledged.
    #[must_use]
    pub fn is_ok(&self) -> bool {
        matches!(self.outcome, Outcome::Ok(_))
    }

    /// Whether it surely had no effect.
    #[must_use]
    pub fn is_failed(&self) -> bool {
        matches!(self.outcome, Outcome::Fail(_))
    }

    /// Whether nobody knows if it took effect.
    #[must_use]
    pub fn is_unknown(&self) -> bool {
        matches!(self.outcome, Outcome::Unknown(_))
    }

    /// Each step with what was found, if the reply is known.
    pub fn results(&self) -> impl Iterator<Item = (&Access, Option<&Found>)> {
        let found: &[Found] = match &self.outcome {
            Outcome::Ok(found) => found,
            _ => &[],
        };
        self.steps.iter().enumerate().map(move |(index, step)| (step, found.get(index)))
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "T{} (process {}, {}..", self.id, self.process, self.begin)?;
        if let Some(end) = self.end {
            write!(formatter, "{end}")?;
        }
        match &self.outcome {
            Outcome::Ok(_) => formatter.write_str("):")?,
            Outcome::Fail(why) => write!(formatter, ", FAILED: {why}):")?,
            Outcome::Unknown(why) => write!(formatter, ", UNKNOWN: {why}):")?,
        }
        for (index, (step, found)) in self.results().enumerate() {
            write!(formatter, "{} {step}", if index > 0 { "," } else { "" })?;
            if let Some(found) = found {
                write!(formatter, "{found}")?;
            }
        }
        Ok(())
    }
}
