//! Schema resolution: reading with one schema what was written with another.
//!
//! A [`Resolution`] is computed once for two schemas. It is a plan for each pair of types that meet. If the bytes are
//! the same for both, it copies them whole.
//!
//! It follows the specification, with these choices where the specification leaves one or implementations differ. In a
//! reader's union, the branch of the writer's own type goes before one to which it is promoted, as in the Java
//! implementation. (The text says "the first".) Named types match by full name, by an alias, or else by the name
//! without namespace. Decimals match only with the same scale and no smaller precision, because a value would silently
//! become another one. For the same reason no logical type is read as another one: a number of milliseconds is not a
//! number of microseconds. Nor is text read as the bytes of a decimal, or the other way round. A logical type may be
//! added to a type or dropped from it.

use crate::binary::{Reader, TOO_DEEP, write_bytes, write_length};
use crate::canonical::{Budget, check_depth, finish_items};
use crate::decimal;
use crate::error::{ValueError, ValueErrorKind};
use crate::resolve_plan::{self, FieldStep, Plan, PlanId};
use crate::schema::{NodeId, Schema};
use std::fmt;

/// One thing that a reader could not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Incompatibility {
    /// The place in the reader's schema: `.emails[*]`, `.devApps("*").n`; `.` for the whole.
    pub path: String,
    /// The reason, for people.
    pub message: String,
}

impl fmt::Display for Incompatibility {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.path, self.message)
    }
}

/// Two schemas of which one can read no value of the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Incompatible(pub Incompatibility);

impl fmt::Display for Incompatible {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

impl std::error::Error for Incompatible {}

/// Why one value cannot be read with another schema. The path is one of the writer's.
pub type ResolveError = ValueError;

/// Whether `reader` can read whatever is written with `writer`.
///
/// # Errors
/// What it cannot read, up to a bound.
pub fn check_readable(writer: &Schema, reader: &Schema) -> Result<(), Vec<Incompatibility>> {
    let failures = resolve_plan::build(writer, reader).failures;
    if failures.is_empty() { Ok(()) } else { Err(failures) }
}

/// How values of one schema become values of another.
#[derive(Clone, Debug)]
pub struct Resolution {
    writer: Schema,
    plans: Box<[Plan]>,
    is_identity: bool,
}

impl Resolution {
    /// Computes it. Values that `reader` cannot read are found when they come, as long as it can read others.
    ///
    /// # Errors
    /// If the reader can read no value.
    pub fn new(writer: &Schema, reader: &Schema) -> Result<Resolution, Incompatible> {
        let built = resolve_plan::build(writer, reader);
        if let Some(failure) = built.failure_of_all() {
            return Err(Incompatible(failure));
        }
        let is_identity = matches!(built.plans.first(), Some(Plan::Copy(_)));
        Ok(Resolution { writer: writer.clone(), plans: built.plans.into(), is_identity })
    }

    /// Whether every value's bytes stay as they are.
    #[must_use]
    pub fn is_identity(&self) -> bool {
        self.is_identity
    }

    /// Appends what the reader's schema makes of a value of the writer's.
    ///
    /// # Errors
    /// If the bytes are not such a value, or one for which the reader has no type, branch or symbol. Throw away what
    /// was appended.
    pub fn apply(&self, bytes: &[u8], out: &mut Vec<u8>) -> Result<(), ResolveError> {
        let start = out.len();
        let mut run = Run { resolution: self, reader: Reader::new(bytes), out, start, budget: Budget::default() };
        run.plan(PlanId(0), 0)?;
        if !run.reader.is_at_end() {
            return Err(ValueError::new(ValueErrorKind::Malformed, "the bytes go on behind the value"));
        }
        run.check_size()
    }
}

struct Run<'r, 'b, 'o> {
    resolution: &'r Resolution,
    reader: Reader<'b>,
    out: &'o mut Vec<u8>,
    start: usize,
    budget: Budget,
}

impl Run<'_, '_, '_> {
    fn check_size(&self) -> Result<(), ValueError> {
        self.budget.check_size(self.out.len() - self.start)
    }

    fn copy(&mut self, node: NodeId) -> Result<(), ValueError> {
        let start = self.reader.position();
        self.reader.skip(&self.resolution.writer, node)?;
        self.out.extend_from_slice(self.reader.since(start));
        Ok(())
    }

    fn plan(&mut self, id: PlanId, depth: usize) -> Result<(), ValueError> {
        let resolution = self.resolution;
        match &resolution.plans[id.0] {
            Plan::Copy(node) => self.copy(*node)?,
            Plan::LongToFloat => {
                let number = self.reader.long()? as f32;
                self.out.extend_from_slice(&number.to_le_bytes());
            }
            Plan::LongToDouble => {
                let number = self.reader.long()? as f64;
                self.out.extend_from_slice(&number.to_le_bytes());
            }
            Plan::FloatToDouble => {
                let number = f64::from(self.reader.float()?);
                self.out.extend_from_slice(&number.to_le_bytes());
            }
            Plan::BytesToString => write_bytes(self.out, self.reader.string()?.as_bytes()),
            Plan::ToDecimal { size, precision } => self.decimal(*size, *precision)?,
            Plan::Enum(symbols) => {
                let index = self.reader.index(symbols.len())?;
                match symbols[index] {
                    Some(symbol) => write_length(self.out, symbol as usize),
                    None => return unreadable("the reader's enum has no such symbol, and no default"),
                }
            }
            Plan::Array(item) => {
                self.blocks(depth, |run, index| run.plan(*item, depth + 1).map_err(|error| error.in_item(index)))?
            }
            Plan::Map(value) => self.blocks(depth, |run, _| {
                let key = run.reader.string()?;
                write_bytes(run.out, key.as_bytes());
                run.plan(*value, depth + 1).map_err(|error| error.in_entry(key))
            })?,
            Plan::Record(steps) => {
                check_depth(depth)?;
                for step in steps {
                    self.step(step, depth)?;
                }
            }
            Plan::Reordered { fields, steps } => self.reordered(fields, steps, depth)?,
            Plan::FromUnion(branches) => {
                let index = self.reader.index(branches.len())?;
                self.plan(branches[index], depth)?;
            }
            Plan::ToUnion(branch, plan) => {
                write_length(self.out, *branch as usize);
                self.plan(*plan, depth)?;
            }
            Plan::Fail(message) => return unreadable(message),
            Plan::Open => return Err(ValueError::new(ValueErrorKind::TooDeep, TOO_DEEP)),
        }
        Ok(())
    }

    fn step(&mut self, step: &FieldStep, depth: usize) -> Result<(), ValueError> {
        match step {
            FieldStep::Skip(node) => Ok(self.reader.skip(&self.resolution.writer, *node)?),
            FieldStep::Apply(name, plan) => self.plan(*plan, depth + 1).map_err(|error| error.in_field(name)),
            FieldStep::Default(bytes) => {
                self.out.extend_from_slice(bytes);
                self.check_size()
            }
            // Only in reordered records.
            FieldStep::Jump(_) => Ok(()),
        }
    }

    /// The fields come in another order: their places are found first.
    fn reordered(&mut self, fields: &[NodeId], steps: &[FieldStep], depth: usize) -> Result<(), ValueError> {
        check_depth(depth)?;
        let mut places = Vec::with_capacity(fields.len());
        for node in fields {
            places.push(self.reader.clone());
            self.reader.skip(&self.resolution.writer, *node)?;
        }
        let end = self.reader.clone();
        for step in steps {
            match step {
                FieldStep::Jump(field) => self.reader = places[*field].clone(),
                step => self.step(step, depth)?,
            }
        }
        self.reader = end;
        Ok(())
    }

    fn decimal(&mut self, size: Option<usize>, precision: u32) -> Result<(), ValueError> {
        let bytes = match size {
            Some(size) => self.reader.fixed(size)?,
            None => self.reader.bytes()?,
        };
        if !decimal::fits(bytes, precision) {
            return unreadable("the number has more digits than the reader's decimal");
        }
        match size {
            Some(_) => self.out.extend_from_slice(bytes),
            None => write_bytes(self.out, decimal::shortest(bytes)),
        }
        Ok(())
    }

    fn blocks(
        &mut self,
        depth: usize,
        mut item: impl FnMut(&mut Self, usize) -> Result<(), ValueError>,
    ) -> Result<(), ValueError> {
        check_depth(depth)?;
        let start = self.out.len();
        let mut items = 0;
        loop {
            let count = self.reader.block()?;
            if count == 0 {
                break;
            }
            for _ in 0..count {
                let length = self.out.len();
                item(self, items)?;
                items += 1;
                if self.out.len() == length {
                    self.budget.count_empty()?;
                }
                self.check_size()?;
            }
        }
        finish_items(self.out, start, items);
        Ok(())
    }
}

#[cold]
fn unreadable<T>(message: &str) -> Result<T, ValueError> {
    Err(ValueError::new(ValueErrorKind::WrongType, message))
}
