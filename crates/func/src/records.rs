//! Which types of records an app's functions may use: the `[records]` of its `millrace.toml`.

use std::collections::BTreeSet;

use millrace_api::{Error, ErrorCode};
use millrace_base::{Name, limits};
use serde::Deserialize;

/// Stands for every type.
const EVERY: &str = "*";

/// What an app may reach with `ctx.record`; nothing, unless its `millrace.toml` says so.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(from = "Section")]
pub struct RecordPolicy {
    types: BTreeSet<String>,
    allows_every: bool,
}

/// `[records]` as written.
#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
struct Section {
    types: Lines,
}

/// `types` by itself, so that what is wrong with it has its place in the file.
#[derive(Deserialize, Default)]
#[serde(try_from = "Vec<String>")]
struct Lines(RecordPolicy);

impl TryFrom<Vec<String>> for Lines {
    type Error = String;

    fn try_from(lines: Vec<String>) -> Result<Self, String> {
        RecordPolicy::new(lines).map(Self)
    }
}

impl From<Section> for RecordPolicy {
    fn from(section: Section) -> Self {
        section.types.0
    }
}

impl RecordPolicy {
    /// Allows these types; `*` allows all, those to come included.
    ///
    /// # Errors
    /// More lines than one app may have, and names that no type can have.
    pub fn new(types: Vec<String>) -> Result<Self, String> {
        if types.len() > limits::RECORD_TYPES {
            return Err(format!("records.types has {} lines; {} are allowed", types.len(), limits::RECORD_TYPES));
        }
        let mut policy = Self::default();
        for name in types {
            if name == EVERY {
                policy.allows_every = true;
            } else if is_type_name(&name) {
                policy.types.insert(name);
            } else {
                return Err(format!("records.types: {name:?} cannot be the name of a type of records"));
            }
        }
        Ok(policy)
    }

    /// Whether the app may use records of a type.
    ///
    /// # Errors
    /// `forbidden`, naming the setting that would allow it.
    pub fn allows(&self, type_name: &str) -> Result<(), Error> {
        if self.allows_every || self.types.contains(type_name) {
            return Ok(());
        }
        let message = format!(
            "the app may not use records of the type {type_name:?}; to allow it, add {type_name:?} to `types` under \
             `[records]` in the app's millrace.toml"
        );
        Err(Error::new(ErrorCode::Forbidden, message))
    }
}

/// Whether records can have a type of that name: what holds `--` names services that the engine
/// of records keeps for itself.
fn is_type_name(name: &str) -> bool {
    name.len() <= limits::TYPE_NAME_BYTES && !has_double_hyphen(name) && Name::is_valid(name)
}

/// Names are short: a plain loop is quicker than a searcher.
pub(crate) fn has_double_hyphen(name: &str) -> bool {
    name.as_bytes().windows(2).any(|pair| pair == b"--")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(types: &[&str]) -> Result<RecordPolicy, String> {
        RecordPolicy::new(types.iter().map(|name| (*name).to_owned()).collect())
    }

    #[test]
    fn only_named_types_are_allowed() {
        let one = policy(&["personinfo"]).expect("a policy");
        assert_eq!(one.allows("personinfo"), Ok(()));
        let error = one.allows("account").expect_err("not named");
        assert_eq!(error.code, ErrorCode::Forbidden);
        assert!(error.message.contains("add \"account\" to `types` under `[records]`"), "{error}");
        assert!(RecordPolicy::default().allows("personinfo").is_err());
        assert_eq!(policy(&["*"]).expect("a policy").allows("anything"), Ok(()));
    }

    #[test]
    fn names_that_no_type_can_have_are_refused() {
        for name in ["", "a b", "personinfo--shard", "**", &"x".repeat(limits::TYPE_NAME_BYTES + 1)] {
            assert!(policy(&[name]).is_err(), "{name:?}");
        }
        assert!(policy(&vec!["a"; limits::RECORD_TYPES + 1]).is_err());
    }
}
