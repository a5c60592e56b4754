//! The path language of records, run on encoded values: selecting, testing, changing.
//!
//! A path is compiled once ([`Path::parse`]) and is cheap to clone. It runs on the canonical Avro bytes of a record
//! with their schema. It builds no tree and decodes nothing that it does not look at. An update splices the bytes.
//! `docs/guide/record-paths.md` describes the language for users; the head of the parser has the grammar.
//!
//! Promises: no text, parameter or record makes anything here panic. What one evaluation may look at, match and hold in
//! memory is bounded (`limits::PATH_*`), and what several may together ([`Budget`]). Regular expressions take linear
//! time. An update gives a canonical record within `limits::RECORD_BYTES`, or it gives an error and nothing has
//! changed. Must not know registries, entities, or HTTP.

mod budget;
mod comparisons;
mod decimal;
mod edits;
mod error;
mod evaluate;
mod increment;
mod json;
mod lexer;
mod parameters;
mod parser;
mod predicate;
mod syntax;
mod update;
mod value;

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use millrace_avro::{NodeId, Schema};
use millrace_base::limits;

pub use budget::Budget;
pub use comparisons::Comparison;
pub use error::{EvaluationError, PathError, UpdateError};
pub use parameters::{Parameters, ParametersError};
pub use syntax::Comparator;
pub use update::{Change, Tested, Updated};

use evaluate::{Machine, ValueLocation};
use parser::Parsed;
use syntax::{Expression, Steps, Writer};

/// A path, parsed and ready to run. A clone shares it.
#[derive(Clone)]
pub struct Path(Arc<Compiled<Steps>>);

/// A condition on a value, as written between `{` and `}`. A clone shares it.
#[derive(Clone)]
pub struct Predicate(Arc<Compiled<Expression>>);

struct Compiled<T> {
    parsed: Parsed<T>,
    text: Box<str>,
}

/// Where a path matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Match {
    /// The node of the value: a union if the schema says so, whatever its branch.
    pub node: NodeId,
    /// Its bytes in the record.
    pub range: Range<usize>,
}

impl Path {
    /// Reads a path.
    ///
    /// # Errors
    /// If the text is not a path, is too long or nests too deep. The error has the place.
    pub fn parse(text: &str) -> Result<Self, PathError> {
        let mut parsed = parser::path(text)?;
        // A whole path begins with the record anyway, so `^.a` is `.a`.
        if !parsed.syntax.steps.is_empty() {
            parsed.syntax.from_root = false;
        }
        let begins_path = matches!(
            parsed.syntax.steps.first(),
            Some(
                syntax::PathStep::All
                    | syntax::PathStep::At(_)
                    | syntax::PathStep::Slice(..)
                    | syntax::PathStep::Filter(_)
            )
        );
        parsed.syntax.from_root |= begins_path;
        let mut text = String::new();
        Writer { parameters: &parsed.parameters }.steps(&mut text, &parsed.syntax);
        Ok(Self(Arc::new(Compiled { parsed, text: text.into() })))
    }

    /// The path in a normal form: equal paths have equal texts, and parsing the text gives the same path.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.0.text
    }

    /// Whether it consists of names and `[*]` only, so that there can be an index of it.
    #[must_use]
    pub fn is_simple(&self) -> bool {
        self.steps().is_simple()
    }

    /// The places it matches, in document order. Alternatives come one after the other. A place that is reached in two
    /// ways is there twice.
    ///
    /// # Errors
    /// If a parameter is missing, or limits are reached.
    pub fn select(
        &self,
        schema: &Schema,
        record: &[u8],
        parameters: &Parameters,
    ) -> Result<Vec<Match>, EvaluationError> {
        let mut budget = Budget::UNBOUNDED;
        let mut machine = self.machine(schema, record, parameters, &mut budget)?;
        let root = machine.root();
        let places = machine.follow(self.steps(), root)?;
        check_matches(places.len())?;
        let found = |place: ValueLocation| Ok(Match { node: place.node, range: machine.range(place)? });
        places.into_iter().map(found).collect()
    }

    fn steps(&self) -> &Steps {
        &self.0.parsed.syntax
    }

    fn machine<'v>(
        &'v self,
        schema: &'v Schema,
        record: &'v [u8],
        parameters: &'v Parameters,
        budget: &'v mut Budget,
    ) -> Result<Machine<'v>, EvaluationError> {
        let Parsed { slots, parameters: names, .. } = &self.0.parsed;
        Machine::new((schema, record), names, *slots, parameters, budget)
    }
}

impl Predicate {
    /// Reads a predicate, without braces.
    ///
    /// # Errors
    /// If the text is not a predicate, is too long or nests too deep. The error has the place.
    pub fn parse(text: &str) -> Result<Self, PathError> {
        let parsed = parser::predicate(text)?;
        let mut text = String::new();
        Writer { parameters: &parsed.parameters }.expression(&mut text, &parsed.syntax);
        Ok(Self(Arc::new(Compiled { parsed, text: text.into() })))
    }

    /// As [`Path::text`].
    #[must_use]
    pub fn text(&self) -> &str {
        &self.0.text
    }

    /// Whether it holds for a record.
    ///
    /// # Errors
    /// If a parameter is missing, or limits are reached.
    pub fn matches(&self, schema: &Schema, record: &[u8], parameters: &Parameters) -> Result<bool, EvaluationError> {
        self.matches_within(schema, record, parameters, &mut Budget::UNBOUNDED.clone())
    }

    /// The same, within a budget.
    ///
    /// # Errors
    /// As [`Predicate::matches`], and if the budget is spent.
    pub fn matches_within(
        &self,
        schema: &Schema,
        record: &[u8],
        parameters: &Parameters,
        budget: &mut Budget,
    ) -> Result<bool, EvaluationError> {
        let Parsed { slots, parameters: names, syntax } = &self.0.parsed;
        let mut machine = Machine::new((schema, record), names, *slots, parameters, budget)?;
        let root = machine.root();
        machine.holds(syntax, root)
    }

    /// Whether a value is given for every `$name`. Parameters that no `$name` asks for are allowed.
    ///
    /// # Errors
    /// [`EvaluationError::UnboundParameter`], for the first one that is missing.
    pub fn check_parameters(&self, parameters: &Parameters) -> Result<(), EvaluationError> {
        let missing = self.0.parsed.parameters.iter().find(|name| parameters.get(name).is_none());
        missing.map_or(Ok(()), |name| Err(EvaluationError::UnboundParameter(name.clone())))
    }
}

fn check_matches(count: usize) -> Result<(), EvaluationError> {
    if count > limits::PATH_MATCHES { Err(EvaluationError::TooManyMatches) } else { Ok(()) }
}

impl fmt::Debug for Path {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Path({})", self.text())
    }
}

impl fmt::Debug for Predicate {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Predicate({})", self.text())
    }
}

impl PartialEq for Path {
    fn eq(&self, other: &Self) -> bool {
        self.text() == other.text()
    }
}

impl PartialEq for Predicate {
    fn eq(&self, other: &Self) -> bool {
        self.text() == other.text()
    }
}
