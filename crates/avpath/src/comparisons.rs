//! What a predicate demands. A query uses this to look for records by an index.

use serde_json::Value;

use crate::syntax::{Comparator, Expression, Literal, Operator, Steps, Writer};
use crate::{EvaluationError, Parameters, Predicate};

/// A demand `path operator value`. If a record does not meet it, the predicate does not hold for the record.
///
/// It holds if it is true of any value at the path. Different values may meet two demands on a path with several
/// values, so `.a[*] > 1 && .a[*] < 5` is not a range.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// As [`crate::Path::text`] has it, of names and `[*]` only. If it leads to an array, its elements are compared, as
    /// if `[*]` followed.
    pub path: String,
    /// The comparator.
    pub comparator: Comparator,
    /// Compared with any of these. None of them is an array or an object.
    pub values: Vec<Value>,
}

impl Predicate {
    /// The demands at the top of the predicate, joined by `&&`, between a simple path and literals or parameters. The
    /// predicate may contain more than these.
    ///
    /// # Errors
    /// If a parameter is missing.
    pub fn comparisons(&self, parameters: &Parameters) -> Result<Vec<Comparison>, EvaluationError> {
        let names = &self.0.parsed.parameters;
        let find = Find { names, parameters };
        let mut found = Vec::new();
        find.conjuncts(&self.0.parsed.syntax, &mut found)?;
        Ok(found)
    }
}

struct Find<'a> {
    names: &'a [Box<str>],
    parameters: &'a Parameters,
}

impl Find<'_> {
    fn conjuncts(&self, expression: &Expression, found: &mut Vec<Comparison>) -> Result<(), EvaluationError> {
        match expression {
            Expression::And(operands) => operands.iter().try_for_each(|operand| self.conjuncts(operand, found)),
            Expression::Chain(left, rest) => {
                if let [(Operator::Compare(comparator), right)] = &**rest {
                    found.extend(self.comparison(left, *comparator, right)?);
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn comparison(
        &self,
        left: &Expression,
        comparator: Comparator,
        right: &Expression,
    ) -> Result<Option<Comparison>, EvaluationError> {
        let (path, comparator, operand) = match (left, right) {
            (Expression::Path(path), operand) => (path, Some(comparator), operand),
            (operand, Expression::Path(path)) => (path, comparator.mirrored(), operand),
            _ => return Ok(None),
        };
        let (true, Some(comparator), Some(values)) = (path.is_simple(), comparator, self.values(operand)?) else {
            return Ok(None);
        };
        Ok(Some(Comparison { path: self.text(path), comparator, values }))
    }

    /// In the predicate of a record, `^.a` is `.a`.
    fn text(&self, path: &Steps) -> String {
        let mut text = String::new();
        Writer { parameters: self.names }.steps(&mut text, path);
        text.trim_start_matches('^').to_owned()
    }

    fn values(&self, operand: &Expression) -> Result<Option<Vec<Value>>, EvaluationError> {
        let value = match operand {
            Expression::Literal(Literal::Null) => Value::Null,
            Expression::Literal(Literal::Boolean(value)) => Value::from(*value),
            Expression::Literal(Literal::Integer(value)) => Value::from(*value),
            Expression::Literal(Literal::Float(value)) => Value::from(*value),
            Expression::Literal(Literal::Text(text)) => Value::from(&**text),
            Expression::Parameter(number) => {
                let name = self.names.get(*number as usize).map_or("", |name| name);
                let unbound = || EvaluationError::UnboundParameter(name.into());
                self.parameters.get(name).ok_or_else(unbound)?.clone()
            }
            _ => return Ok(None),
        };
        let values = if let Value::Array(values) = value { values } else { vec![value] };
        let are_scalar = !values.iter().any(|value| value.is_array() || value.is_object());
        Ok(are_scalar.then_some(values))
    }
}
