//! The values of `$name` in paths.

use std::collections::BTreeMap;
use std::fmt;

use millrace_base::{Error, ErrorCode};
use serde_json::Value;

/// Values by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Parameters {
    values: BTreeMap<String, Value>,
}

/// A text that is not a JSON object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParametersError(String);

impl Parameters {
    /// None.
    pub const NONE: &'static Self = &Self { values: BTreeMap::new() };

    /// From a JSON object, whose members have the names without `$`. An empty text gives none.
    ///
    /// # Errors
    /// If the text is anything else.
    pub fn parse(json: &str) -> Result<Self, ParametersError> {
        if json.is_empty() {
            return Ok(Self::default());
        }
        let values = serde_json::from_str(json).map_err(|error| ParametersError(error.to_string()))?;
        Ok(Self { values })
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Value> {
        self.values.get(name)
    }
}

impl fmt::Display for ParametersError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "parameters are a JSON object: {}", self.0)
    }
}

impl std::error::Error for ParametersError {}

impl From<ParametersError> for Error {
    fn from(error: ParametersError) -> Self {
        Error::new(ErrorCode::InvalidInput, error.to_string())
    }
}
